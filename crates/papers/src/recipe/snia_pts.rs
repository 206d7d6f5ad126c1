//! The tests of the SNIA's performance test specification for solid state storage, on one file or
//! device: write saturation, IOPS, throughput and latency. The target is purged first, where this
//! machine can. Each test runs in rounds until its steady state window is full: five rounds that
//! keep the rule, of 25 at most.
//!
//! The page states the differences from the specification: among them, what this machine cannot
//! purge, and that the write saturation ends early where the rates of all its rounds are of one
//! state.

use super::live::{self, Asked, Next};
use super::page;
use stele_ground::Bytes;
use stele_lab::error::LabError;
use stele_lab::job::{Job, JobCell, processors};
use stele_lab::record::{CellRecord, RunRecord};
use stele_lab::steady;
use stele_lab::workload::AccessSpec;

pub mod paper;

/// Number of rounds in the window.
pub const ROUNDS: u32 = 5;
/// Rounds after which a test ends without a steady state; below, in a quick run, which does not
/// repeat them.
pub const ROUNDS_MAX: u32 = 25;
pub const QUICK_ROUNDS_MAX: u32 = 5;
/// Outstanding accesses, except in the latency test.
const OUTSTANDING: u32 = 32;
/// Number of times that the target is written in order before a test.
const WRITTEN: u32 = 2;
/// Length of the write saturation in cells of a minute: at least, and at most (six hours). A quick
/// run has the least.
const SATURATION: u64 = 30;
const SATURATION_MAX: u64 = 360;
const QUICK_SATURATION: u64 = 5;

const KIB: u64 = 1 << 10;

/// One of the tests: each round measures every mix of reads with every size.
pub struct Test {
    pub name: &'static str,
    pub title: &'static str,
    random: bool,
    outstanding: u32,
    reads: &'static [u8],
    sizes: &'static [u64],
    /// The mixes and sizes of a quick run.
    few: (&'static [u8], &'static [u64]),
    /// The cell that decides whether the test is steady: reads in percent, and bytes.
    pub tracked: (u8, u64),
}

pub const SATURATED: &str = "saturation";
pub const TESTS: [Test; 3] = [
    Test {
        name: "iops",
        title: "IOPS",
        random: true,
        outstanding: OUTSTANDING,
        reads: &[0, 5, 35, 50, 65, 95, 100],
        sizes: &[512, 4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB, 1024 * KIB],
        few: (&[0, 100], &[4 * KIB, 64 * KIB]),
        tracked: (0, 4 * KIB),
    },
    Test {
        name: "throughput",
        title: "Throughput",
        random: false,
        outstanding: OUTSTANDING,
        reads: &[0, 100],
        sizes: &[128 * KIB, 1024 * KIB],
        few: (&[0, 100], &[128 * KIB]),
        tracked: (0, 128 * KIB),
    },
    Test {
        name: "latency",
        title: "Latency",
        random: true,
        outstanding: 1,
        reads: &[0, 65, 100],
        sizes: &[512, 4 * KIB, 8 * KIB],
        few: (&[0, 65, 100], &[4 * KIB]),
        tracked: (0, 4 * KIB),
    },
];

impl Test {
    pub fn reads(&self, quick: bool) -> &'static [u8] {
        if quick { self.few.0 } else { self.reads }
    }

    pub fn sizes(&self, quick: bool) -> &'static [u64] {
        if quick { self.few.1 } else { self.sizes }
    }

    /// What its charts and tables show of a run.
    pub fn value(&self, run: &RunRecord) -> f64 {
        match self.name {
            "iops" => page::rate(run),
            "throughput" => page::megabytes(run),
            _ => run.total().response.mean().0 as f64 / 1e6,
        }
    }

    fn spec(&self, read: u8, size: u64) -> AccessSpec {
        let (random, place) = if self.random { (100, "random") } else { (0, "in order") };
        let name = format!("{read} % read, {place}, {}", Bytes(size));
        AccessSpec { name, random: Some(random), read: Some(read), sizes: vec![(size, 100)] }
    }
}

pub fn not_in_virtual_time() -> LabError {
    LabError::Usage(
        "recipe 'snia-pts': is about solid state drives, and modelled drives are none; measure a target with --on, like --on /dev/sdx"
            .into(),
    )
}

/// The specified minute for each cell, unless the job sets a time.
pub fn timed(job: &Job, quick: bool) -> Job {
    let mut job = job.clone();
    if !quick && job.time.least.is_none() && job.time.most.is_none() {
        (job.time.least, job.time.most) = (Some("60s".into()), Some("60s".into()));
    }
    job
}

/// The write saturation first, and then round by round, since the writes of one test prepare the
/// next.
pub fn live(job: &Job, quick: bool) -> Result<Vec<Asked>, LabError> {
    let job = &timed(job, quick);
    let mut all = vec![saturation(job, quick)?];
    for test in &TESTS {
        let first = all.len();
        for round in 1..=(if quick { QUICK_ROUNDS_MAX } else { ROUNDS_MAX }) {
            for size in test.sizes(quick) {
                for read in test.reads(quick) {
                    all.push(cell(job, test, round, *read, *size)?);
                }
            }
        }
        if let Some(cell) = all.get_mut(first) {
            cell.precondition = Some(WRITTEN);
        }
    }
    Ok(all.into_iter().map(|cell| Asked { buffered: false, targets: 0..1, cell }).collect())
}

fn cell(job: &Job, test: &Test, round: u32, read: u8, size: u64) -> Result<JobCell, LabError> {
    let axes = [
        ("test", test.name.to_owned()),
        ("round", round.to_string()),
        ("access", Bytes(size).to_string()),
        ("read", format!("{read} %")),
    ];
    let axes = axes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let workers = processors().min(test.outstanding);
    live::cell(job, test.spec(read, size), (test.outstanding, workers), None, axes)
}

fn saturation(job: &Job, quick: bool) -> Result<JobCell, LabError> {
    let [iops, ..] = &TESTS;
    let axes = vec![("test".to_owned(), SATURATED.to_owned())];
    let mut cell = live::cell(job, iops.spec(0, 4 * KIB), (OUTSTANDING, processors()), None, axes)?;
    let timing = &mut cell.setup.timing;
    let (least, most) = if quick { (QUICK_SATURATION, QUICK_SATURATION) } else { (SATURATION, SATURATION_MAX) };
    timing.most.0 = timing.least.0.saturating_mul(most);
    timing.least.0 = timing.least.0.saturating_mul(least);
    Ok(cell)
}

/// A round that is not needed any more is left out: a window before it has kept the rule.
pub fn next(cell: &JobCell, before: &[CellRecord]) -> Next {
    let value = |name: &str| cell.axes.iter().find(|(axis, _)| axis == name).map(|(_, value)| value.as_str());
    let test = TESTS.iter().find(|test| value("test") == Some(test.name));
    let round = value("round").and_then(|round| round.parse::<u32>().ok());
    let is_over = test.zip(round).is_some_and(|(test, round)| window(before, test).is_some_and(|end| end < round));
    if is_over { Next::Skip } else { Next::Run(Box::new(cell.clone())) }
}

/// The tracked figure of a test, round by round: accesses a second, MB/s, or milliseconds.
fn tracked(cells: &[CellRecord], test: &Test) -> Vec<f64> {
    let (read, size) = test.tracked;
    let rounds = (1..=ROUNDS_MAX).map_while(|round| found(cells, test, round, read, size)?.runs.last());
    rounds.map(|run| test.value(run)).collect()
}

/// The last round of the first window that keeps the rule.
fn window(cells: &[CellRecord], test: &Test) -> Option<u32> {
    let all = tracked(cells, test);
    let kept = all.windows(ROUNDS as usize).position(steady::keeps_rule)?;
    Some(kept as u32 + ROUNDS)
}

/// The rounds whose figures count: those of that window, or where there is none the last ones that
/// are whole.
fn counted(cells: &[CellRecord], test: &Test) -> std::ops::RangeInclusive<u32> {
    let last = window(cells, test).unwrap_or_else(|| {
        let of_round = |round: u32| {
            let number = round.to_string();
            let is = |cell: &&CellRecord| cell.axis("test") == Some(test.name) && cell.axis("round") == Some(&number);
            cells.iter().filter(is).count()
        };
        let all = of_round(1);
        let whole = |round: &u32| all > 0 && of_round(*round) == all;
        (1..=ROUNDS_MAX).take_while(whole).last().unwrap_or(0)
    });
    last.saturating_sub(ROUNDS - 1).max(1)..=last
}

/// The cell of a test.
fn found<'a>(cells: &'a [CellRecord], test: &Test, round: u32, read: u8, size: u64) -> Option<&'a CellRecord> {
    let (round, read, size) = (round.to_string(), format!("{read} %"), Bytes(size).to_string());
    let is = |cell: &CellRecord, axis: &str, value: &str| cell.axis(axis) == Some(value);
    cells.iter().find(|cell| {
        is(cell, "test", test.name) && is(cell, "round", &round) && is(cell, "read", &read) && is(cell, "access", &size)
    })
}

#[cfg(test)]
mod tests;
