//! What an access key owns over all buckets, and its quota.

use stele_catalog::Transaction;

use super::*;
use crate::record::settings::{IDENTITY, IdentityRow};
use crate::record::{OWNED, SETTINGS, encode, fetch};
use crate::state::owned::counters;
use crate::testing::{MIB, check_counts, put_as};

const DAY: u64 = 86_400_000;

/// A store with a bucket without versions, one with versions, and one with Object Lock and deletion
/// at the end.
async fn store(world: &World) -> Archive {
    let archive = world.create().await;
    for (name, versioning, object_lock) in [("plain", false, false), ("versioned", true, false), ("locked", true, true)]
    {
        let expiry = if object_lock { ExpiryAction::Delete } else { ExpiryAction::Keep };
        let new = NewBucket { versioning, object_lock, expiry, ..NewBucket::default() };
        archive.create_bucket(&admin(), name, new).await.unwrap();
    }
    archive
}

/// A key for everything, with this quota, and the caller that it makes.
async fn key(archive: &Archive, quota: Quota) -> (String, Caller) {
    let mut rights = Rights::user("", "");
    rights.grants[0].bucket = None;
    rights.grants[0].access = Access::ALL.into();
    let made = archive.create_limited_access_key(&admin(), "scanner", rights, KeyLife::Endless, quota).await.unwrap();
    let caller = archive.credentials(&made.id).await.unwrap().caller;
    (made.id, caller)
}

fn bytes(limit: u64) -> Quota {
    Quota { bytes: Some(limit), versions: None }
}

async fn store_one(archive: &Archive, caller: &Caller, bucket: &str, key: &str, size: usize) -> Result<ObjectInfo> {
    let request = PutRequest { bucket: bucket.into(), key: key.into(), ..PutRequest::default() };
    put_as(archive, caller, request, &content(size as u64, size)).await
}

async fn remove(archive: &Archive, caller: &Caller, info: &ObjectInfo) {
    let request = DeleteRequest {
        bucket: info.bucket.clone(),
        key: info.key.clone(),
        version: Some(info.version),
        ..DeleteRequest::default()
    };
    archive.delete(caller, request).await.unwrap();
}

/// Versions and bytes that a key owns. All counters are those of the rows.
async fn owns(archive: &Archive, id: &str) -> (u64, u64) {
    check_counts(archive);
    let keys = archive.list_access_keys(&admin()).await.unwrap();
    let owned = keys.into_iter().find(|key| key.id == id).unwrap().owned;
    (owned.versions, owned.bytes)
}

#[track_caller]
fn beyond<T: std::fmt::Debug>(result: Result<T>, id: &str, limit: &str) {
    let Err(error @ ArchiveError::QuotaExceeded { .. }) = &result else { panic!("{result:?}") };
    assert_eq!(error.to_string(), format!("access key {id} would exceed its quota of {limit}; nothing was stored"));
}

#[tokio::test]
async fn a_quota_of_bytes_is_over_all_buckets() {
    let world = World::new(1);
    let archive = store(&world).await;
    let (id, caller) = key(&archive, bytes(100)).await;
    let (other, others) = key(&archive, Quota::default()).await;
    store_one(&archive, &caller, "plain", "a", 40).await.unwrap();
    let second = store_one(&archive, &caller, "versioned", "a", 60).await.unwrap();
    beyond(store_one(&archive, &caller, "locked", "a", 1).await, &id, "100 bytes");
    assert_eq!(owns(&archive, &id).await, (2, 100));
    // What replaces a version of the same key adds the difference alone.
    store_one(&archive, &caller, "plain", "a", 30).await.unwrap();
    beyond(store_one(&archive, &caller, "plain", "a", 41).await, &id, "100 bytes");
    assert_eq!(owns(&archive, &id).await, (2, 90));
    // Another key takes the version over, and the room with it.
    store_one(&archive, &others, "plain", "a", 500).await.unwrap();
    assert_eq!((owns(&archive, &id).await, owns(&archive, &other).await), ((1, 60), (1, 500)));
    beyond(store_one(&archive, &caller, "plain", "a", 41).await, &id, "100 bytes");
    // Nothing else is judged: neither what a caller without a key stores, nor deletions.
    store_one(&archive, &admin(), "versioned", "b", 1000).await.unwrap();
    remove(&archive, &others, &second).await;
    assert_eq!(owns(&archive, &id).await, (0, 0));
    // The refusal is recorded with its key.
    let page = archive.audit_records(&admin(), 1, 1000).await.unwrap();
    let refused = |record: &&AuditRecord| record.refused.as_deref().is_some_and(|why| why.contains("quota of 100"));
    assert!(page.iter().filter(refused).all(|record| record.actor == format!("key {id}")));
    assert_eq!(page.iter().filter(refused).count(), 3);
}

#[tokio::test]
async fn a_quota_of_versions_counts_markers_and_never_refuses_one() {
    let world = World::new(2);
    let archive = store(&world).await;
    let (id, caller) = key(&archive, Quota { bytes: None, versions: Some(2) }).await;
    let first = store_one(&archive, &caller, "versioned", "a", 1).await.unwrap();
    store_one(&archive, &caller, "plain", "a", 1).await.unwrap();
    beyond(store_one(&archive, &caller, "versioned", "a", 1).await, &id, "2 versions");
    store_one(&archive, &caller, "plain", "a", 9).await.unwrap();
    let marker = DeleteRequest { bucket: "versioned".into(), key: "a".into(), ..DeleteRequest::default() };
    archive.delete(&caller, marker).await.unwrap();
    assert_eq!(owns(&archive, &id).await, (3, 10));
    remove(&archive, &caller, &first).await;
    beyond(store_one(&archive, &caller, "versioned", "a", 1).await, &id, "2 versions");
    let more = KeyChange { quota_versions: Some(Some(3)), ..KeyChange::default() };
    let info = archive.change_key(&admin(), &id, more).await.unwrap();
    assert_eq!((info.quota.versions, info.owned.versions), (Some(3), 2));
    store_one(&archive, &caller, "versioned", "a", 1).await.unwrap();
}

#[tokio::test]
async fn parts_count_to_the_key_that_began_their_upload() {
    let world = World::sized(3, 96 * MIB, 256 << 10);
    let archive = store(&world).await;
    let (id, caller) = key(&archive, bytes(12 * MIB)).await;
    let new = NewUpload { bucket: "versioned".into(), key: "large".into(), ..NewUpload::default() };
    let upload = archive.create_upload(&caller, new).await.unwrap();
    let part = async |number: u32, mib: u64, told: bool| -> Result<CompletedPart> {
        let data = content(number.into(), (mib * MIB) as usize);
        let request = PartRequest {
            bucket: "versioned".into(),
            key: "large".into(),
            upload: upload.upload.clone(),
            number,
            length: told.then_some(data.len() as u64),
            ..PartRequest::default()
        };
        let mut writer = archive.put_part(&caller, request).await?;
        writer.write(data.into()).await?;
        let info = writer.finish(Expected::default()).await?;
        Ok(CompletedPart { number, etag: info.etag.to_string(), checksums: info.checksums })
    };
    let first = part(1, 6, true).await.unwrap();
    let limit = format!("{} bytes", 12 * MIB);
    for told in [true, false] {
        beyond(part(2, 7, told).await, &id, &limit);
    }
    part(2, 6, false).await.unwrap();
    let second = part(2, 5, true).await.unwrap();
    assert_eq!(owns(&archive, &id).await, (0, 11 * MIB));
    part(3, 1, true).await.unwrap();
    // The third part is not listed, and goes.
    let request = CompleteRequest {
        bucket: "versioned".into(),
        key: "large".into(),
        upload: upload.upload.clone(),
        parts: vec![first, second],
        ..CompleteRequest::default()
    };
    archive.complete_upload(&caller, request).await.unwrap();
    assert_eq!(owns(&archive, &id).await, (1, 11 * MIB));
    let new = NewUpload { bucket: "plain".into(), key: "given up".into(), ..NewUpload::default() };
    let upload = archive.create_upload(&caller, new).await.unwrap();
    archive.abort_upload(&caller, "plain", "given up", &upload.upload).await.unwrap();
    assert_eq!(owns(&archive, &id).await, (1, 11 * MIB));
}

#[tokio::test]
async fn only_an_administrator_sets_a_quota_and_it_keeps_other_settings() {
    let world = World::new(4);
    let archive = store(&world).await;
    let (id, caller) = key(&archive, bytes(7)).await;
    let change = KeyChange { quota_bytes: Some(None), ..KeyChange::default() };
    let denied = archive.change_key(&caller, &id, change).await;
    assert!(matches!(denied, Err(ArchiveError::Denied(_))), "{denied:?}");
    let both = KeyChange { life: Some(KeyLife::For(30 * DAY)), quota_bytes: None, quota_versions: Some(Some(5)) };
    let info = archive.change_key(&admin(), &id, both).await.unwrap();
    assert!(info.expires.is_some());
    assert_eq!(info.quota, Quota { bytes: Some(7), versions: Some(5) });
    let narrowed = archive.narrow_access_key(&admin(), &id, Rights::user("plain", "")).await.unwrap();
    assert_eq!((narrowed.quota, narrowed.expires), (info.quota, info.expires));
    let info = archive.change_key(&admin(), &id, change).await.unwrap();
    assert_eq!((info.quota.bytes, info.expires), (None, narrowed.expires));
    let page = archive.audit_records(&admin(), 1, 1000).await.unwrap();
    let said =
        |record: &AuditRecord| record.detail.as_deref().is_some_and(|says| says.contains("quota in bytes: none"));
    assert!(page.iter().any(said), "{page:?}");
}

/// Expiration, a rebuild of the catalog and a restart leave the counters as the rows are.
#[tokio::test]
async fn what_a_key_owns_survives_expiry_and_a_rebuild() {
    let mut world = World::sized(5, 24 << 20, 256 << 10);
    let archive = store(&world).await;
    let (id, caller) = key(&archive, bytes(1000)).await;
    for n in 0..5 {
        let until = Timestamp(archive.store().later_now().0 + if n < 3 { DAY } else { 90 * DAY });
        let retention = Some(Retention { mode: RetentionMode::Compliance, until });
        let request = PutRequest { bucket: "locked".into(), key: n.to_string(), retention, ..PutRequest::default() };
        put_as(&archive, &caller, request, b"0123456789").await.unwrap();
    }
    assert_eq!(owns(&archive, &id).await, (5, 50));
    world.stage.pass(2 * DAY);
    assert_eq!(archive.step().await.unwrap().expired, 3);
    assert_eq!(owns(&archive, &id).await, (2, 20));
    archive.close().await.unwrap();
    drop(archive);
    world.catalog = std::sync::Arc::new(stele_catalog::MemoryCatalog::new());
    let (archive, _) = Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap();
    assert_eq!(owns(&archive, &id).await, (2, 20));
    beyond(store_one(&archive, &caller, "plain", "a", 981).await, &id, "1000 bytes");
}

/// As an earlier version of Stele leaves the catalog: it knows neither the counters nor the field.
#[tokio::test]
async fn a_catalog_of_an_earlier_version_is_counted_when_it_opens() {
    for counted in [None, Some(77i64)] {
        let world = World::new(6);
        let archive = store(&world).await;
        let (id, caller) = key(&archive, bytes(100)).await;
        store_one(&archive, &caller, "plain", "a", 40).await.unwrap();
        store_one(&archive, &caller, "versioned", "a", 50).await.unwrap();
        archive.close().await.unwrap();
        let snapshot = world.catalog.snapshot().unwrap();
        let identity = fetch::<IdentityRow>(&*snapshot, SETTINGS, IDENTITY).unwrap().unwrap();
        let identity = IdentityRow { owned_counted: None, ..identity };
        let mut transaction = Transaction::new().put(SETTINGS, IDENTITY, encode(&identity));
        // The counters are missing, or stale, and those of a key that owns nothing are left over.
        for key in counters(&id).into_iter().chain(counters("STELEGONE")) {
            transaction = match counted {
                Some(count) => transaction.put(OWNED, key, count.to_be_bytes().to_vec()),
                None => transaction.delete(OWNED, key),
            };
        }
        world.catalog.commit(transaction).await.unwrap();
        drop(archive);
        let archive = world.open().await;
        assert_eq!(owns(&archive, &id).await, (2, 90), "{counted:?}");
        beyond(store_one(&archive, &caller, "locked", "a", 11).await, &id, "100 bytes");
        store_one(&archive, &caller, "locked", "a", 10).await.unwrap();
    }
}
