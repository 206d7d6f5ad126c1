//! The prototype "batch": many stripes in place with one redo record, and one flush for each drive.
//!
//! Crash points: before the redo record is durable, strips are as they were and the log has the
//! blocks. After it, replay puts the images onto the strips again. The record names data blocks by
//! their own records, and holds the images of parity.

use stele_ground::BLOCK;
use stele_ground::digest::fingerprint;
use stele_media::{Buffer, Shared};

use super::flat::Flat;
use super::{Destage, MemoryPool, Written, digest_at};
use crate::destage::layout::Layout;

/// Bytes of the redo record for each image: strip, place, digest.
const IMAGE: usize = 24;

/// Digest number of a block of a strip.
pub fn digest_number(layout: &Layout, stripe: u64, strip: usize, at: u64) -> usize {
    ((stripe * layout.width() as u64 + strip as u64) * layout.strip + at) as usize
}

/// Words of the table for so many stripes.
pub fn words(layout: &Layout, stripes: u64) -> usize {
    (stripes * layout.width() as u64 * layout.strip).div_ceil(2) as usize
}

/// A table that fits drives of zeros.
pub fn begin(store: &mut MemoryPool, stripes: u64) {
    let zeros = fingerprint(&[0; BLOCK]);
    for number in 0..stripes as usize * store.layout.width() * store.layout.strip as usize {
        store.table.set_digest(number, digest_at(zeros, number as u64));
    }
}

/// Reads a block of a strip, and compares it with its digest.
pub fn read_block(store: &mut MemoryPool, stripe: u64, strip: usize, at: u64) -> Buffer {
    let (drive, byte) = store.layout.place(stripe, strip, at);
    let buffer = store.drives.read(drive, byte, BLOCK);
    let number = digest_number(&store.layout, stripe, strip, at);
    let digest = digest_at(fingerprint(&buffer), number as u64);
    assert_eq!(digest, store.table.digest(number), "stripe {stripe}, strip {strip}, block {at} does not verify");
    buffer
}

/// Reads of a volume whose blocks are in place: a command for each strip.
pub fn read_range(store: &mut MemoryPool, first: u64, blocks: u64, into: &mut [u8]) {
    let mut done = 0;
    while done < blocks {
        let (stripe, strip, at) = store.layout.of(first + done);
        let count = (store.layout.strip - at).min(blocks - done);
        let (drive, byte) = store.layout.place(stripe, strip, at);
        let buffer = store.drives.read(drive, byte, count as usize * BLOCK);
        for (block, data) in (at..at + count).zip(buffer.chunks_exact(BLOCK)) {
            let number = digest_number(&store.layout, stripe, strip, block);
            assert_eq!(digest_at(fingerprint(data), number as u64), store.table.digest(number), "stripe {stripe}");
        }
        into[done as usize * BLOCK..][..buffer.len()].copy_from_slice(&buffer);
        done += count;
    }
}

/// A write of one block, before it is sorted by its place.
struct Placed {
    drive: usize,
    at: u64,
    data: Shared,
}

pub struct Batch {
    dirty: Flat,
    /// Stripes destaged together.
    stripes: usize,
    taken: Vec<(u64, Written)>,
    writes: Vec<Placed>,
    head: Vec<u8>,
    touched: Vec<bool>,
}

impl Batch {
    pub fn new(layout: &Layout, blocks: u64, stripes: usize) -> Batch {
        Batch {
            dirty: Flat::new(blocks, layout.stripe()),
            stripes,
            taken: Vec::new(),
            writes: Vec::new(),
            head: Vec::new(),
            touched: vec![false; layout.drives],
        }
    }

    /// One image: its digest, its line in the record, and the write.
    fn put(&mut self, store: &mut MemoryPool, strip: (u64, usize, u64), data: Shared, fingerprint: u64) {
        let (stripe, strip, at) = strip;
        let number = digest_number(&store.layout, stripe, strip, at);
        let digest = digest_at(fingerprint, number as u64);
        store.table.set_digest(number, digest);
        let begun = self.head.len();
        self.head.extend_from_slice(&(number as u64).to_le_bytes());
        self.head.extend_from_slice(&digest.to_le_bytes());
        self.head.resize(begun + IMAGE, 0);
        let (drive, byte) = store.layout.place(stripe, strip, at);
        self.writes.push(Placed { drive, at: byte, data });
    }

    fn plan_copies(&mut self, store: &mut MemoryPool, taken: &[(u64, Written)]) {
        for (block, written) in taken {
            let (stripe, _, at) = store.layout.of(*block);
            for copy in 0..store.layout.width() {
                self.put(store, (stripe, copy, at), written.data.clone(), written.fingerprint);
            }
        }
    }

    /// Parity by read-modify-write, column by column. Answers the images of parity.
    fn plan_parity(&mut self, store: &mut MemoryPool, taken: &[(u64, Written)]) -> Vec<Shared> {
        let layout = store.layout;
        // Blocks of one column share their parity.
        let mut columns: Vec<(u64, u64, usize, usize)> = taken
            .iter()
            .enumerate()
            .map(|(number, (block, _))| {
                let (stripe, strip, at) = layout.of(*block);
                (stripe, at, strip, number)
            })
            .collect();
        columns.sort_unstable();
        // All that is read, in the order of its place on each drive.
        let mut reads: Vec<(usize, u64, u64, usize, u64)> = Vec::new();
        let mut want = |stripe, strip, at| {
            let (drive, byte) = layout.place(stripe, strip, at);
            reads.push((drive, byte, stripe, strip, at));
        };
        for column in columns.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
            column.iter().for_each(|(stripe, at, strip, _)| want(*stripe, *strip, *at));
            (layout.k..layout.width()).for_each(|strip| want(column[0].0, strip, column[0].1));
        }
        reads.sort_unstable();
        let mut old: Vec<((u64, u64, usize), Buffer)> = reads
            .iter()
            .map(|(_, _, stripe, strip, at)| ((*stripe, *at, *strip), read_block(store, *stripe, *strip, *at)))
            .collect();
        // In the order of columns: first the data that changes, then parity.
        old.sort_unstable_by_key(|(key, _)| *key);
        let (mut old, mut images) = (old.into_iter().map(|(_, buffer)| buffer), Vec::new());
        for column in columns.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
            let (stripe, at) = (column[0].0, column[0].1);
            let data: Vec<Buffer> = old.by_ref().take(column.len()).collect();
            let mut parity: Vec<Buffer> = old.by_ref().take(layout.m).collect();
            for ((_, _, strip, number), old) in column.iter().zip(&data) {
                let written = &taken[*number].1;
                let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|buffer| &mut buffer[..]).collect();
                store.coder.update(*strip, old, &written.data, &mut outputs);
                self.put(store, (stripe, *strip, at), written.data.clone(), written.fingerprint);
            }
            for (strip, buffer) in (layout.k..).zip(parity) {
                let print = fingerprint(&buffer);
                let image = buffer.freeze();
                images.push(image.clone());
                self.put(store, (stripe, strip, at), image, print);
            }
        }
        images
    }

    /// Writes in the order of places; neighbours are one command. Then one flush for each drive.
    fn write(&mut self, store: &mut MemoryPool) {
        self.writes.sort_unstable_by_key(|write| (write.drive, write.at));
        let mut writes = self.writes.drain(..).peekable();
        while let Some(Placed { drive, at, data }) = writes.next() {
            let mut end = at + data.len() as u64;
            let mut pieces = vec![data];
            while let Some(next) = writes.next_if(|next| next.drive == drive && next.at == end) {
                end += next.data.len() as u64;
                pieces.push(next.data);
            }
            store.drives.write(drive, at, pieces, false);
            self.touched[drive] = true;
        }
        for (drive, touched) in self.touched.iter_mut().enumerate() {
            if std::mem::take(touched) {
                store.drives.flush(drive);
            }
        }
        store.drives.settle();
    }
}

impl Destage for Batch {
    fn accept(&mut self, _: &mut MemoryPool, blocks: &[(u64, Written)]) {
        blocks.iter().for_each(|(block, written)| self.dirty.put(*block, written.clone()));
    }

    fn dirty(&self) -> usize {
        self.dirty.len()
    }

    fn destage(&mut self, store: &mut MemoryPool) {
        let mut taken = std::mem::take(&mut self.taken);
        self.dirty.take(self.stripes, usize::MAX, &mut taken);
        self.head.clear();
        let images = match store.layout.is_mirror() {
            true => {
                self.plan_copies(store, &taken);
                Vec::new()
            }
            false => self.plan_parity(store, &taken),
        };
        let images: Vec<&[u8]> = images.iter().map(|image| &image[..]).collect();
        store.log.append(&mut store.drives, &self.head, &images);
        self.write(store);
        // One record that the batch is in place, with the next group.
        store.log.later(&[0; super::HEAD]);
        taken.drain(..).for_each(|(block, written)| store.keep_clean(block, &written.data));
        self.taken = taken;
    }

    fn read(&self, store: &mut MemoryPool, first: u64, blocks: u64, into: &mut [u8]) {
        read_range(store, first, blocks, into);
    }
}
