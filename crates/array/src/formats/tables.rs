//! Which table holds what, by table number. FORMAT/slots.md has the pages.

use stele_ground::VolumeId;

use crate::model::place::{PAGE, PageId, RowId};

/// Row records, `ROW_ENTRY` bytes each.
pub const ROWS: u32 = 1;
/// Volume records, a page each.
pub const VOLUMES: u32 = 2;
/// Stripes known to be lost.
pub const LOST: u32 = 3;
/// Maps of volumes: plus the volume's number.
const MAPS: u32 = 0x4000_0000;
/// Slot entries of rows: plus the row's number.
const SLOTS: u32 = 0x8000_0000;

pub fn map(volume: VolumeId) -> u32 {
    assert!(volume.0 < MAPS, "volume numbers stay below 2^30");
    MAPS | volume.0
}

pub fn slots(row: RowId) -> u32 {
    assert!(row.0 < SLOTS, "row numbers stay below 2^31");
    SLOTS | row.0
}

pub fn volume(volume: VolumeId) -> PageId {
    PageId { table: VOLUMES, index: volume.0 }
}

/// Bytes of a row in the row table: room for the widest code.
pub const ROW_ENTRY: usize = 512;

/// Row records of a page.
pub const ROWS_PER_PAGE: u32 = (PAGE / ROW_ENTRY) as u32;

/// The page of a row's record, and the offset in it.
pub fn row(row: RowId) -> (PageId, usize) {
    let page = PageId { table: ROWS, index: row.0 / ROWS_PER_PAGE };
    (page, (row.0 % ROWS_PER_PAGE) as usize * ROW_ENTRY)
}

/// Lost stripes of a page: volume u32, state u32, stripe u64 each.
pub const LOST_ENTRY: usize = 16;
pub const LOST_PER_PAGE: u32 = (PAGE / LOST_ENTRY) as u32;
