//! Destage: dirty blocks leave the log for their strips, stripe by stripe.
//!
//! A stripe without a slot gets one, and what was never written stays unwritten zeros. A stripe
//! whose blocks are mostly dirty moves whole to a new slot. Otherwise the slot is changed in place.
//! Inputs are read and verified. New parity is computed by read-modify-write or reconstruct-write,
//! whichever reads less. Images of the parity and the new digests go to the log. Only when those
//! are durable are the strips written, and flushed. A crash anywhere leaves either the old stripe
//! with its log records, or images that replay puts onto the strips again; parity is never
//! recomputed from them.

use std::ops::Range;
use std::rc::Rc;

use stele_codes::Strips;
use stele_ground::{BLOCK, Duration};
use stele_media::{Buffer, Priority};

use crate::durable::log::{self, FlushUrgency, Reservation};
use crate::durable::records::Record;
use crate::engine::Engine;
use crate::engine::apply::Pages;
use crate::formats::entry::{DigestKind, Head, ZERO};
use crate::formats::map::Home;
use crate::formats::shape::Shape;
use crate::model::mutation::Mutation;
use crate::model::place::{BlockKey, Lsn, SlotId, StripeKey};
use crate::model::{ArrayError, DigestUnit};
use crate::state::redo::StripWrite;
use crate::stripe::runs;
use crate::volumes::Volume;

mod batch;
pub mod checkpoint;
mod dirty;
pub mod flush;
mod plan;
pub mod relog;
mod room;
mod salvage;

pub use dirty::Dirty;
use plan::{Change, column_groups, in_order};

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
                Box::pin(self.room_while_held_within(key, cost, pace.patience)).await?
            }
        };
        // Redo records refer to the writes' own records, even if these are overwritten meanwhile.
        let _pin = LogPin::new(self, dirty.blocks().map(|block| block.lsn).min().unwrap_or(covers));
        // Only what is durable in the log is destaged: a strip never shows what the log might lose.
        self.log.durable(covers).await?;
        self.count.destages.add(1);
        self.count.destaged_blocks.add(dirty.len() as u64);
        let home = self.home(key).await?;
        // What others refer to is never changed in place: the stripe moves away from it.
        let (shared, moves) = match home {
            Home::Slot(slot) => {
                let head = self.slot_head(&volume.shape, slot).await?;
                (head.references > 1, self.moves(volume, &head, dirty.len()))
            }
            Home::Unmapped | Home::Zero => (false, false),
        };
        // In boxes, what is rarer than a destage in place.
        let whole = |old| Box::pin(self.destage_whole(volume, stripe, old, &dirty, covers));
        let salvage = || Box::pin(self.destage_salvage(volume, stripe, &dirty, covers));
        match home {
            Home::Unmapped if volume.base().is_some() => {
                Box::pin(self.destage_over_base(volume, stripe, &dirty, covers)).await
            }
            Home::Unmapped | Home::Zero => Box::pin(self.destage_fresh(volume, stripe, &dirty, covers)).await,
            Home::Slot(old) if shared => match whole(old).await? {
                Move::Done => Ok(()),
                Move::NoSlot => Err(self.full(volume)),
                Move::Unreadable(why) => match salvage().await? {
                    true => Ok(()),
                    false => Err(ArrayError::Damaged(format!(
                        "others refer to a slot that changes, so its stripe has to move, and cannot: {why}"
                    ))),
                },
            },
            Home::Slot(old) if moves && matches!(whole(old).await?, Move::Done) => Ok(()),
            Home::Slot(_) => match self.destage_in_place(volume, stripe, &dirty, covers, reservation, pace).await {
                Err(ArrayError::Damaged(why)) => match salvage().await? {
                    true => Ok(()),
                    false => Err(ArrayError::Damaged(why)),
                },
                other => other,
            },
        }
    }

    /// Whether a destage moves the stripe to another slot, where there is one. Most of it is dirty,
    /// or its digests might not tell what the slot held before a change from what it holds after.
    fn moves(&self, volume: &Volume, head: &Head, dirty: usize) -> bool {
        let mostly = dirty * 4 >= volume.shape.blocks() as usize * 3;
        let weak = head.digests == DigestKind::Crc32c && !self.io.is_disabled(Mutation::StrongDigest);
        !volume.stays_in_place() && (mostly || weak)
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
        let units = in_order(dirty.numbers().map(|block| shape.strip_of(block).1 / shape.unit_blocks()));
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
        for part in column_groups(&volume.shape, dirty, self.log.record_max()) {
            let Some(of) = self.locate(volume, stripe).await? else {
                return Err(ArrayError::Damaged(format!("volume '{}': stripe {stripe} lost its slot", volume.name())));
            };
            // Once a redo record is in the log its strips must be written.
            self.check_strips(volume, &of)?;
            let Change { record, redo } = self.plan_change(volume, &of, &part, covers).await?;
            let need = self.log.cost(&record) + self.log.cost_of(64);
            if reservation.bytes() < need {
                // Beside what is held: on a full log that may be all there is.
                let more = self.room_while_held_within(key, need - reservation.bytes(), pace.patience).await?;
                reservation.merge(more);
            }
            let pages = self.pages_for(&record).await?;
            let lsn = self.append_with(&record, &pages, &mut reservation, pace.urgency);
            self.keep_redo(key, redo);
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
