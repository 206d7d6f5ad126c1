//! `stele-sim`: runs seeds of the simulated world; `./x soak` starts it.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Instant;

use stele_array::Pool;
use stele_array::mutation::Mutation;
use stele_sim::coverage::Coverage;
use stele_sim::enumerate::{EXHAUSTIVE, Effort, cases, enumerate};
use stele_sim::kill;
use stele_sim::loops::{self, Stop};
use stele_sim::run::{guarded, replay, run_many, run_pool_seed, usual_tail};
use stele_sim::system::go_without;

/// As in the served program. A seed makes and drops buffers all the time, and this saves a seventh
/// of its time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const HELP: &str = "\
Runs pools in the simulated world under seeds against the oracle.

usage: stele-sim [--seeds N] [--from S] [--threads T] [--twice N] [--trace] [--lines L] [--keep-going]
       stele-sim --enumerate [--outcomes N] [--stride N] [--threads T]
       stele-sim --kills N [--from S] [--dir DIR]
       stele-sim --drives [SECONDS] [--from S] [--dir DIR] [--json]

  --seeds N      how many seeds (default 1000)
  --from S       the first seed (default 0)
  --threads T    seeds run at once (default: all processors); --jobs is the same
  --twice N      run one seed in N twice, and compare the two runs (default: every seed, beyond 1,000 seeds one in 8)
  --trace        show the last lines of a failing seed's trace; with one seed, also of a passing one
  --lines L      how many lines (default 60)
  --keep-going   do not stop at the first failing seed
  --enumerate    instead of seeds: every crash of short workloads, with every subset of up to 12 unflushed sectors
  --stride N     of the crash points try every N-th (default: all)
  --outcomes N   of each crash point try at most N outcomes (default: all)
  --without NAME take this protection away from every pool (see stele_array::mutation)
  --kills N      instead of seeds: a process at work on file drives is killed N times, under the seed S
  --drives [S]   instead of seeds: loop devices under a served pool are pulled and replaced for S seconds (default 3600);
                 needs root, losetup, and fio with its nbd engine
  --json         end with one line of JSON (of --drives)
  --dir DIR      where its drives are made and, unless something failed, removed (default: the system's temporary directory)

Exit code 0 if every seed passed and everything that may happen did, 1 if not, 2 for wrong arguments.

examples:
  stele-sim --seeds 5000
  stele-sim --seeds 1 --from 4711 --trace --lines 400
  stele-sim --kills 5000
  stele-sim --drives 600";

struct Options {
    seeds: u64,
    from: u64,
    threads: usize,
    twice: Option<u64>,
    trace: bool,
    lines: usize,
    keep_going: bool,
    enumerate: bool,
    outcomes: u64,
    stride: u64,
    kills: Option<u64>,
    drives: Option<u64>,
    json: bool,
    directory: PathBuf,
    /// Arguments of the killed process: directory, seed, first value.
    worker: Option<(PathBuf, u64, u64)>,
}

fn options() -> Result<Option<Options>, String> {
    let mut options = Options {
        seeds: 1000,
        from: 0,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        twice: None,
        trace: false,
        lines: usual_tail(),
        keep_going: false,
        enumerate: false,
        outcomes: 1 << EXHAUSTIVE,
        stride: 1,
        kills: None,
        drives: None,
        json: false,
        directory: std::env::temp_dir(),
        worker: None,
    };
    let mut words = std::env::args().skip(1).peekable();
    while let Some(word) = words.next() {
        if word == "--drives" {
            let seconds = words.next_if(|next| next.parse::<u64>().is_ok()).and_then(|next| next.parse().ok());
            options.drives = Some(seconds.unwrap_or(3600));
            continue;
        }
        let mut text = || words.next().ok_or_else(|| format!("{word} wants a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{word} wants a number, not '{text}'"));
        match word.as_str() {
            "--seeds" => options.seeds = number(text()?)?,
            "--from" => options.from = number(text()?)?,
            "--threads" | "--jobs" => options.threads = number(text()?)?.max(1) as usize,
            "--twice" => options.twice = Some(number(text()?)?.max(1)),
            "--lines" => options.lines = number(text()?)? as usize,
            "--trace" => options.trace = true,
            "--json" => options.json = true,
            "--keep-going" => options.keep_going = true,
            "--enumerate" => options.enumerate = true,
            "--outcomes" => options.outcomes = number(text()?)?.max(2),
            "--kills" => options.kills = Some(number(text()?)?),
            "--without" => {
                let name = text()?;
                let mutation = Mutation::named(&name).ok_or_else(|| {
                    let known: Vec<String> = Mutation::ALL.iter().map(|mutation| format!("{mutation:?}")).collect();
                    format!("there is no protection '{name}'; known: {}", known.join(", "))
                })?;
                go_without(mutation);
            }
            "--stride" => options.stride = number(text()?)?.max(1),
            "--dir" => options.directory = PathBuf::from(text()?),
            "--worker" => options.worker = Some((PathBuf::from(text()?), number(text()?)?, number(text()?)?)),
            "--help" | "-h" => return Ok(None),
            other => return Err(format!("unknown argument '{other}'; see --help")),
        }
    }
    Ok(Some(options))
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("stele-sim: {message}");
            return ExitCode::from(2);
        }
    };
    if let Some(seconds) = options.drives {
        return pull_drives(&options, seconds);
    }
    match (&options.worker, options.kills) {
        (Some((directory, seed, first_value)), _) => match kill::work(directory, *seed, *first_value) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        (None, Some(kills)) => kill_many(&options, kills),
        (None, None) if options.enumerate => enumerate_all(&options),
        (None, None) => {
            keep_memory();
            soak(&options)
        }
    }
}

/// Begins this program again with an allocator that gives no memory back: every seed takes as much
/// as the one before, and memory fresh from the system costs a fifth of a run's time. The allocator
/// reads its setting only at the start.
fn keep_memory() {
    const SETTING: &str = "MIMALLOC_PURGE_DELAY";
    if std::env::var_os(SETTING).is_none()
        && let Ok(program) = std::env::current_exe()
    {
        // It returns only if that did not succeed; then the run is slower, and nothing else.
        let _ = Command::new(program).args(std::env::args_os().skip(1)).env(SETTING, "-1").exec();
    }
}

/// Pulls and replaces drives of a served pool.
fn pull_drives(options: &Options, seconds: u64) -> ExitCode {
    let begun = Instant::now();
    let left = || seconds.saturating_sub(begun.elapsed().as_secs());
    let mut say = |tally: &loops::LoopTally, what: &str| {
        println!(
            "{:4} s left: round {}, {} pulls, {} replaced, {} MiB written: {what}",
            left(),
            tally.rounds + 1,
            tally.pulls,
            tally.replaced,
            tally.written >> 20
        );
    };
    let span = std::time::Duration::from_secs(seconds);
    let (tally, ended) = loops::campaign(&options.directory, span, options.from, &mut say);
    let (failed, code) = match ended {
        Ok(()) => (None, ExitCode::SUCCESS),
        Err(Stop::Signal) => (Some("ended by a signal".to_owned()), ExitCode::from(130)),
        Err(Stop::Trouble(what)) => (Some(what), ExitCode::from(2)),
        Err(Stop::Fault(what)) => (Some(what), ExitCode::FAILURE),
    };
    match &failed {
        None => println!(
            "{} rounds in {:.0} s: {} pulls, {} drives replaced, {} scrubs, {} MiB written and compared; 0 failed",
            tally.rounds,
            begun.elapsed().as_secs_f64(),
            tally.pulls,
            tally.replaced,
            tally.scrubs,
            tally.written >> 20
        ),
        Some(what) => println!("FAILED with --from {}: {what}", options.from),
    }
    if options.json {
        println!("{}", tally.json(begun.elapsed().as_secs(), failed.as_deref()));
    }
    code
}

/// Kills a process again and again.
fn kill_many(options: &Options, kills: u64) -> ExitCode {
    let directory = options.directory.join(format!("stele-kills-{}", std::process::id()));
    let worker = std::env::current_exe().and_then(|path| std::fs::create_dir_all(&directory).map(|()| path));
    let worker = match worker {
        Ok(worker) => worker,
        Err(error) => {
            eprintln!("stele-sim: {}: {error}", directory.display());
            return ExitCode::FAILURE;
        }
    };
    let begun = Instant::now();
    let mut last = begun;
    let outcome = kill::campaign(&directory, &worker, kills, options.from, |tally| {
        if last.elapsed().as_secs() >= 5 {
            last = Instant::now();
            println!(
                "{} of {kills} kills, {:.1} a second",
                tally.kills,
                tally.kills as f64 / begun.elapsed().as_secs_f64()
            );
        }
    });
    match outcome {
        Ok(tally) => {
            let _ = std::fs::remove_dir_all(&directory);
            println!(
                "{} kills in {:.1} s, {} of them while opening; {} writes answered, {} cut off; {} drives away for a while; \
                 {} times every byte compared, {} reads in all; 0 failed",
                tally.kills,
                begun.elapsed().as_secs_f64(),
                tally.while_opening,
                tally.answered,
                tally.cut_off,
                tally.drives_away,
                tally.looks,
                tally.reads_checked,
            );
            ExitCode::SUCCESS
        }
        Err(violation) => {
            println!("FAILED with --from {}: {violation}", options.from);
            println!("  its drives are kept in {}", directory.display());
            ExitCode::FAILURE
        }
    }
}

/// Tries every crash of every short workload.
fn enumerate_all(options: &Options) -> ExitCode {
    let cases = cases::cases();
    let effort = Effort { outcomes: options.outcomes, stride: options.stride, again: 4 };
    let begun = Instant::now();
    let (mut failed, mut recoveries) = (0u64, 0u64);
    let run = |index: u64| {
        let case = cases.get(index as usize)?;
        Some((case, guarded(|| enumerate::<Pool>(case, effort, &mut Coverage::default()))))
    };
    run_many(0..cases.len() as u64, options.threads, run, |outcome| match outcome {
        Some((case, Ok(tried))) => {
            recoveries += tried.recoveries;
            println!(
                "{}: {} crash points ({} with every outcome), {} outcomes, {} recoveries",
                case.name, tried.points, tried.exhausted, tried.outcomes, tried.recoveries
            );
        }
        Some((_, Err(violation))) => {
            failed += 1;
            println!("FAILED: {violation}");
        }
        None => {}
    });
    let seconds = begun.elapsed().as_secs_f64();
    println!("{} cases, {recoveries} recoveries in {seconds:.1} s; {failed} failed", cases.len());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn soak(options: &Options) -> ExitCode {
    let begun = Instant::now();
    let mut last = begun;
    let mut coverage = Coverage::default();
    let (mut done, mut events, mut failed) = (0u64, 0u64, Vec::new());
    let seeds = options.from..options.from.saturating_add(options.seeds);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let keep_going = options.keep_going;
    let twice = options.twice.unwrap_or(if options.seeds > 1000 { 8 } else { 1 });
    let run = |seed: u64| {
        let stopped = stop.load(std::sync::atomic::Ordering::Relaxed);
        if stopped { None } else { Some(run_pool_seed(seed, options.lines, seed.is_multiple_of(twice))) }
    };
    run_many(seeds, options.threads, run, |verdict| {
        let Some(verdict) = verdict else { return };
        done += 1;
        events += verdict.events;
        coverage.merge(&verdict.coverage);
        if let Some(failure) = &verdict.failure {
            println!("seed {} ({:?}) FAILED: {failure}", verdict.seed, verdict.campaign);
            println!("  repeat it with: {} --trace", replay(verdict.seed));
            failed.push(verdict.seed);
            if !keep_going {
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        }
        if options.trace && (verdict.failure.is_some() || options.seeds == 1) {
            verdict.tail.iter().for_each(|line| println!("  {line}"));
        }
        if last.elapsed().as_secs() >= 5 {
            last = Instant::now();
            let rate = done as f64 * 60.0 / begun.elapsed().as_secs_f64();
            println!("{done} of {} seeds, {rate:.0} a minute, {} failed", options.seeds, failed.len());
            // Progress is for people who watch; an error in it does not matter.
            let _ = std::io::stdout().flush();
        }
    });
    let seconds = begun.elapsed().as_secs_f64();
    println!("\nwhat happened, and how often:\n{coverage}");
    // After a failed seed, the others may not have run.
    let lacks = if failed.is_empty() { coverage.lacks(done) } else { Vec::new() };
    lacks.iter().for_each(|lack| println!("FAILED: {lack}"));
    println!(
        "{done} seeds in {seconds:.1} s ({:.0} a minute), {events} events, {} twice; {} failed",
        done as f64 * 60.0 / seconds,
        if twice == 1 { "each".to_owned() } else { format!("one in {twice}") },
        failed.len()
    );
    if failed.is_empty() && lacks.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
