//! The snapshot of a drill: whether it exists, and its possible contents.

use stele_array::{Command, VolumeStatus};
use stele_ground::VolumeId;
use stele_media::{Buffer, Completion, Op, Priority, Request};

use super::Deed;
use crate::oracle::{Began, Oracle, Violation};

const NAME: &str = "frozen";

/// The knowledge of the snapshot's existence.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum Fate {
    #[default]
    Absent,
    Exists,
    /// The command that takes or deletes it was interrupted.
    MayExist,
}

#[derive(Clone, Default)]
pub struct Snapshot {
    pub id: Option<VolumeId>,
    fate: Fate,
    oracle: Option<Oracle>,
    reading: Option<(u64, Began)>,
    /// The action under way.
    deed: Option<Deed>,
}

impl Snapshot {
    pub fn begin(&mut self, deed: Deed, volume: &str, of: &mut Oracle) -> Command {
        self.deed = Some(deed);
        match deed {
            Deed::Snapshot => {
                of.begin_snapshot();
                Command::SnapshotVolume { volume: volume.into(), name: NAME.into(), made: 0 }
            }
            Deed::RollBack => Command::RollBackVolume { volume: volume.into(), snapshot: NAME.into() },
            _ => Command::DeleteVolume { name: NAME.into() },
        }
    }

    /// A deed was answered with success.
    pub fn done(&mut self, deed: Deed, of: &mut Oracle) {
        match deed {
            Deed::Snapshot => {
                self.oracle = of.end_snapshot(NAME);
                self.fate = Fate::Exists;
            }
            Deed::RollBack => {
                if let Some(oracle) = &self.oracle {
                    of.roll_back(oracle, true);
                }
            }
            Deed::DeleteSnapshot => {
                self.fate = Fate::Absent;
                self.id = None;
            }
            _ => return,
        }
        self.deed = None;
    }

    /// The machine stopped: the action under way happened or not.
    pub fn crash(&mut self, of: &mut Oracle) {
        self.reading = None;
        match self.deed.take() {
            Some(Deed::Snapshot) => {
                self.oracle = of.end_snapshot(NAME);
                self.fate = Fate::MayExist;
            }
            Some(Deed::RollBack) => {
                if let Some(oracle) = &self.oracle {
                    of.roll_back(oracle, false);
                }
            }
            Some(Deed::DeleteSnapshot) => self.fate = Fate::MayExist,
            _ => {}
        }
        if let Some(oracle) = &mut self.oracle {
            oracle.crash();
        }
    }

    /// Compares with the pool's volumes.
    pub fn listed(&mut self, all: &[VolumeStatus]) -> Result<(), Violation> {
        self.id = all.iter().find(|status| status.snapshot).map(|status| status.id);
        match (self.fate, self.id) {
            (Fate::Exists, None) => return Err(Violation("the snapshot is gone".into())),
            (Fate::Absent, Some(_)) => return Err(Violation("a snapshot came back from the dead".into())),
            _ => {}
        }
        // Once seen, it must stay; once gone, it must stay away.
        self.fate = if self.id.is_some() { Fate::Exists } else { Fate::Absent };
        Ok(())
    }

    /// A read of the whole snapshot.
    pub fn look(&mut self, tag: u64, size: u64) -> Request {
        self.reading = self.oracle.as_mut().map(|oracle| (tag, oracle.begin_read()));
        let op = Op::Read { at: 0, buffer: Buffer::zeroed(size as usize) };
        Request { tag, op, priority: Priority::Host, deadline: None }
    }

    pub fn is_read(&self) -> bool {
        self.reading.is_none()
    }

    /// Takes the answer to its read. Returns false for another operation's answer.
    pub fn was_read(&mut self, done: &Completion) -> Result<bool, Violation> {
        let Some((_, began)) = self.reading.filter(|(tag, _)| *tag == done.tag) else { return Ok(false) };
        self.reading = None;
        match (&done.op, &done.result, &mut self.oracle) {
            (Op::Read { at, buffer }, Ok(()), Some(oracle)) => oracle.end_read(*at, buffer, began).map(|()| true),
            (_, result, _) => Err(Violation(format!("the snapshot cannot be read: {result:?}"))),
        }
    }
}
