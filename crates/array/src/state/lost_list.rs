//! Lost stripes as they stand in their table: each keeps its entry until it is lost no more.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::place::StripeKey;

#[derive(Default)]
pub struct LostList {
    entries: Vec<Option<StripeKey>>,
    /// Where each of them stands.
    places: BTreeMap<StripeKey, usize>,
    /// Entries that are empty. The last one never is.
    free: BTreeSet<usize>,
    /// The table does not say so yet.
    changed: bool,
}

impl LostList {
    /// Enters a stripe, or takes it off.
    pub fn set(&mut self, key: StripeKey, lost: bool) {
        match lost {
            true if !self.places.contains_key(&key) => self.enter(key),
            false => {
                if let Some(place) = self.places.remove(&key) {
                    self.empty(place);
                }
            }
            true => {}
        }
    }

    fn enter(&mut self, key: StripeKey) {
        let place = self.free.pop_first().unwrap_or(self.entries.len());
        if place == self.entries.len() {
            self.entries.push(None);
        }
        self.entries[place] = Some(key);
        self.places.insert(key, place);
        self.changed = true;
    }

    fn empty(&mut self, place: usize) {
        self.entries[place] = None;
        self.free.insert(place);
        // What is empty at the end is not stored any more.
        while let Some(None) = self.entries.last() {
            self.entries.pop();
            self.free.remove(&self.entries.len());
        }
        self.changed = true;
    }

    /// All entries, empty ones too.
    pub fn entries(&self) -> &[Option<StripeKey>] {
        &self.entries
    }

    pub fn stripes(&self) -> impl Iterator<Item = StripeKey> + '_ {
        self.places.keys().copied()
    }

    /// The table does not say what the list says.
    pub fn is_changed(&self) -> bool {
        self.changed
    }

    /// The table says what the list says now. Answers whether it did not before.
    pub fn note_saved(&mut self) -> bool {
        std::mem::replace(&mut self.changed, false)
    }
}

#[cfg(test)]
mod tests;
