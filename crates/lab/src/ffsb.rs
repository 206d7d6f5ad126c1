//! FFSB's profiles, run as they are: threads that create, append to, read, write, look at and
//! delete whole files of a set that they share, each operation drawn by its weight.
//!
//! An operation is counted as a whole, from opening its file to closing it. Files lie in a
//! directory that the run makes in each of the profile's locations, and removes when it ends. A
//! file is used by one writer, or by several readers at a time, as in FFSB; one that is deleted is
//! drawn no more.

mod population;
pub mod profile;
mod work;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration as WallDuration, Instant as WallInstant};

use stele_ground::{Dice, Duration};

pub use profile::{FfsbProfile, Group, OperationKind};

use crate::error::LabError;
use crate::histogram::Histogram;
use crate::live::run::WORKERS_MAX;
use population::Population;
use work::FfsbWorker;

/// What all threads of a group did of one kind.
#[derive(Clone, Default, Debug)]
pub struct Done {
    pub whole: Histogram,
    pub read: u64,
    pub written: u64,
}

impl Done {
    fn add(&mut self, other: &Done) {
        self.whole.merge(&other.whole);
        self.read += other.read;
        self.written += other.written;
    }
}

#[derive(Clone, Debug)]
pub struct GroupResult {
    pub group: String,
    pub span: Duration,
    /// In the order of the profile's weights: kind, weight, and what was done.
    pub kinds: Vec<(OperationKind, u64, Done)>,
}

/// What a watcher is told once in a while: seconds gone by, operations so far, and the setting up
/// before that.
#[derive(Clone, Copy, Debug)]
pub enum FfsbProgress {
    Filling { done: u64, all: u64 },
    Running { seconds: f64, operations: u64 },
}

/// How often.
const STEP: WallDuration = WallDuration::from_millis(200);

/// What a thread did, for each of its kinds of operations, and why it ended.
type ThreadEnd = (Vec<Done>, Result<(), LabError>);

/// What threads of a run share.
struct Shared<'a> {
    populations: Vec<Population>,
    stop: &'a AtomicBool,
    over: AtomicBool,
    operations: AtomicU64,
}

impl Shared<'_> {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed) || self.stop.load(Ordering::Relaxed)
    }
}

/// Runs all groups at once for the profile's time. A thread that fails ends them all: what was done
/// until then is kept, beside the reason.
pub fn run(
    profile: &FfsbProfile,
    stop: &AtomicBool,
    tell: &dyn Fn(FfsbProgress),
) -> Result<(Vec<GroupResult>, Option<LabError>), LabError> {
    let threads: u32 = profile.groups.iter().map(|group| group.threads).sum();
    if threads > WORKERS_MAX {
        return Err(LabError::Usage(format!("{threads} threads; at most {WORKERS_MAX}")));
    }
    let mut dice = Dice::new(profile.seed);
    let all: u64 = profile.filesystems.iter().map(|one| one.files).sum();
    let (mut populations, mut done) = (Vec::new(), 0);
    for filesystem in &profile.filesystems {
        populations.push(Population::make(filesystem, profile.direct, &mut dice, &mut || {
            done += 1;
            tell(FfsbProgress::Filling { done, all });
            !stop.load(Ordering::Relaxed)
        })?);
    }
    let shared = Shared { populations, stop, over: AtomicBool::new(false), operations: AtomicU64::new(0) };
    let begun = WallInstant::now();
    let works = |group: usize, number: u32| FfsbWorker::new(&shared, profile, group, u64::from(number));
    let mut seats: Vec<(usize, FfsbWorker<'_>)> = Vec::new();
    for (group, of) in profile.groups.iter().enumerate() {
        seats.extend((0..of.threads).map(|number| (group, works(group, number))));
    }
    let ended: Vec<(usize, ThreadEnd)> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            seats.into_iter().map(|(group, worker)| (group, scope.spawn(move || worker.run()))).collect();
        let time = WallDuration::from_nanos(profile.time.0);
        while begun.elapsed() < time && !shared.is_over() {
            std::thread::sleep(STEP.min(time.saturating_sub(begun.elapsed())));
            tell(FfsbProgress::Running {
                seconds: begun.elapsed().as_secs_f64(),
                operations: shared.operations.load(Ordering::Relaxed),
            });
        }
        shared.over.store(true, Ordering::Relaxed);
        let panicked = || (Vec::new(), Err(LabError::Failed("a thread ended unexpectedly".into())));
        threads.into_iter().map(|(group, thread)| (group, thread.join().unwrap_or_else(|_| panicked()))).collect()
    });
    let span = Duration(begun.elapsed().as_nanos() as u64);
    let none = |group: &Group| group.weights.iter().map(|(kind, weight)| (*kind, *weight, Done::default())).collect();
    let mut all: Vec<GroupResult> = profile
        .groups
        .iter()
        .map(|group| GroupResult { group: group.name.clone(), span, kinds: none(group) })
        .collect();
    let mut failed = None;
    for (group, (done, ended)) in ended {
        let Some(ran) = all.get_mut(group) else { continue };
        ran.kinds.iter_mut().zip(done).for_each(|((_, _, sum), done)| sum.add(&done));
        failed = failed.or(ended.err());
    }
    Ok((all, failed))
}

/// Where the files of each location go.
fn folder(location: &std::path::Path) -> PathBuf {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    location.join(format!("stele-ffsb-{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed)))
}

#[cfg(test)]
mod tests;
