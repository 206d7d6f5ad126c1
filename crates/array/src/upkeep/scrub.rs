//! The scrub: reads and verifies every strip of every slot, parity included, past every cache.
//! Beside them it does so with the log on its members, the table and its anchors on all replicas,
//! and the labels. It has repaired what can be. One pass in 14 days unless an operator asks, and
//! once more an hour after a pass that found damage.
//!
//! The pool reads no calendar: what counts is the time it was open since the last whole pass began.
//! That and the place of a pass under way are in every checkpoint (and one is written every day for
//! that alone), so that a server that is often started again still gets round.
//!
//! A hard drive that is asked for one strip after another spends most of its time on seeks. So the
//! scrub reads runs (see `stripe/run.rs`) of several rows at once, without locks; only a stripe in
//! which anything is amiss is looked at again under its lock. It takes no drive from a rebuild:
//! beside one it reads single stripes, one after another.

use std::cell::Cell;
use std::rc::Rc;

use futures_util::StreamExt;
use futures_util::future::{join, join4};
use futures_util::stream::{self, FuturesUnordered};
use stele_codes::Strips;
use stele_ground::{Duration, VolumeId};
use stele_media::{Buffer, Priority, Shared};

use crate::engine::Engine;
use crate::model::place::{RowId, SlotId};
use crate::model::{AlarmKind, ArrayError, Scrubbed, Severity};
use crate::runtime::sync::Mutex;
use crate::stripe::Stripe;
use crate::stripe::repair::Healed;
use crate::stripe::run::Pictured;
use crate::upkeep::rebuild::{BESIDE_HOSTS_WAIT, RUNS_OF_ROW};

/// A pass begins when the pool was open this long since the one before began.
const PERIOD: Duration = Duration::from_secs(14 * 24 * 3600);
/// And once more so long after one that found damage.
const AGAIN: Duration = Duration::from_secs(3600);
/// How often the age of the last pass is stored at least.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Stripes of a run that are looked at under their locks at once.
const HEALED_AT_ONCE: usize = 8;

/// What the rows of a pass share.
#[derive(Default)]
struct Pass {
    stopped: Cell<bool>,
    /// Runs that are under way, and how many of them hosts may meet.
    runs: Cell<usize>,
    beside_hosts: usize,
    /// Held while a run waits for its turn, and beside a rebuild until it is done. So at most one
    /// run has bytes of the rate that it has not moved, and at most one is in the way of a rebuild.
    turn: Mutex,
}

/// A run that is under way.
struct UnderWay<'a>(&'a Cell<usize>);

impl<'a> UnderWay<'a> {
    fn new(runs: &'a Cell<usize>) -> UnderWay<'a> {
        runs.set(runs.get() + 1);
        UnderWay(runs)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Passes over one row, a run after another.
struct RowPass {
    row: RowId,
    slots: u32,
    /// Stripes of a run.
    run: u32,
    next: Cell<u32>,
}

impl RowPass {
    /// The row was freed: nothing is left for any lane, nor for those that wait beside hosts.
    fn end_without_row(&self) {
        self.next.set(self.slots);
    }
}

impl Engine {
    /// Open time since the last whole pass began.
    pub fn scrub_age(&self) -> Duration {
        let (at, age) = self.scrubbing.begun();
        Duration(age.0.saturating_add(self.io.now().since(at).0))
    }

    /// What the checkpoint says of the last pass.
    pub fn scrubbed_at_age(&self, age: Duration, row: u32) {
        self.scrubbing.restore(age, row, self.io.now());
    }

    /// Runs for the pool's life.
    pub async fn scrub_flow(self: Rc<Self>) {
        // A pass that was under way when the pool was closed goes on.
        let mut next = match self.scrubbing.row() {
            0 => self.io.now() + Duration(PERIOD.0.saturating_sub(self.scrub_age().0)),
            _ => self.io.now(),
        };
        let mut again = false;
        loop {
            let notified = self.scrubbing.notified();
            let wanted = self.scrubbing.take_wanted();
            if !wanted && self.io.now() < next {
                let at = next.min(self.io.now() + DAY);
                {
                    let sleep = self.io.sleep_until(at);
                    futures_util::pin_mut!(sleep, notified);
                    futures_util::future::select(sleep, notified).await;
                }
                if self.io.now() >= at && self.check_writable().is_ok() {
                    self.store_age().await;
                }
                continue;
            }
            if self.check_writable().is_err() {
                return;
            }
            if wanted {
                self.scrubbing.reach(0);
            }
            if self.scrubbing.row() == 0 {
                self.scrubbing.begin(self.io.now());
            }
            let result = self.scrub_pass().await;
            self.scrubbing.work.end();
            match result {
                Ok(found) => {
                    self.scrubbing.reach(0);
                    // An opening reads all that the last checkpoint names.
                    if self.table.has_given_up() {
                        self.store_age().await;
                    }
                    self.report_scrub(found);
                    again = !again && found.bad + found.lost > 0;
                    let (begun, age) = self.scrubbing.begun();
                    let period = Duration(PERIOD.0.saturating_sub(age.0));
                    next = if again { self.io.now() + AGAIN } else { begun + period };
                }
                Err(error) => {
                    tracing::warn!("the scrub stopped early: {error}");
                    self.scrubbing.note_stopped(error.to_string());
                    next = self.io.now() + AGAIN;
                }
            }
        }
    }

    async fn store_age(self: &Rc<Self>) {
        if let Err(error) = self.checkpoint().await {
            tracing::warn!("the age of the last scrub is not stored: {error}");
        }
    }

    fn report_scrub(&self, found: Healed) {
        self.count.scrubs.add(1);
        self.count.scrub_found.set(found.bad + found.lost);
        self.count.scrub_repaired.set(found.repaired);
        let unreadable = self.unreadable_stripes();
        let severity = if found.bad + found.lost + unreadable > 0 { Severity::Warning } else { Severity::Notice };
        let mut text =
            format!("scrub finished: {} units damaged, {} repaired, {} lost", found.bad, found.repaired, found.lost);
        if unreadable > 0 {
            text.push_str(&format!("; {unreadable} stripes cannot be read"));
        }
        let (exposed, crowded) = self.crowded_stripes();
        if exposed > 0 {
            text.push_str(&format!(
                "; {exposed} stripes would not survive the loss of an enclosure, {crowded} of them could on the drives here"
            ));
        }
        self.alarm(AlarmKind::ScrubFinished, severity, None, text);
    }

    async fn scrub_pass(self: &Rc<Self>) -> Result<Healed, ArrayError> {
        let (rows, others) = join(self.scrub_rows(), self.scrub_others()).await;
        self.check_writable()?;
        let mut sum = rows?;
        for Scrubbed { repaired, trouble } in others? {
            sum.bad += repaired + trouble.len() as u64;
            sum.repaired += repaired;
            for error in trouble {
                self.alarm(AlarmKind::ScrubFinished, Severity::Warning, None, format!("scrub: {error}"));
            }
        }
        Ok(sum)
    }

    /// All but the rows of data. What is beyond repair in one of them keeps the pass from none of
    /// the others. A close does not wait for it; where that fails, the pass is made again.
    async fn scrub_others(&self) -> Result<[Scrubbed; 4], ArrayError> {
        let cut_off = Cell::new(false);
        let ends = || {
            cut_off.set(cut_off.get() || self.standing.is_closing());
            cut_off.get()
        };
        let table = async {
            let mut go_on = |_: u64, _: u64| !ends();
            self.table.scrub(&mut go_on).await.into()
        };
        let anchors = async { self.table.scrub_anchors().await.into() };
        let others = join4(self.log.scrub(ends), table, anchors, self.drives.labels.scrub()).await.into();
        match cut_off.get() {
            true => Err(ArrayError::Stopped("the pool is being closed".into())),
            false => Ok(others),
        }
    }

    async fn scrub_rows(self: &Rc<Self>) -> Result<Healed, ArrayError> {
        let mut sum = Healed::default();
        let rows: Vec<_> = {
            let layout = self.layout.read();
            layout.rows().map(|row| (row.id, row.class)).collect()
        };
        let from = self.scrubbing.row();
        let rows =
            rows.into_iter().filter(|(row, _)| row.0 >= from && self.look(|core| core.space.row_class(*row)).is_some());
        let rows: Vec<_> = rows.collect();
        let total = rows
            .iter()
            .map(|(row, class)| {
                u64::from(self.look(|core| core.space.used(*row))) * class.strip.0 * class.code.width() as u64
            })
            .sum();
        self.scrubbing.work.begin(total, self.io.now());
        if let Some((row, _)) = rows.first() {
            self.scrubbing.reach(row.0);
        }
        // The widest rows decide: they need the most memory.
        let breadths = || rows.iter().map(|(row, _)| self.breadth(*row));
        let at_once = breadths().map(|breadth| breadth.rows).min().unwrap_or(1);
        let beside_hosts = breadths().map(|breadth| breadth.beside_hosts).min().unwrap_or(1);
        // What is under way is waited for, also after a failure: a repair must not outlive its
        // lock.
        let pass = Pass { beside_hosts, ..Pass::default() };
        let mut result = Ok(());
        let one = |at: usize| {
            let (row, pass) = (rows[at].0, &pass);
            async move { (at, self.scrub_row(row, pass).await) }
        };
        // A row that is done early makes place for the next, whichever it is: else drives idle.
        let mut scrubs = stream::iter(0..rows.len()).map(one).buffer_unordered(at_once);
        let (mut done, mut reached) = (vec![false; rows.len()], 0);
        while let Some((at, scrubbed)) = scrubs.next().await {
            done[at] = scrubbed.is_ok();
            match scrubbed {
                Ok(healed) => sum.add(healed),
                Err(error) => {
                    pass.stopped.set(true);
                    result = result.and(Err(error));
                }
            }
            reached += done[reached..].iter().take_while(|done| **done).count();
            if let (Some((row, _)), false) = (rows.get(reached), pass.stopped.get()) {
                self.scrubbing.reach(row.0);
            }
        }
        drop(scrubs);
        result.map(|()| sum)
    }

    /// Every stripe of a row.
    async fn scrub_row(self: &Rc<Self>, row: RowId, pass: &Pass) -> Result<Healed, ArrayError> {
        let slots = self.look(|core| core.space.slots(row));
        let of = RowPass { row, slots, run: self.breadth(row).run, next: Cell::new(0) };
        let mut lanes: FuturesUnordered<_> = (0..RUNS_OF_ROW).map(|_| self.scrub_lane(&of, pass)).collect();
        let (mut sum, mut result) = (Healed::default(), Ok(()));
        while let Some(scrubbed) = lanes.next().await {
            match scrubbed {
                Ok(healed) => sum.add(healed),
                Err(error) => {
                    pass.stopped.set(true);
                    result = result.and(Err(error));
                }
            }
        }
        result.map(|()| sum)
    }

    /// One run of the row after another.
    async fn scrub_lane(self: &Rc<Self>, of: &RowPass, pass: &Pass) -> Result<Healed, ArrayError> {
        let mut sum = Healed::default();
        while of.next.get() < of.slots && !pass.stopped.get() {
            if pass.runs.get() >= pass.beside_hosts && self.hosts_wait() {
                self.io.sleep(BESIDE_HOSTS_WAIT).await;
                continue;
            }
            let _under_way = UnderWay::new(&pass.runs);
            let mut alone = None;
            if self.rebuilding.is_busy() {
                alone = Some(pass.turn.lock().await);
            }
            self.check_writable()?;
            let run = if alone.is_some() { 1 } else { self.run_now(of.row, of.run) };
            let first = of.next.get();
            let last = (first + run).min(of.slots);
            of.next.set(last);
            let Some(class) = self.look(|core| core.space.row_class(of.row)) else {
                of.end_without_row();
                break;
            };
            let mut used = Vec::new();
            for index in first..last {
                let slot = SlotId { row: of.row, index };
                let Some(shape) = self.row_shape(slot) else {
                    of.end_without_row();
                    break;
                };
                if !self.slot_head(&shape, slot).await?.is_free() {
                    used.push(index);
                }
            }
            if used.is_empty() {
                continue;
            }
            // Before it is read: what hosts and more urgent work find charged is never more than
            // this.
            let bytes = used.len() as u64 * class.strip.0 * class.code.width() as u64;
            let turn = match alone {
                Some(turn) => turn,
                None => pass.turn.lock().await,
            };
            self.throttle(bytes, false).await;
            let _alone = self.rebuilding.is_busy().then_some(turn);
            let (healed, again) = self.scrub_run(of.row, &used).await?;
            self.scrubbing.work.advance(healed.bytes);
            if again > 0 {
                self.throttle(again, false).await;
            }
            sum.add(healed);
        }
        Ok(sum)
    }

    /// Also answers the bytes that had to be read a second time.
    async fn scrub_run(self: &Rc<Self>, row: RowId, slots: &[u32]) -> Result<(Healed, u64), ArrayError> {
        let run = self.picture_run(row, slots.iter().copied()).await?;
        let (mut healed, mut again) = (Healed::default(), 0);
        let mut whole = Vec::new();
        if let Some(first) = run.first() {
            let all = Strips::all(first.of.shape.width());
            // Where a drive is away nothing can be called whole: `heal` reads what is there, once.
            let is_plain = |of: &Pictured| !of.lacks_units() && of.is_reachable(self);
            let stripes: Vec<usize> = (0..run.len()).filter(|at| is_plain(&run[*at])).collect();
            let read = self.read_neighbours(&run, &stripes, all, Priority::Scrub).await;
            for at in stripes {
                let pictured = &run[at];
                let bytes = (pictured.of.shape.width() * pictured.of.shape.strip) as u64;
                let strips: Vec<Shared> = read.iter().filter_map(|strips| strips[at].clone()).collect();
                let _pages = self.pages_of(pictured).await?;
                let plain = !pictured.volume.has_lost(pictured.of.stripe);
                if plain && is_consistent(&pictured.of, &strips) && self.is_still(pictured) {
                    healed.bytes += bytes;
                    whole.push(pictured.of.slot.index);
                } else {
                    again += bytes;
                }
            }
        }
        drop(run);
        let left = slots.iter().filter(|index| whole.binary_search(index).is_err());
        let mut left =
            stream::iter(left).map(|index| self.scrub_slot(SlotId { row, index: *index })).buffered(HEALED_AT_ONCE);
        let mut result = Ok(());
        // All are waited for, also after a failure.
        while let Some(found) = left.next().await {
            match found {
                Ok(found) => healed.add(found),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result.map(|()| (healed, again))
    }

    async fn scrub_slot(self: &Rc<Self>, slot: SlotId) -> Result<Healed, ArrayError> {
        let Some(shape) = self.row_shape(slot) else { return Ok(Healed::default()) };
        let mut head = self.slot_head(&shape, slot).await?;
        let mut healed = Healed::default();
        // Again where another layer took the slot over meanwhile.
        while !head.is_free() {
            if let Some(volume) = self.look(|core| core.volumes.get(VolumeId(head.volume))) {
                healed = self.heal(&volume, head.stripe, Priority::Scrub).await?;
            }
            let now = self.slot_head(&shape, slot).await?;
            if (now.volume, now.stripe) == (head.volume, head.stripe) {
                break;
            }
            head = now;
        }
        Ok(healed)
    }
}

/// Invariant 14: all strips are there, and encoding the data again gives the parity.
fn is_consistent(of: &Stripe, strips: &[Shared]) -> bool {
    let shape = &of.shape;
    if strips.len() != shape.width() {
        return false;
    }
    let data: Vec<&[u8]> = strips[..shape.k].iter().map(|strip| &strip[..]).collect();
    let mut parity: Vec<Buffer> = (0..shape.m).map(|_| Buffer::stale(shape.strip)).collect();
    let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|buffer| &mut buffer[..]).collect();
    shape.coder.encode(&data, &mut outputs);
    parity.iter().zip(&strips[shape.k..]).all(|(made, stored)| made[..] == stored[..])
}

#[cfg(test)]
mod tests;
