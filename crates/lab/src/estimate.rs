//! Measured figures with their intervals, and whether one of them is below another.
//!
//! The interval is that of the mean of a run's rounds. Two figures differ when they are further
//! apart than the root of the sum of their squared half-widths: both vary, each by itself.
//! Neighbouring rounds may be alike, and then the interval is too narrow. So a difference below
//! [`LEAST`] counts as none, however narrow the interval is.

use crate::record::{RoundRecord, RunRecord, SearchRecord};
use crate::search::margin_of;

/// Share below which a difference counts as none.
const LEAST: f64 = 0.01;
/// Share of a search's answer by which it may miss, besides the chance of its rounds: a search ends
/// when its probes are near enough.
const SEARCHED: f64 = 0.01;
/// Share by which figures without an interval have to be apart.
const UNKNOWN: f64 = 0.05;

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    pub value: f64,
    /// Half the width of the 95 % confidence interval; none where it is unknown, as of a single
    /// round.
    pub margin: Option<f64>,
}

impl Estimate {
    /// The mean of a figure of the rounds, each by its length.
    pub fn of_run(run: &RunRecord, of: impl Fn(&RoundRecord) -> f64) -> Estimate {
        let values: Vec<f64> = run.rounds.iter().map(&of).collect();
        Estimate { value: run.mean(of), margin: margin_of(&values) }
    }

    /// Accesses a second at the answer of a search.
    pub fn of_search(search: &SearchRecord) -> Estimate {
        let own = search.rate * SEARCHED;
        Estimate { value: search.rate, margin: search.margin().map(|margin| margin.hypot(own)) }
    }

    /// Half the width of its interval as a share of it; where that is unknown, the share by which
    /// figures have to be apart.
    pub fn relative_margin(self) -> f64 {
        self.margin.map_or(UNKNOWN, |margin| margin / self.value.max(f64::MIN_POSITIVE))
    }

    /// The same in another unit.
    pub fn times(self, factor: f64) -> Estimate {
        Estimate { value: self.value * factor, margin: self.margin.map(|margin| margin * factor) }
    }

    /// Whether it is lower than the other one, beyond what their intervals explain.
    pub fn is_below(self, other: Estimate) -> bool {
        let apart = match (self.margin, other.margin) {
            (Some(own), Some(others)) => own.hypot(others).max(other.value * LEAST),
            _ => other.value * UNKNOWN,
        };
        other.value - self.value > apart
    }
}

#[cfg(test)]
mod tests;
