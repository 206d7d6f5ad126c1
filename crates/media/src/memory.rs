//! A drive in memory, for tests, benchmarks and temporary pools. It is sparse: space that was never
//! written takes no memory. It carries out every operation on submission, and returns it with the
//! next `reap`.
//!
//! Failure model: none of its own. A plain memory drive is durable at once (as far as memory is).
//! [`MemoryDrive::volatile`] makes one that keeps unflushed data only until
//! [`MemoryDrive::cut_power`].

use std::collections::BTreeMap;

use stele_ground::{BLOCK, Bytes, Instant, KIB};

use crate::{Buffer, Completion, Drive, Extent, ExtentState, Geometry, Op, Request};

/// The unit of allocation: 64 pages, so that one word marks the written pages.
const CHUNK: u64 = 256 * KIB;
const PAGE: u64 = BLOCK as u64;

struct Chunk {
    bytes: Box<[u8]>,
    /// Bit n: page n was written since it was last zeroed. All other pages are zeros.
    written: u64,
}

pub struct MemoryDrive {
    geometry: Geometry,
    chunks: Vec<Option<Chunk>>,
    finished: Vec<Completion>,
    /// Pages that a power cut would undo, with their durable content; `None` on a plain drive.
    undo: Option<BTreeMap<u64, Option<Box<[u8]>>>>,
}

impl MemoryDrive {
    /// A drive of zeros, with blocks of 4096 bytes. The size is rounded down to whole blocks.
    pub fn new(size: Bytes) -> MemoryDrive {
        MemoryDrive::with_block(size, Bytes(PAGE))
    }

    /// Like `new`, with blocks of 512 or 4096 bytes.
    pub fn with_block(size: Bytes, block: Bytes) -> MemoryDrive {
        assert!(block.0 == 512 || block.0 == PAGE, "a drive's block is 512 or 4096 bytes, not {}", block.0);
        let size = Bytes(size.0 - size.0 % block.0);
        let mut chunks = Vec::new();
        chunks.resize_with(size.0.div_ceil(CHUNK) as usize, || None);
        MemoryDrive { geometry: Geometry { size, block }, chunks, finished: Vec::new(), undo: None }
    }

    /// Like `new`, but `cut_power` loses all data that no flush or fua write covered: the worst
    /// case of a real drive's cache. (The simulated drive models torn and reordered writes.)
    pub fn volatile(size: Bytes) -> MemoryDrive {
        MemoryDrive { undo: Some(BTreeMap::new()), ..MemoryDrive::new(size) }
    }

    /// Allocates and touches all memory, so that a benchmark does not measure page faults.
    pub fn preallocate(&mut self) {
        for chunk in &mut self.chunks {
            let chunk = chunk.get_or_insert_with(Chunk::new);
            for page in chunk.bytes.chunks_mut(BLOCK) {
                // Write zero over zero. The black box keeps the store, which brings the page in.
                if let Some(first) = std::hint::black_box(page).first_mut() {
                    *first = std::hint::black_box(0);
                }
            }
        }
    }

    /// Cuts the power and restores it: unpromised data is lost, and so are operations not yet
    /// reaped.
    pub fn cut_power(&mut self) {
        self.finished.clear();
        for (page, image) in self.undo.as_mut().map(std::mem::take).unwrap_or_default() {
            match image {
                Some(bytes) => self.store(page * PAGE, &bytes),
                None => self.clear(page * PAGE, PAGE.min(self.geometry.size.0 - page * PAGE)),
            }
        }
    }

    fn load(&self, at: u64, into: &mut [u8]) {
        for (chunk, inside, piece) in spans(at, into.len() as u64) {
            let into = &mut into[piece];
            match &self.chunks[chunk] {
                Some(chunk) => into.copy_from_slice(&chunk.bytes[inside..inside + into.len()]),
                None => into.fill(0),
            }
        }
    }

    fn store(&mut self, at: u64, from: &[u8]) {
        for (chunk, inside, piece) in spans(at, from.len() as u64) {
            let from = &from[piece];
            let chunk = self.chunks[chunk].get_or_insert_with(Chunk::new);
            chunk.bytes[inside..inside + from.len()].copy_from_slice(from);
            chunk.written |= pages(inside, inside.saturating_add(from.len()).div_ceil(BLOCK) * BLOCK);
        }
    }

    fn clear(&mut self, at: u64, length: u64) {
        for (index, inside, piece) in spans(at, length) {
            let slot = &mut self.chunks[index];
            let Some(chunk) = slot else { continue };
            let end = inside + piece.len();
            chunk.bytes[inside..end].fill(0);
            // Partly cleared pages stay listed as data.
            chunk.written &= !pages(inside.div_ceil(BLOCK) * BLOCK, end / BLOCK * BLOCK);
            if chunk.written == 0 {
                *slot = None;
            }
        }
    }

    /// Saves the durable content of pages about to change.
    fn remember(&mut self, at: u64, length: u64) {
        let Some(mut undo) = self.undo.take() else { return };
        for page in at / PAGE..(at + length).div_ceil(PAGE) {
            undo.entry(page).or_insert_with(|| {
                let start = page * PAGE;
                let chunk = self.chunks[(start / CHUNK) as usize].as_ref()?;
                let inside = (start % CHUNK) as usize;
                (chunk.written & pages(inside, inside + BLOCK) != 0).then(|| {
                    let mut image = vec![0; PAGE.min(self.geometry.size.0 - start) as usize].into_boxed_slice();
                    self.load(start, &mut image);
                    image
                })
            });
        }
        self.undo = Some(undo);
    }

    fn write(&mut self, mut at: u64, data: &[crate::Shared], fua: bool) {
        for piece in data {
            let length = piece.len() as u64;
            if !fua {
                self.remember(at, length);
            } else if let Some(undo) = &mut self.undo {
                amend(undo, self.geometry.size.0, at, piece);
            }
            self.store(at, piece);
            at += length;
        }
    }

    fn extents(&self, at: u64, length: u64, extents: &mut Vec<Extent>) {
        extents.clear();
        let end = at + length;
        let mut here = at;
        while here < end {
            let next = (here / PAGE * PAGE + PAGE).min(end);
            let chunk = self.chunks[(here / CHUNK) as usize].as_ref();
            let inside = (here % CHUNK) as usize / BLOCK * BLOCK;
            let state = match chunk {
                None => ExtentState::Hole,
                Some(chunk) if chunk.written & pages(inside, inside + BLOCK) != 0 => ExtentState::Data,
                Some(_) => ExtentState::Zero,
            };
            Extent::append(extents, Extent { length: next - here, state });
            here = next;
        }
    }
}

impl Drive for MemoryDrive {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, request: Request) {
        let Request { tag, mut op, .. } = request;
        let result = self.geometry.admit_range(&op);
        if result.is_ok() {
            match &mut op {
                Op::Read { at, buffer } => self.load(*at, buffer),
                Op::Write { at, data, fua } => self.write(*at, data, *fua),
                Op::Zero { at, length } | Op::Discard { at, length } => {
                    self.remember(*at, *length);
                    self.clear(*at, *length);
                }
                Op::Flush => self.undo.iter_mut().for_each(BTreeMap::clear),
                Op::Extents { at, length, extents, .. } => self.extents(*at, *length, extents),
                // Split into pages, as a cache would.
                Op::View { at, length, pieces } => {
                    let mut whole = Buffer::stale(*length as usize);
                    self.load(*at, &mut whole);
                    let whole = whole.freeze();
                    let ends = (0..whole.len()).step_by(PAGE as usize);
                    *pieces = ends.map(|from| whole.slice(from..whole.len().min(from + PAGE as usize))).collect();
                }
            }
        }
        self.finished.push(Completion { tag, op, result });
    }

    fn reap(&mut self, _now: Instant, finished: &mut Vec<Completion>) {
        finished.append(&mut self.finished);
    }
}

impl Chunk {
    fn new() -> Chunk {
        // Memory from the allocator's zero pages: untouched memory costs nothing.
        Chunk { bytes: vec![0; CHUNK as usize].into_boxed_slice(), written: 0 }
    }
}

/// Writes durable content into the saved pages that a power cut would restore.
fn amend(undo: &mut BTreeMap<u64, Option<Box<[u8]>>>, size: u64, at: u64, piece: &[u8]) {
    let end = at + piece.len() as u64;
    for (page, image) in undo.range_mut(at / PAGE..end.div_ceil(PAGE)) {
        let start = page * PAGE;
        let image = image.get_or_insert_with(|| vec![0; PAGE.min(size - start) as usize].into_boxed_slice());
        let (from, to) = (at.max(start), end.min(start + PAGE));
        image[(from - start) as usize..(to - start) as usize]
            .copy_from_slice(&piece[(from - at) as usize..(to - at) as usize]);
    }
}

/// The parts of a range by chunk: the chunk's number, the offset inside it, and the bytes of the
/// range in it.
fn spans(at: u64, length: u64) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        (done < length).then(|| {
            let here = at + done;
            let inside = here % CHUNK;
            let part = (CHUNK - inside).min(length - done);
            let piece = done as usize..(done + part) as usize;
            done += part;
            ((here / CHUNK) as usize, inside as usize, piece)
        })
    })
}

/// The bits of the whole pages in `from..to` of a chunk.
fn pages(from: usize, to: usize) -> u64 {
    let (first, last) = (from / BLOCK, to / BLOCK);
    if first >= last {
        return 0;
    }
    (u64::MAX >> (64 - (last - first))) << first
}

#[cfg(test)]
mod tests;
