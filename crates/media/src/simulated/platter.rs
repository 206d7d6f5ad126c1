//! The durable content of a simulated drive: sparse pages of 4096 bytes, shared by reference count.
//! An image of a drive (for a rollback, a clone, another power cut) costs one pointer a page.

use std::collections::BTreeMap;
use std::collections::btree_map::Range;

use stele_ground::BLOCK;
use stele_ground::digest::{context, crc32c};

use super::leaf::Leaf;

/// Bytes that are written or lost as one: 512, or 4096 on drives with large sectors.
pub const SECTOR: usize = 512;
/// Sectors of a page.
pub const SECTORS: usize = BLOCK / SECTOR;

/// The content of a page; `None` if it is all zeros.
pub type Page = Option<Leaf>;

/// Durable content. Space that was never written is zeros.
#[derive(Clone, Default)]
pub struct Platter {
    pages: BTreeMap<u64, Leaf>,
}

impl Platter {
    pub fn page(&self, index: u64) -> Page {
        self.pages.get(&index).cloned()
    }

    pub fn set(&mut self, index: u64, page: Page) {
        match page {
            Some(content) => self.pages.insert(index, content),
            None => self.pages.remove(&index),
        };
    }

    /// Copies the sectors of `from` that `mask` names into the page.
    pub fn set_sectors(&mut self, index: u64, mask: u8, from: Page) {
        if mask == u8::MAX {
            self.set(index, from);
        } else if mask != 0 {
            let mut content = bytes_of(self.pages.get(&index));
            merge(&mut content, mask, from.as_ref());
            self.set(index, page_of(&content));
        }
    }

    /// The pages from `first` to `last` that are not all zeros, in order.
    pub(super) fn stored(&self, first: u64, last: u64) -> Range<'_, u64, Leaf> {
        self.pages.range(first..=last)
    }

    /// Indices of the pages that are not all zeros, in order.
    pub fn written(&self) -> impl Iterator<Item = u64> + '_ {
        self.pages.keys().copied()
    }

    /// Number of pages that are not all zeros.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// A hash of the whole content; equal platters hash equal.
    pub fn hash(&self) -> u64 {
        self.pages.iter().fold(0, |hash, (index, page)| {
            let low = crc32c(&page[..]);
            let high = crc32c(&page[BLOCK / 2..]);
            hash ^ context(*index, context(u64::from(low), u64::from(high)))
        })
    }
}

impl std::fmt::Debug for Platter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Platter({} pages)", self.pages.len())
    }
}

pub(super) fn bytes_of(page: Option<&Leaf>) -> [u8; BLOCK] {
    page.map_or([0; BLOCK], |content| **content)
}

pub(super) fn page_of(bytes: &[u8; BLOCK]) -> Page {
    if is_zero(bytes) { None } else { Some(Leaf::of(bytes)) }
}

/// Compares words: most pages differ from zeros in the first.
pub(super) fn is_zero(bytes: &[u8; BLOCK]) -> bool {
    bytes.as_chunks::<64>().0.iter().all(|chunk| *chunk == [0; 64])
}

/// Copies the sectors that `mask` names.
pub(super) fn merge(content: &mut [u8; BLOCK], mask: u8, from: Option<&Leaf>) {
    for sector in (0..SECTORS).filter(|sector| mask & (1 << sector) != 0) {
        let range = sector * SECTOR..(sector + 1) * SECTOR;
        match from {
            Some(source) => content[range.clone()].copy_from_slice(&source[range]),
            None => content[range].fill(0),
        }
    }
}
