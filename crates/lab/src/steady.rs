//! Whether the rates of a run's rounds are those of a steady state. Four tests, and all must pass.
//!
//! The SNIA's looks at the last five rounds. What happened before them it does not see, though a
//! run's figures are means over all its rounds: a cache that overflowed in the middle gives a mean
//! of two storages, neither of which exists. So all rounds are searched for a change by Pettitt's
//! test: at every place the ranks before it are set against those after it, and the largest
//! difference counts. Ranks, because a single slow round is no change, however slow.
//!
//! Chance is told by shuffling the rounds, which is exact for any number of them and any
//! distribution; the usual formula is not below some thirty rounds. Shuffling knows nothing of
//! neighbours that resemble each other, as rounds of real storage do, and slow wandering would
//! often pass for a change. Therefore a change also has to be large, and long runs are first
//! gathered into few batches. With fewer than eight rounds nothing can be told from chance, and no
//! change is found.

//!
//! A change that is taken back is a dip (or a peak): the window of neighbouring rounds whose ranks
//! stand out most, by as much and as unlikely by chance. And a time in which nothing at all was
//! answered is a gap, whatever the rounds around it look like.

use stele_ground::{Dice, Duration};

/// Rounds of the window that the SNIA's test looks at.
pub const ROUNDS: usize = 5;

/// As unlikely as this by chance is a change.
const CHANCE: f64 = 0.05;
/// And by more than this share of the mean, which is what the SNIA's test lets pass as a rise.
const SIZE: f64 = 0.1;
/// Rounds are gathered into so many batches at most.
const BATCHES: usize = 40;
const SHUFFLES: u32 = 999;
/// Of a dip; a slow round or two are none.
const DIP_ROUNDS: usize = 3;
/// Rounds that a dip is looked for in; more are gathered.
const DIP_BATCHES: usize = 120;
/// Without an answer for so long the target stood still.
const GAP: Duration = Duration(1_000_000_000);
/// Where answers are few, that many of them must be missing.
const GAP_ANSWERS: f64 = 10.0;

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
    if answered_nothing(rates) {
        return Some("nothing was answered".to_owned());
    }
    let window = rates.get(rates.len().saturating_sub(ROUNDS)..).unwrap_or_default();
    if window.len() < ROUNDS {
        let rounds = match rates.len() {
            1 => "1 round is".to_owned(),
            rounds => format!("{rounds} rounds are"),
        };
        return Some(format!("{rounds} too few to tell"));
    }
    let (range, rise) = spread(window);
    if range > 0.2 {
        return Some(format!("the range of the last {ROUNDS} rounds is {} % of their mean", beyond(range, 0.2)));
    }
    if rise > 0.1 {
        return Some(format!("the rate moves by {} % over the last {ROUNDS} rounds", beyond(rise, 0.1)));
    }
    let changed = change(rates).map(|Change { round, from, to, .. }| {
        format!("the rate changed from {from:.0} to {to:.0} after round {round}: two states, a longer warm-up leaves out the first")
    });
    changed.or_else(|| {
        dip(rates).map(|Dip { first, rounds, inside, outside, .. }| {
            let what = if inside < outside { "a dip" } else { "a peak" };
            format!(
                "{what}: the rate was {inside:.0} in rounds {} to {}, and {outside:.0} in the others",
                first + 1,
                first + rounds
            )
        })
    })
}

/// A share in percent, which reads as more than its limit: rounded up to a tenth where rounding
/// would hide that.
fn beyond(share: f64, most: f64) -> String {
    match (share * 100.0).round() > most * 100.0 {
        true => format!("{:.0}", share * 100.0),
        false => format!("{:.1}", (share * 1000.0).ceil() / 10.0),
    }
}

/// Rounds without a single answer are alike, and still no state of a target.
fn answered_nothing(rates: &[f64]) -> bool {
    !rates.is_empty() && rates.iter().all(|rate| *rate == 0.0)
}

/// Nothing was answered for so long that the target stood still.
pub fn is_gap(span: Duration) -> bool {
    span >= GAP
}

/// As `shortfall`, where it is known for how long nothing was answered in each round.
pub fn shortfall_with_gaps(rates: &[f64], gaps: impl Iterator<Item = Duration>) -> Option<String> {
    longest_gap(rates, gaps).or_else(|| shortfall(rates))
}

/// The longest time without an answer, where it is a gap at these rates.
pub fn longest_gap(rates: &[f64], gaps: impl Iterator<Item = Duration>) -> Option<String> {
    let mean = mean(rates);
    // Without any answer there is no rate that tells how rare they are.
    let rare = if mean > 0.0 { GAP_ANSWERS / mean } else { 0.0 };
    let least = GAP.as_secs_f64().max(rare);
    // A gap that goes on through several rounds is told with its whole length.
    let longest = gaps.enumerate().max_by_key(|(at, gap)| (*gap, std::cmp::Reverse(*at)));
    let (at, gap) = longest.filter(|(_, gap)| gap.as_secs_f64() >= least)?;
    Some(format!("a gap: nothing was answered for {gap} until round {}", at + 1))
}

/// The rule of the SNIA's performance test on a window: the rates' range is at most 20 % of their
/// mean, and their rise over all of them at most 10 %. Something must have been answered.
pub fn keeps_rule(window: &[f64]) -> bool {
    let (range, rise) = spread(window);
    range <= 0.2 && rise <= 0.1 && !answered_nothing(window)
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

/// Rounds beside each other whose rates stand out from those before and behind.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Dip {
    /// Rounds before it, and of it.
    pub first: usize,
    pub rounds: usize,
    /// Means in it, and of all others.
    pub inside: f64,
    pub outside: f64,
    /// How often shuffled rounds have one that stands out as much.
    pub chance: f64,
}

/// The rounds that stand out most, if they do.
pub fn dip(rates: &[f64]) -> Option<Dip> {
    let each = rates.len().div_ceil(DIP_BATCHES).max(1);
    let batches: Vec<f64> = rates.chunks(each).map(mean).collect();
    if batches.len() < 2 * DIP_ROUNDS + 1 {
        return None;
    }
    let mut ranks = centred_ranks(&batches);
    let (window, most) = standing_out(&ranks);
    let (first, end) = (window.0 * each, (window.1 * each).min(rates.len()));
    let others: Vec<f64> = rates.iter().take(first).chain(rates.iter().skip(end)).copied().collect();
    let (inside, outside) = (mean(rates.get(first..end)?), mean(&others));
    if (inside - outside).abs() <= SIZE * mean(rates) {
        return None;
    }
    let mut dice = Dice::new(1);
    let mut as_large = 0;
    for _ in 0..SHUFFLES {
        for last in (1..ranks.len()).rev() {
            ranks.swap(last, dice.below(last as u64 + 1) as usize);
        }
        as_large += u32::from(standing_out(&ranks).1 >= most);
    }
    let chance = f64::from(as_large + 1) / f64::from(SHUFFLES + 1);
    (chance <= CHANCE).then_some(Dip { first, rounds: end - first, inside, outside, chance })
}

/// The window of at most half of the ranks whose sum is largest for its length, and by how much (up
/// to a factor).
fn standing_out(ranks: &[i64]) -> ((usize, usize), f64) {
    let count = ranks.len();
    let mut sums = Vec::with_capacity(count + 1);
    sums.push(0i64);
    for rank in ranks {
        sums.push(sums.last().copied().unwrap_or(0) + rank);
    }
    let mut best = ((0, DIP_ROUNDS), 0.0);
    for length in DIP_ROUNDS..=count / 2 {
        let spread = ((length * (count - length)) as f64).sqrt();
        for (first, pair) in sums.windows(length + 1).enumerate() {
            let sum = pair.last().unwrap_or(&0) - pair.first().unwrap_or(&0);
            let out = sum.abs() as f64 / spread;
            if out > best.1 {
                best = ((first, first + length), out);
            }
        }
    }
    best
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
