//! Redo images that strips are owed, by stripe, in the order in which they were made.
//!
//! The rules are in `stripe/redo.rs`. Lost with the process: recovery makes the list anew from the
//! log.

use std::collections::BTreeMap;

use stele_ground::BLOCK;
use stele_media::Shared;

use crate::model::place::{Lsn, SlotId, StripeKey};

/// Bytes for a strip, from an offset within it.
#[derive(Clone, Debug)]
pub struct StripWrite {
    pub strip: usize,
    pub at: usize,
    pub data: Vec<Shared>,
}

/// A redo record that no `Destaged` follows yet.
pub struct Redo {
    pub slot: SlotId,
    pub generation: u64,
    pub covers: Lsn,
    /// The oldest record that its replay needs: itself, or a write it refers to.
    pub oldest: Lsn,
    pub writes: Vec<StripWrite>,
    /// The strips have taken the images and were flushed, all but m of them.
    pub placed: bool,
}

/// At most one list for each destage under way or put off after its record.
#[derive(Default)]
pub struct Redos(BTreeMap<StripeKey, Vec<Redo>>);

impl Redos {
    pub fn keep(&mut self, key: StripeKey, redo: Redo) {
        self.0.entry(key).or_default().push(redo);
    }

    /// Nothing is owed to the stripe any more. Answers what was.
    pub fn forget(&mut self, key: StripeKey) -> Vec<Redo> {
        self.0.remove(&key).unwrap_or_default()
    }

    pub fn of(&self, key: StripeKey) -> &[Redo] {
        self.0.get(&key).map_or(&[], Vec::as_slice)
    }

    /// All but m strips have taken the images that are number `at` of the stripe's.
    pub fn note_placed(&mut self, key: StripeKey, at: usize) {
        if let Some(redo) = self.0.get_mut(&key).and_then(|list| list.get_mut(at)) {
            redo.placed = true;
        }
    }

    /// The replay of the stripe's images needs nothing older than these records now, by their
    /// number. Answers the old and the new record of each.
    pub fn renew(&mut self, key: StripeKey, oldest: &BTreeMap<usize, Lsn>) -> Vec<(Lsn, Lsn)> {
        let list = self.0.get_mut(&key).into_iter().flatten().enumerate();
        list.filter_map(|(at, redo)| {
            let lsn = *oldest.get(&at)?;
            Some((std::mem::replace(&mut redo.oldest, lsn), lsn))
        })
        .collect()
    }

    /// Images of the stripe wait for strips to take them.
    pub fn owes(&self, key: StripeKey) -> bool {
        self.of(key).iter().any(|redo| !redo.placed)
    }

    /// Bytes of images kept, and of those that wait for drives.
    pub fn bytes(&self) -> u64 {
        let writes = self.0.values().flatten().flat_map(|redo| &redo.writes);
        writes.flat_map(|write| &write.data).map(|data| data.len() as u64).sum()
    }

    /// The oldest record that replaying any of them needs.
    pub fn oldest(&self) -> Option<Lsn> {
        self.0.values().flatten().map(|redo| redo.oldest).min()
    }

    /// The oldest record that replaying any of them needs, and whose it is.
    pub fn first(&self) -> Option<(Lsn, StripeKey)> {
        self.oldest_of_each().min()
    }

    /// The newest write that the images of the stripe cover.
    pub fn covers(&self, key: StripeKey) -> Option<Lsn> {
        self.of(key).iter().map(|redo| redo.covers).max()
    }

    /// Whether the stripe's strips hold the block of this age already, under images that they have
    /// taken.
    pub fn holds(&self, key: StripeKey, strip: usize, block: usize, lsn: Lsn) -> bool {
        let taken = self.of(key).iter().filter(|redo| redo.placed && redo.covers >= lsn);
        taken.flat_map(|redo| &redo.writes).any(|write| {
            let length: usize = write.data.iter().map(|piece| piece.len()).sum();
            write.strip == strip && (write.at..write.at + length).contains(&(block * BLOCK))
        })
    }

    /// Stripes of which records older than this are pinned, with the oldest.
    pub fn older_than(&self, lsn: Lsn) -> Vec<(Lsn, StripeKey)> {
        self.oldest_of_each().filter(|(oldest, _)| *oldest < lsn).collect()
    }

    fn oldest_of_each(&self) -> impl Iterator<Item = (Lsn, StripeKey)> {
        self.0.iter().filter_map(|(key, list)| Some((list.iter().map(|redo| redo.oldest).min()?, *key)))
    }
}
