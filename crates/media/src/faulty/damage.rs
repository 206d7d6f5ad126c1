//! Damage that stays in the medium until it is rewritten, kept beside the drive, so that any drive
//! can have it.

use std::collections::BTreeMap;

use stele_ground::Dice;

/// Unit of damage and of healing, in bytes.
pub const UNIT: u64 = 512;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Wound {
    Unreadable,
    /// Offsets within the unit, and the values to xor with.
    Flipped(Vec<(u16, u8)>),
}

/// The damage of a medium, by unit.
#[derive(Clone, Default, Debug)]
pub struct Damage {
    wounds: BTreeMap<u64, Wound>,
}

impl Damage {
    pub fn is_empty(&self) -> bool {
        self.wounds.is_empty()
    }

    /// Number of damaged units.
    pub fn len(&self) -> usize {
        self.wounds.len()
    }

    /// Whether the range contains damage.
    pub fn touches(&self, at: u64, length: u64) -> bool {
        self.wounds.range(at / UNIT..(at + length).div_ceil(UNIT)).next().is_some()
    }

    /// Inverts one to eight bits of one byte each within the range.
    pub fn flip_bits(&mut self, at: u64, length: u64, dice: &mut Dice) {
        for _ in 0..=dice.below(8) {
            let place = at + dice.below(length);
            self.flip(place, 1 << dice.below(8));
        }
    }

    /// Replaces a run of up to 256 bytes by noise.
    pub fn flip_bytes(&mut self, at: u64, length: u64, dice: &mut Dice) {
        let start = dice.below(length);
        let count = (1 + dice.below(256)).min(length - start);
        for place in at + start..at + start + count {
            self.flip(place, 1 + dice.below(255) as u8);
        }
    }

    fn flip(&mut self, place: u64, bits: u8) {
        match self.wounds.entry(place / UNIT).or_insert_with(|| Wound::Flipped(Vec::new())) {
            Wound::Unreadable => {}
            Wound::Flipped(flips) => flips.push(((place % UNIT) as u16, bits)),
        }
    }

    pub fn make_unreadable(&mut self, at: u64, length: u64) {
        for unit in at / UNIT..(at + length).div_ceil(UNIT) {
            self.wounds.insert(unit, Wound::Unreadable);
        }
    }

    /// Heals the whole units in the range after a rewrite.
    pub fn heal(&mut self, at: u64, length: u64) {
        let healed: Vec<u64> =
            self.wounds.range(at.div_ceil(UNIT)..(at + length) / UNIT).map(|(unit, _)| *unit).collect();
        healed.into_iter().for_each(|unit| drop(self.wounds.remove(&unit)));
    }

    pub fn heal_all(&mut self) {
        self.wounds.clear();
    }

    /// Applies the damage to data read from `at`. Returns false if part of it is unreadable; the
    /// buffer then holds noise in those places.
    pub fn strike(&self, at: u64, buffer: &mut [u8]) -> bool {
        let end = at + buffer.len() as u64;
        let mut readable = true;
        for (unit, wound) in self.wounds.range(at / UNIT..end.div_ceil(UNIT)) {
            let start = unit * UNIT;
            match wound {
                Wound::Unreadable => {
                    readable = false;
                    let from = start.saturating_sub(at) as usize;
                    let to = (start + UNIT).min(end) - at;
                    buffer[from..to as usize].fill(0xDB);
                }
                Wound::Flipped(flips) => {
                    for (offset, bits) in flips {
                        let place = start + u64::from(*offset);
                        if (at..end).contains(&place) {
                            buffer[(place - at) as usize] ^= bits;
                        }
                    }
                }
            }
        }
        readable
    }
}
