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
        let mut hash = 0_u64;
        for (from, to, mask) in [(min, middle, self.strict), (middle, end, self.lenient)] {
            for (at, byte) in data.get(from..to).unwrap_or_default().iter().enumerate() {
                hash = (hash << 1).wrapping_add(self.gear[usize::from(*byte)]);
                if hash & mask == 0 {
                    return from + at + 1;
                }
            }
        }
        end
    }
}

#[cfg(test)]
mod tests;
