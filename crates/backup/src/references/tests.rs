use stele_ground::Dice;

use super::*;
use crate::testing::random;

#[test]
fn references_read_back() {
    let mut dice = Dice::new(1);
    for _ in 0..200 {
        let mut references = References::default();
        for _ in 0..dice.below(5) {
            let into = references.0.entry(SegmentId(random(dice.roll(), 32).try_into().unwrap())).or_default();
            let most = 1 + dice.below(SEGMENT_CHUNKS_MAX as u64 - 1);
            (0..1 + dice.below(300)).for_each(|_| into.insert(dice.below(most) as usize));
        }
        let mut bytes = Vec::new();
        references.encode(&mut bytes);
        let mut decoder = Decoder::new(&bytes, "test");
        assert_eq!(References::decode(&mut decoder), Ok(references));
        decoder.end().unwrap();
    }
}

#[test]
fn a_full_segment_takes_a_few_bytes() {
    let mut all = Ordinals::default();
    (0..SEGMENT_CHUNKS_MAX).for_each(|ordinal| all.insert(ordinal));
    let mut bytes = Vec::new();
    all.encode(&mut bytes);
    assert_eq!((bytes.len(), all.count()), (5, SEGMENT_CHUNKS_MAX));
}

#[test]
fn impossible_references_are_refused() {
    let check = |runs: &[u64]| {
        let mut bytes = vec![(runs.len() / 2) as u8];
        runs.iter().for_each(|number| put_varint(&mut bytes, *number));
        assert!(Ordinals::decode(&mut Decoder::new(&bytes, "test")).is_err(), "{runs:?}");
    };
    check(&[0, SEGMENT_CHUNKS_MAX as u64 + 1]);
    check(&[SEGMENT_CHUNKS_MAX as u64, 1]);
    check(&[0, 60_000, 10, 60_000]);
    // Segments must be in order, or one would count twice.
    let twice = [[2].as_slice(), &[7; 32], &[0], &[7; 32], &[0]].concat();
    assert!(References::decode(&mut Decoder::new(&twice, "test")).is_err());
}
