//! Every change, given up at every point at which it waits: the store stays right, without being
//! opened anew.
//!
//! A client that hangs up drops the request's future. What the request had asked the catalog or the
//! volume for still takes place. So each request here is polled a number of times, one answer let
//! through at a time, and dropped; then others use the store, background work takes its steps, and
//! everything stored is looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;

use stele_catalog::{Catalog, Direction, KeyRange, Table};

use super::*;
use crate::record::upload::UploadRow;
use crate::record::version::VersionRow;
use crate::record::{
    self, BUCKETS, DISPOSALS, EXTENTS, FREE_SLOTS, OBJECTS, SETTINGS, UPLOADS, VERSIONS, decode, keys,
};
use crate::testing::{Gate, MIB, check_counts, officer, put_as};

const LONG: usize = 1_000_000;
const DAY: u64 = 86_400_000;

/// What stands before the request that is given up.
#[derive(Clone)]
struct Scene {
    upload: String,
    part: CompletedPart,
    key: String,
    credit: String,
    rule: String,
    admission: String,
    free: VersionId,
    governed: VersionId,
}

type Request = Pin<Box<dyn Future<Output = ()>>>;
type Requests = Vec<(&'static str, fn(Archive, Scene) -> Request)>;

macro_rules! request {
    ($name:literal, |$archive:ident, $scene:ident| $body:expr) => {
        ($name, |$archive: Archive, $scene: Scene| -> Request {
            Box::pin(async move {
                let _ = &$scene;
                let _ = $body;
            })
        })
    };
}

fn at(bucket: &str, key: &str) -> PutRequest {
    PutRequest { bucket: bucket.into(), key: key.into(), ..PutRequest::default() }
}

fn delete(bucket: &str, key: &str, version: Option<VersionId>) -> DeleteRequest {
    DeleteRequest { bucket: bucket.into(), key: key.into(), version, ..DeleteRequest::default() }
}

fn retained(archive: &Archive, key: &str, mode: RetentionMode) -> PutRequest {
    let until = archive.store().compliance_now().plus_days(3);
    PutRequest { retention: Some(Retention { mode, until }), ..at("locked", key) }
}

async fn part(archive: &Archive, upload: &str, number: u32, data: &[u8]) -> Result<CompletedPart> {
    let (bucket, key, upload) = ("plain".into(), "multi".into(), upload.to_string());
    let mut writer =
        archive.put_part(&admin(), PartRequest { bucket, key, upload, number, ..PartRequest::default() }).await?;
    writer.write(bytes::Bytes::copy_from_slice(data)).await?;
    let info = writer.finish(Expected::default()).await?;
    Ok(CompletedPart { number, etag: info.etag.to_string(), checksums: info.checksums })
}

fn completion(scene: &Scene) -> CompleteRequest {
    let (bucket, key, upload) = ("plain".into(), "multi".into(), scene.upload.clone());
    CompleteRequest { bucket, key, upload, parts: vec![scene.part.clone()], ..CompleteRequest::default() }
}

fn requests() -> Requests {
    vec![
        request!("a new object", |a, s| put(&a, "plain", "new", b"new").await),
        request!("a replaced object", |a, s| put(&a, "plain", "short", b"replaced").await),
        request!("a long object", |a, s| put(&a, "plain", "long", &content(9, LONG)).await),
        request!("a retained object", |a, s| {
            put_as(&a, &admin(), retained(&a, "another", RetentionMode::Compliance), b"another").await
        }),
        request!("a delete", |a, s| a.delete(&admin(), delete("plain", "short", None)).await),
        request!("a delete of long content", |a, s| a.delete(&admin(), delete("plain", "long", None)).await),
        request!("a delete marker", |a, s| a.delete(&admin(), delete("locked", "free", None)).await),
        request!("a delete of a version", |a, s| { a.delete(&admin(), delete("locked", "free", Some(s.free))).await }),
        request!("a bypass", |a, s| {
            let request = DeleteRequest { bypass_governance: true, ..delete("locked", "governed", Some(s.governed)) };
            a.delete(&admin(), request).await
        }),
        request!("a batch", |a, s| {
            a.delete_many(&admin(), vec![delete("plain", "short", None), delete("plain", "long", None)]).await
        }),
        request!("a new upload", |a, s| {
            let (bucket, key) = ("plain".into(), "begun".into());
            a.create_upload(&admin(), NewUpload { bucket, key, ..NewUpload::default() }).await
        }),
        request!("a part", |a, s| part(&a, &s.upload, 2, &content(5, 5000)).await),
        request!("a replaced part", |a, s| part(&a, &s.upload, 3, &content(5, LONG)).await),
        request!("a completion", |a, s| a.complete_upload(&admin(), completion(&s)).await),
        request!("an abort", |a, s| a.abort_upload(&admin(), "plain", "multi", &s.upload).await),
        request!("a copy", |a, s| {
            let source = CopySource { bucket: "plain".into(), key: "long".into(), ..CopySource::default() };
            let (bucket, key) = ("plain".into(), "copied".into());
            a.copy(&admin(), CopyRequest { source, bucket, key, ..CopyRequest::default() }).await
        }),
        request!("tags", |a, s| {
            let tags = Tags::from([("a".to_string(), "b".to_string())]);
            a.set_tags(&admin(), "plain", "short", None, tags).await
        }),
        request!("a longer retention", |a, s| {
            let until = a.store().compliance_now().plus_days(9);
            let retention = Some(Retention { mode: RetentionMode::Compliance, until });
            a.set_retention(&admin(), "locked", "kept", None, retention, false).await
        }),
        request!("a hold", |a, s| a.set_legal_hold(&admin(), "locked", "free", None, true).await),
        request!("a new bucket", |a, s| a.create_bucket(&admin(), "fresh", NewBucket::default()).await),
        request!("a changed bucket", |a, s| {
            a.change_bucket(&admin(), "plain", BucketChange::Versioning(Versioning::Enabled)).await
        }),
        request!("a deleted bucket", |a, s| a.delete_bucket(&admin(), "empty").await),
        request!("a new access key", |a, s| a.create_access_key(&admin(), "new", Rights::user("plain", "")).await),
        request!("a revoked access key", |a, s| a.revoke_access_key(&admin(), &s.key).await),
        request!("an accepted clock", |a, s| a.accept_clock(&admin()).await),
        request!("a credit asked for", |a, s| a.request_credit(&officer("other", 3)).await),
        request!("a credited clock", |a, s| a.approve(&officer("second", 2), &s.credit).await),
        request!("a credit refused", |a, s| a.refuse_request(&officer("second", 2), &s.credit).await),
        request!("a rule made stricter", |a, s| a.approve(&officer("second", 2), &s.rule).await),
        request!("a rate", |a, s| a.limit_expiration(&admin(), Some(100)).await),
        request!("a new officer", |a, s| a.create_access_key(&admin(), "new", Rights::officer()).await),
        request!("an officer approved", |a, s| a.approve(&officer("second", 2), &s.admission).await),
        request!("an exported key", |a, s| a.export_master_key(&admin()).await),
        request!("a refusal", |a, s| a.delete_bucket(&Caller::anonymous(), "plain").await),
        request!("background work", |a, s| {
            for _ in 0..4 {
                let _ = a.step().await;
            }
        }),
    ]
}

async fn scene(archive: &Archive) -> Scene {
    let new = NewBucket { object_lock: true, expiry: ExpiryAction::Delete, ..NewBucket::default() };
    archive.create_bucket(&admin(), "locked", new).await.unwrap();
    for name in ["plain", "empty"] {
        archive.create_bucket(&admin(), name, NewBucket::default()).await.unwrap();
    }
    put(archive, "plain", "short", b"short").await.unwrap();
    put(archive, "plain", "gone", &content(3, LONG)).await.unwrap();
    put(archive, "plain", "long", &content(1, LONG)).await.unwrap();
    put_as(archive, &admin(), retained(archive, "kept", RetentionMode::Compliance), b"kept").await.unwrap();
    let governed = retained(archive, "governed", RetentionMode::Governance);
    let governed = put_as(archive, &admin(), governed, b"governed").await.unwrap().version;
    let until = archive.store().compliance_now().plus_days(1);
    let expiring = Retention { mode: RetentionMode::Compliance, until };
    let expiring = PutRequest { retention: Some(expiring), ..at("locked", "expiring") };
    put_as(archive, &admin(), expiring, b"expiring").await.unwrap();
    let free = put(archive, "locked", "free", b"free").await.unwrap().version;
    let new = NewUpload { bucket: "plain".into(), key: "multi".into(), ..NewUpload::default() };
    let upload = archive.create_upload(&admin(), new).await.unwrap().upload;
    let listed = part(archive, &upload, 1, &content(2, 5000)).await.unwrap();
    part(archive, &upload, 3, &content(4, LONG)).await.unwrap();
    let key = archive.create_access_key(&admin(), "old", Rights::user("plain", "")).await.unwrap().id;
    archive.credentials(&key).await.unwrap();
    put(archive, "plain", "gone", b"long content is to be cleared away").await.unwrap();
    archive.delete(&admin(), delete("plain", "gone", None)).await.unwrap();
    // An hour was spent closed.
    let hour = 3_600_000;
    {
        let store = archive.store();
        let row = store.clock_row();
        let earlier = |time: Timestamp| Timestamp(time.0 - hour);
        let (shown, wall, seen) = (earlier(row.shown), earlier(row.wall), row.seen.map(earlier));
        let row = crate::record::settings::ClockRow { shown, wall, seen, ..row };
        let earlier = crate::state::clock::ComplianceClock::resume(&row, store.surroundings().now());
        store.clock().step(|clock| *clock = earlier);
    }
    let credit = archive.request_credit(&officer("first", 1)).await.unwrap().id;
    let rule = archive.request_restriction(&officer("first", 1), Act::KeyExport, People::Two).await.unwrap().id;
    for name in ["anna", "ben"] {
        archive.create_access_key(&admin(), name, Rights::officer()).await.unwrap();
    }
    let admission = archive.create_access_key(&admin(), "cleo", Rights::officer()).await.unwrap().awaits.unwrap();
    Scene { upload, part: listed, key, credit, rule, admission, free, governed }
}

fn rows(world: &World, table: Table) -> Vec<stele_catalog::Record> {
    world.catalog.snapshot().unwrap().range(table, &KeyRange::all(), 10_000, Direction::Forward).unwrap()
}

/// What others do right after: new records take whatever slots are free, and every upload is
/// aborted.
async fn others(archive: &Archive, world: &World, scene: &Scene) {
    check_counts(archive);
    for n in 0..3 {
        let key = format!("after {n}");
        let request = || retained(archive, &key, RetentionMode::Compliance);
        let mut stored = put_as(archive, &admin(), request(), key.as_bytes()).await;
        if matches!(stored, Err(ArchiveError::Conflict(_))) {
            // The bucket's row is behind the one who was given up. Trying again is enough.
            stored = put_as(archive, &admin(), request(), key.as_bytes()).await;
        }
        stored.unwrap();
    }
    let uploads = ListUploadsRequest { bucket: "plain".into(), limit: 100, ..ListUploadsRequest::default() };
    for upload in archive.list_uploads(&admin(), uploads).await.unwrap().uploads {
        archive.abort_upload(&admin(), "plain", &upload.key, &upload.upload).await.unwrap();
    }
    let row = record::fetch::<record::access_key::AccessKeyRow>(
        &*world.catalog.snapshot().unwrap(),
        record::ACCESS_KEYS,
        scene.key.as_bytes(),
    );
    let revoked = row.unwrap().unwrap().revoked.is_some();
    assert_eq!(archive.credentials(&scene.key).await.is_err(), revoked, "a revoked key is void at once");
    archive.create_bucket(&admin(), "other", NewBucket::default()).await.unwrap();
    put(archive, "other", "key", b"other").await.unwrap();
    while archive.step().await.unwrap().more {}
    put(archive, "plain", "later", b"later").await.unwrap();
    put(archive, "locked", "later", b"later").await.unwrap();
    let report = archive.step().await.unwrap();
    assert!(report.alarms.is_empty(), "{report:?}");
}

/// Everything stored is whole, and every slot has one use.
async fn check(archive: &Archive, world: &World) {
    world.check_index();
    let mut uses: BTreeMap<u64, String> = BTreeMap::new();
    let mut used = |slot: u64, what: String| {
        if let Some(other) = uses.insert(slot, what.clone()) {
            panic!("slot {slot} is that of {other} and of {what}");
        }
    };
    let mut objects = BTreeMap::new();
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    for (key, value) in rows(world, VERSIONS) {
        let row: VersionRow = decode(VERSIONS, &key, &value).unwrap();
        let (bucket, name, _) = keys::split(&key).unwrap();
        *counts.entry(bucket).or_default() += 1;
        used(row.slot, name.clone());
        objects.insert(row.object, (row.slot, name));
    }
    for (key, value) in rows(world, UPLOADS) {
        let row: UploadRow = decode(UPLOADS, &key, &value).unwrap();
        used(row.slot, format!("an upload of {key:?}"));
        objects.insert(row.object, (row.slot, "an upload".into()));
    }
    for slot in archive.store().keys().free_slots() {
        used(slot, "nothing".into());
    }
    for (object, (slot, name)) in &objects {
        let entry = archive.store().keys().read(*slot).await.unwrap();
        assert_eq!(entry.map(|entry| entry.object), Some(*object), "the key of {name} in slot {slot}");
    }
    for (key, _) in rows(world, FREE_SLOTS) {
        let slot = u64::from_be_bytes(key.as_ref().try_into().unwrap());
        assert!(objects.values().all(|(other, _)| *other != slot), "slot {slot} is free and used");
    }
    assert_eq!(rows(world, DISPOSALS).len(), 0, "every disposal is finished");
    for (key, _) in rows(world, OBJECTS) {
        let object = u64::from_be_bytes(key.as_ref().try_into().unwrap());
        assert!(objects.contains_key(&object), "object {object} is indexed and gone");
    }
    for (key, value) in rows(world, EXTENTS) {
        let list: record::content::ExtentList = decode(EXTENTS, &key, &value).unwrap();
        assert!(objects.contains_key(&list.object), "extents of object {} are left", list.object);
    }
    for (key, value) in rows(world, BUCKETS) {
        let number = u32::from_be_bytes(key.as_ref().try_into().unwrap());
        let known = archive.store().buckets().by_number(number).map(|bucket| bucket.raw.clone());
        assert_eq!(known, Some(value), "bucket {number} is known as it is stored");
    }
    let identity = world.catalog.snapshot().unwrap().get(SETTINGS, record::settings::IDENTITY).unwrap();
    let known = archive.store().identity().look(record::encode);
    assert_eq!(identity, Some(known), "the identity is known as it is stored");
    check_counts(archive);
    let mut seen = BTreeSet::new();
    for bucket in archive.list_buckets(&admin()).await.unwrap() {
        let usage = archive.usage(&admin(), &bucket.name).await.unwrap();
        let number = archive.store().buckets().by_name(&bucket.name).unwrap().number;
        assert_eq!(usage.versions, counts.get(&number).copied().unwrap_or(0), "{}", bucket.name);
        let list = ListVersionsRequest { bucket: bucket.name.clone(), limit: 1000, ..ListVersionsRequest::default() };
        for version in archive.list_versions(&admin(), list).await.unwrap().versions {
            if version.delete_marker {
                continue;
            }
            let request = GetRequest {
                bucket: bucket.name.clone(),
                key: version.key.clone(),
                version: Some(version.version),
                ..GetRequest::default()
            };
            let data = get_with(archive, request).await;
            let data = data.unwrap_or_else(|error| panic!("{}/{}: {error}", bucket.name, version.key));
            let whole = match version.key.as_str() {
                "long" | "copied" => data == content(1, LONG) || data == content(9, LONG),
                "multi" => data == content(2, 5000),
                "short" => data == b"short" || data == b"replaced",
                key => data == key.as_bytes(),
            } || bucket.name == "other";
            assert!(whole, "{}/{}", bucket.name, version.key);
            seen.insert(version.key);
        }
    }
    for key in ["kept", "after 0", "after 1", "after 2", "later"] {
        assert!(seen.contains(key), "`{key}` is gone");
    }
    let verdict = archive.audit_verify(&admin(), None).await.unwrap();
    // What a rebuild did not find of the log stays a finding.
    let cut = |finding: &String| finding.contains("were lost when the catalog was rebuilt");
    assert!(verdict.findings.iter().all(cut), "{verdict:?}");
}

/// Whether the request came to its end within so many polls.
fn given_up(
    (name, request): (&str, fn(Archive, Scene) -> Request),
    polls: usize,
    crowded: bool,
    failures: &mut Vec<String>,
) -> bool {
    const ALL: usize = 1_000_000;
    let (world, gate): (World, Gate) = World::gated(7, 32 * MIB, 256 << 10);
    gate.close();
    let mut archive = gate.drive(world.create(), ALL).unwrap();
    let scene = gate.drive(scene(&archive), ALL).unwrap();
    // The expired is due, and the segments of what is gone are poor.
    for _ in 0..36 {
        world.stage.pass(DAY / 24);
        archive.store().compliance_now();
    }
    if crowded {
        // The next slot lies in a new part of the key table, and the next record in a new segment.
        while gate.drive(archive.step(), ALL).unwrap().unwrap().more {}
        gate.drive(archive.close(), ALL).unwrap().unwrap();
        drop(archive);
        let part = (256 << 10) / 128 - 64;
        let row = record::encode(&record::settings::ReservedRow { below: part });
        let change = stele_catalog::Transaction::new().put(SETTINGS, record::settings::SLOTS, row);
        gate.drive(world.catalog.commit(change), ALL).unwrap().unwrap();
        for (key, _) in rows(&world, FREE_SLOTS) {
            let change = stele_catalog::Transaction::new().delete(FREE_SLOTS, key);
            gate.drive(world.catalog.commit(change), ALL).unwrap().unwrap();
        }
        archive = gate.drive(world.open(), ALL).unwrap();
    }
    let finished = gate.drive(request(archive.clone(), scene.clone()), polls).is_some();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        gate.drive(others(&archive, &world, &scene), ALL).unwrap();
        gate.drive(check(&archive, &world), ALL).unwrap();
        gate.open();
        drop(archive);
        let archive = gate.drive(world.open(), ALL).unwrap();
        gate.drive(check(&archive, &world), ALL).unwrap();
    }));
    if result.is_err() {
        failures.push(format!("{name}, given up after {polls} polls"));
    }
    finished
}

#[test]
fn whatever_is_given_up_wherever_it_waits_leaves_a_whole_store() {
    let mut failures = Vec::new();
    for crowded in [false, true] {
        for (name, request) in requests() {
            let mut polls = 0;
            while !given_up((name, request), polls, crowded, &mut failures) {
                polls += 1;
            }
            assert!(polls > 1, "{name} never waits");
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// What a power cut leaves on the volume, whatever of it was committed: the catalog is lost with
/// it.
fn cut_off((name, request): (&str, fn(Archive, Scene) -> Request), polls: usize, failures: &mut Vec<String>) -> bool {
    const ALL: usize = 1_000_000;
    let (world, gate): (World, Gate) = World::gated(7, 32 * MIB, 256 << 10);
    gate.close();
    let archive = gate.drive(world.create(), ALL).unwrap();
    let scene = gate.drive(scene(&archive), ALL).unwrap();
    let until = gate.drive(archive.retention(&admin(), "locked", "kept", None), ALL).unwrap().unwrap().until;
    gate.drive(archive.set_legal_hold(&admin(), "locked", "free", None, true), ALL).unwrap().unwrap();
    for _ in 0..36 {
        world.stage.pass(DAY / 24);
        archive.store().compliance_now();
    }
    let finished = gate.drive(request(archive.clone(), scene.clone()), polls).is_some();
    gate.cut();
    let gone = |key: &str| {
        let rows = rows(&world, VERSIONS);
        !rows.iter().any(|(row, _)| keys::split(row).is_ok_and(|(_, name, _)| name == key))
    };
    let (governed_gone, expired) = (gone("governed"), gone("expiring"));
    drop(archive);
    world.bench.power_on();
    let world = World { catalog: std::sync::Arc::new(stele_catalog::MemoryCatalog::new()), ..world };
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let rebuilt = Archive::rebuild(world.foundation(), world.options.clone());
        let (archive, report) = gate.drive(rebuilt, ALL).unwrap().unwrap();
        let torn = |finding: &String| finding.contains("torn or damaged") || finding.contains("cannot be read");
        // A version and the one that was replacing it.
        let expected = |finding: &String| torn(finding) || finding.contains("one of several null versions");
        assert!(report.findings.iter().all(expected), "{report:?}");
        gate.drive(
            async {
                let kept = archive.retention(&admin(), "locked", "kept", None).await.unwrap();
                assert!(kept.mode == RetentionMode::Compliance && kept.until >= until, "{kept:?}");
                for (key, gone) in [("kept", false), ("governed", governed_gone), ("expiring", expired)] {
                    let version = archive.why(&admin(), "locked", key, None).await;
                    assert!(gone || version.is_ok(), "`{key}` is lost");
                    let Ok(why) = version else { continue };
                    assert!(why.retained_until.is_some(), "{why:?}");
                    let version = Some(VersionId::parse(&why.version).unwrap());
                    let deleted = archive.delete(&admin(), delete("locked", key, version)).await;
                    assert_eq!(why.protected, deleted.is_err(), "{why:?}: {deleted:?}");
                }
                let held = archive.legal_hold(&admin(), "locked", "free", Some(scene.free)).await.unwrap();
                assert!(held, "a hold stands");
                let versions: BTreeSet<_> = rows(&world, VERSIONS).into_iter().map(|(key, _)| key).collect();
                for (key, _) in rows(&world, record::TOMBSTONES) {
                    assert!(!versions.contains(&key), "a certificate of something that exists");
                }
                others(&archive, &world, &scene).await;
                check(&archive, &world).await;
            },
            ALL,
        )
        .unwrap();
    }));
    if result.is_err() {
        failures.push(format!("{name}, cut off after {polls} polls"));
    }
    finished
}

#[test]
fn a_change_cut_off_anywhere_is_rebuilt_with_its_retention() {
    let mut failures = Vec::new();
    for (name, request) in requests() {
        let mut polls = 0;
        while !cut_off((name, request), polls, &mut failures) {
            polls += 1;
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
