//! A result held against an earlier one: did it become slower by more than is tolerated?
//!
//! Three answers, since a run that was too short to tell is no proof of anything. A cell is kept
//! where its whole 95 % interval is within the tolerance, regressed where all of it is beyond, and
//! unclear where the interval lies on both sides. A cell that is not steady, void or partial on
//! either side is unclear, too, and so is one of another load. One whose target gave wrong data is
//! regressed, however fast.
//!
//! Cells of a closed loop and of searches are judged by their rates; those of an open loop, whose
//! rate was asked for, by their mean responses. Ratios are above 1 where the result is better.

use std::fmt;

use stele_ground::Duration;

use crate::compare::{Compared, compared, is_same};
use crate::objective;
use crate::record::{CellRecord, Recorded, RoundRecord, RunRecord, SearchRecord};
use crate::report::chosen;
use crate::search::{Statistic, margin_of};
use crate::sweep;

mod formats;

pub use formats::{bounds, figure, junit, markdown, said, span};

/// What a cell is judged by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Metric {
    /// Accesses a second.
    Rate,
    /// Mean response in nanoseconds.
    Response,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Kept,
    Regressed,
    Unclear,
    /// The result has no such cell.
    Missing,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Kept => "kept",
            Verdict::Regressed => "regressed",
            Verdict::Unclear => "unclear",
            Verdict::Missing => "missing",
        })
    }
}

/// A cell of the baseline, and what became of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Checked {
    pub name: String,
    pub metric: Metric,
    pub baseline: f64,
    /// None: there is no such cell.
    pub result: Option<f64>,
    /// How much better the result is, with its 95 % interval.
    pub ratio: Option<f64>,
    pub interval: Option<(f64, f64)>,
    pub verdict: Verdict,
    /// Empty where the cell is kept.
    pub why: String,
}

/// Holds each cell of the baseline against the result's of the same name, in the baseline's order.
/// `tolerance` is a share of the baseline's figure.
pub fn check(baseline: &Recorded, result: &Recorded, tolerance: f64) -> Vec<Checked> {
    let judge = |before: &CellRecord| {
        let after = result.cells.iter().find(|cell| is_same(before, cell));
        judged(before, after, tolerance)
    };
    baseline.cells.iter().map(judge).collect()
}

fn judged(before: &CellRecord, after: Option<&CellRecord>, tolerance: f64) -> Checked {
    let metric = metric_of(before);
    let mut checked = Checked {
        name: before.name.clone(),
        metric,
        baseline: figure_of(before, metric),
        result: after.map(|cell| figure_of(cell, metric)),
        ratio: None,
        interval: None,
        verdict: Verdict::Missing,
        why: "the result has no such cell".into(),
    };
    let Some(after) = after else { return checked };
    let found = match metric {
        Metric::Rate => compared(before, after).map(|Compared { ratio, interval, .. }| (ratio, interval)),
        Metric::Response => responses(before, after),
    };
    (checked.ratio, checked.interval) = (found.map(|found| found.0), found.and_then(|found| found.1));
    (checked.verdict, checked.why) = verdict(before, after, checked.interval, tolerance);
    checked
}

fn verdict(before: &CellRecord, after: &CellRecord, interval: Option<(f64, f64)>, tolerance: f64) -> (Verdict, String) {
    let least = 1.0 - tolerance;
    let percent = tolerance * 100.0;
    if after.is_damaged() {
        return (Verdict::Regressed, "the target gave wrong data".into());
    }
    if let Some(why) = asked_otherwise(before, after) {
        return (Verdict::Unclear, why);
    }
    for (cell, whose) in [(before, "the baseline"), (after, "the result")] {
        if let Some(why) = unusable(cell) {
            return (Verdict::Unclear, format!("{whose} {why}"));
        }
    }
    match interval {
        None if [before, after].iter().any(|cell| is_of_rates(cell)) => (
            Verdict::Unclear,
            "a search without a rate that keeps the objective and one that misses it has no interval".into(),
        ),
        None => (Verdict::Unclear, "one round has no interval; measure longer".into()),
        Some((low, _)) if low >= least => (Verdict::Kept, String::new()),
        Some((low, high)) if high < least => {
            let slower = |ratio: f64| (1.0 - ratio) * 100.0;
            (
                Verdict::Regressed,
                format!("worse by {:.1} to {:.1} %, and {percent} % are tolerated", slower(high), slower(low)),
            )
        }
        Some(_) => (
            Verdict::Unclear,
            format!("the interval lies on both sides of the {percent} % that are tolerated; measure longer"),
        ),
    }
}

/// Of another load nothing follows, though the cells have one name: a load that is no axis is not
/// in it.
fn asked_otherwise(before: &CellRecord, after: &CellRecord) -> Option<String> {
    let (then, now) = (asked_of(before)?, asked_of(after)?);
    (then != now).then(|| format!("the load is another one: {then} in the baseline, {now} in the result"))
}

/// The load of a cell, or what its search looked for.
pub(crate) fn asked_of(cell: &CellRecord) -> Option<String> {
    let Some(search) = &cell.search else { return chosen(cell).map(RunRecord::load) };
    let of = if search.is_of_rates() { "rate" } else { "load" };
    let statistic = objective::said(Statistic::from(search.percentile));
    Some(format!("the highest {of} with {statistic} within {}", Duration(search.response_ns)))
}

fn is_of_rates(cell: &CellRecord) -> bool {
    cell.search.as_ref().is_some_and(SearchRecord::is_of_rates)
}

/// Why nothing follows from a cell.
pub(crate) fn unusable(cell: &CellRecord) -> Option<String> {
    let Some(run) = chosen(cell) else { return Some("has no run".into()) };
    if cell.is_damaged() {
        return Some("is of a target that gave wrong data".into());
    }
    if run.stopped || cell.failed.is_some() || cell.hosts.iter().any(|host| host.failed.is_some()) {
        return Some("is partial".into());
    }
    if sweep::void(run.lag_share).is_some() {
        return Some("is void: the generator was late".into());
    }
    let why = run.shortfall().or_else(|| (!cell.is_steady()).then(|| "a probe of the search".to_owned()));
    why.map(|why| format!("is not steady: {why}"))
}

pub(crate) fn metric_of(cell: &CellRecord) -> Metric {
    let rated = cell.search.is_none() && chosen(cell).is_some_and(|run| run.rate_asked.is_some());
    if rated { Metric::Response } else { Metric::Rate }
}

pub(crate) fn figure_of(cell: &CellRecord, metric: Metric) -> f64 {
    let total = chosen(cell).map(RunRecord::total).unwrap_or_default();
    match (metric, &cell.search) {
        (Metric::Response, _) => total.response.mean().0 as f64,
        (Metric::Rate, Some(search)) => search.rate,
        (Metric::Rate, None) => total.rate,
    }
}

/// The baseline's mean response over the result's, with its interval.
fn responses(before: &CellRecord, after: &CellRecord) -> Option<(f64, Option<(f64, f64)>)> {
    let figures = (figure_of(before, Metric::Response), figure_of(after, Metric::Response));
    if figures.0 == 0.0 || figures.1 == 0.0 {
        // Nothing was answered.
        return None;
    }
    let ratio = figures.0 / figures.1;
    let margin = |cell: &CellRecord| {
        let means: Vec<f64> = chosen(cell)?.rounds.iter().filter_map(mean_response).map(f64::ln).collect();
        margin_of(&means)
    };
    let margin = margin(before).zip(margin(after)).map(|(one, other)| one.hypot(other));
    Some((ratio, margin.map(|margin| (ratio * (-margin).exp(), ratio * margin.exp()))))
}

/// None: nothing was answered in it.
fn mean_response(round: &RoundRecord) -> Option<f64> {
    let count: u64 = round.read.counts.iter().chain(&round.write.counts).map(|(_, count)| count).sum();
    let sum = round.read.sum_ns as f64 + round.write.sum_ns as f64;
    (count > 0).then(|| (sum / count as f64).max(1.0))
}

#[cfg(test)]
mod tests;
