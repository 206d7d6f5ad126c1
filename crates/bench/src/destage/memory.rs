//! The write path on drives in memory, with real bytes: what the log, the table and the cache of
//! clean blocks cost is the same for every prototype, and only destage differs.
//!
//! A round of hosts is a group of the log: as in the array, its blocks are copied behind one
//! another, digested, and sent to each member as a forced write.

pub mod flat;
pub mod in_place;
pub mod relocate;
pub mod today;

use std::collections::HashMap;

use stele_codes::{Code, Coder};
use stele_ground::digest::{bind_fingerprint, fingerprint};
use stele_ground::{BLOCK, Bytes, Instant};
use stele_media::{Buffer, Completion, Drive, MemoryDrive, Op, Priority, Request, Shared};

use super::layout::{Layout, PAGE};

/// Drives that carry the log, as in a pool that tolerates two losses.
const MEMBERS: usize = 4;
/// Bytes of a record's or a group's own head in the log.
pub const HEAD: usize = 64;
/// Blocks of a group: a larger one departs in parts.
const GROUP: usize = 62;
/// Copies of a page of the table.
const TABLE_COPIES: usize = 3;

/// A block as it came, with its digest.
#[derive(Clone, Debug)]
pub struct Written {
    pub data: Shared,
    pub fingerprint: u64,
}

/// One prototype: it takes what the log holds durably, and brings it to its place.
pub trait Destage {
    /// Whether `read` returns what was written.
    const READS: bool = true;

    /// These blocks are in the log.
    fn accept(&mut self, store: &mut MemoryPool, blocks: &[(u64, Written)]);

    /// Blocks that are not in their place yet.
    fn dirty(&self) -> usize;

    /// Brings some of them there.
    fn destage(&mut self, store: &mut MemoryPool);

    /// The volume's content, verified, for the blocks that are not dirty.
    fn read(&self, store: &mut MemoryPool, first: u64, blocks: u64, into: &mut [u8]);
}

/// The drives, with counts of what they did.
pub struct Drives {
    all: Vec<MemoryDrive>,
    finished: Vec<Completion>,
    pub commands: u64,
    pub written: u64,
}

impl Drives {
    fn new(count: usize, size: u64, make: fn(Bytes) -> MemoryDrive) -> Drives {
        let mut all: Vec<MemoryDrive> = (0..count).map(|_| make(Bytes(size))).collect();
        all.iter_mut().for_each(MemoryDrive::preallocate);
        Drives { all, finished: Vec::new(), commands: 0, written: 0 }
    }

    /// What was neither flushed nor forced is lost, where a drive has a cache that loses it.
    #[cfg(test)]
    pub fn cut_power(&mut self) {
        self.all.iter_mut().for_each(MemoryDrive::cut_power);
    }

    fn submit(&mut self, drive: usize, op: Op) {
        self.commands += 1;
        self.all[drive].submit(Request { tag: self.commands, op, priority: Priority::Destage, deadline: None });
    }

    pub fn write(&mut self, drive: usize, at: u64, data: Vec<Shared>, fua: bool) {
        self.written += data.iter().map(|piece| piece.len() as u64).sum::<u64>();
        self.submit(drive, Op::Write { at, data, fua });
    }

    pub fn flush(&mut self, drive: usize) {
        self.submit(drive, Op::Flush);
    }

    pub fn read(&mut self, drive: usize, at: u64, length: usize) -> Buffer {
        self.submit(drive, Op::Read { at, buffer: Buffer::stale(length) });
        self.all[drive].reap(Instant(0), &mut self.finished);
        let mut read = self.finished.drain(..).filter_map(|done| match done {
            Completion { op: Op::Read { buffer, .. }, result: Ok(()), .. } => Some(buffer),
            _ => None,
        });
        read.next().expect("a drive in memory answers at once")
    }

    /// Takes the answers of what was written.
    pub fn settle(&mut self) {
        for drive in &mut self.all {
            drive.reap(Instant(0), &mut self.finished);
        }
        assert!(self.finished.iter().all(|done| done.result.is_ok()), "a drive in memory fails no write");
        self.finished.clear();
    }
}

/// The log: a ring at the end of some drives.
pub struct Log {
    begin: u64,
    size: u64,
    next: u64,
    members: usize,
    /// Records that are ready but have not departed: they join the next group.
    pending: Vec<u8>,
    since_checkpoint: u64,
}

impl Log {
    /// Sends what is pending, the given head, and the blocks: a group, or as many as it takes.
    pub fn append(&mut self, drives: &mut Drives, head: &[u8], blocks: &[&[u8]]) {
        self.later(head);
        let (first, rest) = blocks.split_at(blocks.len().min(GROUP));
        self.append_group(drives, first);
        rest.chunks(GROUP).for_each(|blocks| self.append_group(drives, blocks));
    }

    fn append_group(&mut self, drives: &mut Drives, blocks: &[&[u8]]) {
        let payload = self.pending.len() + blocks.iter().map(|block| block.len()).sum::<usize>();
        let length = (HEAD + payload).next_multiple_of(BLOCK);
        let mut group = Buffer::stale(length);
        let mut at = HEAD;
        for piece in [&self.pending[..]].iter().chain(blocks) {
            group[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        group[at..].fill(0);
        let digest = fingerprint(&group[HEAD..at]);
        group[..HEAD].fill(0);
        group[..8].copy_from_slice(&digest.to_le_bytes());
        self.pending.clear();
        if self.next + length as u64 > self.size {
            self.next = 0;
        }
        let data = group.freeze();
        for member in 0..self.members {
            drives.write(member, self.begin + self.next, vec![data.clone()], true);
        }
        drives.settle();
        self.next += length as u64;
        self.since_checkpoint += length as u64;
    }

    /// Leaves a record for the next group.
    pub fn later(&mut self, record: &[u8]) {
        self.pending.extend_from_slice(record);
    }
}

/// Words that the log brings up to date and checkpoints store: digests, or places.
pub struct Table {
    words: Vec<u64>,
    changed: Vec<bool>,
    pub pages_stored: u64,
}

/// Words of a page.
const WORDS: usize = BLOCK / 8;

impl Table {
    fn new(words: usize) -> Table {
        Table { words: vec![0; words], changed: vec![false; words.div_ceil(WORDS)], pages_stored: 0 }
    }

    pub fn get(&self, word: usize) -> u64 {
        self.words[word]
    }

    pub fn set(&mut self, word: usize, value: u64) {
        self.words[word] = value;
        self.changed[word / WORDS] = true;
    }

    /// Two digests share a word.
    pub fn digest(&self, number: usize) -> u32 {
        (self.words[number / 2] >> (number % 2 * 32)) as u32
    }

    pub fn set_digest(&mut self, number: usize, digest: u32) {
        let shift = number % 2 * 32;
        let word = self.words[number / 2] & !(0xFFFF_FFFF << shift) | u64::from(digest) << shift;
        self.set(number / 2, word);
    }

    /// Stores the changed pages. Each goes to a place of its own in the ring behind the log.
    fn store(&mut self, drives: &mut Drives, begin: u64, room: u64) {
        for (page, changed) in self.changed.iter_mut().enumerate().filter(|(_, changed)| **changed) {
            *changed = false;
            self.pages_stored += 1;
            let words = &self.words[page * WORDS..((page + 1) * WORDS).min(self.words.len())];
            let mut buffer = Buffer::zeroed(BLOCK);
            for (bytes, word) in buffer.chunks_exact_mut(8).zip(words) {
                bytes.copy_from_slice(&word.to_le_bytes());
            }
            std::hint::black_box(fingerprint(&buffer));
            let data = buffer.freeze();
            let at = begin + self.pages_stored * PAGE % room;
            for copy in 0..TABLE_COPIES.min(drives.all.len()) {
                drives.write((page + copy) % drives.all.len(), at, vec![data.clone()], false);
            }
        }
        (0..drives.all.len()).for_each(|drive| drives.flush(drive));
        drives.settle();
    }
}

/// Blocks that were destaged stay readable from memory. They are copied to pages of the cache.
struct Clean {
    pages: Vec<u8>,
    owners: Vec<u64>,
    places: HashMap<u64, u32>,
    next: usize,
}

impl Clean {
    fn new(blocks: usize) -> Clean {
        let places = HashMap::with_capacity(blocks);
        Clean { pages: vec![0; blocks * BLOCK], owners: vec![u64::MAX; blocks], places, next: 0 }
    }

    fn put(&mut self, block: u64, data: &[u8]) {
        let page = match self.places.get(&block) {
            Some(page) => *page as usize,
            None => {
                let page = self.next;
                self.next = (self.next + 1) % self.owners.len();
                self.places.remove(&std::mem::replace(&mut self.owners[page], block));
                self.places.insert(block, page as u32);
                page
            }
        };
        self.pages[page * BLOCK..][..BLOCK].copy_from_slice(data);
    }
}

/// What all prototypes share.
pub struct MemoryPool {
    pub layout: Layout,
    pub coder: Coder,
    pub drives: Drives,
    pub log: Log,
    pub table: Table,
    clean: Clean,
    table_at: u64,
}

/// The sizes of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub volume: u64,
    pub log: u64,
    pub clean: u64,
    pub dirty: u64,
    /// Makes a drive of a size.
    pub drive: fn(Bytes) -> MemoryDrive,
}

impl MemoryPool {
    /// Drives of zeros for so many stripes, and a table of so many words.
    pub fn new(layout: Layout, stripes: u64, words: usize, sizes: Sizes) -> MemoryPool {
        let code = match layout.is_mirror() {
            true => Code::mirror(layout.width() as u8),
            false => Code::parity(layout.k as u8, layout.m as u8),
        };
        let begin = layout.drive_bytes(stripes);
        let table_at = begin + sizes.log;
        MemoryPool {
            layout,
            coder: Coder::new(code.expect("the layout is that of a code")),
            drives: Drives::new(layout.drives, table_at + sizes.log / 8, sizes.drive),
            log: Log {
                begin,
                size: sizes.log,
                next: 0,
                members: MEMBERS.min(layout.drives),
                pending: Vec::new(),
                since_checkpoint: 0,
            },
            table: Table::new(words),
            clean: Clean::new((sizes.clean / PAGE) as usize),
            table_at,
        }
    }

    pub fn keep_clean(&mut self, block: u64, data: &[u8]) {
        self.clean.put(block, data);
    }

    /// Once half of the log has passed.
    fn checkpoint_in_time(&mut self) {
        if self.log.since_checkpoint > self.log.size / 2 {
            self.log.since_checkpoint = 0;
            self.table.store(&mut self.drives, self.table_at, self.log.size / 8);
        }
    }
}

/// What a drive is to return at a place: a digest that only fits there.
pub fn digest_at(fingerprint: u64, place: u64) -> u32 {
    bind_fingerprint(fingerprint, place)
}

/// A prototype on its drives.
pub struct Running<D> {
    pub store: MemoryPool,
    pub destage: D,
    limit: usize,
}

impl<D: Destage> Running<D> {
    pub fn new(store: MemoryPool, destage: D, sizes: Sizes) -> Running<D> {
        Running { store, destage, limit: (sizes.dirty / PAGE) as usize }
    }

    /// One round of hosts. What is above the limit is destaged at once: hosts would wait for it.
    pub fn write(&mut self, blocks: &[(u64, Shared)]) {
        let written: Vec<(u64, Written)> = blocks
            .iter()
            .map(|(block, data)| (*block, Written { data: data.clone(), fingerprint: fingerprint(data) }))
            .collect();
        let mut head = Vec::with_capacity(written.len() * HEAD);
        for (block, written) in &written {
            head.extend_from_slice(&block.to_le_bytes());
            head.extend_from_slice(&written.fingerprint.to_le_bytes());
            head.resize(head.len() + HEAD - 16, 0);
        }
        let pieces: Vec<&[u8]> = written.iter().map(|(_, written)| &written.data[..]).collect();
        self.store.log.append(&mut self.store.drives, &head, &pieces);
        self.destage.accept(&mut self.store, &written);
        while self.destage.dirty() > self.limit {
            self.destage.destage(&mut self.store);
            self.store.checkpoint_in_time();
        }
    }

    /// Until nothing is dirty.
    #[cfg(test)]
    pub fn drain(&mut self) {
        while self.destage.dirty() > 0 {
            self.destage.destage(&mut self.store);
        }
    }

    pub fn read(&mut self, first: u64, blocks: u64, into: &mut [u8]) {
        self.destage.read(&mut self.store, first, blocks, into);
    }
}
