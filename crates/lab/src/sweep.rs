//! Runs a job's cells one after another, on real storage, and records each as it ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration as WallDuration;

use crate::closed::Probe;
use crate::error::LabError;
use crate::job::JobCell;
use crate::live::clock::Meeting;
use crate::live::run::{self, Draining, Found, LAG_SHARE_MAX, Load, Round, Setup, Told, run_beside, run_kept};
use crate::live::target::Ready;
use crate::precondition;
use crate::record::{CellRecord, RunRecord, SearchRecord, THOUSANDTHS, rounded};
use crate::search;
use crate::search::rate::{RateGoal, RateProbe, highest_rate, rate_min};

/// How often it is seen whether runs beside each other shall end.
const LOOK: WallDuration = WallDuration::from_millis(50);

/// What is going on: the cell's number, the load of this run, the round's number (negative while it
/// warms up) and the round.
pub struct Step<'a> {
    pub cell: usize,
    pub load: Load,
    pub number: i64,
    /// The target is brought into its state: nothing of this round counts.
    pub preconditions: bool,
    pub round: &'a Round,
    /// The time of the run is over, and what is under way is waited for; the round is empty.
    pub draining: Option<Draining>,
}

impl<'a> Step<'a> {
    fn draining(cell: usize, load: Load, round: &'a Round, draining: Draining) -> Step<'a> {
        Step { cell, load, number: 0, preconditions: false, round, draining: Some(draining) }
    }
}

/// Answers false to end the run; what was measured until then is kept.
pub type SweepWatch<'a> = &'a mut dyn FnMut(Step<'_>) -> bool;

/// Whether the target takes what a cell asks of it, as far as that is known before.
pub fn admit(ready: &Ready, cell: &JobCell) -> Result<(), LabError> {
    match cell.goal {
        // A search finds its load.
        Some(_) => run::fits(ready, &cell.setup),
        None => run::admit(ready, &cell.setup),
    }
}

/// Runs one cell. None where it was stopped before anything could be counted. `end` stops it also
/// between rounds.
pub fn cell(
    ready: &Ready,
    number: usize,
    cell: &JobCell,
    end: &AtomicBool,
    watch: SweepWatch<'_>,
) -> Result<Option<CellRecord>, LabError> {
    let Some(times) = cell.precondition else { return measured(ready, number, cell, end, watch) };
    let load = cell.setup.load;
    let done = precondition::carry_out(ready, &cell.setup, times, end, &mut |round| {
        watch(Step { cell: number, load, number: 0, preconditions: true, round, draining: None })
    })?;
    if done.is_none() {
        return Ok(None);
    }
    let record = measured(ready, number, cell, end, watch)?;
    Ok(record.map(|record| CellRecord { precondition: done, ..record }))
}

fn measured(
    ready: &Ready,
    number: usize,
    cell: &JobCell,
    end: &AtomicBool,
    watch: SweepWatch<'_>,
) -> Result<Option<CellRecord>, LabError> {
    let Some(goal) = cell.goal else {
        return kept(number, cell, one(ready, number, &cell.setup, end, watch));
    };
    if goal.of_rates {
        return searched_rates(ready, number, cell, goal, end, watch);
    }
    searched(number, cell, goal, &mut |outstanding| {
        let load = Load::Outstanding(outstanding);
        let (found, failed) = one(ready, number, &Setup { load, ..cell.setup.clone() }, end, watch)?;
        if let Some(error) = failed {
            return Err(error);
        }
        Ok((!found.stopped).then(|| RunRecord::of(&found)))
    })
}

/// What is kept of a run, also of one whose target failed.
fn kept(number: usize, cell: &JobCell, ran: Result<Kept, LabError>) -> Result<Option<CellRecord>, LabError> {
    let (found, failed) = ran?;
    // Wrong data is told also where it came before the first round was over.
    let counted = !found.rounds.is_empty() || !found.wrong.is_none();
    let record = counted.then(|| CellRecord::plain(number, cell, &found));
    match (record, failed) {
        (Some(record), Some(error)) => Ok(Some(CellRecord { failed: Some(error.to_string()), ..record })),
        (None, Some(error)) => Err(error),
        (record, None) => Ok(record),
    }
}

/// Runs at one load: of a rate where the generator was late and the objective missed, of others
/// where nothing was answered.
const TURNS: u32 = 3;

/// Looks for the highest rate that keeps an objective. None where it was stopped.
fn searched_rates(
    ready: &Ready,
    number: usize,
    cell: &JobCell,
    goal: search::Goal,
    end: &AtomicBool,
    watch: SweepWatch<'_>,
) -> Result<Option<CellRecord>, LabError> {
    let (first, random) = match cell.setup.load {
        Load::Rate { each_second, random } => (each_second as u64, random),
        Load::Outstanding(_) | Load::Bytes { .. } => (0, false),
    };
    let share = match goal.statistic {
        search::Statistic::Mean => None,
        search::Statistic::Percentile(share) => Some(share),
    };
    let wanted = RateGoal {
        response: goal.response,
        start: if first > 0 { first } else { goal.start },
        rate_min: rate_min(share, cell.setup.timing.least),
        rate_max: goal.load_max,
        probes_max: goal.probes_max,
    };
    let mut runs: Vec<RunRecord> = Vec::new();
    let mut failed = None;
    let found = highest_rate(wanted, |rate| {
        let load = Load::Rate { each_second: rate as f64, random };
        for turn in 1.. {
            match one(ready, number, &Setup { load, ..cell.setup.clone() }, end, watch) {
                Ok((found, None)) if !found.stopped => {
                    let run = RunRecord::of(&found);
                    let probe = RateProbe::of(rate, &run, share, &wanted);
                    // A target is not blamed for what the generator was late by.
                    let again = turn < TURNS && void(run.lag_share).is_some() && !probe.keeps(&wanted);
                    runs.push(run);
                    if !again {
                        return Ok(probe);
                    }
                }
                Ok((_, None)) => return Err("stopped".into()),
                Ok((_, Some(error))) | Err(error) => {
                    failed = Some(error);
                    return Err("failed".into());
                }
            }
        }
        Err("stopped".into())
    });
    let found = match (found, failed) {
        (_, Some(error)) => return Err(error),
        (Err(_), None) => return Ok(None),
        (Ok(found), None) => found,
    };
    let asked = found.within.map(|rate| rate as f64);
    let answer = runs.iter().rev().find(|run| run.rate_asked == asked);
    let search = SearchRecord::of_rate(goal, &found, answer);
    Ok(Some(CellRecord::with(number, cell, runs, Some(search))))
}

/// What was counted, and why no more was.
type Kept = (Found, Option<LabError>);

/// One run of a search at so many outstanding; none where it was stopped.
pub type Probing<'a> = &'a mut dyn FnMut(u32) -> Result<Option<RunRecord>, LabError>;

/// Looks for the highest load, whichever hosts run the probes. None where it was stopped: half a
/// search is no answer.
pub fn searched(
    number: usize,
    cell: &JobCell,
    goal: search::Goal,
    probing: Probing<'_>,
) -> Result<Option<CellRecord>, LabError> {
    let mut runs: Vec<RunRecord> = Vec::new();
    let mut failed = None;
    let goal = match cell.setup.load {
        Load::Outstanding(start) if start > 1 => search::Goal { start: start.into(), ..goal },
        _ => goal,
    };
    let highest = search::highest(goal, |outstanding| {
        let mut turn = 1;
        loop {
            match probing(u32::try_from(outstanding).unwrap_or(u32::MAX)) {
                // A busy machine may let a short run pass by; a target that hangs does so again.
                Ok(Some(run)) if turn < TURNS && run.total().response.count() == 0 => turn += 1,
                Ok(Some(run)) => {
                    let probe = probe_of(outstanding, &run);
                    runs.push(run);
                    return Ok(probe);
                }
                Ok(None) => return Err("stopped".into()),
                Err(error) => {
                    failed = Some(error);
                    return Err("failed".into());
                }
            }
        }
    });
    let highest = match (highest, failed) {
        (_, Some(error)) => return Err(error),
        (Err(_), None) => return Ok(None),
        (Ok(highest), None) => highest,
    };
    let mut record = CellRecord::with(number, cell, runs, Some(SearchRecord::of(goal, &highest)));
    // A target whose response falls again with more load is not answered by the first crossing. Not
    // tried where the response was never exceeded, nor beyond what may be outstanding.
    let twice = (highest.load * 2.0).ceil();
    if highest.beyond.is_some() && twice <= goal.load_max as f64 {
        let Some(run) = probing(twice as u32)? else { return Ok(None) };
        record.add_twice(run, goal);
    }
    Ok(Some(record))
}

/// What a run among several sends to the thread that watches all.
enum SentTold {
    Round(i64, Box<Round>),
    Draining(Draining),
}

/// A run among several that go on at once.
type Beside = Result<Option<CellRecord>, LabError>;

/// Runs cells at once, each on its own target, from a common beginning. They end together, and one
/// that fails ends all.
pub fn together(cells: &[(&Ready, &JobCell)], end: &AtomicBool, watch: SweepWatch<'_>) -> Vec<Beside> {
    let meeting = Meeting::of(cells.len());
    let stop = AtomicBool::new(false);
    let (sender, rounds) = mpsc::channel::<(usize, SentTold)>();
    let mut all: Vec<Beside> = std::thread::scope(|scope| {
        let (meeting, stop) = (&meeting, &stop);
        let run = |(number, (ready, cell)): (usize, &(&Ready, &JobCell))| {
            let (ready, cell, sender) = ((*ready).clone(), (*cell).clone(), sender.clone());
            scope.spawn(move || {
                let mut watch = |told: Told<'_>| {
                    let told = match told {
                        Told::Round(round, counted) => SentTold::Round(round, Box::new(counted.clone())),
                        Told::Draining(draining) => SentTold::Draining(draining),
                    };
                    sender.send((number, told)).is_ok()
                };
                let ran = run_beside(&ready, &cell.setup, stop, meeting, &mut watch);
                if !matches!(ran, Ok((_, None))) {
                    stop.store(true, Ordering::Relaxed);
                }
                kept(number, &cell, ran)
            })
        };
        let threads: Vec<_> = cells.iter().enumerate().map(run).collect();
        drop(sender);
        loop {
            match rounds.recv_timeout(LOOK) {
                Ok((cell, told)) => {
                    let Some((_, one)) = cells.get(cell) else { continue };
                    let (load, empty) = (one.setup.load, Round::default());
                    let step = match &told {
                        SentTold::Draining(draining) => Step::draining(cell, load, &empty, *draining),
                        SentTold::Round(number, round) => {
                            Step { cell, load, number: *number, preconditions: false, round, draining: None }
                        }
                    };
                    if !watch(step) {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) if end.load(Ordering::Relaxed) => {
                    stop.store(true, Ordering::Relaxed)
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        let ended = |thread: std::thread::ScopedJoinHandle<'_, Beside>| {
            thread.join().unwrap_or_else(|_| Err(LabError::Failed("a run panicked".into())))
        };
        threads.into_iter().map(ended).collect()
    });
    share_processors(&mut all);
    all
}

/// All ran in this process: its processor time is counted once, and stands beside the threads of
/// all.
fn share_processors(all: &mut [Beside]) {
    let runs = || all.iter().flatten().flatten().flat_map(|cell| &cell.runs);
    let threads: u32 = runs().map(|run| run.workers).sum();
    for (number, cell) in all.iter_mut().flatten().flatten().enumerate() {
        for run in &mut cell.runs {
            let share = f64::from(run.workers) / f64::from(threads.max(1));
            run.saturation = run.saturation.map(|busy| rounded(busy * share, THOUSANDTHS));
            for round in run.rounds.iter_mut().filter(|_| number > 0) {
                (round.cpu_own, round.cpu_machine) = (0.0, 0.0);
            }
        }
    }
}

fn one(ready: &Ready, number: usize, setup: &Setup, end: &AtomicBool, watch: SweepWatch<'_>) -> Result<Kept, LabError> {
    run_kept(ready, setup, end, &mut told_as_steps(number, setup.load, watch))
}

/// Tells a watch of a run's cell and load beside what the run itself tells.
pub fn told_as_steps(cell: usize, load: Load, watch: SweepWatch<'_>) -> impl FnMut(Told<'_>) -> bool {
    move |told| match told {
        Told::Round(number, round) => watch(Step { cell, load, number, preconditions: false, round, draining: None }),
        Told::Draining(draining) => watch(Step::draining(cell, load, &Round::default(), draining)),
    }
}

pub fn probe_of(outstanding: u64, run: &RunRecord) -> Probe {
    let total = run.total();
    Probe { outstanding, rate: total.rate, response: total.response, rates: run.rates(), steady: run.is_steady() }
}

/// Why a run says nothing of its target, if so.
pub fn void(lag_share: f64) -> Option<String> {
    (lag_share > LAG_SHARE_MAX).then(|| {
        format!(
            "the generator itself was late by {:.1} % of the mean response: ask for a lower rate, or for more workers",
            lag_share * 100.0
        )
    })
}

#[cfg(test)]
mod tests;
