//! What is written: random bytes, no two blocks alike, unless asked otherwise; and checked when it
//! is read if asked.
//!
//! Each write is made anew. The share that shall compress is zeros, at the beginning of each 4 KiB
//! block, as many as it takes for a compressor to come to the ratio with what it writes itself.
//! Whether a block is a duplicate, and of which, follows from its place, so that the ratio holds
//! for a whole target, however it was written, by how many workers and how often.
//!
//! Where reads are checked, each sector of 512 bytes begins with a stamp: its place mixed with the
//! run's seed, then a number that no other sector has, and a CRC of the rest. A checked read finds
//! sectors of another place, sectors that changed, and older contents of the same place (see
//! [`super::versions`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use stele_ground::Dice;
use stele_ground::digest::{context, crc32c};

use super::random;
use super::versions::Versions;
use super::wrong::Wrong;

pub const SECTOR: usize = 512;
/// Bytes of a stamp.
const STAMP: usize = 24;
/// What ratios are met in.
const BLOCK: usize = 4096;
/// Contents that duplicates are taken from.
const DUPLICATES: u64 = 16;
/// Bytes that a compressor writes beside the random ones of a block, and for a stamp amid zeros
/// beside its own: between what lz4 and zstd take.
const COMPRESSED_BLOCK: f64 = 14.0;
const COMPRESSED_STAMP: f64 = 3.5;

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
    /// What decides how all that is written compresses, and how much of it is alike.
    pub fn ratios(self) -> (u32, u32) {
        (self.compress_percent, self.dedupe_percent)
    }

    /// A maker of data; each worker has its own dice.
    pub fn source(self, mut dice: Dice, versions: Option<Arc<Versions>>) -> Source {
        let stream = context(of_this_run(), dice.roll());
        Source { content: self, stream, zeros: self.zeros(), alike: 1, versions }
    }

    /// Bytes of zeros at the beginning of a block.
    fn zeros(self) -> f64 {
        if self.compress_percent <= 100 {
            return 0.0;
        }
        let compressed = BLOCK as f64 * 100.0 / f64::from(self.compress_percent) - COMPRESSED_BLOCK;
        // Amid zeros each sector has a stamp.
        let each = if self.verify { (STAMP as f64 + COMPRESSED_STAMP) / SECTOR as f64 } else { 0.0 };
        let random = (compressed - each * BLOCK as f64) / (1.0 - each);
        (BLOCK as f64 - random).clamp(0.0, BLOCK as f64 - 8.0)
    }

    fn place(self, at: u64) -> u64 {
        stele_ground::digest::context(self.seed, at)
    }
}

#[derive(Clone, Debug)]
pub struct Source {
    content: Content,
    /// The next stream of random bytes.
    stream: u64,
    /// Zeros at the beginning of a block.
    zeros: f64,
    /// Blocks that are duplicates together, or none of them.
    alike: u64,
    /// Where reads are checked.
    versions: Option<Arc<Versions>>,
}

/// Numbers of no other run of the program, so that what one writes is not what another one wrote
/// there.
fn of_this_run() -> u64 {
    static RUN: OnceLock<u64> = OnceLock::new();
    static SOURCES: AtomicU64 = AtomicU64::new(0);
    let run = RUN.get_or_init(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        context(since, u64::from(std::process::id()))
    });
    context(*run, SOURCES.fetch_add(1, Ordering::Relaxed))
}

impl Source {
    /// Duplicates are of so many bytes each, instead of a block: what finds them by content finds
    /// no single blocks.
    pub fn alike_in(self, bytes: u64) -> Source {
        Source { alike: (bytes / BLOCK as u64).max(1), ..self }
    }

    /// Makes the bytes that are written at a place.
    pub fn make(&mut self, buffer: &mut [u8], at: u64) {
        let mut done = 0;
        while done < buffer.len() {
            let here = at + done as u64;
            let block = here / BLOCK as u64;
            let inside = (here % BLOCK as u64) as usize;
            let end = buffer.len().min(done + BLOCK - inside);
            self.make_block(&mut buffer[done..end], block, inside);
            done = end;
        }
        if self.content.verify {
            self.stamp(buffer, at);
        }
    }

    /// A block, or what of it begins so many bytes inside.
    fn make_block(&mut self, buffer: &mut [u8], block: u64, inside: usize) {
        let zeros = (self.zeros as usize).saturating_sub(inside).min(buffer.len());
        let (empty, rest) = buffer.split_at_mut(zeros);
        empty.fill(0);
        match self.duplicate(block) {
            // The same bytes at the same place inside, whatever part of it is written.
            Some(copy) if inside == 0 && zeros + rest.len() == BLOCK => random::fill(copy, rest),
            Some(copy) => {
                let mut whole = [0; BLOCK];
                let zeros = self.zeros as usize;
                random::fill(copy, &mut whole[zeros..]);
                let from = inside.max(zeros);
                rest.copy_from_slice(&whole[from..from + rest.len()]);
            }
            None => {
                self.stream = self.stream.wrapping_add(1);
                random::fill(self.stream, rest);
            }
        }
    }

    /// The stream that a block has in common with others, if it is a duplicate.
    fn duplicate(&self, block: u64) -> Option<u64> {
        let each = u64::from(self.content.dedupe_percent);
        if each <= 100 {
            return None;
        }
        let drawn = context(self.content.seed ^ 0xD0B1, block / self.alike);
        let copy = (drawn % each >= 100).then(|| context(self.content.seed, drawn / each % DUPLICATES))?;
        Some(if self.alike == 1 { copy } else { context(copy, block % self.alike) })
    }

    fn stamp(&mut self, buffer: &mut [u8], at: u64) {
        for (number, sector) in buffer.chunks_exact_mut(SECTOR).enumerate() {
            let at = at + (number * SECTOR) as u64;
            self.stream = self.stream.wrapping_add(1);
            let unique = self.versions.as_ref().map_or(self.stream, |versions| versions.next(at));
            let place = self.content.place(at);
            sector[..8].copy_from_slice(&place.to_le_bytes());
            // Numbers of neighbours resemble each other; mixed with their places they compress no
            // more than random bytes.
            sector[8..16].copy_from_slice(&(unique ^ place.rotate_left(32)).to_le_bytes());
            let sum = sum_of(sector);
            sector[16..STAMP].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

fn sum_of(sector: &[u8]) -> u64 {
    u64::from(crc32c(&sector[..16])) << 32 | u64::from(crc32c(&sector[STAMP..]))
}

/// Compares what was read at a place with what its stamps say.
pub fn wrong(content: Content, versions: Option<&Versions>, buffer: &[u8], at: u64) -> Wrong {
    let mut found = Wrong::default();
    for (number, sector) in buffer.chunks_exact(SECTOR).enumerate() {
        if let Err(why) = check(content, versions, sector, at + (number * SECTOR) as u64) {
            found.note(why);
        }
    }
    found
}

/// Why a sector is not as it was written there.
fn check(content: Content, versions: Option<&Versions>, sector: &[u8], at: u64) -> Result<(), String> {
    let word =
        |from: usize| sector.get(from..from + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
    if word(0) != content.place(at) {
        return Err(format!("offset {at}: what was read was never written there by this run's seed"));
    }
    if word(16) != sum_of(sector) {
        return Err(format!("offset {at}: what was read is not as it was written: its CRC differs"));
    }
    versions.map_or(Ok(()), |versions| versions.check(at, word(8) ^ content.place(at).rotate_left(32)))
}

#[cfg(test)]
mod tests;
