//! A data volume that grows under its archive.

use std::sync::Arc;

use stele_catalog::MemoryCatalog;

use super::*;
use crate::space::superblock::{Superblock, places, segments_on};
use crate::testing::MIB;

const SEGMENT: u64 = 256 << 10;
const SMALL: u64 = 8 * MIB;
const LENGTH: usize = 50_000;

/// Puts from `from` on until the store is full; the first that it refused.
async fn fill(archive: &Archive, from: u64) -> u64 {
    let mut number = from;
    loop {
        match put(archive, "records", &number.to_string(), &content(number, LENGTH)).await {
            Ok(_) => number += 1,
            Err(ArchiveError::NoSpace(_)) => return number,
            Err(error) => panic!("{number}: {error}"),
        }
    }
}

async fn holds(archive: &Archive, count: u64) {
    for number in 0..count {
        assert!(get(archive, "records", &number.to_string()).await.unwrap() == content(number, LENGTH), "{number}");
    }
}

async fn grow(archive: &Archive, world: &World, size: u64, done: bool) -> Result<u64> {
    let volume = world.bench.clone();
    archive.grow(async move { volume.grow(size, done) }).await.map(|room| room.0)
}

async fn sound_copies(world: &World) -> usize {
    let handle = world.bench.handle();
    let mut sound = 0;
    for at in places(&handle) {
        sound += usize::from(Superblock::decode(&handle.read(at, 4096).await.unwrap()).is_some());
    }
    sound
}

#[tokio::test]
async fn a_full_store_takes_more_on_a_volume_that_grew() {
    let world = World::sized(1, SMALL, SEGMENT);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "records", NewBucket::default()).await.unwrap();
    let first = fill(&archive, 0).await;
    let before = archive.space();
    // Not by whole segments: what is left over waits for the next time.
    let room = grow(&archive, &world, 2 * SMALL + 3 * 4096, true).await.unwrap();
    assert_eq!(room / SEGMENT, u64::from(segments_on(2 * SMALL + 3 * 4096, SEGMENT as u32) - before.segments));
    assert_eq!((u64::from(archive.space().segments) * SEGMENT, room), (2 * SMALL, SMALL + SEGMENT));
    assert_eq!(sound_copies(&world).await, 2);
    let second = fill(&archive, first).await;
    assert!(second > 2 * first, "{first} before, {second} after");
    holds(&archive, second).await;
    assert_eq!(grow(&archive, &world, world.bench.size(), true).await.unwrap(), 0, "nothing came, nothing changes");
    archive.close().await.unwrap();
    let refused = grow(&archive, &world, 3 * SMALL, true).await;
    drop((archive, refused));
    // After a restart, and from the data volume alone.
    let archive = world.open().await;
    holds(&archive, second).await;
    grow(&archive, &world, 3 * SMALL, true).await.unwrap();
    let third = fill(&archive, second).await;
    assert!(third > 3 * first, "{first}, {second}, {third}");
    archive.close().await.unwrap();
    drop(archive);
    let world = World { catalog: Arc::new(MemoryCatalog::new()), ..world };
    let (archive, report) = Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    holds(&archive, third).await;
}

#[tokio::test]
async fn a_volume_that_cannot_grow_leaves_the_store_as_it_is() {
    let world = World::sized(1, SMALL, SEGMENT);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "records", NewBucket::default()).await.unwrap();
    let refused = archive.grow(async { Err(ArchiveError::NoSpace("the pool has no room".into())) }).await;
    assert!(matches!(refused, Err(ArchiveError::NoSpace(_))), "{refused:?}");
    // Without its first copy, the superblock would not be found on a larger volume.
    world.bench.lose(0..4096);
    assert!(matches!(grow(&archive, &world, 2 * SMALL, true).await, Err(ArchiveError::Damaged { .. })));
    assert_eq!(world.bench.size(), SMALL);
    world.bench.lose(0..0);
    let count = fill(&archive, 0).await;
    holds(&archive, count).await;
    let options = Options { read_only: true, ..world.options.clone() };
    drop(archive);
    let reader = Archive::open(world.foundation(), options).await.unwrap();
    assert!(matches!(grow(&reader, &world, 2 * SMALL, true).await, Err(ArchiveError::ReadOnly(_))));
    assert_eq!(world.bench.size(), SMALL);
}

#[tokio::test]
async fn a_power_cut_at_any_write_of_a_growth_leaves_a_sound_store() {
    let mut unknown = 0;
    // Growing twice writes four blocks and the volume's size twice; an opening in between some
    // more.
    for cut in 0..16 {
        for done in [false, true] {
            let world = World::sized(cut, SMALL, SEGMENT);
            let archive = world.create().await;
            archive.create_bucket(&admin(), "records", NewBucket::default()).await.unwrap();
            let first = fill(&archive, 0).await;
            world.bench.cut_after(cut % 8);
            let grown = grow(&archive, &world, 2 * SMALL, done).await.is_ok();
            // A second cut, of the opening or of what follows it.
            drop(archive);
            world.bench.power_on();
            unknown += usize::from(!grown && world.bench.size() > SMALL);
            world.bench.cut_after(cut / 4);
            if let Ok(archive) = Archive::open(world.foundation(), world.options.clone()).await {
                let _ = grow(&archive, &world, 2 * SMALL, done).await;
            }
            world.bench.power_on();
            let archive = world.open().await;
            holds(&archive, first).await;
            assert_eq!(sound_copies(&world).await, 2, "cut {cut}, {done}");
            grow(&archive, &world, 2 * SMALL, true).await.unwrap();
            assert!(fill(&archive, first).await > 2 * first, "cut {cut}, {done}");
        }
    }
    assert!(unknown > 0, "some were cut when the volume had grown and the archive did not know");
}
