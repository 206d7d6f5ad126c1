//! Rebuild into distributed spare space, and the way back.
//!
//! Where a row's member lies on a drive that is gone, the row gets a replacement cell from the
//! spare space. Its strips move there one by one: reconstructed from verified strips, compared with
//! their digests, written, flushed, and only then recorded as moved. A drive that comes back, or is
//! put in another's place, is filled. Strips that never moved are verified where they should be,
//! and written again if they are not what they should be. Moved ones are copied back, and the spare
//! space is released. Where a drive leaves, the spare cell becomes the member's (`drain.rs`). The
//! stripes with the least redundancy left come first, then the order on disk; what hosts read in
//! the meantime comes before all. Hosts are protected by a token bucket, with a floor where nothing
//! more may be lost.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use stele_ground::{Duration, Instant};

use crate::drives::label::DriveState;
use crate::durable::log::Purpose;
use crate::durable::records::Record;
use crate::engine::Engine;
use crate::formats::map::Home;
use crate::model::mutation::Mutation;
use crate::model::place::{DriveNumber, RowId, StripCell, StripeKey};
use crate::model::{AlarmKind, ArrayError, Severity};
use crate::space::layout::{Member, Row};
use crate::state::work::Ongoing;

mod breadth;
mod drain;
mod home;
mod leave;
mod place;
mod run;

pub(in crate::upkeep) use breadth::{BESIDE_HOSTS_WAIT, RUNS_OF_ROW};
use leave::Leave;

/// Bytes a second while hosts are active, where nothing else was said.
const RATE_WITH_HOSTS: u64 = 128 << 20;
/// Bytes a second for stripes that may not lose another strip, whatever hosts do.
const RATE_FLOOR: u64 = 64 << 20;

/// What a member of a row needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Need {
    /// Its drive is gone: move its strips into spare space.
    Spare,
    /// Its drive is here and has gaps: fill them, and copy back what had moved.
    Fill,
    /// Its drive is here and leaves: its strips move to a cell that becomes the member's.
    Leave,
}

/// A member of a row that needs work, most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Task {
    /// Strips the stripes of the row may still lose.
    left: u32,
    need: Need,
    row: RowId,
    member: u8,
}

/// Stripes that hosts wait for, before each run.
const PROMOTED_AT_ONCE: usize = 2;

/// What a filled drive lacks of the pool's tables is written again after so long.
const TABLES_AGAIN: Duration = Duration::from_secs(60);

/// What came of bringing a strip to where it belongs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Placed {
    /// It is there, or listed as lost.
    There,
    /// Only drives that are away can tell what it is.
    Waits,
    /// To be tried again.
    Again,
}

/// Tasks that are done since the round began.
#[derive(Default)]
struct Done(RefCell<BTreeSet<(RowId, u8, Need, u32)>>);

impl Done {
    fn insert(&self, task: Task) {
        self.0.borrow_mut().insert((task.row, task.member, task.need, task.left));
    }

    fn contains(&self, task: Task) -> bool {
        self.0.borrow().contains(&(task.row, task.member, task.need, task.left))
    }

    /// All strips of the member have moved to its spare cell.
    fn has_moved(&self, row: RowId, member: usize) -> bool {
        let of = |left| (row, member as u8, Need::Spare, left);
        self.0.borrow().range(of(0)..=of(u32::MAX)).next().is_some()
    }

    fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}

/// What was known of drives when the flow began to look at all of them.
struct Round {
    changes: u64,
    present: Vec<DriveNumber>,
}

impl Engine {
    /// Waits until background work may move so many bytes.
    pub async fn throttle(&self, bytes: u64, critical: bool) {
        let at = self.turn(bytes, critical);
        self.io.sleep_until(at).await;
    }

    /// When background work may move so many bytes, which are charged now.
    fn turn(&self, bytes: u64, critical: bool) -> Instant {
        let now = self.io.now();
        let rate = match (self.options.background_rate, self.hosts_wait()) {
            (_, false) => return now,
            (Some(rate), true) => rate.0,
            (None, true) => RATE_WITH_HOSTS,
        };
        if self.io.is_disabled(Mutation::Throttle) {
            return now;
        }
        let of = &self.rebuilding;
        if !critical {
            return of.bucket.take(bytes, rate, now);
        }
        // Its own bucket: what other work has taken, perhaps minutes of a low rate, is not waited
        // for. That work waits for it.
        let rate = rate.max(RATE_FLOOR);
        of.bucket.take(bytes, rate, now);
        of.critical.take(bytes, rate, now)
    }

    /// Runs for the pool's life.
    pub async fn rebuild_flow(self: Rc<Self>) {
        let done = Done::default();
        let gone = RefCell::default();
        // One at most. Moving the table's pages takes long in a large pool, and strips do not wait
        // for it.
        let mut evacuation = FuturesUnordered::new();
        // Since the round began: what failed early in it may succeed with a drive that returned
        // before its end.
        let mut round = self.begin_round();
        let changed = self.membership.changed();
        futures_util::pin_mut!(changed);
        'rounds: loop {
            if self.check_writable().is_err() {
                while evacuation.next().await.is_some() {}
                return;
            }
            if evacuation.is_empty() {
                evacuation.push(self.evacuate_tables(&gone));
            }
            let (tasks, wait) = self.tasks(&done);
            let Some(first) = tasks.first() else {
                let changes = self.membership.changes();
                while evacuation.next().await.is_some() {}
                // Off drives that were lost since it began.
                self.evacuate_tables(&gone).await;
                if self.membership.changes() != changes {
                    continue;
                }
                self.finish_rebuild(&done, &round).await;
                match wait {
                    Some(at) => {
                        let sleep = self.io.sleep_until(at);
                        futures_util::pin_mut!(sleep);
                        select(sleep, changed.as_mut()).await;
                    }
                    None => changed.as_mut().await,
                }
                round = self.begin_round();
                changed.set(self.membership.changed());
                done.clear();
                continue;
            };
            // Ends when no row is left that is as urgent, or when drives came or went: what matters
            // most may have changed.
            let work = self.work_side_by_side(*first, &done);
            futures_util::pin_mut!(work);
            while !evacuation.is_empty() {
                if let Either::Left(_) = select(work.as_mut(), evacuation.next()).await {
                    continue 'rounds;
                }
            }
            work.await;
        }
    }

    /// Begins a round again after a while: one for all rows that failed.
    fn retry_later(&self, after: Duration) {
        let at = self.io.now() + after;
        if let Some(engine) = self.weak.upgrade()
            && self.rebuilding.plan_retry(at)
        {
            self.io.spawn(async move {
                engine.io.sleep_until(at).await;
                engine.rebuilding.begin_retry();
                engine.membership.note_change();
            });
        }
    }

    /// The table's own strips leave drives that are lost.
    async fn evacuate_tables(&self, gone: &RefCell<BTreeSet<DriveNumber>>) {
        let count = self.drives.labels.configuration().drives.len();
        for at in 0..count {
            let drive = DriveNumber(at as u16);
            if !self.is_given_up(drive).0 {
                gone.borrow_mut().remove(&drive);
                continue;
            }
            let is_new = gone.borrow_mut().insert(drive);
            if is_new && let Err(error) = self.table.evacuate(drive).await {
                tracing::warn!("the table could not leave {drive}: {error}");
                gone.borrow_mut().remove(&drive);
            }
        }
    }

    /// Whether strips of the drive are to be rebuilt elsewhere now, or else from when on.
    fn is_given_up(&self, drive: DriveNumber) -> (bool, Option<Instant>) {
        let state = self.drive_state(drive);
        if self.drives.index(drive).is_some() && state.votes() {
            return (false, None);
        }
        if state == DriveState::Failed {
            return (true, None);
        }
        let since = self.drives.seen(drive).missing_since.unwrap_or_default();
        let from = since + self.options.rebuild_after;
        (self.io.now() >= from, Some(from))
    }

    /// All members that need work and are not `done`, most urgent first; and when more may.
    fn tasks(&self, done: &Done) -> (Vec<Task>, Option<Instant>) {
        let count = self.drives.labels.configuration().drives.len();
        let mut wait: Option<Instant> = None;
        let mut given_up = BTreeSet::new();
        let mut filling = BTreeSet::new();
        let mut unsound = BTreeSet::new();
        for at in 0..count {
            let drive = DriveNumber(at as u16);
            let (gone, from) = self.is_given_up(drive);
            if gone {
                given_up.insert(drive);
            } else if let Some(from) = from {
                wait = Some(wait.map_or(from, |earlier| earlier.min(from)));
            }
            // What a drive that was never away missed is known, and mended by itself (see
            // `missed.rs`).
            if self.drives.index(drive).is_some() && self.drives.seen(drive).stale {
                filling.insert(drive);
            }
            if !self.drives.is_sound(drive) {
                unsound.insert(drive);
            }
        }
        let mut tasks = Vec::new();
        let leaving = self.leaving();
        let layout = self.layout.read();
        for row in layout.rows().filter(|row| self.look(|core| core.space.row_class(row.id)).is_some()) {
            // A member whose strips have all moved to a sound drive is as good as any other.
            let bad = |cell: &StripCell| unsound.contains(&cell.drive);
            let moved =
                |at: usize| row.members[at].replacement.is_some_and(|cell| !bad(&cell)) && done.has_moved(row.id, at);
            let lacks = |member: &Member| bad(&member.cell) || member.replacement.is_some_and(|cell| bad(&cell));
            let weak = row.members.iter().enumerate().filter(|(at, member)| lacks(member) && !moved(*at)).count();
            let leaves = |member: &Member| leaving.contains(&member.cell.drive);
            if weak == 0 && row.members.iter().all(|member| member.replacement.is_none() && !leaves(member)) {
                continue;
            }
            let tolerates = row.class.code.tolerates() as u32;
            let left = tolerates.saturating_sub(weak as u32);
            // Among equals, what lost most: those were the most urgent before.
            let lost = row.members.iter().filter(|member| bad(&member.cell)).count();
            for (at, member) in row.members.iter().enumerate() {
                let spare = member.replacement.map(|cell| cell.drive);
                let need = if given_up.contains(&member.cell.drive) {
                    if spare.is_some_and(|drive| self.drives.index(drive).is_none() && !given_up.contains(&drive)) {
                        // Until the spare cell's drive is back, or given up too, there is nowhere
                        // to move to.
                        self.rebuilding.wait_for_spare();
                        continue;
                    }
                    Need::Spare
                } else if let Some(drains) = self.drains(row, at, &leaving) {
                    // What it cannot move moves with its whole stripes.
                    if !drains {
                        continue;
                    }
                    Need::Leave
                } else if filling.contains(&member.cell.drive)
                    || spare.is_some_and(|drive| filling.contains(&drive))
                    || spare.is_some() && self.drives.index(member.cell.drive).is_some()
                {
                    // The last: its drive was declared whole, and a crash kept the spare cell from
                    // being released.
                    Need::Fill
                } else {
                    continue;
                };
                // A strip that leaves a sound drive makes no stripe safer: it comes after all else.
                let left = if need == Need::Leave && !bad(&member.cell) { u32::MAX } else { left };
                let task = Task { left, need, row: row.id, member: at as u8 };
                let is_done = done.contains(task) || need == Need::Spare && moved(at);
                tasks.extend((!is_done).then_some((std::cmp::Reverse(lost), task)));
            }
        }
        match self.io.is_disabled(Mutation::UrgentFirst) {
            true => tasks.sort_unstable_by_key(|(_, task)| (task.row, task.member)),
            false => tasks.sort_unstable_by_key(|(lost, task)| (task.left, *lost, *task)),
        }
        (tasks.into_iter().map(|(_, task)| task).collect(), wait)
    }

    fn note_work(&self, tasks: &[Task]) {
        let bytes = |need: Need| -> u64 {
            let strips = tasks.iter().filter(|task| task.need == need);
            strips
                .filter_map(|task| {
                    let class = self.look(|core| core.space.row_class(task.row))?;
                    Some(u64::from(self.look(|core| core.space.used(task.row))) * class.strip.0)
                })
                .sum()
        };
        for need in [Need::Spare, Need::Fill, Need::Leave] {
            let left = bytes(need);
            if left > 0 {
                self.work_of(need).expect(left, self.io.now());
            }
        }
    }

    fn work_of(&self, need: Need) -> &Ongoing {
        match need {
            Need::Spare => &self.rebuilding.work,
            Need::Fill => &self.rebuilding.copy_back,
            Need::Leave => &self.moving.work,
        }
    }

    fn begin_round(&self) -> Round {
        let count = self.drives.labels.configuration().drives.len();
        let drives = (0..count).map(|at| DriveNumber(at as u16));
        self.rebuilding.begin_to_drain();
        let present = drives.filter(|drive| self.drives.index(*drive).is_some()).collect();
        Round { changes: self.membership.changes(), present }
    }

    /// Nothing is left to do: says so, and makes filled drives full members again.
    async fn finish_rebuild(self: &Rc<Self>, done: &Done, round: &Round) {
        let (undone, failed) = self.rebuilding.end_round(|row, member, home| self.home_cell(row, member) == Some(home));
        let unfilled = self.drives_of(&undone);
        if let Some(done) = self.rebuilding.work.end()
            && !failed
        {
            self.alarm(
                AlarmKind::RebuildFinished,
                Severity::Notice,
                None,
                format!("rebuild into spare space finished: {}", stele_ground::Bytes(done)),
            );
        }
        self.rebuilding.copy_back.end();
        let mut filled = 0;
        // What has no spare cell keeps no other drive from counting again: it may be what the
        // operator waits for.
        for drive in round.present.iter().copied().filter(|drive| !unfilled.contains(drive)) {
            let stale = self.drives.index(drive).is_some() && self.drives.seen(drive).stale;
            if stale && !self.drives.has_missed(drive) && self.drive_state(drive).votes() {
                let mut go_on = |_: u64, _: u64| true;
                let whole = self.table.scrub(&mut go_on).await.is_ok();
                // What has come since the round began was not looked at in it.
                if self.membership.changes() != round.changes + filled {
                    return;
                }
                if whole && self.filled(drive).await.is_ok() {
                    // It says so itself.
                    filled += 1;
                    done.clear();
                } else {
                    self.retry_later(TABLES_AGAIN);
                }
            }
        }
        if failed {
            return;
        }
        if let Err(error) = self.widen_tables().await {
            tracing::warn!("the pool's tables could not be put on more drives: {error}");
        }
    }

    /// Something of the member is neither in its spare cell nor at home as it should be.
    fn note_undone(&self, row: RowId, member: u8) {
        if let Some(home) = self.home_cell(row, member) {
            self.rebuilding.note_undone(row, member, home);
        }
    }

    /// The task came to nothing.
    fn note_left(&self, task: Task) {
        match task.need {
            Need::Leave => self.rebuilding.note_undrained(task.row, task.member),
            Need::Spare | Need::Fill => self.note_undone(task.row, task.member),
        }
    }

    async fn carry_out(self: &Rc<Self>, task: Task, run: u32, done: &Done) -> Result<bool, ArrayError> {
        self.serve_promoted().await;
        match task.need {
            Need::Spare => self.move_to_spare(task, run, done).await,
            Need::Fill => self.fill(task, run, done).await,
            Need::Leave => self.drain(task, run, done).await,
        }
    }

    fn home_cell(&self, row: RowId, member: u8) -> Option<StripCell> {
        Some(self.layout.read().row(row)?.members.get(usize::from(member))?.cell)
    }

    fn row(&self, row: RowId) -> Option<Row> {
        self.layout.read().row(row).cloned()
    }

    /// The row of a task. None when it is gone: its number may be that of a narrower row by now,
    /// which lacks the member.
    fn row_of(&self, task: Task) -> Option<Row> {
        self.row(task.row).filter(|row| usize::from(task.member) < row.members.len())
    }

    /// Whether the row is the one that was read, with the same spare cell for the member. Its
    /// stripes may have moved elsewhere meanwhile, and its number may be that of another row, also
    /// of the tables, or of none.
    fn is_still_row(&self, read: &Row, member: usize) -> bool {
        let layout = self.layout.read();
        layout.row(read.id).is_some_and(|now| {
            let cells = |row: &Row| row.members.iter().map(|member| member.cell).collect::<Vec<_>>();
            now.class == read.class
                && cells(now) == cells(read)
                && now.members[member].replacement == read.members[member].replacement
        })
    }

    /// Strips of a lost member go to its replacement, which is chosen first where there is none.
    async fn move_to_spare(self: &Rc<Self>, task: Task, run: u32, done: &Done) -> Result<bool, ArrayError> {
        let member = usize::from(task.member);
        let Some(row) = self.row_of(task) else { return Ok(true) };
        let spare = row.members[member].replacement;
        let (has, left) = match spare {
            None => (false, Leave::Done),
            Some(cell) if self.is_given_up(cell.drive).0 => (false, self.leave_spare(task, &row).await?),
            Some(_) => (true, Leave::Done),
        };
        if left == Leave::Again {
            return Ok(false);
        }
        if left == Leave::Needed || !has && !self.choose_replacement(row, member, task.need).await? {
            self.note_left(task);
            return Ok(true);
        }
        let placed = self.for_each_stripe(task, true, run, done).await?;
        if placed == Placed::There {
            self.note_moved(task);
            let home = self.home_cell(task.row, task.member);
            if home.is_some_and(|home| self.leaving().contains(&home.drive)) {
                return self.make_home(task).await;
            }
        }
        Ok(placed != Placed::Again)
    }

    /// False when the spare space has no cell for the member.
    async fn choose_replacement(&self, mut row: Row, member: usize, need: Need) -> Result<bool, ArrayError> {
        row.members[member].replacement = None;
        self.clear_exceptions(row.id, member).await?;
        let sound = |drive: DriveNumber| self.drives.is_sound(drive);
        self.take_back_cells();
        let cost = self.log.cost_of(64);
        let mut reservation = self.log.reserve(cost, Purpose::Inside).await?;
        self.check_writable()?;
        let place = Record::Replacement { row: row.id, member: member as u8, cell: None };
        let pages = self.pages_for(&place).await?;
        let choose = || match need {
            Need::Leave => self.layout.read().choose_home(row.id, member, &sound),
            Need::Spare | Need::Fill => self.layout.read().choose_spare(row.id, member, &sound),
        };
        if choose().is_none()
            && let Some(lsn) = self.take_back_cells()
        {
            // Cells that rows gave up are free when their records are durable.
            self.log.durable(lsn).await?;
            self.take_back_cells();
        }
        // Not where strips may lie in a spare cell (invariant 13).
        if !self.is_still_row(&row, member) {
            return Ok(true);
        }
        let Some(cell) = choose() else {
            let needs = |row, member| self.needs_spare(row, member);
            if need != Need::Leave && self.losses_seen.lack_spare(row.id, member as u8, needs) {
                self.alarm(
                    AlarmKind::SpareExhausted,
                    Severity::Critical,
                    None,
                    format!("no spare cell is left for strips of row {}; replace lost drives", row.id.0),
                );
            }
            return Ok(false);
        };
        let Some(row) = self.row(row.id) else { return Ok(true) };
        let distinct = row.members.iter().enumerate().all(|(at, other)| {
            at == member
                || other.cell.drive != cell.drive && other.replacement.is_none_or(|spare| spare.drive != cell.drive)
        });
        assert!(distinct, "invariant 12: a spare lies on a drive of its own");
        let record = Record::Replacement { row: row.id, member: member as u8, cell: Some(cell) };
        self.append(&record, &pages, &mut reservation);
        self.rebuilding.forget_moved(row.id, member as u8);
        self.losses_seen.has_spare(row.id, member as u8);
        Ok(true)
    }

    /// The member's home drive is here: verifies what should be there, copies back what moved, and
    /// releases the spare.
    async fn fill(self: &Rc<Self>, task: Task, run: u32, done: &Done) -> Result<bool, ArrayError> {
        let member = usize::from(task.member);
        let Some(row) = self.row_of(task) else { return Ok(true) };
        let home_here = self.drives.index(row.members[member].cell.drive).is_some();
        let placed = self.for_each_stripe(task, !home_here, run, done).await?;
        if placed != Placed::There || !home_here || row.members[member].replacement.is_none() {
            // What waits for drives that are away is looked at again when one comes.
            return Ok(placed != Placed::Again);
        }
        self.release_spare(task, &row).await
    }

    /// Stripes that hosts had to have reconstructed come first, a few before each run. A single
    /// strip takes the drives as many commands as a run of its neighbours. With hosts that read
    /// everywhere nothing else would be restored.
    async fn serve_promoted(self: &Rc<Self>) {
        for _ in 0..PROMOTED_AT_ONCE {
            let next = self.rebuilding.next_promoted();
            let Some(key) = next.filter(|_| !self.io.is_disabled(Mutation::Promotion)) else { return };
            let _ = self.promote(key).await;
        }
    }

    async fn promote(self: &Rc<Self>, key: StripeKey) -> Result<(), ArrayError> {
        let Home::Slot(slot) = self.home(key).await? else { return Ok(()) };
        let Some(row) = self.row(slot.row) else { return Ok(()) };
        for (member, record) in row.members.iter().enumerate() {
            let usable = record.replacement.is_some_and(|cell| self.drives.index(cell.drive).is_some());
            if self.is_given_up(record.cell.drive).0 && usable {
                self.place_strip(key.volume, key.stripe, slot, member, true).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
