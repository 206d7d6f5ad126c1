//! Runs seeds: once, or twice with a comparison of the traces; many in parallel. Prints the command
//! that repeats a failure.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use stele_array::Pool;

use crate::coverage::Coverage;
use crate::history;
use crate::oracle::Violation;
use crate::setup::{Campaign, Setup};
use crate::system::System;
use crate::trace::{TAIL, Trace};
use crate::world::World;

/// Time limit of a seed: it takes a second, or a few on a busy machine.
const SEED_MAX: Duration = Duration::from_secs(300);

/// The result of one run.
pub struct Run {
    pub hash: u64,
    pub events: u64,
    pub coverage: Coverage,
    pub tail: Vec<String>,
    pub verdict: Result<(), Violation>,
}

/// The result of one seed.
pub struct Verdict {
    pub seed: u64,
    pub campaign: Campaign,
    pub events: u64,
    pub coverage: Coverage,
    /// The failure; `None` if the seed passed.
    pub failure: Option<String>,
    pub tail: Vec<String>,
}

/// One run of a seed against the system `S`.
pub fn run_once<S: System>(seed: u64, campaign: Campaign, tail: usize) -> Run {
    run_setup::<S>(seed, Setup::drawn(seed, campaign), tail)
}

/// One run of a seed on a given setup.
pub fn run_setup<S: System>(seed: u64, setup: Setup, tail: usize) -> Run {
    let campaign = setup.campaign;
    let mut world = World::<S>::new(seed, setup, Trace::new(tail));
    let verdict = guarded(|| history::run(&mut world));
    world.machine.coverage.count(format!("seeds {campaign:?}"));
    Run {
        hash: world.machine.hash(),
        events: world.machine.trace.events(),
        coverage: std::mem::take(&mut world.machine.coverage),
        tail: world.machine.trace.tail().collect(),
        verdict,
    }
}

thread_local! {
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs code whose invariants may fail: a panic becomes a violation that names its place.
pub fn guarded<T>(run: impl FnOnce() -> Result<T, Violation>) -> Result<T, Violation> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if QUIET.get() {
                LAST_PANIC.set(Some(info.to_string()));
            } else {
                usual(info);
            }
        }));
    });
    let before = QUIET.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(run));
    QUIET.set(before);
    outcome.unwrap_or_else(|_| {
        let message = LAST_PANIC.take().unwrap_or_else(|| "a panic without words".into());
        Err(Violation(format!("an invariant broke: {message}")))
    })
}

/// Runs a seed. With `twice`, both runs must be the same.
pub fn run_seed<S: System>(seed: u64, campaign: Campaign, tail: usize, twice: bool) -> Verdict {
    let first = run_once::<S>(seed, campaign, tail);
    let mut failure = first.verdict.err().map(|violation| violation.0);
    if failure.is_none() && twice {
        let second = run_once::<S>(seed, campaign, tail);
        if (first.hash, first.events) != (second.hash, second.events) {
            failure = Some(format!(
                "two runs of the seed differ: {} events with hash {:016x}, then {} with {:016x}",
                first.events, first.hash, second.events, second.hash
            ));
        }
    }
    Verdict { seed, campaign, events: first.events, coverage: first.coverage, failure, tail: first.tail }
}

/// Runs a seed of the pool, in its campaign.
pub fn run_pool_seed(seed: u64, tail: usize, twice: bool) -> Verdict {
    bounded(seed, || run_seed::<Pool>(seed, Campaign::of(seed), tail, twice))
}

/// Ends the process if a seed does not end: a pool that works without ever waiting blocks its own
/// machine, which therefore cannot notice.
fn bounded<T>(seed: u64, run: impl FnOnce() -> T) -> T {
    let (running, ended) = channel::<()>();
    let watch = std::thread::spawn(move || {
        if ended.recv_timeout(SEED_MAX) == Err(RecvTimeoutError::Timeout) {
            let seconds = SEED_MAX.as_secs();
            eprintln!("seed {seed} FAILED: it has not ended within {seconds} s; repeat it with: {}", replay(seed));
            std::process::exit(1);
        }
    });
    let outcome = run();
    drop(running);
    let _ = watch.join();
    outcome
}

/// The command that repeats a seed.
pub fn replay(seed: u64) -> String {
    format!("./x soak --seeds 1 --from {seed}")
}

/// Runs `seeds` on this many threads; `each` is called as they end, in any order.
pub fn run_many<T: Send>(
    seeds: std::ops::Range<u64>,
    threads: usize,
    run: impl Fn(u64) -> T + Sync,
    mut each: impl FnMut(T),
) {
    let next = std::sync::atomic::AtomicU64::new(seeds.start);
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let (sender, next, run, end) = (sender.clone(), &next, &run, seeds.end);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= end || sender.send(run(seed)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        receiver.into_iter().for_each(&mut each);
    });
}

/// Number of trace lines in the report of a failure.
pub fn usual_tail() -> usize {
    TAIL
}

#[cfg(test)]
pub(crate) mod mirror;
#[cfg(test)]
mod tests;
