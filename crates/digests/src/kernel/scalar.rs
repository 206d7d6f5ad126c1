//! One stream, with the operations in the order that puts the fewest behind the word that a step
//! waits for.

use super::{BLOCK, SINES, State};

#[inline(always)]
fn rotated<const SHIFT: u32>(b: u32, sum: u32) -> u32 {
    sum.rotate_left(SHIFT).wrapping_add(b)
}

macro_rules! round {
    ($state:ident, $words:ident, $from:expr, [$s0:literal, $s1:literal, $s2:literal, $s3:literal], $index:expr, $mix:expr) => {
        round!(@four $state, $words, $from, $s0, $s1, $s2, $s3, $index, $mix);
        round!(@four $state, $words, $from + 4, $s0, $s1, $s2, $s3, $index, $mix);
        round!(@four $state, $words, $from + 8, $s0, $s1, $s2, $s3, $index, $mix);
        round!(@four $state, $words, $from + 12, $s0, $s1, $s2, $s3, $index, $mix);
    };
    (@four $state:ident, $words:ident, $from:expr, $s0:literal, $s1:literal, $s2:literal, $s3:literal, $index:expr, $mix:expr) => {
        let [a, b, c, d] = &mut $state;
        *a = rotated::<$s0>(*b, $mix(a.wrapping_add($words[$index($from) % 16].wrapping_add(SINES[$from])), *b, *c, *d));
        *d = rotated::<$s1>(*a, $mix(d.wrapping_add($words[$index($from + 1) % 16].wrapping_add(SINES[$from + 1])), *a, *b, *c));
        *c = rotated::<$s2>(*d, $mix(c.wrapping_add($words[$index($from + 2) % 16].wrapping_add(SINES[$from + 2])), *d, *a, *b));
        *b = rotated::<$s3>(*c, $mix(b.wrapping_add($words[$index($from + 3) % 16].wrapping_add(SINES[$from + 3])), *c, *d, *a));
    };
}

/// Folds whole blocks into the state.
pub(super) fn compress(state: &mut State, data: &[u8]) {
    let (blocks, rest) = data.as_chunks::<BLOCK>();
    assert!(rest.is_empty(), "whole blocks");
    let mut state_now = *state;
    for block in blocks {
        let words: [u32; 16] = std::array::from_fn(|word| {
            u32::from_le_bytes([block[4 * word], block[4 * word + 1], block[4 * word + 2], block[4 * word + 3]])
        });
        let mut s = state_now;
        round!(s, words, 0, [7, 12, 17, 22], |step: usize| step, |sum: u32, b: u32, c: u32, d: u32| sum
            .wrapping_add(((c ^ d) & b) ^ d));
        // The two halves share no bit, so they can be added one by one, and the one without `b`
        // early.
        round!(s, words, 16, [5, 9, 14, 20], |step: usize| 5 * step + 1, |sum: u32, b: u32, c: u32, d: u32| sum
            .wrapping_add(!d & c)
            .wrapping_add(d & b));
        round!(s, words, 32, [4, 11, 16, 23], |step: usize| 3 * step + 5, |sum: u32, b: u32, c: u32, d: u32| sum
            .wrapping_add((c ^ d) ^ b));
        round!(s, words, 48, [6, 10, 15, 21], |step: usize| 7 * step, |sum: u32, b: u32, c: u32, d: u32| sum
            .wrapping_add(c ^ (b | !d)));
        for (word, now) in state_now.iter_mut().zip(s) {
            *word = word.wrapping_add(now);
        }
    }
    *state = state_now;
}
