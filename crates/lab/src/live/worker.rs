//! One worker: draws accesses, keeps its share of them under way, and counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use stele_ground::{Dice, Duration, Instant};

use super::clock::Clock;
use super::content::{self, Content, Source};
use super::engine::{Engine, SlotResult};
use super::run::{Pause, PauseWhen};
use super::versions::Versions;
use super::wrong::Wrong;
use crate::histogram::Histogram;
use crate::profile::Profile;
use crate::replay::Replay;
use crate::workload::{Access, Generator};

/// What one worker counted in one round. Rounds have the same length for all workers, and an answer
/// belongs to the round in which it was found; a target that answers nothing for some rounds has
/// rounds of nothing.
#[derive(Clone, Default, Debug)]
pub struct WorkerRound {
    pub worker: u32,
    pub round: u64,
    pub read: Histogram,
    pub write: Histogram,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Time between the intended starts and the starts, where the generator and not the target was
    /// late.
    pub lag: Duration,
    /// Accesses of an open loop that had to wait for a place.
    pub held_back: u64,
    /// Of a trace with a clock: how long after the times that it asks for accesses started.
    pub late: Histogram,
    /// Something is under way.
    pub awaits: bool,
    /// The trace has no more accesses, and nothing is under way.
    pub is_done: bool,
    /// From one answer to the next, where that took [`IDLE_MIN`] or longer: those that ended in
    /// this round, and the one that its end cut off.
    pub idle: Vec<(Instant, Instant)>,
}

/// Shorter times without an answer are not kept.
pub const IDLE_MIN: Duration = Duration(250_000_000);

pub enum Report {
    /// The worker has all it needs to start.
    Ready,
    Part(Box<WorkerRound>),
    /// Reads brought something else than was written.
    Wrong(Wrong),
    /// The run is over for the worker.
    Left(Left),
    /// Some of what was under way then was answered since; so much still is.
    Settled {
        worker: u32,
        under_way: u32,
    },
    /// The worker ended; with what went wrong first, if anything.
    Ended(Result<(), String>),
}

/// What no round counts, since it was not answered before the last one was over.
pub struct Left {
    pub worker: u32,
    pub under_way: u32,
    /// How long each access had waited when the run ended, or had taken: what was under way, and of
    /// a rate what was due and had no place.
    pub waited: Histogram,
}

/// What a worker is to do.
pub struct Task {
    pub number: u32,
    pub generator: Generator,
    pub content: Content,
    /// Bytes that are a duplicate together; 0: a block.
    pub alike: u64,
    /// Where reads are checked.
    pub versions: Option<Arc<Versions>>,
    /// Accesses are of names.
    pub names: bool,
    pub dice: Dice,
    /// Where its part of the target begins, and how long it is. Workers share all of it, unless
    /// reads are checked: then what is read must not be written meanwhile, and each has a part of
    /// its own.
    pub base: u64,
    pub bytes: u64,
    /// Accesses under way in a closed loop; none: an open one.
    pub outstanding: Option<u32>,
    /// Answers that are waited for at once in a closed loop.
    pub batch: u32,
    pub pause: Option<Pause>,
    pub gap: Gap,
    /// Until the first access of an open loop with even gaps.
    pub first: Duration,
    /// Accesses come from it, and in an open loop their times.
    pub trace: Option<Arc<Replay>>,
    /// Accesses of a closed loop; the run ends with the last of them.
    pub most: Option<u64>,
    /// Of an open loop whose rate changes, instead of the gap.
    pub course: Option<Schedule>,
    pub round: Duration,
    pub clock: Clock,
}

/// Time between starts of an open loop: nanoseconds for each access and for each of its bytes,
/// drawn anew (exponentially) or always the same.
#[derive(Clone, Copy, Default, Debug)]
pub struct Gap {
    pub access: f64,
    pub byte: f64,
    pub random: bool,
}

/// One worker's starts under a profile.
#[derive(Clone, PartialEq, Debug)]
pub struct Schedule {
    profile: Profile,
    /// Accesses of all workers that are to start before its next one, and how many come from one to
    /// the one behind it.
    count: f64,
    step: f64,
    random: bool,
}

impl Schedule {
    pub fn new(profile: Profile, first: f64, step: f64, random: bool) -> Schedule {
        Schedule { profile, count: first, step, random }
    }

    /// When the next access is to start; in no time that is near, where the rate is 0 for good.
    fn next(&mut self, dice: &mut Dice) -> Instant {
        let due = self.profile.when(self.count).map_or(Instant(u64::MAX), |at| Instant((at * 1e9) as u64));
        let share = if self.random { -(1.0 - dice.fraction()).max(1e-12).ln() } else { 1.0 };
        self.count += self.step * share;
        due
    }
}

/// Below this an open loop watches the clock instead of sleeping: a sleeper wakes that much too
/// late.
const WATCHED: Duration = Duration(120_000);

/// Accesses that go out together, or as many as are waited for at once. Drives answer many in one
/// go; were all of those made anew first, the drive would idle meanwhile: that took a sixth of the
/// rate of 32 outstanding.
const GROUP: u32 = 4;

/// Of accesses that are due at the end and have no place, no more are counted one by one.
const WAITED_MAX: u64 = 10_000_000;

pub struct Worker<E> {
    engine: E,
    task: Task,
    source: Source,
    flying: Vec<(Access, Instant)>,
    free: Vec<u32>,
    part: WorkerRound,
    /// Of the round that goes on: responses of accesses that were meant to start before it.
    carried: Histogram,
    failed: Option<String>,
    /// The next access of a trace with a clock, and whether there are no more.
    next: Option<Access>,
    drained: bool,
    /// What was read since that was last reported, and is not as it was written.
    wrong: Wrong,
    /// When the next access of an open loop is due, or a pause ends.
    due: Instant,
    pausing: bool,
    /// Accesses since the last pause.
    burst: u32,
    round_end: Instant,
    /// When something was answered last.
    answered: Instant,
    /// Since when there is a place for another access.
    room: Instant,
}

impl<E: Engine> Worker<E> {
    pub fn new(engine: E, task: Task) -> Worker<E> {
        let source = task.content.source(task.dice.clone(), task.versions.clone()).alike_in(task.alike);
        let slots = engine.slots();
        let nowhere = (Access { target: 0, at: 0, length: 0, write: false }, Instant(0));
        Worker {
            source,
            flying: vec![nowhere; slots as usize],
            free: (0..slots).rev().collect(),
            part: WorkerRound::default(),
            carried: Histogram::default(),
            failed: None,
            next: None,
            drained: false,
            wrong: Wrong::default(),
            due: Instant(0),
            pausing: false,
            burst: 0,
            answered: Instant(0),
            room: Instant(0),
            round_end: Instant(0) + task.round,
            engine,
            task,
        }
    }

    pub fn count_from(&mut self, clock: Clock) {
        self.task.clock = clock;
    }

    fn now(&self) -> Instant {
        self.task.clock.now()
    }

    /// Until `stop`; then waits for what is under way, which counts no more.
    pub fn run(mut self, stop: &AtomicBool, reports: &Sender<Report>) -> Result<(), String> {
        let mut answers: Vec<SlotResult> = Vec::new();
        let mut now = self.now();
        (self.due, self.answered) = (now + self.task.first, now);
        if self.task.trace.is_some() {
            self.due = Instant(0);
        }
        if let Some(course) = &mut self.task.course {
            self.due = course.next(&mut self.task.dice);
        }
        // In an open loop there are far more places than accesses that are due.
        if self.task.outstanding.is_some() {
            self.keep_up(now);
        }
        while !stop.load(Ordering::Relaxed) && self.failed.is_none() {
            match self.task.outstanding {
                // Something is under way, and its answer ends the wait: no timer is set for it.
                Some(_) if !self.pausing && !self.is_done() => self.engine.reap(self.task.batch, None, &mut answers),
                _ => self.reap_until_due(now, &mut answers),
            }
            now = self.now();
            // Rounds that ended meanwhile end before what was found only now.
            while now >= self.round_end {
                self.hand_over(reports);
            }
            if !answers.is_empty() {
                self.note_idle(now);
                self.answered = now;
            }
            for (slot, result) in answers.drain(..) {
                self.settle(slot, result, now);
            }
            self.report_wrong(reports);
            match self.task.outstanding {
                Some(_) if self.failed.is_none() => self.keep_up(now),
                None if self.failed.is_none() => self.start_what_is_due(now),
                _ => {}
            }
        }
        let waited = self.waited(now);
        let _ = reports.send(Report::Left(Left { worker: self.task.number, under_way: self.under_way(), waited }));
        while self.free.len() < self.flying.len() && self.failed.is_none() {
            self.engine.reap(1, Some(Duration::from_secs(1)), &mut answers);
            let answered = !answers.is_empty();
            for (slot, result) in answers.drain(..) {
                self.settle(slot, result, now);
            }
            self.report_wrong(reports);
            if answered {
                let _ = reports.send(Report::Settled { worker: self.task.number, under_way: self.under_way() });
            }
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    fn under_way(&self) -> u32 {
        (self.flying.len() - self.free.len()) as u32
    }

    fn round_begin(&self) -> Instant {
        Instant(self.round_end.0.saturating_sub(self.task.round.0))
    }

    /// How long each access had waited by then, or had taken, that was to start before the last
    /// whole round was over and was not answered in it. Those of a rate that had no place yet are
    /// counted as if they had the mean length.
    fn waited(&mut self, now: Instant) -> Histogram {
        let begin = self.round_begin();
        let mut waited = std::mem::take(&mut self.carried);
        // Places that are free have a length of 0.
        for (_, intended) in self.flying.iter().filter(|(access, at)| access.length > 0 && *at < begin) {
            waited.record(now.since(*intended));
        }
        if self.task.outstanding.is_some() || self.task.trace.is_some() {
            return waited;
        }
        let mean = self.task.generator.mean_length();
        while self.due < begin && waited.count() < WAITED_MAX {
            waited.record(now.since(self.due));
            self.due = self.due_behind(mean);
        }
        waited
    }

    /// When the access of an open loop is due that follows one of so many bytes.
    fn due_behind(&mut self, length: u64) -> Instant {
        match &mut self.task.course {
            Some(course) => course.next(&mut self.task.dice),
            None => self.due + self.gap(length),
        }
    }

    /// As many under way as there shall be.
    fn keep_up(&mut self, now: Instant) {
        if let Some(pause) = self.task.pause {
            return self.keep_up_in_bursts(now, pause);
        }
        let group = self.task.batch.max(GROUP) as usize;
        while let Some(slot) = self.free.pop() {
            if !self.issue(slot, now) {
                self.free.push(slot);
                return;
            }
            if self.free.len().is_multiple_of(group) && !self.free.is_empty() {
                self.engine.flush();
            }
        }
    }

    fn keep_up_in_bursts(&mut self, now: Instant, pause: Pause) {
        let mut intended = now;
        if self.pausing {
            if now < self.due {
                return;
            }
            // What follows a pause was meant to start when it ended.
            (self.pausing, self.burst, intended) = (false, 0, self.due);
        }
        while self.burst < pause.burst
            && let Some(slot) = self.free.pop()
        {
            if !self.issue(slot, intended) {
                self.free.push(slot);
                return;
            }
            self.burst += u32::from(pause.when != PauseWhen::Answered);
            self.part.lag = Duration(self.part.lag.0 + now.since(intended).0);
        }
        let idle = self.free.len() == self.flying.len();
        let free = pause.when == PauseWhen::Overlapping && !self.free.is_empty();
        if self.burst >= pause.burst && (idle || free) {
            (self.pausing, self.due) = (true, now + pause.each);
        }
    }

    /// Starts an access that was meant to start then. False where all that was drawn touches what
    /// is under way.
    fn issue(&mut self, slot: u32, intended: Instant) -> bool {
        let Some(access) = self.draw() else { return false };
        self.flying[slot as usize] = (access, intended);
        if access.write {
            let length = access.length as usize;
            self.source.make(&mut self.engine.buffer(slot)[..length], access.at);
        }
        self.engine.start(slot, &access);
        true
    }

    fn draw(&mut self) -> Option<Access> {
        const TRIES: usize = 64;
        if self.task.trace.is_some() {
            if self.next.is_none() {
                self.pull();
            }
            return self.next.take();
        }
        if self.task.most == Some(0) {
            (self.due, self.drained) = (Instant(u64::MAX), true);
            return None;
        }
        for _ in 0..TRIES {
            let mut access = self.task.generator.draw(0, self.task.bytes);
            access.at += self.task.base;
            let end = access.at + access.length;
            let touches = |other: &Access| other.at < end && access.at < other.at + other.length;
            // Places that are free have a length of 0.
            if !self.task.content.verify || !self.flying.iter().any(|(other, _)| touches(other)) {
                self.task.most = self.task.most.map(|most| most - 1);
                return Some(access);
            }
        }
        None
    }

    /// Takes the next access of a trace, and when it is due.
    fn pull(&mut self) {
        let Some(trace) = self.task.trace.as_ref().filter(|_| !self.drained) else { return };
        match trace.next() {
            Ok(Some((due, access))) => (self.due, self.next) = (due, Some(access)),
            Ok(None) => (self.due, self.drained) = (Instant(u64::MAX), true),
            Err(error) => drop(self.failed.get_or_insert(error)),
        }
    }

    /// Nothing is left of a trace, or of a number of accesses, and nothing is under way.
    fn is_done(&self) -> bool {
        self.drained && self.next.is_none() && self.free.len() == self.flying.len()
    }

    fn settle(&mut self, slot: u32, result: Result<(), String>, now: Instant) {
        let (access, intended) = self.flying[slot as usize];
        self.flying[slot as usize].0.length = 0;
        if self.free.is_empty() {
            self.room = now;
        }
        self.free.push(slot);
        self.burst += u32::from(self.task.pause.is_some_and(|pause| pause.when == PauseWhen::Answered));
        let name = if access.write { "write" } else { "read" };
        if let Err(error) = result {
            self.failed.get_or_insert(format!("{name} of {} bytes at offset {}: {error}", access.length, access.at));
            return;
        }
        let span = now.since(intended);
        if intended < self.round_begin() {
            self.carried.record(span);
        }
        if access.write {
            self.part.write.record(span);
            self.part.written_bytes += self.moved(&access);
            if let Some(versions) = &self.task.versions {
                versions.answered(access.at, access.length);
            }
            return;
        }
        self.part.read.record(span);
        self.part.read_bytes += self.moved(&access);
        if self.task.content.verify {
            let buffer = &self.engine.buffer(slot)[..access.length as usize];
            self.wrong.add(content::wrong(self.task.content, self.task.versions.as_deref(), buffer, access.at));
        }
    }

    /// The target answers, so what is under way is waited for as at any other end: nothing is
    /// written any more when all of it is read back.
    fn report_wrong(&mut self, reports: &Sender<Report>) {
        if !self.wrong.is_none() {
            let _ = reports.send(Report::Wrong(std::mem::take(&mut self.wrong)));
        }
    }

    /// A name has no bytes.
    fn moved(&self, access: &Access) -> u64 {
        if self.task.names { 0 } else { access.length }
    }

    fn reap_until_due(&mut self, now: Instant, answers: &mut Vec<SlotResult>) {
        let left = self.due.since(now);
        let full = self.free.is_empty();
        let idle = self.free.len() == self.flying.len();
        let limit = if full { self.round_end.since(now) } else { left.min(self.round_end.since(now)) };
        // Woken a little early, it watches the clock for the rest.
        let sleeps = full || limit > WATCHED;
        let limit = if full { limit } else { Duration(limit.0.saturating_sub(WATCHED.0)) };
        match idle && sleeps {
            true => self.task.clock.sleep(limit),
            false => self.engine.reap(u32::from(sleeps), Some(limit), answers),
        }
    }

    fn start_what_is_due(&mut self, now: Instant) {
        while self.due <= now {
            if self.task.trace.is_some() && self.next.is_none() {
                // One that no place is free for is left to the worker that has one.
                if self.free.is_empty() || self.drained || self.failed.is_some() {
                    return;
                }
                self.pull();
                continue;
            }
            let started = self.free.pop().and_then(|slot| {
                let started = self.issue(slot, self.due);
                if !started {
                    // All that was drawn touches what is under way.
                    self.free.push(slot);
                    self.room = now;
                }
                started.then(|| self.flying[slot as usize].0.length)
            });
            let Some(length) = started else {
                self.part.held_back += 1;
                return;
            };
            // Without a place for it the target was late, not the generator.
            self.part.lag = Duration(self.part.lag.0 + now.since(self.due.max(self.room)).0);
            if self.task.trace.is_some() {
                self.part.late.record(now.since(self.due));
                self.due = Instant(0);
                continue;
            }
            self.due = self.due_behind(length);
        }
    }

    /// Behind an access of so many bytes.
    fn gap(&mut self, length: u64) -> Duration {
        let Gap { access, byte, random } = self.task.gap;
        let gap = access + byte * length as f64;
        match random {
            // One of nothing would start without end.
            false => Duration(gap.max(1.0) as u64),
            true => {
                let share = (1.0 - self.task.dice.fraction()).max(1e-12);
                Duration((-share.ln() * gap) as u64)
            }
        }
    }

    /// A time without an answer that lasts until then. Pauses are asked for.
    fn note_idle(&mut self, until: Instant) {
        if until.since(self.answered) >= IDLE_MIN && self.task.pause.is_none() {
            self.part.idle.push((self.answered, until));
        }
    }

    /// The round that is over.
    fn hand_over(&mut self, reports: &Sender<Report>) {
        self.note_idle(self.round_end);
        self.carried = Histogram::default();
        let mut part = std::mem::take(&mut self.part);
        part.worker = self.task.number;
        part.is_done = self.is_done();
        part.awaits = self.free.len() < self.flying.len();
        part.round = self.round_end.0 / self.task.round.0 - 1;
        self.round_end = self.round_end + self.task.round;
        let _ = reports.send(Report::Part(Box::new(part)));
    }
}

#[cfg(test)]
mod tests;
