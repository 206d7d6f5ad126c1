//! Lanes in the vectors of x86-64. AVX-512 has sixteen, and rotates a word or mixes three words in
//! one instruction each. AVX2 has eight.
#![allow(unsafe_code)]

use super::{BLOCK, SINES, State};

const WORDS: usize = BLOCK / 4;

pub fn has_avx2() -> bool {
    std::is_x86_feature_detected!("avx2")
}

pub fn has_avx512() -> bool {
    std::is_x86_feature_detected!("avx512f") && std::is_x86_feature_detected!("avx512vl")
}

/// Four steps from `$at`: each rotates its sum left by the first of its shifts; the second shift is
/// 32 minus the first.
macro_rules! four {
    ($state:ident, $words:ident, $mix:ident, $at:literal, [$($left:literal $right:literal),*], [$($word:literal),*]) => {{
        let [a, b, c, d] = &mut $state;
        let [w0, w1, w2, w3] = [$($words[$word]),*];
        four!(@turns [a b c d] [w0 w1 w2 w3] $mix $at [$($left $right),*]);
    }};
    (@turns [$a:ident $b:ident $c:ident $d:ident] [$w0:ident $w1:ident $w2:ident $w3:ident] $mix:ident $at:literal
     [$l0:literal $r0:literal, $l1:literal $r1:literal, $l2:literal $r2:literal, $l3:literal $r3:literal]) => {
        *$a = add(turn::<$l0, $r0>(add(add(*$a, add($w0, sine($at))), $mix(*$b, *$c, *$d))), *$b);
        *$d = add(turn::<$l1, $r1>(add(add(*$d, add($w1, sine($at + 1))), $mix(*$a, *$b, *$c))), *$a);
        *$c = add(turn::<$l2, $r2>(add(add(*$c, add($w2, sine($at + 2))), $mix(*$d, *$a, *$b))), *$d);
        *$b = add(turn::<$l3, $r3>(add(add(*$b, add($w3, sine($at + 3))), $mix(*$c, *$d, *$a))), *$c);
    };
}

/// The 64 steps and the sum with the previous state, in terms of the surrounding `add`, `turn`,
/// `sine` and the four mixes.
macro_rules! compression {
    ($before:ident, $words:ident) => {{
        let mut state = $before;
        four!(state, $words, f, 0, [7 25, 12 20, 17 15, 22 10], [0, 1, 2, 3]);
        four!(state, $words, f, 4, [7 25, 12 20, 17 15, 22 10], [4, 5, 6, 7]);
        four!(state, $words, f, 8, [7 25, 12 20, 17 15, 22 10], [8, 9, 10, 11]);
        four!(state, $words, f, 12, [7 25, 12 20, 17 15, 22 10], [12, 13, 14, 15]);
        four!(state, $words, g, 16, [5 27, 9 23, 14 18, 20 12], [1, 6, 11, 0]);
        four!(state, $words, g, 20, [5 27, 9 23, 14 18, 20 12], [5, 10, 15, 4]);
        four!(state, $words, g, 24, [5 27, 9 23, 14 18, 20 12], [9, 14, 3, 8]);
        four!(state, $words, g, 28, [5 27, 9 23, 14 18, 20 12], [13, 2, 7, 12]);
        four!(state, $words, h, 32, [4 28, 11 21, 16 16, 23 9], [5, 8, 11, 14]);
        four!(state, $words, h, 36, [4 28, 11 21, 16 16, 23 9], [1, 4, 7, 10]);
        four!(state, $words, h, 40, [4 28, 11 21, 16 16, 23 9], [13, 0, 3, 6]);
        four!(state, $words, h, 44, [4 28, 11 21, 16 16, 23 9], [9, 12, 15, 2]);
        four!(state, $words, i, 48, [6 26, 10 22, 15 17, 21 11], [0, 7, 14, 5]);
        four!(state, $words, i, 52, [6 26, 10 22, 15 17, 21 11], [12, 3, 10, 1]);
        four!(state, $words, i, 56, [6 26, 10 22, 15 17, 21 11], [8, 15, 6, 13]);
        four!(state, $words, i, 60, [6 26, 10 22, 15 17, 21 11], [4, 11, 2, 9]);
        [add($before[0], state[0]), add($before[1], state[1]), add($before[2], state[2]), add($before[3], state[3])]
    }};
}

/// One word of every lane, from the streams' states. A lane without a stream is zero.
fn column<const N: usize>(states: &[State], word: usize) -> [u32; N] {
    std::array::from_fn(|lane| states.get(lane).map_or(0, |state| state[word]))
}

/// The streams' blocks. A lane without a stream repeats the first stream, and its result is
/// dropped.
fn blocks<'a, const N: usize>(streams: &[&'a [u8]], count: usize) -> [&'a [[u8; BLOCK]]; N] {
    let blocks_of = |lane: usize| &streams[if lane < streams.len() { lane } else { 0 }].as_chunks::<BLOCK>().0[..count];
    std::array::from_fn(blocks_of)
}

mod sixteen {
    use std::arch::x86_64::*;

    use super::*;

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    fn add(a: __m512i, b: __m512i) -> __m512i {
        _mm512_add_epi32(a, b)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    fn turn<const LEFT: i32, const RIGHT: i32>(a: __m512i) -> __m512i {
        _mm512_rol_epi32::<LEFT>(a)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    fn sine(step: usize) -> __m512i {
        _mm512_set1_epi32(SINES[step].cast_signed())
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    fn f(b: __m512i, c: __m512i, d: __m512i) -> __m512i {
        _mm512_ternarylogic_epi32::<0xCA>(b, c, d)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    fn g(b: __m512i, c: __m512i, d: __m512i) -> __m512i {
        _mm512_ternarylogic_epi32::<0xCA>(d, b, c)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    fn h(b: __m512i, c: __m512i, d: __m512i) -> __m512i {
        _mm512_ternarylogic_epi32::<0x96>(b, c, d)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    fn i(b: __m512i, c: __m512i, d: __m512i) -> __m512i {
        _mm512_ternarylogic_epi32::<0x39>(b, c, d)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    fn load(block: &[u8; BLOCK]) -> __m512i {
        // SAFETY: the block is as long as the vector, and the load wants no alignment.
        unsafe { _mm512_loadu_si512(block.as_ptr().cast()) }
    }

    /// Turns lane order into word order: a transposition in pairs, fours, and quarters of the
    /// vectors.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    fn words(streams: &[&[[u8; BLOCK]]; 16], at: usize) -> [__m512i; WORDS] {
        let mut rows = [_mm512_setzero_si512(); 16];
        for (row, stream) in rows.iter_mut().zip(streams) {
            *row = load(&stream[at]);
        }
        let mut fours = rows;
        for from in [0, 4, 8, 12] {
            let [a, b, c, d] = [rows[from], rows[from + 1], rows[from + 2], rows[from + 3]];
            let (low, high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
            let (low2, high2) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
            fours[from] = _mm512_unpacklo_epi64(low, low2);
            fours[from + 1] = _mm512_unpackhi_epi64(low, low2);
            fours[from + 2] = _mm512_unpacklo_epi64(high, high2);
            fours[from + 3] = _mm512_unpackhi_epi64(high, high2);
        }
        let mut words = rows;
        for word in 0..4 {
            let [a, b, c, d] = [fours[word], fours[4 + word], fours[8 + word], fours[12 + word]];
            let (even, odd) = (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xDD>(a, b));
            let (even2, odd2) = (_mm512_shuffle_i32x4::<0x88>(c, d), _mm512_shuffle_i32x4::<0xDD>(c, d));
            words[word] = _mm512_shuffle_i32x4::<0x88>(even, even2);
            words[4 + word] = _mm512_shuffle_i32x4::<0x88>(odd, odd2);
            words[8 + word] = _mm512_shuffle_i32x4::<0xDD>(even, even2);
            words[12 + word] = _mm512_shuffle_i32x4::<0xDD>(odd, odd2);
        }
        words
    }

    #[target_feature(enable = "avx512f,avx512vl")]
    pub fn run(states: &mut [State], streams: &[&[u8]], count: usize) {
        let streams = blocks::<16>(streams, count);
        let mut now = [_mm512_setzero_si512(); 4];
        for (word, now) in now.iter_mut().enumerate() {
            let column: [u32; 16] = column(states, word);
            // SAFETY: the array is as long as the vector, and the load wants no alignment.
            *now = unsafe { _mm512_loadu_si512(column.as_ptr().cast()) };
        }
        for at in 0..count {
            let words = words(&streams, at);
            now = compression!(now, words);
        }
        for (word, now) in now.into_iter().enumerate() {
            let mut column = [0u32; 16];
            // SAFETY: the array is as long as the vector, and the store wants no alignment.
            unsafe { _mm512_storeu_si512(column.as_mut_ptr().cast(), now) };
            states.iter_mut().zip(column).for_each(|(state, value)| state[word] = value);
        }
    }
}

mod eight {
    use std::arch::x86_64::*;

    use super::*;

    #[inline]
    #[target_feature(enable = "avx2")]
    fn add(a: __m256i, b: __m256i) -> __m256i {
        _mm256_add_epi32(a, b)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn turn<const LEFT: i32, const RIGHT: i32>(a: __m256i) -> __m256i {
        _mm256_or_si256(_mm256_slli_epi32::<LEFT>(a), _mm256_srli_epi32::<RIGHT>(a))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn sine(step: usize) -> __m256i {
        _mm256_set1_epi32(SINES[step].cast_signed())
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn f(b: __m256i, c: __m256i, d: __m256i) -> __m256i {
        _mm256_xor_si256(_mm256_and_si256(_mm256_xor_si256(c, d), b), d)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn g(b: __m256i, c: __m256i, d: __m256i) -> __m256i {
        _mm256_or_si256(_mm256_and_si256(d, b), _mm256_andnot_si256(d, c))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn h(b: __m256i, c: __m256i, d: __m256i) -> __m256i {
        _mm256_xor_si256(_mm256_xor_si256(c, d), b)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn i(b: __m256i, c: __m256i, d: __m256i) -> __m256i {
        _mm256_xor_si256(c, _mm256_or_si256(b, _mm256_xor_si256(d, _mm256_set1_epi32(-1))))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(half: &[u8; BLOCK / 2]) -> __m256i {
        // SAFETY: half a block is as long as the vector, and the load wants no alignment.
        unsafe { _mm256_loadu_si256(half.as_ptr().cast()) }
    }

    /// Turns lane order into word order: a transposition of each half in pairs, fours, and halves
    /// of the vectors.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn words(streams: &[&[[u8; BLOCK]]; 8], at: usize) -> [__m256i; WORDS] {
        let mut words = [_mm256_setzero_si256(); WORDS];
        for half in 0..2 {
            let mut rows = [_mm256_setzero_si256(); 8];
            for (row, stream) in rows.iter_mut().zip(streams) {
                *row = load(&stream[at].as_chunks::<{ BLOCK / 2 }>().0[half]);
            }
            let mut fours = rows;
            for from in [0, 4] {
                let [a, b, c, d] = [rows[from], rows[from + 1], rows[from + 2], rows[from + 3]];
                let (low, high) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
                let (low2, high2) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
                fours[from] = _mm256_unpacklo_epi64(low, low2);
                fours[from + 1] = _mm256_unpackhi_epi64(low, low2);
                fours[from + 2] = _mm256_unpacklo_epi64(high, high2);
                fours[from + 3] = _mm256_unpackhi_epi64(high, high2);
            }
            for word in 0..4 {
                words[8 * half + word] = _mm256_permute2x128_si256::<0x20>(fours[word], fours[4 + word]);
                words[8 * half + 4 + word] = _mm256_permute2x128_si256::<0x31>(fours[word], fours[4 + word]);
            }
        }
        words
    }

    #[target_feature(enable = "avx2")]
    pub fn run(states: &mut [State], streams: &[&[u8]], count: usize) {
        let streams = blocks::<8>(streams, count);
        let mut now = [_mm256_setzero_si256(); 4];
        for (word, now) in now.iter_mut().enumerate() {
            let column: [u32; 8] = column(states, word);
            // SAFETY: the array is as long as the vector, and the load wants no alignment.
            *now = unsafe { _mm256_loadu_si256(column.as_ptr().cast()) };
        }
        for at in 0..count {
            let words = words(&streams, at);
            now = compression!(now, words);
        }
        for (word, now) in now.into_iter().enumerate() {
            let mut column = [0u32; 8];
            // SAFETY: the array is as long as the vector, and the store wants no alignment.
            unsafe { _mm256_storeu_si256(column.as_mut_ptr().cast(), now) };
            states.iter_mut().zip(column).for_each(|(state, value)| state[word] = value);
        }
    }
}

pub fn avx2(states: &mut [State], streams: &[&[u8]], count: usize) {
    assert!(has_avx2());
    // SAFETY: the processor has AVX2 (asserted above).
    unsafe { eight::run(states, streams, count) }
}

pub fn avx512(states: &mut [State], streams: &[&[u8]], count: usize) {
    assert!(has_avx512());
    // SAFETY: the processor has AVX-512 F and VL (asserted above).
    unsafe { sixteen::run(states, streams, count) }
}
