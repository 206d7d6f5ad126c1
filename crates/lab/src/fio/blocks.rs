//! How long accesses are: one size, a range (`bsrange`), or sizes with shares (`bssplit`).

use stele_ground::Dice;

use super::units::{bytes, percent};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockSizes {
    pub least: u64,
    pub most: u64,
    /// Sizes with their percent; none: any multiple of the least, up to the most.
    shares: Vec<(u64, u8)>,
    /// Any number of bytes in the range.
    pub unaligned: bool,
    /// A range or shares: a plain size behind it changes nothing, as in fio.
    pub ranged: bool,
}

impl Default for BlockSizes {
    fn default() -> BlockSizes {
        BlockSizes::one(4096)
    }
}

impl BlockSizes {
    fn one(size: u64) -> BlockSizes {
        BlockSizes { least: size, most: size, shares: Vec::new(), unaligned: false, ranged: false }
    }

    /// `4k`
    pub fn size(text: &str) -> Result<BlockSizes, String> {
        let size = bytes(text).filter(|size| (1..=1 << 30).contains(size));
        size.map(BlockSizes::one).ok_or_else(|| "a size is needed, like 4k, up to 1g".into())
    }

    /// `4k-16k`
    pub fn range(text: &str) -> Result<BlockSizes, String> {
        let ends = text.split_once('-').and_then(|(least, most)| Some((bytes(least)?, bytes(most)?)));
        let fit = ends.filter(|(least, most)| *least > 0 && least <= most && *most <= 1 << 30);
        let (least, most) = fit.ok_or("two sizes are needed, the smaller one first, like 4k-16k")?;
        Ok(BlockSizes { least, most, ranged: true, ..BlockSizes::default() })
    }

    /// `4k/60:8k/40`. What has no share gets an equal part of what is left.
    pub fn split(text: &str) -> Result<BlockSizes, String> {
        let mut parts: Vec<(u64, Option<u8>)> = Vec::new();
        for part in text.split(':') {
            let (size, share) = part.split_once('/').unwrap_or((part, ""));
            let share = if share.is_empty() { None } else { Some(percent(share)?) };
            parts.push((BlockSizes::size(size)?.least, share));
        }
        let given: u32 = parts.iter().filter_map(|part| part.1).map(u32::from).sum();
        let open = parts.iter().filter(|part| part.1.is_none()).count() as u32;
        let left = 100u32.checked_sub(given).ok_or("the shares are more than 100 percent")?;
        if (open == 0 && left > 0) || (open > 0 && !left.is_multiple_of(open)) {
            return Err("the shares have to come to 100 percent, in whole ones".into());
        }
        let each = (left / open.max(1)) as u8;
        let shares = parts.into_iter().map(|(size, share)| (size, share.unwrap_or(each)));
        // A size that is never drawn is no least: a draw would wait for it where no other fits.
        let shares: Vec<(u64, u8)> = shares.filter(|(_, share)| *share > 0).collect();
        let least = shares.iter().map(|share| share.0).min().unwrap_or(4096);
        let most = shares.iter().map(|share| share.0).max().unwrap_or(4096);
        Ok(BlockSizes { least, most, shares, unaligned: false, ranged: true })
    }

    /// A length, where so many bytes are left; none where not even the least fits.
    pub fn draw(&self, dice: &mut Dice, left: u64) -> Option<u64> {
        if left < self.least {
            return None;
        }
        if self.least == self.most {
            return Some(self.least);
        }
        loop {
            let drawn = match self.shares.is_empty() {
                true => self.least + dice.below(self.most),
                false => self.drawn_by_shares(dice),
            };
            let whole = if self.unaligned { drawn } else { drawn - drawn % self.least };
            let length = whole.min(self.most);
            if length <= left {
                return Some(length);
            }
        }
    }

    fn drawn_by_shares(&self, dice: &mut Dice) -> u64 {
        let mut drawn = dice.below(100) as u8;
        for (size, share) in &self.shares {
            if drawn < *share {
                return *size;
            }
            drawn -= share;
        }
        self.most
    }
}

#[cfg(test)]
mod tests;
