//! A run: workers on a target under one load, round by round, until it is steady or its time is
//! over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::Instant as WallInstant;

use stele_ground::{Bytes, Dice, Duration};

use super::clock::{Clock, Gate, Meeting};
use super::content::Content;
use super::engine::Engine;
use super::reach::{ConnectionSpec, Use, reach};
use super::target::{AccessMethod, Ready};
use super::worker::{Gap, Report, Schedule, Task, Worker};
use super::wrong::Wrong;
use crate::error::LabError;
use crate::histogram::Histogram;
use crate::mix::Mix;
use crate::profile::Profile;
use crate::replay::Replay;
use crate::workload::{AccessSpec, Alignment, Generator, Operation};
use gathering::{Gathered, Seen, gather};
pub use limits::{OPEN_MAX, admit, fits};
use limits::{open_slots, own_part, workers_for};
use parting::part;

mod gathering;
mod limits;
mod parting;

/// Threads of one run.
pub const WORKERS_MAX: u32 = 512;
/// How hard the target is driven.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Load {
    /// So many accesses are under way at all times.
    Outstanding(u32),
    /// So many are started each second, whatever the answers; evenly, or drawn (exponentially).
    Rate { each_second: f64, random: bool },
    /// So many bytes each second: the gap behind an access is as long as it is.
    Bytes { each_second: f64, random: bool },
}

/// A closed loop that stops again and again: each worker starts accesses for a while, and then none
/// for so long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pause {
    pub each: Duration,
    /// Accesses between two pauses.
    pub burst: u32,
    pub when: PauseWhen,
}

/// When a pause begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PauseWhen {
    /// The burst was answered, and then what else was under way (fio's `thinktime`).
    Answered,
    /// The burst was started, and then all of it answered (fio's `thinktime` with
    /// `thinktime_blocks_type=issue`).
    Started,
    /// The burst was started, and another access could be: what is under way goes on (Iometer's
    /// transfer delay).
    Overlapping,
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Load::Outstanding(count) => write!(f, "{count} outstanding"),
            Load::Rate { each_second, random } => {
                write!(f, "{each_second} a second{}", if *random { ", drawn" } else { "" })
            }
            Load::Bytes { each_second, random } => {
                write!(f, "{} a second{}", Bytes(*each_second as u64), if *random { ", drawn" } else { "" })
            }
        }
    }
}

/// How long, and when it counts as steady.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    pub warm_up: Duration,
    pub round: Duration,
    /// Measured at least.
    pub least: Duration,
    /// Measured at most; a run that is not steady by then says so.
    pub most: Duration,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    pub spec: AccessSpec,
    pub alignment: Alignment,
    pub load: Load,
    /// Of an open loop whose rate changes; the load then has its mean.
    pub profile: Option<Arc<Profile>>,
    /// Accesses come from it, and in an open loop the times of their starts; the run ends with it.
    pub trace: Option<Arc<Replay>>,
    /// Of a closed loop.
    pub pause: Option<Pause>,
    /// Answers that a worker of a closed loop waits for at once: more of them cost less, and each
    /// seems to take longer.
    pub batch: u32,
    pub workers: u32,
    pub timing: Timing,
    pub content: Content,
    /// What accesses do.
    pub of: Of,
    pub seed: u64,
}

/// What accesses do.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Of {
    /// Read and write.
    #[default]
    Data,
    /// Read and write in operations, each within one file.
    Operations(Operation),
    /// Reads look at the name of a file; writes make one and remove it in turn.
    Names,
    /// Read and write as streams of several kinds do.
    Streams(Mix),
}

impl Of {
    fn operation(self) -> Option<Operation> {
        match self {
            Of::Operations(operation) => Some(operation),
            Of::Data | Of::Names | Of::Streams(_) => None,
        }
    }

    fn mix(self) -> Option<Mix> {
        if let Of::Streams(mix) = self { Some(mix) } else { None }
    }
}

/// All workers together over one round.
#[derive(Clone, Default, Debug)]
pub struct Round {
    /// Accesses, and bytes, a second.
    pub rate: f64,
    pub read_rate: f64,
    pub read_bytes_rate: f64,
    pub written_bytes_rate: f64,
    pub written_bytes: u64,
    pub read: Histogram,
    pub write: Histogram,
    pub lag: Duration,
    pub held_back: u64,
    /// Of a trace with a clock: times between the starts that it asks for and the starts.
    pub late: Histogram,
    /// Processor time of this process and of the whole machine, in seconds, and how long that was.
    pub cpu_own: f64,
    pub cpu_machine: f64,
    /// Seconds that threads of this process waited for a processor.
    pub waited_own: f64,
    /// Seconds; of all rounds of a run the same.
    pub span: f64,
    /// The longest time without an answer that ended in this round, or at its end had not.
    pub gap: Duration,
}

impl Round {
    pub fn response(&self) -> Histogram {
        let mut both = self.read.clone();
        both.merge(&self.write);
        both
    }
}

/// What a run found.
#[derive(Clone, Debug)]
pub struct Found {
    pub setup: Setup,
    pub workers: u32,
    /// After the warm-up.
    pub rounds: Vec<Round>,
    /// See [`steady`].
    pub steady: bool,
    /// Ended before its time.
    pub stopped: bool,
    /// Reads that brought something else than was written; the run ended with the first of them.
    pub wrong: Wrong,
    /// A thread still waits for the target, which may yet carry out what it was asked for.
    pub left_behind: bool,
    /// How long each access had waited, or had taken, that was not answered before the last round
    /// was over.
    pub unanswered: Histogram,
    /// The target does its work elsewhere than on the generator's threads.
    pub is_apart: bool,
}

/// The generator was late by more than this share of the mean response: the run says nothing of the
/// target.
pub const LAG_SHARE_MAX: f64 = 0.01;

impl Found {
    /// All rounds as one: what was answered over the time that it took.
    pub fn total(&self) -> Round {
        let mut total = Round::default();
        for round in &self.rounds {
            total.rate += round.rate * round.span;
            total.read_rate += round.read_rate * round.span;
            total.read_bytes_rate += round.read_bytes_rate * round.span;
            total.written_bytes_rate += round.written_bytes_rate * round.span;
            total.written_bytes += round.written_bytes;
            total.read.merge(&round.read);
            total.write.merge(&round.write);
            total.lag = Duration(total.lag.0 + round.lag.0);
            total.held_back += round.held_back;
            total.late.merge(&round.late);
            total.cpu_own += round.cpu_own;
            total.cpu_machine += round.cpu_machine;
            total.waited_own += round.waited_own;
            total.span += round.span;
            total.gap = total.gap.max(round.gap);
        }
        let seconds = total.span.max(1e-9);
        total.rate /= seconds;
        total.read_rate /= seconds;
        total.read_bytes_rate /= seconds;
        total.written_bytes_rate /= seconds;
        total
    }

    /// Accesses that were under way in the mean, by Little's law. None where pauses keep them away.
    pub fn under_way(&self) -> Option<f64> {
        let total = self.total();
        self.setup.pause.is_none().then(|| total.rate * total.response().mean().as_secs_f64())
    }

    /// Share of the time that the generator's threads were at work, or waited for a processor. None
    /// where their work is the target's.
    pub fn saturation(&self) -> Option<f64> {
        let total = self.total();
        let time = total.span * f64::from(self.workers);
        self.is_apart.then(|| (total.cpu_own + total.waited_own) / time.max(1e-9))
    }

    /// Lateness of the generator over the mean response.
    pub fn lag_share(&self) -> f64 {
        let total = self.total();
        let response = total.response();
        let answered = response.count().max(1) as f64;
        total.lag.0 as f64 / answered / (response.mean().0 as f64).max(1.0)
    }
}

/// Sees each round, the warm-up's too (its numbers are negative, and count up to 0, the first that
/// counts), and ends the run by answering false.
pub type RoundWatch<'a> = &'a mut dyn FnMut(i64, &Round) -> bool;

/// The time of a run is over, and accesses are still under way: of an open loop that fell behind
/// they may be many, and all are waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Draining {
    pub under_way: u64,
    /// Since the run's time was over.
    pub waited: Duration,
}

/// What a run tells while it goes on.
#[derive(Clone, Copy, Debug)]
pub enum Told<'a> {
    /// A round, with its number as in [`RoundWatch`].
    Round(i64, &'a Round),
    Draining(Draining),
}

/// Sees what a run tells, and ends it by answering false to a round.
pub type RunWatch<'a> = &'a mut dyn FnMut(Told<'_>) -> bool;

/// As `run_until`, where no other thread ends it.
pub fn run(ready: &Ready, setup: &Setup, watch: RoundWatch<'_>) -> Result<Found, LabError> {
    run_until(ready, setup, &AtomicBool::new(false), watch)
}

/// How often it is seen whether a run shall end, where no round does.
const LOOK: std::time::Duration = std::time::Duration::from_millis(50);

/// Runs to its end, or until `end` is set: also while the target answers nothing. One that answers
/// nothing to a worker for longer than its patience has failed.
pub fn run_until(ready: &Ready, setup: &Setup, end: &AtomicBool, watch: RoundWatch<'_>) -> Result<Found, LabError> {
    let (found, failed) = run_kept(ready, setup, end, &mut |told| match told {
        Told::Round(number, round) => watch(number, round),
        Told::Draining(_) => true,
    })?;
    failed.map_or(Ok(found), Err)
}

/// As `run_until`, but what was counted before the target failed is kept, beside the failure.
pub fn run_kept(
    ready: &Ready,
    setup: &Setup,
    end: &AtomicBool,
    watch: RunWatch<'_>,
) -> Result<(Found, Option<LabError>), LabError> {
    run_beside(ready, setup, end, &Meeting::of(1), watch)
}

/// As `run_until`, of so many accesses of each worker of a closed loop. The run ends with the round
/// in which the last of them was answered.
pub fn run_accesses(
    ready: &Ready,
    setup: &Setup,
    most: u64,
    end: &AtomicBool,
    watch: RoundWatch<'_>,
) -> Result<Found, LabError> {
    let (found, failed) = run_limited(ready, setup, Some(most), end, &Meeting::of(1), &mut |told| match told {
        Told::Round(number, round) => watch(number, round),
        Told::Draining(_) => true,
    })?;
    failed.map_or(Ok(found), Err)
}

/// As `run_kept`, beginning when all that meet are ready.
pub fn run_beside(
    ready: &Ready,
    setup: &Setup,
    end: &AtomicBool,
    meeting: &Meeting,
    watch: RunWatch<'_>,
) -> Result<(Found, Option<LabError>), LabError> {
    run_limited(ready, setup, None, end, meeting, watch)
}

fn run_limited(
    ready: &Ready,
    setup: &Setup,
    most: Option<u64>,
    end: &AtomicBool,
    meeting: &Meeting,
    watch: RunWatch<'_>,
) -> Result<(Found, Option<LabError>), LabError> {
    let workers = workers_for(ready, setup)?;
    if let (AccessMethod::S3(bucket), Of::Data | Of::Operations(_)) = (&ready.way, setup.of) {
        bucket.prepare(&setup.spec, end)?;
    }
    if let AccessMethod::Backup(vault) = &ready.way {
        vault.prepare(&setup.spec, end)?;
    }
    let own = own_part(ready, setup, workers)?;
    let open = open_slots(ready, setup, workers)?;
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, reports) = mpsc::channel();
    let mut dice = Dice::new(setup.seed);
    let gate = Gate::default();
    let mut threads = Vec::new();
    let mut failed: Option<String> = None;
    for number in 0..workers {
        let slots = match setup.load {
            Load::Outstanding(count) => count / workers + u32::from(number < count % workers),
            Load::Rate { .. } | Load::Bytes { .. } => open,
        };
        let task = Task {
            number,
            generator: generator_of(ready, setup, workers, number, dice.fork()),
            content: setup.content,
            alike: if matches!(ready.way, AccessMethod::Backup(_)) { setup.spec.length_max() } else { 0 },
            versions: ready.versions.clone(),
            names: setup.of == Of::Names,
            dice: dice.fork(),
            base: if setup.content.verify { own * u64::from(number) } else { 0 },
            bytes: if setup.content.verify { own } else { ready.size.0 },
            outstanding: matches!(setup.load, Load::Outstanding(_)).then_some(slots),
            batch: setup.batch.max(1),
            pause: setup.pause,
            gap: gap_of(setup.load, workers),
            first: first_of(setup, workers, number),
            trace: setup.trace.clone(),
            most,
            course: setup.profile.as_ref().map(|profile| Schedule::of(profile, setup, workers, number)),
            round: setup.timing.round,
            // Set when all are ready.
            clock: Clock::Wall(WallInstant::now()),
        };
        let (ready, stop, sender, gate) = (ready.clone(), Arc::clone(&stop), sender.clone(), gate.clone());
        let place = ConnectionSpec {
            slots,
            length_max: setup.spec.length_max() as usize,
            names: setup.of == Of::Names,
            number,
        };
        // A ring belongs to the thread that made it.
        let work = move || work(&ready, place, task, &Start { gate, stop, reports: sender });
        match std::thread::Builder::new().name(format!("lab-{number}")).spawn(work) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                failed = Some(format!("cannot start worker {number}: {error}; ask for fewer"));
                break;
            }
        }
    }
    drop(sender);
    let gathered = match failed {
        None => {
            let seen = Seen { reports: &reports, end, gate: &gate, meeting };
            gather(ready, workers, setup, &seen, &mut |number, round| watch(Told::Round(number, round)))
        }
        Some(_) => Gathered::default(),
    };
    stop.store(true, Ordering::Relaxed);
    let given_up = failed.is_some() || gathered.failed.is_some();
    let parted = part(&reports, threads, ready.patience, end, given_up, &mut |draining| {
        // There is no round to end any more: `end` ends the waiting.
        watch(Told::Draining(draining));
    });
    let mut wrong = gathered.wrong;
    wrong.add(parted.wrong);
    let settled = match &ready.way {
        // Behind a failure too: what the sessions saved is a part of no snapshot yet.
        AccessMethod::Backup(vault) if !parted.left_behind => vault.settle().err(),
        _ => None,
    };
    let kind = |told: String| match &ready.way {
        AccessMethod::Backup(vault) => vault.failed(told),
        // What could not be reached is named already.
        _ if told.starts_with(&ready.name) => LabError::of_access(told),
        _ => LabError::of_access(format!("{}: {told}", ready.name)),
    };
    // The first reason is the cause; that something was never answered follows from many.
    let failed = failed.or(gathered.failed).or(parted.failed).map(kind).or(settled);
    // Wrong data is worse than a target that failed.
    let failed = if wrong.is_none() { failed } else { Some(LabError::Damaged(wrong.to_string())) };
    let found = Found {
        setup: setup.clone(),
        workers,
        rounds: gathered.rounds,
        steady: gathered.steady,
        stopped: gathered.stopped || failed.is_some(),
        wrong,
        left_behind: parted.left_behind,
        unanswered: parted.unanswered,
        is_apart: !matches!(
            ready.way,
            AccessMethod::Null
                | AccessMethod::Volume(_)
                | AccessMethod::Inline(_)
                | AccessMethod::Directory(_)
                | AccessMethod::Backup(_)
        ),
    };
    Ok((found, failed))
}

impl Schedule {
    /// One worker's share: the accesses of all workers start in turn.
    fn of(profile: &Profile, setup: &Setup, workers: u32, number: u32) -> Schedule {
        let random = matches!(setup.load, Load::Rate { random: true, .. });
        let round = setup.timing.round.0.max(1);
        // Rounds that count begin at a whole one.
        let warm_up = Duration(setup.timing.warm_up.0.div_ceil(round) * round);
        Schedule::new(profile.after(warm_up), f64::from(number), f64::from(workers), random)
    }
}

/// Sequential accesses of workers that share a target begin apart. Were all to begin at its first
/// byte, each byte would be asked for by all of them, and a cache would answer all but one.
fn generator_of(ready: &Ready, setup: &Setup, workers: u32, number: u32, dice: Dice) -> Generator {
    let longest = setup.spec.length_max().max(1);
    let share = u128::from(ready.size.0) * u128::from(number) / u128::from(workers.max(1));
    // Where reads are checked each worker has a part of its own, and files begin at random.
    let at = if setup.content.verify { 0 } else { share as u64 / longest * longest };
    let generator = Generator::new(setup.spec.clone(), setup.alignment, dice).starting_at(at);
    generator.within(ready.file).in_operations(setup.of.operation()).in_streams(setup.of.mix())
}

/// After how long the first access of an open loop starts: even gaps are those of all workers
/// together, which take turns.
fn first_of(setup: &Setup, workers: u32, number: u32) -> Duration {
    let Gap { access, byte, random } = gap_of(setup.load, workers);
    let each = access + byte * setup.spec.mean_length() as f64;
    match random {
        true => Duration(0),
        false => Duration((each * f64::from(number) / f64::from(workers.max(1))) as u64),
    }
}

fn gap_of(load: Load, workers: u32) -> Gap {
    let nanoseconds = |each_second: f64| 1e9 * f64::from(workers) / each_second;
    match load {
        Load::Outstanding(_) => Gap::default(),
        Load::Rate { each_second, random } => Gap { access: nanoseconds(each_second), byte: 0.0, random },
        Load::Bytes { each_second, random } => Gap { access: 0.0, byte: nanoseconds(each_second), random },
    }
}

/// How a worker begins, ends and reports.
struct Start {
    gate: Gate,
    stop: Arc<AtomicBool>,
    reports: Sender<Report>,
}

/// One worker's run, on whichever engine.
struct Work<'a> {
    task: Task,
    start: &'a Start,
}

fn work(ready: &Ready, spec: ConnectionSpec, task: Task, start: &Start) {
    let ended = reach(ready, spec, Work { task, start });
    // The receiver is gone only where the run was given up.
    let _ = start.reports.send(Report::Ended(ended));
}

impl Use for Work<'_> {
    type Made = ();

    fn with<E: Engine>(self, engine: E) -> Result<(), String> {
        let Work { task, start } = self;
        if let Some(asked) = task.outstanding.filter(|asked| *asked != engine.slots()) {
            return Err(format!("{asked} accesses under way were asked for, and this target takes {}", engine.slots()));
        }
        let mut worker = Worker::new(engine, task);
        let _ = start.reports.send(Report::Ready);
        match start.gate.wait(&start.stop) {
            Some(origin) => worker.count_from(Clock::Wall(origin)),
            None => return Ok(()),
        }
        worker.run(&start.stop, &start.reports)
    }
}

#[cfg(test)]
mod tests;
