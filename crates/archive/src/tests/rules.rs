//! Retention, guard and clock by the table; conditions; customer keys; multipart rules; long lists
//! of versions.

use super::*;
use crate::objects::multipart::PART_SIZE_MIN;
use crate::testing::put_as;

const DAY: u64 = 86_400_000;

async fn locked(world: &World, expiry: ExpiryAction) -> Archive {
    let archive = world.create().await;
    let new = NewBucket { object_lock: true, expiry, ..NewBucket::default() };
    archive.create_bucket(&admin(), "locked", new).await.unwrap();
    archive
}

async fn put_retained(archive: &Archive, key: &str, mode: RetentionMode, days: u64) -> VersionId {
    let until = archive.store().compliance_now().plus_days(days);
    let request = PutRequest {
        bucket: "locked".into(),
        key: key.into(),
        retention: Some(Retention { mode, until }),
        ..PutRequest::default()
    };
    put_as(archive, &admin(), request, b"record").await.unwrap().version
}

fn by_version(key: &str, version: VersionId, bypass: bool) -> DeleteRequest {
    DeleteRequest {
        bucket: "locked".into(),
        key: key.into(),
        version: Some(version),
        bypass_governance: bypass,
        ..DeleteRequest::default()
    }
}

#[tokio::test]
async fn the_guard_is_told_and_expiry_leaves_a_certificate() {
    let world = World::new(1);
    let archive = locked(&world, ExpiryAction::Delete).await;
    put(&archive, "locked", "free", b"free").await.unwrap();
    assert!(world.guard.told.lock().unwrap().is_empty());
    let version = put_retained(&archive, "kept", RetentionMode::Compliance, 3).await;
    assert_eq!(*world.guard.told.lock().unwrap(), [true]);
    let refused = archive.delete(&admin(), by_version("kept", version, true)).await;
    assert!(matches!(refused, Err(ArchiveError::Retained { .. })));
    let why = archive.why(&admin(), "locked", "kept", Some(version)).await.unwrap();
    assert!(why.protected && why.deletable_from == why.retained_until, "{why:?}");

    // A clock set ahead by a year moves nothing.
    let wall = world.stage.now().wall;
    world.stage.set_wall(Timestamp(wall.0 + 365 * DAY));
    let report = archive.step().await.unwrap();
    assert_eq!((report.expired, report.alarms.len()), (0, 1), "{report:?}");
    let refused = archive.delete(&admin(), by_version("kept", version, true)).await;
    assert!(matches!(refused, Err(ArchiveError::Retained { .. })));
    world.stage.set_wall(wall);
    world.stage.pass(4 * DAY);
    assert_eq!(archive.step().await.unwrap().expired, 0, "frozen until someone has looked");
    // Only the alarm that the officer was shown is accepted, and the audit log names it.
    for shown in [None, Some("the system clock is 1 s ahead")] {
        let refused = archive.accept_clock_alarm(&admin(), shown).await;
        assert!(matches!(refused, Err(ArchiveError::InvalidState(_))), "{shown:?}: {refused:?}");
    }
    let alarm = archive.clock().frozen.unwrap();
    archive.accept_clock_alarm(&admin(), Some(&alarm)).await.unwrap();
    let log = archive.audit_records(&admin(), 1, 1000).await.unwrap();
    let detail = log.last().unwrap().detail.clone().unwrap_or_default();
    assert!(detail.contains(&alarm), "{detail}");
    let again = archive.accept_clock_alarm(&admin(), Some(&alarm)).await;
    assert!(matches!(again, Err(ArchiveError::InvalidState(_))), "{again:?}");
    world.stage.pass(60_000);
    let report = archive.step().await.unwrap();
    assert_eq!((report.expired, report.unprotected), (1, true), "{report:?}");
    assert_eq!(*world.guard.told.lock().unwrap(), [true, false]);
    assert!(matches!(get(&archive, "locked", "kept").await, Err(ArchiveError::NoSuchKey { .. })));
    assert_eq!(get(&archive, "locked", "free").await.unwrap(), b"free");
    let tombstones = world
        .catalog
        .snapshot()
        .unwrap()
        .range(crate::record::TOMBSTONES, &stele_catalog::KeyRange::all(), 10, stele_catalog::Direction::Forward)
        .unwrap();
    assert_eq!(tombstones.len(), 1);
    // Reopened while something is retained, the guard is told again.
    put_retained(&archive, "more", RetentionMode::Governance, 3).await;
    drop(archive);
    world.open().await;
    assert_eq!(*world.guard.told.lock().unwrap(), [true, false, true, true]);
}

#[tokio::test]
async fn a_bucket_is_only_made_stronger() {
    let world = World::new(1);
    let archive = locked(&world, ExpiryAction::Keep).await;
    let change = |change| {
        let archive = archive.clone();
        async move { archive.change_bucket(&admin(), "locked", change).await }
    };
    let suspended = change(BucketChange::Versioning(Versioning::Suspended)).await;
    assert!(matches!(suspended, Err(ArchiveError::InvalidState(_))));
    let weaker = change(BucketChange::Protection(Protection::Basic)).await;
    assert!(matches!(weaker, Err(ArchiveError::Denied(_))));
    let version = put_retained(&archive, "key", RetentionMode::Governance, 3).await;
    let default = DefaultRetention { mode: RetentionMode::Compliance, period: Period::Days(2) };
    change(BucketChange::ObjectLock(ObjectLock { default: Some(default) })).await.unwrap();
    let info = put(&archive, "locked", "by default", b"x").await.unwrap();
    let until = archive.store().compliance_now().plus_days(2);
    assert_eq!(info.retention, Some(Retention { mode: RetentionMode::Compliance, until }));
    let locked = change(BucketChange::Lock).await.unwrap();
    assert_eq!(locked.object_lock, Some(ObjectLock { default: Some(default) }), "the default stays as it is");
    change(BucketChange::ObjectLock(ObjectLock { default: None })).await.unwrap();
    let still = archive.retention(&admin(), "locked", "by default", None).await.unwrap();
    assert_eq!(Some(still), info.retention, "changing a default touches nothing stored");
    change(BucketChange::Protection(Protection::Compliance)).await.unwrap();
    let refused = archive.delete(&admin(), by_version("key", version, true)).await;
    assert!(matches!(refused, Err(ArchiveError::Retained { .. })), "no bypass at this level");
    let deleted = archive.delete(&admin(), by_version("by default", info.version, true)).await;
    assert!(matches!(deleted, Err(ArchiveError::Retained { .. })));
    let not_empty = archive.delete_bucket(&admin(), "locked").await;
    assert!(matches!(not_empty, Err(ArchiveError::BucketNotEmpty(_))));
}

/// At level `compliance` every new retention is COMPLIANCE, whatever mode is asked for. A bypass
/// that asks for GOVERNANCE is refused, except where it extends.
#[tokio::test]
async fn governance_asked_for_at_level_compliance_extends_alone() {
    let world = World::new(2);
    let archive = locked(&world, ExpiryAction::Keep).await;
    let governed = put_retained(&archive, "governed", RetentionMode::Governance, 3).await;
    archive.change_bucket(&admin(), "locked", BucketChange::Protection(Protection::Compliance)).await.unwrap();
    put_retained(&archive, "key", RetentionMode::Governance, 3).await;
    let kept = async |key| archive.retention(&admin(), "locked", key, None).await.unwrap();
    let set = async |key, days: i64, bypass| {
        let until = Timestamp(kept(key).await.until.0.saturating_add_signed(days * DAY as i64));
        let asked = Some(Retention { mode: RetentionMode::Governance, until });
        archive.set_retention(&admin(), "locked", key, None, asked, bypass).await
    };
    let first = kept("key").await;
    assert_eq!(first.mode, RetentionMode::Compliance);
    for (days, bypass) in [(0, true), (-1, true), (-1, false)] {
        let refused = set("key", days, bypass).await;
        assert!(matches!(refused, Err(ArchiveError::Retained { .. })), "{days}, {bypass}: {refused:?}");
        assert_eq!(kept("key").await, first);
    }
    set("key", 0, false).await.unwrap();
    assert_eq!(kept("key").await, first, "the same again, as after a lost answer");
    set("key", 1, true).await.unwrap();
    assert_eq!(kept("key").await, Retention { until: Timestamp(first.until.0 + DAY), ..first });
    // What was under GOVERNANCE before the level becomes COMPLIANCE, and no shorter.
    let before = kept("governed").await;
    assert_eq!(before.mode, RetentionMode::Governance, "{governed}");
    assert!(matches!(set("governed", -1, true).await, Err(ArchiveError::Retained { .. })));
    set("governed", 0, true).await.unwrap();
    assert_eq!(kept("governed").await, Retention { mode: RetentionMode::Compliance, ..before });
}

#[tokio::test]
async fn conditions_and_customer_keys_are_kept() {
    let world = World::new(1);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "plain", NewBucket::default()).await.unwrap();
    let request = |condition, customer_key| PutRequest {
        bucket: "plain".into(),
        key: "key".into(),
        condition,
        customer_key,
        ..PutRequest::default()
    };
    let absent = WriteCondition { absent: true, etag: None };
    let first = put_as(&archive, &admin(), request(absent.clone(), None), b"1").await.unwrap();
    let second = put_as(&archive, &admin(), request(absent, None), b"2").await;
    assert!(matches!(second, Err(ArchiveError::PreconditionFailed(_))));
    let same = |etag: String| WriteCondition { absent: false, etag: Some(etag) };
    let other = request(same("\"00000000000000000000000000000000\"".into()), None);
    let wrong = put_as(&archive, &admin(), other, b"2").await;
    assert!(matches!(wrong, Err(ArchiveError::PreconditionFailed(_))));
    let key = CustomerKey(zeroize::Zeroizing::new([5; 32]));
    let right = request(same(first.etag.to_string()), Some(key.clone()));
    put_as(&archive, &admin(), right, b"secret").await.unwrap();
    let read =
        |customer_key| GetRequest { bucket: "plain".into(), key: "key".into(), customer_key, ..GetRequest::default() };
    assert!(matches!(archive.get(&admin(), read(None)).await, Err(ArchiveError::InvalidRequest(_))));
    let other = CustomerKey(zeroize::Zeroizing::new([6; 32]));
    assert!(matches!(archive.get(&admin(), read(Some(other))).await, Err(ArchiveError::CustomerKey(_))));
    assert_eq!(get_with(&archive, read(Some(key.clone()))).await.unwrap(), b"secret");
    drop(archive);
    let archive = world.open().await;
    assert_eq!(get_with(&archive, read(Some(key))).await.unwrap(), b"secret");
}

#[tokio::test]
async fn multipart_follows_its_rules() {
    let world = World::sized(1, 256 << 20, 4 << 20);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "parts", NewBucket::default()).await.unwrap();
    let new = NewUpload {
        bucket: "parts".into(),
        key: "key".into(),
        algorithm: Some(Algorithm::Crc32c),
        kind: Some(ChecksumKind::FullObject),
        ..NewUpload::default()
    };
    let upload = archive.create_upload(&admin(), new).await.unwrap().upload;
    let data = content(1, 3 * PART_SIZE_MIN as usize + 777);
    let cut = |n: usize| &data[n * PART_SIZE_MIN as usize..data.len().min((n + 1) * PART_SIZE_MIN as usize)];
    let mut parts = Vec::new();
    for n in [3, 0, 2, 1] {
        let request = PartRequest {
            bucket: "parts".into(),
            key: "key".into(),
            upload: upload.clone(),
            number: n as u32 * 10 + 1,
            ..PartRequest::default()
        };
        let mut writer = archive.put_part(&admin(), request).await.unwrap();
        writer.write(bytes::Bytes::copy_from_slice(cut(n))).await.unwrap();
        let info = writer.finish(Expected::default()).await.unwrap();
        parts.push(CompletedPart { number: n as u32 * 10 + 1, etag: info.etag.to_string(), checksums: info.checksums });
    }
    let complete = |parts: Vec<CompletedPart>| CompleteRequest {
        bucket: "parts".into(),
        key: "key".into(),
        upload: upload.clone(),
        parts,
        ..CompleteRequest::default()
    };
    let result = archive.complete_upload(&admin(), complete(parts.clone())).await;
    assert_eq!(result, Err(ArchiveError::InvalidPartOrder));
    parts.sort_by_key(|part| part.number);
    let small_first = vec![parts[3].clone(), CompletedPart { number: 99, ..parts[0].clone() }];
    assert!(matches!(
        archive.complete_upload(&admin(), complete(small_first)).await,
        Err(ArchiveError::InvalidPart { number: 99, .. })
    ));
    let mut wrong = parts.clone();
    wrong[1].etag = wrong[0].etag.clone();
    let result = archive.complete_upload(&admin(), complete(wrong)).await;
    assert!(matches!(result, Err(ArchiveError::InvalidPart { number: 11, .. })));
    let (_, listed, more) = archive.list_parts(&admin(), "parts", "key", &upload, 1, 2).await.unwrap();
    assert_eq!((listed.iter().map(|part| part.number).collect::<Vec<_>>(), more), (vec![11, 21], true));
    let info = archive.complete_upload(&admin(), complete(parts.clone())).await.unwrap();
    assert_eq!(info.etag.parts, Some(4));
    let whole = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &data) as u32;
    assert_eq!(info.checksums[0].value, whole.to_be_bytes());
    let again = archive.complete_upload(&admin(), complete(parts.clone())).await.unwrap();
    assert_eq!(again.version, info.version);
    assert!(get(&archive, "parts", "key").await.unwrap() == data);
    let range = GetRequest {
        bucket: "parts".into(),
        key: "key".into(),
        range: ByteRange::From { first: PART_SIZE_MIN - 5, last: Some(2 * PART_SIZE_MIN + 5) },
        ..GetRequest::default()
    };
    let middle = get_with(&archive, range.clone()).await.unwrap();
    assert!(middle == data[PART_SIZE_MIN as usize - 5..2 * PART_SIZE_MIN as usize + 6]);
    let second = GetRequest { range: ByteRange::Part { number: 2 }, ..range };
    assert!(get_with(&archive, second).await.unwrap() == cut(1));
    // It survives reclamation, a rebuild, and then goes away whole.
    let request = DeleteRequest { bucket: "parts".into(), key: "key".into(), ..DeleteRequest::default() };
    archive.delete(&admin(), request).await.unwrap();
    while archive.step().await.unwrap().more {}
    assert!(archive.space().live < 1 << 20, "{:?}", archive.space());
}

#[tokio::test]
async fn ten_thousand_versions_of_a_key_do_not_hide_the_next() {
    let world = World::sized(1, 256 << 20, 8 << 20);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "deep", NewBucket { versioning: true, ..NewBucket::default() }).await.unwrap();
    for n in 0..10_000u32 {
        put(&archive, "deep", "deep", &n.to_be_bytes()).await.unwrap();
    }
    put(&archive, "deep", "next", b"x").await.unwrap();
    let page = archive
        .list(&admin(), ListRequest { bucket: "deep".into(), limit: 1000, ..ListRequest::default() })
        .await
        .unwrap();
    assert_eq!(page.objects.len(), 2);
    let mut request = ListVersionsRequest { bucket: "deep".into(), limit: 1000, ..ListVersionsRequest::default() };
    let (mut count, mut latest) = (0, 0);
    loop {
        let page = archive.list_versions(&admin(), request.clone()).await.unwrap();
        count += page.versions.len();
        latest += page.versions.iter().filter(|version| version.latest).count();
        request.key_marker = page.next_key_marker;
        request.version_marker = page.next_version_marker;
        if !page.truncated {
            break;
        }
    }
    assert_eq!((count, latest), (10_001, 2));
    assert_eq!(get(&archive, "deep", "deep").await.unwrap(), 9_999u32.to_be_bytes());
}
