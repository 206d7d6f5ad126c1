//! The results of a run of the recipe, by question.

use crate::published::Printed;
use crate::recipe::ds4500::STROKE;
use stele_lab::estimate::Estimate;
use stele_lab::raid::Level;
use stele_lab::record::{CellRecord, Recorded};
use stele_lab::report::chosen;
use stele_lab::workload::{self, AccessSpec};

/// A part that was busy for more than this share of the time limits the rate.
const BOUND: f64 = 0.85;
/// The same limit for the busiest drive, if the drives' mean is lower.
const BUSIEST: f64 = 0.95;

#[derive(Clone, Copy)]
pub struct Found<'a> {
    pub recorded: &'a Recorded,
}

/// One array under one workload.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Key<'a> {
    pub array: &'a str,
    pub level: Level,
    pub drives: u32,
    pub cached: bool,
    pub stroke: u8,
    pub workload: &'a str,
    /// Whether Stele's log lies on the hard drives.
    pub log_on_drives: bool,
}

impl<'a> Key<'a> {
    pub fn of(array: &'a str, printed: &Printed, workload: &'a str) -> Key<'a> {
        let (level, drives) = (printed.level(), printed.drives as u32);
        Key { array, level, drives, cached: printed.cached, stroke: STROKE, workload, log_on_drives: false }
    }
}

impl<'a> Found<'a> {
    pub fn cell(&self, key: Key<'_>) -> Option<&'a CellRecord> {
        let (raid, drives, stroke) = (key.level.number().to_string(), key.drives.to_string(), key.stroke.to_string());
        let wanted = [
            ("array", key.array),
            ("raid", raid.as_str()),
            ("drives", drives.as_str()),
            ("cache", if key.cached { "on" } else { "off" }),
            ("stroke", stroke.as_str()),
            ("workload", key.workload),
        ];
        let matches = |cell: &&CellRecord| {
            let log = cell.axis("log") == Some("drives");
            log == key.log_on_drives && wanted.iter().all(|(axis, value)| cell.axis(axis) == Some(value))
        };
        self.recorded.cells.iter().filter(|cell| cell.search.is_some()).find(matches)
    }

    /// Stele's result for the table's cell, with its log on the hard drives.
    pub fn log_on_drives(&self, printed: &Printed) -> Option<&'a CellRecord> {
        self.cell(Key { log_on_drives: true, ..Key::of("stele", printed, &printed.workload_name()) })
    }

    /// Stele's result for the table's cell, with its processors modelled.
    pub fn charged(&self, printed: &Printed) -> Option<&'a CellRecord> {
        self.printed("stele-cpu", printed)
    }

    /// The result for the table's cell.
    pub fn printed(&self, array: &str, printed: &Printed) -> Option<&'a CellRecord> {
        self.cell(Key::of(array, printed, &printed.workload_name()))
    }
}

/// Accesses a second at the goal.
pub fn rate(cell: &CellRecord) -> f64 {
    cell.search.as_ref().map_or(0.0, |search| search.rate)
}

/// Half the width of its interval, as a share of it; of a search that has none, that of figures
/// without one.
pub fn relative_margin(cell: &CellRecord) -> f64 {
    cell.search.as_ref().map_or(0.0, |search| Estimate::of_search(search).relative_margin())
}

/// MiB a second at the goal.
pub fn throughput(cell: &CellRecord) -> f64 {
    let spec = workload::named(&cell.workload);
    rate(cell) * spec.as_ref().map_or(0, AccessSpec::mean_length) as f64 / f64::from(1 << 20)
}

/// Share of the time that a part was busy, at the probe nearest to the answer.
pub fn busy(cell: &CellRecord, part: &str) -> Option<f64> {
    let run = chosen(cell)?;
    run.busy.iter().find(|(name, _)| name == part).map(|(_, share)| *share)
}

/// The part that limits the rate.
pub fn bound_by(cell: &CellRecord) -> &'static str {
    let above = |part: &str, least: f64| busy(cell, part).is_some_and(|share| share >= least);
    if above("controllers", BOUND) {
        "controllers"
    } else if above("processors", BOUND) {
        "processors"
    } else if above("drives", BOUND) {
        "drives"
    } else if cell.axis("cache") == Some("on") && cell.axis("array") == Some("stele") {
        "memory"
    } else if above("busiest drive", BUSIEST) {
        "busiest drive"
    } else {
        "queues"
    }
}
