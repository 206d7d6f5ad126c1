//! The first and the last block of the data volume, which are alike. They identify the store and
//! recognise its master key.
//!
//! The copies are far apart, so that no lost stripe takes both. Each also carries the witness of
//! the catalog. The witness changes, so the copies may differ after a crash; the later one counts.

use bytes::Bytes;
use stele_ground::digest::crc32c;
use stele_media::{Buffer, Handle};

use crate::model::error::{ArchiveError, Result};
use crate::model::secrets::MasterKey;
use crate::model::time::Timestamp;
use crate::record::settings::Pairing;
use crate::seal::derive;
use crate::space::BLOCK;
use crate::space::header::{u32_at, u64_at};

const MAGIC: [u8; 8] = *b"STELEARC";
/// The latest format, which a store has from its first named matter, class, or access key with an
/// end on. An older binary would delete versions under a matter and accept an ended key, so it must
/// refuse the store.
pub(crate) const FORMAT: u32 = 2;
/// The format of a new store.
pub(crate) const FORMAT_FIRST: u32 = 1;

/// Bytes of a superblock before its witness.
const IDENTIFYING: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Superblock {
    /// From [`FORMAT_FIRST`] to [`FORMAT`].
    pub format: u32,
    pub store: [u8; 16],
    pub segment: u32,
    pub created: Timestamp,
    /// Derived from the master key and the store's id. It reveals a wrong key before anything is
    /// unwrapped.
    pub fingerprint: [u8; 16],
    /// None: the store is older than witnesses, and was not opened for writing since.
    pub witness: Option<Witness>,
}

/// The state of the catalog as the data volume knows it.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Witness {
    /// The generation of [`Pairing`], as in the catalog.
    pub generation: u64,
    pub tag: [u8; 16],
    /// The catalog's audit log has at least this many records, and this link there.
    pub records: u64,
    pub link: [u8; 32],
}

impl Witness {
    pub fn new(pairing: Pairing, records: u64, link: [u8; 32]) -> Witness {
        Witness { generation: pairing.generation, tag: pairing.tag, records, link }
    }

    pub fn pairing(&self) -> Pairing {
        Pairing { generation: self.generation, tag: self.tag }
    }

    fn encode(&self, bytes: &mut [u8]) {
        bytes[..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.tag);
        bytes[24..32].copy_from_slice(&self.records.to_le_bytes());
        bytes[32..64].copy_from_slice(&self.link);
        let check = crc32c(&bytes[..64]);
        bytes[64..68].copy_from_slice(&check.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Witness> {
        let bytes = bytes.get(..68)?;
        let (mut tag, mut link) = ([0; 16], [0; 32]);
        tag.copy_from_slice(&bytes[8..24]);
        link.copy_from_slice(&bytes[32..64]);
        let witness = Witness { generation: u64_at(bytes, 0), tag, records: u64_at(bytes, 24), link };
        (witness.generation > 0 && u32_at(bytes, 64) == crc32c(&bytes[..64])).then_some(witness)
    }
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
        bytes[8..12].copy_from_slice(&self.format.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.segment.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.store);
        bytes[32..40].copy_from_slice(&self.created.0.to_le_bytes());
        bytes[40..56].copy_from_slice(&self.fingerprint);
        let check = crc32c(&bytes[..56]);
        bytes[56..60].copy_from_slice(&check.to_le_bytes());
        if let Some(witness) = &self.witness {
            witness.encode(&mut bytes[64..132]);
        }
        bytes
    }

    /// What the catalog keeps of it: the store can then be read where no copy on the data volume
    /// can.
    pub fn identify(&self) -> Bytes {
        let mut bytes = Superblock { witness: None, ..*self }.encode();
        bytes.truncate(IDENTIFYING);
        bytes.into()
    }

    /// The superblock that the catalog keeps. Its witness is that of this pairing, since nothing is
    /// known to contradict it.
    pub fn identified(bytes: &[u8], pairing: Option<Pairing>) -> Option<Superblock> {
        let known = Superblock::decode(bytes.get(..IDENTIFYING)?)?;
        let witness = pairing.map(|pairing| Witness::new(pairing, 0, [0; 32]));
        Some(Superblock { witness, ..known })
    }

    /// The format of a complete superblock of any version. The first 56 bytes and their check keep
    /// their places in every format.
    pub fn format(bytes: &[u8]) -> Option<u32> {
        let bytes = bytes.get(..60)?;
        (bytes[..8] == MAGIC && u32_at(bytes, 56) == crc32c(&bytes[..56])).then(|| u32_at(bytes, 8))
    }

    /// None: no superblock.
    pub fn decode(bytes: &[u8]) -> Option<Superblock> {
        let witness = bytes.get(64..).and_then(Witness::decode);
        let bytes = bytes.get(..60)?;
        let format = u32_at(bytes, 8);
        let known = (FORMAT_FIRST..=FORMAT).contains(&format);
        if bytes[..8] != MAGIC || u32_at(bytes, 56) != crc32c(&bytes[..56]) || !known {
            return None;
        }
        let (mut store, mut fingerprint) = ([0; 16], [0; 16]);
        store.copy_from_slice(&bytes[16..32]);
        fingerprint.copy_from_slice(&bytes[40..56]);
        let (segment, created) = (u32_at(bytes, 12), Timestamp(u64_at(bytes, 32)));
        Some(Superblock { format, store, segment, created, fingerprint, witness })
    }

    /// Writes both copies. Durable when it returns.
    pub async fn write(&self, volume: &Handle) -> Result<()> {
        for at in places(volume) {
            self.write_copy(volume, at).await?;
        }
        Ok(())
    }

    /// Writes both copies, or one where the place of the other takes no writes.
    pub async fn write_somewhere(&self, volume: &Handle) -> Result<()> {
        let mut written = Vec::new();
        for at in places(volume) {
            written.push(self.write_copy(volume, at).await);
        }
        let (done, failed): (Vec<_>, Vec<_>) = written.into_iter().partition(Result::is_ok);
        match (done.is_empty(), failed.into_iter().find_map(Result::err)) {
            (_, Some(error @ ArchiveError::Stopped(_))) | (true, Some(error)) => Err(error),
            _ => Ok(()),
        }
    }

    pub async fn write_copy(&self, volume: &Handle, at: u64) -> Result<()> {
        let block = Buffer::copy_of(&self.encode()).freeze();
        volume.write(at, vec![block], true).await?;
        Ok(())
    }

    /// Writes a missing copy: it was lost, or the volume has grown.
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

    /// The later of two copies. A crash while the format was raised leaves one copy with the former
    /// format.
    fn merged(self, other: Superblock) -> Superblock {
        // A copy of another store is a remnant of an earlier use of the volume.
        if self.store != other.store {
            return self;
        }
        let later = if self.witness < other.witness { other } else { self };
        Superblock { format: self.format.max(other.format), ..later }
    }

    /// The later sound copy. None: the volume holds no store. `Newer` if a later version wrote
    /// either copy.
    pub async fn read(volume: &Handle) -> Result<Option<Superblock>> {
        if volume.geometry().size.0 < u64::from(BLOCK) * 2 {
            return Ok(None);
        }
        let (mut failure, mut found): (_, Option<Superblock>) = (None, None);
        for at in places(volume) {
            match volume.read(at, BLOCK as usize).await {
                Ok(block) => {
                    if let Some(format) = Superblock::format(&block).filter(|format| *format > FORMAT) {
                        return Err(newer("the data volume", format));
                    }
                    if let Some(copy) = Superblock::decode(&block) {
                        found = Some(found.map_or(copy, |before| before.merged(copy)));
                    }
                }
                Err(error) => failure = Some(error),
            }
        }
        match (found, failure) {
            (None, Some(error)) => Err(ArchiveError::from(error)),
            (found, _) => Ok(found),
        }
    }
}

/// The refusal of a store that a later version of Stele wrote.
pub(crate) fn newer(place: &str, format: u32) -> ArchiveError {
    ArchiveError::Newer(format!(
        "{place} holds a store of format {format}, and this version of Stele reads format {FORMAT}; open it with the version \
         that wrote it"
    ))
}

/// The places of the copies.
pub(crate) fn places(volume: &Handle) -> [u64; 2] {
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
