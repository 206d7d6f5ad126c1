//! Destage: dirty blocks leave the log for their strips, stripe by stripe.
//!
//! A stripe without a slot gets one, and what was never written stays unwritten zeros. A stripe
//! whose blocks are mostly dirty moves whole to a new slot. Otherwise the slot is changed in place.
//! Inputs are read and verified. New parity is computed by read-modify-write or reconstruct-write,
//! whichever reads less. Images of the parity and the new digests go to the log. Only when those
//! are durable are the strips written, and flushed. A crash anywhere leaves either the old stripe
//! with its log records, or images that replay puts onto the strips again; parity is never
//! recomputed from them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use stele_codes::Strips;
use stele_ground::{BLOCK, Duration};
use stele_media::{Buffer, Priority};

use crate::cache::DirtyBlock;
use crate::durable::log::{self, FlushUrgency, Reservation};
use crate::durable::records::{Image, NewDigest, Record, RedoImage};
use crate::engine::Engine;
use crate::engine::apply::Pages;
use crate::formats::entry::{DigestKind, ZERO};
use crate::formats::map::Home;
use crate::formats::shape::Shape;
use crate::model::mutation::Mutation;
use crate::model::place::{BlockKey, Lsn, SlotId, StripeKey};
use crate::model::{ArrayError, DigestUnit};
use crate::runtime::io::Io;
use crate::state::destaging::AGE_STEP;
use crate::state::redo::{Redo, StripWrite};
use crate::stripe::{Columns, Stripe, runs};
use crate::volumes::Volume;

pub mod checkpoint;
mod dirty;
pub mod flush;
pub mod relog;
mod room;
mod salvage;

pub use dirty::Dirty;

/// Block columns changed in place at a time, so that a redo record stays below its limit.
const COLUMNS_MAX: usize = 128;
/// How long a destage waits for the log.
#[derive(Clone, Copy)]
struct Pace {
    /// For room in it.
    patience: Duration,
    /// For other records to share a group with.
    urgency: FlushUrgency,
}

impl Pace {
    /// A caller waits for the destage.
    const ASKED: Pace = Pace { patience: log::PATIENCE, urgency: FlushUrgency::Now };
    /// The flow's own: where there is no room it lets others go first, and is tried again.
    const FLOW: Pace = Pace { patience: Duration::from_millis(1000), urgency: FlushUrgency::Linger };
}

/// What an in-place destage will put where: computed before anything is logged.
struct Plan {
    digests: Vec<NewDigest>,
    /// For the log: parity inline, data by reference to the writes that hold it.
    images: Vec<RedoImage>,
    writes: Vec<StripWrite>,
}

/// What came of moving a stripe to a new slot.
enum Move {
    Done,
    /// The pool has no slot to spare.
    NoSlot,
    /// What is not dirty of the stripe cannot be read.
    Unreadable(ArrayError),
}

impl Engine {
    /// Destages what is dirty of the stripe now. Answers when its strips are durable.
    pub async fn destage(self: &Rc<Self>, volume: &Rc<Volume>, stripe: u64) -> Result<(), ArrayError> {
        let _guard = self.locks.exclusive(volume.id, stripe).await;
        self.destage_locked(volume, stripe, Pace::ASKED).await
    }

    /// Destages the stripe if any block of this range, which lies within it, is dirty. Answers when
    /// the range's strips are durable. A destage that held the lock before may have taken the
    /// blocks along: then nothing is left to do, and writers that wait for one stripe share the
    /// destage of the first of them.
    ///
    /// The blocks decide and not their records' numbers: where another writer has overwritten a
    /// block meanwhile, nothing says that any version of it reached the strips.
    pub async fn destage_range(self: &Rc<Self>, volume: &Rc<Volume>, at: u64, length: u64) -> Result<(), ArrayError> {
        let stripe = at / volume.shape.data();
        let passes = self.io.is_disabled(Mutation::TakenAlong) && self.locks.is_held(volume.id, stripe);
        let _guard = self.locks.exclusive(volume.id, stripe).await;
        let mut blocks = at / BLOCK as u64..(at + length).div_ceil(BLOCK as u64);
        let is_dirty =
            self.look(|core| blocks.any(|block| core.cache.dirty(BlockKey { volume: volume.id, block }).is_some()));
        if !is_dirty || passes {
            return Ok(());
        }
        self.destage_locked(volume, stripe, Pace::ASKED).await
    }

    /// The stripe's lock is held.
    async fn destage_locked(self: &Rc<Self>, volume: &Rc<Volume>, stripe: u64, pace: Pace) -> Result<(), ArrayError> {
        let key = StripeKey { volume: volume.id, stripe };
        if volume.was_deleted() || self.standing.is_read_only() {
            return Ok(());
        }
        // What an earlier destage left undone comes first.
        self.place_redo(volume, stripe).await?;
        self.restore_memory(key).await?;
        let dirty = Dirty::from(self.look(|core| core.cache.dirty_of(key)));
        let Some(covers) = dirty.blocks().map(|block| block.lsn).max() else { return Ok(()) };
        let held = self.step(|core| core.destage_reservations.remove(&key));
        let reservation = match held {
            Some(reservation) => reservation,
            // An attempt that failed gave them back. All at once, before anything is appended or
            // the log is pinned.
            None => {
                // With the record of its end: a wait for that in the middle might be in vain.
                let images = self.destage_cost(&volume.shape, self.unplaced(volume, key, &dirty).len());
                let cost = images + self.log.cost_of(64);
                self.room_while_held_within(key, cost, pace.patience).await?
            }
        };
        // Redo records refer to the writes' own records, even if these are overwritten meanwhile.
        let _pin = LogPin::new(self, dirty.blocks().map(|block| block.lsn).min().unwrap_or(covers));
        // Only what is durable in the log is destaged: a strip never shows what the log might lose.
        self.log.durable(covers).await?;
        self.count.destages.add(1);
        self.count.destaged_blocks.add(dirty.len() as u64);
        let mostly = dirty.len() * 4 >= volume.shape.blocks() as usize * 3;
        let home = self.home(key).await?;
        // What others refer to is never changed in place: the stripe moves away from it. So it
        // does, where there is room, from a slot whose digests might not tell what it held before
        // the change from what it holds after.
        let (shared, weak) = match home {
            Home::Slot(slot) => {
                let head = self.slot_head(&volume.shape, slot).await?;
                (head.references > 1, head.digests == DigestKind::Crc32c)
            }
            Home::Unmapped | Home::Zero => (false, false),
        };
        let moves = !volume.stays_in_place() && (mostly || weak && !self.io.is_disabled(Mutation::StrongDigest));
        match home {
            Home::Unmapped if volume.base().is_some() => self.destage_over_base(volume, stripe, &dirty, covers).await,
            Home::Unmapped | Home::Zero => self.destage_fresh(volume, stripe, &dirty, covers).await,
            Home::Slot(old) if shared => match self.destage_whole(volume, stripe, old, &dirty, covers).await? {
                Move::Done => Ok(()),
                Move::NoSlot => Err(self.full(volume)),
                Move::Unreadable(why) => match self.destage_salvage(volume, stripe, &dirty, covers).await? {
                    true => Ok(()),
                    false => Err(ArrayError::Damaged(format!(
                        "others refer to a slot that changes, so its stripe has to move, and cannot: {why}"
                    ))),
                },
            },
            Home::Slot(old)
                if moves && matches!(self.destage_whole(volume, stripe, old, &dirty, covers).await?, Move::Done) =>
            {
                Ok(())
            }
            Home::Slot(_) => match self.destage_in_place(volume, stripe, &dirty, covers, reservation, pace).await {
                Err(ArrayError::Damaged(why)) => match self.destage_salvage(volume, stripe, &dirty, covers).await? {
                    true => Ok(()),
                    false => Err(ArrayError::Damaged(why)),
                },
                other => other,
            },
        }
    }

    /// A stripe that owns no slot: only the columns that hold something are written, the rest stays
    /// unwritten zeros.
    pub async fn destage_fresh(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        stripe: u64,
        dirty: &Dirty,
        covers: Lsn,
    ) -> Result<(), ArrayError> {
        let shape = Rc::clone(&volume.shape);
        let key = StripeKey { volume: volume.id, stripe };
        let Some(allocation) = self.allocate(volume, stripe, true).await? else { return Err(self.full(volume)) };
        let binding = self.binding(allocation.slot, allocation.generation);
        // Where one digest covers a strip, strips are written whole from the start.
        let whole = shape.unit == DigestUnit::Strip;
        let units: BTreeSet<usize> =
            dirty.numbers().map(|block| shape.strip_of(block).1 / shape.unit_blocks()).collect();
        let mut digests = vec![ZERO; shape.digests()];
        let mut writes = Vec::new();
        for run in runs(units) {
            let bytes = shape.bytes_of(run.clone());
            let mut strips: Vec<Buffer> = (0..shape.width()).map(|_| Buffer::zeroed(bytes.len())).collect();
            let touched = overlay(&shape, dirty, &run, &mut strips);
            encode(&shape, &mut strips);
            for (strip, buffer) in strips.into_iter().enumerate() {
                if strip < shape.k && !touched.contains(strip) && !whole {
                    continue;
                }
                for (place, unit) in run.clone().enumerate() {
                    let data = &buffer[place * shape.unit_bytes..][..shape.unit_bytes];
                    digests[shape.digest_index(strip, unit)] = binding.digest(strip, unit, data);
                }
                writes.push(StripWrite { strip, at: bytes.start, data: vec![buffer.freeze()] });
            }
        }
        let stored =
            self.store_slot(volume, stripe, allocation, None, covers, digests, writes, Priority::Destage).await;
        if stored.is_err() {
            self.abandon(allocation);
        }
        self.settle_map(key, stored?, None).await?;
        self.keep_clean(volume, stripe, dirty, covers);
        Ok(())
    }

    /// Blocks just destaged stay in the cache as clean ones, unless they were written again.
    pub fn keep_clean(&self, volume: &Volume, stripe: u64, dirty: &Dirty, covers: Lsn) {
        let first = stripe * u64::from(volume.shape.blocks());
        self.step(|core| {
            for (block, data) in dirty.iter().filter(|(_, block)| block.lsn <= covers) {
                let key = BlockKey { volume: volume.id, block: first + u64::from(*block) };
                core.cache.put_clean(key, &data.data);
            }
        });
    }

    /// Moves a stripe to a new slot, with what is dirty of it.
    async fn destage_whole(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        stripe: u64,
        old: SlotId,
        dirty: &Dirty,
        covers: Lsn,
    ) -> Result<Move, ArrayError> {
        let mut data = Buffer::zeroed(volume.shape.data() as usize);
        let whole = dirty.len() == volume.shape.blocks() as usize;
        if !whole && let Err(error) = self.read_locked(volume, stripe, 0, &mut data).await {
            return Ok(Move::Unreadable(error));
        }
        for (block, dirty) in dirty {
            data[*block as usize * BLOCK..][..BLOCK].copy_from_slice(&dirty.data);
        }
        let Some(allocation) = self.allocate(volume, stripe, false).await? else { return Ok(Move::NoSlot) };
        let pieces = [data.freeze()];
        let filled = self.fill_slot(volume, stripe, allocation, Some(old), covers, &pieces).await;
        if filled.is_err() {
            self.abandon(allocation);
        }
        self.settle_map(StripeKey { volume: volume.id, stripe }, filled?, Some(old)).await?;
        self.keep_clean(volume, stripe, dirty, covers);
        Ok(Move::Done)
    }

    /// Without what an earlier attempt, or replay, has put in place already: that is not logged
    /// again, for the log may have no room for it.
    fn unplaced(&self, volume: &Volume, key: StripeKey, dirty: &Dirty) -> Dirty {
        dirty.filtered(|block, data| {
            let (strip, at) = volume.shape.strip_of(block);
            !self.look(|core| core.redo.holds(key, strip, at, data.lsn))
        })
    }

    async fn destage_in_place(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        stripe: u64,
        dirty: &Dirty,
        covers: Lsn,
        mut reservation: Reservation,
        pace: Pace,
    ) -> Result<(), ArrayError> {
        let key = StripeKey { volume: volume.id, stripe };
        let dirty = self.unplaced(volume, key, dirty);
        for part in column_groups(&volume.shape, &dirty, self.log.record_max()) {
            let Some(of) = self.locate(volume, stripe).await? else {
                return Err(ArrayError::Damaged(format!("volume '{}': stripe {stripe} lost its slot", volume.name())));
            };
            // Once a redo record is in the log its strips must be written.
            self.check_strips(volume, &of)?;
            let plan = self.plan_in_place(volume, &of, &part).await?;
            let oldest = part.blocks().map(|block| block.lsn).min().unwrap_or(covers);
            let redo = Record::Redo {
                volume: volume.id,
                stripe,
                slot: of.slot,
                generation: of.generation,
                covers,
                digests: plan.digests,
                images: if self.io.is_disabled(Mutation::RedoImages) { Vec::new() } else { plan.images },
            };
            let need = self.log.cost(&redo) + self.log.cost_of(64);
            if reservation.bytes() < need {
                // Beside what is held: on a full log that may be all there is.
                let more = self.room_while_held_within(key, need - reservation.bytes(), pace.patience).await?;
                reservation.merge(more);
            }
            let pages = self.pages_for(&redo).await?;
            let lsn = self.append_with(&redo, &pages, &mut reservation, pace.urgency);
            let (slot, generation, writes) = (of.slot, of.generation, plan.writes);
            self.keep_redo(key, Redo { slot, generation, covers, oldest, writes, placed: false });
            // Invariant 8: nothing is written in place before the log holds the images durably.
            if !self.io.is_disabled(Mutation::RedoOrder) {
                match pace.urgency {
                    FlushUrgency::Now => self.log.durable(lsn).await?,
                    FlushUrgency::Linger | FlushUrgency::Whenever => self.log.durable_in_time(lsn).await?,
                }
                assert!(self.log.durable_lsn() >= lsn, "invariant 8: in-place writes before their images are durable");
            }
            self.place_redo(volume, stripe).await?;
        }
        let done = Record::Destaged { volume: volume.id, stripe, covers };
        let need = self.log.cost(&done);
        if reservation.bytes() < need {
            let more = self.room_while_held_within(key, need - reservation.bytes(), pace.patience).await?;
            reservation.merge(more);
        }
        // The strips are flushed: the records before may go. Were this one lost, replay would do
        // the same again.
        self.append_with(&done, &Pages::default(), &mut reservation, FlushUrgency::Whenever);
        Ok(())
    }

    /// Reads what is needed, verified, and computes new parity and digests.
    async fn plan_in_place(&self, volume: &Volume, of: &Stripe, dirty: &Dirty) -> Result<Plan, ArrayError> {
        let shape = &of.shape;
        let units: BTreeSet<usize> =
            dirty.numbers().map(|block| shape.strip_of(block).1 / shape.unit_blocks()).collect();
        let mut plan = Plan { digests: Vec::new(), images: Vec::new(), writes: Vec::new() };
        for run in runs(units) {
            self.plan_run(volume, of, dirty, run, &mut plan).await?;
        }
        Ok(plan)
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
        if shape.code().is_mirror() && shape.unit == DigestUnit::Block {
            plan_copies(of, dirty, run, plan);
            return Ok(());
        }
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
        let changed: BTreeSet<(usize, usize)> = dirty
            .numbers()
            .map(|block| shape.strip_of(block))
            .map(|(strip, at)| (strip, at / shape.unit_blocks()))
            .collect();
        for strip in touched.iter().chain(parity.iter()) {
            for (place, unit) in run.clone().enumerate() {
                if strip < shape.k && !changed.contains(&(strip, unit)) {
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

    // The flow that decides what is destaged when.

    /// Runs for the pool's life.
    pub async fn destage_flow(self: Rc<Self>) {
        let mut from = StripeKey { volume: stele_ground::VolumeId(0), stripe: 0 };
        loop {
            if self.standing.is_read_only() {
                // For good: what is dirty stays in the log for the next opening of the pool.
                return;
            }
            let wanted = self.destaging.wanted();
            let batch = self.choose_batch(&mut from);
            if batch.is_empty() {
                let waiting = self.look(|core| core.cache.dirty_bytes()) > 0;
                if waiting {
                    let sleep = self.io.sleep(AGE_STEP);
                    futures_util::pin_mut!(sleep, wanted);
                    futures_util::future::select(sleep, wanted).await;
                } else {
                    wanted.await;
                }
                continue;
            }
            let on_slow_drives = self.io.are_slow();
            for key in batch {
                let permit = self.destaging.turn(on_slow_drives).await;
                let Some(volume) = self.look(|core| core.volumes.get(key.volume)) else { continue };
                let engine = Rc::clone(&self);
                let bytes = (self.look(|core| core.cache.dirty_count(key)) * BLOCK) as u64;
                self.destaging.begin(bytes);
                self.io.spawn(async move {
                    let guard = engine.locks.exclusive(volume.id, key.stripe).await;
                    let result = engine.destage_locked(&volume, key.stripe, Pace::FLOW).await;
                    drop(guard);
                    if let Err(error) = result {
                        engine.destage_failed(key, &error);
                    }
                    drop(permit);
                    engine.destaging.end(bytes);
                    engine.destaging.want();
                    engine.admission.make_room();
                });
            }
            self.io.yield_now().await;
        }
    }
}

/// Keeps the log from being trimmed at or above a record while it lives.
struct LogPin<'a> {
    engine: &'a Engine,
    lsn: Lsn,
}

impl<'a> LogPin<'a> {
    fn new(engine: &'a Engine, lsn: Lsn) -> LogPin<'a> {
        engine.pin_log(lsn);
        LogPin { engine, lsn }
    }
}

impl Drop for LogPin<'_> {
    fn drop(&mut self) {
        self.engine.unpin_log(self.lsn);
    }
}

/// Block columns whose redo record the log can take.
fn columns_max(shape: &Shape, record_max: usize) -> usize {
    // A column takes an image for each parity strip, and a line for each of its digests.
    (record_max / 2 / (shape.m * (BLOCK + 32) + shape.width() * 32)).clamp(1, COLUMNS_MAX)
}

/// The dirty blocks in groups of block columns whose redo record the log can take.
fn column_groups(shape: &Shape, dirty: &Dirty, record_max: usize) -> Vec<Dirty> {
    let limit = columns_max(shape, record_max);
    let columns: BTreeSet<usize> = dirty.numbers().map(|block| shape.strip_of(block).1).collect();
    let columns: Vec<usize> = columns.into_iter().collect();
    let group = |columns: &[usize]| {
        let (first, last) = (columns.first().copied().unwrap_or(0), columns.last().copied().unwrap_or(0));
        dirty.filtered(|block, _| (first..=last).contains(&shape.strip_of(block).1))
    };
    columns.chunks(limit).map(group).collect()
}

/// Puts the dirty blocks that lie in the units onto the strips' buffers; answers which strips that
/// touched.
pub fn overlay(shape: &Shape, dirty: &Dirty, run: &Range<usize>, strips: &mut [Buffer]) -> Strips {
    let bytes = shape.bytes_of(run.clone());
    let mut touched = Strips::NONE;
    for (block, data) in dirty {
        let (strip, at) = shape.strip_of(*block);
        if bytes.contains(&(at * BLOCK)) {
            strips[strip][at * BLOCK - bytes.start..][..BLOCK].copy_from_slice(&data.data);
            touched = touched.with(strip);
        }
    }
    touched
}

/// Parity of the first k buffers into the last m.
pub fn encode(shape: &Shape, strips: &mut [Buffer]) {
    let (data, parity) = strips.split_at_mut(shape.k);
    let data: Vec<&[u8]> = data.iter().map(|buffer| &buffer[..]).collect();
    let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|buffer| &mut buffer[..]).collect();
    shape.coder.encode(&data, &mut outputs);
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
    let mut columns: BTreeSet<usize> = BTreeSet::new();
    let mut by_strip: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for block in dirty.numbers() {
        let (strip, at) = shape.strip_of(block);
        if blocks.contains(&at) {
            columns.insert(at);
            by_strip.entry(strip).or_default().insert(at);
        }
    }
    for strip in shape.k..shape.width() {
        by_strip.insert(strip, columns.clone());
    }
    let start = blocks.start;
    for (strip, buffer) in read.into_iter().enumerate() {
        let Some(changed) = by_strip.get(&strip) else { continue };
        let data = buffer.freeze();
        // Parity of a mirror is the host's data too.
        let logged = strip < shape.k || shape.code().is_mirror();
        for range in runs(changed.iter().copied()) {
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
