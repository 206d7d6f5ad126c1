use std::collections::BTreeSet;

use stele_ground::{Duration, Instant, VolumeId};

use super::{KNOWN_MAX, Losses, Unreadable};
use crate::model::place::{RowId, SlotId, StripeKey};

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

/// An enclosure that is away may hold hundreds of millions of them.
#[test]
fn of_the_stripes_that_cannot_be_read_some_are_known_and_all_are_counted() {
    let (losses, mut found) = (Losses::default(), Unreadable::default());
    let slot = |index| SlotId { row: RowId(1), index };
    let key = |stripe: u32| StripeKey { volume: VolumeId(1), stripe: stripe.into() };
    let all = KNOWN_MAX as u32 + 5;
    (0..all).for_each(|index| found.note(slot(index), key(index)));
    losses.end_look(found);
    let lost = |stripes: &[u32]| stripes.iter().copied().map(key).collect::<BTreeSet<StripeKey>>();
    assert_eq!(losses.unreadable_beside(&lost(&[])), all as usize);
    assert_eq!(losses.unreadable_of(VolumeId(1)).len(), KNOWN_MAX);
    losses.note_waiting(slot(1), 0, Some(key(1)));
    losses.note_waiting(SlotId { row: RowId(2), index: 0 }, 0, Some(key(all)));
    assert_eq!(losses.unreadable_beside(&lost(&[])), all as usize + 1, "one of them was counted before");
    assert_eq!(losses.unreadable_beside(&lost(&[1, 2, all])), all as usize - 2, "the lost are counted elsewhere");
    losses.reachable(slot(3));
    assert!(!losses.is_unreadable(slot(3)) && losses.is_unreadable(slot(4)));
    assert_eq!(losses.unreadable_beside(&lost(&[])), all as usize);
}
