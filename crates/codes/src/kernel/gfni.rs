//! The kernel for AVX-512 with GFNI: a product of 64 bytes is one GF2P8AFFINEQB with the
//! coefficient's bit matrix. The last bytes go through masks.
//!
//! The number of vectors of each strip in an iteration was measured on Zen 5, from 1 to 8. Strips
//! often start at the same offset of a page, so that their lines compete for the same ways of the
//! first-level cache. Fewer bytes of each strip at a time leave the prefetcher room. One vector is
//! best for the plain sum (220 GB/s against 130 with four, 8+1 at 64 KiB) and for three outputs;
//! two vectors are best if a matrix can serve both.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::{Rows, SOURCES_MAX};
use crate::field::AFFINE;

const VECTOR: usize = 64;

pub fn runs_here() -> bool {
    std::is_x86_feature_detected!("gfni")
        && std::is_x86_feature_detected!("avx512f")
        && std::is_x86_feature_detected!("avx512bw")
}

/// The caller has checked that every strip is `length` bytes long.
pub fn run<const ADD: bool>(rows: &Rows, sources: &[&[u8]], outputs: &mut [&mut [u8]], length: usize) {
    assert!(runs_here());
    // SAFETY: the processor has the instructions (asserted above), and every strip is `length`
    // bytes long.
    unsafe {
        match (outputs.len(), rows.begins_with_sum()) {
            (1, true) => body::<1, 1, true, ADD>(rows, sources, outputs, length),
            (1, false) => body::<1, 2, false, ADD>(rows, sources, outputs, length),
            (2, true) => body::<2, 2, true, ADD>(rows, sources, outputs, length),
            (2, false) => body::<2, 2, false, ADD>(rows, sources, outputs, length),
            (3, true) => body::<3, 1, true, ADD>(rows, sources, outputs, length),
            (3, false) => body::<3, 1, false, ADD>(rows, sources, outputs, length),
            _ => unreachable!("rows have one to three outputs"),
        }
    }
}

/// # Safety
/// Every strip is `length` bytes long; there are `N` outputs.
#[target_feature(enable = "gfni,avx512f,avx512bw")]
unsafe fn body<const N: usize, const V: usize, const SUM: bool, const ADD: bool>(
    rows: &Rows,
    sources: &[&[u8]],
    outputs: &mut [&mut [u8]],
    length: usize,
) {
    let mut matrices = [[0u64; N]; SOURCES_MAX];
    for (index, matrices) in matrices.iter_mut().enumerate().take(sources.len()) {
        *matrices = std::array::from_fn(|output| AFFINE[rows.rows[output][index] as usize]);
    }
    let matrices = &matrices[..sources.len()];
    let into: [*mut u8; N] = std::array::from_fn(|output| outputs[output].as_mut_ptr());
    let mut at = 0;
    while at + V * VECTOR <= length {
        // SAFETY: `V` whole vectors from `at` are within every strip.
        unsafe { step::<N, V, false, SUM, ADD>(matrices, sources, into, at, !0) };
        at += V * VECTOR;
    }
    while at < length {
        let left = (length - at).min(VECTOR);
        // SAFETY: the mask admits the `left` bytes from `at`, which are within every strip.
        unsafe { step::<N, 1, true, SUM, ADD>(matrices, sources, into, at, !0 >> (VECTOR - left)) };
        at += left;
    }
}

/// Combines `V` vectors from `at` on; `mask` selects the bytes.
///
/// # Safety
/// The bytes at `at`, `V` vectors under the mask, are within every source and every strip of
/// `into`.
#[inline]
#[target_feature(enable = "gfni,avx512f,avx512bw")]
unsafe fn step<const N: usize, const V: usize, const MASKED: bool, const SUM: bool, const ADD: bool>(
    matrices: &[[u64; N]],
    sources: &[&[u8]],
    into: [*mut u8; N],
    at: usize,
    mask: u64,
) {
    // SAFETY (all loads and stores here): the caller's promise; a masked access touches no byte it
    // masks.
    let load = |from: *const u8| unsafe {
        if MASKED { _mm512_maskz_loadu_epi8(mask, from.cast()) } else { _mm512_loadu_si512(from.cast()) }
    };
    let mut sums = [[_mm512_setzero_si512(); V]; N];
    if ADD {
        for (sum, from) in sums.iter_mut().zip(into) {
            for (lane, sum) in sum.iter_mut().enumerate() {
                // SAFETY: as above.
                *sum = load(unsafe { from.add(at + lane * VECTOR) });
            }
        }
    }
    for (source, matrices) in sources.iter().zip(matrices) {
        let mut value = [_mm512_setzero_si512(); V];
        for (lane, value) in value.iter_mut().enumerate() {
            // SAFETY: as above.
            *value = load(unsafe { source.as_ptr().add(at + lane * VECTOR) });
        }
        for (output, sum) in sums.iter_mut().enumerate() {
            let matrix = _mm512_set1_epi64(matrices[output] as i64);
            for lane in 0..V {
                let product = if SUM && output == 0 {
                    value[lane]
                } else {
                    _mm512_gf2p8affine_epi64_epi8::<0>(value[lane], matrix)
                };
                sum[lane] = _mm512_xor_si512(sum[lane], product);
            }
        }
    }
    for (sum, into) in sums.iter().zip(into) {
        for (lane, &sum) in sum.iter().enumerate() {
            // SAFETY: as above.
            unsafe {
                let into = into.add(at + lane * VECTOR);
                if MASKED {
                    _mm512_mask_storeu_epi8(into.cast(), mask, sum);
                } else {
                    _mm512_storeu_si512(into.cast(), sum);
                }
            }
        }
    }
}
