//! Unit attentions: what each nexus has yet to be told. A nexus keeps at most [`PENDING_MAX`]; after that the oldest go,
//! since a reset among them says enough.

use std::collections::{BTreeMap, VecDeque};

use super::{NexusId, Sense};

const PENDING_MAX: usize = 8;

#[derive(Default)]
pub struct Attentions(BTreeMap<NexusId, VecDeque<Sense>>);

impl Attentions {
    pub fn raise(&mut self, nexus: NexusId, sense: Sense) {
        let pending = self.0.entry(nexus).or_default();
        // What a reset says includes all that was pending.
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
