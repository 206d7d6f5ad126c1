//! A drive that leaves is emptied by runs: of each stripe only the strip on it moves.
//!
//! The member of a row gets a replacement on another drive. Its strips move there as those of a
//! lost drive do, except that the drive itself is read. When all of them lie in the replacement,
//! one record makes that the member's cell. From then on the bits of the member in the exceptions
//! of the row's stripes say nothing, and are cleared. Crash points:
//!
//! 1. before the strip is recorded as moved: it is where it was, and moves again;
//! 2. before the replacement is the member's cell: the row has both cells, and the exceptions say
//!    what lies where. The next opening goes on, or copies back if the drive stays;
//! 3. before all bits are cleared: they say nothing as long as the member has no replacement. Were
//!    it given one, they would say of strips that were never written there that they lie in it. So
//!    they are looked for before that.
//!
//! What finds no cell within the rules, or cannot be read now, moves with its whole stripes
//! (`moving.rs`) when no member is left that can move by itself.

use std::rc::Rc;

use stele_ground::Duration;

use super::breadth::ROWS_TO_DRIVE;
use super::{Done, Need, Task};
use crate::durable::log::Purpose;
use crate::durable::records::Record;
use crate::engine::Engine;
use crate::model::ArrayError;
use crate::model::mutation::Mutation;
use crate::model::place::{DriveNumber, RowId, SlotId, StripCell};
use crate::runtime::sync::join_all;
use crate::space::layout::{Row, RowKind};

/// Requests that wait for a drive that leaves, from which on the others compute what it holds.
const OWN_READS: usize = 2;
/// Slots that are looked at before other tasks have their turn.
const SLOTS_OF_A_TURN: usize = 256;

impl Engine {
    /// Whether the member's strips leave its drive by themselves. False where they lie in two cells
    /// and move with their whole stripes; none where nothing of this is so.
    pub(super) fn drains(&self, row: &Row, member: usize, leaving: &[DriveNumber]) -> Option<bool> {
        let of = row.members.get(member).filter(|of| leaving.contains(&of.cell.drive))?;
        let is_here = |cell: StripCell| self.drives.index(cell.drive).is_some() && !self.is_given_up(cell.drive).0;
        if self.io.is_disabled(Mutation::OwnStrip) || !is_here(of.cell) || !of.replacement.is_none_or(is_here) {
            return None;
        }
        let moves =
            !self.rebuilding.is_undrained(row.id, member as u8) && !self.look(|core| core.space.is_closed(row.id));
        (moves || of.replacement.is_some()).then_some(moves)
    }

    /// Whether something on these drives moves by itself.
    pub fn is_draining(&self, leaving: &[DriveNumber]) -> bool {
        let layout = self.layout.read();
        let rows = leaving.iter().flat_map(|drive| layout.rows_on(*drive)).filter_map(|row| layout.row(row));
        let mut rows = rows.filter(|row| row.class.kind == RowKind::Data);
        rows.any(|row| (0..row.members.len()).any(|member| self.drains(row, member, leaving) == Some(true)))
    }

    /// Moves the strips of a member off its drive.
    pub(super) async fn drain(self: &Rc<Self>, task: Task, run: u32, done: &Done) -> Result<bool, ArrayError> {
        if self.hosts_wait() && self.has_busy_target(task) {
            return Ok(false);
        }
        let home = self.home_cell(task.row, task.member);
        let is_over = self.move_to_spare(task, run, done).await?;
        if is_over && self.home_cell(task.row, task.member) == home {
            self.rebuilding.note_undrained(task.row, task.member);
        }
        Ok(is_over)
    }

    /// The drive that the member's strips would move to has as many rows written to it as may be.
    /// Hosts would wait in its line.
    fn has_busy_target(&self, task: Task) -> bool {
        let leaving = self.leaving();
        let layout = self.layout.read();
        let is_new = |row: &Row| row.members.get(usize::from(task.member)).is_some_and(|of| of.replacement.is_none());
        if !layout.row(task.row).is_some_and(is_new) {
            return false;
        }
        let is_target = |row: &Row, drive: DriveNumber| {
            let mut leave = row.members.iter().filter(|of| leaving.contains(&of.cell.drive));
            leave.any(|of| of.replacement.is_some_and(|cell| cell.drive == drive))
        };
        let sound = |drive: DriveNumber| self.drives.is_sound(drive);
        let target = layout.choose_home(task.row, usize::from(task.member), &sound);
        target.is_some_and(|cell| {
            let rows = layout.rows_on(cell.drive);
            rows.iter().filter_map(|row| layout.row(*row)).filter(|row| is_target(row, cell.drive)).count()
                >= ROWS_TO_DRIVE
        })
    }

    /// Whether the drive that leaves has enough to do, and the others compute what it holds. Beside
    /// hosts they do not: that takes them eight reads and more.
    pub(super) fn spares_source(&self, task: Task) -> bool {
        let home = self.home_cell(task.row, task.member).and_then(|home| self.drives.index(home.drive));
        task.need == Need::Leave && !self.hosts_wait() && home.is_some_and(|home| self.io.load(home) >= OWN_READS)
    }

    /// A strip of the member has its place. It counts as rebuilt, unless it only leaves its drive.
    pub(super) fn count_placed(&self, row: RowId, member: usize) {
        let home = self.home_cell(row, member as u8).map(|home| home.drive);
        if !home.is_some_and(|home| self.drives.is_sound(home) && self.leaving().contains(&home)) {
            self.count.rebuilt.add(1);
        }
    }

    /// The replacement, in which all strips of the member lie, becomes its cell.
    pub(super) async fn make_home(self: &Rc<Self>, task: Task) -> Result<bool, ArrayError> {
        let member = usize::from(task.member);
        let Some(row) = self.row_of(task) else { return Ok(true) };
        let sound = row.members[member].replacement.filter(|cell| self.drives.is_sound(cell.drive));
        let Some(cell) = sound else { return Ok(true) };
        let record = Record::MemberChanged { row: task.row, member: task.member, cell };
        let mut room = self.log.reserve(self.log.cost(&record), Purpose::Inside).await?;
        self.check_writable()?;
        // What is allocated meanwhile lies in the replacement from the first. So what this has
        // looked at stays as it is.
        if !self.have_moved(task, true).await? {
            return Ok(false);
        }
        // The cell that it had is free once this is durable.
        let pages = self.pages_for(&record).await?;
        if !self.is_still_row(&row, member) {
            return Ok(true);
        }
        self.append(&record, &pages, &mut room);
        self.rebuilding.forget_moved(task.row, task.member);
        self.clear_exceptions(task.row, member).await?;
        Ok(true)
    }

    /// Clears the bits of a member that has no replacement.
    pub(super) async fn clear_exceptions(&self, row: RowId, member: usize) -> Result<(), ArrayError> {
        if self.io.is_disabled(Mutation::StaleBits) {
            return Ok(());
        }
        for slot in self.with_exceptions(row, member).await? {
            let Some(shape) = self.row_shape(slot) else { return Ok(()) };
            let head = self.slot_head(&shape, slot).await?;
            if head.is_free() || head.exceptions >> member & 1 == 0 {
                continue;
            }
            let home = Record::Moved { slot, generation: head.generation, strip: member as u8, replaced: false };
            let mut room = self.log.reserve(self.log.cost(&home), Purpose::Inside).await?;
            self.check_writable()?;
            let pages = self.pages_for(&home).await?;
            // The strip is in the same cell before and after: no lock is needed.
            let is_bare = |row: &Row| row.members.get(member).is_some_and(|of| of.replacement.is_none());
            let is_same = self.row_shape(slot).is_some_and(|now| now.code() == shape.code());
            if !is_same || !self.layout.read().row(row).is_some_and(is_bare) {
                return Ok(());
            }
            self.append(&home, &pages, &mut room);
        }
        Ok(())
    }

    /// Slots of the row whose entries say that the member's strip is in its replacement.
    async fn with_exceptions(&self, row: RowId, member: usize) -> Result<Vec<SlotId>, ArrayError> {
        let slots: Vec<SlotId> =
            (0..self.look(|core| core.space.slots(row))).map(|index| SlotId { row, index }).collect();
        let mut found = Vec::new();
        for turn in slots.chunks(SLOTS_OF_A_TURN) {
            let Some(shape) = turn.first().and_then(|slot| self.row_shape(*slot)) else { break };
            // Pages that are not in memory are read side by side, unless the first fails.
            let page = |slot: &SlotId| Engine::slot_page_id(&shape, *slot).0;
            let mut pages = turn.chunk_by(|one, next| page(one) == page(next)).filter_map(|slots| slots.first());
            if let Some(first) = pages.next() {
                self.slot_head(&shape, *first).await?;
            }
            for read in join_all(pages.map(|slot| self.slot_head(&shape, *slot))).await {
                read?;
            }
            for slot in turn {
                let head = self.slot_head(&shape, *slot).await?;
                if !head.is_free() && head.exceptions >> member & 1 == 1 {
                    found.push(*slot);
                }
            }
            // Where the table is in memory, none of this waits for anything.
            self.io.sleep(Duration(1)).await;
        }
        Ok(found)
    }
}
