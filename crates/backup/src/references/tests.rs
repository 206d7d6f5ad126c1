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

#[test]
fn references_take_a_few_times_their_bytes_in_memory() {
    let check = |runs: &[(u64, u64)]| {
        let mut one = Vec::new();
        put_varint(&mut one, runs.len() as u64);
        runs.iter().flat_map(|(gap, length)| [gap, length]).for_each(|number| put_varint(&mut one, *number));
        let ordinals = Ordinals::decode(&mut Decoder::new(&one, "test")).unwrap();
        let (heap, bytes) = (ordinals.heap_bytes(), 32 + one.len());
        assert!(heap <= bytes * 8, "{heap} bytes of memory for {bytes}");
    };
    // What a writer without the key stores: the last ordinal alone.
    check(&[(SEGMENT_CHUNKS_MAX as u64 - 1, 1)]);
    check(&[]);
    check(&vec![(1, 1); 1000]);
    check(&vec![(1, 1); SEGMENT_CHUNKS_MAX / 2]);
}

#[test]
fn ordinals_are_what_a_set_of_numbers_is() {
    let mut dice = Dice::new(3);
    for round in 0..60_u64 {
        let (mut ordinals, mut twin) = (Ordinals::default(), std::collections::BTreeSet::new());
        let most = [70, 700, SEGMENT_CHUNKS_MAX as u64][round as usize % 3];
        for _ in 0..dice.below(6000) {
            let from = dice.below(most) as usize;
            let to = (from + dice.below(5) as usize).min(SEGMENT_CHUNKS_MAX - 1);
            let mut more = Ordinals::default();
            (from..=to).for_each(|ordinal| more.insert(ordinal));
            ordinals.merge(&more);
            twin.extend(from..=to);
        }
        assert!(ordinals.iter().eq(twin.iter().copied()) && ordinals.count() == twin.len(), "round {round}");
        for _ in 0..200 {
            let ordinal = dice.below(SEGMENT_CHUNKS_MAX as u64) as usize;
            assert_eq!(ordinals.contains(ordinal), twin.contains(&ordinal), "round {round}: {ordinal}");
        }
        assert!(ordinals.heap_bytes() <= SEGMENT_CHUNKS_MAX / 8 * 2);
        let mut bytes = Vec::new();
        ordinals.encode(&mut bytes);
        assert_eq!(Ordinals::decode(&mut Decoder::new(&bytes, "test")), Ok(ordinals.clone()));
        // The other form.
        assert_eq!(Ordinals(Form::Bits(bits(&ordinals.runs().collect::<Vec<_>>()))), ordinals);
    }
}
