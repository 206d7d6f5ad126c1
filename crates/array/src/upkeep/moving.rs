//! Stripes move to other rows: out of rows that crowd an enclosure, and onto drives that were
//! added. They also move off drives that are to leave, where their strips cannot move by themselves
//! (`rebuild/drain.rs`).
//!
//! A row is emptied stripe by stripe and then given up. While it is, it takes no new stripe, and
//! what is free in it counts as taken, so that no promise rests on it. A stripe moves like a host's
//! full write does. Its content is read and verified, written to a free slot elsewhere with digests
//! of its own, flushed, and then mapped by one record. The old slot is used anew only when that
//! record is durable. What is dirty of the stripe stays dirty and is destaged to the new slot. A
//! crash in between leaves each stripe in one slot or the other, and the row to be emptied again.
//!
//! Rebuilds come first: nothing moves while one is under way. What cannot move now is put off and
//! said once.

use std::collections::BTreeSet;
use std::rc::Rc;

use stele_codes::Strips;
use stele_ground::{Duration, VolumeId};
use stele_media::{Buffer, Priority};

use crate::durable::log::Purpose;
use crate::durable::records::Record;
use crate::engine::Engine;
use crate::formats::entry::{LOST, ZERO};
use crate::formats::map::Home;
use crate::model::mutation::Mutation;
use crate::model::place::{DriveNumber, Lsn, RowId, SlotId, StripeKey};
use crate::model::{AlarmKind, ArrayError, Severity};
use crate::runtime::sync::join_all;
use crate::space::layout::{RowClass, RowKind};
use crate::state::redo::StripWrite;
use crate::state::standing::CLOSE_STEP;
use crate::stripe::{Columns, Stripe};
use crate::upkeep::enclosures::cannot_spread;

/// Stripes of a row moved at once while hosts are active: each of them waits for its lock.
const MOVES_BESIDE_HOSTS: usize = 8;
/// What was allocated in a row before it was closed is written, or given up, in so long.
const WRITERS_MAX: Duration = Duration::from_secs(60);
/// Before what could not be moved is tried again.
const PUT_OFF: Duration = Duration::from_secs(5);

/// What became of the next piece of moving.
pub enum Step {
    /// Nothing is to be moved.
    Nothing,
    Moved,
    /// Something cannot be moved now; why.
    PutOff(String),
}

impl Engine {
    /// Runs for the pool's life.
    pub async fn moving_flow(self: Rc<Self>) {
        loop {
            let (changed, crowded) = (self.membership.changed(), self.moving.crowded());
            let drained = self.moving.drained();
            if self.check_writable().is_err() || self.standing.is_closed() {
                return;
            }
            if self.standing.is_closing() {
                self.io.sleep(CLOSE_STEP).await;
                continue;
            }
            let busy = self.rebuilding.is_busy();
            let step = if busy { Ok(Step::PutOff(String::new())) } else { self.moving_step().await };
            let why = match step {
                Ok(Step::Moved) => {
                    self.moving.end_put_off();
                    continue;
                }
                Ok(Step::Nothing) => {
                    self.moving.work.end();
                    self.moving.end_put_off();
                    futures_util::pin_mut!(changed, crowded);
                    futures_util::future::select(changed, crowded).await;
                    continue;
                }
                _ if self.check_writable().is_err() || self.standing.is_closing() => continue,
                Ok(Step::PutOff(why)) => why,
                Err(error) => error.to_string(),
            };
            let text = format!("stripes cannot move to other drives for now: {why}");
            if !why.is_empty() && self.moving.note_put_off(text.clone(), self.io.now()) {
                self.alarm(AlarmKind::MovingPutOff, Severity::Warning, None, text);
            }
            let sleep = self.io.sleep(PUT_OFF);
            futures_util::pin_mut!(sleep, changed, drained);
            futures_util::future::select(sleep, futures_util::future::select(changed, drained)).await;
        }
    }

    async fn moving_step(self: &Rc<Self>) -> Result<Step, ArrayError> {
        let leaving = self.leaving();
        if self.is_draining(&leaving) {
            // The rebuild does that, and wakes this. The tables leave meanwhile; where they cannot,
            // that is said in the end.
            for drive in leaving {
                drop(self.table.evacuate(drive).await);
            }
            return Ok(Step::PutOff(String::new()));
        }
        if let Some(row) = self.row_on(&leaving) {
            self.moving.work.expect(self.bytes_on(&leaving), self.io.now());
            return self.empty_row(row).await;
        }
        if let Some(drive) = leaving.first() {
            self.retire(*drive).await?;
            return Ok(Step::Moved);
        }
        let mut crowded = self.crowding().crowded;
        if self.io.is_disabled(Mutation::Enclosures) {
            crowded.clear();
        }
        if let Some(row) = self.row_to_spread(&crowded) {
            self.moving.work.expect(self.look(|core| core.space.bytes_in(crowded.iter().copied())), self.io.now());
            return self.spread_row(row, &crowded).await;
        }
        if !self.drives.labels.configuration().growing {
            self.moving.work.end();
            return Ok(match crowded.len() {
                0 => Step::Nothing,
                rows => Step::PutOff(cannot_spread(rows)),
            });
        }
        let sound = self.sound_drives();
        let next = self.layout.read().heaviest_row(&|drive| sound.contains(&drive));
        let Some(row) = next else {
            self.grown().await?;
            return Ok(Step::Moved);
        };
        let surplus = self.layout.read().surplus();
        self.moving.work.expect(self.moving.left_to_level(surplus), self.io.now());
        self.empty_row(row).await
    }

    /// The first row of volumes with a strip on one of the drives.
    fn row_on(&self, drives: &[DriveNumber]) -> Option<RowId> {
        self.rows_of_volumes(drives).into_iter().next()
    }

    fn rows_of_volumes(&self, drives: &[DriveNumber]) -> BTreeSet<RowId> {
        let layout = self.layout.read();
        let rows: BTreeSet<RowId> = drives.iter().flat_map(|drive| layout.rows_on(*drive)).collect();
        let of_volumes = |row: &RowId| layout.row(*row).is_some_and(|row| row.class.kind == RowKind::Data);
        rows.into_iter().filter(of_volumes).collect()
    }

    fn bytes_on(&self, drives: &[DriveNumber]) -> u64 {
        self.look(|core| core.space.bytes_in(self.rows_of_volumes(drives)))
    }

    /// Moves every stripe of a row elsewhere and gives the row up.
    pub async fn empty_row(self: &Rc<Self>, row: RowId) -> Result<Step, ArrayError> {
        let Some(class) = self.look(|core| core.space.row_class(row)) else { return Ok(Step::Moved) };
        while !self.step(|core| core.space.close(row, true)) {
            if self.look(|core| core.space.row_class(row)).is_none() {
                return Ok(Step::Moved);
            }
            if !self.grow(class, None).await? && !self.grow_to_move(class).await? {
                return Ok(Step::PutOff(format!(
                    "no room for another row of {}; delete or discard data, or add drives",
                    class.code
                )));
            }
        }
        let emptied = self.empty_closed(row).await;
        if !matches!(emptied, Ok(Step::Moved)) {
            self.step(|core| core.space.close(row, false));
            self.admission.make_room();
            // What was made for it would be hosts' otherwise.
            self.free_empty_rows().await?;
        }
        emptied
    }

    /// Adds a row on cells of the reserve: those of the row that is emptied come free in their
    /// stead. False where even that is not to be had.
    pub async fn grow_to_move(&self, class: RowClass) -> Result<bool, ArrayError> {
        let mut reservation = self.log.reserve(self.log.cost_of(1024), Purpose::Inside).await?;
        let sound = self.sound_drives();
        let choose = || self.layout.read().choose_row_to_move(class, &|drive| sound.contains(&drive));
        let Some(row) = choose() else { return Ok(false) };
        let pages = self.pages_for(&Record::RowCreate { row: row.clone() }).await?;
        // The choice is made again after the wait: cells may have gone meanwhile.
        let Some(row) = choose().filter(|again| again.id == row.id) else { return Ok(true) };
        self.append(&Record::RowCreate { row }, &pages, &mut reservation);
        Ok(true)
    }

    async fn empty_closed(self: &Rc<Self>, row: RowId) -> Result<Step, ArrayError> {
        let begun = self.io.now();
        loop {
            if let Some(why) = self.move_stripes(row).await? {
                return Ok(Step::PutOff(why));
            }
            if !self.look(|core| core.space.is_closed(row)) {
                // Another task found it empty and gave it up.
                return Ok(Step::Moved);
            }
            // Allocated before the row was closed, or held until a release is durable: soon over.
            if self.look(|core| core.space.is_empty(row)) {
                break;
            }
            if self.standing.is_closing() {
                return Ok(Step::PutOff("the pool is being closed".into()));
            }
            if self.io.now() >= begun + WRITERS_MAX {
                let (used, held) = (self.look(|core| core.space.used(row)), self.look(|core| core.space.held(row)));
                return Ok(Step::PutOff(format!("row {} counts {used} stripes still, and {held} on their way", row.0)));
            }
            self.io.sleep(Duration::from_millis(1)).await;
            self.check_writable()?;
        }
        let record = Record::RowFree { row };
        let mut reservation = self.log.reserve(self.log.cost_of(64), Purpose::Inside).await?;
        let pages = self.pages_for(&record).await?;
        if self.look(|core| core.space.is_empty(row)) {
            self.append(&record, &pages, &mut reservation);
        }
        Ok(Step::Moved)
    }

    /// One pass over the slots of a closed row. Some: a stripe cannot move now, and why.
    async fn move_stripes(self: &Rc<Self>, row: RowId) -> Result<Option<String>, ArrayError> {
        let (class, slots) = (self.look(|core| core.space.row_class(row)), self.look(|core| core.space.slots(row)));
        let mut batch: Vec<(VolumeId, u64)> = Vec::new();
        for index in 0..slots {
            let slot = SlotId { row, index };
            let Some(shape) = self.row_shape(slot) else { return Ok(None) };
            let head = self.slot_head(&shape, slot).await?;
            if self.look(|core| core.space.row_class(row)) != class || !self.look(|core| core.space.is_closed(row)) {
                return Ok(None);
            }
            if head.references > 1 {
                // Snapshots share maps, not slots: nothing writes such an entry, and its other
                // owners are not known.
                return Ok(Some(format!(
                    "{slot} counts {} stripes, which only a newer version writes; open the pool with that",
                    head.references
                )));
            }
            if !head.is_free() {
                batch.push((VolumeId(head.volume), head.stripe));
            }
            if batch.len() < self.moves_now(row) && index + 1 < slots {
                continue;
            }
            let bytes = (batch.len() * shape.strip * shape.width()) as u64;
            self.throttle(bytes, false).await;
            self.check_writable()?;
            if self.standing.is_closing() {
                return Ok(Some("the pool is being closed".into()));
            }
            let moves =
                std::mem::take(&mut batch).into_iter().map(|(volume, stripe)| self.relocate(volume, stripe, row));
            for moved in join_all(moves).await {
                if let Some(why) = moved? {
                    return Ok(Some(why));
                }
            }
            self.moving.work.advance(bytes);
        }
        Ok(None)
    }

    /// Stripes of the row to be moved at once: as many as a run has while hosts are idle.
    fn moves_now(&self, row: RowId) -> usize {
        match self.hosts_wait() {
            true => MOVES_BESIDE_HOSTS,
            false => MOVES_BESIDE_HOSTS.max(self.breadth(row).run as usize),
        }
    }

    /// Moves a stripe out of the row. Some: not now, and why.
    async fn relocate(
        self: &Rc<Self>,
        volume: VolumeId,
        stripe: u64,
        row: RowId,
    ) -> Result<Option<String>, ArrayError> {
        let Some(volume) = self.look(|core| core.volumes.get(volume)) else { return Ok(None) };
        let key = StripeKey { volume: volume.id, stripe };
        let _guard = self.locks.exclusive(volume.id, stripe).await;
        if volume.was_deleted() {
            return Ok(None);
        }
        // In-place writes that are owed belong to the slot as it is.
        self.place_redo(&volume, stripe).await?;
        let Home::Slot(old) = self.home(key).await? else { return Ok(None) };
        if old.row != row {
            return Ok(None);
        }
        let Some(of) = self.locate(&volume, stripe).await? else { return Ok(None) };
        let read = || self.read_columns(&of, Strips::all(of.shape.k), 0..of.shape.units, Priority::Rebuild);
        let mut columns = read().await;
        if of.hopes_for(&columns) {
            // What does not go along is gone for good.
            columns = read().await;
        }
        let newly_lost = of.hopes_for(&columns);
        if newly_lost && !self.may_discard(&of, &columns).await? {
            return Ok(Some(format!(
                "volume '{}': stripe {stripe} needs drives that are away or answer with errors; return them",
                volume.name()
            )));
        }
        let Some(allocation) = self.allocate(&volume, stripe, false).await? else {
            return Ok(Some(format!(
                "volume '{}': no slot is left elsewhere; delete data or add drives",
                volume.name()
            )));
        };
        let (digests, writes) = content(&of, columns, &self.binding(allocation.slot, allocation.generation));
        // What is dirty is not in the new slot: nothing in the log is covered by it.
        let covers = Lsn(0);
        let stored =
            self.store_slot(&volume, stripe, allocation, Some(old), covers, digests, writes, Priority::Rebuild).await;
        if stored.is_err() {
            self.abandon(allocation);
        }
        self.settle_map(key, stored?, Some(old)).await?;
        if newly_lost {
            self.note_lost(&volume, stripe);
        }
        Ok(None)
    }
}

/// A stripe's content as it goes into another slot. Lost units stand as zeros in the parity and as
/// lost in the digests (of a mirror in every copy's), so that no read ever returns them. Columns
/// that were never written stay so.
fn content(of: &Stripe, columns: Columns, binding: &crate::formats::entry::Binding) -> (Vec<u32>, Vec<StripWrite>) {
    let shape = &of.shape;
    let Columns { strips, lost, .. } = columns;
    let lost: BTreeSet<(usize, usize)> = lost.into_iter().collect();
    let mut strips: Vec<Buffer> =
        strips.into_iter().map(|strip| strip.unwrap_or_else(|| Buffer::zeroed(shape.strip))).collect();
    for (strip, unit) in &lost {
        strips[*strip][shape.bytes_of(*unit..*unit + 1)].fill(0);
    }
    crate::destage::encode(shape, &mut strips);
    let blank = |unit: usize| (0..shape.width()).all(|strip| of.digest(strip, unit) == ZERO);
    let mut digests = vec![ZERO; shape.digests()];
    let mut writes = Vec::new();
    for (strip, buffer) in strips.into_iter().enumerate() {
        for (unit, data) in buffer.chunks(shape.unit_bytes).enumerate().filter(|(unit, _)| !blank(*unit)) {
            let is_lost = lost.contains(&(shape.source_of(strip), unit));
            digests[shape.digest_index(strip, unit)] = if is_lost { LOST } else { binding.digest(strip, unit, data) };
        }
        let data = buffer.freeze();
        for run in crate::stripe::runs((0..shape.units).filter(|unit| !blank(*unit))) {
            let bytes = shape.bytes_of(run);
            writes.push(StripWrite { strip, at: bytes.start, data: vec![data.slice(bytes)] });
        }
    }
    (digests, writes)
}

#[cfg(test)]
mod tests;
