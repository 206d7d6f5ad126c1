//! The room that parts of unfinished uploads take, and how the quota judges them.

use std::sync::Arc;

use stele_catalog::{MemoryCatalog, Transaction};

use super::*;
use crate::record::settings::{IDENTITY, IdentityRow};
use crate::record::{SETTINGS, USAGE, encode, fetch};
use crate::state::usage::Counter;
use crate::testing::{MIB, check_counts, put_as};

const SEGMENT: u64 = 256 << 10;
/// The key of a file in a share, in the archive.
const FILE: &str = "0000000000000007";

/// A store with one bucket of this name.
async fn store(world: &World, new: NewBucket) -> Archive {
    let archive = world.create().await;
    archive.create_bucket(&admin(), "bucket", new).await.unwrap();
    archive
}

fn limited(mib: u64) -> NewBucket {
    NewBucket { quota: bytes(mib), ..NewBucket::default() }
}

fn bytes(mib: u64) -> Quota {
    Quota { bytes: Some(mib * MIB), versions: None }
}

async fn set_quota(archive: &Archive, quota: Quota) {
    archive.change_bucket(&admin(), "bucket", BucketChange::Quota(quota)).await.unwrap();
}

async fn begin(archive: &Archive, caller: &Caller, key: &str) -> UploadInfo {
    let new = NewUpload { bucket: "bucket".into(), key: key.into(), ..NewUpload::default() };
    archive.create_upload(caller, new).await.unwrap()
}

/// Stores a part of so many MiB. `told`: its length is known before its body comes.
async fn part(
    archive: &Archive,
    caller: &Caller,
    upload: &UploadInfo,
    number: u32,
    mib: u64,
    told: bool,
) -> Result<CompletedPart> {
    let data = content(number.into(), (mib * MIB) as usize);
    let request = PartRequest {
        bucket: "bucket".into(),
        key: upload.key.clone(),
        upload: upload.upload.clone(),
        number,
        length: told.then_some(data.len() as u64),
        ..PartRequest::default()
    };
    let mut writer = archive.put_part(caller, request).await?;
    writer.write(data.into()).await?;
    let info = writer.finish(Expected::default()).await?;
    Ok(CompletedPart { number, etag: info.etag.to_string(), checksums: info.checksums })
}

async fn complete(
    archive: &Archive,
    caller: &Caller,
    upload: &UploadInfo,
    parts: Vec<CompletedPart>,
) -> Result<ObjectInfo> {
    let request = CompleteRequest {
        bucket: "bucket".into(),
        key: upload.key.clone(),
        upload: upload.upload.clone(),
        parts,
        ..CompleteRequest::default()
    };
    archive.complete_upload(caller, request).await
}

async fn abort(archive: &Archive, caller: &Caller, upload: &UploadInfo) {
    archive.abort_upload(caller, "bucket", &upload.key, &upload.upload).await.unwrap();
}

/// MiB of versions and of unfinished uploads. The counts are those of the rows.
async fn used(archive: &Archive) -> (u64, u64) {
    check_counts(archive);
    let usage = archive.usage(&admin(), "bucket").await.unwrap();
    (usage.bytes / MIB, usage.unfinished / MIB)
}

fn beyond<T: std::fmt::Debug>(result: Result<T>, mib: u64) {
    let Err(ArchiveError::QuotaExceeded { of, limit }) = &result else { panic!("{result:?}") };
    assert_eq!((of.as_str(), limit.as_str()), ("bucket `bucket`", format!("{} bytes", mib * MIB).as_str()));
}

#[tokio::test]
async fn a_part_counts_to_the_quota_when_it_is_stored() {
    let world = World::sized(1, 96 * MIB, SEGMENT);
    let archive = store(&world, limited(8)).await;
    let (upload, other) = (begin(&archive, &admin(), "a").await, begin(&archive, &admin(), "b").await);
    for told in [false, true] {
        part(&archive, &admin(), &upload, 1, 5, told).await.unwrap();
        assert_eq!(used(&archive).await, (0, 5), "a part replaces itself");
        beyond(part(&archive, &admin(), &upload, 2, 5, told).await, 8);
        beyond(part(&archive, &admin(), &other, 1, 5, told).await, 8);
        beyond(part(&archive, &admin(), &upload, 1, 9, told).await, 8);
        assert_eq!(used(&archive).await, (0, 5), "nothing of a refused part counts");
    }
    beyond(put(&archive, "bucket", "object", &content(9, 4 << 20)).await, 8);
    put(&archive, "bucket", "object", &content(9, 3 << 20)).await.unwrap();
    assert_eq!(used(&archive).await, (3, 5));
    // One that is replaced makes room for the difference alone.
    part(&archive, &admin(), &upload, 1, 4, true).await.unwrap();
    beyond(part(&archive, &admin(), &upload, 2, 2, false).await, 8);
    part(&archive, &admin(), &upload, 2, 1, false).await.unwrap();
    assert_eq!(used(&archive).await, (3, 5));
    abort(&archive, &admin(), &upload).await;
    assert_eq!(used(&archive).await, (3, 0), "an abort gives the room back");
    part(&archive, &admin(), &other, 1, 5, true).await.unwrap();
    set_quota(&archive, bytes(4)).await;
    beyond(part(&archive, &admin(), &other, 2, 1, false).await, 4);
}

#[tokio::test]
async fn a_completion_counts_each_byte_once() {
    let world = World::sized(2, 128 * MIB, SEGMENT);
    let archive = store(&world, limited(12)).await;
    let upload = begin(&archive, &admin(), "a").await;
    let mut parts = Vec::new();
    for (number, mib) in [(1, 5), (2, 5), (3, 1)] {
        parts.push(part(&archive, &admin(), &upload, number, mib, false).await.unwrap());
    }
    assert_eq!(used(&archive).await, (0, 11));
    parts.pop();
    complete(&archive, &admin(), &upload, parts.clone()).await.unwrap();
    assert_eq!(used(&archive).await, (10, 0), "the part that was left out counts no longer");
    complete(&archive, &admin(), &upload, parts).await.unwrap();
    assert_eq!(used(&archive).await, (10, 0), "a repeated completion");
    // The former version keeps its room until the completion.
    let upload = begin(&archive, &admin(), "a").await;
    beyond(part(&archive, &admin(), &upload, 1, 3, true).await, 12);
    set_quota(&archive, bytes(13)).await;
    let again = part(&archive, &admin(), &upload, 1, 3, true).await.unwrap();
    assert_eq!(used(&archive).await, (10, 3));
    complete(&archive, &admin(), &upload, vec![again]).await.unwrap();
    assert_eq!(used(&archive).await, (3, 0));
    while archive.step().await.unwrap().more {}
    assert_eq!(used(&archive).await, (3, 0), "disposals");
    // As before parts counted: what the quota has no room for any more is not completed.
    let upload = begin(&archive, &admin(), "b").await;
    let late = part(&archive, &admin(), &upload, 1, 2, true).await.unwrap();
    set_quota(&archive, bytes(4)).await;
    beyond(complete(&archive, &admin(), &upload, vec![late]).await, 4);
    assert_eq!(used(&archive).await, (3, 2));
}

#[tokio::test]
async fn the_room_of_an_upload_comes_back_with_each_of_its_ends() {
    let world = World::sized(3, 96 * MIB, SEGMENT);
    let archive = store(&world, NewBucket::default()).await;
    let rule = LifecycleRule {
        id: "old".into(),
        enabled: true,
        filter: LifecycleFilter::default(),
        expiration: None,
        noncurrent: None,
        abort_days: Some(1),
    };
    let aged = begin(&archive, &admin(), "aged").await;
    part(&archive, &admin(), &aged, 1, 2, true).await.unwrap();
    archive.change_bucket(&admin(), "bucket", BucketChange::Lifecycle(Some(vec![rule]))).await.unwrap();
    world.stage.pass(3 * 86_400_000);
    while archive.step().await.unwrap().more {}
    assert_eq!(used(&archive).await, (0, 0), "a lifecycle rule");
    let left = begin(&archive, &admin(), "left").await;
    part(&archive, &admin(), &left, 1, 2, true).await.unwrap();
    assert_eq!(used(&archive).await, (0, 2));
    let bucket = archive.store().buckets().by_name("bucket").unwrap();
    archive.delete_bucket(&admin(), "bucket").await.unwrap();
    let counts = bucket.counts(&*archive.store().snapshot().unwrap()).unwrap();
    assert_eq!(counts, Default::default(), "the bucket's removal");
}

#[tokio::test]
async fn a_rebuild_counts_what_it_finds() {
    let mut world = World::sized(4, 96 * MIB, SEGMENT);
    let archive = store(&world, limited(12)).await;
    put(&archive, "bucket", "object", &content(9, 3 << 20)).await.unwrap();
    let (whole, left) = (begin(&archive, &admin(), "whole").await, begin(&archive, &admin(), "left").await);
    let listed = part(&archive, &admin(), &whole, 1, 4, true).await.unwrap();
    complete(&archive, &admin(), &whole, vec![listed]).await.unwrap();
    part(&archive, &admin(), &left, 1, 5, true).await.unwrap();
    assert_eq!(used(&archive).await, (7, 5));
    archive.close().await.unwrap();
    drop(archive);
    world.catalog = Arc::new(MemoryCatalog::new());
    let (archive, _) = Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap();
    // Uploads that were not completed are not found again.
    assert_eq!(used(&archive).await, (7, 0));
    let upload = begin(&archive, &admin(), "next").await;
    beyond(part(&archive, &admin(), &upload, 1, 6, true).await, 12);
    part(&archive, &admin(), &upload, 1, 5, true).await.unwrap();
    assert_eq!(used(&archive).await, (7, 5));
}

/// The catalog as a version leaves it that does not count parts: it changes `v` and `b`, and writes
/// the identity without the field that it does not know.
async fn leave_as_earlier(world: &World, archive: &Archive, counters: Option<[i64; 2]>) {
    let number = archive.store().buckets().by_name("bucket").unwrap().number;
    let snapshot = world.catalog.snapshot().unwrap();
    let identity = fetch::<IdentityRow>(&*snapshot, SETTINGS, IDENTITY).unwrap().unwrap();
    let identity = IdentityRow { parts_counted: None, ..identity };
    let mut transaction = Transaction::new().put(SETTINGS, IDENTITY, encode(&identity));
    for (at, counter) in [Counter::Held, Counter::Gateway].into_iter().enumerate() {
        let key = counter.key(number);
        transaction = match counters {
            Some(counts) => transaction.put(USAGE, key, counts[at].to_be_bytes().to_vec()),
            None => transaction.delete(USAGE, key),
        };
    }
    world.catalog.commit(transaction).await.unwrap();
}

#[tokio::test]
async fn a_catalog_without_counts_of_parts_is_counted_when_it_opens() {
    // Never counted, and counted by this version before the earlier one ran again.
    for counters in [None, Some([99, -5])] {
        let world = World::sized(5, 96 * MIB, SEGMENT);
        let archive = store(&world, limited(12)).await;
        put(&archive, "bucket", "object", &content(9, 3 << 20)).await.unwrap();
        let upload = begin(&archive, &admin(), "a").await;
        for number in [1, 2] {
            part(&archive, &admin(), &upload, number, 4, true).await.unwrap();
        }
        archive.close().await.unwrap();
        leave_as_earlier(&world, &archive, counters).await;
        drop(archive);
        let options = Options { read_only: true, ..world.options.clone() };
        let reading = Archive::open(world.foundation(), options).await.unwrap();
        let usage = reading.usage(&admin(), "bucket").await.unwrap();
        assert_eq!((usage.bytes, usage.unfinished), (3 * MIB, 8 * MIB), "it reads the rows");
        drop(reading);
        let archive = world.open().await;
        assert_eq!(used(&archive).await, (3, 8));
        beyond(part(&archive, &admin(), &upload, 3, 2, false).await, 12);
        abort(&archive, &admin(), &upload).await;
        assert_eq!(used(&archive).await, (3, 0));
        drop(archive);
        // The counters are not written anew: they are as they were left.
        let archive = world.open().await;
        assert_eq!(used(&archive).await, (3, 0));
    }
}

fn gateway() -> Caller {
    Caller { gateway: true, ..admin() }
}

async fn put_file(archive: &Archive, key: &str, mib: u64) -> Result<ObjectInfo> {
    let request = PutRequest { bucket: "bucket".into(), key: key.into(), ..PutRequest::default() };
    put_as(archive, &gateway(), request, &content(mib, (mib * MIB) as usize)).await
}

#[tokio::test]
async fn a_share_is_explained_and_removed_as_a_share() {
    let world = World::sized(8, 96 * MIB, SEGMENT);
    let archive = store(&world, NewBucket { object_lock: true, ..NewBucket::default() }).await;
    archive.change_bucket(&admin(), "bucket", BucketChange::Share).await.unwrap();
    put_file(&archive, FILE, 1).await.unwrap();
    let why = archive.why(&gateway(), "bucket", FILE, None).await.unwrap().reasons.join("\n");
    assert!(why.contains("in a share no delete adds a delete marker") && !why.contains("always allowed"), "{why}");
    let refused = archive.delete_bucket(&admin(), "bucket").await.unwrap_err().to_string();
    assert!(refused.contains("stele share remove bucket") && !refused.contains("not open"), "{refused}");
}

/// A quota that takes a file as one body takes it in parts too, whatever it replaces and whatever
/// else is under way.
#[tokio::test]
async fn a_file_that_fits_is_archived_in_parts_whatever_it_replaces() {
    let world = World::sized(6, 128 * MIB, SEGMENT);
    let archive = store(&world, limited(16)).await;
    archive.change_bucket(&admin(), "bucket", BucketChange::Share).await.unwrap();
    let gateway = gateway();
    put_file(&archive, FILE, 10).await.unwrap();
    let upload = begin(&archive, &gateway, FILE).await;
    let mut parts = Vec::new();
    for (number, mib) in [(1, 5), (2, 5), (3, 1)] {
        parts.push(part(&archive, &gateway, &upload, number, mib, number == 2).await.unwrap());
    }
    assert_eq!(used(&archive).await, (10, 11), "more than the quota, until the former version goes");
    // Other files, and clients of S3, have the room that they would have beside one body.
    put_file(&archive, "0000000000000008", 2).await.unwrap();
    let client = begin(&archive, &gateway, "/path").await;
    beyond(part(&archive, &gateway, &client, 1, 5, true).await, 16);
    part(&archive, &gateway, &client, 1, 3, true).await.unwrap();
    assert_eq!(used(&archive).await, (12, 14));
    complete(&archive, &gateway, &upload, parts).await.unwrap();
    assert_eq!(used(&archive).await, (13, 3));
    // What could not be completed is refused with the first part that is too much.
    let larger = begin(&archive, &gateway, FILE).await;
    for (number, told) in [(1, true), (2, false)] {
        part(&archive, &gateway, &larger, number, 5, told).await.unwrap();
    }
    beyond(part(&archive, &gateway, &larger, 3, 2, true).await, 16);
    beyond(part(&archive, &gateway, &larger, 3, 2, false).await, 16);
    abort(&archive, &gateway, &larger).await;
    beyond(put_file(&archive, FILE, 12).await, 16);
    abort(&archive, &gateway, &client).await;
    assert_eq!(used(&archive).await, (13, 0));
    put_file(&archive, FILE, 12).await.unwrap();
}

/// A catalog of an earlier version may hold uploads of all kinds.
#[tokio::test]
async fn uploads_of_the_gateway_are_counted_apart_when_a_catalog_opens() {
    let world = World::sized(7, 96 * MIB, SEGMENT);
    let archive = store(&world, NewBucket::default()).await;
    archive.change_bucket(&admin(), "bucket", BucketChange::Share).await.unwrap();
    for (key, mib) in [(FILE, 2), ("/path", 1)] {
        let upload = begin(&archive, &gateway(), key).await;
        part(&archive, &gateway(), &upload, 1, mib, true).await.unwrap();
    }
    let counts = |archive: &Archive| {
        let store = archive.store();
        store.buckets().by_name("bucket").unwrap().counts(&*store.snapshot().unwrap()).unwrap()
    };
    let before = counts(&archive);
    assert_eq!((before.held as u64, before.gateway as u64), (MIB, 2 * MIB));
    leave_as_earlier(&world, &archive, None).await;
    drop(archive);
    let archive = world.open().await;
    assert_eq!(counts(&archive), before);
    check_counts(&archive);
}

/// Power fails at each write of a part that replaces another, of a completion, and of an abort.
#[tokio::test]
async fn the_counts_are_those_of_the_rows_through_power_cuts() {
    for act in 0..3 {
        for writes in 0..12 {
            let world = World::sized(8, 64 * MIB, SEGMENT);
            let archive = store(&world, limited(6)).await;
            let upload = begin(&archive, &admin(), "a").await;
            let listed = part(&archive, &admin(), &upload, 1, 1, true).await.unwrap();
            part(&archive, &admin(), &upload, 2, 2, true).await.unwrap();
            world.bench.cut_after(writes);
            let _ = match act {
                0 => part(&archive, &admin(), &upload, 2, 1, true).await.map(drop),
                1 => complete(&archive, &admin(), &upload, vec![listed]).await.map(drop),
                _ => archive.abort_upload(&admin(), "bucket", "a", &upload.upload).await,
            };
            drop(archive);
            world.bench.power_on();
            let archive = world.open().await;
            let (bytes, unfinished) = used(&archive).await;
            let possible = match act {
                0 => [(0, 3), (0, 2)],
                1 => [(0, 3), (1, 0)],
                _ => [(0, 3), (0, 0)],
            };
            assert!(possible.contains(&(bytes, unfinished)), "act {act}, {writes} writes: {bytes}, {unfinished}");
        }
    }
}
