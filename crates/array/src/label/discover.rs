//! Reading the labels of everything attached, and judging each drive.

use std::collections::BTreeMap;

use stele_ground::{Bytes, PoolId};

use super::Configuration;
use crate::io::Io;
use crate::place::DriveNumber;
use crate::{ArrayError, Attached};

/// What a drive turned out to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// In the pool and holding the newest configuration.
    Member { number: DriveNumber },
    /// In the pool, but its configuration is older: it was away. To be brought up to date by generation.
    Stale { number: DriveNumber, epoch: u64 },
    /// In the pool's table as failed or retired.
    Failed { number: DriveNumber },
    /// Carries the label of another pool.
    Foreign { pool: PoolId },
    /// A second drive with the identity of the one at index `of`, which is newer or came first.
    Duplicate { number: DriveNumber, of: usize },
    /// Smaller than the pool's table says it was.
    TooSmall { number: DriveNumber, size: Bytes, needed: Bytes },
    /// In this pool by its label, but the pool's table does not know it.
    Unknown,
    /// No label.
    Blank,
    /// A label was there once: its copies are damaged.
    Damaged,
    /// The drive does not answer.
    Unreadable { message: String },
    /// Written by a newer Stele.
    TooNew { features: u64 },
}

/// A drive and its judgement; the note gives cause and next step, empty for a member.
#[derive(Clone, Debug)]
pub struct Found {
    pub verdict: Verdict,
    pub note: String,
    /// Sequence of its newest label.
    pub sequence: u64,
}

/// What the attached drives say.
#[derive(Clone, Debug)]
pub struct Discovery {
    /// The newest configuration found.
    pub configuration: Configuration,
    /// By driver index.
    pub found: Vec<Found>,
    /// Driver index by drive number; members and stale drives.
    pub present: BTreeMap<DriveNumber, usize>,
    /// True when more than half of the voters answered.
    pub majority: bool,
    /// True when an unknown feature allows reading only.
    pub read_only: bool,
}

/// Reads all labels. Refuses when no drive carries a label of a pool (`Missing`), when drives of several pools are as many
/// as those of the largest (`Invalid`), or when an unknown feature forbids it (`Refused`).
pub async fn discover(_io: &Io, _drives: &[Attached]) -> Result<Discovery, ArrayError> {
    todo!()
}
