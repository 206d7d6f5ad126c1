//! One entry of the key table, as it is stored.

use stele_ground::digest::crc32c;

use crate::seal::WRAPPED;
use crate::space::header::{u32_at, u64_at};

pub(crate) const ENTRY: usize = 128;

/// The entry of one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub object: u64,
    pub bucket: u32,
    /// The object's key, wrapped under its bucket's key. Zeros for a delete marker, which has no
    /// key.
    pub wrapped: [u8; WRAPPED],
}

impl Entry {
    pub fn encode(&self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        bytes[..8].copy_from_slice(&self.object.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.bucket.to_le_bytes());
        bytes[12..16].copy_from_slice(&1u32.to_le_bytes());
        bytes[16..16 + WRAPPED].copy_from_slice(&self.wrapped);
        let check = crc32c(&bytes[..ENTRY - 4]);
        bytes[ENTRY - 4..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// None: the entry is empty, destroyed, or damaged.
    pub fn decode(bytes: &[u8]) -> Option<Entry> {
        let bytes = bytes.get(..ENTRY)?;
        if u32_at(bytes, ENTRY - 4) != crc32c(&bytes[..ENTRY - 4]) || u32_at(bytes, 12) != 1 {
            return None;
        }
        let mut wrapped = [0; WRAPPED];
        wrapped.copy_from_slice(&bytes[16..16 + WRAPPED]);
        Some(Entry { object: u64_at(bytes, 0), bucket: u32_at(bytes, 8), wrapped })
    }
}
