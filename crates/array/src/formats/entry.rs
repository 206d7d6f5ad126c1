//! A slot's entry in the slot table: who lives there, under which generation, and the digest of
//! every unit. Entries of a row have one size; none crosses a page. FORMAT/slots.md has the bytes.
//!
//! Two digests are set aside. [`ZERO`] says that the unit reads as zeros and nothing is on its
//! drive. [`LOST`] says that its content is gone and stands as zeros in the parity, and that no
//! read may return it. A computed digest is never one of them.

use stele_ground::digest;

use super::shape::Shape;
use crate::cache::DirtyBlock;
use crate::model::place::SlotId;

/// The unit's content is lost.
pub const LOST: u32 = 0;
/// The unit reads as zeros and was never written.
pub const ZERO: u32 = 1;

const HEADER: usize = 40;

/// How the digests of a slot are made.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum DigestKind {
    /// Of slots that version 0.1.0 filled: blind to changes of content that holds a CRC-32C of its
    /// own. Their stripes move to new slots when they are written.
    #[default]
    Crc32c,
    Xxh3,
}

impl DigestKind {
    pub fn bit(self) -> u8 {
        match self {
            DigestKind::Crc32c => 0,
            DigestKind::Xxh3 => 1,
        }
    }

    /// Of the lowest bit: the others are for later features.
    pub fn of_bit(flags: u8) -> DigestKind {
        if flags & 1 == 0 { DigestKind::Crc32c } else { DigestKind::Xxh3 }
    }
}

/// What an entry says besides its digests.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Head {
    /// Stripes that refer to the slot; 0: free.
    pub references: u32,
    pub volume: u32,
    pub stripe: u64,
    /// Grows with every allocation of the slot and never falls.
    pub generation: u64,
    /// Bit n: strip n lives in the row member's replacement cell.
    pub exceptions: u32,
    pub digests: DigestKind,
}

impl Head {
    pub fn is_free(&self) -> bool {
        self.references == 0
    }
}

/// Bytes of an entry.
pub fn size(shape: &Shape) -> usize {
    HEADER + (4 * shape.digests()).next_multiple_of(8)
}

/// The page number within the row's table, and the offset in the page, of an entry.
pub fn locate(shape: &Shape, index: u32) -> (u32, usize) {
    let size = size(shape);
    let per_page = (crate::model::place::PAGE / size) as u32;
    (index / per_page, (index % per_page) as usize * size)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|field| field.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|field| field.try_into().ok()).map_or(0, u64::from_le_bytes)
}

pub fn head(page: &[u8], at: usize) -> Head {
    Head {
        references: u32_at(page, at),
        volume: u32_at(page, at + 4),
        stripe: u64_at(page, at + 8),
        generation: u64_at(page, at + 16),
        exceptions: u32_at(page, at + 24),
        digests: DigestKind::of_bit(u32_at(page, at + 28) as u8),
    }
}

pub fn set_head(page: &mut [u8], at: usize, head: &Head) {
    page[at..at + 4].copy_from_slice(&head.references.to_le_bytes());
    page[at + 4..at + 8].copy_from_slice(&head.volume.to_le_bytes());
    page[at + 8..at + 16].copy_from_slice(&head.stripe.to_le_bytes());
    page[at + 16..at + 24].copy_from_slice(&head.generation.to_le_bytes());
    page[at + 24..at + 28].copy_from_slice(&head.exceptions.to_le_bytes());
    page[at + 28] = page[at + 28] & !1 | head.digests.bit();
}

/// The offset in the page of a digest of the entry at `at`.
pub fn digest_at(at: usize, index: usize) -> usize {
    at + HEADER + 4 * index
}

pub fn digest(page: &[u8], at: usize, index: usize) -> u32 {
    u32_at(page, digest_at(at, index))
}

pub fn set_digest(page: &mut [u8], at: usize, index: usize, digest: u32) {
    let at = digest_at(at, index);
    page[at..at + 4].copy_from_slice(&digest.to_le_bytes());
}

/// How the digests of a slot are made, and what they are bound to besides the unit's place in it.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    kind: DigestKind,
    context: u64,
}

impl Binding {
    pub fn new(kind: DigestKind, pool: u64, slot: SlotId, generation: u64) -> Binding {
        Binding { kind, context: digest::context(digest::context(pool, slot.packed()), generation) }
    }

    pub fn kind(self) -> DigestKind {
        self.kind
    }

    /// The digest of one unit's bytes in its place.
    pub fn digest(self, strip: usize, unit: usize, data: &[u8]) -> u32 {
        match self.kind {
            DigestKind::Crc32c => of_unit(digest::bound(data, self.context_of(strip, unit))),
            DigestKind::Xxh3 => self.of_fingerprint(strip, unit, digest::fingerprint(data)),
        }
    }

    /// The same of a block, by the fingerprint that it came with where that will do.
    pub fn digest_of(self, strip: usize, unit: usize, block: &DirtyBlock) -> u32 {
        match self.kind {
            DigestKind::Crc32c => self.digest(strip, unit, &block.data),
            DigestKind::Xxh3 => self.of_fingerprint(strip, unit, block.fingerprint),
        }
    }

    /// The digests of units that so many strips hold alike, strip by strip. Each unit is read once.
    pub fn digests_of_copies<'a>(self, copies: usize, units: impl Iterator<Item = &'a [u8]> + Clone) -> Vec<u32> {
        if self.kind == DigestKind::Crc32c {
            let of_copy = |strip| units.clone().enumerate().map(move |(unit, data)| self.digest(strip, unit, data));
            return (0..copies).flat_map(of_copy).collect();
        }
        let fingerprints: Vec<u64> = units.map(digest::fingerprint).collect();
        let of_copy =
            |strip| fingerprints.iter().enumerate().map(move |(unit, of)| self.of_fingerprint(strip, unit, *of));
        (0..copies).flat_map(of_copy).collect()
    }

    fn of_fingerprint(self, strip: usize, unit: usize, fingerprint: u64) -> u32 {
        of_unit(digest::bind_fingerprint(fingerprint, self.context_of(strip, unit)))
    }

    fn context_of(self, strip: usize, unit: usize) -> u64 {
        digest::context(self.context, (strip as u64) << 32 | unit as u64)
    }
}

/// Two values have other meanings; one more pair that collides in 2^32 costs nothing.
fn of_unit(digest: u32) -> u32 {
    digest.max(ZERO + 1)
}
