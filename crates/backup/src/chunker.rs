//! Content-defined chunking: FastCDC with normalised chunk lengths.
//!
//! A rolling hash over the last 64 bytes decides where a chunk ends, so an insertion into a file
//! changes only the chunks near it. Before the average length a boundary needs more zero bits,
//! behind it fewer, which narrows the distribution of lengths. The table of the rolling hash comes
//! from the repository's key. Boundaries are no part of the format: a reader never computes them.

use stele_ground::{KIB, MIB};

pub const CHUNK_MIN: usize = 256 * KIB as usize;
pub const CHUNK_AVERAGE: usize = MIB as usize;
pub const CHUNK_MAX: usize = 4 * MIB as usize;

/// Bytes that a hash depends on: each shift drops the oldest.
const WINDOW: usize = 64;
/// Hashes that are computed side by side, and the bytes of each.
const LANES: usize = 4;
const LANE: usize = 1024;
const RUN: usize = LANES * LANE;

/// Bits by which the masks before and behind the average differ from its own.
const NORMALISATION: u32 = 2;

/// Lengths of chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lengths {
    pub min: usize,
    pub average: usize,
    pub max: usize,
}

pub const LENGTHS: Lengths = Lengths { min: CHUNK_MIN, average: CHUNK_AVERAGE, max: CHUNK_MAX };

/// Finds the boundaries of chunks.
pub struct Chunker {
    gear: Box<[u64; 256]>,
    lengths: Lengths,
    /// A boundary before the average length has zeros here.
    strict: u64,
    /// And one behind it here.
    lenient: u64,
}

impl Chunker {
    pub fn new(key: &[u8; 32], lengths: Lengths) -> Chunker {
        let mut gear = Box::new([0; 256]);
        let mut output = blake3::Hasher::new_keyed(key).update(b"gear").finalize_xof();
        for word in gear.iter_mut() {
            let mut bytes = [0; 8];
            output.fill(&mut bytes);
            *word = u64::from_le_bytes(bytes);
        }
        let bits = lengths.average.max(1).ilog2();
        // The highest bits depend on the most bytes.
        let mask = |bits: u32| !0_u64 << (64 - bits.clamp(1, 63));
        Chunker { gear, lengths, strict: mask(bits + NORMALISATION), lenient: mask(bits.saturating_sub(NORMALISATION)) }
    }

    pub fn lengths(&self) -> Lengths {
        self.lengths
    }

    /// The length of the first chunk of `data`, at most that of `data`. The caller gives at least
    /// the maximum length, or all that is left of the file.
    pub fn cut(&self, data: &[u8]) -> usize {
        let Lengths { min, average, max } = self.lengths;
        if data.len() <= min {
            return data.len();
        }
        let end = data.len().min(max);
        let middle = end.min(average);
        let (mut at, mut hash) = (min, 0);
        for (to, mask) in [(middle, self.strict), (end, self.lenient)] {
            while let Some(rest) = data.get(at..to).filter(|rest| !rest.is_empty()) {
                if let Some((run, _)) = rest.split_first_chunk::<RUN>()
                    && let Some(last) = self.pass(hash, run, mask)
                {
                    (at, hash) = (at + RUN, last);
                    continue;
                }
                for byte in &rest[..rest.len().min(RUN)] {
                    at += 1;
                    hash = self.roll(hash, *byte);
                    if hash & mask == 0 {
                        return at;
                    }
                }
            }
        }
        end
    }

    fn roll(&self, hash: u64, byte: u8) -> u64 {
        (hash << 1).wrapping_add(self.gear[usize::from(byte)])
    }

    /// The hash behind a run without a boundary; `None` where it has one. `hash`: that before it.
    ///
    /// Each hash waits for the one before it. Lanes that begin in several places of the run do not
    /// wait for each other, which takes little more than half the time. A lane's first hash is of
    /// the bytes before it.
    fn pass(&self, hash: u64, run: &[u8; RUN], mask: u64) -> Option<u64> {
        let (lanes, _) = run.as_chunks::<LANE>();
        let mut hashes = [hash; LANES];
        for (hash, before) in hashes[1..].iter_mut().zip(lanes) {
            *hash = before[LANE - WINDOW..].iter().fold(0, |hash, byte| self.roll(hash, *byte));
        }
        for at in 0..LANE {
            let mut is_boundary = false;
            for (hash, lane) in hashes.iter_mut().zip(lanes) {
                *hash = self.roll(*hash, lane[at]);
                is_boundary |= *hash & mask == 0;
            }
            if is_boundary {
                return None;
            }
        }
        Some(hashes[LANES - 1])
    }
}

#[cfg(test)]
mod tests;
