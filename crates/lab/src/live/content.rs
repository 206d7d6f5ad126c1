//! What is written: unique and incompressible unless asked otherwise, and checked when it is read if asked.
//!
//! Each sector of 512 bytes begins with a stamp: its place mixed with the run's seed, then a number that no other sector
//! has, and a CRC of the rest. The rest is random bytes, with zeros for the share that shall compress. A checked read finds
//! sectors of another place, sectors that changed, and older contents of the same place (see [`super::versions`]).

use std::sync::Arc;

use stele_ground::Dice;
use stele_ground::digest::crc32c;

use super::versions::Versions;

pub const SECTOR: usize = 512;
/// Bytes of a stamp.
const STAMP: usize = 24;
/// Contents that duplicates are taken from.
const DUPLICATES: u64 = 64;

/// How data is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Content {
    pub seed: u64,
    /// Size over compressed size, in hundredths; 100: incompressible.
    pub compress_percent: u32,
    /// Blocks over distinct blocks, in hundredths; 100: all are distinct.
    pub dedupe_percent: u32,
    /// Reads are compared with what was written.
    pub verify: bool,
}

impl Default for Content {
    fn default() -> Content {
        Content { seed: 1, compress_percent: 100, dedupe_percent: 100, verify: false }
    }
}

impl Content {
    /// A maker of data; each worker has its own dice.
    pub fn source(self, dice: Dice, versions: Option<Arc<Versions>>) -> Source {
        Source { content: self, dice, count: 0, versions }
    }

    fn place(self, at: u64) -> u64 {
        stele_ground::digest::context(self.seed, at)
    }
}

#[derive(Clone, Debug)]
pub struct Source {
    content: Content,
    dice: Dice,
    count: u64,
    /// Where reads are checked.
    versions: Option<Arc<Versions>>,
}

impl Source {
    /// Fills a buffer that will be stamped again and again.
    pub fn prepare(&mut self, buffer: &mut [u8]) {
        self.dice.fill(buffer);
        let zeros = 1.0 - 100.0 / f64::from(self.content.compress_percent.max(100));
        // In each 4096 bytes, so that every compressor sees the ratio whatever its unit.
        for block in buffer.chunks_mut(4096) {
            let end = (block.len() as f64 * zeros) as usize;
            block[..end].fill(0);
        }
    }

    /// Makes the prepared bytes those of a place.
    pub fn stamp(&mut self, buffer: &mut [u8], at: u64) {
        let duplicate =
            self.content.dedupe_percent > 100 && self.dice.below(u64::from(self.content.dedupe_percent)) >= 100;
        let copy = if duplicate { self.dice.below(DUPLICATES) } else { 0 };
        for (number, sector) in buffer.chunks_exact_mut(SECTOR).enumerate() {
            self.count += 1;
            let at = at + (number * SECTOR) as u64;
            let (place, unique) = match (duplicate, &self.versions) {
                (true, _) => (copy, number as u64),
                (false, None) => (self.content.place(at), self.count),
                (false, Some(versions)) => (self.content.place(at), versions.next(at)),
            };
            sector[..8].copy_from_slice(&place.to_le_bytes());
            sector[8..16].copy_from_slice(&unique.to_le_bytes());
            let sum = if self.content.verify { sum_of(sector) } else { 0 };
            sector[16..STAMP].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

fn sum_of(sector: &[u8]) -> u64 {
    u64::from(crc32c(&sector[..16])) << 32 | u64::from(crc32c(&sector[STAMP..]))
}

/// Compares what was read at a place with what a stamp says. The first sector that is wrong, and how.
pub fn check(content: Content, versions: Option<&Versions>, buffer: &[u8], at: u64) -> Result<(), String> {
    for (number, sector) in buffer.chunks_exact(SECTOR).enumerate() {
        let at = at + (number * SECTOR) as u64;
        let word = |from: usize| {
            sector.get(from..from + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
        };
        if word(0) != content.place(at) {
            return Err(format!("offset {at}: what was read was never written there by this run's seed"));
        }
        if word(16) != sum_of(sector) {
            return Err(format!("offset {at}: what was read is not as it was written: its CRC differs"));
        }
        if let Some(versions) = versions {
            versions.check(at, word(8))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
