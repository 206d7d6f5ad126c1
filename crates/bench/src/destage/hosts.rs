//! The places that hosts write.

use stele_ground::Dice;

/// How writes are spread over a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Skew {
    Uniform,
    /// Four fifths of the writes go to a fifth of the volume, which lies scattered in MiBs.
    Hot,
}

impl Skew {
    pub fn name(self) -> &'static str {
        match self {
            Skew::Uniform => "uniform",
            Skew::Hot => "80/20",
        }
    }
}

/// Blocks that lie together in the hot part or out of it.
const EXTENT: u64 = 256;
/// One extent of so many is hot, and one write of so many goes to the others.
const PART: u64 = 5;

#[derive(Debug)]
pub struct Writers {
    dice: Dice,
    blocks: u64,
    skew: Skew,
}

impl Writers {
    pub fn new(seed: u64, blocks: u64, skew: Skew) -> Writers {
        Writers { dice: Dice::new(seed), blocks, skew }
    }

    /// The next block that is written.
    pub fn draw(&mut self) -> u64 {
        let cold = self.dice.one_in(PART);
        loop {
            let block = self.dice.below(self.blocks);
            let is_hot = (block / EXTENT).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 < (1 << 32) / PART;
            if self.skew == Skew::Uniform || is_hot != cold {
                return block;
            }
        }
    }
}
