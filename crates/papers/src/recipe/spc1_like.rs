//! A measurement in the manner of SPC-1, on one file or device. It has streams like those of its
//! workload at the highest rate that keeps a mean response of 30 ms, a ramp of loads below it,
//! repetitions, and a check of what was written.
//!
//! It is no result of the Storage Performance Council. Nothing is audited or priced, phases are
//! minutes instead of ten minutes and eight hours, the uneven streams follow a simpler law, and the
//! check of the data comes without a power cut. The page says so in its first sentence.
//!
//! The loads of all phases but the first follow from what the first one found, so they are known
//! only when it is over.

use super::live::{self, Asked, Next};
use super::snia_pts;
use stele_ground::Duration;
use stele_lab::error::LabError;
use stele_lab::job::{Axes, Job, JobCell, processors};
use stele_lab::live::content::Content;
use stele_lab::live::run::{Load, Of};
use stele_lab::mix::{AccessPattern, AccessStream, Mix};
use stele_lab::record::{CellRecord, Recorded};
use stele_lab::search::{Goal, Statistic};
use stele_lab::workload::AccessSpec;

pub mod paper;

/// The mean response that may not be exceeded.
pub const RESPONSE: Duration = Duration::from_millis(30);
/// Percent of the highest rate, in the order in which they are measured.
pub const RAMP: [u8; 6] = [100, 95, 90, 80, 50, 10];
/// Loads of a repetition, and the number of repetitions.
pub const REPEATED: [u8; 2] = [10, 100];
pub const REPETITIONS: u32 = 2;
/// Percent of the highest rate under which data is written that is checked.
const CHECKED: u8 = 25;
/// The sustained phase, in lengths of the others.
const SUSTAINED: u64 = 5;
/// The first rate tried, and the highest; probes of the search.
const START: u64 = 100;
const RATE_MAX: u64 = 5_000_000;
const PROBES_MAX: usize = 20;
const QUICK_PROBES_MAX: usize = 12;

pub const FOUND: &str = "highest rate";
pub const SUSTAIN: &str = "sustained";
pub const RAMPED: &str = "ramp";
pub const CHECK: &str = "persistence";

const KIB: u64 = 1 << 10;
const SMALL: &[(u64, u8)] = &[(4 * KIB, 100)];
/// Sizes of what is read or written in order.
const ORDERED: &[(u64, u8)] = &[(8 * KIB, 40), (16 * KIB, 24), (32 * KIB, 20), (64 * KIB, 8), (128 * KIB, 8)];
/// Parts of the target: a store of data, one of users, and a log.
pub const DATA: (u8, u8) = (0, 45);
pub const USERS: (u8, u8) = (45, 90);
pub const LOG: (u8, u8) = (90, 100);

const fn small(share: u16, read: u8, course: AccessPattern, part: (u8, u8)) -> AccessStream {
    AccessStream { share, read, course, sizes: SMALL, part }
}

const fn ordered(share: u16, read: u8, part: (u8, u8)) -> AccessStream {
    AccessStream { share, read, course: AccessPattern::Ordered, sizes: ORDERED, part }
}

/// The streams of the published workload, by its shares.
pub const STREAMS: Mix = &[
    small(35, 50, AccessPattern::Even, DATA),
    small(281, 50, AccessPattern::Uneven, DATA),
    ordered(70, 100, DATA),
    small(210, 50, AccessPattern::Uneven, DATA),
    small(18, 30, AccessPattern::Even, USERS),
    small(70, 30, AccessPattern::Uneven, USERS),
    ordered(35, 100, USERS),
    ordered(281, 0, LOG),
];

/// All streams as one specification, in whole percent.
fn spec() -> AccessSpec {
    let sizes = vec![(4 * KIB, 61), (8 * KIB, 16), (16 * KIB, 9), (32 * KIB, 8), (64 * KIB, 3), (128 * KIB, 3)];
    AccessSpec { name: "spc1_like".into(), random: Some(61), read: Some(39), sizes }
}

pub fn not_in_virtual_time() -> LabError {
    LabError::Usage(
        "recipe 'spc1-like': checks what was written, and modelled drives keep no content; measure a target with --on, like --on /dev/sdx"
            .into(),
    )
}

fn axes(phase: &str, load: u8, turn: Option<u32>) -> Axes {
    let turn = turn.map(|turn| ("turn".to_owned(), turn.to_string()));
    let named = [("phase".to_owned(), phase.to_owned()), ("load".to_owned(), format!("{load} %"))];
    named.into_iter().chain(turn).collect()
}

pub fn live(job: &Job, quick: bool) -> Result<Vec<Asked>, LabError> {
    let job = &snia_pts::timed(job, quick);
    let goal = Goal {
        response: RESPONSE,
        statistic: Statistic::Mean,
        start: START,
        load_max: RATE_MAX,
        probes_max: if quick { QUICK_PROBES_MAX } else { PROBES_MAX },
        of_rates: true,
    };
    let mut cells = vec![cell(job, axes(FOUND, 100, None), Some(goal))?];
    let mut sustained = cell(job, axes(SUSTAIN, 100, None), None)?;
    let timing = &mut sustained.setup.timing;
    timing.least.0 = timing.least.0.saturating_mul(SUSTAINED);
    timing.most = timing.least;
    cells.push(sustained);
    for load in RAMP {
        cells.push(cell(job, axes(RAMPED, load, None), None)?);
    }
    for turn in 1..=REPETITIONS {
        for load in REPEATED {
            cells.push(cell(job, axes("repetition", load, Some(turn)), None)?);
        }
    }
    let mut checked = cell(job, axes(CHECK, CHECKED, None), None)?;
    checked.setup.content = Content { verify: true, ..checked.setup.content };
    cells.push(checked);
    Ok(cells.into_iter().map(|cell| Asked { cell, buffered: false, targets: 0..1 }).collect())
}

fn cell(job: &Job, axes: Axes, goal: Option<Goal>) -> Result<JobCell, LabError> {
    let mut cell = live::cell(job, spec(), (1, processors()), goal, axes)?;
    cell.setup.of = Of::Streams(STREAMS);
    cell.setup.load = Load::Rate { each_second: START as f64, random: true };
    Ok(cell)
}

/// The cell with the load that follows from the highest rate. Without one, nothing follows.
pub fn next(cell: &JobCell, before: &[CellRecord]) -> Next {
    let value = |name: &str| cell.axes.iter().find(|(axis, _)| axis == name).map(|(_, value)| value.as_str());
    if value("phase") == Some(FOUND) {
        return Next::Run(Box::new(cell.clone()));
    }
    let percent = value("load").and_then(|load| load.strip_suffix(" %")?.parse::<f64>().ok());
    let (Some(percent), Some(rate)) = (percent, highest(before)) else { return Next::Skip };
    let each_second = (rate * percent / 100.0).max(1.0);
    let mut cell = cell.clone();
    cell.setup.load = Load::Rate { each_second, random: true };
    Next::Run(Box::new(cell))
}

/// The rate that the search found; none if not even the lowest one kept the response.
pub fn highest(cells: &[CellRecord]) -> Option<f64> {
    let search = cells.iter().find(|cell| cell.axis("phase") == Some(FOUND))?.search.as_ref()?;
    search.rate_asked.filter(|rate| *rate > 0.0)
}

/// The cell of a phase, at this load.
fn found<'a>(recorded: &'a Recorded, phase: &str, load: u8, turn: Option<u32>) -> Option<&'a CellRecord> {
    let (load, turn) = (format!("{load} %"), turn.map(|turn| turn.to_string()));
    recorded.cells.iter().find(|cell| {
        cell.axis("phase") == Some(phase) && cell.axis("load") == Some(&load) && cell.axis("turn") == turn.as_deref()
    })
}

#[cfg(test)]
mod tests;
