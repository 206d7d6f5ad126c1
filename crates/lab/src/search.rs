//! The highest load at a response time: bracketed geometrically, closed in on by Little's law, interpolated at the end.

use stele_ground::Duration;

use crate::closed::Probe;

/// What is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Goal {
    /// The mean response that must not be exceeded.
    pub response: Duration,
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
        let mean = measured.response.mean().0 as f64;
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
    Ok(between(limit, within, beyond, probes))
}

fn between(limit: f64, within: Option<Probe>, beyond: Option<Probe>, probes: usize) -> Highest {
    let place = |probe: &Probe| (probe.rate, probe.outstanding as f64, probe.response.mean().0 as f64);
    let (rate, load) = match (&within, &beyond) {
        (Some(low), Some(high)) => {
            let ((rate_low, load_low, mean_low), (rate_high, load_high, mean_high)) = (place(low), place(high));
            let share = ((limit - mean_low) / (mean_high - mean_low).max(1.0)).clamp(0.0, 1.0);
            (rate_low + (rate_high - rate_low) * share, load_low + (load_high - load_low) * share)
        }
        (Some(only), None) | (None, Some(only)) => (only.rate, only.outstanding as f64),
        (None, None) => (0.0, 0.0),
    };
    let steady = within.iter().chain(&beyond).all(|probe| probe.steady);
    Highest { rate, load, within, beyond, probes, steady }
}

#[cfg(test)]
mod tests;
