//! What a pool shows of one drive.

use stele_ground::{Bytes, DriveId, Instant};

use super::admin::AlarmKind;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DriveHealth {
    Healthy,
    /// Answering, but with errors or slowly.
    Suspect,
    /// Back after an absence or newly put in; being brought up to date.
    Stale,
    /// Not here, or not answering.
    Missing,
    /// Given up; what it held is being or has been rebuilt elsewhere.
    Failed,
    /// Being emptied, to be removed.
    Leaving,
    /// Foreign, duplicated or too small: not used.
    Rejected,
}

#[derive(Clone, Debug)]
pub struct DriveStatus {
    /// Its number in the pool; [`NOT_A_MEMBER`] of a drive that is attached and not used.
    pub index: u32,
    /// The index under which it is attached; none of a drive that is away.
    pub attached: Option<u32>,
    pub identity: DriveId,
    pub name: String,
    pub enclosure: u32,
    pub health: DriveHealth,
    /// Whether it is being emptied and then leaves the pool. Its health may be worse than
    /// [`DriveHealth::Leaving`] meanwhile.
    pub leaving: bool,
    pub size: Bytes,
    pub used: Bytes,
    pub read_errors: u64,
    pub write_errors: u64,
    pub digest_errors: u64,
    pub repaired: u64,
    /// What is wrong; empty when nothing is.
    pub note: String,
    /// Since when, on the pool's clock; none where that was before the pool was opened.
    pub since: Option<Instant>,
    /// What was done about it.
    pub done: String,
    /// What an operator should do next.
    pub next: String,
    /// As which alarm it stands; none where the drive is well.
    pub alarm: Option<AlarmKind>,
}

/// The number of drives that are no members of the pool.
pub const NOT_A_MEMBER: u32 = u32::MAX;

impl DriveStatus {
    pub fn is_member(&self) -> bool {
        self.index != NOT_A_MEMBER
    }

    /// Whether some shards of the pool have the drive, and the first one does not, or no longer.
    pub fn is_in_part(&self) -> bool {
        !self.is_member() && self.identity != DriveId::default()
    }
}

/// A drive that has left the pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Departed {
    /// Where it is attached still, if it is.
    pub index: Option<u32>,
    pub name: String,
}
