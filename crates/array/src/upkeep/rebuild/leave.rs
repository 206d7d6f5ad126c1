//! A spare cell on a drive that is lost too: its member needs another one.
//!
//! The exceptions of the row's stripes say which strips lie in the member's replacement, whichever
//! cell that is. Were the cell changed for another one, they would say of strips that were never
//! written there that they lie in it. Reads would take whatever the new cell's drive holds for
//! damage of that drive, and the rebuild would take them for moved. So each strip is recorded as
//! being at home again, which is lost as well: from then on it is absent, and is rebuilt like any
//! other. Only when no strip is left in the cell is it given up. A crash in between leaves strips
//! that are at home and strips in the cell, and the next opening goes on with that.
//!
//! Nothing is let go that cannot be computed from elsewhere: the drive of the cell may still
//! return.

use std::rc::Rc;

use stele_codes::Strips;
use stele_ground::{Duration, VolumeId};
use stele_media::Priority;

use super::Task;
use crate::durable::log::{Purpose, Reservation};
use crate::durable::records::Record;
use crate::engine::Engine;
use crate::formats::map::Home;
use crate::model::ArrayError;
use crate::model::place::{RowId, SlotId, StripeKey};
use crate::space::layout::Row;

/// How long a row stays frozen for slots of it that are on their way.
const HELD_MAX: Duration = Duration::from_secs(1);

/// What came of giving a spare cell up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leave {
    Done,
    /// A stripe is on its way elsewhere: to be tried again.
    Again,
    /// A strip in the cell cannot be had from elsewhere.
    Needed,
}

impl Engine {
    /// Gives the member's spare cell up.
    pub(super) async fn leave_spare(self: &Rc<Self>, task: Task, row: &Row) -> Result<Leave, ArrayError> {
        self.rebuilding.forget_moved(task.row, task.member);
        // What is allocated in the row meanwhile is to lie in the cell too, so that only the second
        // pass sees the last of it.
        let left = self.leave_strips(task, false).await?;
        if left != Leave::Done {
            return Ok(left);
        }
        // Before the row is frozen: what makes room in the log may itself wait for a slot of the
        // row.
        let room = self.log.reserve(self.log.cost(&given_up(task)), Purpose::Inside).await?;
        self.step(|core| core.space.freeze(task.row, true));
        let result = self.leave_frozen(task, row, room).await;
        self.step(|core| core.space.freeze(task.row, false));
        self.admission.make_room();
        result
    }

    async fn leave_frozen(self: &Rc<Self>, task: Task, row: &Row, mut room: Reservation) -> Result<Leave, ArrayError> {
        if !self.are_slots_let_go(task.row).await? {
            return Ok(Leave::Again);
        }
        let left = self.leave_strips(task, true).await?;
        if left == Leave::Done {
            let pages = self.pages_for(&given_up(task)).await?;
            if self.is_still_row(row, usize::from(task.member)) {
                self.append(&given_up(task), &pages, &mut room);
            }
        }
        Ok(left)
    }

    /// Waits a moment until no slot of the frozen row is on its way. False where one is for longer:
    /// its writer may wait for room in the log, and the flow that would make that for a slot of
    /// this row.
    pub(super) async fn are_slots_let_go(&self, row: RowId) -> Result<bool, ArrayError> {
        let until = self.io.now() + HELD_MAX;
        while self.look(|core| core.space.is_held_any(row)) {
            if self.io.now() >= until {
                return Ok(false);
            }
            self.io.sleep(Duration::from_millis(1)).await;
            self.check_writable()?;
        }
        Ok(true)
    }

    /// No strip is left in the member's spare cell: gives it up. False where one is.
    pub(super) async fn release_spare(self: &Rc<Self>, task: Task, row: &Row) -> Result<bool, ArrayError> {
        // Before the row is frozen: what makes room in the log may itself wait for a slot of the
        // row.
        let mut room = self.log.reserve(self.log.cost(&given_up(task)), Purpose::Inside).await?;
        self.check_writable()?;
        self.step(|core| core.space.freeze(task.row, true));
        let result = self.release_frozen(task, row, &mut room).await;
        self.step(|core| core.space.freeze(task.row, false));
        self.admission.make_room();
        result
    }

    async fn release_frozen(
        self: &Rc<Self>,
        task: Task,
        row: &Row,
        room: &mut Reservation,
    ) -> Result<bool, ArrayError> {
        // No task allocates in the row now, so what this finds is all there is.
        if !self.are_slots_let_go(task.row).await? || !self.have_moved(task, false).await? {
            return Ok(false);
        }
        // The cell itself is free once this is durable.
        let pages = self.pages_for(&given_up(task)).await?;
        if self.is_still_row(row, usize::from(task.member)) {
            self.append(&given_up(task), &pages, room);
        }
        Ok(true)
    }

    /// Whether all strips of the member lie in its replacement (`moved`), or none does.
    pub(super) async fn have_moved(&self, task: Task, moved: bool) -> Result<bool, ArrayError> {
        for index in 0..self.look(|core| core.space.slots(task.row)) {
            let slot = SlotId { row: task.row, index };
            let Some(shape) = self.row_shape(slot) else { return Ok(true) };
            let head = self.slot_head(&shape, slot).await?;
            if !head.is_free() && (head.exceptions >> task.member & 1 == 1) != moved {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn leave_strips(self: &Rc<Self>, task: Task, is_frozen: bool) -> Result<Leave, ArrayError> {
        for index in 0..self.look(|core| core.space.slots(task.row)) {
            self.check_writable()?;
            let left = self.leave_strip(SlotId { row: task.row, index }, usize::from(task.member), is_frozen).await?;
            if left != Leave::Done {
                return Ok(left);
            }
        }
        Ok(Leave::Done)
    }

    async fn leave_strip(self: &Rc<Self>, slot: SlotId, member: usize, is_frozen: bool) -> Result<Leave, ArrayError> {
        let Some(shape) = self.row_shape(slot) else { return Ok(Leave::Done) };
        let moved = async || {
            let head = self.slot_head(&shape, slot).await?;
            Ok::<_, ArrayError>((!head.is_free() && head.exceptions >> member & 1 == 1).then_some(head))
        };
        let Some(head) = moved().await? else { return Ok(Leave::Done) };
        let Some(volume) = self.look(|core| core.volumes.get(VolumeId(head.volume))) else { return Ok(Leave::Again) };
        // While the row is frozen the rebuild waits for no lock: the writer of the stripe may
        // itself wait for a slot of this row. The next attempt waits for it before it freezes the
        // row.
        let guard = match is_frozen {
            true => self.locks.try_exclusive(volume.id, head.stripe),
            false => Some(self.locks.exclusive(volume.id, head.stripe).await),
        };
        let Some(_guard) = guard else { return Ok(Leave::Again) };
        let Some(head) = moved().await?.filter(|now| now.volume == head.volume && now.stripe == head.stripe) else {
            return Ok(Leave::Again);
        };
        if self.home(StripeKey { volume: volume.id, stripe: head.stripe }).await? != Home::Slot(slot) {
            return Ok(Leave::Again);
        }
        let Some(mut of) = self.locate(&volume, head.stripe).await? else { return Ok(Leave::Again) };
        let Some(home) = self.target(&of, member, false) else { return Ok(Leave::Again) };
        of.places[member] = home;
        let columns = self.read_columns(&of, Strips::of([member]), 0..of.shape.units, Priority::Rebuild).await;
        if of.hopes_for(&columns) {
            return Ok(Leave::Needed);
        }
        let record = Record::Moved { slot, generation: of.generation, strip: member as u8, replaced: false };
        let cost = self.log.cost(&record);
        // No more than for writers is the log waited for; the next attempt waits for it before it
        // freezes the row.
        let room = match is_frozen {
            true => self.log.try_reserve(cost, Purpose::Inside),
            false => Some(self.room_while_held(StripeKey { volume: of.volume, stripe: of.stripe }, cost).await?),
        };
        let Some(mut room) = room else { return Ok(Leave::Again) };
        let pages = self.pages_for(&record).await?;
        self.append(&record, &pages, &mut room);
        Ok(Leave::Done)
    }
}

/// The member has no spare cell any more.
fn given_up(task: Task) -> Record {
    Record::Replacement { row: task.row, member: task.member, cell: None }
}

#[cfg(test)]
mod tests;
