//! The first block of the data volume and its last, alike: what store this is, and whether a master key is its own.
//!
//! The copies are far apart, so that no lost stripe takes both.

use stele_ground::digest::crc32c;
use stele_media::{Buffer, Handle};

use crate::error::{ArchiveError, Result};
use crate::seal::derive;
use crate::space::BLOCK;
use crate::space::header::{u32_at, u64_at};
use crate::store::MasterKey;
use crate::time::Timestamp;

const MAGIC: [u8; 8] = *b"STELEARC";
pub(crate) const FORMAT: u32 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Superblock {
    pub store: [u8; 16],
    pub segment: u32,
    pub created: Timestamp,
    /// Derived from the master key and the store's identity: tells a wrong key before anything is unwrapped.
    pub fingerprint: [u8; 16],
}

impl Superblock {
    pub fn fingerprint(master: &MasterKey, store: &[u8; 16]) -> [u8; 16] {
        let derived = derive(&master.0, "fingerprint", store);
        let mut fingerprint = [0; 16];
        fingerprint.copy_from_slice(&derived[..16]);
        fingerprint
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK as usize];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.segment.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.store);
        bytes[32..40].copy_from_slice(&self.created.0.to_le_bytes());
        bytes[40..56].copy_from_slice(&self.fingerprint);
        let check = crc32c(&bytes[..56]);
        bytes[56..60].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// None: no superblock.
    pub fn decode(bytes: &[u8]) -> Option<Superblock> {
        let bytes = bytes.get(..60)?;
        if bytes[..8] != MAGIC || u32_at(bytes, 56) != crc32c(&bytes[..56]) || u32_at(bytes, 8) != FORMAT {
            return None;
        }
        let (mut store, mut fingerprint) = ([0; 16], [0; 16]);
        store.copy_from_slice(&bytes[16..32]);
        fingerprint.copy_from_slice(&bytes[40..56]);
        Some(Superblock { store, segment: u32_at(bytes, 12), created: Timestamp(u64_at(bytes, 32)), fingerprint })
    }

    /// Both copies, durable when it answers.
    pub async fn write(&self, volume: &Handle) -> Result<()> {
        for at in places(volume) {
            self.write_copy(volume, at).await?;
        }
        Ok(())
    }

    async fn write_copy(&self, volume: &Handle, at: u64) -> Result<()> {
        let block = Buffer::copy_of(&self.encode()).freeze();
        volume.write(at, vec![block], true).await?;
        Ok(())
    }

    /// Writes a copy that is missing: it was lost, or the volume has grown.
    pub async fn mend(&self, volume: &Handle) -> Result<()> {
        for at in places(volume) {
            let sound = match volume.read(at, BLOCK as usize).await {
                Ok(block) => Superblock::decode(&block).as_ref() == Some(self),
                Err(_) => false,
            };
            if !sound {
                self.write_copy(volume, at).await?;
            }
        }
        Ok(())
    }

    /// The first copy that is sound. None: this volume holds no store.
    pub async fn read(volume: &Handle) -> Result<Option<Superblock>> {
        if volume.geometry().size.0 < u64::from(BLOCK) * 2 {
            return Ok(None);
        }
        let mut failure = None;
        for at in places(volume) {
            match volume.read(at, BLOCK as usize).await {
                Ok(block) => {
                    if let Some(superblock) = Superblock::decode(&block) {
                        return Ok(Some(superblock));
                    }
                }
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(None), |error| Err(ArchiveError::from(error)))
    }
}

/// Where the copies lie.
fn places(volume: &Handle) -> [u64; 2] {
    let blocks = volume.geometry().size.0 / u64::from(BLOCK);
    [0, blocks.saturating_sub(1) * u64::from(BLOCK)]
}

/// Whole segments before the last block.
pub(crate) fn segments_on(volume: u64, segment: u32) -> u32 {
    let count = volume.saturating_sub(u64::from(BLOCK)) / u64::from(segment);
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
