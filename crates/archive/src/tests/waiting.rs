//! Requests that wait for a key's lock go by the bucket's settings of the moment at which they have
//! it.

use std::pin::pin;

use futures_util::poll;
use stele_catalog::Transaction;

use super::*;
use crate::retention::rules::Cause;
use crate::state::key_locks::KeyLock;
use crate::store::lookup::{self, Found};
use crate::testing::put_as;

const DAY: u64 = 86_400_000;

async fn bucket(world: &World, new: NewBucket) -> Archive {
    let archive = world.create().await;
    archive.create_bucket(&admin(), "bucket", new).await.unwrap();
    archive
}

fn locked(expiry: ExpiryAction) -> NewBucket {
    NewBucket { object_lock: true, expiry, ..NewBucket::default() }
}

/// The key's lock, as another request holds it.
async fn hold(archive: &Archive) -> KeyLock {
    let number = archive.store().buckets().by_name("bucket").unwrap().number;
    archive.store().lock(number, "key").await.unwrap()
}

async fn change(archive: &Archive, change: BucketChange) {
    archive.change_bucket(&admin(), "bucket", change).await.unwrap();
}

async fn put_governed(archive: &Archive, days: u64) -> ObjectInfo {
    let until = archive.store().compliance_now().plus_days(days);
    let retention = Some(Retention { mode: RetentionMode::Governance, until });
    let request = PutRequest { bucket: "bucket".into(), key: "key".into(), retention, ..PutRequest::default() };
    put_as(archive, &admin(), request, b"record").await.unwrap()
}

fn delete(version: Option<VersionId>) -> DeleteRequest {
    let (bucket, key) = ("bucket".into(), "key".into());
    DeleteRequest { bucket, key, version, bypass_governance: version.is_some(), etag: None }
}

async fn versions(archive: &Archive) -> Vec<ObjectInfo> {
    let request = ListVersionsRequest { bucket: "bucket".into(), limit: 1000, ..ListVersionsRequest::default() };
    archive.list_versions(&admin(), request).await.unwrap().versions
}

#[tokio::test]
async fn a_delete_that_waited_goes_by_versioning_as_it_is() {
    let world = World::new(1);
    let archive = bucket(&world, NewBucket::default()).await;
    put(&archive, "bucket", "key", b"kept").await.unwrap();
    let lock = hold(&archive).await;
    let caller = admin();
    let mut waiting = pin!(archive.delete(&caller, delete(None)));
    assert!(poll!(waiting.as_mut()).is_pending());
    change(&archive, BucketChange::Versioning(Versioning::Enabled)).await;
    drop(lock);
    let deleted = waiting.await.unwrap();
    assert!(deleted.delete_marker, "the bucket has had versioning since before the delete took place");
    let markers: Vec<bool> = versions(&archive).await.iter().map(|version| version.delete_marker).collect();
    assert_eq!(markers, [true, false]);
}

#[tokio::test]
async fn what_waited_obeys_a_protection_level_raised_meanwhile() {
    let world = World::new(2);
    let archive = bucket(&world, locked(ExpiryAction::Keep)).await;
    let stored = put_governed(&archive, 9).await;
    let lock = hold(&archive).await;
    let caller = admin();
    let until = archive.store().compliance_now().plus_days(1);
    let shorter = Some(Retention { mode: RetentionMode::Governance, until });
    let mut shortening = pin!(archive.set_retention(&caller, "bucket", "key", None, shorter, true));
    let mut deleting = pin!(archive.delete(&caller, delete(Some(stored.version))));
    assert!(poll!(shortening.as_mut()).is_pending() && poll!(deleting.as_mut()).is_pending());
    change(&archive, BucketChange::Protection(Protection::Compliance)).await;
    drop(lock);
    let (shortened, deleted) = (shortening.await, deleting.await);
    assert!(matches!(shortened, Err(ArchiveError::Retained { .. })), "{shortened:?}");
    assert!(matches!(deleted, Err(ArchiveError::Retained { .. })), "{deleted:?}");
    assert_eq!(archive.retention(&admin(), "bucket", "key", None).await.ok(), stored.retention);
}

#[tokio::test]
async fn expiration_that_waited_keeps_what_the_bucket_keeps_now() {
    let world = World::new(3);
    let archive = bucket(&world, locked(ExpiryAction::Delete)).await;
    put_governed(&archive, 1).await;
    world.stage.pass(2 * DAY);
    archive.store().compliance_now();
    let lock = hold(&archive).await;
    let mut step = pin!(archive.step());
    assert!(poll!(step.as_mut()).is_pending());
    change(&archive, BucketChange::Expiry(ExpiryAction::Keep)).await;
    drop(lock);
    let report = step.await.unwrap();
    assert_eq!((report.expired, report.alarms.len()), (0, 0), "{report:?}");
    assert_eq!(get(&archive, "bucket", "key").await.unwrap(), b"record");
}

fn found(archive: &Archive) -> Found {
    let bucket = archive.store().buckets().by_name("bucket").unwrap();
    lookup::newest(&*archive.store().snapshot().unwrap(), &bucket, "key").unwrap().unwrap()
}

#[tokio::test]
async fn no_removal_or_retention_commits_by_settings_of_before() {
    let world = World::new(4);
    let archive = bucket(&world, locked(ExpiryAction::Keep)).await;
    put_governed(&archive, 9).await;
    let store = archive.store();
    // Judged, and not committed before the settings change.
    let before = store.buckets().by_name("bucket").unwrap();
    let seen = found(&archive);
    let caller = admin();
    let judged = store.remove(Transaction::new(), &caller, &before, "key", &seen, Cause::Requested { bypass: true });
    let (removal, removed) = judged.await.unwrap();
    change(&archive, BucketChange::Protection(Protection::Compliance)).await;
    let event = || crate::audit::Event::new(&caller, Action::DeleteObject).object("bucket", "key");
    let lock = hold(&archive).await;
    let refused = store.commit_removal(removal, event(), removed, &before, "key", &seen, lock).await;
    assert!(matches!(refused, Err(ArchiveError::Conflict(_))), "{refused:?}");
    let lock = hold(&archive).await;
    let refused = store.change_version(&before, "key", &seen, lock, event(), |row| row.retention = None).await;
    assert!(matches!(refused, Err(ArchiveError::Conflict(_))), "{refused:?}");
    assert_eq!(get(&archive, "bucket", "key").await.unwrap(), b"record");
    assert_eq!(found(&archive).row.retention, seen.row.retention);
    // The refused change was noted; what was noted behind it states the version as it is.
    drop((store, archive));
    let world = World { catalog: std::sync::Arc::new(stele_catalog::MemoryCatalog::new()), ..world };
    let (archive, report) = Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap();
    assert_eq!(report.findings, Vec::<String>::new());
    assert_eq!(found(&archive).row.retention, seen.row.retention);
}

#[tokio::test]
async fn a_moved_note_of_the_bucket_stops_no_removal() {
    let world = World::new(5);
    let archive = bucket(&world, NewBucket::default()).await;
    put(&archive, "bucket", "key", b"gone").await.unwrap();
    let store = archive.store();
    let before = store.buckets().by_name("bucket").unwrap();
    let seen = found(&archive);
    let caller = admin();
    let judged = store.remove(Transaction::new(), &caller, &before, "key", &seen, Cause::Requested { bypass: false });
    let (removal, removed) = judged.await.unwrap();
    let buckets = store.lock(0, "").await.unwrap();
    store.write_bucket(before.number, before.row.clone(), Transaction::new(), None, buckets).await.unwrap().unwrap();
    let event = crate::audit::Event::new(&caller, Action::DeleteObject).object("bucket", "key");
    let lock = hold(&archive).await;
    store.commit_removal(removal, event, removed, &before, "key", &seen, lock).await.unwrap();
    assert!(versions(&archive).await.is_empty());
}
