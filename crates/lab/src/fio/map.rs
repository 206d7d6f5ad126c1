//! Which blocks of a file were drawn already: so that each is, once, before any is again.
//!
//! A tree of words: a bit of an upper one says that a word below it is full. So the next free block
//! is found in a few steps also when almost all are taken.

#[derive(Clone, Debug)]
pub struct BlockBitmap {
    /// From the blocks upwards.
    levels: Vec<Vec<u64>>,
    blocks: u64,
}

const EACH: u64 = 64;

impl BlockBitmap {
    pub fn new(blocks: u64) -> BlockBitmap {
        let mut levels = Vec::new();
        let mut bits = blocks;
        while bits > 0 {
            let words = bits.div_ceil(EACH);
            let mut level = vec![0u64; words as usize];
            // What is beyond the end is taken.
            if let Some(last) = level.last_mut().filter(|_| !bits.is_multiple_of(EACH)) {
                *last = u64::MAX << (bits % EACH);
            }
            levels.push(level);
            bits = if words > 1 { words } else { 0 };
        }
        BlockBitmap { levels, blocks }
    }

    pub fn is_taken(&self, block: u64) -> bool {
        block >= self.blocks || self.levels[0][(block / EACH) as usize] >> (block % EACH) & 1 == 1
    }

    /// Takes blocks from this one on, up to `count`, as far as they are free; answers how many.
    pub fn take(&mut self, block: u64, count: u64) -> u64 {
        let free = (block..block + count).take_while(|block| !self.is_taken(*block)).count() as u64;
        (block..block + free).for_each(|block| self.set(block));
        free
    }

    fn set(&mut self, block: u64) {
        let mut bit = block;
        for level in &mut self.levels {
            let word = &mut level[(bit / EACH) as usize];
            *word |= 1 << (bit % EACH);
            if *word != u64::MAX {
                return;
            }
            bit /= EACH;
        }
    }

    /// This block or the next one that is free, from the beginning again behind the end.
    pub fn next_free(&self, block: u64) -> Option<u64> {
        self.free_from(block).or_else(|| self.free_from(0))
    }

    fn free_from(&self, block: u64) -> Option<u64> {
        let (mut level, mut bit) = (0, block);
        loop {
            let word = self.levels.get(level)?.get((bit / EACH) as usize).copied();
            // Beyond the end of a level, or nothing is free in the word: on behind it, one level
            // up.
            let free = !word? & (u64::MAX << (bit % EACH));
            if free == 0 {
                (level, bit) = (level + 1, bit / EACH + 1);
                continue;
            }
            bit = bit / EACH * EACH + u64::from(free.trailing_zeros());
            if level == 0 {
                return Some(bit);
            }
            (level, bit) = (level - 1, bit * EACH);
        }
    }
}

#[cfg(test)]
mod tests;
