//! What cannot be read: named version by version, told segment by segment, and over when it can be
//! read again.

use super::leftovers::records;
use super::*;
use crate::record::content::Content;
use crate::record::segment::SegmentUse;
use crate::space::header::{Kind, RecordHeader};
use crate::testing::MIB;

const SEGMENT: u64 = 256 << 10;

/// Where the content of a version begins and ends on the data volume.
fn places(archive: &Archive, key: &str) -> Vec<(u64, u64)> {
    let snapshot = archive.store().snapshot().unwrap();
    let bucket = archive.store().buckets().by_name("records").unwrap();
    let found = crate::store::lookup::newest(&*snapshot, &bucket, key).unwrap().unwrap();
    let Content::Stream(stream) = found.row.content else { panic!() };
    let places = crate::space::places::places(&crate::record::content::Place::default(), &stream.extents.unwrap());
    places
        .into_iter()
        .map(|place| (archive.store().segments().start(place.segment) + u64::from(place.at), u64::from(place.length)))
        .collect()
}

async fn filled(world: &World) -> Archive {
    let archive = world.create().await;
    archive.create_bucket(&admin(), "records", NewBucket::default()).await.unwrap();
    for number in 0..20 {
        put(&archive, "records", &format!("{number:02}"), &content(number, 60_000)).await.unwrap();
    }
    archive
}

#[tokio::test]
async fn versions_that_lie_where_nothing_can_be_read_are_named() {
    let world = World::sized(1, 16 * MIB, SEGMENT);
    let archive = filled(&world).await;
    let (at, length) = places(&archive, "07")[0];
    assert_eq!(archive.affected(&archive.unreadable(Vec::new()).await, 10).unwrap(), (Vec::new(), 0));
    let named = async |ranges: &[(u64, u64)]| -> Vec<String> {
        let (named, count) = archive.affected(&archive.unreadable(ranges.to_vec()).await, 100).unwrap();
        assert_eq!(named.len() as u64, count);
        named.into_iter().filter(|version| version.content).map(|version| version.key).collect()
    };
    assert_eq!(named(&[(at, 1)]).await, ["07"]);
    assert_eq!(named(&[(at + length - 1, 1)]).await, ["07"]);
    assert_eq!(named(&[(at + length / 2, 4096), (0, 4096)]).await, ["07"], "in any order");
    let next = places(&archive, "08")[0].0;
    assert_eq!(named(&[(at, next - at + 1)]).await, ["07", "08"]);
    let (some, count) = archive.affected(&archive.unreadable(vec![(0, 16 * MIB)]).await, 5).unwrap();
    assert_eq!((some.len(), count), (5, 20));
    assert_eq!((some[0].bucket.as_str(), some[0].key.as_str(), some[0].bytes), ("records", "00", 60_000));
}

#[tokio::test]
async fn versions_whose_keys_cannot_be_read_are_named_too() {
    let world = World::sized(1, 16 * MIB, SEGMENT);
    let archive = filled(&world).await;
    let slot = {
        let snapshot = archive.store().snapshot().unwrap();
        let bucket = archive.store().buckets().by_name("records").unwrap();
        crate::store::lookup::newest(&*snapshot, &bucket, "07").unwrap().unwrap().row.slot
    };
    let (block, _) = archive.store().keys().block(slot).unwrap();
    let named = async |range: (u64, u64)| -> Vec<Affected> {
        archive.affected(&archive.unreadable(vec![range]).await, 100).unwrap().0
    };
    let stripe = (0, block + 128 * 1024);
    assert_eq!(named((block, 4096)).await, [], "of a stripe that cannot be read, this block can");
    world.bench.lose(block..block + 4096);
    for range in [(block, 4096), (block + 100, 1), stripe] {
        let named = named(range).await;
        assert!(named.iter().any(|version| version.key == "07" && version.content), "{range:?}: {named:?}");
    }
    world.bench.lose(block + 4096..block + 8192);
    assert!(named(stripe).await.iter().all(|version| version.key != "07"), "another block of the table");
}

#[tokio::test]
async fn a_lost_segment_is_one_finding_and_ends_with_its_cause() {
    let world = World::sized(2, 16 * MIB, SEGMENT);
    let archive = filled(&world).await;
    let (at, _) = places(&archive, "03")[0];
    let segment = at / SEGMENT;
    let before = archive.audit_verify(&admin(), None).await.unwrap().records;
    world.bench.lose(segment * SEGMENT + 4096..(segment + 1) * SEGMENT);
    let report = scrub(&archive).await;
    let own = format!("segment {segment}:");
    let of_segment: Vec<&String> = report.findings.iter().filter(|finding| finding.starts_with(&own)).collect();
    assert_eq!(of_segment.len(), 1, "{:?}", report.findings);
    assert!(of_segment[0].contains("in 1 ranges cannot be read"), "{of_segment:?}");
    assert_eq!(report.findings.len(), report.places.len());
    let after = archive.audit_verify(&admin(), None).await.unwrap().records;
    assert!(after - before <= report.findings.len() as u64 + 1, "{before}, {after}: one record a finding");
    for place in &report.places {
        assert!(archive.scrub_again(place).await.unwrap().is_some(), "{place:?} is damaged still");
    }
    world.bench.lose(0..0);
    for place in &report.places {
        assert_eq!(archive.scrub_again(place).await.unwrap(), None, "{place:?} can be read again");
    }
}

#[tokio::test]
async fn a_segment_that_cannot_be_moved_for_a_time_is_moved_after_it() {
    for damaged in [false, true] {
        let world = World::sized(3, 16 * MIB, SEGMENT);
        let archive = filled(&world).await;
        let (at, length) = places(&archive, "03")[0];
        let (segment, block) = (at / SEGMENT, u64::from(crate::space::BLOCK));
        let store = archive.store();
        // Either what a power cut left of a write, behind the last record; or damage to the header
        // of a record.
        let junk = if damaged { at } else { (at + length).next_multiple_of(block) };
        let aligned = junk / block * block;
        let mut bytes = store.volume().read(aligned, block as usize).await.unwrap();
        bytes[(junk - aligned) as usize..][..64].fill(0xA5);
        store.volume().write(aligned, vec![bytes.freeze()], false).await.unwrap();
        world.bench.lose(segment * SEGMENT + block..aligned);
        let reclaimed = store.reclaim(segment as u32).await.unwrap();
        assert!(!reclaimed.retired && store.upkeep().is_unmovable(segment as u32));
        archive.look_again().await.unwrap();
        assert!(store.upkeep().is_unmovable(segment as u32), "it cannot be read still");
        world.bench.lose(0..0);
        archive.look_again().await.unwrap();
        assert_eq!(store.upkeep().is_unmovable(segment as u32), damaged, "the drives are back");
        let again = archive.scrub_again(&ScrubPlace::Segment(segment as u32)).await.unwrap();
        assert_eq!(again.is_some_and(|finding| finding.contains("a part of it is no record")), damaged);
    }
}

#[tokio::test]
async fn a_torn_record_of_no_version_is_no_damage() {
    for referred in [false, true] {
        let world = World::sized(4, 16 * MIB, SEGMENT);
        let archive = filled(&world).await;
        let (at, length) = places(&archive, "03")[0];
        if !referred {
            let request = DeleteRequest { bucket: "records".into(), key: "03".into(), ..DeleteRequest::default() };
            archive.delete(&admin(), request).await.unwrap();
        }
        // What a kill leaves of a write: the header and a part of the payload.
        let store = archive.store();
        let block = u64::from(crate::space::BLOCK);
        let aligned = (at + length / 2) / block * block;
        store.volume().write(aligned, vec![vec![0xA5; block as usize].into()], false).await.unwrap();
        let segment = (at / SEGMENT) as u32;
        let finding = archive.scrub_again(&ScrubPlace::Segment(segment)).await.unwrap();
        assert_eq!(finding.is_some_and(|finding| finding.contains("1 records do not verify")), referred);
        let reclaimed = store.reclaim(segment).await.unwrap();
        assert_eq!(reclaimed.retired, !referred, "{reclaimed:?}");
    }
}

/// Of such a note no row says whether it was ever written whole.
#[tokio::test]
async fn a_note_that_was_written_in_part_is_no_damage() {
    for torn in [true, false] {
        let world = World::sized(5, 16 * MIB, SEGMENT);
        let archive = filled(&world).await;
        for n in 0..200 {
            put(&archive, "records", &format!("more {n}"), b"a few words").await.unwrap();
        }
        archive.close().await.unwrap();
        drop(archive);
        let archive = world.open().await;
        for n in 0..30 {
            put(&archive, "records", "filler", &content(n, 20_000)).await.unwrap();
        }
        let store = archive.store();
        let notes = records(&world, &archive, Kind::Audit).await;
        let long = |(segment, _, header): &&(u32, u32, RecordHeader)| {
            let sealed = store.segments().row(*segment).is_some_and(|row| row.usage == SegmentUse::Sealed);
            sealed && header.payload > 3 * crate::space::BLOCK
        };
        let (segment, at, header) = notes.iter().find(long).expect("a long note in a sealed segment");
        let block = u64::from(crate::space::BLOCK);
        let middle = (store.segments().start(*segment) + u64::from(at + header.length() / 2)) / block * block;
        // What a kill leaves, and what it does not.
        let left = if torn { 0 } else { 0xA5 };
        store.volume().write(middle, vec![vec![left; block as usize].into()], false).await.unwrap();
        let finding = archive.scrub_again(&ScrubPlace::Segment(*segment)).await.unwrap();
        assert_eq!(finding.is_none(), torn, "{finding:?}");
        let reclaimed = store.reclaim(*segment).await.unwrap();
        assert_eq!(reclaimed.retired, torn, "{reclaimed:?}");
    }
}

/// More drives are away than the data volume's code survives. The catalog is on more drives.
#[tokio::test]
async fn a_store_is_read_where_no_copy_of_its_superblock_can_be() {
    let world = World::sized(3, 16 * MIB, SEGMENT);
    let archive = filled(&world).await;
    archive.close().await.unwrap();
    drop(archive);
    let last = world.bench.size() - 4096;
    world.bench.flip(0);
    world.bench.lose(last..last + 4096);
    let reading = Options { read_only: true, ..world.options.clone() };
    let open = async |options: &Options| Archive::open(world.foundation(), options.clone()).await;
    let damaged = open(&world.options).await.err();
    assert!(matches!(damaged, Some(ArchiveError::Damaged { .. })), "for writing: {damaged:?}");
    let archive = open(&reading).await.unwrap();
    assert_eq!(get(&archive, "records", "07").await.unwrap(), content(7, 60_000));
    assert!(matches!(put(&archive, "records", "x", b"x").await, Err(ArchiveError::ReadOnly(_))));
    drop(archive);
    let mut foundation = world.foundation();
    foundation.master = MasterKey(zeroize::Zeroizing::new([9; 32]));
    assert!(Archive::open(foundation, reading.clone()).await.is_err(), "another key opens nothing");
    world.bench.lose(0..0);
    let archive = open(&world.options).await.unwrap();
    assert_eq!(get(&archive, "records", "08").await.unwrap(), content(8, 60_000));
}

/// The pool does not say what a block holds once a write to it has failed with the log.
#[tokio::test]
async fn keys_are_read_while_the_pool_refuses_their_block() {
    let world = World::new(8);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "plain", NewBucket::default()).await.unwrap();
    put(&archive, "plain", "first", b"first").await.unwrap();
    let store = archive.store();
    let bucket = store.buckets().by_name("plain").unwrap();
    let found = crate::store::lookup::newest(&*store.snapshot().unwrap(), &bucket, "first").unwrap().unwrap();
    let (block, _) = store.keys().block(found.row.slot).unwrap();
    world.bench.refuse(block..block + u64::from(crate::space::BLOCK));
    for attempt in 0..3 {
        let refused = put(&archive, "plain", "second", b"second").await;
        assert!(matches!(refused, Err(ArchiveError::Busy(_))), "{attempt}: {refused:?}");
        let entry = store.keys().read(found.row.slot).await.unwrap().expect("its key");
        assert_eq!(entry.object, found.row.object, "{attempt}");
    }
    world.bench.refuse(0..0);
    put(&archive, "plain", "second", b"second").await.unwrap();
    for key in ["first", "second"] {
        assert_eq!(get(&archive, "plain", key).await.unwrap(), key.as_bytes());
    }
}
