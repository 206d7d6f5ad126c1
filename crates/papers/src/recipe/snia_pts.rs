//! The tests of the SNIA's performance test specification for solid state storage, on one file or device: write saturation, IOPS,
//! throughput and latency, each in rounds until its steady state window is full.
//!
//! What differs from the specification stands on the page: nothing is purged, since the laboratory has no leave to erase a
//! device; the window is the five rounds behind the preconditioning, which are measured once and not repeated until
//! they keep the rule; and the write saturation is as long as thirty cells, not six hours.

use super::live::{self, Asked};
use stele_ground::Bytes;
use stele_lab::error::LabError;
use stele_lab::job::{Cell, Job, processors};
use stele_lab::record::{CellRecord, Recorded};
use stele_lab::workload::AccessSpec;

pub mod paper;

/// Rounds of the window.
pub const ROUNDS: u32 = 5;
/// Accesses under way, but for the test of latencies.
const OUTSTANDING: u32 = 32;
/// Times that the target is written in order before a test.
const WRITTEN: u32 = 2;
/// The write saturation in cells, and that of a quick run.
const SATURATION: u64 = 30;
const QUICK_SATURATION: u64 = 5;

const KIB: u64 = 1 << 10;

/// One of the tests: each round measures all its mixes of reads with all its sizes.
pub struct Test {
    pub name: &'static str,
    pub title: &'static str,
    random: bool,
    outstanding: u32,
    reads: &'static [u8],
    sizes: &'static [u64],
    /// Of a quick run.
    few: (&'static [u8], &'static [u64]),
    /// What tells whether the test is steady: reads in percent, and bytes.
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

/// A specified minute for each cell, where nothing else is said.
fn timed(job: &Job, quick: bool) -> Job {
    let mut job = job.clone();
    if !quick && job.time.least.is_none() && job.time.most.is_none() {
        (job.time.least, job.time.most) = (Some("60s".into()), Some("60s".into()));
    }
    job
}

/// The write saturation first, and then round by round, since what one test writes prepares the next.
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
    Ok(all.into_iter().map(|cell| Asked { buffered: false, targets: 1, cell }).collect())
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
