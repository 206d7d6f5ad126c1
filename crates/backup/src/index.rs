//! Which chunks the repository has, in bounded memory.
//!
//! A table in memory has 7 bytes for each chunk: a part of its id, and the number of its
//! segment. A match is only a candidate. The segment's footer, from a cache of bounded size or
//! from the store, decides. A chunk that is not found is stored once more, which costs space and
//! never data. Segments that are condemned are not in the table. Chunks that are marked as damaged
//! count as not stored; only who wants to read tries them, for want of others.
//!
//! A footer is not authentic: a client that may write can store a segment that claims any chunk. So
//! a chunk is looked for in the oldest segment first, by the store's date: one that was planted
//! later takes nothing from it. A reader that finds no such chunk there asks for the next place,
//! see [`Index::find_other`].
//!
//! 100 million chunks take about 0.94 GB, of which the table is 0.74 GB: see the module `table`.

mod table;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::crypt::ChunkId;
use crate::error::{BackupError, Result};
use crate::references::{Ordinals, References};
use crate::segment::{ChunkEntry, Footer, SegmentId};
use table::Table;

/// 16 million segments, a petabyte.
const SEGMENTS_MAX: usize = 1 << table::NUMBER_BITS;
/// Chunks whose footers are kept in memory; about 48 bytes each.
const FOOTER_CHUNKS_MAX: usize = 1 << 20;

/// Where a chunk is: the number of a segment in this index, and its ordinal there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Location {
    pub segment: u32,
    pub ordinal: u32,
}

/// A footer that can be searched by id.
#[derive(Debug)]
pub struct FooterIndex {
    pub footer: Footer,
    /// Ordinals in the order of their ids.
    by_id: Vec<u32>,
}

impl FooterIndex {
    pub fn new(footer: Footer) -> FooterIndex {
        let mut by_id: Vec<u32> = (0..footer.entries.len() as u32).collect();
        by_id.sort_by_key(|ordinal| footer.entries.get(*ordinal as usize).map(|entry| entry.id));
        FooterIndex { footer, by_id }
    }

    pub fn entry(&self, ordinal: u32) -> Option<&ChunkEntry> {
        self.footer.entries.get(ordinal as usize)
    }

    fn find(&self, id: &ChunkId) -> Option<u32> {
        let place = self.by_id.binary_search_by_key(&Some(id), |ordinal| self.entry(*ordinal).map(|entry| &entry.id));
        place.ok().and_then(|place| self.by_id.get(place).copied())
    }
}

/// Gives a segment's footer, from a cache or from the store.
pub type FooterSource = Box<dyn Fn(&SegmentId) -> Result<Footer> + Send + Sync>;

/// A segment of the index.
struct Known {
    id: SegmentId,
    /// When it was stored, by the store's clock: seconds since 1970.
    stored: u64,
}

pub struct Index {
    /// The numbers of the segments that have a chunk.
    chunks: Table,
    /// Segments by number. The first number stands for none.
    segments: Vec<Known>,
    /// The numbers of the segments by their names.
    names: Table,
    /// The chunks of segments that are marked as damaged.
    damaged: BTreeMap<u32, Ordinals>,
    /// Segments that are tried before all others, because the snapshot that is read references
    /// them.
    preferred: BTreeSet<u32>,
    /// Footers in memory, each with the time of its last use.
    footers: BTreeMap<u32, (Arc<FooterIndex>, u64)>,
    /// Those of which the next one goes, each with the time of its last use when it was put here.
    next: VecDeque<(u32, u64)>,
    footer_chunks: usize,
    uses: u64,
    /// Why the last search could not look into a footer: the store failed.
    trouble: Option<BackupError>,
    source: FooterSource,
}

impl Index {
    pub fn new(source: FooterSource) -> Index {
        Index {
            chunks: Table::new(),
            segments: vec![Known { id: SegmentId([0; 32]), stored: 0 }],
            names: Table::new(),
            damaged: BTreeMap::new(),
            preferred: BTreeSet::new(),
            footers: BTreeMap::new(),
            next: VecDeque::new(),
            footer_chunks: 0,
            uses: 0,
            trouble: None,
            source,
        }
    }

    /// Adds a segment that was stored just now and returns its number.
    pub fn add(&mut self, id: SegmentId, footer: Footer, damaged: Ordinals) -> Result<u32> {
        self.add_dated(id, footer, damaged, u64::MAX)
    }

    /// Adds a segment and returns its number. `stored` is its date by the store's clock.
    pub fn add_dated(&mut self, id: SegmentId, footer: Footer, damaged: Ordinals, stored: u64) -> Result<u32> {
        if let Some(number) = self.number(&id) {
            return Ok(number);
        }
        let number = self.segments.len();
        if number >= SEGMENTS_MAX {
            return Err(BackupError::Full(format!("the repository has {SEGMENTS_MAX} segments; begin another one")));
        }
        let number = number as u32;
        for entry in &footer.entries {
            self.chunks.insert(&entry.id.0, number);
        }
        self.segments.push(Known { id, stored });
        self.names.insert(&id.0, number);
        self.set_damaged(number, damaged);
        self.keep(number, Arc::new(FooterIndex::new(footer)));
        Ok(number)
    }

    /// Where the chunk is. None: it is stored nowhere whole, or its footer cannot be read now.
    pub fn find(&mut self, id: &ChunkId) -> Option<Location> {
        self.find_where(id, |_, is_marked| !is_marked)
    }

    /// Where to read the chunk: as a last choice also where it is marked as damaged, because its
    /// tag tells.
    pub fn find_any(&mut self, id: &ChunkId) -> Option<Location> {
        self.find(id).or_else(|| self.find_where(id, |_, _| true))
    }

    /// The next place to read the chunk, behind those that were tried.
    pub fn find_other(&mut self, id: &ChunkId, tried: &[Location]) -> Option<Location> {
        let whole = self.find_where(id, |location, is_marked| !is_marked && !tried.contains(&location));
        whole.or_else(|| self.find_where(id, |location, _| !tried.contains(&location)))
    }

    /// The first place of the chunk that is wanted, by place and whether it is marked as damaged.
    /// Segments that are preferred come first, and then the oldest.
    pub fn find_where(&mut self, id: &ChunkId, wanted: impl Fn(Location, bool) -> bool) -> Option<Location> {
        let mut candidates: Vec<u32> = self.chunks.find(&id.0).collect();
        candidates.sort_by_key(|number| {
            let known = self.segments.get(*number as usize);
            (!self.preferred.contains(number), known.map(|known| (known.stored, known.id)))
        });
        self.trouble = None;
        candidates.into_iter().find_map(|segment| {
            let directory = self.directory(segment).map_err(|error| self.note(error)).ok()?;
            let ordinal = directory.find(id)?;
            let is_marked = self.damaged.get(&segment).is_some_and(|chunks| chunks.contains(ordinal as usize));
            let location = Location { segment, ordinal };
            wanted(location, is_marked).then_some(location)
        })
    }

    /// Notes a footer that cannot be had now. One that is damaged or gone, or of a later version,
    /// says that its segment is of no use.
    fn note(&mut self, error: BackupError) {
        if !matches!(error, BackupError::Damaged(_) | BackupError::Missing(_) | BackupError::Newer(_)) {
            self.trouble = Some(error);
        }
    }

    /// Behind a search that found nothing: the failure of the store, if the chunk may be there all
    /// the same.
    pub fn trouble(&mut self) -> Option<BackupError> {
        self.trouble.take()
    }

    #[cfg(test)]
    pub fn forget_footers(&mut self) {
        self.footers.clear();
        self.next.clear();
        self.footer_chunks = 0;
    }

    /// From now on the segments that a snapshot references are tried before all others, and those
    /// of no other snapshot.
    pub fn prefer(&mut self, references: &References) {
        self.preferred = references.0.keys().filter_map(|id| self.number(id)).collect();
    }

    /// The footer of a segment.
    pub fn directory(&mut self, segment: u32) -> Result<Arc<FooterIndex>> {
        self.uses += 1;
        if let Some((directory, used)) = self.footers.get_mut(&segment) {
            *used = self.uses;
            return Ok(Arc::clone(directory));
        }
        let id = self.segment(segment)?;
        let directory = Arc::new(FooterIndex::new((self.source)(&id)?));
        self.keep(segment, Arc::clone(&directory));
        Ok(directory)
    }

    pub fn segment(&self, number: u32) -> Result<SegmentId> {
        let known = self.segments.get(number as usize).filter(|_| number != 0);
        known.map(|known| known.id).ok_or_else(|| BackupError::Missing(format!("segment number {number} is unknown")))
    }

    /// The number of a segment. None: it is not in the index.
    pub fn number(&self, id: &SegmentId) -> Option<u32> {
        self.names.find(&id.0).find(|number| self.segments.get(*number as usize).is_some_and(|known| known.id == *id))
    }

    /// Notes chunks of a segment as damaged here alone, because the store took no mark.
    pub fn mark(&mut self, id: &SegmentId, chunks: &Ordinals) {
        if let Some(number) = self.number(id) {
            self.set_damaged(number, chunks.clone());
        }
    }

    fn set_damaged(&mut self, number: u32, chunks: Ordinals) {
        match chunks.count() {
            0 => self.damaged.remove(&number),
            _ => self.damaged.insert(number, chunks),
        };
    }

    /// Whether chunks of the segment are marked as damaged.
    pub fn is_marked(&self, number: u32) -> bool {
        self.damaged.contains_key(&number)
    }

    pub fn segments(&self) -> usize {
        self.segments.len() - 1
    }

    /// Bytes of the table.
    pub fn table_bytes(&self) -> usize {
        self.chunks.bytes()
    }

    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Keeps a footer in memory, and gives up the oldest that were not used lately. One that was
    /// used since it was put into the queue goes to its end, so each use costs one look at most.
    fn keep(&mut self, number: u32, directory: Arc<FooterIndex>) {
        self.uses += 1;
        self.footer_chunks += directory.footer.entries.len();
        self.footers.insert(number, (directory, self.uses));
        self.next.push_back((number, self.uses));
        while self.footer_chunks > FOOTER_CHUNKS_MAX && self.footers.len() > 1 {
            let Some((oldest, put)) = self.next.pop_front() else { break };
            match self.footers.get(&oldest) {
                Some((_, used)) if *used != put => self.next.push_back((oldest, *used)),
                _ => {
                    let gone = self.footers.remove(&oldest).map_or(0, |(gone, _)| gone.footer.entries.len());
                    self.footer_chunks -= gone;
                }
            }
        }
    }
}

/// Gathers the chunks that a new snapshot needs.
#[derive(Default, Debug)]
pub struct Gathered(BTreeMap<u32, Ordinals>);

impl Gathered {
    pub fn insert(&mut self, location: Location) {
        self.0.entry(location.segment).or_default().insert(location.ordinal as usize);
    }

    pub fn merge(&mut self, other: Gathered) {
        for (segment, ordinals) in other.0 {
            let into = self.0.entry(segment).or_default();
            ordinals.iter().for_each(|ordinal| into.insert(ordinal));
        }
    }

    /// With the names of the segments.
    pub fn references(self, index: &Index) -> Result<References> {
        let named = self.0.into_iter().map(|(number, ordinals)| Ok((index.segment(number)?, ordinals)));
        named.collect::<Result<_>>().map(References)
    }
}

#[cfg(test)]
mod tests;
