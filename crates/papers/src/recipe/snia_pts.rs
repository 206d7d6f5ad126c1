//! The tests of the SNIA's performance test specification for solid state storage, on one file or device: write
//! saturation, IOPS, throughput and latency. Each runs in rounds until its steady state window is full.
//!
//! The page states the differences from the specification. Nothing is purged, since the laboratory may not erase a
//! device. The window is the five rounds after the preconditioning; they are measured once, and not repeated until they
//! satisfy the rule. The write saturation is as long as thirty cells, not six hours.

use super::live::{self, Asked};
use stele_ground::Bytes;
use stele_lab::error::LabError;
use stele_lab::job::{Cell, Job, processors};
use stele_lab::record::{CellRecord, Recorded};
use stele_lab::workload::AccessSpec;

pub mod paper;

/// Number of rounds in the window.
pub const ROUNDS: u32 = 5;
/// Outstanding accesses, except in the latency test.
const OUTSTANDING: u32 = 32;
/// Number of times that the target is written in order before a test.
const WRITTEN: u32 = 2;
/// Length of the write saturation in cells; below, in a quick run.
const SATURATION: u64 = 30;
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
fn timed(job: &Job, quick: bool) -> Job {
    let mut job = job.clone();
    if !quick && job.time.least.is_none() && job.time.most.is_none() {
        (job.time.least, job.time.most) = (Some("60s".into()), Some("60s".into()));
    }
    job
}

/// The write saturation first, and then round by round, since the writes of one test prepare the next.
pub fn live(job: &Job, quick: bool) -> Result<Vec<Asked>, LabError> {
    let job = &timed(job, quick);
    let mut all = vec![saturation(job, quick)?];
    for test in &TESTS {
        let first = all.len();
        for round in 1..=ROUNDS {
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

fn cell(job: &Job, test: &Test, round: u32, read: u8, size: u64) -> Result<Cell, LabError> {
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

fn saturation(job: &Job, quick: bool) -> Result<Cell, LabError> {
    let [iops, ..] = &TESTS;
    let axes = vec![("test".to_owned(), SATURATED.to_owned())];
    let mut cell = live::cell(job, iops.spec(0, 4 * KIB), (OUTSTANDING, processors()), None, axes)?;
    let timing = &mut cell.setup.timing;
    timing.least.0 = timing.least.0.saturating_mul(if quick { QUICK_SATURATION } else { SATURATION });
    timing.most = timing.least;
    Ok(cell)
}

/// The cell of a test.
fn found<'a>(recorded: &'a Recorded, test: &Test, round: u32, read: u8, size: u64) -> Option<&'a CellRecord> {
    let (round, read, size) = (round.to_string(), format!("{read} %"), Bytes(size).to_string());
    let is = |cell: &CellRecord, axis: &str, value: &str| cell.axis(axis) == Some(value);
    recorded.cells.iter().find(|cell| {
        is(cell, "test", test.name) && is(cell, "round", &round) && is(cell, "read", &read) && is(cell, "access", &size)
    })
}

#[cfg(test)]
mod tests;
