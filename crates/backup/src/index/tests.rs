use std::collections::BTreeMap;

use stele_ground::Dice;

use super::*;
use crate::crypt::Kind;
use crate::testing::random;

fn id(seed: u64) -> ChunkId {
    ChunkId(random(seed, 32).try_into().unwrap())
}

fn footer(ids: impl Iterator<Item = ChunkId>) -> Footer {
    let entries = ids.map(|id| ChunkEntry { id, offset: 0, stored: 0, length: 0, compressed: false }).collect();
    Footer { kind: Kind::Content, salt: [0; 32], entries }
}

/// An index whose footers come from a map, as from a store.
fn index(footers: &Arc<std::sync::Mutex<BTreeMap<SegmentId, Footer>>>) -> Index {
    let footers = Arc::clone(footers);
    let missing = |id: &SegmentId| BackupError::Missing(format!("{id:?}"));
    Index::new(Box::new(move |id| footers.lock().unwrap().get(id).cloned().ok_or_else(|| missing(id))))
}

#[test]
fn the_table_finds_what_a_map_finds() {
    let footers = Arc::default();
    let (mut index, mut twin, mut dice) = (index(&footers), BTreeMap::new(), Dice::new(1));
    for segment in 0..200_u64 {
        let ids: Vec<ChunkId> = (0..1 + dice.below(60)).map(|_| id(dice.below(5000))).collect();
        let name = SegmentId(random(segment, 32).try_into().unwrap());
        let number = index.add(name, footer(ids.iter().copied()), Ordinals::default()).unwrap();
        footers.lock().unwrap().insert(name, footer(ids.iter().copied()));
        for id in ids {
            twin.entry(id).or_insert_with(Vec::new).push(number);
        }
    }
    for seed in 0..6000 {
        let found = index.find(&id(seed));
        let segments = twin.get(&id(seed));
        assert_eq!(found.is_some(), segments.is_some(), "{seed}");
        if let (Some(found), Some(segments)) = (found, segments) {
            assert!(segments.contains(&found.segment));
            let directory = index.directory(found.segment).unwrap();
            assert_eq!(directory.entry(found.ordinal).unwrap().id, id(seed));
        }
    }
}

#[test]
fn a_million_chunks_take_at_most_nine_bytes_each() {
    let mut index = index(&Arc::default());
    for segment in 0..120_u64 {
        let ids = (0..10_000).map(|at| id(segment * 10_000 + at));
        index.add(SegmentId(random(segment, 32).try_into().unwrap()), footer(ids), Ordinals::default()).unwrap();
        let (bytes, chunks) = (index.table_bytes(), index.chunks());
        assert!(bytes <= chunks * 9 + (64 << 10), "{bytes} bytes for {chunks} chunks");
        // Footers in memory are bounded whatever the table has.
        assert!(index.footer_chunks <= FOOTER_CHUNKS_MAX);
        // One that is used outlasts those that are not.
        index.directory(1).unwrap();
    }
    assert!(!index.footers.contains_key(&2) && index.footers.contains_key(&120));
}

#[test]
fn an_equal_fingerprint_is_no_match() {
    let mut index = index(&Arc::default());
    let stored = id(1);
    let mut other = stored;
    // Beyond the part and the fingerprint.
    other.0[31] ^= 1;
    index.add(SegmentId([1; 32]), footer([stored].into_iter()), Ordinals::default()).unwrap();
    assert_eq!(index.chunks.find(&other.0).count(), 1);
    assert!(index.find(&stored).is_some());
    assert_eq!(index.find(&other), None);
}

#[test]
fn a_footer_that_cannot_be_read_only_loses_its_chunks() {
    let mut index = index(&Arc::default());
    index.add(SegmentId([1; 32]), footer([id(1)].into_iter()), Ordinals::default()).unwrap();
    index.add(SegmentId([2; 32]), footer([id(1), id(2)].into_iter()), Ordinals::default()).unwrap();
    index.footers.remove(&1);
    assert_eq!(index.find(&id(1)).map(|found| found.segment), Some(2));
    index.footers.clear();
    assert_eq!(index.find(&id(2)), None);
}

#[test]
fn damaged_chunks_are_not_found() {
    let mut index = index(&Arc::default());
    let mut damaged = Ordinals::default();
    damaged.insert(1);
    index.add(SegmentId([1; 32]), footer([id(1), id(2)].into_iter()), damaged).unwrap();
    assert!(index.find(&id(1)).is_some());
    assert_eq!(index.find(&id(2)), None);
    // Who reads tries it, unless there is another one.
    assert_eq!(index.find_any(&id(2)), Some(Location { segment: 1, ordinal: 1 }));
    index.add(SegmentId([2; 32]), footer([id(2)].into_iter()), Ordinals::default()).unwrap();
    assert_eq!(index.find_any(&id(2)), Some(Location { segment: 2, ordinal: 0 }));
}

#[test]
fn referenced_and_then_older_segments_are_tried_first() {
    let mut index = index(&Arc::default());
    let names = [3, 1, 2].map(|byte| SegmentId([byte; 32]));
    for (name, stored) in names.iter().zip([30, 20, 10]) {
        index.add_dated(*name, footer([id(1)].into_iter()), Ordinals::default(), stored).unwrap();
    }
    let order = |index: &mut Index| {
        let mut tried = Vec::new();
        while let Some(next) = index.find_other(&id(1), &tried) {
            tried.push(next);
        }
        tried.iter().map(|place| index.segment(place.segment).unwrap().0[0]).collect::<Vec<u8>>()
    };
    assert_eq!(order(&mut index), [2, 1, 3]);
    let references = |name: SegmentId| References([(name, Ordinals::default())].into());
    index.prefer(&references(names[0]));
    assert_eq!(order(&mut index), [3, 2, 1]);
    index.prefer(&references(names[1]));
    assert_eq!(order(&mut index), [1, 2, 3]);
    // What was stored just now is the youngest.
    index.add(SegmentId([0; 32]), footer([id(1)].into_iter()), Ordinals::default()).unwrap();
    assert_eq!(order(&mut index), [1, 2, 3, 0]);
}
