//! The highest load at a response time: bracketed geometrically, closed in on by Little's law, interpolated at the end.

use stele_ground::Duration;

use crate::closed::Probe;

/// Which response counts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Statistic {
    Mean,
    /// What this share (0 to 1) of all accesses do not exceed.
    Percentile(f64),
}

impl Statistic {
    pub fn of(self, probe: &Probe) -> Duration {
        match self {
            Statistic::Mean => probe.response.mean(),
            Statistic::Percentile(share) => probe.response.percentile(share),
        }
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
}

/// The answer of a search.
#[derive(Clone, Debug)]
pub struct Highest {
    /// Accesses a second at exactly the response asked for, interpolated between the two probes around it.
    pub rate: f64,
    /// Outstanding accesses there.
    pub load: f64,
    /// The highest load within the response and the lowest beyond, of those tried.
    pub within: Option<Probe>,
    pub beyond: Option<Probe>,
    pub probes: usize,
    /// Both probes around it were steady.
    pub steady: bool,
    /// Half the width of the rate's 95 % confidence interval, from the rounds of the probes around it. None with fewer than two
    /// rounds.
    pub margin: Option<f64>,
}

/// Brackets are closed to this ratio of loads.
const CLOSE: f64 = 1.06;

/// Searches. `probe` measures at so many outstanding accesses. One access at a time may already be beyond the goal, or the
/// greatest load within it; then the probe nearest to the goal is the answer.
pub fn highest(goal: Goal, mut probe: impl FnMut(u64) -> Result<Probe, String>) -> Result<Highest, String> {
    let limit = goal.response.0 as f64;
    let mut within: Option<Probe> = None;
    let mut beyond: Option<Probe> = None;
    let mut load = goal.start.clamp(1, goal.load_max);
    let mut probes = 0;
    loop {
        let measured = probe(load)?;
        probes += 1;
        let mean = goal.statistic.of(&measured).0 as f64;
        match mean <= limit {
            true => within = Some(measured),
            false => beyond = Some(measured),
        }
        // Little's law: if the rate stayed as it is, this load would have the response asked for.
        let newton = load as f64 * limit / mean.max(1.0);
        let (low, high) = (within.as_ref().map(|p| p.outstanding), beyond.as_ref().map(|p| p.outstanding));
        let next = match (low, high) {
            (None, None) => break,
            (Some(low), None) if low >= goal.load_max => break,
            (Some(low), None) => {
                (newton * 1.03).clamp(low as f64 * 1.04, low as f64 * 4.0).ceil().min(goal.load_max as f64) as u64
            }
            (None, Some(1)) => break,
            (None, Some(high)) => (newton * 0.97).clamp(high as f64 / 4.0, high as f64 / 1.04).floor().max(1.0) as u64,
            (Some(low), Some(high)) if high <= low + 1 || high as f64 <= low as f64 * CLOSE => break,
            // Not at the bracket's ends, or it would never close.
            (Some(low), Some(high)) => {
                let margin = ((high - low) as f64 * 0.15).max(1.0);
                newton.clamp(low as f64 + margin, high as f64 - margin).round() as u64
            }
        };
        let known = |side: &Option<Probe>| side.as_ref().is_some_and(|probe| probe.outstanding == next);
        if probes >= goal.probes_max || known(&within) || known(&beyond) {
            break;
        }
        load = next;
    }
    Ok(between(goal, within, beyond, probes))
}

fn between(goal: Goal, within: Option<Probe>, beyond: Option<Probe>, probes: usize) -> Highest {
    let limit = goal.response.0 as f64;
    let place = |probe: &Probe| (probe.rate, probe.outstanding as f64, goal.statistic.of(probe).0 as f64);
    let (rate, load, margin) = match (&within, &beyond) {
        (Some(low), Some(high)) => {
            let ((rate_low, load_low, mean_low), (rate_high, load_high, mean_high)) = (place(low), place(high));
            let share = ((limit - mean_low) / (mean_high - mean_low).max(1.0)).clamp(0.0, 1.0);
            // Both ends vary by themselves: the variances of their shares add up.
            let margin = match (margin_of(&low.rates), margin_of(&high.rates)) {
                (Some(low), Some(high)) => Some((low * (1.0 - share)).hypot(high * share)),
                _ => None,
            };
            (rate_low + (rate_high - rate_low) * share, load_low + (load_high - load_low) * share, margin)
        }
        (Some(only), None) | (None, Some(only)) => (only.rate, only.outstanding as f64, margin_of(&only.rates)),
        (None, None) => (0.0, 0.0, None),
    };
    let steady = within.iter().chain(&beyond).all(|probe| probe.steady);
    Highest { rate, load, within, beyond, probes, steady, margin }
}

/// Half the width of the 95 % confidence interval of the mean of so many values, by Student's t.
pub fn margin_of(values: &[f64]) -> Option<f64> {
    // Two-sided 95 % quantiles of t for 1 to 30 degrees of freedom; beyond, the normal one is near enough.
    const T: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    let freedom = values.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / freedom as f64;
    Some(T.get(freedom - 1).copied().unwrap_or(1.96) * (variance / values.len() as f64).sqrt())
}

#[cfg(test)]
mod tests;
