//! The needed bytes of the segments, counted again after a kill and after a scrub.

use std::collections::BTreeMap;

use super::*;
use crate::record::segment::SegmentUse;
use crate::space::walk::Walk;
use crate::testing::MIB;

async fn remove(archive: &Archive, n: u64) {
    let request = DeleteRequest { bucket: "plain".into(), key: format!("{n:02}"), ..DeleteRequest::default() };
    archive.delete(&admin(), request).await.unwrap();
}

async fn store(archive: &Archive, n: u64) {
    put(archive, "plain", &format!("{n:02}"), &content(n, 20_000)).await.unwrap();
}

/// A store with sealed segments, of which most versions are deleted. Nothing of that is counted in
/// the catalog yet.
async fn scene(world: &World) -> Archive {
    let archive = world.create().await;
    archive.create_bucket(&admin(), "plain", NewBucket::default()).await.unwrap();
    for n in 0..100 {
        store(&archive, n).await;
    }
    for n in (0..100).filter(|n| n % 6 != 0) {
        remove(&archive, n).await;
    }
    archive
}

/// The bytes of each data segment that are counted, and those that are needed: by rows, or because
/// they always are.
async fn counted_and_needed(archive: &Archive) -> BTreeMap<u32, (i64, i64)> {
    let store = archive.store();
    let segments = store.segments();
    let referred = store.live_by_segment().unwrap();
    let mut both = BTreeMap::new();
    for (number, row) in segments.rows() {
        if !matches!(row.usage, SegmentUse::Open | SegmentUse::Sealed) {
            continue;
        }
        let mut walk = Walk::new(store.volume().clone(), segments.start(number), segments.size, row.incarnation);
        let mut needed = referred.get(&number).copied().unwrap_or(0) as i64;
        while let Some((_, header)) = walk.next().await.unwrap() {
            needed += if header.kind.is_kept() { i64::from(header.length()) } else { 0 };
        }
        both.insert(number, (row.live, needed));
    }
    both
}

async fn check(archive: &Archive) {
    for (segment, (counted, needed)) in counted_and_needed(archive).await {
        assert_eq!(counted, needed, "segment {segment}");
    }
}

async fn finish(archive: &Archive) {
    while archive.step().await.unwrap().more {}
}

#[tokio::test]
async fn a_store_that_was_killed_counts_what_its_segments_hold() {
    let world = World::sized(1, 16 * MIB, 256 << 10);
    drop(scene(&world).await);
    let archive = world.open().await;
    let off = |both: BTreeMap<u32, (i64, i64)>| both.values().filter(|(counted, needed)| counted != needed).count();
    assert!(off(counted_and_needed(&archive).await) > 2, "the deletions are not counted");
    finish(&archive).await;
    check(&archive).await;
    assert!(archive.space().live < 900_000, "{:?}", archive.space());
}

#[tokio::test]
async fn changes_during_a_count_are_counted() {
    let world = World::sized(2, 16 * MIB, 256 << 10);
    drop(scene(&world).await);
    let archive = world.open().await;
    for n in 0..100 {
        // One page of the count.
        archive.step().await.unwrap();
        match n % 6 {
            0 => remove(&archive, n).await,
            _ => store(&archive, n).await,
        }
    }
    finish(&archive).await;
    check(&archive).await;
}

#[tokio::test]
async fn a_scrub_has_the_segments_counted_again() {
    let world = World::sized(3, 16 * MIB, 256 << 10);
    let archive = scene(&world).await;
    let store = archive.store();
    let segments = store.segments();
    for number in segments.rows().into_keys() {
        segments.change(number, |row| row.live += 1000);
    }
    scrub(&archive).await;
    finish(&archive).await;
    check(&archive).await;
}

#[tokio::test]
async fn a_rebuild_counts_what_no_row_refers_to() {
    let mut world = World::sized(4, 16 * MIB, 256 << 10);
    let archive = scene(&world).await;
    finish(&archive).await;
    archive.close().await.unwrap();
    world.catalog = std::sync::Arc::new(stele_catalog::MemoryCatalog::new());
    let (archive, _) = Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap();
    finish(&archive).await;
    check(&archive).await;
}
