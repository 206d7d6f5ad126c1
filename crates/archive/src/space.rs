//! The data volume: what lies where, and who writes it.
//!
//! The volume is cut into segments. Segment 0 holds the superblock and the first part of the key table; any other is
//! free, a further part of the key table, or appended to, sealed, and in the end reclaimed whole.

pub(crate) mod appender;
pub(crate) mod frames;
pub(crate) mod header;
pub(crate) mod keytable;
pub(crate) mod segments;
pub(crate) mod superblock;
pub(crate) mod walk;

/// The unit of writing.
pub(crate) const BLOCK: u32 = 4096;

pub(crate) fn align_up(value: u32, unit: u32) -> u32 {
    value.div_ceil(unit) * unit
}
