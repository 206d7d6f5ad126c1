//! The kernel for AVX2: a product is two byte shuffles, with one table for each nibble of the data.
//! An iteration takes 64 bytes; the portable kernel handles the last bytes.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::{Rows, SOURCES_MAX, portable};
use crate::field::NIBBLES;

const VECTORS: usize = 2;
const STEP: usize = VECTORS * 32;

pub fn runs_here() -> bool {
    std::is_x86_feature_detected!("avx2")
}

/// The caller has checked that every strip is `length` bytes long.
pub fn run<const ADD: bool>(rows: &Rows, sources: &[&[u8]], outputs: &mut [&mut [u8]], length: usize) {
    assert!(runs_here());
    let whole = length / STEP * STEP;
    // SAFETY: the processor has AVX2 (asserted above), and every strip holds at least `whole`
    // bytes.
    unsafe {
        match (outputs.len(), rows.begins_with_sum()) {
            (1, true) => body::<1, true, ADD>(rows, sources, outputs, whole),
            (1, false) => body::<1, false, ADD>(rows, sources, outputs, whole),
            (2, true) => body::<2, true, ADD>(rows, sources, outputs, whole),
            (2, false) => body::<2, false, ADD>(rows, sources, outputs, whole),
            (3, true) => body::<3, true, ADD>(rows, sources, outputs, whole),
            (3, false) => body::<3, false, ADD>(rows, sources, outputs, whole),
            _ => unreachable!("rows have one to three outputs"),
        }
    }
    if whole < length {
        let mut ends: [&[u8]; SOURCES_MAX] = [&[]; SOURCES_MAX];
        for (end, source) in ends.iter_mut().zip(sources) {
            *end = &source[whole..];
        }
        let mut outputs: Vec<&mut [u8]> = outputs.iter_mut().map(|output| &mut output[whole..]).collect();
        portable::run::<ADD>(rows, &ends[..sources.len()], &mut outputs, length - whole);
    }
}

/// # Safety
/// Every strip holds at least `length` bytes, a multiple of `STEP`; there are `N` outputs.
#[target_feature(enable = "avx2")]
unsafe fn body<const N: usize, const SUM: bool, const ADD: bool>(
    rows: &Rows,
    sources: &[&[u8]],
    outputs: &mut [&mut [u8]],
    length: usize,
) {
    let nibble = _mm256_set1_epi8(15);
    let into: [*mut u8; N] = std::array::from_fn(|output| outputs[output].as_mut_ptr());
    let mut at = 0;
    while at < length {
        let mut sums = [[_mm256_setzero_si256(); VECTORS]; N];
        if ADD {
            for (sum, from) in sums.iter_mut().zip(into) {
                for (lane, sum) in sum.iter_mut().enumerate() {
                    // SAFETY: at + STEP <= length, which every output holds.
                    *sum = unsafe { _mm256_loadu_si256(from.add(at + lane * 32).cast()) };
                }
            }
        }
        for (index, source) in sources.iter().enumerate() {
            let from = source.as_ptr();
            let mut value = [_mm256_setzero_si256(); VECTORS];
            for (lane, value) in value.iter_mut().enumerate() {
                // SAFETY: at + STEP <= length, which every source holds.
                *value = unsafe { _mm256_loadu_si256(from.add(at + lane * 32).cast()) };
            }
            for (output, sum) in sums.iter_mut().enumerate() {
                if SUM && output == 0 {
                    for lane in 0..VECTORS {
                        sum[lane] = _mm256_xor_si256(sum[lane], value[lane]);
                    }
                    continue;
                }
                let [low, high] = &NIBBLES[rows.rows[output][index] as usize];
                // SAFETY: each table is 16 bytes long.
                let (low, high) =
                    unsafe { (_mm_loadu_si128(low.as_ptr().cast()), _mm_loadu_si128(high.as_ptr().cast())) };
                let (low, high) = (_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high));
                for lane in 0..VECTORS {
                    let left = _mm256_shuffle_epi8(low, _mm256_and_si256(value[lane], nibble));
                    let right =
                        _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi64::<4>(value[lane]), nibble));
                    sum[lane] = _mm256_xor_si256(sum[lane], _mm256_xor_si256(left, right));
                }
            }
        }
        for (sum, into) in sums.iter().zip(into) {
            for (lane, sum) in sum.iter().enumerate() {
                // SAFETY: at + STEP <= length, which every output holds.
                unsafe { _mm256_storeu_si256(into.add(at + lane * 32).cast(), *sum) };
            }
        }
        at += STEP;
    }
}
