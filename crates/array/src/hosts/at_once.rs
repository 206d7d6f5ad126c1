//! Small writes that wait for nothing until they are in the log. They are appended as they are
//! submitted, without a task of their own, and one flow answers all of them when the log is durable
//! as far as they are. Where anything is to be waited for, the write gets a task, as every other
//! operation does.

use std::rc::Rc;

use stele_ground::BLOCK;
use stele_media::{Completion, MediaError, Op, Request, Shared};

use crate::durable::log::{FlushUrgency, Purpose};
use crate::durable::records::Record;
use crate::engine::Engine;
use crate::engine::apply::Pages;
use crate::formats::map::{self, Home};
use crate::hosts::{Manner, media_error};
use crate::model::mutation::Mutation;
use crate::model::place::{BlockKey, Lsn, StripeKey};
use crate::model::{Action, WriteMode};
use crate::state::unanswered::Appended;
use crate::volumes::Volume;
use crate::volumes::gathering::is_long;
use crate::volumes::handle::VolumeHandle;

/// Longer writes get a task.
const LENGTH_MAX: usize = 16 * BLOCK;

impl Engine {
    /// Appends the write and sees to its answer, or gives the request back where that would have to
    /// wait. The range was checked against the volume's size.
    pub fn write_at_once(
        &self,
        volume: &Rc<Volume>,
        handle: &Rc<VolumeHandle>,
        request: Request,
        manner: Manner,
    ) -> Result<(), Request> {
        let Op::Write { at, data, .. } = &request.op else { return Err(request) };
        let urgency = match manner {
            Manner::Plain => FlushUrgency::Now,
            Manner::Ordered if !self.io.is_disabled(Mutation::WriteOrder) => FlushUrgency::Linger,
            Manner::Ordered | Manner::Atomic => return Err(request),
        };
        // From here to the answer the volume gets no other layer.
        let Some(permit) = handle.try_write() else { return Err(request) };
        let Some((lsn, is_watched)) = self.append_at_once(volume, handle, *at, data, urgency) else {
            return Err(request);
        };
        if manner == Manner::Ordered {
            handle.note_ordered(lsn);
            self.io.emit(Action::Ordered { volume: handle.id, tag: request.tag });
        }
        let watched = is_watched.then(|| Rc::clone(handle));
        let Request { tag, op, .. } = request;
        self.unanswered.push(Appended { lsn, volume: handle.id, tag, op, permit, watched });
        Ok(())
    }

    /// Answers with the record's number, and whether pieces of a stripe wait for such writes.
    fn append_at_once(
        &self,
        volume: &Rc<Volume>,
        handle: &VolumeHandle,
        at: u64,
        data: &[Shared],
        urgency: FlushUrgency,
    ) -> Option<(Lsn, bool)> {
        let length: usize = data.iter().map(Shared::len).sum();
        let stripe_bytes = volume.shape.data() as usize;
        let (stripe, inside) = (at / volume.shape.data(), (at % volume.shape.data()) as usize);
        let aligned = inside.is_multiple_of(BLOCK) && length.is_multiple_of(BLOCK);
        // The volume may end within the stripe; what may be whole is written otherwise.
        let small = length > 0 && length <= LENGTH_MAX && inside + length <= stripe_bytes;
        let whole = stripe_bytes.min((volume.size() - stripe * volume.shape.data()) as usize);
        if !aligned || !small || length == whole || volume.mode() != WriteMode::WriteBack || volume.base().is_some() {
            return None;
        }
        let is_watched = is_long(length, stripe_bytes);
        if is_watched && (inside == 0 || handle.gathering.is_open(stripe)) {
            return None;
        }
        self.check_writable()
            .and_then(|()| volume.check_stays())
            .and_then(|()| self.check_can_wait(volume, stripe))
            .ok()?;
        if !self.admission.has_no_line() || !self.has_room(length) || !self.admits_at_once(volume, stripe)? {
            return None;
        }
        let record = Record::Write { volume: volume.id, at, data: vec![self.copied(data, length)] };
        let cost = self.log.cost(&record) + self.destage_cost(&volume.shape, length / BLOCK);
        let mut reservation = self.log.try_reserve(cost, Purpose::Host)?;
        if is_watched {
            handle.gathering.note(at, length as u64);
            handle.gathering.enter();
        }
        let lsn = self.append_with(&record, &Pages::default(), &mut reservation, urgency);
        self.keep_destage_reservation(volume, StripeKey { volume: volume.id, stripe }, reservation);
        if length == BLOCK {
            let key = BlockKey { volume: volume.id, block: at / BLOCK as u64 };
            self.step(|core| core.cache.note_lean(key, lsn));
        }
        Some((lsn, is_watched))
    }

    /// As `admits`, of a volume without a base; none where the map has to be read first.
    fn admits_at_once(&self, volume: &Rc<Volume>, stripe: u64) -> Option<bool> {
        let key = StripeKey { volume: volume.id, stripe };
        let (id, at) = Engine::map_page_id(key.volume, key.stripe);
        match self.table.cached(id)?.read(|bytes| map::get(bytes, at)) {
            Home::Slot(slot) => Some(self.check_answering(volume, stripe, slot).is_ok()),
            Home::Unmapped | Home::Zero => {
                Some(volume.spec().fully_allocated || self.look(|core| core.promised.contains(&key)))
            }
        }
    }

    /// Answers the writes that were appended at once. Runs for the pool's life.
    pub async fn answer_flow(self: Rc<Self>) {
        loop {
            let came = self.unanswered.came();
            let Some(first) = self.unanswered.first() else {
                came.await;
                continue;
            };
            // Durable in the log on all its members: the group's flushes are behind this.
            let result = match self.io.is_disabled(Mutation::AtOnce) {
                true => Ok(()),
                false => self.log.durable_in_time(first).await.map_err(|error| media_error(&error)),
            };
            let durable = if result.is_ok() { self.log.durable_lsn().max(first) } else { first };
            while let Some(write) = self.unanswered.take(durable) {
                self.answer(write, result.clone());
            }
        }
    }

    fn answer(&self, write: Appended, result: Result<(), MediaError>) {
        if let Some(handle) = &write.watched {
            handle.gathering.leave();
        }
        drop(write.permit);
        self.admission.end();
        self.finish(write.volume, write.tag, write.op, result);
    }

    pub fn finish(&self, volume: stele_ground::VolumeId, tag: u64, op: Op, result: Result<(), MediaError>) {
        self.io.emit(Action::Finished { volume, completion: Completion { tag, op, result } });
    }
}

#[cfg(test)]
mod tests;
