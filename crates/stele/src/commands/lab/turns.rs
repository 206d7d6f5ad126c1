//! The cells of a job one after another: each is recorded as it ends, and what was measured is kept
//! however the job ends.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use stele_lab::error::LabError;
use stele_lab::job::JobCell;
use stele_lab::record::{CellRecord, Recorder};
use stele_lab::sweep;
use stele_server::failure::{Failure, Kind, Outcome};

use super::progress::Progress;

/// How the cells of a job ended. What was measured is shown in every case.
pub enum Ending {
    Whole,
    Stopped,
    Failed(Failure),
}

impl Ending {
    /// Ends the result file of a job that is whole; the digest of the file. Another file stays
    /// without an end, so that its job can go on.
    pub fn finish(self, recorder: Option<Recorder>) -> (Ending, Option<String>) {
        let (Ending::Whole, Some(recorder)) = (&self, recorder) else { return (self, None) };
        match recorder.finish() {
            Ok(digest) => (Ending::Whole, Some(digest)),
            Err(error) => (Ending::Failed(error.into()), None),
        }
    }
}

/// Keeps what was measured of a cell while its target is read back.
pub type Draft<'a> = &'a mut dyn FnMut(&CellRecord) -> Result<(), LabError>;

/// Measures one cell; `None` if it was stopped before anything counted, or is left out.
pub type One<'a> = &'a mut dyn FnMut(usize, &JobCell, sweep::SweepWatch<'_>, Draft<'_>) -> Outcome<Option<CellRecord>>;

/// Runs the missing cells one after another, and records each when it ends.
pub fn in_turn(
    cells: &[JobCell],
    done: &mut Vec<CellRecord>,
    recorder: &mut Option<Recorder>,
    progress: &Progress<'_>,
    stop: &AtomicBool,
    one: One<'_>,
) -> Ending {
    // Cells that were left out have no record, so the last one says how far the run came.
    let first = done.last().map_or(0, |last| last.number + 1);
    for (number, cell) in cells.iter().enumerate().skip(first) {
        let mut watch = |step: sweep::Step<'_>| {
            progress.round(&step);
            !stop.load(Ordering::Relaxed)
        };
        let found = one(number, cell, &mut watch, &mut |found| draft(recorder, found));
        let found = match found {
            Ok(found) => found,
            Err(failure) => return Ending::Failed(failure),
        };
        let stopped = stop.load(Ordering::Relaxed);
        let mut failed = false;
        if let Some(found) = found {
            progress.cell(&found);
            failed = found.failed.is_some();
            let kept = keep(recorder, &found, stopped || failed);
            done.push(found);
            if let Err(error) = kept {
                return Ending::Failed(error.into());
            }
        }
        if stopped || failed {
            return Ending::Stopped;
        }
    }
    Ending::Whole
}

/// Records what was measured of a cell, until it is kept.
pub fn draft(recorder: &mut Option<Recorder>, found: &CellRecord) -> Result<(), LabError> {
    recorder.as_mut().map_or(Ok(()), |file| file.draft(found))
}

/// Records a cell. One that ended before its time is partial, and the last: a resumed job measures
/// it again from the start.
pub fn keep(recorder: &mut Option<Recorder>, found: &CellRecord, partial: bool) -> Result<(), LabError> {
    match recorder.take() {
        Some(file) if partial => file.partial(found),
        Some(mut file) => {
            let kept = file.cell(found);
            *recorder = Some(file);
            kept
        }
        None => Ok(()),
    }
}

pub fn stopped(out: Option<&Path>, cells: &[CellRecord]) -> Failure {
    let failed = cells.last().and_then(|cell| cell.failed.clone());
    let why = failed.unwrap_or_else(|| "stopped before the end".into());
    let damaged = cells.last().is_some_and(CellRecord::is_damaged);
    let failure = Failure::new(if damaged { Kind::Damaged } else { Kind::Partial }, why);
    match out {
        Some(path) => failure.next(format!("the same command with --resume goes on with {}", path.display())),
        None => failure,
    }
}
