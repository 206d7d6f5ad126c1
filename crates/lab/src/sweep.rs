//! Runs a job's cells one after another, on real storage, and records each as it ends.

use std::sync::atomic::AtomicBool;

use crate::closed::Probe;
use crate::error::LabError;
use crate::job::Cell;
use crate::live::run::{Found, LAG_SHARE_MAX, Load, Round, Setup, run_kept};
use crate::live::target::Ready;
use crate::precondition;
use crate::record::{CellRecord, RunRecord, SearchRecord};
use crate::search;

/// What is going on: the cell's number, the load of this run, the round's number (negative while it warms up) and the round.
pub struct Step<'a> {
    pub cell: usize,
    pub load: Load,
    pub number: i64,
    /// The target is brought into its state: nothing of this round counts.
    pub preconditions: bool,
    pub round: &'a Round,
}

/// Answers false to end the run; what was measured until then is kept.
pub type Watch<'a> = &'a mut dyn FnMut(Step<'_>) -> bool;

/// Runs one cell. None where it was stopped before anything could be counted. `end` stops it also between rounds.
pub fn cell(
    ready: &Ready,
    number: usize,
    cell: &Cell,
    end: &AtomicBool,
    watch: Watch<'_>,
) -> Result<Option<CellRecord>, LabError> {
    let Some(times) = cell.precondition else { return measured(ready, number, cell, end, watch) };
    let load = cell.setup.load;
    let done = precondition::carry_out(ready, &cell.setup, times, end, &mut |round| {
        watch(Step { cell: number, load, number: 0, preconditions: true, round })
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
    cell: &Cell,
    end: &AtomicBool,
    watch: Watch<'_>,
) -> Result<Option<CellRecord>, LabError> {
    let Some(goal) = cell.goal else {
        let (found, failed) = one(ready, number, &cell.setup, end, watch)?;
        // Wrong data is told also where it came before the first round was over.
        let kept = !found.rounds.is_empty() || !found.wrong.is_none();
        let record = kept.then(|| CellRecord::plain(number, cell, &found));
        return match (record, failed) {
            (Some(record), Some(error)) => Ok(Some(CellRecord { failed: Some(error.to_string()), ..record })),
            (None, Some(error)) => Err(error),
            (record, None) => Ok(record),
        };
    };
    searched(number, cell, goal, &mut |outstanding| {
        let load = Load::Outstanding(outstanding);
        let (found, failed) = one(ready, number, &Setup { load, ..cell.setup.clone() }, end, watch)?;
        if let Some(error) = failed {
            return Err(error);
        }
        Ok((!found.stopped).then(|| RunRecord::of(&found)))
    })
}

/// What was counted, and why no more was.
type Kept = (Found, Option<LabError>);

/// One run of a search at so many outstanding; none where it was stopped.
pub type Probing<'a> = &'a mut dyn FnMut(u32) -> Result<Option<RunRecord>, LabError>;

/// Looks for the highest load, whoever runs the probes. None where it was stopped: half a search is no answer.
pub fn searched(
    number: usize,
    cell: &Cell,
    goal: search::Goal,
    probing: Probing<'_>,
) -> Result<Option<CellRecord>, LabError> {
    let mut runs: Vec<RunRecord> = Vec::new();
    let mut failed = None;
    let goal = match cell.setup.load {
        Load::Outstanding(start) if start > 1 => search::Goal { start: start.into(), ..goal },
        _ => goal,
    };
    let highest = search::highest(goal, |outstanding| match probing(u32::try_from(outstanding).unwrap_or(u32::MAX)) {
        Ok(Some(run)) => {
            let probe = probe_of(outstanding, &run);
            runs.push(run);
            Ok(probe)
        }
        Ok(None) => Err("stopped".into()),
        Err(error) => {
            failed = Some(error);
            Err("failed".into())
        }
    });
    let highest = match (highest, failed) {
        (_, Some(error)) => return Err(error),
        (Err(_), None) => return Ok(None),
        (Ok(highest), None) => highest,
    };
    let mut record = CellRecord::with(number, cell, runs, Some(SearchRecord::of(goal, &highest)));
    // A target whose response falls again with more load is not answered by the first crossing. Not tried where the response was
    // never exceeded, nor beyond what may be outstanding.
    let twice = (highest.load * 2.0).ceil();
    if highest.beyond.is_some() && twice <= goal.load_max as f64 {
        let Some(run) = probing(twice as u32)? else { return Ok(None) };
        record.add_twice(run, goal);
    }
    Ok(Some(record))
}

fn one(ready: &Ready, number: usize, setup: &Setup, end: &AtomicBool, watch: Watch<'_>) -> Result<Kept, LabError> {
    let load = setup.load;
    let mut watch = |round: i64, counted: &Round| {
        watch(Step { cell: number, load, number: round, preconditions: false, round: counted })
    };
    run_kept(ready, setup, end, &mut watch)
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
