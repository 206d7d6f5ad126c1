//! Labels: who belongs to the pool, and what its configuration is.
//!
//! Four copies lie on each drive, two at either end. An odd sequence writes copies 0 and 2, an even one 1 and 3, so that
//! a whole older pair survives a torn update. The configuration is agreed by a majority of the pool's drives:
//! [`discover`] reads all labels and says which configuration holds and what every drive is; [`Labels`] keeps it, and
//! [`Labels::commit`] changes it. An opening pool commits twice before it changes anything else, so that its epoch is
//! above any that an earlier opening may have proposed to a minority.
//!
//! How the engine calls it:
//! - create: `Labels::new(io, configuration, indexes)`, then log, table and first checkpoint, and last `publish()`:
//!   without labels there is no pool.
//! - open: `discover(io, ..)`, `Labels::resume(io, &discovery)`, `claim()` (the first commit; fences older writers),
//!   recover log and table, and `Log` makes the second commit with its new epoch before it serves.
//! - later: `commit(|configuration| ..)` for drive states, protection, the clean flag.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use stele_ground::{Bytes, DriveId, PoolId};

use crate::io::Io;
use crate::place::DriveNumber;
use crate::sync::Mutex;
use crate::{ArrayError, Attached, DriveHealth};

pub mod codec;
pub mod discover;

pub use discover::{Discovery, Found, Verdict, discover};

/// Bytes of one copy.
pub const LABEL_SIZE: u64 = 64 << 10;
/// Start of the two anchor slots.
pub const ANCHOR_AT: u64 = 2 * LABEL_SIZE;
/// Start of the log region.
pub const LOG_AT: u64 = 4 << 20;
/// Bytes at the end of a drive kept for label copies 2 and 3.
pub const TAIL: u64 = 2 * LABEL_SIZE;

/// Format features this code knows. An unknown incompatible one refuses the pool; an unknown read-only-compatible one
/// opens it read-only.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Features {
    pub compatible: u64,
    pub read_only_compatible: u64,
    pub incompatible: u64,
}

/// A drive's standing in the pool, as agreed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DriveState {
    /// Holds strips and votes.
    Active,
    /// Given up: its strips are being or have been rebuilt elsewhere. Does not vote.
    Failed,
    /// Left the pool for good; its number stays taken.
    Retired,
    /// New in the place of another one, being filled. Votes.
    Filling,
}

/// A row of the label's table of drives; its place is its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriveEntry {
    pub identity: DriveId,
    pub enclosure: u32,
    pub size: Bytes,
    pub state: DriveState,
    /// Configuration epoch in which it joined.
    pub joined: u64,
}

/// Groups from `first_group` on carry this epoch and lie on these members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogEpoch {
    pub epoch: u64,
    pub first_group: u64,
    pub members: Vec<DriveNumber>,
}

/// What the pool's drives agree on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Configuration {
    pub pool: PoolId,
    pub name: String,
    /// Seconds since 1970 at creation.
    pub created: u64,
    pub features: Features,
    /// Grows with every commit.
    pub epoch: u64,
    /// Seeds the choice of rows.
    pub seed: u64,
    pub unit_size: Bytes,
    pub log_size: Bytes,
    /// Drives' worth of spare space.
    pub spare_drives: u32,
    /// m: the largest number of lost drives any volume's code tolerates, at least 2 where the drives suffice. Log, anchors
    /// and table pages lie on up to m + 2 drives, never fewer than m + 1.
    pub tolerates: u32,
    pub drives: Vec<DriveEntry>,
    /// Oldest first. Epochs wholly trimmed are dropped.
    pub log: Vec<LogEpoch>,
    /// Some volume holds retained records: removing or re-creating the pool is refused.
    pub protected: bool,
    /// Closed in order: everything was destaged and checkpointed.
    pub clean: bool,
}

/// The configuration in force and the way to change it. Cheap to clone.
#[derive(Clone)]
pub struct Labels(Rc<Inner>);

struct Inner {
    io: Io,
    configuration: RefCell<Configuration>,
    /// Driver index by drive number, while the drive is present and usable.
    present: RefCell<Vec<Option<usize>>>,
    /// Sequence of the newest label written to each drive.
    sequences: RefCell<Vec<u64>>,
    committing: Mutex,
    /// An operator accepted to write without a majority.
    override_quorum: Cell<bool>,
}

impl DriveState {
    pub fn number(self) -> u8 {
        match self {
            DriveState::Active => 1,
            DriveState::Failed => 2,
            DriveState::Retired => 3,
            DriveState::Filling => 4,
        }
    }

    pub fn from_number(number: u8) -> Option<DriveState> {
        [DriveState::Active, DriveState::Failed, DriveState::Retired, DriveState::Filling]
            .into_iter()
            .find(|state| state.number() == number)
    }

    pub fn votes(self) -> bool {
        matches!(self, DriveState::Active | DriveState::Filling)
    }
}

impl Configuration {
    /// Start of the allocation units on every drive: after the log, on a unit boundary of 1 MiB.
    pub fn units_at(&self) -> u64 {
        (LOG_AT + self.log_size.0).next_multiple_of(1 << 20)
    }

    /// Allocation units of a drive.
    pub fn units(&self, drive: DriveNumber) -> u32 {
        let size = self.drives.get(usize::from(drive.0)).map_or(0, |entry| entry.size.0);
        (size.saturating_sub(self.units_at() + TAIL) / self.unit_size.0) as u32
    }

    /// Where a cell starts on its drive.
    pub fn cell_at(&self, cell: crate::place::Cell) -> u64 {
        self.units_at() + u64::from(cell.unit) * self.unit_size.0
    }

    /// Replicas of log, anchors and table pages where the drives suffice: m + 2.
    pub fn replicas(&self) -> usize {
        self.tolerates as usize + 2
    }

    /// The power of two nearest below a drive's 8192nd part, 1 MiB to 1 GiB.
    pub fn unit_size_for(smallest: Bytes) -> Bytes {
        let part = (smallest.0 / 8192).clamp(1 << 20, 1 << 30);
        Bytes(1 << part.ilog2())
    }
}

impl Labels {
    /// For a new pool: nothing is written before `publish`.
    pub fn new(_io: &Io, _configuration: Configuration, _indexes: Vec<usize>) -> Labels {
        todo!()
    }

    /// For a pool found on its drives.
    pub fn resume(_io: &Io, _discovery: &Discovery, _override_quorum: bool) -> Labels {
        todo!()
    }

    /// The configuration in force (the last one committed). Do not hold it over an await.
    pub fn configuration(&self) -> std::cell::Ref<'_, Configuration> {
        self.0.configuration.borrow()
    }

    /// Driver index of a drive that is present.
    pub fn index(&self, drive: DriveNumber) -> Option<usize> {
        self.0.present.borrow().get(usize::from(drive.0)).copied().flatten()
    }

    /// Number of the drive at a driver index.
    pub fn number(&self, index: usize) -> Option<DriveNumber> {
        let at = self.0.present.borrow().iter().position(|present| *present == Some(index))?;
        Some(DriveNumber(at as u16))
    }

    /// Says where a drive is attached now, or that it is gone. No label is written; a returned drive gets its
    /// label with the next commit.
    pub fn set_index(&self, _drive: DriveNumber, _index: Option<usize>) {
        todo!()
    }

    /// Drives present, not failed or retired, in order of number.
    pub fn usable(&self) -> Vec<DriveNumber> {
        todo!()
    }

    /// First labels of a new pool: all drives, all copies, flushed.
    pub async fn publish(&self) -> Result<(), ArrayError> {
        todo!()
    }

    /// First commit of an opening pool.
    pub async fn claim(&self) -> Result<(), ArrayError> {
        self.commit(|configuration| configuration.clean = false).await
    }

    /// Changes the configuration: epoch + 1, written and flushed on every usable drive; in force when a majority of the
    /// voters of both the old and the new table hold it. `Degraded` otherwise, and then the pool must not go on
    /// writing, since either configuration may be found at the next open.
    pub async fn commit(&self, _change: impl FnOnce(&mut Configuration)) -> Result<(), ArrayError> {
        todo!()
    }

    /// Reads every label copy of every usable drive, rewrites damaged or outdated ones; for scrub. Returns copies repaired.
    pub async fn scrub(&self) -> Result<u64, ArrayError> {
        todo!()
    }
}

/// What the pool says about a drive that it will not use, for status.
pub fn health_of(verdict: &Verdict) -> DriveHealth {
    match verdict {
        Verdict::Member { .. } => DriveHealth::Healthy,
        Verdict::Stale { .. } => DriveHealth::Stale,
        Verdict::Failed { .. } => DriveHealth::Failed,
        Verdict::Unreadable { .. } => DriveHealth::Missing,
        _ => DriveHealth::Rejected,
    }
}

/// Refuses to lay a pool onto drives that carry a readable label of any pool, naming them.
pub async fn refuse_labelled(_io: &Io, _drives: &[Attached]) -> Result<(), ArrayError> {
    todo!()
}

#[cfg(test)]
mod tests;
