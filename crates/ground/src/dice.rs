//! Seeded dice: the only source of random numbers below the drivers. xoshiro256** seeded by
//! splitmix64 (Blackman and Vigna, 2018), so that a seed gives the same run on every machine.

/// A repeatable stream of numbers. Not for secrets.
#[derive(Clone, Debug)]
pub struct Dice {
    state: [u64; 4],
}

impl Dice {
    pub fn new(seed: u64) -> Dice {
        let mut mix = seed;
        let mut next = || {
            mix = mix.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = mix;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        };
        Dice { state: [next(), next(), next(), next()] }
    }

    /// A uniform 64-bit number.
    pub fn roll(&mut self) -> u64 {
        let [_, s1, ..] = self.state;
        let result = s1.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s1 << 17;
        self.state[2] ^= self.state[0];
        self.state[3] ^= self.state[1];
        self.state[1] ^= self.state[2];
        self.state[0] ^= self.state[3];
        self.state[2] ^= t;
        self.state[3] = self.state[3].rotate_left(45);
        result
    }

    /// A uniform number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a die needs at least one side");
        ((u128::from(self.roll()) * u128::from(bound)) >> 64) as u64
    }

    /// True once in `sides` throws on average; never when `sides` is 0.
    pub fn one_in(&mut self, sides: u64) -> bool {
        sides > 0 && self.below(sides) == 0
    }

    /// A uniform number in [0, 1).
    pub fn fraction(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.roll().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// An independent stream: draws from one do not change the other's.
    pub fn fork(&mut self) -> Dice {
        Dice::new(self.roll())
    }

    /// A random element; `None` for an empty slice.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() { None } else { items.get(self.below(items.len() as u64) as usize) }
    }

    /// A random permutation, by Fisher and Yates.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}
