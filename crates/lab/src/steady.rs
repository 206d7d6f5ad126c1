//! Whether the rates of a run's rounds are those of a steady state. Two tests, and both must pass.
//!
//! The SNIA's looks at the last five rounds. What happened before them it does not see, though a run's figures are means over all
//! its rounds: a cache that overflowed in the middle gives a mean of two storages, neither of which exists. So all rounds are
//! searched for a change by Pettitt's test: at every place the ranks before it are set against those after it, and the largest
//! difference counts. Ranks, because a single slow round is no change, however slow.
//!
//! Chance is told by shuffling the rounds, which is exact for any number of them and any distribution; the usual formula is not
//! below some thirty rounds. Shuffling knows nothing of neighbours that resemble each other, as rounds of real storage do, and
//! slow wandering would often pass for a change. Therefore a change also has to be large, and long runs are first
//! gathered into few batches. With fewer than eight rounds nothing can be told from chance, and no change is found.

use stele_ground::Dice;

/// Rounds of the window that the SNIA's test looks at.
pub const ROUNDS: usize = 5;

/// As unlikely as this by chance is a change.
const CHANCE: f64 = 0.05;
/// And by more than this share of the mean, which is what the SNIA's test lets pass as a rise.
const SIZE: f64 = 0.1;
/// Rounds are gathered into so many batches at most.
const BATCHES: usize = 40;
const SHUFFLES: u32 = 999;

/// Where the rates of a run changed for good.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Change {
    /// Rounds before it.
    pub round: usize,
    /// Means before and after.
    pub from: f64,
    pub to: f64,
    /// How often shuffled rounds differ as much.
    pub chance: f64,
}

/// The rates of all rounds that count, in their order, are steady.
pub fn is_steady(rates: &[f64]) -> bool {
    shortfall(rates).is_none()
}

/// Why they are not steady; none where they are.
pub fn shortfall(rates: &[f64]) -> Option<String> {
    let window = rates.get(rates.len().saturating_sub(ROUNDS)..).unwrap_or_default();
    if window.len() < ROUNDS {
        return Some(format!("{} rounds are too few to tell", rates.len()));
    }
    let (range, rise) = spread(window);
    if range > 0.2 {
        return Some(format!("the range of the last {ROUNDS} rounds is {:.0} % of their mean", range * 100.0));
    }
    if rise > 0.1 {
        return Some(format!("the rate moves by {:.0} % over the last {ROUNDS} rounds", rise * 100.0));
    }
    change(rates).map(|Change { round, from, to, .. }| {
        format!("the rate changed from {from:.0} to {to:.0} after round {round}: two states, a longer warm-up leaves out the first")
    })
}

/// The rule of the SNIA's performance test on a window: the rates' range is at most 20 % of their mean, and their rise over all of
/// them at most 10 %.
pub fn keeps_rule(window: &[f64]) -> bool {
    let (range, rise) = spread(window);
    range <= 0.2 && rise <= 0.1
}

/// Range, and rise of the straight line through them, as shares of their mean.
fn spread(rates: &[f64]) -> (f64, f64) {
    let mean = mean(rates);
    let (least, most) =
        rates.iter().fold((f64::MAX, 0.0f64), |(least, most), rate| (least.min(*rate), most.max(*rate)));
    // Least squares over the numbers of the rounds.
    let middle = (rates.len() as f64 - 1.0) / 2.0;
    let (mut over, mut under) = (0.0, 0.0);
    for (at, rate) in rates.iter().enumerate() {
        over += (at as f64 - middle) * (rate - mean);
        under += (at as f64 - middle) * (at as f64 - middle);
    }
    let rise = (over / under).abs() * (rates.len() as f64 - 1.0);
    let mean = mean.max(f64::MIN_POSITIVE);
    ((most - least) / mean, rise / mean)
}

/// The place at which the rates changed, if they did.
pub fn change(rates: &[f64]) -> Option<Change> {
    let each = rates.len().div_ceil(BATCHES).max(1);
    let batches: Vec<f64> = rates.chunks(each).map(mean).collect();
    let mut ranks = centred_ranks(&batches);
    let (place, most) = largest(&ranks);
    let round = place * each;
    let (before, after) = rates.split_at_checked(round)?;
    let (from, to) = (mean(before), mean(after));
    if before.is_empty() || (to - from).abs() <= SIZE * mean(rates) {
        return None;
    }
    // The same rates have the same answer: the dice are always these.
    let mut dice = Dice::new(1);
    let mut as_large = 0;
    for _ in 0..SHUFFLES {
        for last in (1..ranks.len()).rev() {
            ranks.swap(last, dice.below(last as u64 + 1) as usize);
        }
        as_large += u32::from(largest(&ranks).1 >= most);
    }
    let chance = f64::from(as_large + 1) / f64::from(SHUFFLES + 1);
    (chance <= CHANCE).then_some(Change { round, from, to, chance })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Twice each value's rank (equal ones share theirs), less what makes the sum of all 0.
fn centred_ranks(values: &[f64]) -> Vec<i64> {
    let of = |value: &f64| {
        let less = values.iter().filter(|other| *other < value).count() as i64;
        let more = values.iter().filter(|other| *other > value).count() as i64;
        less - more
    };
    values.iter().map(of).collect()
}

/// Where the sum of the ranks before is furthest from 0, and how far.
fn largest(ranks: &[i64]) -> (usize, i64) {
    let (mut sum, mut best) = (0, (0, 0));
    for (at, rank) in ranks.iter().enumerate() {
        sum += rank;
        if sum.abs() > best.1 {
            best = (at + 1, sum.abs());
        }
    }
    best
}

#[cfg(test)]
mod tests;
