//! Disposal certificates: what they state of a removed version, that no altered one verifies, and
//! that a power cut leaves no false one.

use std::sync::Arc;

use stele_catalog::{MemoryCatalog, Transaction};

use super::receipts::{altered, key_of};
use super::*;
use crate::evidence::disposal::Removed;
use crate::record::TOMBSTONES;
use crate::record::audit::AuditRow;
use crate::retention::rules::Cause;
use crate::store::lookup;
use crate::testing::{officer, put_as, records};

const DAY: u64 = 86_400_000;

async fn store(world: &World) -> Archive {
    let archive = world.create().await;
    let new = NewBucket { object_lock: true, expiry: ExpiryAction::Delete, ..NewBucket::default() };
    archive.create_bucket(&admin(), "records", new).await.unwrap();
    archive.create_bucket(&admin(), "plain", NewBucket::default()).await.unwrap();
    let terms = ClassTerms {
        initiation: Initiation::Creation,
        retver: Some(2),
        retmin: 0,
        action: ExpiryAction::Delete,
        mode: RetentionMode::Compliance,
    };
    archive.create_class(&admin(), "short", terms, "").await.unwrap();
    archive.activate_class(&admin(), "short", None).await.unwrap();
    archive
}

async fn put_retained(archive: &Archive, key: &str, mode: RetentionMode, data: &[u8]) -> ObjectInfo {
    let until = archive.store().compliance_now().plus_days(2);
    let request = PutRequest {
        bucket: "records".into(),
        key: key.into(),
        retention: Some(Retention { mode, until }),
        ..PutRequest::default()
    };
    put_as(archive, &admin(), request, data).await.unwrap()
}

async fn delete(archive: &Archive, info: &ObjectInfo) {
    let request = DeleteRequest {
        bucket: info.bucket.clone(),
        key: info.key.clone(),
        version: Some(info.version),
        bypass_governance: true,
        ..DeleteRequest::default()
    };
    archive.delete(&admin(), request).await.unwrap();
}

async fn steps(archive: &Archive) {
    while archive.step().await.unwrap().more {}
}

async fn certificate(archive: &Archive, info: &ObjectInfo) -> DisposalCertificate {
    let made = archive.disposal_certificate(&admin(), &info.bucket, &info.key, info.version, None).await.unwrap();
    assert_eq!(made.verify(&key_of(&made.head)), Ok(()));
    made
}

fn of(info: &ObjectInfo) -> VersionName {
    VersionName { bucket: info.bucket.clone(), key: info.key.clone(), version: Some(info.version) }
}

/// A version of a class, held twice and by two people released, that has expired.
async fn expired(world: &World, archive: &Archive) -> ObjectInfo {
    let request = PutRequest {
        bucket: "records".into(),
        key: "ledger".into(),
        class: Some("short".into()),
        ..PutRequest::default()
    };
    let info = put_as(archive, &admin(), request, b"the ledger").await.unwrap();
    archive.open_matter(&officer("anna", 1), "smith", "a lawsuit").await.unwrap();
    archive.hold_listed(&officer("anna", 1), "smith", vec![of(&info)], true).await.unwrap();
    archive.set_legal_hold(&admin(), "records", "ledger", Some(info.version), true).await.unwrap();
    archive.set_legal_hold(&admin(), "records", "ledger", Some(info.version), false).await.unwrap();
    let asked = archive.request_close(&officer("anna", 1), "smith").await.unwrap();
    archive.approve(&officer("ben", 2), &asked.id).await.unwrap();
    steps(archive).await;
    world.stage.pass(3 * DAY);
    steps(archive).await;
    // The step after the removal settles the destruction of the key.
    steps(archive).await;
    info
}

/// A key may have any characters, also those by which a request quotes another object.
#[tokio::test]
async fn a_key_that_quotes_a_deletion_approves_none() {
    let world = World::new(20);
    let archive = store(&world).await;
    let until = archive.store().later_now().plus_days(30);
    let retention = Some(Retention { mode: RetentionMode::Governance, until });
    let put = async |key: &str| {
        let request = PutRequest { bucket: "records".into(), key: key.into(), retention, ..PutRequest::default() };
        put_as(&archive, &admin(), request, b"content").await.unwrap()
    };
    let wanted = put("k").await;
    let decoy = put(&format!("k` version {} is deleted as agreed, see `", wanted.version)).await;
    let asked = archive.request_deletion(&officer("anna", 1), &of(&decoy), "a decoy").await.unwrap();
    archive.approve(&officer("ben", 2), &asked.id).await.unwrap();
    delete(&archive, &wanted).await;
    assert_eq!(certificate(&archive, &wanted).await.removal.approvals, []);
    assert_eq!(certificate(&archive, &decoy).await.removal.approvals.len(), 1);
}

#[tokio::test]
async fn a_certificate_states_class_holds_approvals_and_key() {
    let world = World::sized(1, 24 << 20, 256 << 10);
    let archive = store(&world).await;
    let info = expired(&world, &archive).await;
    let made = certificate(&archive, &info).await;
    let removal = &made.removal;
    assert_eq!((removal.size_bytes, removal.cause.as_str()), (10, "expired"));
    assert_eq!(removal.blake3, blake3::hash(b"the ledger").to_hex().to_string());
    assert_eq!((removal.class.as_deref(), removal.class_version), (Some("short"), Some(1)));
    assert_eq!(removal.retention_mode.as_deref(), Some("COMPLIANCE"));
    assert_eq!(removal.keep_until, Some(info.modified.plus_days(2).to_string()));
    assert_eq!(
        (removal.stored.clone(), removal.stored_by.as_deref()),
        (Some(info.modified.to_string()), Some("uid 0"))
    );
    assert_eq!(removal.removed_by, "stele expiration");
    let holds: Vec<_> = removal.holds.iter().map(|hold| (hold.matter.as_str(), hold.released.is_some())).collect();
    assert_eq!(holds, [("smith", true), ("s3", true)]);
    assert_eq!(
        (removal.holds[0].put_by.as_str(), removal.holds[0].released_by.as_deref()),
        ("key anna", Some("key anna"))
    );
    let [approval] = &removal.approvals[..] else { panic!("{:?}", removal.approvals) };
    assert_eq!((approval.asked_by.as_str(), approval.approved_by.as_str()), ("key anna (uid 1)", "key ben"));
    assert!(removal.key_destroyed.is_some() && removal.compliance_time.is_some(), "{removal:?}");
    let [segment] = &removal.segments.as_ref().unwrap()[..] else { panic!("{:?}", removal.segments) };
    assert_eq!(segment.overwritten, None, "the segment is not reclaimed yet");
    // After reclamation the same certificate says so. It holds after another opening, too.
    let filler = content(1, 200_000);
    for n in 0..6 {
        let other = put(&archive, "plain", &format!("filler {n}"), &filler).await.unwrap();
        delete(&archive, &other).await;
    }
    for _ in 0..20 {
        world.stage.pass(700_000);
        steps(&archive).await;
    }
    let later = certificate(&archive, &info).await;
    assert!(later.removal.segments.as_ref().unwrap()[0].overwritten.is_some(), "{:?}", later.removal);
    archive.close().await.unwrap();
    drop(archive);
    let archive = world.open().await;
    assert_eq!(certificate(&archive, &info).await.removal, later.removal);
}

/// The volume has no room for the certificate of a removal, which is refused. There is room again
/// before the removal that takes place, or only after it.
#[tokio::test]
async fn no_certificate_of_a_refused_removal_is_noted_later() {
    for room in [true, false] {
        let mut world = World::new(5);
        let archive = store(&world).await;
        let info = put_retained(&archive, "key", RetentionMode::Governance, b"record").await;
        let store = archive.store();
        let bucket = store.buckets().by_name("records").unwrap();
        let found = lookup::newest(&*store.snapshot().unwrap(), &bucket, "key").unwrap().unwrap();
        world.bench.set_full(true);
        let cause = Cause::Requested { bypass: true };
        drop(store.remove(Transaction::new(), &admin(), &bucket, "key", &found, cause).await.unwrap());
        world.stage.pass(1000);
        world.bench.set_full(!room);
        let request = DeleteRequest {
            bucket: "records".into(),
            key: "key".into(),
            version: Some(info.version),
            bypass_governance: true,
            ..DeleteRequest::default()
        };
        let removed = archive.delete(&admin(), request).await;
        assert_eq!(matches!(removed, Err(ArchiveError::KeyNotDestroyed(_))), !room, "{removed:?}");
        world.bench.set_full(false);
        // The key is destroyed at the next attempt.
        world.stage.pass(400_000);
        steps(&archive).await;
        archive.close().await.unwrap();
        let certified = records(&*world.catalog, TOMBSTONES);
        assert_eq!(certified.len(), 1);
        world.catalog = Arc::new(MemoryCatalog::new());
        Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap();
        assert_eq!(records(&*world.catalog, TOMBSTONES), certified, "room: {room}");
    }
}

#[tokio::test]
async fn a_certificate_altered_in_any_field_is_refused() {
    let world = World::new(2);
    let archive = store(&world).await;
    let info = expired(&world, &archive).await;
    let made = certificate(&archive, &info).await;
    let public = key_of(&made.head);
    let json = serde_json::to_value(&made).unwrap();
    let changes = altered(&json);
    assert!(changes.len() > 150, "{}", changes.len());
    for change in changes {
        assert_ne!(change, json);
        let Ok(read) = serde_json::from_value::<DisposalCertificate>(change.clone()) else { continue };
        assert!(read.verify(&public).is_err(), "{change:#}");
    }
    // Every byte of the file.
    let text = serde_json::to_string(&made).unwrap();
    for at in 0..text.len() {
        let mut bytes = text.clone().into_bytes();
        bytes[at] ^= 0x01;
        let Ok(read) = serde_json::from_slice::<DisposalCertificate>(&bytes) else { continue };
        assert!(read.verify(&public).is_err(), "byte {at}: {}", String::from_utf8_lossy(&bytes));
    }
    assert!(made.verify(&[7; 32]).is_err());
}

/// The store's own key over statements that the records do not make: the verifier reads the records
/// again.
#[tokio::test]
async fn a_signed_certificate_must_agree_with_its_records() {
    let world = World::new(3);
    let archive = store(&world).await;
    let info = expired(&world, &archive).await;
    let made = certificate(&archive, &info).await;
    let public = key_of(&made.head);
    let signed = |mut forged: DisposalCertificate| {
        forged.signature = crate::model::checksum::to_hex(&archive.store().signing().sign(&forged.text()));
        forged.verify(&public)
    };
    assert_eq!(signed(made.clone()), Ok(()));
    type Change = fn(&mut DisposalCertificate);
    let changes: [Change; 7] = [
        |forged| forged.removal.holds.clear(),
        |forged| forged.removal.keep_until = Some("2020-01-01T00:00:00.000Z".into()),
        |forged| forged.removal.key_destroyed = None,
        |forged| forged.removal.approvals.clear(),
        |forged| forged.removal.sha256 = Some("00".repeat(32)),
        |forged| forged.key = "another".into(),
        |forged| forged.records.truncate(1),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut forged = made.clone();
        change(&mut forged);
        assert!(signed(forged).is_err(), "change {number}");
    }
}

#[tokio::test]
async fn every_way_to_remove_a_version_is_listed_with_its_cause() {
    let world = World::new(4);
    let archive = store(&world).await;
    let start = world.stage.now().wall;
    let rule = LifecycleRule {
        id: "old `: 9 bytes, blake3 AAAA, stored".into(),
        enabled: true,
        filter: LifecycleFilter::default(),
        expiration: Some(Expiration::Days(1)),
        noncurrent: None,
        abort_days: None,
    };
    archive.change_bucket(&admin(), "plain", BucketChange::Lifecycle(Some(vec![rule]))).await.unwrap();
    let bypassed = put_retained(&archive, "bypassed", RetentionMode::Governance, b"bypassed").await;
    delete(&archive, &bypassed).await;
    let expired = put_retained(&archive, "expired", RetentionMode::Compliance, b"expired").await;
    let free = put(&archive, "records", "free", b"free").await.unwrap();
    delete(&archive, &free).await;
    let aged = put(&archive, "plain", "aged", b"aged").await.unwrap();
    world.stage.pass(3 * DAY);
    steps(&archive).await;
    let large = put_retained(&archive, "large", RetentionMode::Governance, &content(1, 2_000_000)).await;
    delete(&archive, &large).await;
    steps(&archive).await;
    steps(&archive).await;
    for (info, cause, certified) in [
        (&bypassed, "governance bypassed", true),
        (&expired, "expired", true),
        (&free, "requested", false),
        (&aged, "lifecycle", false),
        (&large, "governance bypassed", true),
    ] {
        let removal = certificate(&archive, info).await.removal;
        assert_eq!((removal.cause.as_str(), removal.size_bytes), (cause, info.size), "{removal:?}");
        assert_eq!(removal.key_destroyed.is_some(), certified, "{removal:?}");
    }
    assert_eq!(certificate(&archive, &aged).await.removal.rule.unwrap(), "old `: 9 bytes, blake3 AAAA, stored");
    let all = |query: DisposalQuery| {
        let archive = archive.clone();
        async move { archive.disposals(&admin(), &query, None).await.unwrap() }
    };
    let (found, next) = all(DisposalQuery::default()).await;
    let keys: Vec<&str> = found.iter().map(|found| found.key.as_str()).collect();
    assert_eq!((keys, next), (vec!["bypassed", "free", "expired", "aged", "large"], None));
    assert_eq!(found[0].keep_until, Some(bypassed.retention.unwrap().until.to_string()), "from the catalog");
    let (found, _) = all(DisposalQuery { bucket: Some("plain".into()), ..DisposalQuery::default() }).await;
    assert_eq!(found.len(), 1);
    let (found, _) = all(DisposalQuery { prefix: "e".into(), ..DisposalQuery::default() }).await;
    assert_eq!(found.len(), 1);
    let (to, from) = (Some(start.plus_days(1)), Some(start.plus_days(1)));
    assert_eq!(all(DisposalQuery { to, ..DisposalQuery::default() }).await.0.len(), 2);
    assert_eq!(all(DisposalQuery { from, ..DisposalQuery::default() }).await.0.len(), 3);
    let turned = DisposalQuery { from, to, ..DisposalQuery::default() };
    let refused = archive.disposals(&admin(), &turned, None).await;
    assert!(matches!(refused, Err(ArchiveError::InvalidArgument(_))), "no period: {refused:?}");
    // A record that is there is no removal, and a version that is here has no certificate.
    let here = put(&archive, "records", "here", b"here").await.unwrap();
    let none = archive.disposal_certificate(&admin(), "records", "here", here.version, None).await;
    assert!(matches!(none, Err(ArchiveError::NoSuchThing(_))), "{none:?}");
    let none = archive.disposal_certificate(&admin(), "records", "here", here.version, here.logged).await;
    assert!(matches!(none, Err(ArchiveError::NoSuchThing(_))), "{none:?}");
}

#[tokio::test]
async fn a_null_version_is_certified_by_its_own_removal() {
    let world = World::new(5);
    let archive = store(&world).await;
    let mut removed = Vec::new();
    for text in [b"first".as_slice(), b"second", b"third"] {
        let info = put(&archive, "plain", "again", text).await.unwrap();
        let request = DeleteRequest { bucket: "plain".into(), key: "again".into(), ..DeleteRequest::default() };
        removed.push((text, info.modified, archive.delete(&admin(), request).await.unwrap().logged.unwrap()));
        world.stage.pass(1000);
    }
    for (text, _, record) in &removed {
        let made =
            archive.disposal_certificate(&admin(), "plain", "again", VersionId::Null, Some(*record)).await.unwrap();
        assert_eq!(made.verify(&key_of(&made.head)), Ok(()));
        assert_eq!((made.record, made.removal.size_bytes), (*record, text.len() as u64));
        assert_eq!(made.records.len(), 2, "how it was stored, and how it was removed");
    }
    let last = archive.disposal_certificate(&admin(), "plain", "again", VersionId::Null, None).await.unwrap();
    assert_eq!(last.record, removed[2].2);
}

#[tokio::test]
async fn disposals_are_shown_to_officers_auditors_and_administrators() {
    let world = World::new(6);
    let archive = store(&world).await;
    let free = put(&archive, "records", "free", b"free").await.unwrap();
    delete(&archive, &free).await;
    let mut user = officer("carl", 3);
    user.rights = Rights::user("records", "").into();
    let listed = archive.disposals(&user, &DisposalQuery::default(), None).await;
    assert!(matches!(listed, Err(ArchiveError::Denied(_))), "{listed:?}");
    let made = archive.disposal_certificate(&user, "records", "free", free.version, None).await;
    assert!(matches!(made, Err(ArchiveError::Denied(_))), "{made:?}");
    let mut auditor = Caller::anonymous();
    auditor.rights = Arc::new(Rights { roles: [Role::Auditor].into(), ..Rights::default() });
    assert_eq!(archive.disposals(&auditor, &DisposalQuery::default(), None).await.unwrap().0.len(), 1);
    archive.disposal_certificate(&auditor, "records", "free", free.version, None).await.unwrap();
}

/// Power fails after each write around an expiration. A version is there, or its certificate holds
/// and says that its key is destroyed once the store was opened again.
#[tokio::test]
async fn a_power_cut_leaves_a_version_or_its_certificate() {
    let mut gone = 0;
    for writes in 0..24 {
        let mut world = World::sized(writes, 24 << 20, 256 << 10);
        let archive = store(&world).await;
        let info = put_retained(&archive, "ledger", RetentionMode::Compliance, b"the ledger").await;
        world.stage.pass(3 * DAY);
        world.bench.cut_after(writes);
        for _ in 0..3 {
            let _ = archive.step().await;
        }
        drop(archive);
        world.bench.power_on();
        for rebuilt in [false, true] {
            if rebuilt {
                world.catalog = Arc::new(MemoryCatalog::new());
            }
            let archive = match rebuilt {
                false => world.open().await,
                true => Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap().0,
            };
            let here = get(&archive, "records", "ledger").await.is_ok();
            let made = archive.disposal_certificate(&admin(), "records", "ledger", info.version, None).await;
            match (here, made) {
                (true, Err(ArchiveError::NoSuchThing(_))) => {}
                (false, Ok(made)) => {
                    gone += 1;
                    assert_eq!(made.verify(&key_of(&made.head)), Ok(()), "cut after {writes}");
                    assert!(made.removal.key_destroyed.is_some(), "cut after {writes}: {:?}", made.removal);
                }
                // A rebuild may lose the last records before a crash, and then certifies nothing.
                (false, Err(_)) if rebuilt => {}
                other => panic!("cut after {writes}, rebuilt {rebuilt}: {other:?}"),
            }
            archive.close().await.unwrap();
        }
    }
    assert!(gone > 10, "{gone}");
}

#[test]
fn records_of_another_version_are_refused() {
    let removed = Removed { bucket: "share", key: "file", version: "null", record: 4 };
    let row = |action: Action, bucket: Option<&str>, detail: &str| AuditRow {
        time: Timestamp(1),
        actor: Actor::Local(1),
        action,
        bucket: bucket.map(str::to_owned),
        key: bucket.map(|_| "file".into()),
        version: bucket.map(|_| "null".into()),
        refused: None,
        detail: Some(detail.into()),
        origin: None,
    };
    let ones = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
    let here = Some("share");
    let content = format!("8 bytes, blake3 {ones}");
    let stored = (1, row(Action::PutObject, here, &content));
    let says = format!("replaced: {content}, stored T, COMPLIANCE until U, compliance time V");
    let replaced = (4, row(Action::Dispose, here, &says));
    let key = |says: String| (6, row(Action::Dispose, here, &format!("key destroyed: object 3, {says}")));
    let destroyed = key(format!("{content}, stored T, segments 7 9"));
    let read = |rows: &[(u64, AuditRow)]| removed.read(rows);
    let removal = read(&[stored.clone(), replaced.clone(), destroyed.clone()]).unwrap();
    assert_eq!((removal.cause.as_str(), removal.stored.as_deref()), ("replaced", Some("T")));
    assert_eq!(removal.keep_until.as_deref(), Some("U"));
    assert_eq!(removal.segments.as_ref().map(Vec::len), Some(2));
    let zeroed = |number: u64, segment: u32| {
        (number, row(Action::Dispose, None, &format!("segment {segment} overwritten and freed")))
    };
    let with = |more: (u64, AuditRow)| {
        let mut rows = vec![stored.clone(), replaced.clone(), destroyed.clone(), more];
        rows.sort_by_key(|(number, _)| *number);
        read(&rows)
    };
    assert_eq!(with(zeroed(8, 7)).unwrap().segments.unwrap()[0].overwritten, Some(Timestamp(1).to_string()));
    assert!(with(zeroed(8, 8)).is_err(), "a segment without its content");
    assert!(with(zeroed(2, 7)).is_err(), "overwritten before the removal");
    assert!(with((2, row(Action::PutObject, here, &content))).is_err(), "stored again");
    assert!(with((8, row(Action::PutObject, here, &content))).is_err(), "stored later");
    assert!(
        with((2, row(Action::Approve, None, "request x, asked by key a: the matter `other` is closed for good")))
            .is_err()
    );
    let approved = |named: bool, says: &str| {
        let detail = format!("request x, asked by key a: {says}");
        AuditRow { version: named.then(|| "null".into()), ..row(Action::Approve, named.then_some("share"), &detail) }
    };
    let says = "`share/file` version null is deleted, and cannot be brought back; the reason: an error";
    for named in [true, false] {
        assert_eq!(with((2, approved(named, says))).unwrap().approvals.len(), 1, "named {named}");
    }
    assert!(with((2, approved(false, &format!("{says}, see `other`")))).is_err(), "an older record with more accents");
    let other = AuditRow { key: Some("other".into()), ..approved(true, says) };
    assert!(with((2, other)).is_err(), "an approval that names another object");
    let refused = AuditRow { refused: Some("no".into()), ..replaced.1.clone() };
    assert!(read(&[stored.clone(), (4, refused)]).is_err());
    assert!(read(&[stored.clone(), destroyed.clone()]).is_err(), "no removal");
    for other in [format!("9 bytes, blake3 {ones}, stored T"), format!("{content}, stored S")] {
        assert!(read(&[stored.clone(), replaced.clone(), key(other)]).is_err());
    }
    let nine = (1, row(Action::PutObject, here, &format!("9 bytes, blake3 {ones}")));
    assert!(read(&[nine, replaced]).is_err(), "stored with another content");
}

/// A reader that had the entry of a key before its zeros puts the key into memory again.
#[tokio::test]
async fn a_key_that_a_late_reader_kept_is_forgotten_with_the_disposal() {
    let world = World::new(31);
    let archive = store(&world).await;
    put(&archive, "plain", "late", b"content").await.unwrap();
    let store = archive.store();
    let (bucket, snapshot) = (store.buckets().by_name("plain").unwrap(), store.snapshot().unwrap());
    let found = crate::store::lookup::readable(&*snapshot, &bucket, "late", None).unwrap();
    let (object, caches) = (found.row.object, store.caches());
    get(&archive, "plain", "late").await.unwrap();
    let key = caches.object_key(object).unwrap();
    let request = DeleteRequest { bucket: "plain".into(), key: "late".into(), ..DeleteRequest::default() };
    archive.delete(&admin(), request).await.unwrap();
    assert!(caches.object_key(object).is_none());
    caches.keep_object_key(object, key);
    steps(&archive).await;
    assert!(caches.object_key(object).is_none(), "it stays in memory");
}
