//! The flow that decides what is destaged when, and destages of many stripes as one task.
//!
//! A batch takes the stripes that no other task holds. It plans their changes in place side by
//! side, appends the redo record of each, and waits for the log once. Then it writes to all strips
//! and flushes each drive once. It holds many stripes, so it never waits for a stripe, and never
//! for room in the log: another task that holds one of the two may wait for a stripe of the batch.
//! Whatever it cannot do under these rules, and whatever goes wrong, is left to a task of the
//! stripe's own, which does that destage from the beginning.

use std::rc::Rc;

use stele_ground::{BLOCK, VolumeId};
use stele_media::{Priority, Shared};

use super::plan::{Change, columns_max};
use super::{Dirty, LogPin, Pace};
use crate::durable::log::{FlushUrgency, Purpose, Reservation};
use crate::durable::records::Record;
use crate::engine::apply::Pages;
use crate::engine::{DESTAGES, Engine};
use crate::formats::entry;
use crate::formats::map::Home;
use crate::model::ArrayError;
use crate::model::mutation::Mutation;
use crate::model::place::{DriveNumber, Lsn, StripeKey};
use crate::runtime::sync::{Permit, StripeGuard, join_all};
use crate::state::destaging::AGE_STEP;
use crate::stripe::Stripe;
use crate::volumes::Volume;

/// Stripes in a batch of a mirror, and of a code, whose data and parity should stay in the caches
/// of the processor. On slow drives each stripe goes alone: batches wait for their slowest command.
/// The figures are in `docs/decisions/041-batches-and-writes-without-tasks.md`.
const MIRRORED: usize = 16;
const CODED: usize = 4;
// The flow takes the turns of a whole batch before it begins one.
const _: () = assert!(MIRRORED as u64 <= DESTAGES && CODED as u64 <= DESTAGES);

/// A stripe whose destage the flow has begun.
struct Begun {
    key: StripeKey,
    /// Dirty bytes then.
    bytes: u64,
    permit: Permit,
}

/// A stripe of a batch, held.
struct Member {
    begun: Begun,
    volume: Rc<Volume>,
    guard: StripeGuard,
    dirty: Dirty,
    covers: Lsn,
    reservation: Reservation,
}

/// What to do with a stripe, and the pages that its record changes.
struct Planned {
    change: Change,
    pages: Pages,
}

/// A write of the batch: whose it is, and where it goes.
struct Placed {
    member: usize,
    drive: DriveNumber,
    index: usize,
    at: u64,
    data: Vec<Shared>,
}

impl Engine {
    /// Runs for the pool's life.
    pub async fn destage_flow(self: Rc<Self>) {
        let mut from = StripeKey { volume: VolumeId(0), stripe: 0 };
        loop {
            if self.standing.is_read_only() {
                // For good: what is dirty stays in the log for the next opening of the pool.
                return;
            }
            let wanted = self.destaging.wanted();
            let chosen = self.choose_batch(&mut from);
            if chosen.is_empty() {
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
            let mut rest = chosen.as_slice();
            while let Some(first) = rest.first() {
                let (keys, later) = rest.split_at(self.batch_size(first.volume, on_slow_drives).min(rest.len()));
                let mut batch = Vec::with_capacity(keys.len());
                for key in keys {
                    let permit = self.destaging.turn(on_slow_drives).await;
                    let bytes = (self.look(|core| core.cache.dirty_count(*key)) * BLOCK) as u64;
                    self.destaging.begin(bytes);
                    batch.push(Begun { key: *key, bytes, permit });
                }
                let engine = Rc::clone(&self);
                self.io.spawn(async move { engine.destage_batch(batch).await });
                rest = later;
            }
            self.io.yield_now().await;
        }
    }

    /// Stripes destaged as one task.
    fn batch_size(&self, volume: VolumeId, on_slow_drives: bool) -> usize {
        if on_slow_drives {
            return 1;
        }
        let mirrored = self.look(|core| core.volumes.get(volume)).is_some_and(|of| of.shape.code().is_mirror());
        if mirrored { MIRRORED } else { CODED }
    }

    async fn destage_batch(self: &Rc<Self>, batch: Vec<Begun>) {
        let members: Vec<Member> = batch.into_iter().filter_map(|begun| self.join_batch(begun)).collect();
        let (Some(covers), Some(oldest)) = (
            members.iter().map(|member| member.covers).max(),
            members.iter().flat_map(|member| member.dirty.blocks()).map(|block| block.lsn).min(),
        ) else {
            return;
        };
        // Redo records refer to the writes' own records, even if these are overwritten meanwhile.
        let _pin = LogPin::new(self, oldest);
        // Only what is durable in the log is destaged: a strip never shows what the log might lose.
        if self.log.durable(covers).await.is_err() {
            return members.into_iter().for_each(|member| self.leave_batch(member));
        }
        let plans = join_all(members.iter().map(|member| self.plan_member(member))).await;
        let mut logged = Vec::with_capacity(members.len());
        let mut last = covers;
        for (mut member, plan) in members.into_iter().zip(plans) {
            let Some(Planned { change, pages }) = plan else {
                self.leave_batch(member);
                continue;
            };
            if !self.affords(&mut member.reservation, self.log.cost(&change.record) + self.log.cost_of(64)) {
                self.leave_batch(member);
                continue;
            }
            last = self.append_with(&change.record, &pages, &mut member.reservation, FlushUrgency::Linger);
            self.keep_redo(member.begun.key, change.redo);
            self.count.destages.add(1);
            self.count.batched.add(1);
            self.count.destaged_blocks.add(member.dirty.len() as u64);
            logged.push(member);
        }
        // Invariant 8: nothing is written in place before the log holds the images durably.
        if !self.io.is_disabled(Mutation::RedoOrder) && !logged.is_empty() {
            if self.log.durable_in_time(last).await.is_err() {
                return logged.into_iter().for_each(|member| self.leave_batch(member));
            }
            assert!(self.log.durable_lsn() >= last, "invariant 8: in-place writes before their images are durable");
        }
        let placed = self.place_batch(&logged).await;
        for (member, placed) in logged.into_iter().zip(placed) {
            match placed {
                true => self.end_member(member),
                false => self.leave_batch(member),
            }
        }
    }

    /// Takes the stripe into a batch, or starts a task for it where it is not fit for one.
    fn join_batch(self: &Rc<Self>, begun: Begun) -> Option<Member> {
        let key = begun.key;
        let volume = self.look(|core| core.volumes.get(key.volume)).filter(|volume| !volume.was_deleted());
        let is_dirty = self.look(|core| core.cache.is_dirty(key));
        let Some(volume) = volume.filter(|_| is_dirty && !self.standing.is_read_only()) else {
            self.end_destage(begun);
            return None;
        };
        let Some(guard) = self.locks.try_exclusive(key.volume, key.stripe) else {
            self.destage_alone(begun, None);
            return None;
        };
        // What an earlier destage left undone, or memory that changed, comes first; and one that
        // failed gave its reservation back.
        let taken = self.step(|core| {
            let is_fit = core.redo.of(key).is_empty() && core.cache.spoilt_of(key).is_none();
            let reservation = if is_fit { core.destage_reservations.remove(&key) } else { None };
            reservation.map(|reservation| (Dirty::from(core.cache.dirty_of(key)), reservation))
        });
        let Some((dirty, reservation)) = taken else {
            self.destage_alone(begun, Some(guard));
            return None;
        };
        let covers = dirty.blocks().map(|block| block.lsn).max().unwrap_or(Lsn(0));
        Some(Member { begun, volume, guard, dirty, covers, reservation })
    }

    /// None where the stripe is not changed in place, by one record, on drives that are all there.
    async fn plan_member(&self, member: &Member) -> Option<Planned> {
        let (volume, stripe) = (&member.volume, member.begun.key.stripe);
        let Home::Slot(slot) = self.home(member.begun.key).await.ok()? else { return None };
        let (page, at) = self.slot_page(&volume.shape, slot).await.ok()?;
        let head = page.read(|bytes| entry::head(bytes, at));
        if head.references > 1 || self.moves(volume, &head, member.dirty.len()) {
            return None;
        }
        let of = self.picture(volume, stripe, slot, &page, at)?;
        let all_there = of.places.iter().all(|place| self.drives.index(place.cell.drive).is_some());
        if !all_there || member.dirty.len() > columns_max(&of.shape, self.log.record_max()) {
            return None;
        }
        let change = self.plan_change(volume, &of, &member.dirty, member.covers).await.ok()?;
        let pages = self.pages_for(&change.record).await.ok()?;
        Some(Planned { change, pages })
    }

    /// Whether the reservation is as large as that, or can be made so without a wait.
    fn affords(&self, reservation: &mut Reservation, need: u64) -> bool {
        let short = need.saturating_sub(reservation.bytes());
        if short > 0 {
            let Some(more) = self.log.try_reserve(short, Purpose::Inside) else { return false };
            reservation.merge(more);
        }
        true
    }

    /// Puts the images of all members onto their strips. Answers for each whether all of its strips
    /// took them, durably.
    async fn place_batch(&self, members: &[Member]) -> Vec<bool> {
        let since = self.drives.labels.attachments();
        let mut good = vec![true; members.len()];
        let mut writes = Vec::new();
        for (number, member) in members.iter().enumerate() {
            match self.places_of(number, member).await {
                Some(placed) => writes.extend(placed),
                None => good[number] = false,
            }
        }
        let targets: Vec<(usize, DriveNumber, usize)> =
            writes.iter().map(|write: &Placed| (write.member, write.drive, write.index)).collect();
        let asked = writes.into_iter().map(|write| (write.index, write.at, write.data));
        let written = self.io.write_all(asked, Priority::Destage).await;
        for ((member, ..), result) in targets.iter().zip(written) {
            good[*member] &= result.is_ok();
        }
        if self.io.is_disabled(Mutation::StripFlush) {
            return good;
        }
        let mut drives: Vec<(usize, DriveNumber)> = Vec::new();
        for (member, drive, index) in &targets {
            if good[*member] && !drives.contains(&(*index, *drive)) {
                drives.push((*index, *drive));
            }
        }
        let flushed = self.io.flush_all(drives.iter().map(|(index, _)| *index)).await;
        // A drive that was pulled since, and is back, has lost what was in its cache.
        let held = |(drive, result): (&(usize, DriveNumber), &Result<(), _>)| {
            (result.is_ok() && self.drives.labels.has_stayed(drive.1, since)).then_some(*drive)
        };
        let sound: Vec<(usize, DriveNumber)> = drives.iter().zip(&flushed).filter_map(held).collect();
        for (member, drive, index) in &targets {
            good[*member] &= sound.contains(&(*index, *drive));
        }
        good
    }

    /// Where the stripe's images go now; none where a drive is not there, or the stripe cannot be
    /// looked up.
    async fn places_of(&self, number: usize, member: &Member) -> Option<Vec<Placed>> {
        let key = member.begun.key;
        let of: Stripe = self.locate(&member.volume, key.stripe).await.ok()??;
        let writes = self.look(|core| {
            let redo = core.redo.of(key).first()?;
            // Invariant 15: the task that maps the stripe anew forgets what it was owed.
            assert!(
                of.slot == redo.slot && of.generation == redo.generation,
                "invariant 15: a redo image for {}, while stripe {} is in {}",
                redo.slot,
                key.stripe,
                of.slot
            );
            Some(redo.writes.clone())
        })?;
        let place = |write: crate::state::redo::StripWrite| {
            let place = of.places[write.strip];
            let (drive, at) = (place.cell.drive, place.at + write.at as u64);
            let index = self.drives.index(drive)?;
            Some(Placed { member: number, drive, index, at, data: write.data })
        };
        writes.into_iter().map(place).collect()
    }

    /// The member's strips are durable: the records before may go. Were this one lost, replay would
    /// do the same again.
    fn end_member(self: &Rc<Self>, mut member: Member) {
        let key = member.begun.key;
        let done = Record::Destaged { volume: key.volume, stripe: key.stripe, covers: member.covers };
        if !self.affords(&mut member.reservation, self.log.cost(&done)) {
            self.step(|core| core.redo.note_placed(key, 0));
            return self.leave_batch(member);
        }
        self.append_with(&done, &Pages::default(), &mut member.reservation, FlushUrgency::Whenever);
        drop(member.guard);
        self.end_destage(member.begun);
    }

    /// Leaves the member to a task of its own, with what it holds.
    fn leave_batch(self: &Rc<Self>, member: Member) {
        let Member { begun, guard, mut reservation, .. } = member;
        self.step(|core| {
            if let Some(held) = core.destage_reservations.remove(&begun.key) {
                reservation.merge(held);
            }
            core.destage_reservations.insert(begun.key, reservation);
        });
        self.destage_alone(begun, Some(guard));
    }

    /// Destages a stripe in a task of its own.
    fn destage_alone(self: &Rc<Self>, begun: Begun, guard: Option<StripeGuard>) {
        let engine = Rc::clone(self);
        self.io.spawn(async move {
            if let Err(error) = engine.destage_begun(begun.key, guard).await {
                engine.destage_failed(begun.key, &error);
            }
            engine.end_destage(begun);
        });
    }

    async fn destage_begun(self: &Rc<Self>, key: StripeKey, guard: Option<StripeGuard>) -> Result<(), ArrayError> {
        let Some(volume) = self.look(|core| core.volumes.get(key.volume)) else { return Ok(()) };
        let _guard = match guard {
            Some(guard) => guard,
            None => self.locks.exclusive(key.volume, key.stripe).await,
        };
        self.destage_locked(&volume, key.stripe, Pace::FLOW).await
    }

    fn end_destage(&self, begun: Begun) {
        drop(begun.permit);
        self.destaging.end(begun.bytes);
        self.destaging.want();
        self.admission.make_room();
    }
}

#[cfg(test)]
mod tests;
