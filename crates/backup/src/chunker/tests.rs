use stele_ground::Dice;

use super::*;
use crate::testing::random;

const SMALL: Lengths = Lengths { min: 64, average: 256, max: 1024 };
/// Chunks of several runs, whose bounds are no multiples of one.
const LARGE: Lengths = Lengths { min: 100, average: 16_384, max: 70_000 };

fn cuts(chunker: &Chunker, mut data: &[u8]) -> Vec<usize> {
    let mut lengths = Vec::new();
    while !data.is_empty() {
        let length = chunker.cut(data);
        lengths.push(length);
        data = &data[length..];
    }
    lengths
}

/// The definition, slowly: the hash of a place is made anew from the last bytes since the minimum.
fn slow(chunker: &Chunker, data: &[u8]) -> usize {
    let Lengths { min, average, max } = chunker.lengths;
    let end = data.len().min(max);
    for length in min + 1..=end {
        let hash = data[min.max(length.saturating_sub(64))..length]
            .iter()
            .fold(0_u64, |hash, byte| hash.wrapping_mul(2).wrapping_add(chunker.gear[usize::from(*byte)]));
        let zeros = average.ilog2() + if length <= average { NORMALISATION } else { 0 }
            - if length <= average { 0 } else { NORMALISATION };
        if hash.leading_zeros() >= zeros {
            return length;
        }
    }
    end
}

#[test]
fn the_boundaries_are_those_of_the_definition() {
    let mut dice = Dice::new(2);
    for (lengths, bytes) in [(SMALL, 3000), (LARGE, 100_000)] {
        let chunker = Chunker::new(&[1; 32], lengths);
        for _ in 0..500 {
            let data = random(dice.roll(), dice.below(bytes) as usize);
            assert_eq!(chunker.cut(&data), slow(&chunker, &data).min(data.len()), "of {} bytes", data.len());
        }
    }
}

/// A lane whose first hashes lack a byte differs in its first places alone: a boundary there is
/// rare where chunks are long.
#[test]
fn lanes_find_what_a_single_hash_finds() {
    let chunker = Chunker::new(&[1; 32], SMALL);
    let (mut dice, mask) = (Dice::new(5), !0 << 52);
    for _ in 0..40_000 {
        let bytes = random(dice.roll(), RUN);
        let run: &[u8; RUN] = bytes.first_chunk().unwrap();
        let before = dice.roll();
        let (mut hash, mut has_boundary) = (before, false);
        for byte in run {
            hash = chunker.roll(hash, *byte);
            has_boundary |= hash & mask == 0;
        }
        assert_eq!(chunker.pass(before, run, mask), (!has_boundary).then_some(hash));
    }
}

#[test]
fn chunks_keep_their_bounds_and_average() {
    let chunker = Chunker::new(&[1; 32], SMALL);
    for data in [random(3, 1 << 20), vec![0; 100_000], b"abc".repeat(9999)] {
        let lengths = cuts(&chunker, &data);
        assert_eq!(lengths.iter().sum::<usize>(), data.len());
        let (_, all) = lengths.split_last().unwrap();
        assert!(all.iter().all(|length| (SMALL.min..=SMALL.max).contains(length)));
    }
    let lengths = cuts(&chunker, &random(4, 1 << 20));
    let average = (1 << 20) / lengths.len();
    assert!((SMALL.average * 3 / 4..SMALL.average * 3 / 2).contains(&average), "{average}");
}

#[test]
fn an_insertion_changes_only_chunks_near_it() {
    let chunker = Chunker::new(&[1; 32], SMALL);
    let mut dice = Dice::new(5);
    for _ in 0..50 {
        let data = random(dice.roll(), 100_000);
        let at = dice.below(data.len() as u64) as usize;
        let changed = [&data[..at], b"inserted", &data[at..]].concat();
        let ends = |data: &[u8]| {
            let mut end = 0;
            cuts(&chunker, data)
                .into_iter()
                .map(|length| {
                    end += length;
                    data.len() - end
                })
                .collect::<Vec<_>>()
        };
        let (before, after) = (ends(&data), ends(&changed));
        let common = before.iter().rev().zip(after.iter().rev()).take_while(|(a, b)| a == b).count();
        let behind = before.iter().filter(|left| **left < data.len() - at).count();
        assert!(behind - common.min(behind) <= 12, "{behind} chunks behind, {common} are common");
    }
}

#[test]
fn boundaries_depend_on_the_key() {
    let data = random(6, 100_000);
    let of = |key| cuts(&Chunker::new(&[key; 32], SMALL), &data);
    assert_ne!(of(1), of(2));
    assert_eq!(of(1), of(1));
}
