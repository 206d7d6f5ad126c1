//! Choosing the drives of a row: least filled, least often together, within the enclosure rule,
//! ties by seeded dice.
//!
//! The aim is an even rebuild: when a drive is lost, every other drive holds about equally many
//! rows with it. A greedy choice over the counts of pairs comes close enough (the worst load is
//! below 1.15 of the mean; see the tests). Unlike a fixed design it keeps working while drives
//! come, go and differ in size.

use std::collections::BTreeMap;

use stele_ground::Dice;

/// A drive that may take a member.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Its number in the pool.
    pub drive: usize,
    pub enclosure: u32,
    pub used: u32,
    pub total: u32,
}

/// How many members one enclosure may get: `most` (the strips that may be lost), or the least that
/// still fits `width` members; none when the candidates are too few.
pub fn enclosure_limit(candidates: &[Candidate], width: usize, most: usize) -> Option<usize> {
    let mut count: BTreeMap<u32, usize> = BTreeMap::new();
    for candidate in candidates {
        *count.entry(candidate.enclosure).or_default() += 1;
    }
    (most.max(1)..=width).find(|limit| count.values().map(|drives| drives.min(limit)).sum::<usize>() >= width)
}

/// The drives of a row, or none when there are too few. `together(a, b)` counts rows they share.
pub fn choose(
    candidates: &[Candidate],
    width: usize,
    most_per_enclosure: usize,
    together: &dyn Fn(usize, usize) -> u32,
    dice: &mut Dice,
) -> Option<Vec<usize>> {
    let limit = enclosure_limit(candidates, width, most_per_enclosure)?;
    let mut left: Vec<Candidate> = candidates.to_vec();
    // Ties fall to the drive that the dice put first.
    dice.shuffle(&mut left);
    let mut crowd: BTreeMap<u32, usize> = BTreeMap::new();
    let mut chosen: Vec<usize> = Vec::with_capacity(width);
    // Rows shared with those chosen so far, by place in `left`.
    let mut shared: Vec<u64> = vec![0; left.len()];
    while chosen.len() < width {
        // Each pick takes exactly one of the places that the limit leaves, so the rest always fits.
        let open = |candidate: &Candidate| crowd.get(&candidate.enclosure).copied().unwrap_or(0) < limit;
        let best = (0..left.len())
            .filter(|at| !chosen.contains(&left[*at].drive) && open(&left[*at]))
            .min_by_key(|at| cost(&left[*at], shared[*at], width))?;
        let picked = left[best];
        *crowd.entry(picked.enclosure).or_default() += 1;
        chosen.push(picked.drive);
        for (count, candidate) in shared.iter_mut().zip(&left) {
            *count += u64::from(together(picked.drive, candidate.drive));
        }
    }
    Some(chosen)
}

/// What speaks against a candidate: the rows that it shares with the chosen, four times, and how
/// much of it is used. A drive in r rows shares r * (width - 1) with all others, so use counts as
/// often. Both count in proportion to the drive's size, so that drives of unlike size fill up
/// together.
fn cost(candidate: &Candidate, shared: u64, width: usize) -> u64 {
    let rows = shared * 4 + u64::from(candidate.used) * (width as u64 - 1);
    (rows << 16) / u64::from(candidate.total.max(1))
}

#[cfg(test)]
mod tests;
