//! Records that the log must keep although no dirty block needs them: redo images under way.

use std::collections::BTreeMap;

use crate::model::place::Lsn;

#[derive(Default)]
pub struct LogPins(BTreeMap<Lsn, u32>);

impl LogPins {
    pub fn pin(&mut self, lsn: Lsn) {
        *self.0.entry(lsn).or_insert(0) += 1;
    }

    pub fn unpin(&mut self, lsn: Lsn) {
        if let Some(count) = self.0.get_mut(&lsn) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&lsn);
            }
        }
    }

    pub fn oldest(&self) -> Option<Lsn> {
        self.0.keys().next().copied()
    }
}
