//! Which units of one drive are taken.

/// Units of a drive, as shown.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct UnitCount {
    pub total: u32,
    pub used: u32,
    /// Its share of the reserve.
    pub reserved: u32,
}

/// A drive's units: a bit each, set when taken.
#[derive(Clone, Default, Debug)]
pub struct UnitMap {
    total: u32,
    used: u32,
    bits: Vec<u64>,
    /// No free unit below this.
    hint: u32,
}

impl UnitMap {
    pub fn new(total: u32) -> UnitMap {
        UnitMap { total, used: 0, bits: vec![0; total.div_ceil(64) as usize], hint: 0 }
    }

    /// A drive never shrinks; a replacement may be larger.
    pub fn grow(&mut self, total: u32) {
        self.total = self.total.max(total);
        self.bits.resize(self.total.div_ceil(64) as usize, 0);
    }

    pub fn total(&self) -> u32 {
        self.total
    }

    pub fn used(&self) -> u32 {
        self.used
    }

    pub fn free(&self) -> u32 {
        self.total - self.used
    }

    pub fn is_taken(&self, unit: u32) -> bool {
        self.bits.get(unit as usize / 64).is_some_and(|word| word >> (unit % 64) & 1 == 1)
    }

    /// The lowest free unit.
    pub fn first_free(&self) -> Option<u32> {
        let from = (self.hint / 64) as usize;
        let (at, word) = self.bits.iter().enumerate().skip(from).find(|(_, word)| **word != u64::MAX)?;
        let unit = at as u32 * 64 + word.trailing_ones();
        (unit < self.total).then_some(unit)
    }

    /// The runs of free units, each as its first unit and its length, in order.
    pub fn free_runs(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let mut from = 0;
        std::iter::from_fn(move || {
            let first = self.next(from, false)?;
            from = self.next(first, true).unwrap_or(self.total);
            Some((first, from - first))
        })
    }

    /// The first unit from here on that is taken, or that is not. Whole words at a time.
    fn next(&self, from: u32, taken: bool) -> Option<u32> {
        let sought = |word: u64| if taken { word } else { !word };
        let mut at = from as usize / 64;
        let mut word = sought(*self.bits.get(at)?) & (u64::MAX << (from % 64));
        while word == 0 {
            at += 1;
            word = sought(*self.bits.get(at)?);
        }
        let unit = at as u32 * 64 + word.trailing_zeros();
        (unit < self.total).then_some(unit)
    }

    /// Panics when it is taken already (invariant 4) or does not exist.
    pub fn take(&mut self, unit: u32) {
        assert!(unit < self.total && !self.is_taken(unit), "unit {unit} has an owner or does not exist");
        self.bits[unit as usize / 64] |= 1 << (unit % 64);
        self.used += 1;
        if unit == self.hint {
            self.hint += 1;
        }
    }

    /// Panics when it is free.
    pub fn release(&mut self, unit: u32) {
        assert!(self.is_taken(unit), "unit {unit} was released twice");
        self.bits[unit as usize / 64] &= !(1 << (unit % 64));
        self.used -= 1;
        self.hint = self.hint.min(unit);
    }
}

#[cfg(test)]
mod tests {
    use stele_ground::Dice;

    use super::*;

    #[test]
    fn free_runs_are_those_found_unit_by_unit() {
        let mut dice = Dice::new(3);
        for total in [0, 1, 63, 64, 65, 128, 300] {
            for share in [0, 1, 5, 50, 95, 100] {
                let mut units = UnitMap::new(total);
                (0..total).filter(|_| dice.below(100) < share).for_each(|unit| units.take(unit));
                let mut expected: Vec<(u32, u32)> = Vec::new();
                for unit in (0..total).filter(|unit| !units.is_taken(*unit)) {
                    match expected.last_mut() {
                        Some((first, length)) if *first + *length == unit => *length += 1,
                        _ => expected.push((unit, 1)),
                    }
                }
                assert_eq!(units.free_runs().collect::<Vec<_>>(), expected, "{total} units, {share} per cent taken");
            }
        }
    }
}
