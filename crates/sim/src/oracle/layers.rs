//! What snapshots, clones and rolled back volumes may hold: what their origins could, at the time.

use super::{Candidate, NEVER, Oracle};

impl Oracle {
    /// A snapshot is asked for. It will hold what was acknowledged by now, and of every write that is or comes under way
    /// until it is answered, perhaps that.
    pub fn begin_snapshot(&mut self) {
        let mut shadow = Oracle { shadow: None, frozen: true, ..self.clone() };
        shadow.reads.clear();
        self.shadow = Some(Box::new(shadow));
    }

    /// The snapshot exists (or, with the answer thrown away, does not): what it may hold, for good.
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

    /// The volume shows what the snapshot does, zeros behind it; or, if it is not `surely` so, perhaps still what it did.
    /// Nothing is under way on it.
    pub fn roll_back(&mut self, to: &Oracle, surely: bool) {
        let now = self.tick();
        for (index, block) in self.blocks.iter_mut().enumerate() {
            if surely {
                block.clear();
            }
            let back = |value| Candidate { value, began: now, ended: now, replaced: NEVER };
            match to.blocks.get(index) {
                Some(there) => {
                    block.extend(there.iter().filter(|there| there.replaced == NEVER).map(|there| back(there.value)));
                }
                None => block.push(back(0)),
            }
        }
    }
}
