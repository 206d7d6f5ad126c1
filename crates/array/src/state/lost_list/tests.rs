use stele_ground::VolumeId;

use super::LostList;
use crate::model::place::StripeKey;

fn key(stripe: u64) -> StripeKey {
    StripeKey { volume: VolumeId(1), stripe }
}

/// With a search from the front this would take minutes.
#[test]
fn a_long_list_takes_no_longer_for_each_stripe_and_becomes_short_again() {
    const MANY: u64 = 200_000;
    let mut list = LostList::default();
    (0..MANY).for_each(|stripe| list.set(key(stripe), true));
    assert_eq!(list.stripes().count() as u64, MANY);
    list.note_saved();
    (MANY..2 * MANY).for_each(|stripe| list.set(key(stripe), false));
    assert!(!list.note_saved(), "none of these was on the list");
    (0..MANY).for_each(|stripe| list.set(key(stripe), false));
    assert!(list.entries().is_empty(), "{} entries are left", list.entries().len());
    assert!(list.note_saved());
}

#[test]
fn entries_keep_their_places_and_freed_ones_are_used_again() {
    let mut list = LostList::default();
    (0..4).for_each(|stripe| list.set(key(stripe), true));
    list.set(key(1), false);
    assert_eq!(list.entries(), [Some(key(0)), None, Some(key(2)), Some(key(3))]);
    list.set(key(9), true);
    list.set(key(9), true);
    assert_eq!(list.entries(), [Some(key(0)), Some(key(9)), Some(key(2)), Some(key(3))]);
    list.set(key(2), false);
    list.set(key(3), false);
    assert_eq!(list.entries(), [Some(key(0)), Some(key(9))], "what is empty at the end goes");
    list.set(key(2), true);
    assert_eq!(list.entries().len(), 3);
}
