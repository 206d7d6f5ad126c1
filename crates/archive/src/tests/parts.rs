//! Content of parts that are replaced or left out of a completion leaves the catalog with their
//! rows.

use std::collections::BTreeSet;

use stele_catalog::{Direction, KeyRange};

use super::*;
use crate::objects::multipart::PART_SIZE_MIN;
use crate::record::{EXTENTS, decode, part::PartRow};
use crate::testing::MIB;

const LONG: usize = 2_000_000;

async fn part(archive: &Archive, upload: &str, number: u32, data: &[u8]) -> CompletedPart {
    let (bucket, key, upload) = ("bucket".into(), "key".into(), upload.to_string());
    let request = PartRequest { bucket, key, upload, number, ..PartRequest::default() };
    let mut writer = archive.put_part(&admin(), request).await.unwrap();
    writer.write(bytes::Bytes::copy_from_slice(data)).await.unwrap();
    let info = writer.finish(Expected::default()).await.unwrap();
    CompletedPart { number, etag: info.etag.to_string(), checksums: info.checksums }
}

/// Begins an object, in a bucket of its own, and uploads its parts under these numbers.
async fn uploaded(archive: &Archive, data: &[u8], numbers: [u32; 3]) -> CompleteRequest {
    archive.create_bucket(&admin(), "bucket", NewBucket::default()).await.unwrap();
    let new = NewUpload { bucket: "bucket".into(), key: "key".into(), ..NewUpload::default() };
    let upload = archive.create_upload(&admin(), new).await.unwrap().upload;
    let mut parts = Vec::new();
    for (number, piece) in numbers.into_iter().zip(data.chunks(PART_SIZE_MIN as usize)) {
        parts.push(part(archive, &upload, number, piece).await);
    }
    CompleteRequest { bucket: "bucket".into(), key: "key".into(), upload, parts, ..CompleteRequest::default() }
}

/// The streams that have extents in rows of their own, and those that parts name.
fn streams(world: &World) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let snapshot = world.catalog.snapshot().unwrap();
    let rows = |table| snapshot.range(table, &KeyRange::all(), 10_000, Direction::Forward).unwrap();
    let stored = rows(EXTENTS).into_iter().map(|(key, _)| u64::from_be_bytes(*key.first_chunk().unwrap())).collect();
    let named = rows(crate::record::PARTS).into_iter().filter_map(|(key, value)| {
        let row: PartRow = decode(crate::record::PARTS, &key, &value).unwrap();
        row.stream.extents.is_none().then_some(row.stream.number)
    });
    (stored, named.collect())
}

/// Bytes that segments count as live, less those that rows name.
fn drift(archive: &Archive) -> i64 {
    let counted: i64 = archive.store().segments().rows().values().map(|row| row.live).sum();
    counted - archive.store().live_by_segment().unwrap().values().sum::<u64>() as i64
}

#[tokio::test]
async fn extents_of_parts_go_with_the_rows_of_the_parts() {
    let world = World::sized(1, 64 * MIB, 256 << 10);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "bucket", NewBucket::default()).await.unwrap();
    let new = NewUpload { bucket: "bucket".into(), key: "key".into(), ..NewUpload::default() };
    let upload = archive.create_upload(&admin(), new).await.unwrap().upload;
    let before = drift(&archive);
    for number in [1, 2, 3] {
        part(&archive, &upload, number, &content(number.into(), LONG)).await;
    }
    let (stored, named) = streams(&world);
    assert_eq!((stored.len(), named.len()), (3, 3), "each part has rows of extents");
    let listed = part(&archive, &upload, 1, &content(4, LONG)).await;
    part(&archive, &upload, 2, b"short").await;
    let (stored, named) = streams(&world);
    assert_eq!(stored, named, "a replaced part");
    assert_eq!((stored.len(), drift(&archive)), (2, before));
    let (bucket, key) = ("bucket".into(), "key".into());
    let completion = CompleteRequest { bucket, key, upload, parts: vec![listed], ..CompleteRequest::default() };
    archive.complete_upload(&admin(), completion).await.unwrap();
    let (stored, named) = streams(&world);
    assert_eq!(stored, named, "parts that were not listed");
    assert_eq!((stored.len(), drift(&archive)), (1, before));
    // Power fails before any background work.
    drop(archive);
    let archive = world.open().await;
    assert_eq!(get(&archive, "bucket", "key").await.unwrap(), content(4, LONG));
    archive
        .delete(&admin(), DeleteRequest { bucket: "bucket".into(), key: "key".into(), ..Default::default() })
        .await
        .unwrap();
    while archive.step().await.unwrap().more {}
    assert_eq!(streams(&world), Default::default());
}

#[tokio::test]
async fn an_object_of_parts_without_a_checksum_gets_one() {
    let world = World::sized(4, 128 * MIB, 256 << 10);
    let archive = world.create().await;
    let data = content(1, 2 * PART_SIZE_MIN as usize + 777);
    let completion = uploaded(&archive, &data, [1, 2, 3]).await;
    let sums = archive.complete_upload(&admin(), completion).await.unwrap().checksums;
    let whole = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &data);
    assert_eq!(sums.len(), 1);
    assert_eq!((sums[0].algorithm, sums[0].value.as_slice()), (Algorithm::Crc64Nvme, &whole.to_be_bytes()[..]));
    assert_eq!(sums[0].parts, None, "it is that of the whole object");
}

/// Clients read part after part up to their number, and look up the checksum of each by the same
/// number.
#[tokio::test]
async fn parts_of_an_object_count_without_gaps() {
    let world = World::sized(7, 128 * MIB, 256 << 10);
    let archive = world.create().await;
    let data = content(1, 2 * PART_SIZE_MIN as usize + 777);
    let completion = uploaded(&archive, &data, [3, 5, 900]).await;
    archive.complete_upload(&admin(), completion).await.unwrap();
    let get = |range| GetRequest { bucket: "bucket".into(), key: "key".into(), range, ..GetRequest::default() };
    let listed =
        async |after, limit| archive.object_parts(&admin(), get(ByteRange::Whole), after, limit).await.unwrap();
    let (all, more) = listed(0, 10).await;
    assert_eq!((all.iter().map(|part| part.number).collect::<Vec<_>>(), more), (vec![1, 2, 3], false));
    for part in &all {
        let (info, range) = archive.head(&admin(), get(ByteRange::Part { number: part.number })).await.unwrap();
        assert_eq!((range.end - range.start, &info.checksums), (part.size, &part.checksums), "{part:?}");
    }
    let (first, more) = listed(0, 2).await;
    assert_eq!((first.len(), more), (2, true));
    let (rest, more) = listed(2, 2).await;
    assert_eq!((rest.len(), rest[0].number, more), (1, 3, false));
    assert!(archive.head(&admin(), get(ByteRange::Part { number: 5 })).await.is_err());
}

#[tokio::test]
async fn an_upload_that_took_longer_than_its_retention_is_completed() {
    let world = World::sized(3, 64 * MIB, 256 << 10);
    let archive = world.create().await;
    let locked = NewBucket { object_lock: true, ..NewBucket::default() };
    archive.create_bucket(&admin(), "bucket", locked).await.unwrap();
    let until = archive.store().later_now().plus_days(1);
    let retention = Some(Retention { mode: RetentionMode::Governance, until });
    let new = NewUpload { bucket: "bucket".into(), key: "key".into(), retention, ..NewUpload::default() };
    let upload = archive.create_upload(&admin(), new).await.unwrap().upload;
    let listed = part(&archive, &upload, 1, b"short").await;
    world.stage.pass(2 * 86_400_000);
    while archive.step().await.unwrap().more {}
    let (bucket, key) = ("bucket".into(), "key".into());
    let completion = CompleteRequest { bucket, key, upload, parts: vec![listed], ..CompleteRequest::default() };
    let stored = archive.complete_upload(&admin(), completion).await.unwrap();
    assert_eq!(stored.retention, None);
}
