//! The layout of the volume: a superblock at both ends, the journal, the area of the B-tree.
//!
//! The superblock is written when the catalog is created, when the B-tree reaches a new largest
//! length, and when the volume has grown. The two copies are written one after the other, the older
//! first, so that the newest intact copy is never overwritten. The valid copy with the higher
//! generation counts.

use stele_ground::{Bytes, KIB, MIB};
use stele_media::{Buffer, Handle, MediaError, MediaFault};

use super::area::{Area, force, retried};
use super::fault::of_media;
use super::load::Loader;
use crate::CatalogError;

/// The unit of everything on the volume, in bytes.
pub(crate) const BLOCK: u64 = 4096;
const MAGIC: &[u8; 8] = b"STELECAT";
/// Version of the superblock and of the formats it refers to.
pub const VERSION: u32 = 1;
const DIGEST_AT: usize = BLOCK as usize - 32;

/// The smallest journal: four transactions of the largest size.
const JOURNAL_MIN: u64 = 20 * MIB;
/// Replaying a larger journal would take too long.
const JOURNAL_MAX: u64 = 256 * MIB;
/// The smallest volume, in bytes.
pub const VOLUME_MIN: u64 = 48 * MIB;

/// The parameters of a new catalog.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// 128 random bits that distinguish this catalog's journal from earlier contents of the volume.
    pub id: [u8; 16],
    /// Bytes for the journal; `None`: a sixteenth of the volume, within limits.
    pub journal: Option<Bytes>,
}

/// The superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    pub id: [u8; 16],
    /// Increases with every write of the superblock.
    pub generation: u64,
    pub volume: u64,
    pub journal_at: u64,
    pub journal: u64,
    pub area_at: u64,
    pub area: u64,
    /// Number of pages of 4096 bytes by which the B-tree grows.
    pub region_pages: u32,
    /// The largest length that the B-tree has ever had, in bytes.
    pub length: u64,
}

impl Layout {
    fn plan(volume: u64, format: &Format) -> Result<Layout, CatalogError> {
        if volume < VOLUME_MIN {
            return Err(CatalogError::Invalid(format!(
                "the volume has {}, a catalog needs at least {}",
                Bytes(volume),
                Bytes(VOLUME_MIN)
            )));
        }
        let journal = format.journal.map_or(volume / 16, |wanted| wanted.0).clamp(JOURNAL_MIN, JOURNAL_MAX);
        let journal = journal / BLOCK * BLOCK;
        let room = (volume / BLOCK * BLOCK).saturating_sub(2 * BLOCK + journal + BLOCK);
        // redb grows by regions, so the area is a whole number of regions and one page for its
        // header. A region holds the largest value. Small regions waste less of the volume; large
        // ones cost less to track.
        let region = (room / 64).checked_next_power_of_two().unwrap_or(0).clamp(8 * MIB, 256 * MIB);
        let regions = room / region;
        if regions < 2 {
            return Err(CatalogError::Invalid(format!(
                "a journal of {} leaves no room for records on a volume of {}",
                Bytes(journal),
                Bytes(volume)
            )));
        }
        Ok(Layout {
            id: format.id,
            generation: 1,
            volume,
            journal_at: BLOCK,
            journal,
            area_at: BLOCK + journal,
            area: BLOCK + regions * region,
            region_pages: (region / BLOCK) as u32,
            length: 0,
        })
    }

    /// Version and features of an intact superblock of any version. These fields, the digest and
    /// the bytes that it covers have the same places in every version.
    pub fn stamp(block: &[u8]) -> Option<(u32, u32)> {
        let (body, digest) = block.split_at_checked(DIGEST_AT)?;
        let whole = body.starts_with(MAGIC) && blake3::hash(body).as_bytes() == digest;
        let half = |at: usize| body.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
        whole.then(|| half(8).zip(half(12)))?
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut block = Vec::with_capacity(BLOCK as usize);
        block.extend_from_slice(MAGIC);
        block.extend_from_slice(&VERSION.to_le_bytes());
        // Features that a reader must know; none exist yet.
        block.extend_from_slice(&0u32.to_le_bytes());
        block.extend_from_slice(&self.id);
        for number in [
            self.generation,
            self.volume,
            self.journal_at,
            self.journal,
            self.area_at,
            self.area,
            u64::from(self.region_pages),
            self.length,
        ] {
            block.extend_from_slice(&number.to_le_bytes());
        }
        block.resize(DIGEST_AT, 0);
        let digest = blake3::hash(&block);
        block.extend_from_slice(digest.as_bytes());
        block
    }

    /// Returns `None` if there is no superblock, and an error if this build cannot read it.
    pub fn decode(block: &[u8]) -> Result<Option<Layout>, CatalogError> {
        let Some((body, digest)) = block.split_at_checked(DIGEST_AT) else { return Ok(None) };
        if !body.starts_with(MAGIC) || blake3::hash(body).as_bytes() != digest {
            return Ok(None);
        }
        let word =
            |at: usize| body.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
        let (version, features) = (word(8) as u32, (word(8) >> 32) as u32);
        if version != VERSION || features != 0 {
            return Err(CatalogError::Newer(format!(
                "its superblock has version {version} and features {features:#x}, and this version of Stele reads version \
                 {VERSION} without features; open it with the version that wrote it"
            )));
        }
        let mut id = [0; 16];
        id.copy_from_slice(&body[16..32]);
        let layout = Layout {
            id,
            generation: word(32),
            volume: word(40),
            journal_at: word(48),
            journal: word(56),
            area_at: word(64),
            area: word(72),
            region_pages: word(80) as u32,
            length: word(88),
        };
        let ordered = layout.journal_at >= BLOCK
            && layout.journal_at.checked_add(layout.journal).is_some_and(|end| end <= layout.area_at)
            && layout.area_at.checked_add(layout.area).is_some_and(|end| end <= layout.volume)
            && [layout.journal_at, layout.journal, layout.area_at, layout.area].iter().all(|n| n % BLOCK == 0);
        if !ordered || layout.journal < JOURNAL_MIN {
            return Err(CatalogError::Damaged("the superblock names places outside the volume".into()));
        }
        Ok(Some(layout))
    }

    /// The offsets of the superblock's copies on a volume of this size.
    fn copies(volume: u64) -> [u64; 2] {
        [0, volume / BLOCK * BLOCK - BLOCK]
    }

    /// This layout on a volume of `size`, which is at least the present size. It has as many more
    /// regions as fit before the second copy of the superblock, which moves to the new end.
    pub(crate) fn on(&self, size: u64) -> Layout {
        let (region, end) = (u64::from(self.region_pages) * BLOCK, Layout::copies(size)[1]);
        let regions = end.saturating_sub(self.area_at + BLOCK) / region;
        Layout { volume: size, area: self.area.max(BLOCK + regions * region), ..self.clone() }
    }

    /// The generation of this catalog's copy at the offset, 0 if it is none; the copy with the
    /// lower one may be overwritten first. A copy that is out of reach may be the newest, so that
    /// is an error.
    fn generation_at(&self, handle: &Handle, at: u64) -> Result<u64, MediaError> {
        let block = match retried(handle, || handle.read_blocking(at, BLOCK as usize)) {
            Ok(block) => block,
            Err(error) if error.fault == MediaFault::Damaged => return Ok(0),
            Err(error) => return Err(error),
        };
        let layout = Layout::decode(&block).ok().flatten();
        Ok(layout.filter(|layout| layout.id == self.id).map_or(0, |layout| layout.generation))
    }

    /// Makes the first copy the current one: after a growth, the other copy is not found at the
    /// volume's end.
    pub(crate) fn prepare_to_grow(&self, handle: &Handle) -> Result<(), MediaError> {
        if self.generation_at(handle, 0)? == self.generation { Ok(()) } else { self.write(handle) }
    }

    /// Writes both copies, each forced before the next. On a grown volume the copy at the new end
    /// is missing, and is therefore written before the first copy. In the other order, a power cut
    /// could tear the first copy while the other lies at a place that no reader checks.
    pub(crate) fn write(&self, handle: &Handle) -> Result<(), MediaError> {
        let [first, second] = Layout::copies(self.volume);
        let second_first = self.generation_at(handle, second)? < self.generation_at(handle, first)?;
        for at in if second_first { [second, first] } else { [first, second] } {
            let block = Buffer::copy_of(&self.encode()).freeze();
            force(handle, at, block).map_err(|error| {
                let message = format!("the superblock at byte {at} could not be written: {error}");
                MediaError::new(error.fault, message)
            })?;
        }
        Ok(())
    }

    pub(crate) fn read(handle: &Handle) -> Result<Layout, CatalogError> {
        let size = handle.geometry().size.0;
        if size < 2 * BLOCK {
            return Err(CatalogError::Damaged("the volume is too small to hold a catalog".into()));
        }
        let mut best: Option<Layout> = None;
        let (mut failures, mut away) = (Vec::new(), None);
        for at in Layout::copies(size) {
            let found = match retried(handle, || handle.read_blocking(at, BLOCK as usize)) {
                Ok(block) => Layout::decode(&block),
                Err(error) => Err(of_media(&format!("the superblock at byte {at} cannot be read"), &error, "")),
            };
            match found {
                Ok(Some(layout)) if best.as_ref().is_none_or(|other| layout.generation > other.generation) => {
                    best = Some(layout);
                }
                Ok(Some(_)) => {}
                Ok(None) => failures.push(format!("byte {at}: no superblock")),
                // The other copy may be the one that the later version found and continued from.
                Err(newer @ CatalogError::Newer(_)) => return Err(newer),
                Err(CatalogError::Damaged(error)) => failures.push(format!("byte {at}: {error}")),
                Err(error) => away = Some(error),
            }
        }
        match (best, away) {
            (Some(layout), _) if layout.volume > size => Err(CatalogError::Damaged(format!(
                "the catalog was made on a volume of {}, this one has {}",
                Bytes(layout.volume),
                Bytes(size)
            ))),
            (Some(layout), _) => Ok(layout),
            // A catalog may be there.
            (None, Some(away)) => Err(away),
            (None, None) => Err(CatalogError::Damaged(format!(
                "no catalog is on this volume ({}); create one, or rebuild it from the data volume",
                failures.join("; ")
            ))),
        }
    }
}

/// The version of redb's file in the header of the B-tree, for its current commit; `None` if it is
/// no header.
pub fn tree_version(header: &[u8]) -> Option<u8> {
    const MAGIC: usize = 9;
    const COMMITS: usize = 64;
    const COMMIT: usize = 128;
    let second = usize::from(*header.get(MAGIC)? & 1);
    (header.get(..MAGIC)? == super::area::REDB_MAGIC).then(|| header.get(COMMITS + second * COMMIT).copied())?
}

/// The version of redb's file that this code writes.
pub const TREE_VERSION: u8 = 3;

/// Makes an empty catalog on the volume and destroys its contents. The superblock is written last,
/// so that an interrupted creation leaves no catalog instead of a part of one.
pub fn format(handle: &Handle, format: &Format) -> Result<(), CatalogError> {
    Loader::new(handle, format)?.finish()
}

/// Wipes the superblocks and the journal.
pub(crate) fn prepare(handle: &Handle, format: &Format) -> Result<Layout, CatalogError> {
    let layout = Layout::plan(handle.geometry().size.0, format)?;
    let failed = |error: MediaError| CatalogError::Stopped(format!("the volume could not be wiped: {error}"));
    for at in Layout::copies(layout.volume) {
        retried(handle, || handle.zero_blocking(at, BLOCK)).map_err(failed)?;
    }
    let mut at = 0;
    while at < layout.journal {
        let length = (layout.journal - at).min(4 * MIB);
        retried(handle, || handle.zero_blocking(layout.journal_at + at, length)).map_err(failed)?;
        at += length;
    }
    retried(handle, || handle.flush_blocking()).map_err(failed)?;
    Ok(layout)
}

/// Completes the prepared catalog.
pub(crate) fn finish(handle: &Handle, area: &Area) -> Result<(), CatalogError> {
    let layout = Layout { length: area.length(), ..area.layout() };
    let failed = |error: MediaError| CatalogError::Stopped(format!("the catalog could not be completed: {error}"));
    retried(handle, || handle.flush_blocking()).map_err(failed)?;
    layout.write(handle).map_err(failed)
}

const _: () = assert!(BLOCK == 4 * KIB && JOURNAL_MIN >= 4 * crate::TRANSACTION_MAX as u64);

#[cfg(test)]
mod tests;
