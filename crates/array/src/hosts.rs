//! What hosts and operators ask of an open pool, each as a task of its own; and the flows that run
//! besides.

use std::rc::Rc;

use stele_ground::{BLOCK, Duration, VolumeId};
use stele_media::{Extent, ExtentState, Geometry, MediaError, MediaFault, Op, Request};

use crate::durable::log::FlushUrgency;
use crate::durable::records::Record;
use crate::engine::Engine;
use crate::engine::serving::Serving;
use crate::formats::map::Home;
use crate::model::mutation::Mutation;
use crate::model::place::{Lsn, StripeKey};
use crate::model::{Action, ArrayError, Command, WriteMode};
use crate::runtime::sync::join_all;
use crate::volumes::handle::VolumeHandle;
use crate::volumes::{LayerKind, Volume};

pub mod ahead;
mod at_once;
pub mod atomic;
mod gather;
mod memory;
pub mod ordered;
mod read;
mod unaligned;
pub mod write;

/// Stripes of one zeroing or discard worked on at once.
const STRIPES_AT_ONCE: usize = 64;
/// Stripes that a host's operation goes over between two turns of the driver, which serves others:
/// where nothing is mapped, none of them waits for anything.
const TURN_STRIPES: u64 = 1024;
/// Any wait at all gives the driver its turn.
const TURN: Duration = Duration(1);

/// How a host's operation is submitted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    Plain,
    /// A write that is said to have its place in the log when it has.
    Ordered,
    /// A write that is there after a crash as a whole or not at all.
    Atomic,
}

/// What came of unmapping a stripe.
pub enum Unmapped {
    /// It reads as zeros when this record is durable; none: it does already.
    As(Option<Lsn>),
    /// The volume has grown meanwhile, and has more of the stripe than was asked for. Nothing has
    /// changed.
    Grown,
}

/// As a drive's error, for the host's side.
pub fn media_error(error: &ArrayError) -> MediaError {
    let fault = match error {
        ArrayError::Invalid(_) | ArrayError::Exists(_) => MediaFault::Invalid,
        ArrayError::Refused(_) => MediaFault::Refused,
        ArrayError::Busy(_) => MediaFault::Retry,
        ArrayError::Full(_) => MediaFault::Full,
        ArrayError::Degraded(_) => MediaFault::Refused,
        ArrayError::Damaged(_) => MediaFault::Damaged,
        ArrayError::Missing(_) | ArrayError::Stopped(_) => MediaFault::Gone,
    };
    MediaError::new(fault, error.to_string())
}

impl Serving {
    /// `volume` is the number of a handle.
    pub fn submit(self: &Rc<Self>, volume: VolumeId, mut request: Request, manner: Manner) {
        let engine = &self.engine;
        engine.admission.note_host(engine.io.now());
        engine.io.note_host();
        let found = engine.look(|core| core.volumes.by_handle(volume));
        let checked = match &found {
            None => Err(MediaError::new(MediaFault::Gone, format!("the pool has no volume {volume}"))),
            Some(volume) => check_request(volume, &request.op),
        };
        let handle = found.as_ref().and_then(|volume| volume.handle());
        let (Ok(()), Some(layer), Some(handle)) = (&checked, found, handle) else {
            return engine.finish(volume, request.tag, request.op, checked);
        };
        match &mut request.op {
            Op::Read { at, buffer } => {
                engine.count.reads.add(1);
                engine.count.read_bytes.add(buffer.len() as u64);
                let stream = engine.note_read(&layer, &handle, *at, buffer.len());
                if engine.read_cached(&layer, *at, buffer, stream) {
                    handle.note_hit();
                    return engine.finish(volume, request.tag, request.op, Ok(()));
                }
            }
            Op::View { at, length, pieces } => {
                engine.count.reads.add(1);
                engine.count.read_bytes.add(*length);
                let stream = engine.note_read(&layer, &handle, *at, *length as usize);
                if let Some(found) = engine.view_cached(&layer, *at, *length, stream) {
                    handle.note_hit();
                    *pieces = found;
                    return engine.finish(volume, request.tag, request.op, Ok(()));
                }
            }
            Op::Write { data, .. } => {
                engine.count.writes.add(1);
                engine.count.written_bytes.add(data.iter().map(|piece| piece.len() as u64).sum());
            }
            _ => {}
        }
        if !engine.admission.begin() {
            let busy = MediaError::new(MediaFault::Retry, "the pool has its limit of operations under way; ask again");
            return engine.finish(volume, request.tag, request.op, Err(busy));
        }
        let Err(request) = engine.write_at_once(&layer, &handle, request, manner) else { return };
        let serving = Rc::clone(self);
        engine.io.spawn(async move {
            let Request { tag, op, .. } = request;
            let range = op.range();
            let (op, result) = match op {
                Op::Write { at, data, fua } if manner == Manner::Atomic => {
                    // As in `carry_out`: the volume gets no other layer meanwhile.
                    let _permit = handle.write().await;
                    let result = match serving.engine.for_write(&handle, range) {
                        Ok(layer) => {
                            let result = Box::pin(serving.engine.write_atomic(&layer, at, data.clone())).await;
                            serving.forced(&layer, fua, result).await
                        }
                        Err(error) => Err(error),
                    };
                    (Op::Write { at, data, fua }, result)
                }
                Op::Write { at, data, fua } if manner == Manner::Ordered => {
                    let say = || serving.engine.io.emit(Action::Ordered { volume, tag });
                    // As in `carry_out`: the volume gets no other layer meanwhile.
                    let _permit = handle.write().await;
                    let result = match serving.engine.for_write(&handle, range) {
                        Ok(layer) => {
                            let result = serving.engine.write_ordered(&layer, at, data.clone(), say).await;
                            serving.forced(&layer, fua, result).await
                        }
                        Err(error) => Err(error),
                    };
                    (Op::Write { at, data, fua }, result)
                }
                op => serving.carry_out(&handle, op).await,
            };
            serving.engine.admission.end();
            serving.engine.finish(volume, tag, op, result.map_err(|error| media_error(&error)));
        });
    }

    async fn carry_out(&self, handle: &VolumeHandle, op: Op) -> (Op, Result<(), ArrayError>) {
        match op {
            Op::Write { .. } | Op::Zero { .. } | Op::Discard { .. } => {
                // From here to the answer the volume gets no other layer.
                let _permit = handle.write().await;
                match self.engine.for_write(handle, op.range()) {
                    Ok(volume) => self.carry_out_on(&volume, op).await,
                    Err(error) => (op, Err(error)),
                }
            }
            mut op => loop {
                let volume = match self.engine.by_handle(handle) {
                    Ok(volume) => volume,
                    Err(error) => return (op, Err(error)),
                };
                let (back, result) = self.carry_out_on(&volume, op).await;
                // The volume was rolled back meanwhile: its other layer has the answer.
                if result.is_ok() || !volume.is_gone() {
                    return (back, result);
                }
                op = back;
            },
        }
    }

    async fn carry_out_on(&self, volume: &Rc<Volume>, op: Op) -> (Op, Result<(), ArrayError>) {
        let engine = &self.engine;
        match op {
            Op::Read { at, mut buffer } => {
                let result = engine.read_here_or_there(volume, at, &mut buffer).await;
                (Op::Read { at, buffer }, result)
            }
            Op::View { at, length, .. } => match engine.view_here_or_there(volume, at, length).await {
                Ok(pieces) => (Op::View { at, length, pieces }, Ok(())),
                Err(error) => (Op::View { at, length, pieces: Vec::new() }, Err(error)),
            },
            Op::Write { at, data, fua } => {
                let result = engine.write_host(volume, at, data.clone()).await;
                let result = self.forced(volume, fua, result).await;
                (Op::Write { at, data, fua }, result)
            }
            // In boxes, what is rarer than reads and writes: every operation takes the memory of
            // the largest of these futures that is not.
            Op::Zero { at, length } => (op, Box::pin(engine.zero_host(volume, at, length, true)).await),
            Op::Discard { at, length } => (op, Box::pin(engine.zero_host(volume, at, length, false)).await),
            Op::Flush => (Op::Flush, engine.flush_host(volume).await),
            Op::Extents { at, length, since, mut extents } => {
                let result = Box::pin(engine.extents_host(volume, at, length, since, &mut extents)).await;
                (Op::Extents { at, length, since, extents }, result)
            }
        }
    }

    /// The result of a write once it is durable, where `force` asks for that. It is already, except
    /// on a volatile volume.
    async fn forced(&self, volume: &Volume, force: bool, result: Result<(), ArrayError>) -> Result<(), ArrayError> {
        match volume.mode() {
            WriteMode::Volatile if force && result.is_ok() => self.engine.flush_host(volume).await,
            _ => result,
        }
    }

    pub fn command(self: &Rc<Self>, id: u64, command: Command) {
        let serving = Rc::clone(self);
        self.engine.io.spawn(async move {
            let reply = serving.obey(command).await;
            serving.engine.io.emit(Action::Reply { id, reply });
        });
    }
}

fn check_request(volume: &Volume, op: &Op) -> Result<(), MediaError> {
    let spec = volume.spec();
    if volume.kind() == LayerKind::Snapshot && matches!(op, Op::Write { .. } | Op::Zero { .. } | Op::Discard { .. }) {
        let text = format!("snapshot '{}' is never written; make a clone of it and write that", spec.name);
        return Err(MediaError::new(MediaFault::Refused, text));
    }
    Geometry { size: spec.size, block: spec.block }.admit_range(op)
}

impl Engine {
    /// The layer that a host reaches now.
    fn by_handle(&self, handle: &VolumeHandle) -> Result<Rc<Volume>, ArrayError> {
        let found = self.look(|core| core.volumes.by_handle(handle.id));
        found.ok_or_else(|| ArrayError::Missing(format!("volume {} was deleted", handle.id)))
    }

    /// The same for a write of the range, which waited for its turn: the volume may have become
    /// smaller since the request was checked.
    fn for_write(&self, handle: &VolumeHandle, range: Option<(u64, u64)>) -> Result<Rc<Volume>, ArrayError> {
        let volume = self.by_handle(handle)?;
        match range {
            Some((at, length)) if at + length > volume.size() => Err(ArrayError::Invalid(format!(
                "{length} bytes at {at} reach beyond the end of volume '{}', which was made smaller to {} bytes",
                volume.name(),
                volume.size()
            ))),
            _ => Ok(volume),
        }
    }

    /// Makes a range read as zeros: whole stripes give up their slots, blocks are written as zeros,
    /// and parts of blocks too when `exact` (a discard may leave them).
    pub async fn zero_host(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        at: u64,
        length: u64,
        exact: bool,
    ) -> Result<(), ArrayError> {
        self.check_writable()?;
        let block = BLOCK as u64;
        let end = at + length;
        let (first, last) = (at.next_multiple_of(block), end / block * block);
        if exact && (first != at || last != end) {
            self.zero_edges(volume, at, end, first, last).await?;
        }
        let mut newest = Lsn(0);
        let mut here = first;
        let mut turn = first;
        while here < last {
            turn = self.take_turn(here, turn, volume).await;
            let mut batch = Vec::new();
            while here < last && batch.len() < STRIPES_AT_ONCE {
                let stripe = here / volume.shape.data();
                let to = ((stripe + 1) * volume.shape.data()).min(volume.size()).min(last);
                batch.push(self.zero_part(volume, stripe, here, to, exact));
                here = to;
            }
            for lsn in join_all(batch).await {
                newest = newest.max(lsn?.unwrap_or_default());
            }
        }
        // Durable in the log: the group's flushes are behind this.
        self.log.durable(newest).await?;
        self.offer_emptied(volume.class);
        if volume.mode() == WriteMode::WriteThrough {
            // Of whole stripes the mapping is all there is; parts are on their strips after the
            // destage's flushes.
            let stripe_bytes = volume.shape.data();
            let ends = [first, last.saturating_sub(1)].map(|at| at / stripe_bytes * stripe_bytes);
            let ends = ends.map(|from| (from.max(first), (from + stripe_bytes).min(last)));
            let destages = ends.map(|(from, to)| self.destage_range(volume, from, to.saturating_sub(from)));
            for result in join_all(destages).await {
                result?;
            }
        }
        Ok(())
    }

    /// Lets the driver serve others where a host's operation has gone over many stripes since it
    /// stood at `turn`. Answers where it stood last.
    async fn take_turn(&self, here: u64, turn: u64, volume: &Volume) -> u64 {
        if here - turn < TURN_STRIPES * volume.shape.data() {
            return turn;
        }
        self.io.sleep(TURN).await;
        here
    }

    async fn zero_part(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        stripe: u64,
        from: u64,
        to: u64,
        exact: bool,
    ) -> Result<Option<Lsn>, ArrayError> {
        let begin = stripe * volume.shape.data();
        if from == begin
            && to == (begin + volume.shape.data()).min(volume.size())
            && let Unmapped::As(newest) = self.unmap(volume, stripe, to, exact).await?
        {
            return Ok(newest);
        }
        self.zero_blocks(volume, stripe, from, to - from).await
    }

    async fn zero_edges(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        at: u64,
        end: u64,
        first: u64,
        last: u64,
    ) -> Result<(), ArrayError> {
        let zeros = crate::cache::zero_block();
        let mut edges = vec![(at, first.min(end))];
        if last >= first {
            edges.push((last, end));
        }
        for (from, to) in edges {
            if from < to {
                self.write_host(volume, from, vec![zeros.slice(..(to - from) as usize)]).await?;
            }
        }
        Ok(())
    }

    /// Makes a stripe, of which the volume had as much as up to `end`, read as zeros; its slot is
    /// given up, if it has one.
    async fn unmap(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        stripe: u64,
        end: u64,
        zero: bool,
    ) -> Result<Unmapped, ArrayError> {
        let key = StripeKey { volume: volume.id, stripe };
        let _guard = self.locks.exclusive(volume.id, stripe).await;
        let home = self.home(key).await?;
        let nothing = match home {
            Home::Slot(_) => false,
            Home::Zero => !self.look(|core| core.cache.is_dirty(key)),
            Home::Unmapped => {
                !self.look(|core| core.cache.is_dirty(key)) && !self.shows_through(volume, stripe).await?
            }
        };
        if nothing {
            return self.what_shows_that(volume, stripe).await.map(Unmapped::As);
        }
        // On a base, only a word of the layer's own hides what is there.
        let zero = zero || volume.base().is_some();
        self.unmap_locked(volume, stripe, end, home, zero).await
    }

    /// The record that must become durable before anybody is told that the stripe is as it shows:
    /// none, or that of a mapping that another has changed and that waits for its log group.
    async fn what_shows_that(&self, volume: &Rc<Volume>, stripe: u64) -> Result<Option<Lsn>, ArrayError> {
        let found = self.found(volume, stripe).await?;
        Ok(self.unsettled_in(&found, stripe))
    }

    /// As `unmap`, with the stripe's lock held and its home known: the stripe has no slot, and the
    /// word says so.
    pub async fn unmap_locked(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        stripe: u64,
        end: u64,
        home: Home,
        zero: bool,
    ) -> Result<Unmapped, ArrayError> {
        let key = StripeKey { volume: volume.id, stripe };
        let slot = match home {
            Home::Slot(slot) => Some(slot),
            Home::Unmapped | Home::Zero => None,
        };
        let generation = match slot {
            Some(slot) => self.slot_head(&volume.shape, slot).await?.generation,
            None => 0,
        };
        let mut reservation = self.room_while_held(key, self.log.cost_of(64)).await?;
        let record = |covers| Record::Unmap { volume: volume.id, stripe, slot, generation, zero, covers };
        let pages = self.pages_for(&record(Lsn(0))).await?;
        if volume.was_deleted() {
            return Err(ArrayError::Missing(format!("volume '{}' was deleted", volume.name())));
        }
        // From here to the append nothing waits. Behind the end that was asked for, a host may have
        // written since the volume grew. A write that this does not cover would be left without a
        // slot and without a promise of one.
        let kept = !self.io.is_disabled(Mutation::GrownEnd);
        if kept && end < ((stripe + 1) * volume.shape.data()).min(volume.size()) {
            return Ok(Unmapped::Grown);
        }
        let covers = Lsn(self.log.next_lsn().0 - 1);
        if let Some(slot) = slot {
            // Held back from reuse until the record is durable (invariant 5).
            self.step(|core| core.space.hold(slot));
        }
        let lsn = self.append(&record(covers), &pages, &mut reservation);
        assert!(
            !self.look(|core| core.cache.is_dirty(key)),
            "stripe {stripe} was unmapped, and a block of it is dirty"
        );
        self.trim_destage_reservation(volume, stripe);
        self.step(|core| core.unsettled.insert(key, lsn));
        self.settle_map(key, lsn, slot).await?;
        self.admission.make_room();
        Ok(Unmapped::As(Some(lsn)))
    }

    /// Blocks of a stripe become zeros, through the log like any small write.
    async fn zero_blocks(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        stripe: u64,
        at: u64,
        length: u64,
    ) -> Result<Option<Lsn>, ArrayError> {
        // From here on nothing waits: a stripe that a deleted snapshot hands over is with one layer
        // or with the other.
        let found = self.found(volume, stripe).await?;
        let is_dirty =
            |layer: &Rc<Volume>| self.look(|core| core.cache.is_dirty(StripeKey { volume: layer.id, stripe }));
        if found.slot().is_none() && !found.layers().any(is_dirty) {
            return Ok(self.unsettled_in(&found, stripe));
        }
        drop(found);
        let record = Record::Zero { volume: volume.id, at, length, unmap: false };
        let blocks = (length / BLOCK as u64) as usize;
        self.append_small(volume, stripe, record, blocks, FlushUrgency::Now).await.map(Some)
    }

    /// The states of a range: a stripe with a slot or dirty blocks is data. With `since`, what
    /// shows through from that snapshot or from below it is a hole, whatever it is there.
    pub async fn extents_host(
        &self,
        volume: &Rc<Volume>,
        at: u64,
        length: u64,
        since: Option<VolumeId>,
        extents: &mut Vec<Extent>,
    ) -> Result<(), ArrayError> {
        extents.clear();
        volume.check_stays()?;
        let since = match since.map(|handle| self.snapshot_beneath(volume, handle)) {
            // Rolled back or deleted since: nothing is known to be as it was.
            Some(None) => {
                extents.push(Extent { length, state: ExtentState::Data });
                return Ok(());
            }
            Some(Some(layer)) => Some(layer),
            None => None,
        };
        let stripe_bytes = volume.shape.data();
        let (mut here, end) = (at, at + length);
        let mut turn = at;
        while here < end {
            turn = self.take_turn(here, turn, volume).await;
            let stripe = here / stripe_bytes;
            let to = ((stripe + 1) * stripe_bytes).min(end);
            let found = self.found(volume, stripe).await?;
            let is_dirty =
                |layer: &Rc<Volume>| self.look(|core| core.cache.is_dirty(StripeKey { volume: layer.id, stripe }));
            let shown = since.and_then(|layer| found.layers().position(|found| found.id == layer));
            let state = match found.home() {
                _ if shown.is_some_and(|shown| !found.layers().take(shown).any(is_dirty)) => ExtentState::Hole,
                Home::Slot(_) => ExtentState::Data,
                _ if found.layers().any(is_dirty) => ExtentState::Data,
                Home::Zero => ExtentState::Zero,
                Home::Unmapped => ExtentState::Hole,
            };
            Extent::append(extents, Extent { length: to - here, state });
            here = to;
        }
        volume.check_stays()
    }

    /// The layer of a snapshot's handle, if the volume stands on it.
    fn snapshot_beneath(&self, volume: &Rc<Volume>, handle: VolumeId) -> Option<VolumeId> {
        let layer = self.look(|core| core.volumes.by_handle(handle))?.id;
        let mut here = volume.base();
        while let Some(below) = here {
            if below == layer {
                return Some(layer);
            }
            here = self.look(|core| core.volumes.get(below))?.base();
        }
        None
    }
}
