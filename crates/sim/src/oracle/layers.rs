//! The possible contents of snapshots, clones and rolled back volumes: those of their origins at
//! the time.

use super::{Candidate, NEVER, Oracle};

impl Oracle {
    /// A snapshot is requested. It will hold the writes acknowledged so far. It may hold every
    /// write that is under way before the answer.
    pub fn begin_snapshot(&mut self) {
        let mut shadow = Oracle { shadow: None, frozen: true, ..self.clone() };
        shadow.reads.clear();
        self.shadow = Some(Box::new(shadow));
    }

    /// The snapshot exists (or, if the result is dropped, does not): returns its possible contents,
    /// which are now final.
    pub fn end_snapshot(&mut self, name: &str) -> Option<Oracle> {
        let mut shadow = self.shadow.take()?;
        shadow.clock = self.clock;
        shadow.crash();
        shadow.name = name.into();
        Some(*shadow)
    }

    /// A volume that begins as this snapshot.
    pub fn clone_of(&self, name: &str) -> Oracle {
        let mut clone = Oracle { name: name.into(), frozen: false, ..self.clone() };
        clone.crash();
        clone
    }

    /// The volume now has the snapshot's content, and zeros after it; or, unless `surely`, perhaps
    /// still its former content. No operation is under way on it.
    pub fn roll_back(&mut self, to: &Oracle, surely: bool) {
        let now = self.tick();
        for (index, block) in self.blocks.iter_mut().enumerate() {
            if surely {
                block.clear();
            }
            let back = |value| Candidate { value, began: now, ended: now, replaced: NEVER, hidden: NEVER };
            match to.blocks.get(index) {
                Some(there) => {
                    block.extend(there.iter().filter(|there| there.replaced == NEVER).map(|there| back(there.value)));
                }
                None => block.push(back(0)),
            }
        }
    }
}
