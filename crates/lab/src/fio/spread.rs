//! Which of so many blocks a random access goes to: `random_distribution`.
//!
//! For zipf, pareto and normal a rank is drawn and hashed to a place, so that blocks that are hot
//! lie apart. For zoned, shares of the accesses go to shares of the space, one behind another.

use stele_ground::Dice;

#[derive(Clone, PartialEq, Default, Debug)]
pub enum Distribution {
    #[default]
    Even,
    Zipf(f64),
    Pareto(f64),
    /// The deviation, in percent of the blocks.
    Normal(f64),
    /// Percent of the accesses, and of the space that they go to.
    Zoned(Vec<(f64, f64)>),
}

impl Distribution {
    pub fn parse(text: &str) -> Result<Distribution, String> {
        let (kind, value) = text.split_once(':').unwrap_or((text, ""));
        let number = |default: f64, fits: fn(f64) -> bool, like: &str| match value {
            "" => Ok(default),
            value => value.parse().ok().filter(|value: &f64| fits(*value)).ok_or_else(|| like.to_owned()),
        };
        match kind {
            "random" => Ok(Distribution::Even),
            "zipf" => {
                let fits = |theta: f64| theta > 0.0 && theta != 1.0 && theta < 100.0;
                number(1.1, fits, "zipf's theta is above 0 and not 1, like zipf:1.2").map(Distribution::Zipf)
            }
            "pareto" => {
                let fits = |power: f64| power > 0.0 && power < 1.0;
                number(0.2, fits, "pareto's power is between 0 and 1, like pareto:0.9").map(Distribution::Pareto)
            }
            "normal" | "gauss" => {
                let fits = |percent: f64| (0.0..=100.0).contains(&percent);
                number(0.0, fits, "the deviation is a percentage, like normal:10").map(Distribution::Normal)
            }
            "zoned" => zones(value).map(Distribution::Zoned),
            _ => {
                Err("random, zipf:THETA, pareto:POWER, normal:PERCENT and zoned:ACCESSES/SPACE:... are known here"
                    .into())
            }
        }
    }
}

/// `60/10:30/20:10/70`. A share that is not given takes an equal part of what is left.
fn zones(text: &str) -> Result<Vec<(f64, f64)>, String> {
    const LIKE: &str = "shares of accesses and of space are needed, like zoned:60/10:30/20:10/70";
    if text.contains(',') {
        return Err("one list of zones for reads and writes together is known here".into());
    }
    let mut parts: Vec<(f64, Option<f64>)> = Vec::new();
    for part in text.split(':') {
        let (accesses, space) = part.split_once('/').unwrap_or((part, ""));
        let share = |text: &str| text.parse().ok().filter(|share: &f64| (0.0..=100.0).contains(share)).ok_or(LIKE);
        parts.push((share(accesses)?, if space.is_empty() { None } else { Some(share(space)?) }));
    }
    let open = parts.iter().filter(|part| part.1.is_none()).count();
    let left = 100.0 - parts.iter().filter_map(|part| part.1).sum::<f64>();
    let zones: Vec<(f64, f64)> =
        parts.into_iter().map(|(accesses, space)| (accesses, space.unwrap_or(left / open.max(1) as f64))).collect();
    let is_whole = |of: fn(&(f64, f64)) -> f64| (zones.iter().map(of).sum::<f64>() - 100.0).abs() < 0.01;
    match is_whole(|zone| zone.0) && is_whole(|zone| zone.1) {
        true => Ok(zones),
        false => Err(format!("both shares come to 100 percent; {LIKE}")),
    }
}

/// A distribution over so many blocks.
#[derive(Clone, Debug)]
pub struct BlockDistribution {
    kind: Distribution,
    blocks: u64,
    /// Hashes ranks otherwise than another file does.
    seed: u64,
    /// The sum of all weights of zipf.
    zeta: f64,
}

/// Weights of zipf that are summed one by one; the rest by their integral, which differs by less
/// than one part in a million.
const SUMMED: u64 = 1_000_000;

impl BlockDistribution {
    pub fn new(kind: &Distribution, blocks: u64, seed: u64) -> BlockDistribution {
        let zeta = match kind {
            Distribution::Zipf(theta) => {
                let sum: f64 = (1..=blocks.min(SUMMED)).map(|rank| (rank as f64).powf(-theta)).sum();
                let up_to = |rank: u64| (rank as f64).powf(1.0 - theta) / (1.0 - theta);
                sum + if blocks > SUMMED { up_to(blocks) - up_to(SUMMED) } else { 0.0 }
            }
            _ => 0.0,
        };
        BlockDistribution { kind: kind.clone(), blocks: blocks.max(1), seed, zeta }
    }

    pub fn draw(&self, dice: &mut Dice) -> u64 {
        let blocks = self.blocks;
        let rank = match &self.kind {
            Distribution::Even => return dice.below(blocks),
            Distribution::Zoned(zones) => return self.in_zone(zones, dice),
            Distribution::Zipf(theta) => self.zipf(*theta, dice),
            Distribution::Pareto(power) => {
                let exponent = power.ln() / (1.0 - power).ln();
                ((blocks - 1) as f64 * dice.fraction().powf(exponent)) as u64
            }
            Distribution::Normal(percent) => self.normal(*percent, dice),
        };
        // Times an odd number: ranks that follow one another lie far apart, and few fall on the
        // same block.
        rank.wrapping_add(self.seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) % blocks
    }

    /// The method of Gray and others ("Quickly generating billion-record synthetic databases",
    /// 1994).
    fn zipf(&self, theta: f64, dice: &mut Dice) -> u64 {
        let (count, drawn) = (self.blocks as f64, dice.fraction());
        let scaled = drawn * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(theta) {
            return 1;
        }
        let first_two = 1.0 + 0.5f64.powf(theta);
        let eta = (1.0 - (2.0 / count).powf(1.0 - theta)) / (1.0 - first_two / self.zeta);
        let rank = (count * (eta * drawn - eta + 1.0).powf(1.0 / (1.0 - theta))) as u64;
        rank.min(self.blocks - 1)
    }

    /// fio's bell is the mean of twelve even draws, moved by an even draw as wide as the deviation.
    fn normal(&self, percent: f64, dice: &mut Dice) -> u64 {
        let sum: u64 = (0..12).map(|_| dice.below(self.blocks + 1)).sum();
        let middle = sum.div_ceil(12) as f64;
        let width = (self.blocks as f64 * percent / 100.0).ceil().min(self.blocks as f64 / 2.0);
        let moved = middle + width * (dice.fraction() - 0.5);
        (moved.max(0.0) as u64).min(self.blocks - 1)
    }

    fn in_zone(&self, zones: &[(f64, f64)], dice: &mut Dice) -> u64 {
        let drawn = dice.fraction() * 100.0;
        let (mut accesses, mut space) = (0.0, 0.0);
        let at = |percent: f64| (self.blocks as f64 * percent / 100.0).round() as u64;
        for (share, wide) in zones {
            let (from, to) = (at(space), at(space + wide).min(self.blocks));
            (accesses, space) = (accesses + share, space + wide);
            if drawn < accesses && to > from {
                return from + dice.below(to - from);
            }
        }
        dice.below(self.blocks)
    }
}

#[cfg(test)]
mod tests;
