//! Lost stripes as they stand in their table: each keeps its entry until it is lost no more.

use crate::model::place::StripeKey;

#[derive(Default)]
pub struct LostList {
    entries: Vec<Option<StripeKey>>,
    /// The table does not say so yet.
    changed: bool,
}

impl LostList {
    /// Enters a stripe, or takes it off.
    pub fn set(&mut self, key: StripeKey, lost: bool) {
        let place = self.entries.iter().position(|entry| *entry == Some(key));
        match (lost, place) {
            (true, None) => {
                match self.entries.iter().position(Option::is_none) {
                    Some(free) => self.entries[free] = Some(key),
                    None => self.entries.push(Some(key)),
                }
                self.changed = true;
            }
            (false, Some(place)) => {
                self.entries[place] = None;
                self.changed = true;
            }
            _ => {}
        }
    }

    /// All entries, empty ones too.
    pub fn entries(&self) -> &[Option<StripeKey>] {
        &self.entries
    }

    pub fn stripes(&self) -> impl Iterator<Item = StripeKey> + '_ {
        self.entries.iter().flatten().copied()
    }

    /// The table says what the list says now. Answers whether it did not before.
    pub fn note_saved(&mut self) -> bool {
        std::mem::replace(&mut self.changed, false)
    }
}
