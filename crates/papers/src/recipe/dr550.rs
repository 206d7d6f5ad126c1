//! The DR550 paper: a file server's random and sequential reads and writes of 512 bytes to 8 KiB by
//! 1 to 32 threads, over 100 files of 40 MB, with and without its cache. These are 240 cells; the
//! text states eight peaks.
//!
//! The cache is the page cache of the measuring machine, if the target uses one. Of two targets the
//! first one is a file server's without its cache, and the second one with it. In virtual time it
//! is the memory from which writes are answered, and for reads a model of a file server's memory.

use super::live::Halves;
use super::{Plan, cell_of, live};
use stele_ground::Bytes;
use stele_lab::error::LabError;
use stele_lab::job::{Axes, Job};
use stele_lab::modelled::run::{QueryPlan, arrange};
use stele_lab::modelled::{Array, Effort, LogPlace, Maker, Query};
use stele_lab::raid::Level;
use stele_lab::record::{CellRecord, Recorded, RunRecord};
use stele_lab::workload::{self, AccessSpec, Alignment};

pub mod paper;

pub const SIZES: [u64; 5] = [512, 1024, 2048, 4096, 8192];
pub const THREADS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// The sizes of a quick run.
const QUICK_SIZES: [u64; 2] = [512, 8192];
const QUICK_THREADS: [u32; 3] = [1, 4, 16];
/// Drives of the published machine.
pub const DRIVES: u32 = 48;
/// Percent of each drive in use.
const STROKE: u8 = 8;
/// Processors of the modelled server: one thread serves a pool.
const PROCESSORS: u32 = 1;
/// The axis of cells whose processors are modelled.
const CHARGED: &str = "processors";
/// Accesses of a round in virtual time.
const ROUND: u64 = 400;

/// One of the paper's eight kinds of run, in the order of its charts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunKind {
    pub pattern: &'static str,
    pub direction: &'static str,
    pub cached: bool,
}

/// All eight kinds.
pub fn kinds() -> impl Iterator<Item = RunKind> {
    let directions = |pattern| ["read", "write"].into_iter().map(move |direction| (pattern, direction));
    let both = ["random", "sequential"].into_iter().flat_map(directions);
    both.flat_map(|(pattern, direction)| [false, true].map(|cached| RunKind { pattern, direction, cached }))
}

impl RunKind {
    fn spec(self, size: u64) -> Result<AccessSpec, LabError> {
        let short = if size < 1024 { format!("{size}b") } else { format!("{}k", size >> 10) };
        let name = format!("dr550_{}_{}_{short}", self.pattern, self.direction);
        workload::named(&name).ok_or_else(|| LabError::Missing(format!("there is no access specification '{name}'")))
    }

    fn cache(self) -> &'static str {
        if self.cached { "on" } else { "off" }
    }

    /// The axes that distinguish its cells.
    fn axes(self, size: u64) -> Axes {
        vec![
            ("cache".into(), self.cache().into()),
            ("pattern".into(), self.pattern.into()),
            ("direction".into(), self.direction.into()),
            ("access".into(), Bytes(size).to_string()),
        ]
    }

    /// Whether the model of the gateway's memory answers it.
    fn is_read_from_cache(self) -> bool {
        self.cached && self.direction == "read"
    }

    /// Whose arrays are modelled for it. What the gateway's memory answers has no measured cost.
    fn makers(self) -> &'static [Maker] {
        if self.is_read_from_cache() { &[Maker::SteleBehindCache] } else { &[Maker::Stele, Maker::SteleOn(PROCESSORS)] }
    }

    /// `Random reads without cache`.
    pub fn title(self) -> String {
        let pattern = if self.pattern == "random" { "Random" } else { "Sequential" };
        format!("{pattern} {}s {} cache", self.direction, if self.cached { "with" } else { "without" })
    }
}

fn sizes(quick: bool) -> &'static [u64] {
    if quick { &QUICK_SIZES } else { &SIZES }
}

fn loads(quick: bool) -> &'static [u32] {
    if quick { &QUICK_THREADS } else { &THREADS }
}

/// The parts that a quick run leaves out.
pub fn left_out(quick: bool) -> Vec<String> {
    match quick {
        false => Vec::new(),
        true => vec!["accesses of 1, 2 and 4 KiB".to_owned(), "2, 8 and 32 threads".to_owned()],
    }
}

/// The cells on real storage. Those without the cache come first: a target is opened once for each
/// half.
pub fn live(job: &Job, quick: bool, halves: Halves) -> Result<Vec<live::Asked>, LabError> {
    let mut asked = Vec::new();
    for half in [false, true].into_iter().filter(|cached| halves != Halves::One || !cached) {
        let (buffered, targets) = match halves {
            Halves::Targets => (false, usize::from(half)..usize::from(half) + 1),
            Halves::One | Halves::PageCache => (half, 0..1),
        };
        for kind in kinds().filter(|kind| kind.cached == half) {
            for size in sizes(quick) {
                for count in loads(quick) {
                    let mut axes = kind.axes(*size);
                    axes.push(("workers".into(), count.to_string()));
                    let cell = live::threads(job, kind.spec(*size)?, *count, axes)?;
                    asked.push(live::Asked { cell, buffered, targets: targets.clone() });
                }
            }
        }
    }
    Ok(asked)
}

/// The plan on modelled drives, without and with a server's processor: a cell holds all numbers of
/// threads of a size.
pub fn plan(quick: bool) -> Result<Plan, LabError> {
    let mut cells = Vec::new();
    for kind in kinds() {
        for (maker, size) in kind.makers().iter().flat_map(|maker| sizes(quick).iter().map(move |size| (*maker, *size)))
        {
            let array = Array {
                maker,
                level: Level::Raid5,
                drives: DRIVES,
                cached: kind.cached && !kind.is_read_from_cache(),
                stroke: STROKE,
                log: LogPlace::Memory,
            };
            array.check()?;
            let planned = QueryPlan {
                array,
                spec: kind.spec(size)?,
                alignment: Alignment::Request,
                ask: Query::Loads(loads(quick).iter().map(|count| u64::from(*count)).collect()),
                effort: Effort { round: ROUND, probes_max: 1 },
                streams: 1,
            };
            let mut cell = cell_of(&planned);
            cell.axes = kind.axes(size);
            if let Maker::SteleOn(count) = maker {
                cell.axes.push((CHARGED.to_owned(), count.to_string()));
            }
            cells.push((cell, planned));
        }
    }
    arrange(&mut cells, |(_, planned)| planned);
    Ok(Plan { cells, left_out: left_out(quick) })
}

/// The results, by question.
#[derive(Clone, Copy)]
struct Found<'a> {
    recorded: &'a Recorded,
}

/// The highest rate of a kind.
#[derive(Clone, Copy, Debug)]
struct Highest<'a> {
    size: u64,
    threads: u32,
    run: &'a RunRecord,
}

impl<'a> Found<'a> {
    /// Runs of one kind and size, by their threads.
    fn curve(self, kind: RunKind, size: u64) -> Vec<(u32, &'a RunRecord)> {
        self.runs(kind, size, false)
    }

    fn runs(self, kind: RunKind, size: u64, charged: bool) -> Vec<(u32, &'a RunRecord)> {
        let axes = kind.axes(size);
        let matches = |cell: &&CellRecord| {
            let is_kind = axes.iter().all(|(name, value)| cell.axis(name) == Some(value));
            is_kind && cell.axis(CHARGED).is_some() == charged
        };
        let cells = self.recorded.cells.iter().filter(matches);
        let mut runs: Vec<_> =
            cells.flat_map(|cell| &cell.runs).map(|run| (run.outstanding.unwrap_or(1), run)).collect();
        runs.sort_by_key(|(threads, _)| *threads);
        runs
    }

    fn highest(self, kind: RunKind, by: fn(&RunRecord) -> f64) -> Option<Highest<'a>> {
        self.highest_of(kind, by, false)
    }

    /// The highest rate behind a modelled processor.
    fn highest_charged(self, kind: RunKind, by: fn(&RunRecord) -> f64) -> Option<Highest<'a>> {
        self.highest_of(kind, by, true)
    }

    fn highest_of(self, kind: RunKind, by: fn(&RunRecord) -> f64, charged: bool) -> Option<Highest<'a>> {
        let of_size = |size: u64| {
            self.runs(kind, size, charged).into_iter().map(move |(threads, run)| Highest { size, threads, run })
        };
        let all = SIZES.into_iter().flat_map(of_size);
        all.max_by(|left, right| by(left.run).total_cmp(&by(right.run)))
    }

    fn has(self, kind: RunKind) -> bool {
        SIZES.into_iter().any(|size| !self.curve(kind, size).is_empty())
    }
}

#[cfg(test)]
mod tests;
