//! The highest load at a response time: bracketed geometrically, closed in on by Little's law,
//! interpolated at the end.
//!
//! Two laws make it short. A closed loop keeps Little's: load = rate x response. And the response
//! of queues in balance rises by the same amount with each access more: two probes give that line,
//! and where it meets the response asked for is the next load to try. Between two probes around the
//! answer the load is taken from the line, and the rate from Little's law, which is exact where the
//! line is. Taking the rate from a line of its own would be wrong by half a percent in a bracket of
//! one third. Storage that keeps neither (a cache that overflows, a queue that is full) is cornered
//! by halving, and only a narrow bracket is believed.

use stele_ground::Duration;

use crate::closed::Probe;
use crate::histogram::Histogram;

pub mod rate;

/// Which response counts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Statistic {
    Mean,
    /// What this share (0 to 1) of all accesses do not exceed.
    Percentile(f64),
}

impl Statistic {
    pub fn of(self, probe: &Probe) -> Duration {
        self.of_all(&probe.response)
    }

    /// Beyond every limit where there is nothing: without an answer nothing was kept.
    pub fn of_all(self, response: &Histogram) -> Duration {
        match self {
            _ if response.count() == 0 => Duration(u64::MAX),
            Statistic::Mean => response.mean(),
            Statistic::Percentile(share) => response.percentile(share),
        }
    }
}

/// As it is kept: a share, or none for the mean.
impl From<Option<f64>> for Statistic {
    fn from(share: Option<f64>) -> Statistic {
        share.map_or(Statistic::Mean, Statistic::Percentile)
    }
}

/// What is looked for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Goal {
    /// The response that must not be exceeded.
    pub response: Duration,
    pub statistic: Statistic,
    /// The first load tried, in outstanding accesses.
    pub start: u64,
    pub load_max: u64,
    pub probes_max: usize,
    /// Loads are accesses a second of an open loop, instead of accesses outstanding.
    pub of_rates: bool,
}

/// How a search ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The answer lies between probes, or at one.
    Found,
    /// The greatest load allowed stays within the response.
    NeverExceeded,
    /// One access at a time is beyond it already.
    AlwaysExceeded,
    /// The probes allowed were used up; the nearest one is the answer.
    OutOfProbes,
}

/// The answer of a search.
#[derive(Clone, Debug)]
pub struct Highest {
    /// Accesses a second at exactly the response asked for, interpolated between the two probes
    /// around it.
    pub rate: f64,
    /// Outstanding accesses there.
    pub load: f64,
    /// The highest load within the response and the lowest beyond, of those tried.
    pub within: Option<Probe>,
    pub beyond: Option<Probe>,
    pub probes: usize,
    pub ending: Ending,
    /// Both probes around it were steady.
    pub steady: bool,
    /// Half the width of the rate's 95 % confidence interval, from the rounds of the probes around
    /// it. None with fewer than two rounds.
    pub margin: Option<f64>,
}

/// A probe as near to the response asked for as this is the answer.
const HIT: f64 = 0.01;
/// A bracket of this ratio of loads is closed.
const CLOSE: f64 = 1.06;
/// So is one of this ratio of loads, where the responses are no further apart than that: the line
/// between holds.
const SMOOTH: (f64, f64) = (1.35, 1.6);
/// So is one whose rates are as near to each other as this, unless loads are further apart than
/// that.
const FLAT: (f64, f64) = (0.01, 1.6);
/// Loads are multiplied by this at most.
const STRIDE: f64 = 8.0;

/// Searches. `probe` measures at so many outstanding accesses. One access at a time may already be
/// beyond the goal, or the greatest load within it; then the probe nearest to the goal is the
/// answer.
pub fn highest(goal: Goal, mut probe: impl FnMut(u64) -> Result<Probe, String>) -> Result<Highest, String> {
    let mut tried: Vec<Probe> = Vec::new();
    let mut load = goal.start.clamp(1, goal.load_max);
    let ending = loop {
        tried.push(probe(load)?);
        match next(&goal, &tried) {
            Err(ending) => break ending,
            Ok(_) if tried.len() >= goal.probes_max => {
                let (within, beyond) = around(&goal, &tried);
                break if within.is_some() && beyond.is_some() { Ending::Found } else { Ending::OutOfProbes };
            }
            Ok(next) => load = next,
        }
    };
    Ok(answer(&goal, &tried, ending))
}

/// Load and response of a probe.
fn place(goal: &Goal, probe: &Probe) -> (f64, f64) {
    (probe.outstanding as f64, goal.statistic.of(probe).0 as f64)
}

/// The highest load within the response, and the lowest beyond that is higher.
fn around<'a>(goal: &Goal, tried: &'a [Probe]) -> (Option<&'a Probe>, Option<&'a Probe>) {
    let limit = goal.response.0 as f64;
    let is_within = |probe: &&Probe| place(goal, probe).1 <= limit;
    let within = tried.iter().filter(is_within).max_by_key(|probe| probe.outstanding);
    let least = within.map_or(0, |probe| probe.outstanding);
    let beyond = tried.iter().filter(|probe| !is_within(probe) && probe.outstanding > least);
    (within, beyond.min_by_key(|probe| probe.outstanding))
}

/// The next load to try, or why there is none.
fn next(goal: &Goal, tried: &[Probe]) -> Result<u64, Ending> {
    let limit = goal.response.0 as f64;
    let hit = |probe: &Probe| (place(goal, probe).1 / limit - 1.0).abs() <= HIT;
    if tried.iter().any(hit) {
        return Err(Ending::Found);
    }
    let wanted = match around(goal, tried) {
        (Some(low), Some(high)) => {
            if is_closed(goal, low, high) {
                return Err(Ending::Found);
            }
            inside(goal, tried, low, high)
        }
        (Some(low), None) if low.outstanding >= goal.load_max => return Err(Ending::NeverExceeded),
        (Some(low), None) => {
            let (load, response) = place(goal, low);
            // Little's law with twice the stride: where the rate still grows, the response does not
            // keep up with the load.
            let alone = load * (limit / response.max(1.0)).powi(2);
            let wanted = line(goal, tried, |probe| probe.outstanding < low.outstanding, low)
                .map_or(alone, |slope| (load + (limit - response) / slope) * 1.02);
            wanted.clamp(load * 1.04, load * STRIDE).ceil().min(goal.load_max as f64)
        }
        (None, Some(high)) if high.outstanding == 1 => return Err(Ending::AlwaysExceeded),
        (None, Some(high)) => {
            let (load, response) = place(goal, high);
            // An idle drive's response is part of it at any load, so Little's law alone would stay
            // beyond.
            let alone = load * limit / response * (0.75 + 0.25 * limit / response);
            let wanted = line(goal, tried, |probe| probe.outstanding > high.outstanding, high)
                .map_or(alone, |slope| (load - (response - limit) / slope) * 0.98);
            wanted.clamp(load / STRIDE, load / 1.04).floor().max(1.0)
        }
        (None, None) => return Err(Ending::OutOfProbes),
    };
    match tried.iter().any(|probe| probe.outstanding == wanted as u64) {
        true => Err(Ending::Found),
        false => Ok(wanted as u64),
    }
}

/// The rise of the response with the load from the nearest of those that pass to this one; none
/// where it does not rise.
fn line(goal: &Goal, tried: &[Probe], passes: impl Fn(&Probe) -> bool, here: &Probe) -> Option<f64> {
    let (load, response) = place(goal, here);
    let near = tried.iter().filter(|probe| passes(probe));
    let (other, before) = place(goal, near.min_by_key(|probe| probe.outstanding.abs_diff(here.outstanding))?);
    let slope = (response - before) / (load - other);
    (slope > 0.0).then_some(slope)
}

fn is_closed(goal: &Goal, low: &Probe, high: &Probe) -> bool {
    let ((load_low, low_response), (load_high, high_response)) = (place(goal, low), place(goal, high));
    let ratio = load_high / load_low;
    let flat = (high.rate / low.rate - 1.0).abs() <= FLAT.0 && ratio <= FLAT.1;
    let smooth = ratio <= SMOOTH.0 && high_response <= low_response * SMOOTH.1;
    high.outstanding <= low.outstanding + 1 || ratio <= CLOSE || flat || smooth
}

/// Inside the bracket: on the line between its ends, or where that has twice moved the same end, in
/// its (geometric) middle.
fn inside(goal: &Goal, tried: &[Probe], low: &Probe, high: &Probe) -> f64 {
    let limit = goal.response.0 as f64;
    let ((load_low, low_response), (load_high, high_response)) = (place(goal, low), place(goal, high));
    let mut last = tried.iter().rev().map(|probe| place(goal, probe).1 <= limit);
    let same = (last.next(), last.next());
    let stuck = tried.len() > 3 && same.0 == same.1;
    let share = (limit - low_response) / (high_response - low_response).max(1.0);
    let wanted = if stuck { (load_low * load_high).sqrt() } else { load_low + (load_high - load_low) * share };
    // Not at the bracket's ends, or it would never close.
    let margin = ((load_high - load_low) * 0.05).max(1.0);
    wanted.clamp(load_low + margin, (load_high - margin).max(load_low + margin)).round()
}

fn answer(goal: &Goal, tried: &[Probe], ending: Ending) -> Highest {
    let limit = goal.response.0 as f64;
    let (within, beyond) = around(goal, tried);
    // Little's law, as far as what was measured keeps it.
    let kept = |probe: &Probe| probe.rate * probe.response.mean().0 as f64 / probe.outstanding as f64;
    let mean = |probe: &Probe| probe.response.mean().0 as f64;
    let (rate, load, margin) = match (within, beyond) {
        (Some(low), Some(high)) => {
            let ((load_low, response_low), (load_high, response_high)) = (place(goal, low), place(goal, high));
            let share = ((limit - response_low) / (response_high - response_low).max(1.0)).clamp(0.0, 1.0);
            let between = |low: f64, high: f64| low + (high - low) * share;
            // Both ends vary by themselves: the variances of their shares add up.
            let margin = match (margin_of(&low.rates), margin_of(&high.rates)) {
                (Some(low), Some(high)) => Some((low * (1.0 - share)).hypot(high * share)),
                _ => None,
            };
            let load = between(load_low, load_high);
            (load * between(kept(low), kept(high)) / between(mean(low), mean(high)).max(1.0), load, margin)
        }
        (Some(only), None) | (None, Some(only)) => (only.rate, only.outstanding as f64, margin_of(&only.rates)),
        (None, None) => (0.0, 0.0, None),
    };
    let steady = within.iter().chain(&beyond).all(|probe| probe.steady);
    let (within, beyond) = (within.cloned(), beyond.cloned());
    Highest { rate, load, within, beyond, probes: tried.len(), ending, steady, margin }
}

/// Half the width of the 95 % confidence interval of the mean of so many values, by Student's t.
pub fn margin_of(values: &[f64]) -> Option<f64> {
    // Two-sided 95 % quantiles of t for 1 to 30 degrees of freedom; beyond, the normal one with the
    // first term by which that of t differs (Cornish and Fisher): within 0.2 %.
    const T: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    let freedom = values.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / freedom as f64;
    let quantile = T.get(freedom - 1).copied().unwrap_or(1.95996 + 2.3723 / freedom as f64);
    Some(quantile * (variance / values.len() as f64).sqrt())
}

#[cfg(test)]
mod tests;
