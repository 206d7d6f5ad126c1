//! Tests of the block cache, beside a twin that is two maps.

use std::collections::BTreeMap;

use stele_ground::digest::fingerprint;
use stele_ground::{BLOCK, Bytes, Dice, VolumeId};
use stele_media::Shared;

use super::{BlockKey, Cache, DirtyBlock, Held, StripeKey, Worth};
use crate::model::place::Lsn;

const PER_STRIPE: u32 = 8;

fn content(byte: u64) -> Shared {
    Shared::from(vec![byte as u8; BLOCK])
}

fn written(lsn: u64, byte: u64) -> DirtyBlock {
    let data = content(byte);
    DirtyBlock { lsn: Lsn(lsn), fingerprint: fingerprint(&data), data, is_lean: false }
}

fn key(block: u64) -> BlockKey {
    BlockKey { volume: VolumeId(1), block }
}

fn stripe(stripe: u64) -> StripeKey {
    StripeKey { volume: VolumeId(1), stripe }
}

#[test]
fn it_holds_what_the_dull_twin_holds() {
    for seed in 0..20 {
        let mut dice = Dice::new(seed);
        let mut cache = Cache::new(Bytes(64 * BLOCK as u64));
        cache.add_volume(VolumeId(1), PER_STRIPE);
        let mut dirty: BTreeMap<u64, (u64, u8)> = BTreeMap::new();
        let mut newest: BTreeMap<u64, u8> = BTreeMap::new();
        for lsn in 1..3000 {
            let block = dice.below(256);
            let number = block / u64::from(PER_STRIPE);
            match dice.below(6) {
                0 | 1 => {
                    cache.put_dirty(key(block), written(lsn, lsn));
                    dirty.insert(block, (lsn, lsn as u8));
                    newest.insert(block, lsn as u8);
                }
                2 => {
                    let covers = lsn.saturating_sub(dice.below(40));
                    cache.settle(stripe(number), Lsn(covers));
                    dirty.retain(|at, (own, _)| at / u64::from(PER_STRIPE) != number || *own > covers);
                }
                3 => {
                    if let Some(byte) = newest.get(&block) {
                        cache.put_clean(key(block), &content(u64::from(*byte)));
                    }
                }
                4 => {
                    cache.drop_clean(key(block));
                    assert_eq!(cache.dirty(key(block)).is_some(), dirty.contains_key(&block));
                }
                _ => {
                    if let Some(Held::Good(data, lsn)) = cache.get(key(block)) {
                        assert_eq!(Some(&data[0]), newest.get(&block), "seed {seed}: block {block} is stale");
                        let expected = dirty.get(&block).map_or(0, |(lsn, _)| *lsn);
                        assert_eq!(lsn, Lsn(expected), "seed {seed}: block {block}");
                    } else {
                        assert!(!dirty.contains_key(&block), "seed {seed}: dirty block {block} is gone");
                    }
                }
            }
            assert_eq!(cache.dirty_bytes(), dirty.len() as u64 * BLOCK as u64, "seed {seed}");
            let oldest = dirty.values().map(|(lsn, _)| Lsn(*lsn)).min();
            assert!(cache.oldest_dirty().is_none() == oldest.is_none(), "seed {seed}");
            assert!(cache.oldest_dirty() <= oldest, "seed {seed}: the log could be trimmed too far");
            assert!(cache.clean_bytes() <= 64 * BLOCK as u64, "seed {seed}: more memory than allowed");
        }
    }
}

#[test]
fn a_scan_leaves_what_is_read_often() {
    let mut cache = Cache::new(Bytes(1000 * BLOCK as u64));
    cache.add_volume(VolumeId(1), PER_STRIPE);
    for block in 0..500 {
        cache.put_clean(key(block), &content(block));
    }
    for _ in 0..3 {
        (0..500).for_each(|block| assert!(cache.get(key(block)).is_some()));
    }
    for block in 10_000..60_000 {
        cache.put_clean(key(block), &content(block));
    }
    let kept = (0..500).filter(|block| cache.get(key(*block)).is_some()).count();
    assert!(kept >= 450, "{kept} of 500 hot blocks outlived a scan of 50,000");
}

#[test]
fn writes_after_the_destage_stay_dirty() {
    let mut cache = Cache::new(Bytes(64 * BLOCK as u64));
    cache.add_volume(VolumeId(1), PER_STRIPE);
    cache.put_dirty(key(3), written(5, 1));
    cache.put_dirty(key(4), written(6, 2));
    cache.put_dirty(key(3), written(9, 3));
    cache.settle(stripe(0), Lsn(6));
    assert_eq!(cache.dirty(key(3)).map(|block| block.lsn), Some(Lsn(9)));
    assert!(cache.dirty(key(4)).is_none());
    assert_eq!(cache.get(key(4)), Some(Held::Good(&content(2), Lsn(0))));
    assert_eq!(cache.oldest_dirty(), Some(Lsn(9)));
    cache.remove_volume(VolumeId(1));
    assert!(cache.get(key(3)).is_none() && cache.get(key(4)).is_none());
    assert_eq!(cache.dirty_bytes(), 0);
}

#[test]
fn what_changed_by_itself_is_told_from_what_was_written() {
    let mut cache = Cache::new(Bytes(64 * BLOCK as u64));
    cache.add_volume(VolumeId(1), PER_STRIPE);
    assert!(!cache.spoil(0, 0), "nothing is dirty");
    cache.put_dirty(key(3), written(5, 1));
    cache.put_dirty(key(9), written(6, 2));
    assert!(cache.spoil(1, 4711));
    assert_eq!(cache.get(key(3)), Some(Held::Good(&content(1), Lsn(5))));
    assert_eq!(cache.get(key(9)), Some(Held::Spoilt));
    assert_eq!((cache.spoilt_of(stripe(0)), cache.spoilt_of(stripe(1))), (None, Some(key(9))));
    cache.restore(key(9), Lsn(5), content(7));
    assert!(cache.is_spoilt(key(9), Lsn(6)), "another record's bytes are not this block's");
    cache.restore(key(9), Lsn(6), content(2));
    assert_eq!(cache.get(key(9)), Some(Held::Good(&content(2), Lsn(6))));
}

#[test]
fn what_changes_while_it_is_destaged_does_not_become_clean() {
    let mut cache = Cache::new(Bytes(64 * BLOCK as u64));
    cache.add_volume(VolumeId(1), PER_STRIPE);
    cache.put_dirty(key(3), written(5, 1));
    cache.put_dirty(key(4), written(6, 2));
    assert!(cache.spoil(0, 0));
    cache.settle(stripe(0), Lsn(6));
    assert_eq!(cache.get(key(3)), None, "the drives have it right");
    assert_eq!(cache.get(key(4)), Some(Held::Good(&content(2), Lsn(0))));
}

#[test]
fn what_a_host_is_being_shown_stays_as_it_was_and_else_pages_are_written_again() {
    let mut cache = Cache::new(Bytes(8 * BLOCK as u64));
    cache.add_volume(VolumeId(1), PER_STRIPE);
    cache.put_clean(key(1), &content(1));
    let place = |cache: &mut Cache, block| match cache.get(key(block)) {
        Some(Held::Good(data, _)) => data.as_ptr(),
        other => panic!("{other:?}"),
    };
    let first = place(&mut cache, 1);
    cache.put_clean(key(1), &content(2));
    assert_eq!(place(&mut cache, 1), first, "nobody held it");
    let Some(Held::Good(shown, _)) = cache.get(key(1)) else { panic!("it is held") };
    let shown = shown.slice(512..);
    cache.put_clean(key(1), &content(3));
    assert_ne!(place(&mut cache, 1), first, "a host is being shown it");
    // The block leaves, and others have all of the cache.
    cache.drop_clean(key(1));
    (10..60).for_each(|block| cache.put_clean(key(block), &content(block)));
    assert!(shown == content(2)[512..], "what is shown changed");
}

#[test]
fn a_dirty_block_with_a_page_to_itself_stays_without_a_copy() {
    let mut cache = Cache::new(Bytes(8 * BLOCK as u64));
    cache.add_volume(VolumeId(1), PER_STRIPE);
    let place = |cache: &mut Cache, block| match cache.get(key(block)) {
        Some(Held::Good(data, _)) => data.as_ptr(),
        other => panic!("{other:?}"),
    };
    for block in [3, 4] {
        cache.put_dirty(key(block), written(5 + block, block));
    }
    cache.note_lean(key(3), Lsn(8));
    cache.note_lean(key(4), Lsn(8));
    let (lean, other) = (place(&mut cache, 3), place(&mut cache, 4));
    cache.settle(stripe(0), Lsn(9));
    assert_eq!(place(&mut cache, 3), lean, "its page is kept");
    assert_ne!(place(&mut cache, 4), other, "of another record, or part of something larger");
    assert_eq!(cache.get(key(3)), Some(Held::Good(&content(3), Lsn(0))));
    // The page counts like every other.
    (10..60).for_each(|block| cache.put_clean(key(block), &content(block)));
    assert!(cache.clean_bytes() <= 8 * BLOCK as u64);
    // What changed while it was destaged does not stay.
    cache.put_dirty(key(5), written(20, 5));
    cache.note_lean(key(5), Lsn(20));
    assert!(cache.spoil(0, 9));
    cache.settle(stripe(0), Lsn(20));
    assert_eq!(cache.get(key(5)), None);
}

#[test]
fn blocks_of_long_reads_enter_a_full_cache_when_they_come_back() {
    let limit = 64;
    let mut cache = Cache::new(Bytes(limit * BLOCK as u64));
    cache.add_volume(VolumeId(1), PER_STRIPE);
    for block in 0..limit {
        cache.offer(key(block), &content(block), Worth::IfReadBefore);
        assert!(cache.holds(key(block)), "there is room for block {block}");
    }
    for block in limit..2 * limit {
        cache.offer(key(block), &content(block), Worth::IfReadBefore);
        assert!(!cache.holds(key(block)), "block {block} was never read before");
    }
    assert!((0..limit).all(|block| cache.holds(key(block))), "nothing left for them");
    cache.offer(key(limit), &content(limit), Worth::IfReadBefore);
    assert_eq!(cache.get(key(limit)), Some(Held::Good(&content(limit), Lsn(0))));
}

#[test]
fn blocks_that_are_written_again_and_again_take_one_page_each() {
    let mut cache = Cache::new(Bytes(64 << 20));
    cache.add_volume(VolumeId(1), PER_STRIPE);
    let blocks = u64::from(PER_STRIPE);
    for round in 0..3000 {
        for block in 0..blocks {
            cache.put_dirty(key(block), written(1 + round * blocks + block, round));
        }
        cache.settle(stripe(0), Lsn(u64::MAX));
        assert_eq!(cache.clean_bytes(), blocks * BLOCK as u64, "round {round}");
    }
    let (slots, queued) = cache.clean.slots_and_queued();
    assert!(slots < 1200 && queued < 1200, "{slots} slots, {queued} in queues");
    assert!(matches!(cache.get(key(7)), Some(Held::Good(data, _)) if *data == content(2999)));
}
