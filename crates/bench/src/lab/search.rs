//! The search for the highest load at 20 ms on modelled arrays, beside a sweep over all loads: the
//! number of probes, and the distance of its answer from the sweep's. It begins with eight
//! outstanding accesses for every array, as on an unknown target. Virtual time gives the same
//! digits in each run.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use stele_lab::modelled::{Effort, Maker, Query, ask};
use stele_lab::workload::Alignment;
use stele_papers::ds4500::profile::{Machine, profile};
use stele_papers::published::{self, Printed};
use stele_papers::recipe::ds4500::{RESPONSE, array_of, goal, spec_of};

use crate::harness::{Bench, TARGET, Unit};

/// Numbers of drives in the published cells of the cases: bound by drives, and by both drives and
/// controllers.
const DRIVES: [u64; 2] = [20, 100];
/// Outstanding accesses at the first probe.
const START: u64 = 8;
/// Ratio of neighbouring loads in the sweep: where the response is less than half of the goal, and
/// from there on.
const STEPS: (f64, f64) = (1.3, 1.06);
/// Accesses of a round: a queue keeps its distribution over the drives for long, and shorter probes
/// vary by 2 %.
const ROUND: u64 = 10_000;
/// Points of the sweep within this share of the response are joined by a line, which varies less
/// than a single point.
const NEAR: f64 = 0.2;

/// The targets: the mean number of probes, and percent of the rate.
const PROBES: f64 = 5.0;
const ERROR: f64 = 1.5;

/// The reported cases.
pub const CASES: [&str; 4] =
    ["search, probes in the mean", "search, probes at most", "search, error in the mean", "search, error at most"];

const EFFORT: Effort = Effort { round: ROUND, probes_max: 12 };

/// Name, probes, and the error of the rate against the sweep.
type Row = (String, f64, f64);

pub fn run(bench: &mut Bench) -> Result<(), String> {
    let cells: Vec<Printed> = published::rated().into_iter().filter(|cell| DRIVES.contains(&cell.drives)).collect();
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let row = one(cell);
                    if let Ok(mut rows) = rows.lock() {
                        rows.push((name(cell), row));
                    }
                }
            });
        }
    });
    let rows = rows.into_inner().map_err(|_| "a thread has panicked")?;
    let mut found: Vec<Row> = Vec::new();
    for (name, row) in rows {
        let (probes, error) = row.map_err(|why| format!("{name}: {why}"))?;
        found.push((name, probes, error));
    }
    found.sort_by(|left, right| left.2.abs().total_cmp(&right.2.abs()));
    let count = found.len() as f64;
    let mean = |of: &dyn Fn(&Row) -> f64| found.iter().map(of).sum::<f64>() / count;
    let most = |of: &dyn Fn(&Row) -> f64| found.iter().map(of).fold(0.0, f64::max);
    let values =
        [mean(&|row| row.1), most(&|row| row.1), mean(&|row| row.2.abs() * 100.0), most(&|row| row.2.abs() * 100.0)];
    let bounds = [Some(PROBES), None, Some(ERROR), Some(ERROR)];
    bench.note(&format!("{} modelled cases, each beside a sweep over all loads", found.len()));
    for ((case, value), bound) in CASES.into_iter().zip(values).zip(bounds) {
        let unit = Unit::less(if case.contains("error") { "%" } else { "probes" });
        bench.figure(case, unit, value, bound.map(|bound| (TARGET, bound)), bound.map(|_| 1.0));
    }
    for (name, _, error) in found.iter().filter(|row| row.2.abs() * 100.0 > ERROR) {
        bench.note(&format!("beyond the bound: {name}: {:+.2} %", error * 100.0));
    }
    Ok(())
}

fn name(cell: &Printed) -> String {
    let cache = if cell.cached { "on" } else { "off" };
    let kib = cell.size.unwrap_or(0) >> 10;
    format!("{} {} {} drives cache {cache} {} {kib}K", cell.table, cell.level().name(), cell.drives, cell.workload)
}

fn one(cell: &Printed) -> Result<(f64, f64), String> {
    let (array, spec, effort) =
        (array_of(cell, Maker::Ds4500), spec_of(cell).map_err(|error| error.to_string())?, EFFORT);
    let mut running = profile(&array, Machine::PUBLISHED, &spec, Alignment::Request);
    let asked = ask(running.as_mut(), &Query::Highest { goal: goal(START, effort), curve: false }, effort, &|| true)?;
    let highest = asked.highest.ok_or("a search without an answer")?;
    let exact = swept(cell)?;
    Ok((highest.probes as f64, highest.rate / exact - 1.0))
}

/// Tries every load in turn, each on a fresh machine, until the response is well beyond the goal.
/// Returns the rate at which the line through the points near the goal meets it.
fn swept(cell: &Printed) -> Result<f64, String> {
    let (array, spec) = (array_of(cell, Maker::Ds4500), spec_of(cell).map_err(|error| error.to_string())?);
    let limit = RESPONSE.as_secs_f64() * 1e3;
    let (mut load, mut near, mut before) = (4.0f64, Vec::new(), (0.0, 0.0));
    loop {
        let outstanding = load.round() as u64;
        let mut running = profile(&array, Machine::PUBLISHED, &spec, Alignment::Request);
        let probe = running.measure(outstanding, EFFORT.length(outstanding), &|| true)?.probe;
        let (response, last) = (probe.mean_millis(), before);
        before = (response - limit, probe.rate);
        if (response / limit - 1.0).abs() <= NEAR {
            near.push((response - limit, probe.rate));
        }
        if response > limit * (1.0 + NEAR) {
            // If one step leaps over all near points, use its two ends.
            return meets(&near)
                .or_else(|| meets(&[last, before]))
                .ok_or_else(|| "it began beyond the response".into());
        }
        let step = if response < limit / 2.0 { STEPS.0 } else { STEPS.1 };
        load = (load * step).max(load + 1.0);
    }
}

/// Least squares: the height at 0.
fn meets(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (across, up) = (mean(|point| point.0), mean(|point| point.1));
    let over: f64 = points.iter().map(|point| (point.0 - across) * (point.1 - up)).sum();
    let under: f64 = points.iter().map(|point| (point.0 - across).powi(2)).sum();
    let has_both = points.iter().any(|point| point.0 <= 0.0) && points.iter().any(|point| point.0 > 0.0);
    has_both.then(|| up - across * over / under)
}
