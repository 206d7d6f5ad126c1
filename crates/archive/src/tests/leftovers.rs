//! What failed and cut-off operations leave on the data volume: no opening appends over a record,
//! and a rebuild finds what was acknowledged.

use std::sync::Arc;

use stele_catalog::{Catalog, MemoryCatalog};
use stele_media::Buffer;

use super::refused::Refusing;
use super::*;
use crate::space::BLOCK;
use crate::space::appender::Record;
use crate::space::header::{Kind, RecordHeader, SegmentFooter, SegmentHeader, SegmentKind};
use crate::space::keytable::{ENTRY, FIRST};
use crate::space::walk::Walk;
use crate::testing::MIB;

fn delete(bucket: &str, key: &str, version: Option<VersionId>) -> DeleteRequest {
    DeleteRequest { bucket: bucket.into(), key: key.into(), version, ..DeleteRequest::default() }
}

async fn rebuilt(world: World) -> (World, Archive, RebuildReport) {
    let world = World { catalog: Arc::new(MemoryCatalog::new()), ..world };
    let (archive, report) = Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap();
    (world, archive, report)
}

#[tokio::test]
async fn a_full_store_that_is_closed_in_order_keeps_its_last_records() {
    let world = World::sized(1, 8 * MIB, 256 << 10);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "full", NewBucket { versioning: true, ..NewBucket::default() }).await.unwrap();
    let mut stored = 0;
    while put(&archive, "full", &format!("key {stored}"), &content(stored, 50_000)).await.is_ok() {
        stored += 1;
    }
    // Markers take the reserve, up to its last byte.
    let mut markers = 0;
    while archive.delete(&admin(), delete("full", &format!("marker {markers}"), None)).await.is_ok() {
        markers += 1;
    }
    assert!(markers > 100, "{markers}");
    let (_, before) =
        archive.store().segments().rows().into_iter().fold((0, 0), |(n, used), (_, row)| (n + 1, used + row.used));
    archive.close().await.unwrap();
    drop(archive);
    let archive = world.open().await;
    let (_, after) =
        archive.store().segments().rows().into_iter().fold((0, 0), |(n, used), (_, row)| (n + 1, used + row.used));
    assert!(after >= before, "{after} bytes in use, {before} before");
    // Whatever still goes in must go behind the records.
    for n in 0..20 {
        drop(archive.delete(&admin(), delete("full", &format!("more {n}"), None)).await);
        drop(put(&archive, "full", &format!("more {n}"), &content(n, 20_000)).await);
    }
    for n in 0..stored {
        assert!(get(&archive, "full", &format!("key {n}")).await.unwrap() == content(n, 50_000), "key {n}");
    }
    drop(archive);
    let (_world, archive, report) = rebuilt(world).await;
    assert!(report.losses.is_empty() && report.findings.is_empty(), "{report:?}");
    for n in (0..markers).rev().take(500) {
        let gone = get(&archive, "full", &format!("marker {n}")).await;
        assert!(matches!(gone, Err(ArchiveError::NoSuchKey { marker: Some(_), .. })), "marker {n}: {gone:?}");
    }
}

/// The records of a kind, each with its segment.
pub(super) async fn records(world: &World, archive: &Archive, kind: Kind) -> Vec<(u32, u32, RecordHeader)> {
    let mut found = Vec::new();
    for (segment, row) in archive.store().segments().rows() {
        let start = archive.store().segments().start(segment);
        let mut walk = Walk::new(world.bench.handle(), start, archive.store().segments().size, row.incarnation);
        while let Some((at, header)) = walk.next().await.unwrap() {
            if header.kind == kind {
                found.push((segment, at, header));
            }
        }
    }
    found
}

#[tokio::test]
async fn a_torn_copy_of_a_piece_does_not_replace_it() {
    let world = World::new(2);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "plain", NewBucket::default()).await.unwrap();
    put(&archive, "plain", "key", &content(1, 300_000)).await.unwrap();
    let (segment, at, header) = records(&world, &archive, Kind::Piece).await.remove(0);
    let from = archive.store().segments().start(segment) + u64::from(at);
    let length = header.length().next_multiple_of(BLOCK) as usize;
    assert_eq!(from % u64::from(BLOCK), 0, "a long record begins on a block");
    let record = archive.store().volume().read(from, length).await.unwrap();
    let payload = &record[crate::space::header::RECORD_HEADER as usize..header.length() as usize];
    // Power is cut in the copy: only its first block is there.
    world.bench.be_late();
    let copying = archive.store().appender().append(Record::note(header.clone(), payload), true).await.unwrap();
    drop((copying, archive));
    let (_world, archive, report) = rebuilt(world).await;
    // Once for the finding, and the object has its content.
    assert_eq!(report.findings.len(), 1, "{report:?}");
    assert!(report.findings[0].contains("another copy of it is used"), "{report:?}");
    assert!(report.losses.is_empty(), "{report:?}");
    assert!(get(&archive, "plain", "key").await.unwrap() == content(1, 300_000));
}

/// A kill comes after the note of a version was written, and before its content was: a block of it
/// is not there, or nothing.
#[tokio::test]
async fn a_write_that_a_kill_tore_is_no_loss() {
    for nothing in [false, true] {
        let world = World::new(6);
        let archive = world.create().await;
        let versioning = NewBucket { versioning: true, ..NewBucket::default() };
        archive.create_bucket(&admin(), "plain", versioning).await.unwrap();
        let first = put(&archive, "plain", "key", &content(1, 300_000)).await.unwrap();
        put(&archive, "plain", "key", &content(2, 300_000)).await.unwrap();
        let mut pieces = records(&world, &archive, Kind::Piece).await.into_iter();
        let is_long = |at: u32, header: &RecordHeader| at.is_multiple_of(BLOCK) && header.length() > 9 * BLOCK;
        let (segment, at, header) = pieces.rfind(|(_, at, header)| is_long(*at, header)).unwrap();
        let begin = archive.store().segments().start(segment) + u64::from(at);
        let (from, length) = if nothing { (0, header.length()) } else { (8 * BLOCK, BLOCK) };
        // The volume takes whole blocks.
        let (start, block) = (begin + u64::from(from), u64::from(BLOCK));
        let (at, end) = (start / block * block, (start + u64::from(length)).next_multiple_of(block));
        let mut bytes = archive.store().volume().read(at, (end - at) as usize).await.unwrap().to_vec();
        bytes[(start - at) as usize..][..length as usize].fill(0);
        archive.store().volume().write(at, vec![bytes.into()], true).await.unwrap();
        drop(archive);
        let (_world, archive, report) = rebuilt(world).await;
        assert!(report.losses.is_empty(), "{report:?}");
        let [finding] = report.findings.as_slice() else { panic!("{report:?}") };
        if nothing {
            assert!(finding.contains("pieces of its content are missing"), "{finding}");
            let request = GetRequest { bucket: "plain".into(), key: "key".into(), ..GetRequest::default() };
            assert!(archive.get(&admin(), GetRequest { version: Some(first.version), ..request }).await.is_ok());
        } else {
            // It does not come back.
            assert!(finding.contains("(`key`): its content is torn or damaged"), "{finding}");
            assert!(get(&archive, "plain", "key").await.unwrap() == content(1, 300_000));
        }
        assert_eq!(report.versions, 1 + u64::from(nothing), "{report:?}");
    }
}

/// A store with an acknowledged object, and an upload of one part to the same key.
async fn upload(versioning: bool) -> (World, Arc<Refusing>, Archive, CompleteRequest) {
    let mut world = World::new(3);
    let catalog = Arc::<Refusing>::default();
    world.catalog = Arc::clone(&catalog) as Arc<dyn Catalog>;
    let archive = world.create().await;
    archive.create_bucket(&admin(), "plain", NewBucket { versioning, ..NewBucket::default() }).await.unwrap();
    put(&archive, "plain", "key", b"acknowledged").await.unwrap();
    let new = NewUpload { bucket: "plain".into(), key: "key".into(), ..NewUpload::default() };
    let upload = archive.create_upload(&admin(), new).await.unwrap().upload;
    let request = PartRequest {
        bucket: "plain".into(),
        key: "key".into(),
        upload: upload.clone(),
        number: 1,
        ..PartRequest::default()
    };
    let mut writer = archive.put_part(&admin(), request).await.unwrap();
    writer.write(bytes::Bytes::from_static(b"refused")).await.unwrap();
    let part = writer.finish(Expected::default()).await.unwrap();
    let parts = vec![CompletedPart { number: 1, etag: part.etag.to_string(), checksums: part.checksums }];
    let request =
        CompleteRequest { bucket: "plain".into(), key: "key".into(), upload, parts, ..CompleteRequest::default() };
    (world, catalog, archive, request)
}

#[tokio::test]
async fn a_completion_that_was_refused_is_not_found_by_a_rebuild() {
    for (versioning, refusals) in [(false, 1), (true, 1), (true, 2)] {
        let (world, catalog, archive, request) = upload(versioning).await;
        catalog.refuse(refusals);
        let refused = archive.complete_upload(&admin(), request.clone()).await;
        assert!(matches!(refused, Err(ArchiveError::Busy(_))), "{refused:?}");
        catalog.refuse(0);
        // Reclamation keeps what takes the refused completion back.
        while archive.step().await.unwrap().more {}
        let (open, _) = archive.store().appender().tail().unwrap();
        let mut fillers = 0;
        while archive.store().appender().tail().is_none_or(|(segment, _)| segment == open) {
            put(&archive, "plain", &format!("filler {fillers}"), &content(fillers, 100_000)).await.unwrap();
            fillers += 1;
        }
        assert!(archive.store().reclaim(open).await.unwrap().retired);
        while archive.store().free_retired().await.unwrap() > 0 {}
        drop(archive);
        let (_world, archive, report) = rebuilt(world).await;
        assert_eq!(report.findings, Vec::<String>::new());
        assert_eq!(get(&archive, "plain", "key").await.unwrap(), b"acknowledged");
        let list = ListVersionsRequest { bucket: "plain".into(), limit: 1000, ..ListVersionsRequest::default() };
        let versions = archive.list_versions(&admin(), list).await.unwrap().versions;
        assert_eq!(versions.iter().filter(|version| version.key == "key").count(), 1, "{versions:?}");
    }
}

#[tokio::test]
async fn a_completion_that_is_repeated_with_success_is_found_by_a_rebuild() {
    let (world, catalog, archive, request) = upload(true).await;
    catalog.refuse(1);
    archive.complete_upload(&admin(), request.clone()).await.unwrap_err();
    archive.complete_upload(&admin(), request).await.unwrap();
    drop(archive);
    let (_world, archive, _) = rebuilt(world).await;
    assert_eq!(get(&archive, "plain", "key").await.unwrap(), b"refused");
}

#[tokio::test]
async fn a_put_that_a_crash_cut_off_does_not_replace_what_was_acknowledged() {
    let mut world = World::new(4);
    let catalog = Arc::<Refusing>::default();
    world.catalog = Arc::clone(&catalog) as Arc<dyn Catalog>;
    let archive = world.create().await;
    archive.create_bucket(&admin(), "plain", NewBucket::default()).await.unwrap();
    let first = put(&archive, "plain", "key", b"acknowledged").await.unwrap();
    catalog.stop();
    put(&archive, "plain", "key", b"cut off").await.unwrap_err();
    drop(archive);
    let (_world, archive, report) = rebuilt(world).await;
    assert_eq!(report.findings.len(), 1, "{report:?}");
    let list = ListVersionsRequest { bucket: "plain".into(), limit: 1000, ..ListVersionsRequest::default() };
    let versions = archive.list_versions(&admin(), list).await.unwrap().versions;
    assert_eq!(versions.len(), 2, "{versions:?}");
    let kept = versions.iter().find(|version| version.etag == first.etag).unwrap();
    let request =
        GetRequest { bucket: "plain".into(), key: "key".into(), version: Some(kept.version), ..GetRequest::default() };
    assert_eq!(get_with(&archive, request).await.unwrap(), b"acknowledged");
}

#[tokio::test]
async fn a_cut_extension_of_the_key_table_does_not_hinder_a_rebuild() {
    let world = World::sized(5, 32 * MIB, 256 << 10);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "plain", NewBucket::default()).await.unwrap();
    let per_part = (256 << 10) - FIRST as usize;
    let count = per_part / ENTRY + 10;
    for n in 0..count {
        put(&archive, "plain", &format!("key {n}"), b"x").await.unwrap();
    }
    let rows = archive.store().segments().rows();
    let is_part = |number: u32| matches!(rows.get(&number), Some(row) if row.usage == crate::record::segment::SegmentUse::Keys(1));
    assert_eq!((1..u32::MAX).take(1000).filter(|number| is_part(*number)).count(), 1);
    // The header of an extension that got no further, before and behind the part.
    let free = archive.store().segments().take(false).unwrap();
    let identity = archive.store().identity().look(|identity| identity.store);
    let header = SegmentHeader { store: identity, number: free, kind: SegmentKind::Keys, ordinal: 1, incarnation: 1 };
    let block = vec![Buffer::copy_of(&header.encode()).freeze()];
    archive.store().volume().write(archive.store().segments().start(free), block, true).await.unwrap();
    drop(archive);
    let (_world, archive, report) = rebuilt(world).await;
    assert!(report.losses.is_empty(), "{report:?}");
    for n in (0..count).rev().take(20) {
        assert_eq!(get(&archive, "plain", &format!("key {n}")).await.unwrap(), b"x");
    }
}

#[tokio::test]
async fn a_footer_does_not_count_what_could_not_be_written() {
    let world = World::sized(6, 32 * MIB, 256 << 10);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "plain", NewBucket::default()).await.unwrap();
    let (open, _) = archive.store().appender().tail().unwrap();
    put(&archive, "plain", "key", &content(1, 20_000)).await.unwrap();
    world.bench.set_no_new(true);
    while archive.store().appender().tail().is_some_and(|(segment, _)| segment == open) {
        put(&archive, "plain", "more", &content(2, 50_000)).await.unwrap_err();
    }
    world.bench.set_no_new(false);
    for n in 0..10 {
        put(&archive, "plain", &format!("later {n}"), &content(n, 50_000)).await.unwrap();
    }
    let size = archive.store().segments().size;
    let row = archive.store().segments().rows()[&open];
    let end = archive.store().segments().start(open) + u64::from(size - BLOCK);
    let footer =
        SegmentFooter::decode(&archive.store().volume().read(end, BLOCK as usize).await.unwrap(), row.incarnation);
    let used = footer.expect("a footer").used;
    assert!(used < row.used / 2, "{used} of {}", row.used);
    drop(archive);
    let (_world, archive, report) = rebuilt(world).await;
    assert!(report.losses.is_empty(), "{report:?}");
    assert!(get(&archive, "plain", "key").await.unwrap() == content(1, 20_000));
}

/// A slot of the key table that is given out without room for it would be lost, and the table would
/// have to grow by all of them at once.
#[tokio::test]
async fn refused_writes_use_up_no_key_slots() {
    let world = World::sized(6, 3 * MIB, 256 << 10);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "full", NewBucket { versioning: true, ..NewBucket::default() }).await.unwrap();
    let mut stored = 0;
    while put(&archive, "full", &format!("key {stored}"), &content(stored, 20_000)).await.is_ok() {
        stored += 1;
    }
    // The first part of the table is used up.
    while archive.store().keys().take(false).await.is_ok() {}
    for n in 0..6000 {
        let refused = put(&archive, "full", &format!("refused {n}"), b"small").await;
        assert!(matches!(refused, Err(ArchiveError::NoSpace(_))), "{refused:?}");
    }
    archive.delete(&admin(), delete("full", "key 0", None)).await.expect("a marker takes the reserve");
}
