//! Full volumes, damaged frames, requests that go away, many writers at once.

use std::sync::Arc;

use stele_ground::Bytes as Size;

use super::*;
use crate::record::content::Content;
use crate::testing::MIB;

fn delete(bucket: &str, key: &str) -> DeleteRequest {
    DeleteRequest { bucket: bucket.into(), key: key.into(), ..DeleteRequest::default() }
}

#[tokio::test]
async fn a_full_store_refuses_whole_objects_and_comes_back() {
    let world = World::sized(1, 8 * MIB, 256 << 10);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "full", NewBucket { versioning: true, ..NewBucket::default() }).await.unwrap();
    let mut stored = Vec::new();
    let full = loop {
        let key = format!("key {:04}", stored.len());
        match put(&archive, "full", &key, &content(stored.len() as u64, 50_000)).await {
            Ok(info) => stored.push((key, info.version)),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, ArchiveError::NoSpace(_)), "{full}");
    assert!(stored.len() > 80, "{}", stored.len());
    let large = put(&archive, "full", "large", &content(0, 2 << 20)).await;
    assert!(matches!(large, Err(ArchiveError::NoSpace(_))));
    for (n, (key, _)) in stored.iter().enumerate() {
        assert!(get(&archive, "full", key).await.unwrap() == content(n as u64, 50_000));
    }
    let page = archive
        .list(&admin(), ListRequest { bucket: "full".into(), limit: 1000, ..ListRequest::default() })
        .await
        .unwrap();
    assert_eq!(page.objects.len(), stored.len(), "nothing half-stored");
    // Markers and deletes still work, and make room.
    archive.delete(&admin(), delete("full", "key 0000")).await.unwrap();
    for (key, version) in stored.iter().skip(1).step_by(2) {
        let request = DeleteRequest { version: Some(*version), ..delete("full", key) };
        archive.delete(&admin(), request).await.unwrap();
    }
    while archive.step().await.unwrap().more {}
    let again = archive.step().await.unwrap();
    assert!(again.alarms.is_empty(), "{again:?}");
    for n in 0..20 {
        put(&archive, "full", &format!("new {n}"), &content(n, 50_000)).await.unwrap();
    }
    for (n, (key, _)) in stored.iter().enumerate().skip(2).step_by(2) {
        assert!(get(&archive, "full", key).await.unwrap() == content(n as u64, 50_000), "moved and whole");
    }
}

#[tokio::test]
async fn a_full_device_stores_nothing_and_frees_what_it_took() {
    let world = World::new(1);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "full", NewBucket::default()).await.unwrap();
    put(&archive, "full", "before", b"data").await.unwrap();
    world.bench.set_full(true);
    assert!(matches!(put(&archive, "full", "key", b"data").await, Err(ArchiveError::NoSpace(_))));
    assert_eq!(get(&archive, "full", "before").await.unwrap(), b"data");
    world.bench.set_full(false);
    put(&archive, "full", "key", b"data").await.unwrap();
    assert_eq!(get(&archive, "full", "key").await.unwrap(), b"data");
}

#[tokio::test]
async fn a_damaged_frame_is_named_and_never_returned() {
    let mut world = World::new(1);
    world.options.frame_cache = Size(0);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "hurt", NewBucket::default()).await.unwrap();
    let data = content(1, 200_000);
    put(&archive, "hurt", "key", &data).await.unwrap();
    let snapshot = world.catalog.snapshot().unwrap();
    let bucket = archive.store().buckets().by_name("hurt").unwrap();
    let found = crate::store::lookup::newest(&*snapshot, &bucket, "key").unwrap().unwrap();
    let Content::Stream(stream) = found.row.content else { panic!() };
    // A byte in the third frame of the object: in its last piece.
    let extents = stream.extents.unwrap();
    let last = extents.last().unwrap();
    world.bench.flip(archive.store().segments().start(last.segment) + u64::from(last.at) + 80 + 10);
    let request = GetRequest { bucket: "hurt".into(), key: "key".into(), ..GetRequest::default() };
    let result = get_with(&archive, request.clone()).await;
    let Err(ArchiveError::Damaged { place, .. }) = &result else { panic!("{result:?}") };
    assert!(place.contains("`hurt/key`") && place.contains("from byte"), "{place}");
    let first = GetRequest { range: ByteRange::From { first: 0, last: Some(999) }, ..request };
    assert_eq!(get_with(&archive, first).await.unwrap(), data[..1000], "what is whole is readable");
    let findings = scrub(&archive).await.findings;
    assert!(findings.iter().any(|finding| finding.contains("`hurt/key`")), "{findings:?}");
}

#[tokio::test]
async fn a_scrub_counts_every_byte_of_content_once() {
    let world = World::new(1);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "counted", NewBucket::default()).await.unwrap();
    let size = 3 * archive.store().segments().size as usize;
    put(&archive, "counted", "key", &vec![7; size]).await.unwrap();
    let report = scrub(&archive).await;
    assert_eq!(report.bytes, size as u64);
    assert!(report.record_bytes > 0, "records of sealed segments are verified too");
}

#[tokio::test]
async fn a_key_is_destroyed_only_by_whoever_names_its_object() {
    let world = World::new(1);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "keys", NewBucket::default()).await.unwrap();
    put(&archive, "keys", "kept", b"kept").await.unwrap();
    let bucket = archive.store().buckets().by_name("keys").unwrap();
    let found = crate::store::lookup::newest(&*world.catalog.snapshot().unwrap(), &bucket, "kept").unwrap().unwrap();
    let (slot, object) = (found.row.slot, found.row.object);
    let refused = archive.store().keys().destroy(slot, object + 1).await;
    assert!(matches!(&refused, Err(ArchiveError::Damaged { .. })), "{refused:?}");
    archive.store().keys().release(slot, object + 1);
    assert!(!archive.store().keys().free_slots().contains(&slot), "a slot in use is not offered");
    drop(archive);
    let archive = world.open().await;
    assert_eq!(get(&archive, "keys", "kept").await.unwrap(), b"kept");
    archive.store().keys().destroy(slot, object).await.unwrap();
    assert_eq!(archive.store().keys().read(slot).await.unwrap(), None);
}

#[tokio::test]
async fn a_request_that_goes_away_leaves_a_whole_store() {
    let world = World::new(1);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "gone", NewBucket::default()).await.unwrap();
    for polls in 0..40 {
        let key = format!("key {polls}");
        let request = PutRequest { bucket: "gone".into(), key: key.clone(), ..PutRequest::default() };
        let mut writer = archive.put(&admin(), request).await.unwrap();
        writer.write(vec![7; 5000].into()).await.unwrap();
        let mut finish = Box::pin(writer.finish(Expected::default()));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..polls {
            if std::future::Future::poll(finish.as_mut(), &mut context).is_ready() {
                break;
            }
        }
        drop(finish);
        archive.step().await.unwrap();
        match get(&archive, "gone", &key).await {
            Ok(data) => assert_eq!(data, vec![7; 5000]),
            Err(error) => assert!(matches!(error, ArchiveError::NoSuchKey { .. }), "{error}"),
        }
        put(&archive, "gone", &key, b"after").await.unwrap();
        assert_eq!(get(&archive, "gone", &key).await.unwrap(), b"after");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_writers_at_once_share_segments_and_stay_apart() {
    let world = World::sized(1, 512 * MIB, 4 * MIB);
    let volume = stele_media::serve_memory(Size(512 * MIB)).unwrap();
    let foundation = Foundation { data: volume, ..world.foundation() };
    let archive = Archive::create(foundation.clone(), world.options.clone()).await.unwrap();
    archive.create_bucket(&admin(), "many", NewBucket::default()).await.unwrap();
    let size = |n: u64| [10, 4096, 30_000, 70_000, 300_000, 2_000_000][n as usize % 6];
    let mut tasks = Vec::new();
    for writer in 0..12u64 {
        let archive = archive.clone();
        tasks.push(tokio::spawn(async move {
            for n in 0..18 {
                let seed = writer * 100 + n;
                put(&archive, "many", &format!("{writer}/{n}"), &content(seed, size(seed))).await.unwrap();
                if n % 5 == 4 {
                    archive.delete(&admin(), delete("many", &format!("{writer}/{}", n - 2))).await.unwrap();
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    // Reclaim what can be, then open as after a crash.
    while archive.step().await.unwrap().more {}
    drop(archive);
    let archive = Archive::open(foundation, world.options.clone()).await.unwrap();
    for writer in 0..12u64 {
        for n in 0..18 {
            let seed = writer * 100 + n;
            let got = get(&archive, "many", &format!("{writer}/{n}")).await;
            match [2, 7, 12].contains(&n) {
                true => assert!(matches!(got, Err(ArchiveError::NoSuchKey { .. }))),
                false => assert!(got.unwrap() == content(seed, size(seed)), "{writer}/{n}"),
            }
        }
    }
}

#[tokio::test]
async fn a_wrong_master_key_is_refused_and_escrow_is_proved() {
    let world = World::new(1);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "safe", NewBucket::default()).await.unwrap();
    let escrowed = archive.export_master_key(&admin()).await.unwrap();
    assert!(archive.check_master_key(&MasterKey::parse(&escrowed).unwrap()).await.unwrap());
    let other = MasterKey::generate(&*world.stage);
    assert!(!archive.check_master_key(&other).await.unwrap());
    drop(archive);
    let wrong = Foundation { master: other, ..world.foundation() };
    assert!(matches!(Archive::open(wrong, Options::default()).await, Err(ArchiveError::WrongKey(_))));
    let again = Archive::create(world.foundation(), world.options.clone()).await;
    assert!(matches!(again, Err(ArchiveError::InvalidState(_))));
    let reader = Options { read_only: true, ..world.options.clone() };
    let archive = Archive::open(world.foundation(), reader).await.unwrap();
    assert!(matches!(put(&archive, "safe", "key", b"x").await, Err(ArchiveError::ReadOnly(_))));
    assert_eq!(archive.list_buckets(&admin()).await.unwrap().len(), 1);
    drop(Arc::new(archive));
}

#[tokio::test]
async fn remnants_of_an_earlier_store_are_not_taken_for_its_own() {
    let world = World::sized(1, 8 * MIB, 256 << 10);
    let old = world.create().await;
    old.create_bucket(&admin(), "old", NewBucket::default()).await.unwrap();
    for n in 0..100 {
        put(&old, "old", &format!("{n}"), &content(n, 30_000)).await.unwrap();
    }
    drop(old);
    world.bench.handle().zero(0, 8192).await.unwrap();
    world.bench.handle().zero(8 * MIB - 4096, 4096).await.unwrap();
    let catalog = Arc::new(stele_catalog::MemoryCatalog::new());
    let world = World { catalog, master: MasterKey::generate(&*world.stage), ..world };
    let archive = world.create().await;
    archive.create_bucket(&admin(), "new", NewBucket::default()).await.unwrap();
    put(&archive, "new", "key", b"data").await.unwrap();
    drop(archive);
    let archive = world.open().await;
    let (_, tail) = archive.store().appender().tail().unwrap();
    assert!(tail < 32 << 10, "appending goes on behind this store's records: {tail}");
    drop(archive);
    let world = World { catalog: Arc::new(stele_catalog::MemoryCatalog::new()), ..world };
    let (archive, report) = Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap();
    assert_eq!((report.buckets, report.versions), (1, 1), "{report:?}");
    assert_eq!(get(&archive, "new", "key").await.unwrap(), b"data");
}

#[tokio::test]
async fn a_store_over_a_lost_region_opens_and_stores_elsewhere() {
    const REGION: u64 = 640 << 10;
    let until = 16 * MIB / REGION;
    for region in 0..=until {
        let world = World::sized(1, 16 * MIB, 256 << 10);
        let archive = world.create().await;
        archive.create_bucket(&admin(), "some", NewBucket::default()).await.unwrap();
        for n in 0..40 {
            put(&archive, "some", &format!("old {n}"), &content(n, 40_000)).await.unwrap();
            // What is replaced leaves disposals for the next opening.
            put(&archive, "some", "replaced", &content(n, 10)).await.unwrap();
        }
        drop(archive);
        let lost = region * REGION..(region + 1) * REGION;
        world.bench.lose(lost.clone());
        let archive = world.open().await;
        let mut unreadable = 0;
        for n in 0..40 {
            let name = format!("`some/old {n}`");
            match get(&archive, "some", &format!("old {n}")).await {
                Ok(data) => assert!(data == content(n, 40_000)),
                Err(ArchiveError::Damaged { place, .. }) if place.contains(&name) => unreadable += 1,
                Err(error) => panic!("{lost:?}: {name}: {error}"),
            }
        }
        let mut failures = 0;
        for n in 0..40 {
            let key = format!("new {n}");
            while put(&archive, "some", &key, &content(n, 20_000)).await.is_err() {
                failures += 1;
                assert!(failures < 8, "{lost:?}: what is new goes elsewhere");
            }
            assert!(get(&archive, "some", &key).await.unwrap() == content(n, 20_000));
        }
        world.stage.pass(400_000);
        let mut steps = 0;
        while archive.step().await.unwrap().more && steps < 100 {
            steps += 1;
        }
        assert!(steps < 100, "{lost:?}: background work comes to an end");
        if region == 0 {
            let standing = archive.standing_alarms();
            assert!(unreadable == 40 && standing.iter().any(|alarm| alarm.kind == AlarmKind::Disposal), "{standing:?}");
        }
        drop(archive);
        // The drives come back.
        world.bench.lose(0..0);
        let archive = world.open().await;
        for n in 0..40 {
            assert!(get(&archive, "some", &format!("old {n}")).await.unwrap() == content(n, 40_000), "{lost:?}");
            assert!(get(&archive, "some", &format!("new {n}")).await.unwrap() == content(n, 20_000), "{lost:?}");
        }
        while archive.step().await.unwrap().more {}
        assert_eq!(archive.standing_alarms(), [], "{lost:?}");
    }
}

#[tokio::test]
async fn more_long_bodies_than_fit_memory_do_not_block_each_other() {
    let mut world = World::sized(1, 256 * MIB, 8 * MIB);
    world.options.in_flight = Size(4 * MIB);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "long", NewBucket::default()).await.unwrap();
    let keys: Vec<String> = (0..12).map(|n| format!("{n}")).collect();
    let data = content(1, 3 << 20);
    let mut writers = Vec::new();
    for key in &keys {
        let request = PutRequest { bucket: "long".into(), key: key.clone(), ..PutRequest::default() };
        writers.push(archive.put(&admin(), request).await.unwrap());
    }
    // Each writes a little in turn, so that all are somewhere in the middle at once.
    let together = async {
        let write = writers.into_iter().map(async |mut writer| {
            for piece in data.chunks(10_000) {
                writer.write(bytes::Bytes::copy_from_slice(piece)).await.unwrap();
                tokio::task::yield_now().await;
            }
            writer.finish(Expected::default()).await.unwrap();
        });
        futures_util::future::join_all(write).await;
    };
    let ended = tokio::time::timeout(std::time::Duration::from_secs(60), together).await;
    assert!(ended.is_ok(), "every body waits for room that another keeps");
    for key in &keys {
        assert!(get(&archive, "long", key).await.unwrap() == data);
    }
}

#[tokio::test]
async fn a_slow_upload_holds_up_its_own_segments_alone() {
    let world = World::sized(1, 32 * MIB, 256 << 10);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "slow", NewBucket::default()).await.unwrap();
    let request = PutRequest { bucket: "slow".into(), key: "slow".into(), ..PutRequest::default() };
    let mut slow = archive.put(&admin(), request).await.unwrap();
    let data = content(1, 600_000);
    slow.write(bytes::Bytes::copy_from_slice(&data[..300_000])).await.unwrap();
    for n in 0..200 {
        put(&archive, "slow", &format!("{n}"), &content(n, 50_000)).await.unwrap();
        archive.delete(&admin(), delete("slow", &format!("{n}"))).await.unwrap();
    }
    let before = archive.space();
    while archive.step().await.unwrap().more {}
    let after = archive.space();
    assert!(before.sealed > 30 && after.sealed <= 8, "{before:?} {after:?}");
    slow.write(bytes::Bytes::copy_from_slice(&data[300_000..])).await.unwrap();
    slow.finish(Expected::default()).await.unwrap();
    assert!(get(&archive, "slow", "slow").await.unwrap() == data, "what it had written stays");
    while archive.step().await.unwrap().more {}
    assert!(get(&archive, "slow", "slow").await.unwrap() == data);
}

#[tokio::test]
async fn what_may_go_goes_from_a_volume_without_any_room() {
    let mut world = World::sized(1, 16 * MIB, 256 << 10);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "plain", NewBucket::default()).await.unwrap();
    let new = NewBucket { object_lock: true, expiry: ExpiryAction::Delete, ..NewBucket::default() };
    archive.create_bucket(&admin(), "locked", new).await.unwrap();
    let until = archive.store().compliance_now().plus_days(1);
    let retention = Some(Retention { mode: RetentionMode::Compliance, until });
    let mut versions = Vec::new();
    for n in 0..20 {
        put(&archive, "plain", &format!("{n}"), &content(n, 20_000)).await.unwrap();
        let (bucket, key) = ("locked".into(), format!("{n}"));
        let request = PutRequest { bucket, key, retention, ..PutRequest::default() };
        versions.push(crate::testing::put_as(&archive, &admin(), request, b"record").await.unwrap().version);
    }
    world.bench.set_no_new(true);
    assert!(matches!(put(&archive, "plain", "more", &content(1, 20_000)).await, Err(ArchiveError::NoSpace(_))));
    for n in 0..20 {
        archive.delete(&admin(), delete("plain", &format!("{n}"))).await.unwrap();
    }
    for _ in 0..36 {
        world.stage.pass(3_600_000);
        archive.store().compliance_now();
    }
    for (n, version) in versions.iter().enumerate().take(10) {
        let request = DeleteRequest { version: Some(*version), ..delete("locked", &format!("{n}")) };
        archive.delete(&admin(), request).await.unwrap();
    }
    let mut expired = 0;
    for _ in 0..5 {
        expired += archive.step().await.unwrap().expired;
    }
    assert_eq!(expired, 10, "expiration goes on");
    assert!(
        world
            .catalog
            .snapshot()
            .unwrap()
            .range(crate::record::DISPOSALS, &stele_catalog::KeyRange::all(), 9, stele_catalog::Direction::Forward)
            .unwrap()
            .is_empty()
    );
    world.bench.set_no_new(false);
    while archive.step().await.unwrap().more {}
    put(&archive, "plain", "more", &content(1, 20_000)).await.unwrap();
    archive.close().await.unwrap();
    drop(archive);
    // The certificates were noted as soon as there was room.
    world.catalog = Arc::new(stele_catalog::MemoryCatalog::new());
    let (archive, _) = Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap();
    let all = stele_catalog::KeyRange::all();
    let rows =
        world.catalog.snapshot().unwrap().range(crate::record::TOMBSTONES, &all, 99, stele_catalog::Direction::Forward);
    assert_eq!(rows.unwrap().len(), 20);
    assert!(get(&archive, "plain", "more").await.unwrap() == content(1, 20_000));
}

/// The drives take no write while versions are deleted, by a client, by two officers and by
/// expiration.
#[tokio::test]
async fn a_removal_whose_key_stays_says_that_the_version_is_gone() {
    let world = World::sized(1, 16 * MIB, 256 << 10);
    let archive = world.create().await;
    let new = NewBucket { object_lock: true, expiry: ExpiryAction::Delete, ..NewBucket::default() };
    archive.create_bucket(&admin(), "locked", new).await.unwrap();
    let until = archive.store().compliance_now().plus_days(1);
    let retention = Some(Retention { mode: RetentionMode::Governance, until });
    let mut versions = Vec::new();
    for key in ["by a client", "by two", "expired"] {
        let request = PutRequest { bucket: "locked".into(), key: key.into(), retention, ..PutRequest::default() };
        versions.push(crate::testing::put_as(&archive, &admin(), request, b"record").await.unwrap().version);
    }
    let named =
        |n: usize, key: &str| VersionName { bucket: "locked".into(), key: key.into(), version: Some(versions[n]) };
    let (anna, ben) = (crate::testing::officer("anna", 1), crate::testing::officer("ben", 2));
    let asked = archive.request_deletion(&anna, &named(1, "by two"), "an error").await.unwrap();
    let request =
        DeleteRequest { version: Some(versions[0]), bypass_governance: true, ..delete("locked", "by a client") };
    world.bench.set_full(true);
    let deleted = archive.delete(&admin(), request.clone()).await;
    assert!(matches!(deleted, Err(ArchiveError::KeyNotDestroyed(_))), "{deleted:?}");
    let again = archive.delete(&admin(), request).await.unwrap();
    assert_eq!(again.logged, None, "there is nothing left to delete");
    let approved = archive.approve(&ben, &asked.id).await;
    assert!(matches!(approved, Err(ArchiveError::KeyNotDestroyed(_))), "{approved:?}");
    for _ in 0..36 {
        world.stage.pass(3_600_000);
        archive.store().compliance_now();
    }
    let report = archive.step().await.unwrap();
    assert_eq!(report.expired, 1, "{report:?}");
    assert!(report.alarms.iter().all(|alarm| alarm.kind != AlarmKind::Expiration), "{report:?}");
    let report = archive.step().await.unwrap();
    assert!(report.alarms.iter().any(|alarm| alarm.kind == AlarmKind::Disposal), "{report:?}");
    // The log tells the truth: all three are gone, and no key is destroyed yet.
    let told = async |action: &str, with: &str| {
        let all = archive.audit_records(&admin(), 0, 1000).await.unwrap();
        let done = all.iter().filter(|row| row.action == action && row.refused.is_none());
        done.filter(|row| row.detail.as_deref().is_some_and(|detail| detail.contains(with))).count()
    };
    let gone = (told("DeleteObject", "bytes, blake3").await, told("Expire", "disposed of").await);
    assert_eq!((gone, told("Dispose", "key destroyed").await), ((2, 1), 0));
    world.bench.set_full(false);
    world.stage.pass(400_000);
    while archive.step().await.unwrap().more {}
    assert_eq!(told("Dispose", "key destroyed").await, 3, "each key is destroyed in the end");
    assert_eq!(archive.standing_alarms(), []);
}

#[tokio::test]
async fn the_last_segments_are_for_what_makes_room() {
    let world = World::sized(1, 4 * MIB, 256 << 10);
    let archive = world.create().await;
    let new = NewBucket { object_lock: true, ..NewBucket::default() };
    archive.create_bucket(&admin(), "locked", new).await.unwrap();
    let until = archive.store().compliance_now().plus_days(1);
    let request = |n: u64| PutRequest {
        bucket: "locked".into(),
        key: format!("{n}"),
        retention: Some(Retention { mode: RetentionMode::Compliance, until }),
        ..PutRequest::default()
    };
    let mut stored = Vec::new();
    while let Ok(info) =
        crate::testing::put_as(&archive, &admin(), request(stored.len() as u64), &content(1, 20_000)).await
    {
        stored.push(info.version);
    }
    // Any writer may set tags, so they take no part of the reserve.
    let tags = Tags::from([("key".to_string(), "v".repeat(250))]);
    let mut refused = 0;
    for _ in 0..2000 {
        refused += archive.set_tags(&admin(), "locked", "0", None, tags.clone()).await.is_err() as usize;
    }
    assert!(refused > 0, "tags use what is left and no more");
    for _ in 0..36 {
        world.stage.pass(3_600_000);
        archive.store().compliance_now();
    }
    for (n, version) in stored.iter().enumerate() {
        let request = DeleteRequest { version: Some(*version), ..delete("locked", &format!("{n}")) };
        archive.delete(&admin(), request).await.unwrap();
    }
    while archive.step().await.unwrap().more {}
    crate::testing::put_as(&archive, &admin(), PutRequest { retention: None, ..request(0) }, b"again").await.unwrap();
}

#[tokio::test]
async fn a_body_that_gives_way_keeps_a_frame_and_is_stored_whole() {
    let mut world = World::sized(1, 256 * MIB, 8 * MIB);
    world.options.in_flight = Size(4 * MIB);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "slow", NewBucket::default()).await.unwrap();
    let data = content(1, 2_500_000);
    for (step, give) in [(10_000, 7), (65_536, 1), (65_536, 5), (70_001, 3), (400_000, 1), (1_100_000, 1)] {
        let key = format!("{step} {give}");
        let request = PutRequest { bucket: "slow".into(), key: key.clone(), ..PutRequest::default() };
        let mut writer = archive.put(&admin(), request).await.unwrap();
        for (number, piece) in data.chunks(step).enumerate() {
            writer.write(bytes::Bytes::copy_from_slice(piece)).await.unwrap();
            if number % give == 0 {
                writer.give_way().await.unwrap();
                // Another body can take all memory but that of a frame.
                assert!(
                    archive.store().bodies().memory().try_take((4 << 20) - (70 << 10)).is_some(),
                    "{key}: after {number}"
                );
            }
        }
        writer.finish(Expected::default()).await.unwrap();
        assert!(get(&archive, "slow", &key).await.unwrap() == data, "{key}");
    }
}

#[tokio::test]
async fn a_full_segment_with_writes_under_way_is_not_damaged() {
    let world = World::sized(1, 16 * MIB, 256 << 10);
    let archive = Arc::new(world.create().await);
    archive.create_bucket(&admin(), "busy", NewBucket::default()).await.unwrap();
    put(&archive, "busy", "first", &content(9, 100_000)).await.unwrap();
    let sealed = |archive: &Archive| {
        archive
            .store()
            .segments()
            .rows()
            .values()
            .filter(|row| row.usage == crate::record::segment::SegmentUse::Sealed)
            .count()
    };
    world.bench.be_late();
    let before = sealed(&archive);
    let puts: Vec<_> = (0..8u64)
        .map(|n| {
            let archive = Arc::clone(&archive);
            tokio::spawn(async move { put(&archive, "busy", &format!("{n}"), &content(n, 100_000)).await })
        })
        .collect();
    for _ in 0..10_000_000 {
        if sealed(&archive) > before {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert!(sealed(&archive) > before, "no segment was filled while its writes were under way");
    let during = scrub(&archive).await;
    world.bench.finish_late();
    for put in puts {
        put.await.unwrap().unwrap();
    }
    let after = scrub(&archive).await;
    assert_eq!((during.findings, after.findings), (Vec::new(), Vec::new()));
    assert!(after.records > during.records, "what was left out is verified by the next pass");
}
