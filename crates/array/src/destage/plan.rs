//! What a destage in place puts where: new data, parity and digests, computed before anything is
//! logged.

use std::ops::Range;

use stele_codes::Strips;
use stele_ground::BLOCK;
use stele_media::{Buffer, Priority};

use super::{Dirty, encode, overlay};
use crate::cache::DirtyBlock;
use crate::durable::records::{Image, NewDigest, Record, RedoImage};
use crate::engine::Engine;
use crate::formats::shape::Shape;
use crate::model::mutation::Mutation;
use crate::model::place::{Lsn, StripeKey};
use crate::model::{ArrayError, DigestUnit};
use crate::runtime::io::Io;
use crate::state::redo::{Redo, StripWrite};
use crate::stripe::{Columns, Stripe, runs};
use crate::volumes::Volume;

/// Block columns changed in place at a time, so that a redo record stays below its limit.
const COLUMNS_MAX: usize = 128;

/// A change of a stripe in its slot.
pub struct Change {
    /// For the log.
    pub record: Record,
    /// What follows once the record is durable.
    pub redo: Redo,
}

#[derive(Default)]
struct Plan {
    digests: Vec<NewDigest>,
    /// For the log: parity inline, data by reference to the writes that hold it.
    images: Vec<RedoImage>,
    writes: Vec<StripWrite>,
}

impl Engine {
    /// Reads what is needed, verified, and computes new parity and digests. The stripe's lock is
    /// held.
    pub async fn plan_change(
        &self,
        volume: &Volume,
        of: &Stripe,
        dirty: &Dirty,
        covers: Lsn,
    ) -> Result<Change, ArrayError> {
        let shape = &of.shape;
        let mut plan = Plan::default();
        let units = in_order(dirty.numbers().map(|block| shape.strip_of(block).1 / shape.unit_blocks()));
        for run in runs(units) {
            match shape.code().is_mirror() && shape.unit == DigestUnit::Block {
                true => plan_copies(of, dirty, run, &mut plan),
                false => self.plan_run(volume, of, dirty, run, &mut plan).await?,
            }
        }
        let record = Record::Redo {
            volume: volume.id,
            stripe: of.stripe,
            slot: of.slot,
            generation: of.generation,
            covers,
            digests: plan.digests,
            images: if self.io.is_disabled(Mutation::RedoImages) { Vec::new() } else { plan.images },
        };
        let oldest = dirty.blocks().map(|block| block.lsn).min().unwrap_or(covers);
        let (slot, generation, writes) = (of.slot, of.generation, plan.writes);
        Ok(Change { record, redo: Redo { slot, generation, covers, oldest, writes, placed: false } })
    }

    async fn plan_run(
        &self,
        volume: &Volume,
        of: &Stripe,
        dirty: &Dirty,
        run: Range<usize>,
        plan: &mut Plan,
    ) -> Result<(), ArrayError> {
        let shape = &of.shape;
        let bytes = shape.bytes_of(run.clone());
        let blocks = bytes.start / BLOCK..bytes.end / BLOCK;
        let (touched, full) = coverage(shape, dirty, &blocks);
        let all = Strips::all(shape.width());
        let parity = all.without(Strips::all(shape.k));
        // Reconstruct-write reads the data that is not written whole; read-modify-write what is
        // written, and the parity.
        let rest = Strips::all(shape.k).without(full);
        let modify = Strips::of(touched.iter().chain(parity.iter()));
        let reconstruct = rest.len() <= modify.len();
        let wanted = if reconstruct { rest } else { modify };
        // Invariant 7: what parity is computed from was verified just now.
        let columns: Columns = self.read_columns(of, wanted, run.clone(), Priority::Destage).await;
        if columns.wants_repair() {
            self.ask_repair(StripeKey { volume: of.volume, stripe: of.stripe });
        }
        if let Some((strip, _)) = columns.lost.first() {
            return Err(ArrayError::Damaged(format!(
                "volume '{}': stripe {} at offset {} cannot be changed: its strip {strip} can be neither read nor \
                 reconstructed; bring missing drives back or write the stripe whole",
                volume.name(),
                of.stripe,
                of.stripe * shape.data()
            )));
        }
        // A reconstruct-write fills what it did not read; of the other strips a read-modify-write
        // needs nothing.
        let missing = if reconstruct { bytes.len() } else { 0 };
        let mut read: Vec<Buffer> =
            columns.strips.into_iter().map(|strip| strip.unwrap_or_else(|| Buffer::zeroed(missing))).collect();
        if reconstruct {
            overlay(shape, dirty, &run, &mut read);
            encode(shape, &mut read);
        } else {
            modify_parity(&self.io, shape, dirty, &run, touched, &mut read);
        }
        // A unit of which no block is written keeps its digest: one that was never written stays
        // unwritten zeros.
        let unit_of = |(strip, at): (usize, usize)| (strip, at / shape.unit_blocks());
        let changed = in_order(dirty.numbers().map(|block| unit_of(shape.strip_of(block))));
        for strip in touched.iter().chain(parity.iter()) {
            for (place, unit) in run.clone().enumerate() {
                if strip < shape.k && changed.binary_search(&(strip, unit)).is_err() {
                    continue;
                }
                let digest =
                    of.binding.digest(strip, unit, &read[strip][place * shape.unit_bytes..][..shape.unit_bytes]);
                if digest != of.digest(strip, unit) {
                    plan.digests.push(NewDigest { strip: strip as u8, unit: unit as u32, digest });
                }
            }
        }
        plan_writes(shape, dirty, &blocks, read, plan);
        Ok(())
    }
}

/// Block columns whose redo record the log can take.
pub fn columns_max(shape: &Shape, record_max: usize) -> usize {
    // A column takes an image for each parity strip, and a line for each of its digests.
    (record_max / 2 / (shape.m * (BLOCK + 32) + shape.width() * 32)).clamp(1, COLUMNS_MAX)
}

/// The dirty blocks in groups of block columns whose redo record the log can take.
pub fn column_groups(shape: &Shape, dirty: Dirty, record_max: usize) -> Vec<Dirty> {
    let limit = columns_max(shape, record_max);
    if dirty.is_empty() {
        return Vec::new();
    }
    if dirty.len() <= limit {
        return vec![dirty];
    }
    let columns = in_order(dirty.numbers().map(|block| shape.strip_of(block).1));
    let group = |columns: &[usize]| {
        let (first, last) = (columns.first().copied().unwrap_or(0), columns.last().copied().unwrap_or(0));
        dirty.filtered(|block, _| (first..=last).contains(&shape.strip_of(block).1))
    };
    columns.chunks(limit).map(group).collect()
}

/// Each of them once, in order.
pub fn in_order<T: Ord>(numbers: impl Iterator<Item = T>) -> Vec<T> {
    let mut numbers: Vec<T> = numbers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Brings old parity up to date with the dirty blocks, strip by strip.
fn modify_parity(io: &Io, shape: &Shape, dirty: &Dirty, run: &Range<usize>, touched: Strips, strips: &mut [Buffer]) {
    for strip in touched.iter() {
        let mut old = io.buffer(strips[strip].len());
        old.copy_from_slice(&strips[strip]);
        overlay(shape, &dirty.filtered(|block, _| shape.strip_of(block).0 == strip), run, strips);
        let (data, parity) = strips.split_at_mut(shape.k);
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|buffer| &mut buffer[..]).collect();
        shape.coder.update(strip, &old, &data[strip], &mut outputs);
    }
}

/// Which data strips have dirty blocks in the range of blocks, and which are dirty all through it.
fn coverage(shape: &Shape, dirty: &Dirty, blocks: &Range<usize>) -> (Strips, Strips) {
    let mut counts = vec![0; shape.k];
    for block in dirty.numbers() {
        let (strip, at) = shape.strip_of(block);
        if blocks.contains(&at) {
            counts[strip] += 1;
        }
    }
    let of = |test: &dyn Fn(usize) -> bool| Strips::of((0..shape.k).filter(|&strip| test(counts[strip])));
    (of(&|count| count > 0), of(&|count| count == blocks.len()))
}

/// A mirror's copies are the dirty blocks themselves: nothing is read, copied or encoded for them.
/// A unit is a block. Its digest is made of the fingerprint that the block came with: should its
/// memory change after it was compared, the copies do not verify.
fn plan_copies(of: &Stripe, dirty: &Dirty, run: Range<usize>, plan: &mut Plan) {
    let blocks: Vec<&DirtyBlock> = run.clone().filter_map(|block| dirty.get(block as u32)).collect();
    assert!(blocks.len() == run.len(), "a run of dirty blocks has {} of {}", blocks.len(), run.len());
    for strip in 0..of.shape.width() {
        for (unit, block) in run.clone().zip(&blocks) {
            let digest = of.binding.digest_of(strip, unit, block);
            if digest != of.digest(strip, unit) {
                plan.digests.push(NewDigest { strip: strip as u8, unit: unit as u32, digest });
            }
        }
        let source = Image::Logged { blocks: run.len() as u32 };
        plan.images.push(RedoImage { strip: strip as u8, block: run.start as u32, source });
        let data = blocks.iter().map(|block| block.data.clone()).collect();
        plan.writes.push(StripWrite { strip, at: run.start * BLOCK, data });
    }
}

/// What goes to the strips and into the log: the dirty blocks, and the parity of their block
/// columns.
fn plan_writes(shape: &Shape, dirty: &Dirty, blocks: &Range<usize>, read: Vec<Buffer>, plan: &mut Plan) {
    let within = dirty.numbers().map(|block| shape.strip_of(block)).filter(|(_, at)| blocks.contains(at));
    let changed: Vec<(usize, usize)> = within.collect();
    let columns = in_order(changed.iter().map(|(_, at)| *at));
    let start = blocks.start;
    for (strip, buffer) in read.into_iter().enumerate() {
        let of_strip = changed.iter().filter(|(of, _)| *of == strip).map(|(_, at)| *at);
        let places = if strip < shape.k { in_order(of_strip) } else { columns.clone() };
        if places.is_empty() {
            continue;
        }
        let data = buffer.freeze();
        // Parity of a mirror is the host's data too.
        let logged = strip < shape.k || shape.code().is_mirror();
        for range in runs(places) {
            let piece = data.slice((range.start - start) * BLOCK..(range.end - start) * BLOCK);
            let source = match logged {
                true => Image::Logged { blocks: range.len() as u32 },
                false => Image::Inline(piece.clone()),
            };
            plan.images.push(RedoImage { strip: strip as u8, block: range.start as u32, source });
            plan.writes.push(StripWrite { strip, at: range.start * BLOCK, data: vec![piece] });
        }
    }
}
