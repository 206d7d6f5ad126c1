//! The kernel for every processor: eight bytes to a word, products by doubling. The inner loops run
//! over arrays of words, which the compiler turns into the processor's baseline vectors.

use super::{OUTPUTS_MAX, Rows};

const WORDS: usize = 8;
const CHUNK: usize = WORDS * 8;
type Chunk = [u64; WORDS];

pub fn run<const ADD: bool>(rows: &Rows, sources: &[&[u8]], outputs: &mut [&mut [u8]], length: usize) {
    let mut start = 0;
    while start < length {
        let end = length.min(start + CHUNK);
        let mut sums = [[0; WORDS]; OUTPUTS_MAX];
        if ADD {
            for (sum, output) in sums.iter_mut().zip(outputs.iter()) {
                *sum = load(&output[start..end]);
            }
        }
        for (index, source) in sources.iter().enumerate() {
            add_products(rows, index, load(&source[start..end]), &mut sums);
        }
        for (sum, output) in sums.iter().zip(outputs.iter_mut()) {
            store(sum, &mut output[start..end]);
        }
        start = end;
    }
}

/// Adds to each sum the product of `value` with the coefficient of its row: the doublings are
/// shared.
fn add_products(rows: &Rows, index: usize, mut value: Chunk, sums: &mut [Chunk; OUTPUTS_MAX]) {
    let mut left: [u8; OUTPUTS_MAX] = std::array::from_fn(|output| rows.rows[output][index]);
    loop {
        for (bits, sum) in left.iter_mut().zip(sums.iter_mut()) {
            if *bits & 1 == 1 {
                sum.iter_mut().zip(value).for_each(|(sum, word)| *sum ^= word);
            }
            *bits >>= 1;
        }
        if left == [0; OUTPUTS_MAX] {
            return;
        }
        value.iter_mut().for_each(|word| *word = double(*word));
    }
}

/// Each of eight bytes times 2.
fn double(word: u64) -> u64 {
    let high = word & 0x8080_8080_8080_8080;
    // 0x80 becomes 0x1D in its own byte: (0x80 >> 7) * 0x1D without carries into the neighbours.
    ((word ^ high) << 1) ^ ((high >> 7) * 0x1D)
}

/// The words of up to 64 bytes; missing bytes are zero.
fn load(bytes: &[u8]) -> Chunk {
    let mut padded = [0; CHUNK];
    padded[..bytes.len()].copy_from_slice(bytes);
    let (words, _) = padded.as_chunks::<8>();
    std::array::from_fn(|index| u64::from_le_bytes(words[index]))
}

fn store(words: &Chunk, bytes: &mut [u8]) {
    let mut padded = [0; CHUNK];
    for (place, word) in padded.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let length = bytes.len();
    bytes.copy_from_slice(&padded[..length]);
}
