//! Two targets against each other, in blocks of four runs: ABBA or BAAB, by the throw of a die.
//!
//! Within a block what drifts evenly, like a drive that fills or a machine that warms up, takes
//! from both sides alike. Each block gives one value: the logarithm of the ratio of its means. The
//! interval is that of the values' mean by Student's t, so that it says how much the blocks differ,
//! which the rounds of a single run do not know. Where it spans 1, no difference is shown; that is
//! not the same as that there is none.

use stele_ground::Dice;

use crate::error::LabError;
use crate::job::{Axes, JobCell};
use crate::record::{CellRecord, Recorded, RunRecord};
use crate::report::chosen;
use crate::search::margin_of;

/// Fewer have no interval, or one that says nothing.
pub const BLOCKS_MIN: u32 = 3;
pub const BLOCKS_MAX: u32 = 1000;

/// Names of the axes that a comparison adds.
const ADDED: [&str; 3] = ["side", "block", "turn"];

/// Each cell as so many blocks of four runs, in an order that the seed decides.
pub fn expanded(cells: &[JobCell], blocks: u32, seed: u64) -> Result<Vec<JobCell>, LabError> {
    if !(BLOCKS_MIN..=BLOCKS_MAX).contains(&blocks) {
        return Err(LabError::Usage(format!("--blocks {blocks}: from {BLOCKS_MIN} to {BLOCKS_MAX} can be compared")));
    }
    if cells.iter().any(|cell| cell.goal.is_some()) {
        return Err(LabError::Usage(
            "a search has no rate until it ends: compare at a load (load.outstanding or load.rate), or compare two searches \
             with `stele lab diff`"
                .into(),
        ));
    }
    let mut dice = Dice::new(seed ^ 0xABBA);
    let mut runs = Vec::new();
    for cell in cells {
        for block in 1..=blocks {
            let order = if dice.below(2) == 0 { ["A", "B", "B", "A"] } else { ["B", "A", "A", "B"] };
            for (turn, side) in order.into_iter().enumerate() {
                let values = [side.to_owned(), block.to_string(), (turn + 1).to_string()];
                let added = ADDED.iter().map(|name| (*name).to_owned()).zip(values);
                // Both sides of a block draw the same accesses; blocks draw others.
                let mut setup = cell.setup.clone();
                setup.seed = setup.seed.wrapping_add(u64::from(block).wrapping_mul(0x9E37_79B9_7F4A_7C15));
                let axes = cell.axes.iter().cloned().chain(added).collect();
                runs.push(JobCell { axes, setup, ..cell.clone() });
            }
        }
    }
    Ok(runs)
}

/// Whether a run is of the side that the first is compared against.
pub fn is_against(axes: &Axes) -> bool {
    value_of(axes, "side") == Some("B")
}

fn value_of<'a>(axes: &'a Axes, name: &str) -> Option<&'a str> {
    axes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// How many times the first side's value the second one's is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ratio {
    pub ratio: f64,
    /// 95 %; none with fewer than two blocks.
    pub interval: Option<(f64, f64)>,
}

impl Ratio {
    /// Of the logarithms of the blocks' ratios.
    fn of(logarithms: &[f64]) -> Ratio {
        let mean = logarithms.iter().sum::<f64>() / logarithms.len().max(1) as f64;
        let interval = margin_of(logarithms).map(|margin| ((mean - margin).exp(), (mean + margin).exp()));
        Ratio { ratio: mean.exp(), interval }
    }

    /// The interval leaves out 1.
    pub fn differs(&self) -> bool {
        self.interval.is_some_and(|(low, high)| low > 1.0 || high < 1.0)
    }
}

/// What the blocks of one cell say.
#[derive(Clone, PartialEq, Debug)]
pub struct Judged {
    pub name: String,
    /// Whole blocks, none of whose runs failed or was stopped.
    pub blocks: usize,
    /// Geometric means over all runs of A and of B: accesses a second, and nanoseconds of response.
    /// Other means could say the opposite of the ratio.
    pub rates: (f64, f64),
    pub responses: (f64, f64),
    pub rate: Ratio,
    pub response: Ratio,
    /// Runs that did not reach a steady state. They count: what drifts evenly over a block takes
    /// from both sides alike.
    pub unsteady: usize,
}

/// A run's block, side, rate and mean response, and whether it is steady.
type Run = (String, bool, f64, f64, bool);

/// It came to its end: the figures of one that did not are of another time than its block's.
fn is_whole(cell: &CellRecord, run: &RunRecord) -> bool {
    cell.failed.is_none() && !run.stopped
}

/// One of its values.
type Value = fn(&Run) -> f64;

/// From the runs of a file. Blocks that are not whole are left out, and so are blocks with a run
/// that failed or was stopped.
pub fn judged(cells: &[CellRecord]) -> Vec<Judged> {
    let mut all: Vec<(String, Vec<Run>)> = Vec::new();
    for cell in cells {
        let (Some(block), Some(run)) = (value_of(&cell.axes, "block"), chosen(cell)) else { continue };
        if !is_whole(cell, run) {
            continue;
        }
        let own: Vec<String> = cell
            .axes
            .iter()
            .filter(|(name, _)| !ADDED.contains(&name.as_str()))
            .map(|(n, v)| format!("{n} {v}"))
            .collect();
        let name = if own.is_empty() { cell.workload.clone() } else { own.join(", ") };
        let total = run.total();
        let run =
            (block.to_owned(), is_against(&cell.axes), total.rate, total.response.mean().0 as f64, run.is_steady());
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some((_, runs)) => runs.push(run),
            None => all.push((name, vec![run])),
        }
    }
    all.into_iter().filter_map(|(name, runs)| judge(name, &runs)).collect()
}

fn judge(name: String, runs: &[Run]) -> Option<Judged> {
    let mut blocks: Vec<&str> = runs.iter().map(|run| run.0.as_str()).collect();
    blocks.dedup();
    let whole: Vec<Vec<&Run>> = blocks
        .into_iter()
        .map(|block| runs.iter().filter(|run| run.0 == block).collect::<Vec<_>>())
        .filter(|block| block.len() == 4 && block.iter().filter(|run| run.1).count() == 2)
        .collect();
    if whole.is_empty() {
        return None;
    }
    let of = |against: bool, value: Value| {
        let values: Vec<f64> = whole.iter().flatten().filter(|run| run.1 == against).map(|run| value(run)).collect();
        geometric_mean(&values)
    };
    let logarithms = |value: Value| -> Vec<f64> {
        let sign = |run: &Run| if run.1 { 0.5 } else { -0.5 };
        whole.iter().map(|block| block.iter().map(|run| sign(run) * value(run).max(1e-9).ln()).sum()).collect()
    };
    let (rate, response): (Value, Value) = (|run| run.2, |run| run.3);
    Some(Judged {
        name,
        blocks: whole.len(),
        rates: (of(false, rate), of(true, rate)),
        responses: (of(false, response), of(true, response)),
        rate: Ratio::of(&logarithms(rate)),
        response: Ratio::of(&logarithms(response)),
        unsteady: whole.iter().flatten().filter(|run| !run.4).count(),
    })
}

/// Equal values have themselves, to the last digit.
fn geometric_mean(values: &[f64]) -> f64 {
    let at_least = |value: &f64| value.max(1e-9);
    let first = values.first().map_or(0.0, at_least);
    let sum: f64 = values.iter().map(|value| (at_least(value) / first).ln()).sum();
    first * (sum / values.len().max(1) as f64).exp()
}

/// Of a file of a comparison; none of any other.
pub fn of(recorded: &Recorded) -> Option<Vec<Judged>> {
    recorded.head.against.as_ref().map(|_| judged(&recorded.cells))
}

#[cfg(test)]
mod tests;
