use std::collections::BTreeSet;

use stele_ground::{Duration, Instant, VolumeId};

use super::Losses;
use crate::model::place::StripeKey;

const HOUR: Duration = Duration::from_secs(3600);

/// A unit was lost for good long ago; drives with others come loose for a moment.
#[test]
fn a_unit_that_is_newly_missed_is_waited_for_however_long_the_stripe_is_listed() {
    let (losses, key) = (Losses::default(), StripeKey { volume: VolumeId(1), stripe: 7 });
    let begun = Instant(0);
    let old = BTreeSet::from([(0, 3)]);
    let more = BTreeSet::from([(0, 3), (1, 3)]);
    losses.note(key.volume, key.stripe, begun);
    assert_eq!(losses.hoped_for(key, &old, begun), Duration(0));
    assert_eq!(losses.hoped_for(key, &old, begun + HOUR), HOUR);
    assert_eq!(losses.hoped_for(key, &more, begun + HOUR), Duration(0));
    assert_eq!(losses.hoped_for(key, &old, begun + HOUR + HOUR), HOUR, "fewer of them");
}

/// A unit was lost for good long ago; a drive with another comes loose, recovers, and comes loose
/// again hours later.
#[test]
fn a_unit_that_was_whole_meanwhile_is_waited_for_anew() {
    let (losses, key) = (Losses::default(), StripeKey { volume: VolumeId(1), stripe: 7 });
    let begun = Instant(0);
    let more = BTreeSet::from([(0, 3), (1, 3)]);
    losses.note(key.volume, key.stripe, begun);
    assert_eq!(losses.hoped_for(key, &more, begun), Duration(0));
    losses.still_lost(key, &[(0, 3)]);
    assert_eq!(losses.hoped_for(key, &more, begun + HOUR), Duration(0));
    losses.still_lost(key, &[(0, 3), (1, 3)]);
    assert_eq!(losses.hoped_for(key, &more, begun + HOUR + HOUR), HOUR, "it was never whole");
}
