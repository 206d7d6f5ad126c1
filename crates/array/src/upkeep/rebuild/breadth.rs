//! How many rows and stripes the rebuild works on at once, and how much may not be lost any
//! further.
//!
//! A row keeps its own drives busy and no others. All drives are to take part, and a rebuild is to
//! be the faster the more drives there are. So several rows are worked on side by side, those first
//! whose drives have the least to do. The rows are always of one urgency: nothing that can wait
//! takes a turn from what cannot. No lane waits for the slowest: a lane that is done with a run
//! takes the next one of its row, and a worker that is done with a row the next row.
//!
//! A run waits for its slowest source, so a drive idles unless it has several to serve: see
//! `ROWS_OF_DRIVE`. While hosts are active runs are shorter, and a drive has one at a time: the
//! others wait for it outside the drive (`runtime::io`).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use futures_util::StreamExt;
use futures_util::future::select;
use futures_util::stream::FuturesUnordered;
use stele_ground::{Duration, VolumeId};

use super::{Done, Need, Placed, Task};
use crate::drives::label::DriveState;
use crate::engine::Engine;
use crate::model::ArrayError;
use crate::model::place::{DriveNumber, RowId, SlotId, StripCell};
use crate::space::layout::{Row, RowClass, RowKind};

/// Rows worked on at once for each drive, and in all. With two the drives of a hard-drive pool are
/// busy half of the time, with eight nearly always (docs/decisions/025-rebuild-by-runs.md).
const ROWS_OF_DRIVE: usize = 8;
const ROWS_MAX: usize = 128;
/// Rows whose strips go to one drive. So at most so many times `RUNS_OF_ROW` writes wait in its
/// line, and a flush that fails is charged to it as often at most.
pub(super) const ROWS_TO_DRIVE: usize = 4;
/// Runs of a row worked on at once: while one is computed and written, the drives read the next.
pub(in crate::upkeep) const RUNS_OF_ROW: usize = 2;
/// Bytes of strips in memory at once for each drive of the pool, at most. In all there are as many
/// as `background_memory` says.
const MEMORY_OF_DRIVE: u64 = 64 << 20;
/// Bytes of a run while hosts are active: a hard drive reads them in the time of a few seeks.
const RUN_BESIDE_HOSTS: u64 = 1 << 20;

/// How long what is not to be in the way of hosts waits, until it looks for them again.
pub(in crate::upkeep) const BESIDE_HOSTS_WAIT: Duration = Duration::from_millis(10);

/// How much is worked on at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::upkeep) struct Breadth {
    /// Rows side by side.
    pub rows: usize,
    /// And while hosts are active.
    pub beside_hosts: usize,
    /// Stripes of a run.
    pub run: u32,
}

/// What all workers of a class of tasks know.
struct Class {
    left: u32,
    need: Need,
    /// Of the rows.
    shape: Option<RowClass>,
    /// Rows that are worked on, and which of their members.
    busy: RefCell<BTreeMap<RowId, Task>>,
    /// Stripes of a run.
    run: u32,
    /// Workers left of those that go on beside hosts.
    steady: Cell<usize>,
    /// Drives that came or went before it was begun.
    changes: u64,
}

/// One pass over the stripes of a row.
struct Pass {
    task: Task,
    to_spare: bool,
    slots: u32,
    next: Cell<u32>,
    /// Stripes of a run.
    run: u32,
    /// Losses of drives that were looked at.
    losses: Cell<u64>,
    placed: Cell<Placed>,
    ended: Cell<bool>,
}

impl Pass {
    /// The row was freed: nothing is left for any lane, nor for those that wait beside hosts.
    fn end_without_row(&self) {
        self.next.set(self.slots);
    }
}

impl Engine {
    /// How much of rows like this one.
    pub(in crate::upkeep) fn breadth(&self, row: RowId) -> Breadth {
        let Some(class) = self.look(|core| core.space.row_class(row)) else {
            return Breadth { rows: 1, beside_hosts: 1, run: 1 };
        };
        let (drives, width, strip) = (self.drives.labels.usable().len(), class.code.width(), class.strip.0.max(1));
        let memory = (MEMORY_OF_DRIVE * drives as u64).min(self.options.background_memory.0);
        // A row has a stripe in each of its runs at least.
        let fit = memory / (RUNS_OF_ROW as u64 * width as u64 * strip);
        let rows = (ROWS_OF_DRIVE * drives / width.max(1)).min(ROWS_MAX).min(fit as usize).max(1);
        let share = memory / (rows * RUNS_OF_ROW * width) as u64;
        let run = (self.options.background_run.0.min(share) / strip).max(1) as u32;
        // A row that is a single run leaves room for another.
        let runs = self.look(|core| core.space.slots(row)).div_ceil(run).clamp(1, RUNS_OF_ROW as u32) as usize;
        Breadth { rows: rows * RUNS_OF_ROW / runs, beside_hosts: rows, run }
    }

    /// Stripes of the row's next run: fewer while hosts are active.
    pub(in crate::upkeep) fn run_now(&self, row: RowId, run: u32) -> u32 {
        let strip = self.look(|core| core.space.row_class(row)).map_or(1, |class| class.strip.0.max(1));
        if self.hosts_wait() { run.min((RUN_BESIDE_HOSTS / strip).max(1) as u32) } else { run }
    }

    /// Carries out tasks as urgent as this until none is left, or drives came or went.
    pub(super) async fn work_side_by_side(self: &Rc<Self>, first: Task, done: &Done) {
        let Breadth { rows, beside_hosts, run } = self.breadth(first.row);
        let changes = self.membership.changes();
        let shape = self.look(|core| core.space.row_class(first.row));
        let steady = Cell::new(beside_hosts);
        let class = Class { left: first.left, need: first.need, shape, busy: RefCell::default(), run, steady, changes };
        let class = &class;
        let worker = |at: usize| async move {
            let is_steady = at < beside_hosts;
            self.work(class, is_steady, done).await;
            if is_steady {
                class.steady.set(class.steady.get() - 1);
            }
        };
        let mut workers: FuturesUnordered<_> = (0..rows).map(worker).collect();
        while workers.next().await.is_some() {}
        if first.need == Need::Leave {
            self.moving.note_drained();
        }
    }

    /// One row after another. A worker that is not steady waits while hosts are active, as long as
    /// others work.
    async fn work(self: &Rc<Self>, class: &Class, is_steady: bool, done: &Done) {
        loop {
            while !is_steady && class.steady.get() > 0 && self.hosts_wait() {
                self.io.sleep(BESIDE_HOSTS_WAIT).await;
            }
            let Some(task) = self.next_task(class, done) else { break };
            class.busy.borrow_mut().insert(task.row, task);
            let result = self.carry_out(task, class.run, done).await;
            class.busy.borrow_mut().remove(&task.row);
            match result {
                Ok(true) => done.insert(task),
                // Until some of the rows that are written to the same drive are done.
                Ok(false) if task.need == Need::Leave && !class.busy.borrow().is_empty() => break,
                Ok(false) => self.io.sleep(Duration::from_millis(5)).await,
                Err(error) => {
                    tracing::warn!(row = task.row.0, "rebuild of a row put off: {error}");
                    done.insert(task);
                    self.note_left(task);
                    self.retry_later(Duration::from_secs(5));
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
        let layout = self.layout.read();
        let mut load: BTreeMap<DriveNumber, usize> = BTreeMap::new();
        for row in busy.keys().filter_map(|row| layout.row(*row)) {
            for cell in cells_of(row) {
                *load.entry(cell.drive).or_default() += 1;
            }
        }
        let crowd = |task: &&Task| {
            let load = |cell: StripCell| load.get(&cell.drive).copied().unwrap_or(0);
            let row = layout.row(task.row);
            // What lost most was the most urgent before.
            let lost =
                row.map_or(0, |row| row.members.iter().filter(|of| !self.drives.is_sound(of.cell.drive)).count());
            let crowd: usize = row.map_or(0, |row| cells_of(row).map(load).map(|load| load * load).sum());
            (std::cmp::Reverse(lost), crowd)
        };
        // Rows of other shapes come after these: how many fit into memory depends on the shape.
        let fits = |task: &&Task| layout.row(task.row).is_some_and(|row| Some(row.class) == class.shape);
        // A drive that is filled is the target of all rows: more at once would only make its line
        // longer, and hosts wait in it.
        let target = |task: &Task| target_of(layout.row(task.row)?, task, |drive| self.drives.index(drive).is_some());
        let mut targets: BTreeMap<DriveNumber, usize> = BTreeMap::new();
        for drive in busy.values().filter_map(target) {
            *targets.entry(drive).or_default() += 1;
        }
        let has_room = |task: &&Task| {
            target(task).is_none_or(|drive| targets.get(&drive).is_none_or(|rows| *rows < ROWS_TO_DRIVE))
        };
        let waiting = tasks.iter().filter(alike).filter(|task| !busy.contains_key(&task.row));
        waiting.filter(fits).filter(has_room).min_by_key(crowd).copied()
    }

    /// Every stripe of the row gets its strip right. `Again` when some could not be at this time,
    /// or other rows are more urgent now: the row stays queued.
    pub(super) async fn for_each_stripe(
        self: &Rc<Self>,
        task: Task,
        to_spare: bool,
        run: u32,
        done: &Done,
    ) -> Result<Placed, ArrayError> {
        let pass = Pass {
            task,
            to_spare,
            slots: self.look(|core| core.space.slots(task.row)),
            next: Cell::new(0),
            run,
            losses: Cell::new(self.membership.lost()),
            placed: Cell::new(Placed::There),
            ended: Cell::new(false),
        };
        let mut lanes: FuturesUnordered<_> = (0..RUNS_OF_ROW).map(|_| self.lane(&pass, done)).collect();
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

    /// One run of the row after another.
    async fn lane(self: &Rc<Self>, pass: &Pass, done: &Done) -> Result<(), ArrayError> {
        let task = pass.task;
        while pass.next.get() < pass.slots && !pass.ended.get() {
            let first = pass.next.get();
            let last = (first + self.run_now(task.row, pass.run)).min(pass.slots);
            pass.next.set(last);
            let mut slots = Vec::new();
            for index in first..last {
                let slot = SlotId { row: task.row, index };
                let Some(shape) = self.row_shape(slot) else {
                    pass.end_without_row();
                    return Ok(());
                };
                if !self.slot_head(&shape, slot).await?.is_free() {
                    slots.push(index);
                }
            }
            let Some(class) = self.look(|core| core.space.row_class(task.row)).filter(|_| !slots.is_empty()) else {
                continue;
            };
            self.serve_promoted().await;
            let bytes = slots.len() as u64 * class.strip.0;
            if !self.wait_for_turn(pass, bytes, done).await? {
                break;
            }
            // What is not plain is done strip by strip.
            for index in self.place_run(task, &slots, pass.to_spare).await? {
                let slot = SlotId { row: task.row, index };
                let Some(shape) = self.row_shape(slot) else {
                    pass.end_without_row();
                    return Ok(());
                };
                let head = self.slot_head(&shape, slot).await?;
                if head.is_free() {
                    continue;
                }
                self.serve_promoted().await;
                if self.is_ended(pass, done) {
                    break;
                }
                let (volume, member) = (VolumeId(head.volume), usize::from(task.member));
                let placed = self.place_strip(volume, head.stripe, slot, member, pass.to_spare).await?;
                pass.placed.set(pass.placed.get().max(placed));
            }
            self.work_of(task.need).advance(bytes);
        }
        Ok(())
    }

    /// Waits until the run may move so many bytes; false when the pass ends instead. Drives that
    /// are lost meanwhile end the wait, which at a low rate may be long: something may be more
    /// urgent now.
    async fn wait_for_turn(&self, pass: &Pass, bytes: u64, done: &Done) -> Result<bool, ArrayError> {
        let at = self.turn(bytes, pass.task.left == 0);
        loop {
            let changed = self.membership.changed();
            self.check_writable()?;
            if self.is_ended(pass, done) {
                return Ok(false);
            }
            if self.io.now() >= at {
                return Ok(true);
            }
            let sleep = self.io.sleep_until(at);
            futures_util::pin_mut!(sleep, changed);
            select(sleep, changed).await;
        }
    }

    /// The pass has ended; so it does when drives were lost since, and something has less
    /// redundancy left than its row had.
    fn is_ended(&self, pass: &Pass, done: &Done) -> bool {
        let losses = self.membership.lost();
        let is_overtaken = !pass.ended.get()
            && pass.losses.replace(losses) != losses
            && self.tasks(done).0.first().is_some_and(|first| first.left < pass.task.left);
        if is_overtaken {
            pass.placed.set(Placed::Again);
            pass.ended.set(true);
        }
        pass.ended.get()
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

    /// The member's drive is given up, and no spare cell is chosen for it.
    pub(super) fn needs_spare(&self, row: RowId, member: u8) -> bool {
        let layout = self.layout.read();
        let member = layout.row(row).and_then(|row| row.members.get(usize::from(member)));
        member.is_some_and(|member| member.replacement.is_none() && self.is_given_up(member.cell.drive).0)
    }

    /// Stripes whose strips of a lost drive no spare cell is left for.
    pub fn stripes_without_spare(&self) -> u64 {
        let rows = self.losses_seen.rows_without_spare(|row, member| self.needs_spare(row, member));
        rows.into_iter().map(|row| u64::from(self.look(|core| core.space.used(row)))).sum()
    }

    /// How many strips of the row's stripes count as lost, if `lost` drives were: a spare cell
    /// stands for the other once all have moved to it.
    pub fn strips_without(&self, row: &Row, lost: impl Fn(DriveNumber) -> bool) -> usize {
        let gone = |cell: StripCell| lost(cell.drive) || !self.drives.is_sound(cell.drive);
        let members = row.members.iter().enumerate().filter(|(at, member)| match member.replacement {
            Some(spare) if self.rebuilding.has_moved(row.id, *at as u8) => gone(member.cell) && gone(spare),
            // Some strips are in the one cell, and some in the other.
            spare => gone(member.cell) || spare.is_some_and(gone),
        });
        members.count()
    }

    /// Stripes that have a slot; and of them those that may lose no further strip without loss of
    /// data.
    pub fn exposure(&self) -> (u64, u64) {
        let classes: Vec<(RowClass, u64)> = self.look(|core| core.space.stripes().collect());
        let all = classes.iter().map(|(_, stripes)| stripes).sum();
        let configuration = self.drives.labels.configuration();
        let holds = |state| !matches!(state, DriveState::Retired | DriveState::Joining);
        let mut drives = configuration.drives.iter().zip(0..).filter(|(entry, _)| holds(entry.state));
        if drives.all(|(_, at)| self.drives.is_sound(DriveNumber(at))) {
            // No row lacks a strip: there is no need to look at hundreds of thousands.
            let bare = classes.iter().filter(|(class, _)| class.code.tolerates() == 0);
            return (all, bare.map(|(_, stripes)| stripes).sum());
        }
        let layout = self.layout.read();
        let exposed = |row: &&Row| self.strips_without(row, |_| false) >= row.class.code.tolerates();
        let rows = layout.rows().filter(|row| row.class.kind == RowKind::Data);
        (all, rows.filter(exposed).map(|row| u64::from(self.look(|core| core.space.used(row.id)))).sum())
    }
}

/// The drive that strips of the task are written to, where it is known.
fn target_of(row: &Row, task: &Task, is_here: impl Fn(DriveNumber) -> bool) -> Option<DriveNumber> {
    let member = row.members.get(usize::from(task.member))?;
    match task.need {
        Need::Fill if is_here(member.cell.drive) => Some(member.cell.drive),
        Need::Fill | Need::Spare | Need::Leave => member.replacement.map(|cell| cell.drive),
    }
}

/// Where the strips of a row's stripes may lie.
fn cells_of(row: &Row) -> impl Iterator<Item = StripCell> + '_ {
    row.members.iter().flat_map(|member| [Some(member.cell), member.replacement]).flatten()
}

#[cfg(test)]
mod tests;
