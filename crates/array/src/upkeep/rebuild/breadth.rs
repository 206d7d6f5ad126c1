//! How many rows and stripes the rebuild works on at once, and how much may not be lost any further.
//!
//! A row keeps its own drives busy and no others: for all drives to take part, and for a rebuild to be the faster the more
//! drives there are, several rows are worked on side by side, and several stripes of each. The rows are always of one
//! urgency: nothing that can wait takes a turn from what cannot. Nobody waits for the slowest: who is done with a
//! stripe takes the next one of its row, and who is done with a row the next row.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use stele_ground::{Duration, VolumeId};

use super::{Done, Need, Placed, Task};
use crate::engine::Engine;
use crate::model::ArrayError;
use crate::model::place::{DriveNumber, RowId, SlotId, StripCell};
use crate::space::layout::{Row, RowKind};

/// Rows worked on at once, at most.
const ROWS_MAX: usize = 32;
/// Stripes worked on at once in a pool of few drives; in larger ones three for two drives, so that each drive has a
/// dozen requests to choose among. More would only keep urgent work waiting behind them.
pub(super) const STRIPES_MIN: usize = 16;
/// Bytes of strips in memory at once, at most.
const BYTES_MAX: u64 = 256 << 20;

/// What all workers of a class of tasks know.
struct Class {
    left: u32,
    need: Need,
    /// Rows that are worked on.
    busy: RefCell<BTreeSet<RowId>>,
    /// Stripes of a row at once.
    lanes: usize,
    /// Drives that came or went before it was begun.
    changes: u64,
}

/// One pass over the stripes of a row.
struct Pass {
    task: Task,
    to_spare: bool,
    slots: u32,
    next: Cell<u32>,
    /// Losses of drives that were looked at.
    losses: Cell<u64>,
    placed: Cell<Placed>,
    ended: Cell<bool>,
}

impl Engine {
    /// Rows side by side, and stripes of each.
    fn breadth(&self, row: RowId) -> (usize, usize) {
        let Some(class) = self.look(|core| core.space.row_class(row)) else { return (1, 1) };
        let (drives, width) = (self.drives.labels.usable().len(), class.code.width());
        let fit = (BYTES_MAX / (class.strip.0 * width as u64).max(1)) as usize;
        let stripes = (drives * 3 / 2).max(STRIPES_MIN).min(fit.max(1));
        // Twice as many rows as fit side by side: their drives are chosen by nobody, and leave some idle otherwise.
        let rows = (2 * drives / width.max(1)).clamp(1, ROWS_MAX).min(stripes);
        (rows, stripes / rows)
    }

    /// Carries out tasks as urgent as this until none is left, or drives came or went.
    pub(super) async fn work_side_by_side(self: &Rc<Self>, first: Task, done: &Done) {
        let (rows, lanes) = self.breadth(first.row);
        let changes = self.membership.changes();
        let class = Class { left: first.left, need: first.need, busy: RefCell::default(), lanes, changes };
        let mut workers: FuturesUnordered<_> = (0..rows).map(|_| self.work(&class, done)).collect();
        while workers.next().await.is_some() {}
    }

    async fn work(self: &Rc<Self>, class: &Class, done: &Done) {
        while let Some(task) = self.next_task(class, done) {
            class.busy.borrow_mut().insert(task.row);
            let result = self.carry_out(task, class.lanes, done).await;
            class.busy.borrow_mut().remove(&task.row);
            match result {
                Ok(true) => done.insert(task),
                Ok(false) => self.io.sleep(Duration::from_millis(5)).await,
                Err(error) => {
                    tracing::warn!(row = task.row.0, "rebuild of a row put off: {error}");
                    done.insert(task);
                    self.rebuilding.note_undone(task.row, task.member);
                    self.retry_later();
                }
            }
        }
    }

    fn next_task(&self, class: &Class, done: &Done) -> Option<Task> {
        let is_open = self.check_writable().is_ok() && self.membership.changes() == class.changes;
        let tasks = if is_open { self.tasks(done).0 } else { Vec::new() };
        let alike = |task: &&Task| (task.left, task.need) == (class.left, class.need);
        // Something more urgent ends the class.
        tasks.first().filter(alike)?;
        self.note_work(&tasks);
        let busy = class.busy.borrow();
        tasks.iter().filter(alike).find(|task| !busy.contains(&task.row)).copied()
    }

    /// Every stripe of the row gets its strip right. `Again` when some could not be at this time, or other rows are more
    /// urgent now: the row stays queued.
    pub(super) async fn for_each_stripe(
        self: &Rc<Self>,
        task: Task,
        to_spare: bool,
        lanes: usize,
        done: &Done,
    ) -> Result<Placed, ArrayError> {
        let pass = Pass {
            task,
            to_spare,
            slots: self.look(|core| core.space.slots(task.row)),
            next: Cell::new(0),
            losses: Cell::new(self.membership.lost()),
            placed: Cell::new(Placed::There),
            ended: Cell::new(false),
        };
        let mut lanes: FuturesUnordered<_> = (0..lanes).map(|_| self.lane(&pass, done)).collect();
        let mut result = Ok(());
        // What is under way in the other lanes is waited for.
        while let Some(ended) = lanes.next().await {
            if ended.is_err() {
                pass.ended.set(true);
                result = result.and(ended);
            }
        }
        result.map(|()| pass.placed.get())
    }

    /// One stripe of the row after another.
    async fn lane(self: &Rc<Self>, pass: &Pass, done: &Done) -> Result<(), ArrayError> {
        let task = pass.task;
        while pass.next.get() < pass.slots && !pass.ended.get() {
            let slot = SlotId { row: task.row, index: pass.next.replace(pass.next.get() + 1) };
            let Some(shape) = self.row_shape(slot) else { return Ok(()) };
            let head = self.slot_head(&shape, slot).await?;
            if head.is_free() {
                continue;
            }
            self.serve_promoted().await;
            self.throttle(shape.strip as u64, task.left == 0).await;
            self.check_writable()?;
            if pass.ended.get() {
                break;
            }
            if self.is_overtaken(pass, done) {
                pass.placed.set(Placed::Again);
                pass.ended.set(true);
                break;
            }
            let member = usize::from(task.member);
            let placed = self.place_strip(VolumeId(head.volume), head.stripe, slot, member, pass.to_spare).await?;
            pass.placed.set(pass.placed.get().max(placed));
            let of = &self.rebuilding;
            let work = if task.need == Need::Spare { &of.work } else { &of.copy_back };
            work.advance(shape.strip as u64);
        }
        Ok(())
    }

    /// Drives were lost since, and something else has less redundancy left than the task's row.
    fn is_overtaken(&self, pass: &Pass, done: &Done) -> bool {
        let (task, losses) = (pass.task, self.membership.lost());
        pass.losses.replace(losses) != losses
            && self.tasks(done).0.first().is_some_and(|first| first.left < task.left && first.row != task.row)
    }

    /// Drives that lack something of these members.
    pub(super) fn drives_of(&self, members: &BTreeSet<(RowId, u8)>) -> BTreeSet<DriveNumber> {
        let layout = self.layout.read();
        let members = members.iter().filter_map(|(row, at)| layout.row(*row)?.members.get(usize::from(*at)));
        members.flat_map(|member| [Some(member.cell), member.replacement]).flatten().map(|cell| cell.drive).collect()
    }

    /// All strips of the member are where they should be.
    pub(super) fn note_moved(&self, task: Task) {
        if task.need == Need::Spare {
            self.rebuilding.note_moved(task.row, task.member);
        }
    }

    /// Stripes whose strips of a lost drive no spare cell is left for.
    pub fn stripes_without_spare(&self) -> u64 {
        let layout = self.layout.read();
        let rows = self.losses_seen.rows_without_spare(|row, member| {
            let member = layout.row(row).and_then(|row| row.members.get(usize::from(member)));
            member.is_some_and(|member| member.replacement.is_none() && self.is_given_up(member.cell.drive).0)
        });
        rows.into_iter().map(|row| u64::from(self.look(|core| core.space.used(row)))).sum()
    }

    /// How many strips of the row's stripes count as lost, if `lost` drives were: a spare cell counts once all have moved to it.
    pub fn strips_without(&self, row: &Row, lost: impl Fn(DriveNumber) -> bool) -> usize {
        let gone = |cell: StripCell| lost(cell.drive) || !self.drives.is_sound(cell.drive);
        let members = row.members.iter().enumerate().filter(|(at, member)| {
            let spare = member.replacement.filter(|_| self.rebuilding.has_moved(row.id, *at as u8));
            gone(member.cell) && spare.is_none_or(gone)
        });
        members.count()
    }

    /// Stripes that have a slot; and of them those that may lose no further strip without loss of data.
    pub fn exposure(&self) -> (u64, u64) {
        let layout = self.layout.read();
        let exposed = |row: &Row| self.strips_without(row, |_| false) >= row.class.code.tolerates();
        let rows = layout.rows().filter(|row| row.class.kind == RowKind::Data);
        rows.fold((0, 0), |(all, critical), row| {
            let used = u64::from(self.look(|core| core.space.used(row.id)));
            (all + used, critical + if exposed(row) { used } else { 0 })
        })
    }
}
