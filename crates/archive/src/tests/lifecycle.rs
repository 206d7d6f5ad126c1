//! Lifecycle rules on stored versions: what they end and when, and that no rule reaches what is
//! protected.

use futures_util::poll;

use super::*;
use crate::testing::put_as;

const DAY: u64 = 86_400_000;

fn rule(id: &str) -> LifecycleRule {
    LifecycleRule {
        id: id.into(),
        enabled: true,
        filter: LifecycleFilter::default(),
        expiration: None,
        noncurrent: None,
        abort_days: None,
    }
}

async fn bucket(world: &World, new: NewBucket, rules: Vec<LifecycleRule>) -> Archive {
    let archive = world.create().await;
    archive.create_bucket(&admin(), "aging", new).await.unwrap();
    archive.change_bucket(&admin(), "aging", BucketChange::Lifecycle(Some(rules))).await.unwrap();
    archive
}

/// Steps until nothing is due. Returns what was ended.
async fn settle(archive: &Archive) -> u64 {
    let mut ended = 0;
    for _ in 0..1000 {
        let report = archive.step().await.unwrap();
        assert!(report.alarms.is_empty(), "{:?}", report.alarms);
        ended += report.expired;
        if !report.more {
            return ended;
        }
    }
    panic!("background work does not come to an end");
}

async fn versions(archive: &Archive) -> Vec<(String, bool, bool)> {
    let request = ListVersionsRequest { bucket: "aging".into(), limit: 1000, ..ListVersionsRequest::default() };
    let page = archive.list_versions(&admin(), request).await.unwrap();
    assert!(!page.truncated);
    page.versions.into_iter().map(|version| (version.key, version.latest, version.delete_marker)).collect()
}

fn names(versions: &[(String, bool, bool)]) -> Vec<&str> {
    versions.iter().map(|(key, _, _)| key.as_str()).collect()
}

fn versioned(object_lock: bool) -> NewBucket {
    NewBucket { versioning: true, object_lock, ..NewBucket::default() }
}

#[tokio::test]
async fn settings_that_do_not_fit_together_are_refused_with_their_limit() {
    let world = World::new(1);
    let first = LifecycleRule { expiration: Some(Expiration::Days(1)), ..rule("first") };
    let archive = bucket(&world, NewBucket::default(), vec![first]).await;
    let long = |at: usize| LifecycleRule {
        filter: LifecycleFilter {
            prefix: format!("{at:04}{}", "p".repeat(1020)),
            tags: (0..10).map(|tag| (tag.to_string(), "v".repeat(200))).collect(),
            ..LifecycleFilter::default()
        },
        expiration: Some(Expiration::Days(1)),
        ..rule(&at.to_string())
    };
    let set = async |rules: usize| {
        let change = BucketChange::Lifecycle(Some((0..rules).map(long).collect()));
        archive.change_bucket(&admin(), "aging", change).await
    };
    match set(1000).await {
        Err(ArchiveError::InvalidRequest(text)) => {
            assert!(text.contains("`aging`") && text.contains("at most 2096128 fit"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    let kept = async || archive.lifecycle(&admin(), "aging").await.unwrap().map_or(0, |rules| rules.len());
    assert_eq!(kept().await, 1);
    set(10).await.unwrap();
    assert_eq!(kept().await, 10);
    put(&archive, "aging", "beneath", b"it").await.unwrap();
}

#[tokio::test]
async fn objects_and_uploads_end_at_the_midnight_after_their_days() {
    let world = World::new(1);
    let logs = LifecycleFilter { prefix: "logs/".into(), ..LifecycleFilter::default() };
    let ends = LifecycleRule { filter: logs.clone(), expiration: Some(Expiration::Days(2)), ..rule("old logs") };
    let aborts = LifecycleRule { abort_days: Some(1), ..rule("uploads") };
    let archive = bucket(&world, NewBucket::default(), vec![ends, aborts]).await;
    put(&archive, "aging", "logs/a", b"log").await.unwrap();
    put(&archive, "aging", "kept", b"kept").await.unwrap();
    let upload = NewUpload { bucket: "aging".into(), key: "big".into(), ..NewUpload::default() };
    archive.create_upload(&admin(), upload).await.unwrap();
    let uploads = async || {
        let request = ListUploadsRequest { bucket: "aging".into(), limit: 10, ..ListUploadsRequest::default() };
        archive.list_uploads(&admin(), request).await.unwrap().uploads.len()
    };
    // Stored at 08:00. Two days end at the midnight behind 08:00 of the third day.
    for (days, objects, left) in [(0, 2, 1), (1, 2, 1), (1, 2, 0), (1, 1, 0)] {
        world.stage.pass(days * DAY);
        settle(&archive).await;
        assert_eq!((versions(&archive).await.len(), uploads().await), (objects, left), "after {days} more days");
    }
    assert_eq!(names(&versions(&archive).await), ["kept"]);
    let log = archive.audit_records(&admin(), 1, 1000).await.unwrap();
    let ended = log.iter().find(|record| record.action == "Expire").unwrap();
    assert_eq!(ended.actor, "stele lifecycle");
    assert!(ended.detail.as_ref().unwrap().starts_with("lifecycle rule `old logs`: 3 bytes, blake3"), "{ended:?}");
}

#[tokio::test]
async fn the_rate_of_expiration_bounds_rules_too() {
    let world = World::new(15);
    let ends = LifecycleRule { expiration: Some(Expiration::Days(1)), abort_days: Some(1), ..rule("all") };
    let archive = bucket(&world, NewBucket::default(), vec![ends]).await;
    for n in 0..5 {
        put(&archive, "aging", &format!("object {n}"), b"x").await.unwrap();
        let upload = NewUpload { bucket: "aging".into(), key: format!("upload {n}"), ..NewUpload::default() };
        archive.create_upload(&admin(), upload).await.unwrap();
    }
    archive.limit_expiration(&admin(), Some(1)).await.unwrap();
    world.stage.pass(4 * DAY);
    let mut ended = Vec::new();
    for second in 0..13 {
        world.stage.pass(1000);
        let report = archive.step().await.unwrap();
        assert!(report.expired <= 1, "{second}: {report:?}");
        ended.extend((report.expired > 0).then_some(second));
    }
    assert_eq!(ended.len(), 10, "none is passed over: {ended:?}");
    assert_eq!(versions(&archive).await, []);
    let request = ListUploadsRequest { bucket: "aging".into(), limit: 10, ..ListUploadsRequest::default() };
    assert_eq!(archive.list_uploads(&admin(), request).await.unwrap().uploads.len(), 0);
}

#[tokio::test]
async fn a_current_version_gets_a_marker_and_the_last_marker_goes() {
    let world = World::new(2);
    let archive = bucket(
        &world,
        versioned(false),
        vec![
            LifecycleRule { expiration: Some(Expiration::Days(10)), ..rule("current") },
            LifecycleRule { noncurrent: Some(NoncurrentExpiration { days: 5, newer: None }), ..rule("noncurrent") },
        ],
    )
    .await;
    put(&archive, "aging", "a", b"1").await.unwrap();
    world.stage.pass(11 * DAY);
    assert_eq!(settle(&archive).await, 1);
    let marked = [("a".to_owned(), true, true), ("a".to_owned(), false, false)];
    assert_eq!(versions(&archive).await, marked);
    let log = archive.audit_records(&admin(), 1, 1000).await.unwrap();
    let record = log.iter().find(|record| record.action == "AddDeleteMarker").unwrap();
    assert_eq!(record.detail.as_deref(), Some("lifecycle rule `current`"));
    world.stage.pass(4 * DAY);
    assert_eq!((settle(&archive).await, versions(&archive).await.len()), (0, 2), "noncurrent for 4 of 5 days");
    world.stage.pass(2 * DAY);
    settle(&archive).await;
    assert_eq!(versions(&archive).await, [("a".to_owned(), true, true)], "the marker is younger than 10 days");
    world.stage.pass(5 * DAY);
    settle(&archive).await;
    assert_eq!(versions(&archive).await, [], "a marker above nothing");
}

#[tokio::test]
async fn newer_noncurrent_versions_stay_over_pages_of_one_key() {
    let world = World::sized(3, 32 << 20, 1 << 20);
    let noncurrent = Some(NoncurrentExpiration { days: 1, newer: Some(3) });
    let archive = bucket(&world, versioned(false), vec![LifecycleRule { noncurrent, ..rule("three") }]).await;
    for number in 0..450_u32 {
        put(&archive, "aging", "many", &number.to_be_bytes()).await.unwrap();
    }
    put(&archive, "aging", "neighbour", b"one").await.unwrap();
    world.stage.pass(3 * DAY);
    assert_eq!(settle(&archive).await, 446);
    let left = versions(&archive).await;
    assert_eq!(names(&left), ["many", "many", "many", "many", "neighbour"]);
    assert_eq!(get(&archive, "aging", "many").await.unwrap(), 449_u32.to_be_bytes());
}

#[tokio::test]
async fn newer_versions_are_counted_when_a_version_ends() {
    let world = World::new(7);
    let noncurrent = Some(NoncurrentExpiration { days: 1, newer: Some(2) });
    let archive = bucket(&world, versioned(false), vec![LifecycleRule { noncurrent, ..rule("two") }]).await;
    let mut stored = Vec::new();
    for data in [b"2", b"3", b"4", b"5"] {
        stored.push(put(&archive, "aging", "key", data).await.unwrap().version);
    }
    world.stage.pass(3 * DAY);
    archive.store().compliance_now();
    let number = archive.store().buckets().by_name("aging").unwrap().number;
    let lock = archive.store().lock(number, "key").await.unwrap();
    // The pass reads its page while the removals of the versions between wait before it.
    let caller = admin();
    let removal = |at: usize| DeleteRequest {
        bucket: "aging".into(),
        key: "key".into(),
        version: Some(stored[at]),
        ..DeleteRequest::default()
    };
    let mut first = std::pin::pin!(archive.delete(&caller, removal(2)));
    let mut second = std::pin::pin!(archive.delete(&caller, removal(1)));
    assert!(poll!(first.as_mut()).is_pending() && poll!(second.as_mut()).is_pending());
    let mut step = std::pin::pin!(archive.step());
    assert!(poll!(step.as_mut()).is_pending());
    drop(lock);
    first.await.unwrap();
    second.await.unwrap();
    assert_eq!(step.await.unwrap().expired, 0, "two noncurrent versions are to be kept");
    assert_eq!(versions(&archive).await.len(), 2);
}

#[tokio::test]
async fn no_rule_reaches_what_is_under_retention_or_a_hold() {
    let world = World::new(4);
    let archive = bucket(
        &world,
        versioned(true),
        vec![LifecycleRule {
            expiration: Some(Expiration::Days(1)),
            noncurrent: Some(NoncurrentExpiration { days: 1, newer: None }),
            ..rule("all")
        }],
    )
    .await;
    let until = archive.store().compliance_now().plus_days(20);
    let retained = |mode| Some(Retention { mode, until });
    for (key, retention, legal_hold) in [
        ("compliance", retained(RetentionMode::Compliance), false),
        ("governance", retained(RetentionMode::Governance), false),
        ("hold", None, true),
        ("free", None, false),
    ] {
        let request =
            PutRequest { bucket: "aging".into(), key: key.into(), retention, legal_hold, ..PutRequest::default() };
        put_as(&archive, &admin(), request, b"record").await.unwrap();
    }
    world.stage.pass(10 * DAY);
    settle(&archive).await;
    // One pass takes the free version below its marker, the next one the marker.
    for _ in 0..2 {
        world.stage.pass(2 * DAY);
        settle(&archive).await;
    }
    let kept = versions(&archive).await;
    assert_eq!(names(&kept), ["compliance", "compliance", "governance", "governance", "hold", "hold"]);
    let refusals = archive.audit_records(&admin(), 1, 1000).await.unwrap();
    assert!(refusals.iter().all(|record| record.refused.is_none()), "a passed over version is no refusal");
    for _ in 0..3 {
        world.stage.pass(5 * DAY);
        settle(&archive).await;
    }
    assert_eq!(names(&versions(&archive).await), ["hold", "hold"], "the retention is over, the hold is not");
}

#[tokio::test]
async fn nothing_ends_while_the_clock_is_frozen() {
    let world = World::new(5);
    let rules = vec![LifecycleRule { expiration: Some(Expiration::Days(1)), ..rule("all") }];
    let archive = bucket(&world, NewBucket::default(), rules).await;
    put(&archive, "aging", "a", b"1").await.unwrap();
    world.stage.set_wall(Timestamp(world.stage.now().wall.0 + 365 * DAY));
    // It stays frozen until an officer has looked, however much time passes.
    for _ in 0..10 {
        world.stage.pass(DAY);
        assert_eq!(archive.step().await.unwrap().expired, 0);
    }
    assert_eq!(names(&versions(&archive).await), ["a"]);
}

#[tokio::test]
async fn a_disabled_rule_does_nothing_and_rules_survive_a_rebuild() {
    let world = World::new(6);
    let disabled = LifecycleRule { enabled: false, expiration: Some(Expiration::Days(1)), ..rule("off") };
    let archive = bucket(&world, NewBucket::default(), vec![disabled.clone()]).await;
    put(&archive, "aging", "a", b"1").await.unwrap();
    world.stage.pass(5 * DAY);
    assert_eq!(settle(&archive).await, 0);
    archive.close().await.unwrap();
    drop(archive);
    let world = World { catalog: std::sync::Arc::new(stele_catalog::MemoryCatalog::new()), ..world };
    let filled = Archive::fill(&world.foundation(), &world.options, Rebuild::default()).await.unwrap();
    let (archive, _) = filled.adopt(world.foundation(), world.options.clone()).await.unwrap();
    assert_eq!(archive.lifecycle(&admin(), "aging").await.unwrap(), Some(vec![disabled]));
}

/// A machine starts with a system clock of two months ago. What is stored then is new all the same.
#[tokio::test]
async fn a_clock_that_is_behind_at_storing_ages_nothing() {
    let world = World::new(20);
    let ends = LifecycleRule { expiration: Some(Expiration::Days(30)), ..rule("old") };
    let noncurrent = NoncurrentExpiration { days: 30, newer: None };
    let former = LifecycleRule { noncurrent: Some(noncurrent), abort_days: Some(30), ..rule("former") };
    let archive = bucket(&world, versioned(false), vec![former]).await;
    archive.create_bucket(&admin(), "plain", NewBucket::default()).await.unwrap();
    archive.change_bucket(&admin(), "plain", BucketChange::Lifecycle(Some(vec![ends]))).await.unwrap();
    put(&archive, "aging", "record", b"first").await.unwrap();
    let wall = world.stage.now().wall;
    world.stage.set_wall(Timestamp(wall.0 - 60 * DAY));
    put(&archive, "aging", "record", b"second").await.unwrap();
    put(&archive, "aging", "removed", b"record").await.unwrap();
    let request = DeleteRequest { bucket: "aging".into(), key: "removed".into(), ..DeleteRequest::default() };
    archive.delete(&admin(), request).await.unwrap();
    let upload = NewUpload { bucket: "aging".into(), key: "big".into(), ..NewUpload::default() };
    archive.create_upload(&admin(), upload).await.unwrap();
    let stored = put(&archive, "plain", "record", b"record").await.unwrap();
    let before = versions(&archive).await;
    // As an earlier version of Stele dated it: an end that never comes is not announced.
    let dated = ObjectInfo { modified: Timestamp(wall.0 - 60 * DAY), ..stored.clone() };
    assert_eq!(archive.lifecycle_end(&dated), None);
    assert!(archive.lifecycle_end(&stored).is_some());
    world.stage.set_wall(wall);
    let _ = archive.step().await.unwrap();
    archive.accept_clock(&admin()).await.unwrap();
    world.stage.pass(2 * 3_600_000);
    assert_eq!(settle(&archive).await, 0);
    assert_eq!(versions(&archive).await, before);
    assert_eq!(get(&archive, "plain", "record").await.unwrap(), b"record");
    // After their days they go.
    world.stage.pass(40 * DAY);
    assert!(settle(&archive).await >= 3);
}

/// Earlier versions of Stele stored by a system clock that was years behind.
#[tokio::test]
async fn a_version_older_than_its_bucket_has_no_age() {
    use crate::record::version::VersionRow;
    use crate::record::{VERSIONS, decode, encode};
    let world = World::new(21);
    let ends = LifecycleRule { expiration: Some(Expiration::Days(30)), ..rule("old") };
    let archive = bucket(&world, NewBucket::default(), vec![ends]).await;
    put(&archive, "aging", "odd", b"record").await.unwrap();
    put(&archive, "aging", "plain", b"record").await.unwrap();
    let store = archive.store();
    let forward = stele_catalog::Direction::Forward;
    let rows = store.snapshot().unwrap().range(VERSIONS, &stele_catalog::KeyRange::all(), 1, forward).unwrap();
    let (key, raw) = rows[0].clone();
    let row: VersionRow = decode(VERSIONS, &key, &raw).unwrap();
    let row = VersionRow { modified: Timestamp(0), ..row };
    store.catalog().commit(stele_catalog::Transaction::new().put(VERSIONS, key, encode(&row))).await.unwrap();
    world.stage.pass(40 * DAY);
    assert_eq!(settle(&archive).await, 1);
    assert_eq!(names(&versions(&archive).await), ["odd"]);
}

/// The key of the self-test's object is no way round the rules.
#[tokio::test]
async fn an_object_of_a_client_ends_whatever_its_key() {
    let world = World::new(9);
    let rules = vec![LifecycleRule { expiration: Some(Expiration::Days(10)), ..rule("current") }];
    let archive = bucket(&world, versioned(false), rules).await;
    put(&archive, "aging", crate::model::bucket::CANARY_KEY, b"1").await.unwrap();
    world.stage.pass(11 * DAY);
    assert_eq!(settle(&archive).await, 1);
}

/// The rule waits for the lock of the key while a pause, or a freeze of the clock, comes. What was
/// answered stands: the rule ends nothing from then on.
#[tokio::test]
async fn what_comes_while_a_rule_waits_for_a_key_holds_for_it() {
    let suspended = async |archive: &Archive| {
        let change = BucketChange::Versioning(Versioning::Suspended);
        archive.change_bucket(&admin(), "aging", change).await.unwrap();
    };
    for (new, suspends) in [(NewBucket::default(), false), (versioned(false), false), (versioned(false), true)] {
        for freezes in [false, true] {
            let world = World::new(22);
            let ends = LifecycleRule { expiration: Some(Expiration::Days(1)), abort_days: Some(1), ..rule("all") };
            let archive = bucket(&world, new.clone(), vec![ends]).await;
            if suspends {
                suspended(&archive).await;
            }
            put(&archive, "aging", "key", b"1").await.unwrap();
            let upload = NewUpload { bucket: "aging".into(), key: "key".into(), ..NewUpload::default() };
            archive.create_upload(&admin(), upload).await.unwrap();
            let uploads = async || {
                let request = ListUploadsRequest { bucket: "aging".into(), limit: 10, ..ListUploadsRequest::default() };
                archive.list_uploads(&admin(), request).await.unwrap().uploads.len()
            };
            let stored = versions(&archive).await;
            world.stage.pass(5 * DAY);
            let number = archive.store().buckets().by_name("aging").unwrap().number;
            // The first step comes to the version, the second one to the upload.
            for _ in 0..2 {
                let lock = archive.store().lock(number, "key").await.unwrap();
                let mut step = std::pin::pin!(archive.step());
                assert!(poll!(step.as_mut()).is_pending());
                match freezes {
                    true => world.stage.set_wall(Timestamp(world.stage.now().wall.0 + DAY)),
                    false => archive.pause_expiration(&admin(), "an audit").await.map(drop).unwrap(),
                }
                drop(lock);
                assert_eq!(step.await.unwrap().expired, 0, "suspended: {suspends}, frozen: {freezes}");
                assert_eq!((versions(&archive).await, uploads().await), (stored.clone(), 1));
                match freezes {
                    true => {
                        archive.step().await.unwrap();
                        archive.accept_clock(&admin()).await.unwrap();
                    }
                    false => archive.resume_expiration(&admin()).await.map(drop).unwrap(),
                }
            }
            // This pass comes to its end, and the next one ends both.
            assert_eq!(settle(&archive).await, 0);
            world.stage.pass(2 * 3_600_000);
            assert!(settle(&archive).await >= 2);
            assert_eq!(uploads().await, 0);
            assert_ne!(versions(&archive).await, stored);
        }
    }
}
