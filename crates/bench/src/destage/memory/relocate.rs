//! The prototype "relocate": dirty blocks of many stripes become whole new stripes in free places.
//!
//! Crash points, for hosts and the cleaner alike. The strips of the parcels are written, then
//! flushed. The map's record is durable in the log. Only then may the log forget the blocks, and a
//! cleaned segment be used again. Before the record, the map and the log have the old state, of
//! which nothing was overwritten: no redo, and no parity in the log. Each parcel's first block
//! names its owners with a sequence number, so that the map can be made again from the drives.

use stele_ground::BLOCK;
use stele_ground::digest::fingerprint;
use stele_media::{Buffer, Shared};

use super::flat::Flat;
use super::{Destage, MemoryPool, Written, digest_at};
use crate::destage::layout::Layout;
use crate::destage::space::{Choice, NONE, Run, Space, Stream};

/// Bytes of the map's record for a block: block, place, digest.
const CHANGE: usize = 16;
/// Bytes of an owner in a parcel's first block: block and digest.
const OWNER: usize = 12;
/// Where owners begin in that block, behind sequence and count.
const OWNERS_AT: usize = 16;

/// A block on its way: of hosts, or of a segment that is cleaned, with its place there.
struct Moving {
    block: u32,
    from: u32,
    written: Written,
}

pub struct Relocate {
    dirty: Flat,
    space: Space,
    /// Parcels written with one flush of each drive and one record.
    parcels: usize,
    sequence: u64,
    taken: Vec<(u64, Written)>,
    /// Live blocks of cleaned segments, until a parcel is full.
    moving: Vec<Moving>,
    cleaned: Vec<u32>,
}

/// The shape of parcels, and what is cleaned.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// The share of the room that the volume takes.
    pub full: f64,
    pub choice: Choice,
    pub parcels: usize,
}

impl Relocate {
    pub fn new(layout: &Layout, blocks: u64, plan: Room) -> Relocate {
        Relocate {
            dirty: Flat::new(blocks, layout.stripe()),
            space: Space::new(blocks, layout.stripe(), layout.row, plan.full, 1, plan.choice),
            parcels: plan.parcels,
            sequence: 0,
            taken: Vec::new(),
            moving: Vec::new(),
            cleaned: Vec::new(),
        }
    }

    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Writes whole parcels from the blocks, which `source` hands out in order.
    fn write_out(&mut self, store: &mut MemoryPool, stream: Stream, blocks: Vec<(u32, Written)>) {
        let room = self.space.room();
        let mut rest = &blocks[..];
        let mut record = Vec::with_capacity(blocks.len() * CHANGE);
        let (mut placed, mut touched): (Vec<(u32, usize)>, u64) = Default::default();
        while !rest.is_empty() {
            let wanted = rest.len().div_ceil(room) as u32;
            let Run { first, parcels } = self.space.take(stream, wanted).expect("the cleaner keeps segments free");
            for parcel in first..first + parcels {
                let (here, others) = rest.split_at(room.min(rest.len()));
                rest = others;
                touched |= self.write_parcel(store, parcel, here, &mut record);
                placed.push((parcel, here.len()));
            }
        }
        (0..store.layout.drives).filter(|drive| touched >> drive & 1 == 1).for_each(|drive| store.drives.flush(drive));
        store.drives.settle();
        store.log.append(&mut store.drives, &record, &[]);
        let mut all = blocks.iter();
        for (parcel, count) in placed {
            self.space.settle(parcel, all.by_ref().take(count).map(|(block, _)| *block));
        }
        for (block, written) in &blocks {
            let place = self.space.place_of(*block);
            let digest = digest_at(written.fingerprint, u64::from(place));
            store.table.set(*block as usize, u64::from(place) << 32 | u64::from(digest));
        }
    }

    /// One whole stripe: owners, blocks, and zeros where there are not enough. Answers the drives.
    fn write_parcel(
        &mut self,
        store: &mut MemoryPool,
        parcel: u32,
        blocks: &[(u32, Written)],
        record: &mut Vec<u8>,
    ) -> u64 {
        let layout = store.layout;
        self.sequence += 1;
        let mut owners = Buffer::zeroed(BLOCK);
        owners[..8].copy_from_slice(&self.sequence.to_le_bytes());
        owners[8..16].copy_from_slice(&(blocks.len() as u64).to_le_bytes());
        for (at, (block, written)) in blocks.iter().enumerate() {
            let place = u64::from(parcel) * layout.stripe() + 1 + at as u64;
            let digest = digest_at(written.fingerprint, place);
            let line = &mut owners[OWNERS_AT + at * OWNER..][..OWNER];
            line[..8].copy_from_slice(&u64::from(*block).to_le_bytes());
            line[8..].copy_from_slice(&digest.to_le_bytes());
            record.extend_from_slice(&block.to_le_bytes());
            record.extend_from_slice(&place.to_le_bytes());
            record.extend_from_slice(&digest.to_le_bytes());
        }
        let zeros = Buffer::zeroed(BLOCK).freeze();
        let mut pieces = vec![owners.freeze()];
        pieces.extend(blocks.iter().map(|(_, written)| written.data.clone()));
        pieces.resize(layout.stripe() as usize, zeros);
        let strip = layout.strip as usize;
        let mut touched = 0;
        let mut write = |store: &mut MemoryPool, number: usize, data: Vec<Shared>| {
            let (drive, byte) = layout.place(u64::from(parcel), number, 0);
            store.drives.write(drive, byte, data, false);
            touched |= 1 << drive;
        };
        if layout.is_mirror() {
            (0..layout.width()).for_each(|copy| write(store, copy, pieces.clone()));
            return touched;
        }
        let mut parity: Vec<Buffer> = (0..layout.m).map(|_| Buffer::stale(strip * BLOCK)).collect();
        for at in 0..strip {
            let data: Vec<&[u8]> = (0..layout.k).map(|number| &pieces[number * strip + at][..]).collect();
            let mut outputs: Vec<&mut [u8]> =
                parity.iter_mut().map(|buffer| &mut buffer[at * BLOCK..][..BLOCK]).collect();
            store.coder.encode(&data, &mut outputs);
            // Parity's digests would go to the table of parcels.
            for block in &outputs {
                std::hint::black_box(fingerprint(block));
            }
        }
        pieces.chunks(strip).enumerate().for_each(|(number, strip)| write(store, number, strip.to_vec()));
        (layout.k..).zip(parity).for_each(|(number, buffer)| write(store, number, vec![buffer.freeze()]));
        touched
    }

    fn place_of(layout: &Layout, place: u32) -> (usize, u64) {
        let (stripe, strip, at) = layout.of(u64::from(place));
        layout.place(stripe, strip, at)
    }

    /// Reads the live blocks of segments, and writes them to new places, until enough are free.
    fn clean(&mut self, store: &mut MemoryPool) {
        while self.space.is_short() {
            let victim = self.space.victim().expect("a full segment");
            let live: Vec<(u32, u32)> = self.space.live_in(victim).collect();
            for run in runs(&store.layout, &live) {
                let (drive, byte) = Relocate::place_of(&store.layout, run[0].1);
                let data = store.drives.read(drive, byte, run.len() * BLOCK).freeze();
                for (number, (block, place)) in run.iter().enumerate() {
                    let data = data.slice(number * BLOCK..(number + 1) * BLOCK);
                    let print = fingerprint(&data);
                    let digest = digest_at(print, u64::from(*place));
                    assert_eq!(digest, store.table.get(*block as usize) as u32, "block {block} does not verify");
                    let written = Written { data, fingerprint: print };
                    self.moving.push(Moving { block: *block, from: *place, written });
                }
            }
            self.cleaned.push(victim);
            self.write_moving(store);
        }
    }

    fn write_moving(&mut self, store: &mut MemoryPool) {
        // Hosts may have written a block anew since it was read.
        let space = &self.space;
        self.moving.retain(|moving| space.place_of(moving.block) == moving.from);
        let whole = self.moving.len() / self.space.room() * self.space.room();
        let blocks: Vec<(u32, Written)> =
            self.moving.drain(..whole).map(|moving| (moving.block, moving.written)).collect();
        self.space.moved += blocks.len() as u64;
        self.write_out(store, Stream::Cleaner, blocks);
        let space = &mut self.space;
        self.cleaned.retain(|segment| {
            let is_dead = space.is_dead(*segment);
            if is_dead {
                space.release(*segment);
            }
            !is_dead
        });
    }

    /// The map as the drives' owners give it: the newest parcel that names a block has it.
    #[cfg(test)]
    pub fn recovered(&self, store: &mut MemoryPool) -> Vec<u32> {
        let mut map = vec![(0u64, NONE); store.table.words.len()];
        for parcel in 0..self.space.parcels() {
            let (drive, byte) = store.layout.place(parcel, 0, 0);
            let owners = store.drives.read(drive, byte, BLOCK);
            let word = |at: usize| u64::from_le_bytes(owners[at..at + 8].try_into().expect("eight bytes"));
            for at in 0..word(8) as usize {
                let entry = &mut map[word(OWNERS_AT + at * OWNER) as usize];
                *entry = (*entry).max((word(0), (parcel * store.layout.stripe()) as u32 + 1 + at as u32));
            }
        }
        map.into_iter().map(|(_, place)| place).collect()
    }
}

/// Blocks with their places, by what lies together on a strip: one command reads each part.
fn runs<'a>(layout: &Layout, places: &'a [(u32, u32)]) -> impl Iterator<Item = &'a [(u32, u32)]> {
    let strip = layout.strip;
    places.chunk_by(move |one, next| {
        one.1 != NONE && one.1 + 1 == next.1 && !(u64::from(one.1) + 1).is_multiple_of(strip)
    })
}

impl Destage for Relocate {
    fn accept(&mut self, _: &mut MemoryPool, blocks: &[(u64, Written)]) {
        blocks.iter().for_each(|(block, written)| self.dirty.put(*block, written.clone()));
    }

    fn dirty(&self) -> usize {
        self.dirty.len()
    }

    fn destage(&mut self, store: &mut MemoryPool) {
        self.clean(store);
        let mut taken = std::mem::take(&mut self.taken);
        let enough = self.parcels * self.space.room();
        self.dirty.take(usize::MAX, enough, &mut taken);
        // What does not fill a parcel is dirty again.
        let whole = (taken.len() / self.space.room() * self.space.room()).min(enough);
        let most = if whole == 0 { taken.len() } else { whole };
        taken.drain(most..).for_each(|(block, written)| self.dirty.put(block, written));
        let blocks = taken.iter().map(|(block, written)| (*block as u32, written.clone())).collect();
        self.write_out(store, Stream::Hosts, blocks);
        taken.drain(..).for_each(|(block, written)| store.keep_clean(block, &written.data));
        self.taken = taken;
    }

    fn read(&self, store: &mut MemoryPool, first: u64, blocks: u64, into: &mut [u8]) {
        let blocks: Vec<(u32, u32)> =
            (first as u32..(first + blocks) as u32).map(|block| (block, self.space.place_of(block))).collect();
        let mut into = into.chunks_exact_mut(BLOCK);
        for run in runs(&store.layout, &blocks) {
            if run[0].1 == NONE {
                into.by_ref().take(run.len()).for_each(|into| into.fill(0));
                continue;
            }
            let (drive, byte) = Relocate::place_of(&store.layout, run[0].1);
            let buffer = store.drives.read(drive, byte, run.len() * BLOCK);
            for (((block, place), data), into) in run.iter().zip(buffer.chunks_exact(BLOCK)).zip(into.by_ref()) {
                let digest = digest_at(fingerprint(data), u64::from(*place));
                assert_eq!(digest, store.table.get(*block as usize) as u32, "block {block} does not verify");
                into.copy_from_slice(data);
            }
        }
    }
}
