//! Random bytes at the speed of memory: eight xorshift generators side by side, which the compiler
//! puts into vectors. Not for secrets: who sees eight words can tell the rest.

use stele_ground::digest::context;

const LANES: usize = 8;
const STRIDE: usize = LANES * 8;

/// Fills a buffer with the stream of that number. Streams of different numbers share nothing.
pub fn fill(stream: u64, buffer: &mut [u8]) {
    let mut lanes = [0u64; LANES];
    for (number, lane) in lanes.iter_mut().enumerate() {
        // A generator that holds 0 stays there.
        *lane = context(stream, number as u64).max(1);
    }
    let mut chunks = buffer.chunks_exact_mut(STRIDE);
    for chunk in &mut chunks {
        step(&mut lanes);
        let mut words = chunk.chunks_exact_mut(8);
        for (word, lane) in (&mut words).zip(&lanes) {
            word.copy_from_slice(&lane.to_le_bytes());
        }
    }
    step(&mut lanes);
    for (word, lane) in chunks.into_remainder().chunks_mut(8).zip(&lanes) {
        let length = word.len();
        word.copy_from_slice(&lane.to_le_bytes()[..length]);
    }
}

#[inline(always)]
fn step(lanes: &mut [u64; LANES]) {
    for lane in lanes {
        let mut word = *lane;
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        *lane = word;
    }
}
