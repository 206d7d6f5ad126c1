//! The data volume.
//!
//! The volume is divided into segments. Segment 0 holds the superblock and the first part of the
//! key table. Every other segment is free, a further part of the key table, or a segment of
//! records, which is appended to, sealed, and later reclaimed as a whole.

pub(crate) mod appender;
pub(crate) mod compensations;
pub(crate) mod frames;
pub(crate) mod header;
pub(crate) mod keytable;
pub(crate) mod numbers;
pub(crate) mod order;
pub(crate) mod places;
pub(crate) mod segments;
pub(crate) mod superblock;
pub(crate) mod walk;

/// The unit of writing.
pub(crate) const BLOCK: u32 = 4096;

/// The incarnation of a segment from a number that is used once. It differs from those of any store
/// that used the volume before, whose numbers began at 1 too. The function is its own inverse.
pub(crate) fn incarnation(store: &[u8; 16], number: u64) -> u64 {
    let (mask, _) = store.split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
    number ^ u64::from_le_bytes(*mask)
}

pub(crate) fn align_up(value: u32, unit: u32) -> u32 {
    value.div_ceil(unit) * unit
}
