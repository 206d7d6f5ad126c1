//! When the next access may start: `rate`, `rate_iops` and `rate_process`; and whether it is fast
//! enough: `rate_min`.

use stele_ground::Dice;

use super::options::Options;

/// Nanoseconds since the job began, throughout.
pub struct Pace {
    /// Bytes a second, of reads and of writes; 0: as fast as it goes.
    limits: [f64; 2],
    least: [f64; 2],
    poisson: bool,
    block: [u64; 2],
    issued: [u64; 2],
    /// Of random gaps.
    due: [f64; 2],
    cycle: u64,
    looked_at: u64,
    answered: [u64; 2],
}

impl Pace {
    pub fn new(options: &Options) -> Pace {
        let rate = &options.rate;
        let block = [options.blocks[0].least, options.blocks[1].least];
        // Accesses a second are those of the shortest length, as fio counts them.
        let of = |bytes: [u64; 2], accesses: [u64; 2]| {
            [0, 1].map(|way| if bytes[way] > 0 { bytes[way] } else { accesses[way] * block[way] } as f64)
        };
        Pace {
            limits: of(rate.bytes, rate.accesses),
            least: of(rate.bytes_least, rate.accesses_least),
            poisson: rate.poisson,
            block,
            issued: [0; 2],
            due: [0.0; 2],
            cycle: rate.cycle,
            looked_at: 0,
            answered: [0; 2],
        }
    }

    pub fn is_limited(&self) -> bool {
        self.limits.iter().any(|limit| *limit > 0.0)
    }

    /// When the next one of that kind may start.
    pub fn due(&self, way: usize) -> u64 {
        match (self.limits[way] > 0.0, self.poisson) {
            (false, _) => 0,
            (true, true) => self.due[way] as u64,
            (true, false) => (self.issued[way] as f64 / self.limits[way] * 1e9) as u64,
        }
    }

    pub fn issued(&mut self, way: usize, bytes: u64, dice: &mut Dice) {
        self.issued[way] += bytes;
        if self.poisson && self.limits[way] > 0.0 {
            let mean = 1e9 * self.block[way] as f64 / self.limits[way];
            self.due[way] -= (1.0 - dice.fraction()).max(1e-12).ln() * mean;
        }
    }

    /// What is wrong with the bytes answered so far, looked at once in a cycle.
    pub fn check(&mut self, now: u64, answered: [u64; 2]) -> Result<(), String> {
        if self.least == [0.0; 2] || now - self.looked_at < self.cycle {
            return Ok(());
        }
        let seconds = (now - self.looked_at) as f64 / 1e9;
        let before = std::mem::replace(&mut self.answered, answered);
        self.looked_at = now;
        for (way, name) in [(0, "reads"), (1, "writes")] {
            let (found, least) = ((answered[way] - before[way]) as f64 / seconds, self.least[way]);
            if found < least {
                return Err(format!("{name} came to {found:.0} bytes a second, and rate_min asks for {least:.0}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
