//! What was found out about stripes that cannot be read, and what of it an operator was told.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use stele_ground::{Duration, Instant, VolumeId};

use crate::model::place::{RowId, SlotId, StripeKey};

/// Since when, and the units that were hoped for since then, as strip and unit.
type Listed = (Instant, BTreeSet<(usize, usize)>);

/// Of the stripes that too many drives are away of, so many are known one by one. Of an enclosure
/// it may be all there are.
const KNOWN_MAX: usize = 1 << 20;

/// Stripes that too many drives are away of.
#[derive(Default)]
pub struct Unreadable {
    known: BTreeMap<SlotId, StripeKey>,
    /// Those beyond, which are only counted.
    more: usize,
}

impl Unreadable {
    pub fn note(&mut self, slot: SlotId, key: StripeKey) {
        match self.known.len() < KNOWN_MAX {
            true => drop(self.known.insert(slot, key)),
            false => self.more += 1,
        }
    }
}

#[derive(Default)]
pub struct Losses {
    /// Listed as lost, and not told of yet.
    news: RefCell<BTreeMap<VolumeId, BTreeSet<u64>>>,
    telling: Cell<bool>,
    /// When stripes were listed last.
    listed_at: RefCell<BTreeMap<StripeKey, Listed>>,
    /// Looks at the listed stripes so far, while more are to come; and whether stripes were listed
    /// since they began.
    looks: Cell<Option<usize>>,
    listed_since: Cell<bool>,
    /// Stripes that too many drives are away of, as of the last look.
    unreadable: RefCell<Unreadable>,
    /// Strips that drives which are being filled lack, and that only drives which are away could
    /// tell: by slot and member.
    waiting: RefCell<BTreeMap<(SlotId, u8), StripeKey>>,
    /// That look is over, and no drive came or went since it began.
    looked: Cell<bool>,
    /// Members of rows whose strips no spare cell was left for.
    without_spare: RefCell<BTreeSet<(RowId, u8)>>,
}

impl Losses {
    /// The stripe was listed as lost. True where an alarm has to be prepared: none is under way.
    pub fn note(&self, volume: VolumeId, stripe: u64, now: Instant) -> bool {
        self.listed_at.borrow_mut().insert(StripeKey { volume, stripe }, (now, BTreeSet::new()));
        self.news.borrow_mut().entry(volume).or_default().insert(stripe);
        !self.telling.replace(true)
    }

    /// How long all of these units of the listed stripe have been hoped for, as far as is known
    /// since the opening. A unit that is new among them begins the time anew: what was lost long
    /// ago says nothing of it.
    pub fn hoped_for(&self, key: StripeKey, units: &BTreeSet<(usize, usize)>, now: Instant) -> Duration {
        let mut listed = self.listed_at.borrow_mut();
        let (since, known) = listed.entry(key).or_insert((now, BTreeSet::new()));
        if !units.is_subset(known) {
            known.extend(units);
            *since = now;
        }
        now.since(*since)
    }

    /// The stripe was read whole, and lacks these units of it. Another that was hoped for is there
    /// again: should it be missed once more, the time begins anew.
    pub fn still_lost(&self, key: StripeKey, lost: &[(usize, usize)]) {
        if let Some((_, known)) = self.listed_at.borrow_mut().get_mut(&key) {
            known.retain(|unit| lost.contains(unit));
        }
    }

    /// Listed stripes are to be looked at again. True where that has to be begun.
    pub fn begin_looks(&self) -> bool {
        let is_under_way = self.looks.get().is_some();
        self.listed_since.set(is_under_way);
        self.looks.set(self.looks.get().or(Some(0)));
        !is_under_way
    }

    /// How long to wait for the next look. None: it was the last.
    pub fn next_look(&self, waits: &[Duration]) -> Option<Duration> {
        let mut next = self.looks.get()?;
        if next == waits.len() && self.listed_since.take() {
            next = 0;
        }
        let wait = waits.get(next).copied();
        self.looks.set(wait.map(|_| next + 1));
        wait
    }

    /// What no alarm has told yet.
    pub fn take_news(&self) -> BTreeMap<VolumeId, BTreeSet<u64>> {
        self.news.take()
    }

    /// The last alarm is out.
    pub fn stop_telling(&self) {
        self.telling.set(false);
    }

    /// Drives came or went: what was found before may be wrong.
    pub fn begin_look(&self) {
        self.looked.set(false);
    }

    pub fn end_look(&self, found: Unreadable) {
        self.unreadable.replace(found);
        self.looked.set(true);
    }

    /// False while it is being found out which stripes cannot be read.
    pub fn knows_unreadable(&self) -> bool {
        self.looked.get()
    }

    pub fn is_unreadable(&self, slot: SlotId) -> bool {
        self.unreadable.borrow().known.contains_key(&slot)
    }

    /// No longer are more drives of the slot away than it survives.
    pub fn reachable(&self, slot: SlotId) {
        self.unreadable.borrow_mut().known.remove(&slot);
    }

    /// The slot holds something else now.
    pub fn freed(&self, slot: SlotId) {
        self.reachable(slot);
        let mut waiting = self.waiting.borrow_mut();
        let members: Vec<(SlotId, u8)> = waiting.range((slot, 0)..=(slot, u8::MAX)).map(|(place, _)| *place).collect();
        for place in members {
            waiting.remove(&place);
        }
    }

    /// The strip of the member waits for drives that are away, or does so no more.
    pub fn note_waiting(&self, slot: SlotId, member: u8, key: Option<StripeKey>) {
        let mut waiting = self.waiting.borrow_mut();
        match key {
            Some(key) => waiting.insert((slot, member), key),
            None => waiting.remove(&(slot, member)),
        };
    }

    /// Drives came or went: forgets the strips of members that are not being filled any more.
    pub fn keep_waiting(&self, is_filled: impl Fn(RowId, u8) -> bool) {
        self.waiting.borrow_mut().retain(|(slot, member), _| is_filled(slot.row, *member));
    }

    /// How many stripes cannot be read while drives are away, beside these.
    pub fn unreadable_beside(&self, lost: &BTreeSet<StripeKey>) -> usize {
        let (unreadable, waiting) = (self.unreadable.borrow(), self.waiting.borrow());
        // No two slots hold one stripe.
        let also_waiting: BTreeSet<&StripeKey> = waiting.values().filter(|key| !lost.contains(key)).collect();
        let other = |key: &&StripeKey| !lost.contains(key) && !also_waiting.contains(key);
        let known = match lost.is_empty() && also_waiting.is_empty() {
            true => unreadable.known.len(),
            false => unreadable.known.values().filter(other).count(),
        };
        known + also_waiting.len() + unreadable.more
    }

    /// Stripes of the layer that cannot be read while drives are away, in order, as far as they are
    /// known one by one.
    pub fn unreadable_of(&self, volume: VolumeId) -> Vec<u64> {
        let (unreadable, waiting) = (self.unreadable.borrow(), self.waiting.borrow());
        let of_it = unreadable.known.values().chain(waiting.values()).filter(|key| key.volume == volume);
        let stripes: BTreeSet<u64> = of_it.map(|key| key.stripe).collect();
        stripes.into_iter().collect()
    }

    /// No spare cell is left for the member's strips. True where none of those that lacked one
    /// before still needs one.
    pub fn lack_spare(&self, row: RowId, member: u8, mut needs: impl FnMut(RowId, u8) -> bool) -> bool {
        let mut without = self.without_spare.borrow_mut();
        while without.first().is_some_and(|(row, member)| !needs(*row, *member)) {
            without.pop_first();
        }
        let is_first = without.is_empty();
        without.insert((row, member));
        is_first
    }

    pub fn has_spare(&self, row: RowId, member: u8) {
        self.without_spare.borrow_mut().remove(&(row, member));
    }

    /// Rows with a member that lacks a spare cell, of those members that still need one.
    pub fn rows_without_spare(&self, mut needs: impl FnMut(RowId, u8) -> bool) -> BTreeSet<RowId> {
        let mut without = self.without_spare.borrow_mut();
        without.retain(|(row, member)| needs(*row, *member));
        without.iter().map(|(row, _)| *row).collect()
    }
}

#[cfg(test)]
mod tests;
