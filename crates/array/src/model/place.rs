//! Where things lie: places in the log, in rows, and on drives.

use std::fmt;

use stele_ground::VolumeId;

/// The number of a log record; counts from 1 for a pool's whole life. 0 is before every record.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lsn(pub u64);

impl Lsn {
    pub fn next(self) -> Lsn {
        Lsn(self.0 + 1)
    }
}

/// A drive's number in its pool: its place in the label's table of drives. Stable; never used
/// again.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DriveNumber(pub u16);

/// The number of a placement row. A freed number may be used again.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RowId(pub u32);

/// A slot: one of the equal places of a row, wide enough for one stripe.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlotId {
    pub row: RowId,
    pub index: u32,
}

/// An allocation unit of a drive.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StripCell {
    pub drive: DriveNumber,
    pub unit: u32,
}

/// A page of the table: which table, and the page's number within it.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageId {
    pub table: u32,
    pub index: u32,
}

impl SlotId {
    /// As one number, for digests and maps.
    pub fn packed(self) -> u64 {
        u64::from(self.row.0) << 32 | u64::from(self.index)
    }

    pub fn unpack(packed: u64) -> SlotId {
        SlotId { row: RowId((packed >> 32) as u32), index: packed as u32 }
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LSN {}", self.0)
    }
}

impl fmt::Display for DriveNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "drive {}", self.0)
    }
}

impl fmt::Display for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {}.{}", self.row.0, self.index)
    }
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {}.{}", self.table, self.index)
    }
}

/// A 4096-byte block of a volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockKey {
    pub volume: VolumeId,
    pub block: u64,
}

/// A stripe of a volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StripeKey {
    pub volume: VolumeId,
    pub stripe: u64,
}

/// Bytes of a page of the table.
pub const PAGE: usize = 16 << 10;
