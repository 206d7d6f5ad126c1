//! The directory: where each page lies, and the digest it must have.
//!
//! Kept in memory whole, 16 bytes a page, in chunks of up to 1024. A chunk is stored as a page
//! itself; so are the index pages that say where the chunks lie; the anchor says where those are.

use std::collections::{BTreeMap, BTreeSet};

use stele_ground::digest;
use stele_ground::{BLOCK, PoolId};
use stele_media::{Buffer, Shared};

use super::PAGE;
use super::space::PagePlace;
use crate::formats::codec::{Reader, Writer};
use crate::model::place::PageId;

/// Pages a chunk describes.
pub const CHUNK: usize = PAGE / Entry::SIZE;
/// Memory for the entries of a chunk grows by so many.
const STEP: usize = 32;
/// Chunks an index page describes.
pub const INDEX: usize = PAGE / 24;

/// What chunks and index pages are called in digests; no table of the engine has these numbers.
pub const CHUNK_TABLE: u32 = u32::MAX - 1;
pub const INDEX_TABLE: u32 = u32::MAX;

/// Where a stored page lies. The default says that it was never written.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The place plus one; 0 for none.
    packed: u64,
    pub digest: u32,
    /// Low half of the checkpoint's sequence that wrote it.
    pub sequence: u32,
}

impl Entry {
    pub const SIZE: usize = 16;

    pub fn new(place: PagePlace, digest: u32, sequence: u32) -> Entry {
        Entry { packed: place.packed() + 1, digest, sequence }
    }

    pub fn place(&self) -> Option<PagePlace> {
        self.packed.checked_sub(1).map(PagePlace::unpack)
    }

    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.packed);
        w.u32(self.digest);
        w.u32(self.sequence);
    }

    pub fn decode(r: &mut Reader) -> Option<Entry> {
        Some(Entry { packed: r.u64()?, digest: r.u32()?, sequence: r.u32()? })
    }
}

/// The digest of a stored page, bound to pool, name and checkpoint: an older version or another
/// page does not verify.
pub fn digest_of(pool: PoolId, id: PageId, sequence: u32, bytes: &[u8]) -> u32 {
    digest::bind_fingerprint(digest::fingerprint(bytes), context_of(pool, id, sequence))
}

fn context_of(pool: PoolId, id: PageId, sequence: u32) -> u64 {
    let (left, right) = pool.0.split_at(8);
    let word = |half: &[u8]| half.iter().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
    let pool = digest::context(word(left), word(right));
    let name = u64::from(id.table) << 32 | u64::from(id.index);
    digest::context(digest::context(pool, name), u64::from(sequence))
}

/// Whether these bytes are the page that the entry describes. Entries of anchors of format 1 have a
/// CRC-32C. A host's blocks that hold a CRC of themselves have that of zeros: where one lay before,
/// on a drive that missed the page, it verified.
pub fn verifies(pool: PoolId, id: PageId, entry: Entry, bytes: &[u8]) -> bool {
    entry.digest == digest_of(pool, id, entry.sequence, bytes)
        || entry.digest == digest::bound(bytes, context_of(pool, id, entry.sequence))
}

/// Up to a thousand pages' entries.
pub struct Chunk {
    /// Up to the last page that was ever stored. Each row has a table of its own, so most chunks
    /// are far from full, and a large pool has hundreds of thousands.
    entries: Vec<Entry>,
    /// Where the chunk itself was stored last.
    pub stored: Entry,
    /// Its place in the index.
    pub slot: u32,
}

impl Chunk {
    fn set(&mut self, at: usize, entry: Entry) -> Entry {
        assert!(at < CHUNK, "a chunk has no page {at}");
        if at >= self.entries.len() {
            let room = (at + 1).next_multiple_of(STEP).min(CHUNK);
            self.entries.reserve_exact(room - self.entries.len());
            self.entries.resize(at + 1, Entry::default());
        }
        std::mem::replace(&mut self.entries[at], entry)
    }

    /// As it is stored once these pages are: entry by place within the chunk.
    pub fn encode_with(&self, changed: impl Iterator<Item = (usize, Entry)>) -> Shared {
        let mut entries = self.entries.clone();
        entries.resize(CHUNK, Entry::default());
        changed.for_each(|(at, entry)| entries[at] = entry);
        encode_chunk(&entries)
    }
}

#[derive(Default)]
pub struct Directory {
    chunks: BTreeMap<(u32, u32), Chunk>,
    /// Which chunk each index slot describes.
    slots: Vec<Option<(u32, u32)>>,
    free_slots: BTreeSet<u32>,
    /// Index pages as stored last.
    pub index: Vec<Entry>,
    /// Index pages that differ from what is stored.
    pub dirty_index: BTreeSet<u32>,
    /// Pages stored, chunks and index aside.
    stored: u64,
}

impl Directory {
    pub fn entry(&self, id: PageId) -> Entry {
        let chunk = self.chunks.get(&(id.table, id.index / CHUNK as u32));
        chunk.and_then(|chunk| chunk.entries.get(id.index as usize % CHUNK)).copied().unwrap_or_default()
    }

    /// Sets a page's entry and answers the former one. The chunk must exist.
    pub fn set(&mut self, id: PageId, entry: Entry) -> Entry {
        match self.chunks.get_mut(&(id.table, id.index / CHUNK as u32)) {
            Some(chunk) => {
                let former = chunk.set(id.index as usize % CHUNK, entry);
                self.stored += u64::from(entry.place().is_some());
                self.stored -= u64::from(former.place().is_some());
                former
            }
            None => panic!("{id} has no chunk"),
        }
    }

    pub fn chunk(&self, key: (u32, u32)) -> Option<&Chunk> {
        self.chunks.get(&key)
    }

    pub fn chunk_mut(&mut self, key: (u32, u32)) -> Option<&mut Chunk> {
        self.chunks.get_mut(&key)
    }

    /// Makes the chunk if it lacks; answers its index slot.
    pub fn ensure(&mut self, key: (u32, u32)) -> u32 {
        if let Some(chunk) = self.chunks.get(&key) {
            return chunk.slot;
        }
        let slot = self.free_slots.pop_first().unwrap_or(self.slots.len() as u32);
        if self.slots.len() <= slot as usize {
            self.slots.push(None);
        }
        self.slots[slot as usize] = Some(key);
        self.chunks.insert(key, Chunk { entries: Vec::new(), stored: Entry::default(), slot });
        while self.index.len() <= slot as usize / INDEX {
            self.index.push(Entry::default());
        }
        slot
    }

    /// Takes over a chunk as read back.
    pub fn restore(&mut self, slot: u32, key: (u32, u32), stored: Entry, entries: Vec<Entry>) {
        while self.slots.len() <= slot as usize {
            self.free_slots.insert(self.slots.len() as u32);
            self.slots.push(None);
        }
        self.free_slots.remove(&slot);
        self.slots[slot as usize] = Some(key);
        self.stored += entries.iter().filter(|entry| entry.place().is_some()).count() as u64;
        self.chunks.insert(key, Chunk { entries, stored, slot });
    }

    /// Forgets all pages of a table and answers their places, its chunks' included.
    pub fn forget(&mut self, table: u32) -> Vec<PagePlace> {
        let keys: Vec<(u32, u32)> = self.chunks.range((table, 0)..=(table, u32::MAX)).map(|(key, _)| *key).collect();
        let mut places = Vec::new();
        for key in keys {
            let Some(chunk) = self.chunks.remove(&key) else { continue };
            self.stored -= chunk.entries.iter().filter(|entry| entry.place().is_some()).count() as u64;
            places.extend(chunk.entries.iter().chain([&chunk.stored]).filter_map(Entry::place));
            self.slots[chunk.slot as usize] = None;
            self.free_slots.insert(chunk.slot);
            self.dirty_index.insert(chunk.slot / INDEX as u32);
        }
        places
    }

    /// One more than the highest page stored.
    pub fn pages(&self, table: u32) -> u32 {
        let last = self.chunks.range((table, 0)..=(table, u32::MAX)).rev();
        let of_chunk = |(key, chunk): (&(u32, u32), &Chunk)| {
            let used = chunk.entries.iter().rposition(|entry| entry.place().is_some())?;
            Some(key.1 * CHUNK as u32 + used as u32 + 1)
        };
        last.filter_map(|pair| of_chunk((pair.0, pair.1))).next().unwrap_or(0)
    }

    /// Pages stored, chunks and index aside.
    pub fn count(&self) -> u64 {
        self.stored
    }

    /// Every stored page, chunks and index included.
    pub fn count_all(&self) -> u64 {
        let chunks = self.chunks.values().filter(|chunk| chunk.stored.place().is_some()).count();
        self.stored + chunks as u64 + self.index.iter().filter(|entry| entry.place().is_some()).count() as u64
    }

    /// The chunk at an index slot.
    pub fn chunk_at(&self, slot: u32) -> Option<&Chunk> {
        self.slots.get(slot as usize).copied().flatten().and_then(|key| self.chunks.get(&key))
    }

    /// Where the first chunk after `key` is, or the first of all.
    pub fn chunk_after(&self, key: Option<(u32, u32)>) -> Option<(u32, u32)> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.chunks.range((key.map_or(Unbounded, Excluded), Unbounded)).next().map(|(key, _)| *key)
    }

    /// A chunk and the pages it describes, as far as they are stored.
    pub fn family(&self, key: (u32, u32)) -> impl Iterator<Item = (PageId, Entry)> + '_ {
        let first = key.1 * CHUNK as u32;
        let own = |chunk: &Chunk| (PageId { table: CHUNK_TABLE, index: chunk.slot }, chunk.stored);
        let page = move |(at, entry): (usize, &Entry)| (PageId { table: key.0, index: first + at as u32 }, *entry);
        let pages = self
            .chunks
            .get(&key)
            .into_iter()
            .flat_map(move |chunk| std::iter::once(own(chunk)).chain(chunk.entries.iter().enumerate().map(page)));
        pages.filter(|(_, entry)| entry.place().is_some())
    }

    /// The index pages, as far as they are stored.
    pub fn index_pages(&self) -> impl Iterator<Item = (PageId, Entry)> + '_ {
        let page = |(at, entry): (usize, &Entry)| (PageId { table: INDEX_TABLE, index: at as u32 }, *entry);
        self.index.iter().enumerate().map(page).filter(|(_, entry)| entry.place().is_some())
    }

    /// Every stored page of the directory and below, with its name and entry.
    pub fn all(&self) -> impl Iterator<Item = (PageId, Entry)> + '_ {
        self.chunks.keys().flat_map(|key| self.family(*key)).chain(self.index_pages())
    }

    /// An index page, with the chunks that a checkpoint is about to store in other places.
    pub fn encode_index(&self, page: u32, changed: &BTreeMap<(u32, u32), Entry>) -> Shared {
        let mut buffer = Buffer::zeroed(PAGE);
        let mut w = Writer::new(&mut buffer);
        for slot in page as usize * INDEX..(page as usize + 1) * INDEX {
            let key = self.slots.get(slot).copied().flatten();
            let stored = key.and_then(|key| changed.get(&key).copied().or(self.chunks.get(&key).map(|c| c.stored)));
            let (table, chunk) = key.unwrap_or_default();
            w.u32(table);
            w.u32(chunk);
            stored.unwrap_or_default().encode(&mut w);
        }
        buffer.freeze()
    }
}

/// A chunk as stored; the pages behind the last entry are not.
pub fn encode_chunk(entries: &[Entry]) -> Shared {
    assert!(entries.len() <= CHUNK, "a chunk of {} entries", entries.len());
    let mut buffer = Buffer::zeroed(PAGE);
    let mut w = Writer::new(&mut buffer);
    entries.iter().for_each(|entry| entry.encode(&mut w));
    buffer.freeze()
}

/// The entries of a stored chunk, up to the last one that is not empty.
pub fn decode_chunk(bytes: Shared) -> Option<Vec<Entry>> {
    let mut r = Reader::new(bytes);
    let mut entries: Vec<Entry> = (0..CHUNK).map(|_| Entry::decode(&mut r)).collect::<Option<_>>()?;
    entries.truncate(entries.iter().rposition(|entry| *entry != Entry::default()).map_or(0, |last| last + 1));
    entries.shrink_to_fit();
    Some(entries)
}

/// A chunk that an index page lists: slot within the page, table and chunk number, entry.
pub type Listed = (u32, (u32, u32), Entry);

pub fn decode_index(bytes: Shared) -> Option<Vec<Listed>> {
    let mut r = Reader::new(bytes);
    let mut found = Vec::new();
    for slot in 0..INDEX as u32 {
        let (key, entry) = ((r.u32()?, r.u32()?), Entry::decode(&mut r)?);
        if entry.place().is_some() {
            found.push((slot, key, entry));
        }
    }
    Some(found)
}

const _: () = assert!(PAGE.is_multiple_of(BLOCK));
// What a page costs in memory.
const _: () = assert!(size_of::<Entry>() == Entry::SIZE);

#[cfg(test)]
mod tests;
