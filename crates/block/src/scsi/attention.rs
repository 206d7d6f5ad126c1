//! Unit attentions that a nexus has not received yet. A nexus keeps at most [`PENDING_MAX`]. Beyond
//! that the oldest are dropped, since a reset among them covers the others.

use std::collections::{BTreeMap, VecDeque};

use super::{NexusId, Sense};

const PENDING_MAX: usize = 8;

#[derive(Default)]
pub struct Attentions(BTreeMap<NexusId, VecDeque<Sense>>);

impl Attentions {
    pub fn raise(&mut self, nexus: NexusId, sense: Sense) {
        let pending = self.0.entry(nexus).or_default();
        // A reset covers all pending attentions.
        if matches!(sense, Sense::POWER_ON | Sense::WAS_RESET) {
            pending.clear();
        }
        if pending.contains(&sense) {
            return;
        }
        if pending.len() == PENDING_MAX {
            pending.pop_front();
        }
        pending.push_back(sense);
    }

    pub fn take(&mut self, nexus: NexusId) -> Option<Sense> {
        let pending = self.0.get_mut(&nexus)?;
        let sense = pending.pop_front();
        if pending.is_empty() {
            self.0.remove(&nexus);
        }
        sense
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn forget(&mut self, nexus: NexusId) {
        self.0.remove(&nexus);
    }
}
