//! The DS4500 paper: RAID-5 and RAID-10 over 20 to 180 drives, each at the highest load with a mean
//! response of 20 ms.
//!
//! The recipe asks Stele's own code and the profile of the published machine, on the same modelled
//! drives. Besides the cells of tables 1, 3, 4, 5, 7 and 8 it covers the wider strokes of tables 2
//! and 6, and the streams of charts 2, 3, 8 and 9. For charts 1, 4 to 7 and 10 to 12 it adds the
//! loads around the answer.

use super::{Plan, cell_of};
use crate::published::{self, Printed, ds4500_tables};
use stele_ground::Duration;
use stele_lab::error::LabError;
use stele_lab::modelled::run::{QueryPlan, arrange};
use stele_lab::modelled::{Array, Effort, LogPlace, Maker, Query};
use stele_lab::raid::Level;
use stele_lab::search::{Goal, Statistic};
use stele_lab::workload::{self, AccessSpec, Alignment};

pub mod live;
pub mod nearness;
pub mod paper;

/// The mean response of all published cells.
pub const RESPONSE: Duration = Duration::from_millis(20);
/// Largest number of outstanding accesses that a search tries.
const LOAD_MAX: u64 = 20_000;
/// Percent of each drive in use, except in tables 2 and 6.
pub const STROKE: u8 = 8;
/// The percentages of tables 2 and 6.
pub const STROKES: [u8; 6] = [15, 30, 45, 60, 75, 90];
/// Drives of the arrays with varied strokes.
pub const STROKE_DRIVES: u32 = 20;
/// Drives of the charts with curves, and of those with streams.
pub const CURVE_DRIVES: u32 = 140;
pub const STREAM_DRIVES: u32 = 60;
/// Sizes of streams, in bytes: all that were measured for the published charts.
pub const STREAMS: [(&str, u64); 11] = [
    ("512b", 512),
    ("1k", 1 << 10),
    ("2k", 2 << 10),
    ("4k", 4 << 10),
    ("8k", 8 << 10),
    ("16k", 16 << 10),
    ("32k", 32 << 10),
    ("64k", 64 << 10),
    ("128k", 128 << 10),
    ("256k", 256 << 10),
    ("512k", 512 << 10),
];
/// A search over streams starts with no more accesses: they are many where they are small.
const STREAM_START_MAX: f64 = 2_000.0;
/// Workloads of tables 2 and 6: each of their rows stands for all three.
pub const STROKE_WORKLOADS: [&str; 3] = ["oltp_4k", "oltp_8k", "oltp_16k"];
/// Processors of Stele's server, where they are modelled: a pool is served by one thread.
pub const PROCESSORS: u32 = 1;
/// Workloads of the charts with curves.
pub const CURVES: [&str; 4] = ["oltp_8k", "file_server", "random_write_8k", "random_read_8k"];

/// The drives of a quick run.
const QUICK_DRIVES: [u32; 2] = [20, 60];
const QUICK_STROKES: [u8; 2] = [30, 90];

/// Drives of the charts with curves, if a run has them.
pub fn curve_drives(quick: bool) -> u32 {
    if quick { 60 } else { CURVE_DRIVES }
}

/// Accesses a second as printed, or computed from the printed throughput.
pub fn rate_of(printed: &Printed, spec: &AccessSpec) -> Option<f64> {
    let from_throughput = printed.throughput.map(|rate| rate * f64::from(1 << 20) / spec.mean_length() as f64);
    printed.rate.or(from_throughput)
}

/// The published goal, searched for from this number of outstanding accesses on.
pub fn goal(start: u64, effort: Effort) -> Goal {
    Goal {
        response: RESPONSE,
        statistic: Statistic::Mean,
        start,
        load_max: LOAD_MAX,
        probes_max: effort.probes_max,
        of_rates: false,
    }
}

/// The array of a printed cell.
pub fn array_of(cell: &Printed, maker: Maker) -> Array {
    let (level, drives) = (cell.level(), cell.drives as u32);
    Array { maker, level, drives, cached: cell.cached, stroke: STROKE, log: LogPlace::Memory }
}

/// The workload of a printed cell.
pub fn spec_of(cell: &Printed) -> Result<AccessSpec, LabError> {
    named(&cell.workload_name())
}

fn named(name: &str) -> Result<AccessSpec, LabError> {
    workload::named(name).ok_or_else(|| LabError::Missing(format!("there is no access specification '{name}'")))
}

fn planned(array: Array, spec: AccessSpec, start: f64, curve: bool) -> QueryPlan {
    let effort = Effort::of(array.maker);
    QueryPlan {
        array,
        spec,
        alignment: Alignment::Request,
        ask: Query::Highest { goal: goal(start.round().max(1.0) as u64, effort), curve },
        effort,
        streams: 1,
    }
}

/// All cells, or those of a quick run, in running order.
pub fn plan(quick: bool) -> Result<Plan, LabError> {
    let mut questions = tables(quick)?;
    questions.extend(strokes(quick)?);
    questions.extend(streams(quick)?);
    questions.extend(logs_on_drives(quick)?);
    for planned in &questions {
        planned.array.check()?;
    }
    arrange(&mut questions, |planned| planned);
    let left_out = match quick {
        false => Vec::new(),
        true => vec![
            "all arrays of 100, 140 and 180 drives, which the controllers of the published machine bind".to_owned(),
            "accesses of other sizes than 8 KiB in tables 1, 4, 5 and 8".to_owned(),
            "strokes of 15, 45, 60 and 75 %, and accesses of 4 and 16 KiB, in tables 2 and 6".to_owned(),
            "streams of other sizes than 64 KiB in charts 2, 3, 8 and 9".to_owned(),
            "Stele with its log on the hard drives".to_owned(),
            "Stele with its processors modelled".to_owned(),
        ],
    };
    Ok(Plan { cells: questions.into_iter().map(|planned| (cell_of(&planned), planned)).collect(), left_out })
}

fn tables(quick: bool) -> Result<Vec<QueryPlan>, LabError> {
    let printed = ds4500_tables();
    let mut questions = Vec::new();
    for cell in &printed {
        let is_mixed = cell.size.is_none();
        let wanted = !quick || (QUICK_DRIVES.contains(&(cell.drives as u32)) && (is_mixed || cell.size == Some(8192)));
        let spec = spec_of(cell)?;
        let Some(rate) = rate_of(cell, &spec).filter(|_| wanted) else { continue };
        // Stele has no controllers that limit it: use the same part of each drive as the smallest
        // published array.
        let smallest = printed.iter().find(|other| {
            (&other.table, &other.workload, other.size, other.cached)
                == (&cell.table, &cell.workload, cell.size, cell.cached)
        });
        let each_drive = smallest.and_then(|other| Some(rate_of(other, &spec)? / other.drives as f64));
        let drives = cell.drives as u32;
        let curve = drives == curve_drives(quick) && CURVES.contains(&spec.name.as_str());
        for maker in [Maker::Stele, Maker::Ds4500] {
            let array = array_of(cell, maker);
            let start = match (maker, each_drive) {
                (Maker::Stele, Some(each)) => each * f64::from(drives),
                _ => rate,
            };
            questions.push(planned(array, spec.clone(), start * RESPONSE.as_secs_f64(), curve));
        }
        if is_charged(cell) {
            let array = array_of(cell, Maker::SteleOn(PROCESSORS));
            questions.push(planned(array, spec.clone(), rate * RESPONSE.as_secs_f64(), false));
        }
    }
    Ok(questions)
}

/// Whether a printed cell is also measured with Stele's processors modelled: those of the charts'
/// drives, where the published machine is bound by its controllers.
pub fn is_charged(cell: &Printed) -> bool {
    cell.drives == u64::from(CURVE_DRIVES)
}

/// Whether a printed cell is also measured with Stele's log on the hard drives: small random writes
/// into the cache, whose answer waits only for the log.
pub fn asks_for_log_on_drives(cell: &Printed) -> bool {
    cell.cached && cell.size == Some(4096) && cell.workload == "random_write"
}

fn logs_on_drives(quick: bool) -> Result<Vec<QueryPlan>, LabError> {
    let mut questions = Vec::new();
    for cell in published::rated().iter().filter(|cell| !quick && asks_for_log_on_drives(cell)) {
        let array = Array { log: LogPlace::Drives, ..array_of(cell, Maker::Stele) };
        let start = cell.rate.unwrap_or(0.0) * RESPONSE.as_secs_f64();
        questions.push(planned(array, spec_of(cell)?, start, false));
    }
    Ok(questions)
}

fn strokes(quick: bool) -> Result<Vec<QueryPlan>, LabError> {
    let strokes: &[u8] = if quick { &QUICK_STROKES } else { &STROKES };
    let mut questions = Vec::new();
    for level in [Level::Raid5, Level::Raid10] {
        for stroke in strokes {
            for workload in STROKE_WORKLOADS.into_iter().filter(|workload| !quick || *workload == "oltp_8k") {
                for maker in [Maker::Stele, Maker::Ds4500] {
                    let array = Array {
                        maker,
                        level,
                        drives: STROKE_DRIVES,
                        cached: false,
                        stroke: *stroke,
                        log: LogPlace::Memory,
                    };
                    let start = if level == Level::Raid5 { 40.0 } else { 65.0 };
                    questions.push(planned(array, named(workload)?, start, false));
                }
            }
        }
    }
    Ok(questions)
}

fn streams(quick: bool) -> Result<Vec<QueryPlan>, LabError> {
    let mut questions = Vec::new();
    for level in [Level::Raid5, Level::Raid10] {
        for (size, bytes) in STREAMS.iter().filter(|(size, _)| !quick || *size == "64k") {
            for (workload, cached) in [("streaming_read", false), ("streaming_write", true)] {
                for maker in [Maker::Stele, Maker::Ds4500] {
                    let array =
                        Array { maker, level, drives: STREAM_DRIVES, cached, stroke: STROKE, log: LogPlace::Memory };
                    // Start at one GiB a second.
                    let start = f64::from(1 << 30) / *bytes as f64 * RESPONSE.as_secs_f64();
                    let start = start.min(STREAM_START_MAX);
                    questions.push(planned(array, named(&format!("{workload}_{size}"))?, start, false));
                }
            }
        }
    }
    Ok(questions)
}

#[cfg(test)]
mod tests;
