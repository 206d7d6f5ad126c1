//! The highest rate of an open loop that keeps an objective.
//!
//! In an open loop nothing slows down the one who asks: beyond what a target sustains its queue and
//! its responses grow as long as the run lasts, and no law joins two probes. The rate is multiplied
//! until the objective is missed, and the bracket is then halved (geometrically), or, beyond what
//! the target sustains, cut by what it answered. The answer is a rate that was measured and kept
//! the objective, not one between; it is measured once more before it is believed, since a
//! percentile of one run may be good by chance. A probe also misses the objective where the target
//! answered less than was asked of it.

use stele_ground::Duration;

use super::{Ending, Statistic};
use crate::record::RunRecord;

/// What is looked for: a rate within these bounds, in accesses a second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RateGoal {
    pub response: Duration,
    pub start: u64,
    /// Lower ones have too few accesses to tell.
    pub rate_min: u64,
    pub rate_max: u64,
    pub probes_max: usize,
}

/// What a run at a rate found.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RateProbe {
    pub asked: u64,
    pub answered: f64,
    /// By the statistic of the objective.
    pub response: Duration,
    /// Chance alone moves what is answered by about this share.
    pub noise: f64,
}

/// The answer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HighestRate {
    /// The highest rate that kept the objective; none where not even the lowest one did.
    pub within: Option<u64>,
    /// The lowest one that missed it.
    pub beyond: Option<u64>,
    pub ending: Ending,
}

/// Accesses that lie behind a percentile, or make a mean, at least.
const BEHIND: f64 = 5.0;

/// The lowest rate whose runs of that length say something of a statistic: by the share of accesses
/// that it leaves out.
pub fn rate_min(share: Option<f64>, length: Duration) -> u64 {
    let behind = share.map_or(1.0, |share| 1.0 - share);
    (BEHIND / behind.max(1e-9) / length.as_secs_f64().max(1e-9)).ceil().clamp(1.0, 1e12) as u64
}

/// A bracket of this ratio of rates is closed.
const CLOSE: f64 = 1.02;
/// Rates are multiplied by this, or by its square where the response is far below the objective.
const STRIDE: f64 = 2.0;
/// A rate that is answered by less than this share was not reached.
const REACHED: f64 = 0.98;

impl RateProbe {
    /// `share` is that of the accesses whose response counts; none: the mean. What is not answered
    /// at the end misses the goal where it has waited for longer.
    pub fn of(asked: u64, run: &RunRecord, share: Option<f64>, goal: &RateGoal) -> RateProbe {
        let total = run.total();
        let response = Statistic::from(share).of_all(&run.responses_within(goal.response).0);
        let noise = 3.0 / (total.response.count().max(1) as f64).sqrt();
        RateProbe { asked, answered: total.rate, response, noise }
    }

    fn is_reached(&self) -> bool {
        self.answered >= self.asked as f64 * (REACHED - self.noise)
    }

    pub fn keeps(&self, goal: &RateGoal) -> bool {
        self.response <= goal.response && self.is_reached()
    }
}

/// Searches. `probe` measures at so many accesses a second.
pub fn highest_rate(
    goal: RateGoal,
    mut probe: impl FnMut(u64) -> Result<RateProbe, String>,
) -> Result<HighestRate, String> {
    let mut tried: Vec<RateProbe> = Vec::new();
    let goal = RateGoal { rate_min: goal.rate_min.clamp(1, goal.rate_max.max(1)), ..goal };
    let mut rate = goal.start.clamp(goal.rate_min, goal.rate_max.max(goal.rate_min));
    loop {
        tried.push(probe(rate)?);
        match next(&goal, &tried) {
            Ok(_) if tried.len() >= goal.probes_max => {
                let (within, beyond) = bracket(&goal, &tried);
                let ending = if within.is_some() && beyond.is_some() { Ending::Found } else { Ending::OutOfProbes };
                return Ok(HighestRate { within, beyond: beyond.map(|probe| probe.asked), ending });
            }
            Ok(next) => rate = next,
            Err(ending) => {
                let (within, beyond) = bracket(&goal, &tried);
                return Ok(HighestRate { within, beyond: beyond.map(|probe| probe.asked), ending });
            }
        }
    }
}

/// The highest rate below all that missed the objective, and the lowest that missed it. One that
/// did both has missed it.
fn bracket<'a>(goal: &RateGoal, tried: &'a [RateProbe]) -> (Option<u64>, Option<&'a RateProbe>) {
    let beyond = tried.iter().filter(|probe| !probe.keeps(goal)).min_by_key(|probe| probe.asked);
    let most = beyond.map_or(u64::MAX, |probe| probe.asked);
    let within = tried.iter().filter(|probe| probe.keeps(goal) && probe.asked < most);
    (within.map(|probe| probe.asked).max(), beyond)
}

/// The next rate to try, or how the search ends.
fn next(goal: &RateGoal, tried: &[RateProbe]) -> Result<u64, Ending> {
    let (within, beyond) = bracket(goal, tried);
    let confirmed = |rate: u64| tried.iter().filter(|probe| probe.asked == rate).count() > 1;
    match (within, beyond) {
        (None, Some(beyond)) if beyond.asked <= goal.rate_min => Err(Ending::AlwaysExceeded),
        (None, Some(beyond)) => Ok(below(beyond, 1.0).max(goal.rate_min)),
        (Some(low), None) if low >= goal.rate_max => {
            if confirmed(low) {
                Err(Ending::NeverExceeded)
            } else {
                Ok(low)
            }
        }
        (Some(low), None) => {
            let response = tried.iter().find(|probe| probe.asked == low).map_or(Duration(0), |probe| probe.response);
            let far = response.0 < goal.response.0 / 4;
            let stride = if far { STRIDE * STRIDE } else { STRIDE };
            Ok(((low as f64 * stride) as u64).min(goal.rate_max))
        }
        (Some(low), Some(beyond)) if beyond.asked as f64 <= (low as f64 * CLOSE).max(low as f64 + 1.0) => {
            if confirmed(low) { Err(Ending::Found) } else { Ok(low) }
        }
        (Some(low), Some(high)) => {
            let wanted = below(high, low as f64);
            let margin = ((high.asked - low) / 8).max(1);
            Ok(wanted.clamp(low + margin, (high.asked - margin).max(low + margin)))
        }
        (None, None) => Err(Ending::OutOfProbes),
    }
}

/// Between a rate and one that missed the objective: their middle, or just below what was answered
/// where that was less.
fn below(beyond: &RateProbe, low: f64) -> u64 {
    let asked = beyond.asked as f64;
    let middle = if low > 1.0 { (low * asked).sqrt() } else { asked / (STRIDE * STRIDE) };
    let sustained = beyond.answered * 0.97;
    let wanted = if !beyond.is_reached() && sustained > low { sustained.min(asked * 0.97) } else { middle };
    (wanted as u64).max(1)
}

#[cfg(test)]
mod tests;
