//! A run: workers on a target under one load, round by round, until it is steady or its time is over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Instant as WallInstant;

use stele_ground::{Bytes, Dice, Duration};

use super::content::Content;
use super::directory::Files;
use super::engine::{Engine, Null};
use super::inline::Inline;
use super::iscsi::Iscsi;
use super::nbd::Nbd;
use super::nfs::Nfs;
use super::s3::Objects;
use super::target::{Ready, Way};
use super::uring::Uring;
use super::volume::Blocks;
use super::worker::{Gap, Part, Report, Task, Worker};
use crate::error::LabError;
use crate::histogram::Histogram;
use crate::steady;
use crate::usage::Usage;
use crate::workload::{AccessSpec, Alignment, Generator, Operation};

/// Threads of one run.
pub const WORKERS_MAX: u32 = 512;
/// Accesses of an open loop that may be under way at once.
pub const OPEN_MAX: u32 = 4096;

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

/// A closed loop that stops again and again: each worker starts accesses for a while, and then none for so long.
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
    /// The burst was started, and then all of it answered (fio's `thinktime` with `thinktime_blocks_type=issue`).
    Started,
    /// The burst was started, and another access could be: what is under way goes on (Iometer's transfer delay).
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
    /// Of a closed loop.
    pub pause: Option<Pause>,
    /// Answers that a worker of a closed loop waits for at once: more of them cost less, and each seems to take longer.
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
}

impl Of {
    fn operation(self) -> Option<Operation> {
        match self {
            Of::Operations(operation) => Some(operation),
            Of::Data | Of::Names => None,
        }
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
    /// Processor time of this process and of the whole machine, in seconds, and how long that was.
    pub cpu_own: f64,
    pub cpu_machine: f64,
    pub span: f64,
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
}

/// The generator was late by more than this share of the mean response: the run says nothing of the target.
pub const LAG_SHARE_MAX: f64 = 0.01;

impl Found {
    pub fn total(&self) -> Round {
        let mut total = Round::default();
        let count = self.rounds.len().max(1) as f64;
        for round in &self.rounds {
            total.rate += round.rate / count;
            total.read_rate += round.read_rate / count;
            total.read_bytes_rate += round.read_bytes_rate / count;
            total.written_bytes_rate += round.written_bytes_rate / count;
            total.written_bytes += round.written_bytes;
            total.read.merge(&round.read);
            total.write.merge(&round.write);
            total.lag = Duration(total.lag.0 + round.lag.0);
            total.held_back += round.held_back;
            total.cpu_own += round.cpu_own;
            total.cpu_machine += round.cpu_machine;
            total.span += round.span;
        }
        total
    }

    /// Lateness of the generator over the mean response.
    pub fn lag_share(&self) -> f64 {
        let total = self.total();
        let response = total.response();
        let answered = response.count().max(1) as f64;
        total.lag.0 as f64 / answered / (response.mean().0 as f64).max(1.0)
    }
}

/// Sees each round, the warm-up's too (its numbers are negative, and count up to 0, the first that counts), and ends the run
/// by answering false.
pub type Watch<'a> = &'a mut dyn FnMut(i64, &Round) -> bool;

/// As `run_until`, where nobody else ends it.
pub fn run(ready: &Ready, setup: &Setup, watch: Watch<'_>) -> Result<Found, LabError> {
    run_until(ready, setup, &AtomicBool::new(false), watch)
}

/// How often it is seen whether a run shall end, where no round does.
const LOOK: std::time::Duration = std::time::Duration::from_millis(50);
/// What is under way when a run ends is waited for no longer: threads that still wait are left behind.
const FAREWELL: std::time::Duration = std::time::Duration::from_secs(2);

/// Runs to its end, or until `end` is set: also while the target answers nothing. One that answers nothing to a worker for
/// longer than its patience has failed.
pub fn run_until(ready: &Ready, setup: &Setup, end: &AtomicBool, watch: Watch<'_>) -> Result<Found, LabError> {
    let workers = workers_for(ready, setup)?;
    if let (Way::S3(bucket), Of::Data | Of::Operations(_)) = (&ready.way, setup.of) {
        bucket.prepare(&setup.spec, end)?;
    }
    // Parts of workers begin where a file does.
    let grain = ready.file.map_or(ready.block.0.max(4096), |file| file.0);
    let own = ready.size.0 / u64::from(workers) / grain * grain;
    if setup.content.verify && own < setup.spec.length_max() {
        return Err(LabError::Usage(format!(
            "where reads are checked each worker has its own part of the target, and {} are too little for {workers}; \
             make the target larger, or ask for fewer",
            ready.size
        )));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, reports) = mpsc::channel();
    let mut dice = Dice::new(setup.seed);
    let origin = WallInstant::now();
    let mut threads = Vec::new();
    let mut failed: Option<String> = None;
    for number in 0..workers {
        let slots = slots_of(setup.load, workers, number);
        let generator = Generator::new(setup.spec.clone(), setup.alignment, dice.fork()).within(ready.file);
        let task = Task {
            number,
            generator: generator.in_operations(setup.of.operation()),
            content: setup.content,
            versions: ready.versions.clone(),
            dice: dice.fork(),
            base: if setup.content.verify { own * u64::from(number) } else { 0 },
            bytes: if setup.content.verify { own } else { ready.size.0 },
            outstanding: matches!(setup.load, Load::Outstanding(_)).then_some(slots),
            batch: setup.batch.max(1),
            pause: setup.pause,
            gap: gap_of(setup.load, workers),
            round: setup.timing.round,
            origin,
        };
        let (ready, stop, sender) = (ready.clone(), Arc::clone(&stop), sender.clone());
        let place = Seat { slots, length_max: setup.spec.length_max() as usize, names: setup.of == Of::Names, number };
        // A ring belongs to the thread that made it.
        let work = move || work(&ready, place, task, &stop, &sender);
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
        None => gather(ready, workers, setup, &reports, end, watch),
        Some(_) => Gathered::default(),
    };
    stop.store(true, Ordering::Relaxed);
    let farewell = WallInstant::now() + FAREWELL;
    while let Ok(report) = reports.recv_timeout(farewell.saturating_duration_since(WallInstant::now())) {
        if let Report::Ended(Err(error)) = report {
            failed.get_or_insert(error);
        }
    }
    for thread in threads {
        // One that waits for a target that hangs has all it uses to itself, and ends with the process.
        if (thread.is_finished() || WallInstant::now() < farewell) && thread.join().is_err() {
            failed.get_or_insert("a worker panicked".into());
        }
    }
    match failed.or(gathered.failed) {
        Some(error) => Err(LabError::Failed(error)),
        None => Ok(Found {
            setup: setup.clone(),
            workers,
            rounds: gathered.rounds,
            steady: gathered.steady,
            stopped: gathered.stopped,
        }),
    }
}

fn workers_for(ready: &Ready, setup: &Setup) -> Result<u32, LabError> {
    let (block, size) = (ready.block, ready.size);
    for (length, _) in &setup.spec.sizes {
        if *length == 0 || !length.is_multiple_of(block.0) {
            return Err(LabError::Usage(format!(
                "workload '{}' has accesses of {length} bytes; this target takes multiples of {}",
                setup.spec.name, block.0
            )));
        }
        if *length > size.0 {
            return Err(LabError::Usage(format!("the target's {size} are less than one access of {length} bytes")));
        }
    }
    if setup.alignment == Alignment::Sector && block.0 > 512 {
        return Err(LabError::Usage(format!(
            "this target takes offsets that are multiples of {}, not of 512",
            block.0
        )));
    }
    if let Some(file) = ready.file
        && setup.spec.length_max() > file.0
    {
        let longest = Bytes(setup.spec.length_max());
        return Err(LabError::Usage(format!("accesses of {longest} are longer than a file, which has {file}")));
    }
    if setup.of == Of::Names && !matches!(ready.way, Way::Null | Way::Directory(_) | Way::S3(_)) {
        return Err(LabError::Usage(
            "workload.of = names: only a directory and a bucket have names; give dir:PATH, or s3+http://".into(),
        ));
    }
    let workers = match (setup.load, &ready.way) {
        (Load::Outstanding(0), _) => return Err(LabError::Usage("at least one access has to be outstanding".into())),
        (Load::Rate { each_second, .. } | Load::Bytes { each_second, .. }, _)
            if !(each_second.is_finite() && each_second > 0.0) =>
        {
            return Err(LabError::Usage("a rate is greater than 0".into()));
        }
        // One at a time for each worker.
        (Load::Outstanding(count), way) if way.is_one_each() => count,
        (_, way) if way.is_alone() => 1,
        (Load::Outstanding(count), _) => setup.workers.min(count),
        (Load::Rate { .. } | Load::Bytes { .. }, _) => setup.workers,
    };
    if workers > WORKERS_MAX {
        return Err(LabError::Usage(format!(
            "{workers} accesses at a time take as many threads on this target; at most {WORKERS_MAX}"
        )));
    }
    Ok(workers.max(1))
}

/// Places of a worker: its share of the outstanding accesses, or as many as an open loop may have under way.
fn slots_of(load: Load, workers: u32, number: u32) -> u32 {
    match load {
        Load::Outstanding(count) => count / workers + u32::from(number < count % workers),
        Load::Rate { .. } | Load::Bytes { .. } => (OPEN_MAX / workers).max(1),
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

/// What a worker is given.
#[derive(Clone, Copy)]
struct Seat {
    slots: u32,
    length_max: usize,
    names: bool,
    number: u32,
}

fn work(ready: &Ready, seat: Seat, task: Task, stop: &AtomicBool, reports: &Sender<Report>) {
    let Seat { slots, length_max, names, number } = seat;
    let ended = match &ready.way {
        // One access at a time: a ring would only add to the cost of the call.
        Way::Ring(file) if slots == 1 => with(Ok(Inline::new(Arc::clone(file), length_max)), task, stop, reports),
        Way::Ring(file) => with(Uring::new(Arc::clone(file), slots, length_max), task, stop, reports),
        Way::Inline(file) => with(Ok(Inline::new(Arc::clone(file), length_max)), task, stop, reports),
        Way::Directory(directory) => {
            let files = Files::new(Arc::clone(directory), names, number);
            with(Ok(Inline::new(files, length_max)), task, stop, reports)
        }
        Way::Nbd { address, .. } => with(Nbd::new(address, slots, length_max), task, stop, reports),
        Way::Iscsi(address) => with(Iscsi::new(address, slots, length_max), task, stop, reports),
        Way::Nfs(remote) => with(Nfs::new(remote, slots, length_max), task, stop, reports),
        Way::S3(bucket) => {
            let objects = Objects::new(bucket, names, number);
            with(Ok(Inline::new(objects, length_max)), task, stop, reports)
        }
        Way::Volume(volume) => with(Ok(Blocks::new(volume, slots, length_max)), task, stop, reports),
        Way::Null => with(Ok(Null::new(slots, length_max)), task, stop, reports),
    };
    // Nobody listens any more only where the run was given up.
    let _ = reports.send(Report::Ended(ended));
}

fn with<E: Engine>(
    engine: Result<E, String>,
    task: Task,
    stop: &AtomicBool,
    reports: &Sender<Report>,
) -> Result<(), String> {
    Worker::new(engine?, task).run(stop, reports)
}

#[derive(Default)]
struct Gathered {
    rounds: Vec<Round>,
    steady: bool,
    stopped: bool,
    failed: Option<String>,
}

fn gather(
    ready: &Ready,
    workers: u32,
    setup: &Setup,
    reports: &mpsc::Receiver<Report>,
    end: &AtomicBool,
    watch: Watch<'_>,
) -> Gathered {
    let timing = setup.timing;
    let warm_up = timing.warm_up.0.div_ceil(timing.round.0.max(1)) as i64;
    let least = timing.least.0.div_ceil(timing.round.0.max(1)).max(1) as usize;
    let most = timing.most.0.div_ceil(timing.round.0.max(1)).max(1) as usize;
    let mut gathered = Gathered::default();
    // The last round that each worker handed over, and the parts of rounds that are not whole.
    let mut last: Vec<u64> = Vec::new();
    let mut parts: BTreeMap<u64, Vec<Part>> = BTreeMap::new();
    let mut usage = Usage::now();
    let mut heard = vec![WallInstant::now(); workers as usize];
    loop {
        let part = match reports.recv_timeout(LOOK) {
            _ if end.load(Ordering::Relaxed) => {
                gathered.stopped = true;
                return gathered;
            }
            Err(RecvTimeoutError::Timeout) => match silence(&heard, ready, setup) {
                None => continue,
                said => {
                    gathered.failed = said;
                    return gathered;
                }
            },
            Ok(Report::Part(part)) => part,
            Ok(Report::Ended(result)) => {
                gathered.failed = Some(result.err().unwrap_or_else(|| "a worker ended by itself".into()));
                return gathered;
            }
            Err(RecvTimeoutError::Disconnected) => {
                gathered.failed = Some("all workers are gone".into());
                return gathered;
            }
        };
        let round = part.round;
        let answered = part.read.count() + part.write.count() > 0;
        if let Some(heard) = heard.get_mut(part.worker as usize)
            && (answered || !part.awaits)
        {
            *heard = WallInstant::now();
        }
        gathered.failed = silence(&heard, ready, setup);
        if gathered.failed.is_some() {
            return gathered;
        }
        last.push(round);
        parts.entry(round).or_default().push(part);
        // Whole: as many parts as workers, those of stalled workers counted where they came at last.
        while let Some(first) = parts.keys().next().copied()
            && last.iter().filter(|seen| **seen >= first).count() >= workers as usize
        {
            let whole = parts.remove(&first).unwrap_or_default();
            last.retain(|seen| *seen > first);
            let before = std::mem::replace(&mut usage, Usage::now());
            let round = merged(whole, before, usage);
            let number = first as i64 - warm_up;
            let goes_on = watch(number, &round);
            if number >= 0 {
                gathered.rounds.push(round);
            }
            let rates: Vec<f64> = gathered.rounds.iter().map(|round| round.rate).collect();
            gathered.steady = steady::is_steady(&rates);
            let counted = gathered.rounds.len();
            if !goes_on || counted >= most || (counted >= least && gathered.steady) {
                gathered.stopped = !goes_on;
                return gathered;
            }
        }
    }
}

/// Why a target is given up that lets a worker wait for longer than its patience.
fn silence(heard: &[WallInstant], ready: &Ready, setup: &Setup) -> Option<String> {
    let silent = heard.iter().map(WallInstant::elapsed).max().unwrap_or_default();
    // A worker that is answered says so once a round.
    let most = Duration(ready.patience.0 + setup.timing.round.0);
    (silent.as_nanos() > u128::from(most.0)).then(|| {
        format!(
            "the target has answered nothing to a worker for {}; a slower one is waited for with --patience",
            ready.patience
        )
    })
}

fn merged(parts: Vec<Part>, before: Usage, after: Usage) -> Round {
    let mut round = Round {
        cpu_own: after.own - before.own,
        cpu_machine: after.machine - before.machine,
        span: after.at.duration_since(before.at).as_secs_f64(),
        ..Round::default()
    };
    for part in parts {
        let span = part.span.as_secs_f64().max(1e-9);
        round.rate += (part.read.count() + part.write.count()) as f64 / span;
        round.read_rate += part.read.count() as f64 / span;
        round.read_bytes_rate += part.read_bytes as f64 / span;
        round.written_bytes_rate += part.written_bytes as f64 / span;
        round.written_bytes += part.written_bytes;
        round.read.merge(&part.read);
        round.write.merge(&part.write);
        round.lag = Duration(round.lag.0 + part.lag.0);
        round.held_back += part.held_back;
    }
    round
}
