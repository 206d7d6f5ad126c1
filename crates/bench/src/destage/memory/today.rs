//! The prototype "today": stripe by stripe, as the array does it, with its trees.
//!
//! As many stripes as the array destages at once go side by side: their redo records share groups
//! of the log. Each stripe has a lock, a redo record, its own reads and writes, a flush of each
//! drive that it wrote to, and a record of its end. What the array has beyond that is not here:
//! tasks that wait and are woken, the path of requests and answers, admission.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use stele_ground::BLOCK;
use stele_ground::digest::fingerprint;
use stele_media::{Buffer, Shared};

use super::in_place::{digest_number, read_block, read_range};
use super::{Destage, HEAD, MemoryPool, Written, digest_at};

/// Stripes destaged at once.
const AT_ONCE: usize = 96;

/// A write of a stripe's plan.
struct StripWrite {
    strip: usize,
    at: u64,
    data: Shared,
}

struct Plan {
    stripe: u64,
    redo: Vec<u8>,
    images: Vec<Shared>,
    digests: Vec<(usize, u32)>,
    writes: Vec<StripWrite>,
    blocks: Vec<(u64, Written)>,
}

#[derive(Default)]
pub struct Today {
    stripes: BTreeMap<u64, (u64, BTreeMap<u32, Written>)>,
    ages: BTreeSet<(u64, u64)>,
    /// The array's places of blocks: whether a block is dirty.
    places: HashMap<u64, bool>,
    dirty: usize,
    locks: HashSet<u64>,
    lsn: u64,
    from: u64,
}

impl Today {
    fn plan(store: &mut MemoryPool, stripe: u64, blocks: Vec<(u64, Written)>) -> Plan {
        let layout = store.layout;
        let mut plan = Plan {
            stripe,
            redo: vec![0; HEAD],
            images: Vec::new(),
            digests: Vec::new(),
            writes: Vec::new(),
            blocks: Vec::new(),
        };
        let mut columns: BTreeMap<u64, BTreeMap<usize, &Written>> = BTreeMap::new();
        for (block, written) in &blocks {
            let (_, strip, at) = layout.of(*block);
            columns.entry(at).or_default().insert(strip, written);
        }
        for (at, column) in columns {
            let mut put = |strip: usize, data: Shared, fingerprint: u64| {
                let number = digest_number(&layout, stripe, strip, at);
                plan.digests.push((number, digest_at(fingerprint, number as u64)));
                plan.redo.extend_from_slice(&[0; 32]);
                plan.writes.push(StripWrite { strip, at, data });
            };
            if layout.is_mirror() {
                for written in column.values() {
                    (0..layout.width()).for_each(|copy| put(copy, written.data.clone(), written.fingerprint));
                }
                continue;
            }
            let mut parity: Vec<Buffer> =
                (layout.k..layout.width()).map(|strip| read_block(store, stripe, strip, at)).collect();
            for (strip, written) in column {
                let old = read_block(store, stripe, strip, at);
                let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|buffer| &mut buffer[..]).collect();
                store.coder.update(strip, &old, &written.data, &mut outputs);
                put(strip, written.data.clone(), written.fingerprint);
            }
            for (strip, buffer) in (layout.k..).zip(parity) {
                let print = fingerprint(&buffer);
                let image = buffer.freeze();
                put(strip, image.clone(), print);
                plan.images.push(image);
            }
        }
        plan.blocks = blocks;
        plan
    }

    /// The strips of one stripe are written and flushed, and the end is recorded.
    fn finish(&mut self, store: &mut MemoryPool, plan: Plan) {
        let mut touched = BTreeSet::new();
        for StripWrite { strip, at, data } in plan.writes {
            let (drive, byte) = store.layout.place(plan.stripe, strip, at);
            store.drives.write(drive, byte, vec![data], false);
            touched.insert(drive);
        }
        store.drives.settle();
        touched.into_iter().for_each(|drive| store.drives.flush(drive));
        store.drives.settle();
        store.log.later(&[0; HEAD]);
        for (block, written) in plan.blocks {
            self.dirty -= usize::from(self.places.insert(block, false) == Some(true));
            store.keep_clean(block, &written.data);
        }
        self.locks.remove(&plan.stripe);
    }
}

impl Destage for Today {
    fn accept(&mut self, store: &mut MemoryPool, blocks: &[(u64, Written)]) {
        let size = store.layout.stripe();
        for (block, written) in blocks {
            self.lsn += 1;
            let stripe = block / size;
            self.dirty += usize::from(self.places.insert(*block, true) != Some(true));
            let entry = self.stripes.entry(stripe).or_insert_with(|| (self.lsn, BTreeMap::new()));
            self.ages.insert((entry.0, stripe));
            entry.1.insert((block % size) as u32, written.clone());
        }
    }

    fn dirty(&self) -> usize {
        self.dirty
    }

    fn destage(&mut self, store: &mut MemoryPool) {
        let next = self.stripes.range(self.from..).chain(self.stripes.range(..self.from));
        let keys: Vec<u64> = next.map(|(stripe, _)| *stripe).take(AT_ONCE).collect();
        self.from = keys.last().map_or(0, |last| last + 1);
        let size = store.layout.stripe();
        let mut plans = Vec::with_capacity(keys.len());
        for stripe in keys {
            assert!(self.locks.insert(stripe), "stripe {stripe} is destaged already");
            let Some((oldest, blocks)) = self.stripes.remove(&stripe) else { continue };
            self.ages.remove(&(oldest, stripe));
            let blocks = blocks.into_iter().map(|(at, written)| (stripe * size + u64::from(at), written)).collect();
            plans.push(Today::plan(store, stripe, blocks));
        }
        // Each its own record; a group departs when it is full.
        let (mut heads, mut images): (Vec<u8>, Vec<&[u8]>) = Default::default();
        for plan in &plans {
            heads.extend_from_slice(&plan.redo);
            images.extend(plan.images.iter().map(|image| &image[..]));
            if heads.len() + images.len() * BLOCK > super::GROUP * BLOCK {
                store.log.append(&mut store.drives, &heads, &images);
                heads.clear();
                images.clear();
            }
        }
        store.log.append(&mut store.drives, &heads, &images);
        for plan in &mut plans {
            plan.digests.drain(..).for_each(|(number, digest)| store.table.set_digest(number, digest));
        }
        plans.into_iter().for_each(|plan| self.finish(store, plan));
    }

    fn read(&self, store: &mut MemoryPool, first: u64, blocks: u64, into: &mut [u8]) {
        read_range(store, first, blocks, into);
    }
}
