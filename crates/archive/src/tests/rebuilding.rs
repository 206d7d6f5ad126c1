//! Rebuilds while something is missing, and catalogs that do not belong to their data volume.

mod doubted;
mod names;
mod room;

use std::sync::Arc;

use stele_catalog::{Catalog, Direction, KeyRange, MemoryCatalog, Table, Transaction};

use super::*;
use crate::record::TOMBSTONES;
use crate::record::segment::SegmentUse;
use crate::retention::rules::Cause;
use crate::store::lookup;
use crate::testing::{MIB, put_as, records};

const SEGMENT: u64 = 256 << 10;
const DAY: u64 = 86_400_000;

fn locked_bucket() -> NewBucket {
    NewBucket { object_lock: true, versioning: true, ..NewBucket::default() }
}

async fn retained(archive: &Archive, key: &str, days: u64, length: usize) -> ObjectInfo {
    let until = archive.store().compliance_now().plus_days(days);
    let request = PutRequest {
        bucket: "locked".into(),
        key: key.into(),
        retention: Some(Retention { mode: RetentionMode::Compliance, until }),
        ..PutRequest::default()
    };
    put_as(archive, &admin(), request, &content(3, length)).await.unwrap()
}

fn anew(world: World) -> World {
    World { catalog: Arc::new(MemoryCatalog::new()), ..world }
}

async fn rebuild(world: &World, rebuild: Rebuild) -> Result<(Archive, RebuildReport)> {
    let filled = Archive::fill(&world.foundation(), &world.options, rebuild).await?;
    world.check_index();
    filled.adopt(world.foundation(), world.options.clone()).await
}

fn losses() -> Rebuild {
    Rebuild { accept_losses: true, ..Rebuild::default() }
}

/// A store whose later note of one version lies in a segment of its own, which is then lost.
async fn with_a_lost_note(seed: u64) -> (World, ObjectInfo, std::ops::Range<u64>, [String; 3]) {
    let world = World::sized(seed, 16 * MIB, SEGMENT);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "locked", locked_bucket()).await.unwrap();
    let info = retained(&archive, "kept", 1, 5000).await;
    let user = Rights { roles: [Role::User].into(), ..Rights::all() };
    let mut keys = [const { String::new() }; 3];
    for (id, rights) in keys.iter_mut().zip([Rights::officer(), Rights::officer(), user]) {
        *id = archive.create_access_key(&admin(), "key", rights).await.unwrap().id;
    }
    // Segments are filled until the next note goes to a fresh one.
    let segment = |archive: &Archive| archive.store().appender().tail().unwrap().0;
    let first = segment(&archive);
    let mut number = 0;
    while segment(&archive) == first {
        number += 1;
        retained(&archive, &format!("fill {number}"), 400, 60_000).await;
    }
    let lost = u64::from(segment(&archive));
    let until = archive.store().compliance_now().plus_days(4000);
    let raised = Some(Retention { mode: RetentionMode::Compliance, until });
    archive.set_retention(&admin(), "locked", "kept", Some(info.version), raised, false).await.unwrap();
    archive.set_legal_hold(&admin(), "locked", "kept", Some(info.version), true).await.unwrap();
    archive.close().await.unwrap();
    drop(archive);
    (world, info, lost * SEGMENT..(lost + 1) * SEGMENT, keys)
}

/// A removal that was noted and refused, an extension, and the removal that took place. The first
/// certificate's note is then copied behind the second one.
#[tokio::test]
async fn a_rebuild_takes_the_newest_certificate_of_a_version() {
    let world = World::sized(36, 16 * MIB, SEGMENT);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "locked", locked_bucket()).await.unwrap();
    let store = archive.store();
    let segment = || store.appender().tail().unwrap().0;
    let first = segment();
    let mut number = 0;
    let mut fill = async || {
        let before = segment();
        while segment() == before {
            number += 1;
            retained(&archive, &format!("fill {number}"), 400, 60_000).await;
        }
    };
    let info = retained(&archive, "kept", 1, 5000).await;
    world.stage.pass(2 * DAY);
    let (caller, bucket) = (Caller::system("expiration"), store.buckets().by_name("locked").unwrap());
    let found = lookup::newest(&*store.snapshot().unwrap(), &bucket, "kept").unwrap().unwrap();
    drop(store.remove(Transaction::new(), &caller, &bucket, "kept", &found, Cause::Expired).await.unwrap());
    fill().await;
    let until = store.compliance_now().plus_days(3);
    let longer = Some(Retention { mode: RetentionMode::Compliance, until });
    archive.set_retention(&admin(), "locked", "kept", Some(info.version), longer, false).await.unwrap();
    world.stage.pass(4 * DAY);
    let (key, version) = (info.key.clone(), Some(info.version));
    let request = DeleteRequest { bucket: "locked".into(), key, version, ..DeleteRequest::default() };
    archive.delete(&admin(), request).await.unwrap();
    fill().await;
    assert!(store.reclaim(first).await.unwrap().retired);
    archive.close().await.unwrap();
    let certified = records(&*world.catalog, TOMBSTONES);
    assert_eq!(certified.len(), 1);
    let world = anew(world);
    rebuild(&world, Rebuild::default()).await.unwrap();
    assert_eq!(records(&*world.catalog, TOMBSTONES), certified);
}

/// A store whose class `staff` was activated by a note in a segment that is lost. `early`: class
/// versions made before it. `stored`: an object was stored later, under the active version.
async fn with_a_lost_activation(early: usize, stored: bool) -> World {
    let world = World::sized(35, 16 * MIB, SEGMENT);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "locked", locked_bucket()).await.unwrap();
    let segment = |archive: &Archive| archive.store().appender().tail().unwrap().0;
    let mut number = 0;
    let mut fill = async || {
        let first = segment(&archive);
        while segment(&archive) == first {
            number += 1;
            retained(&archive, &format!("fill {number}"), 400, 60_000).await;
        }
    };
    let make = async |days: u64| {
        let terms = ClassTerms {
            initiation: Initiation::Creation,
            retver: Some(days),
            retmin: 0,
            action: ExpiryAction::Keep,
            mode: RetentionMode::Compliance,
        };
        archive.create_class(&admin(), "staff", terms, "").await.unwrap();
    };
    for (at, days) in [30, 60].into_iter().enumerate() {
        if at == early {
            fill().await;
        }
        make(days).await;
        if at == 0 {
            archive.activate_class(&admin(), "staff", None).await.unwrap();
        }
    }
    if early == 2 {
        fill().await;
    }
    let lost = u64::from(segment(&archive));
    archive.activate_class(&admin(), "staff", None).await.unwrap();
    fill().await;
    if stored {
        let (bucket, key, class) = ("locked".into(), "file".into(), Some("staff".into()));
        let request = PutRequest { bucket, key, class, ..PutRequest::default() };
        put_as(&archive, &admin(), request, b"file").await.unwrap();
    }
    archive.close().await.unwrap();
    drop(archive);
    world.bench.lose(lost * SEGMENT + 4096..(lost + 1) * SEGMENT);
    anew(world)
}

#[tokio::test]
async fn a_rebuild_with_losses_weakens_no_class() {
    for (early, stored) in [(2, true), (1, true), (0, true), (2, false)] {
        let world = with_a_lost_activation(early, stored).await;
        let (archive, report) = rebuild(&world, losses()).await.unwrap();
        let found = report.findings.iter().any(|finding| finding.starts_with("class `staff`"));
        assert!(found, "{early} {stored}: {:?}", report.findings);
        let versions = archive.class(&admin(), "staff").await.unwrap();
        let active: Vec<_> = versions.iter().filter(|class| class.active).map(|c| (c.version, c.retver_days)).collect();
        let expected = if stored { (2, Some(60)) } else { (1, Some(30)) };
        assert_eq!(active, [expected], "{early} {stored}: {versions:?}");
        if stored {
            assert!(early == 0 || archive.activate_class(&admin(), "staff", Some(1)).await.is_err(), "{early}");
            archive.close().await.unwrap();
            drop(archive);
            // The same again from the volume, and in the row that the next change notes.
            let (archive, _) = rebuild(&anew(world), losses()).await.unwrap();
            let versions = archive.class(&admin(), "staff").await.unwrap();
            assert!(versions[1].active && versions[1].retver_days == Some(60), "{early}: {versions:?}");
        }
    }
}

#[tokio::test]
async fn a_rebuild_refuses_while_something_cannot_be_read() {
    let (world, _, lost, _) = with_a_lost_note(31).await;
    world.bench.lose(lost);
    let world = anew(world);
    let refused = rebuild(&world, Rebuild::default()).await;
    assert!(matches!(refused, Err(ArchiveError::Damaged { .. })), "{:?}", refused.map(|(_, report)| report));
    // Nothing is in the catalog that could be taken for one, and a repeat goes through.
    assert!(Filled::is_unfinished(&*world.catalog).unwrap());
    world.bench.lose(0..0);
    let (archive, report) = rebuild(&anew(world), Rebuild::default()).await.unwrap();
    assert!(report.losses.is_empty(), "{report:?}");
    assert!(archive.legal_hold(&admin(), "locked", "kept", None).await.unwrap());
}

#[tokio::test]
async fn unproven_state_is_held_until_two_officers_decide() {
    let (world, info, lost, [anna, ben, gone]) = with_a_lost_note(32).await;
    world.bench.lose(lost.clone());
    let world = anew(world);
    let (archive, report) = rebuild(&world, losses()).await.unwrap();
    assert!(!report.losses.is_empty(), "{report:?}");
    assert!(archive.standing_alarms().iter().any(|alarm| alarm.kind() == "rebuild"));

    // The old note says one day; a year later it is still there, and nothing about it is weakened.
    world.stage.pass(40 * 86_400_000);
    archive.store().compliance_now();
    archive.accept_clock(&admin()).await.unwrap();
    let request = || DeleteRequest {
        bucket: "locked".into(),
        key: "kept".into(),
        version: Some(info.version),
        bypass_governance: true,
        etag: None,
    };
    let refused = archive.delete(&admin(), request()).await;
    assert!(matches!(refused, Err(ArchiveError::Retained { .. })), "{refused:?}");
    let lifted = archive.set_retention(&admin(), "locked", "kept", Some(info.version), None, true).await;
    assert!(lifted.is_err(), "{lifted:?}");
    let why = archive.why(&admin(), "locked", "kept", Some(info.version)).await.unwrap();
    assert!(why.protected && why.deletable_from.is_none() && why.reasons[0].contains("`rebuild`"), "{why:?}");
    assert!(archive.delete_bucket(&admin(), "locked").await.is_err());
    assert!(archive.credentials(&gone).await.is_err(), "keys are suspended");
    // What cannot be read is never written over, whatever is stored.
    let unreadable = (lost.start / SEGMENT) as u32;
    assert_eq!(archive.store().segments().row(unreadable).unwrap().usage, SegmentUse::Unreadable);
    for number in 0..100 {
        let _ = put(&archive, "locked", &format!("more {number}"), &content(number, 100_000)).await;
        archive.step().await.unwrap();
    }
    assert_eq!(archive.store().segments().row(unreadable).unwrap().usage, SegmentUse::Unreadable);
    // It stands after a restart.
    archive.close().await.unwrap();
    drop(archive);
    let archive = world.open().await;
    assert!(archive.delete(&admin(), request()).await.is_err());

    // The drives come back: a rebuild finds the last word, and the matter is over.
    world.bench.lose(0..0);
    archive.close().await.unwrap();
    drop(archive);
    let world = anew(world);
    let (archive, report) = rebuild(&world, Rebuild::default()).await.unwrap();
    assert!(report.losses.is_empty() && archive.rebuild_matter().is_none(), "{report:?}");
    assert!(archive.legal_hold(&admin(), "locked", "kept", Some(info.version)).await.unwrap());
    let kept = archive.retention(&admin(), "locked", "kept", Some(info.version)).await.unwrap();
    assert!(kept.until > archive.store().compliance_now().plus_days(3000), "{kept:?}");
    assert!(archive.credentials(&gone).await.is_ok());

    // Where they do not come back, two officers decide; one does not.
    world.bench.lose(lost);
    archive.close().await.unwrap();
    drop(archive);
    let (archive, _) = rebuild(&anew(world), losses()).await.unwrap();
    let first = archive.officer_credentials(&anna).await.unwrap().caller.at(1);
    let second = archive.officer_credentials(&ben).await.unwrap().caller.at(2);
    let denied = |what: &str, result: Result<String>| {
        assert!(matches!(result, Err(ArchiveError::Denied(_))), "{what}: {result:?}");
    };
    assert!(archive.request_release(&admin()).await.is_err(), "a uid is no officer's key");
    let asked = archive.request_release(&first).await.unwrap().id;
    denied("who asked", archive.approve(&first, &asked).await);
    denied("another key of the same user", archive.approve(&second.clone().at(1), &asked).await);
    denied("an administrator", archive.approve(&admin(), &asked).await);
    // A new officer in the hand of an administrator is none, as long as officers may only be
    // unknown.
    let new = archive.create_access_key(&admin(), "new", Rights::officer()).await.unwrap();
    let officer = new.awaits.expect("it takes approval");
    denied("a suspended key decides about the matter only", archive.approve(&second, &officer).await);
    archive.approve(&second, &asked).await.unwrap();
    assert!(archive.rebuild_matter().is_none());
    assert!(archive.credentials(&anna).await.is_ok() && archive.credentials(&gone).await.is_err());
    archive.delete(&admin(), request()).await.unwrap();
}

#[tokio::test]
async fn a_version_whose_key_cannot_be_read_is_kept() {
    let world = World::sized(33, 16 * MIB, SEGMENT);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "locked", locked_bucket()).await.unwrap();
    let info = retained(&archive, "kept", 4000, 5000).await;
    archive.close().await.unwrap();
    drop(archive);
    // The first block of the key table.
    world.bench.lose(8192..12_288);
    let world = anew(world);
    assert!(rebuild(&world, Rebuild::default()).await.is_err());
    let (archive, report) = rebuild(&anew(world), losses()).await.unwrap();
    assert_eq!(report.versions, 1, "{report:?}");
    let kept = archive.retention(&admin(), "locked", "kept", Some(info.version)).await.unwrap();
    assert!(kept.until > archive.store().compliance_now().plus_days(3000), "{kept:?}");
}

/// Everything that the catalog holds, to be put back later.
fn copied(catalog: &dyn Catalog) -> Vec<(Table, bytes::Bytes, bytes::Bytes)> {
    let snapshot = catalog.snapshot().unwrap();
    let table = |number| {
        let rows = snapshot.range(Table(number), &KeyRange::all(), 1_000_000, Direction::Forward).unwrap();
        rows.into_iter().map(move |(key, value)| (Table(number), key, value))
    };
    (1..=20).flat_map(table).collect()
}

async fn put_back(rows: &[(Table, bytes::Bytes, bytes::Bytes)]) -> Arc<MemoryCatalog> {
    let catalog = Arc::new(MemoryCatalog::new());
    for (table, key, value) in rows {
        catalog.commit(Transaction::new().put(*table, key.clone(), value.clone())).await.unwrap();
    }
    catalog
}

#[tokio::test]
async fn an_older_catalog_is_never_opened_for_writing() {
    for (seed, in_order) in [(34, true), (35, false)] {
        let world = World::sized(seed, 16 * MIB, SEGMENT);
        let archive = world.create().await;
        archive.create_bucket(&admin(), "locked", locked_bucket()).await.unwrap();
        // In the middle of a session: what follows is of the same opening.
        let old = copied(&*world.catalog);
        for number in 0..20 {
            retained(&archive, &format!("record {number}"), 4000, 50_000).await;
        }
        world.stage.pass(60_000);
        archive.step().await.unwrap();
        if in_order {
            archive.close().await.unwrap();
        }
        drop(archive);
        let new = Arc::clone(&world.catalog);
        let world = World { catalog: put_back(&old).await, ..world };
        let refused = Archive::open(world.foundation(), world.options.clone()).await;
        assert!(matches!(refused, Err(ArchiveError::Unpaired(_))), "{:?}", refused.err());
        let options = Options { read_only: true, ..world.options.clone() };
        let archive = Archive::open(world.foundation(), options).await.unwrap();
        assert!(matches!(archive.paired(), Paired::CatalogOlder(_)), "{:?}", archive.paired());
        assert!(archive.standing_alarms().iter().any(|alarm| alarm.kind() == "pairing"));
        assert!(archive.step().await.is_err());
        let records = async || archive.audit_head().await.unwrap().records;
        let before = records().await;
        archive.audit_refusal(&crate::Caller::anonymous(), "GET", "/locked", "wrong signature").await.unwrap();
        assert_eq!(records().await, before, "its records would take the places of newer ones");
        drop(archive);
        // The true one opens, and everything is there.
        let world = World { catalog: new, ..world };
        let archive = world.open().await;
        for number in 0..20 {
            assert!(get(&archive, "locked", &format!("record {number}")).await.unwrap() == content(3, 50_000));
        }
    }
}

#[tokio::test]
async fn an_opening_cut_off_anywhere_leaves_the_pair_recognised() {
    for writes in 0.. {
        let world = World::sized(36, 16 * MIB, SEGMENT);
        let archive = world.create().await;
        archive.create_bucket(&admin(), "locked", locked_bucket()).await.unwrap();
        retained(&archive, "kept", 4000, 5000).await;
        archive.close().await.unwrap();
        drop(archive);
        for _ in 0..3 {
            world.bench.cut_after(writes);
            let opened = Archive::open(world.foundation(), world.options.clone()).await;
            let finished = opened.is_ok() && !world.bench.is_dead();
            drop(opened);
            world.bench.power_on();
            if finished {
                assert!(writes > 2, "an opening writes");
                return;
            }
        }
        let archive = world.open().await;
        assert!(get(&archive, "locked", "kept").await.is_ok(), "after {writes} writes");
    }
}

#[tokio::test]
async fn a_rebuild_that_finds_less_of_the_log_says_so_for_good() {
    let world = World::sized(37, 16 * MIB, SEGMENT);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "locked", locked_bucket()).await.unwrap();
    retained(&archive, "kept", 4000, 5000).await;
    world.stage.pass(60_000);
    archive.step().await.unwrap();
    let head = archive.audit_head_to_send().await.unwrap();
    // Not closed in order: fewer than a run of records, of which the data volume has none.
    drop(archive);
    let world = anew(world);
    let (archive, report) = rebuild(&world, Rebuild { heads: vec![head.clone()], ..Rebuild::default() }).await.unwrap();
    assert_eq!(report.audit_records, 0);
    let lost = |verdict: AuditVerdict| verdict.findings.iter().any(|finding| finding.starts_with("records 1 to "));
    assert!(lost(archive.audit_verify(&admin(), None).await.unwrap()));
    assert_eq!(archive.compare_head(&head).unwrap(), HeadVerdict::Lost);
    // After a further rebuild too, which has the whole log of what came after.
    archive.close().await.unwrap();
    drop(archive);
    let (archive, report) = rebuild(&anew(world), Rebuild::default()).await.unwrap();
    assert!(report.audit_records > 0, "{report:?}");
    let verdict = archive.audit_verify(&admin(), None).await.unwrap();
    assert_eq!(verdict.findings.len(), 1, "{verdict:?}");
    assert!(lost(verdict));
}

#[tokio::test]
async fn a_head_unknown_to_the_data_volume_makes_a_rebuild_lossy() {
    let world = World::sized(38, 16 * MIB, SEGMENT);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "locked", locked_bucket()).await.unwrap();
    archive.close().await.unwrap();
    drop(archive);
    let old = (copied(&*world.catalog), copy_of(&world).await);
    let archive = world.open().await;
    retained(&archive, "kept", 4000, 5000).await;
    let head = archive.audit_head_to_send().await.unwrap();
    drop(archive);
    // The whole store is set back.
    for (at, bytes) in &old.1 {
        world.bench.handle().write(*at, vec![stele_media::Buffer::copy_of(bytes).freeze()], true).await.unwrap();
    }
    let world = World { catalog: put_back(&old.0).await, ..world };
    let options = Options { read_only: true, ..world.options.clone() };
    let archive = Archive::open(world.foundation(), options).await.unwrap();
    assert_eq!(archive.paired(), Paired::Yes, "all of it is of one moment");
    assert!(matches!(archive.compare_head(&head).unwrap(), HeadVerdict::Newer { .. }));
    drop(archive);
    let world = anew(world);
    let heads = vec![head];
    assert!(rebuild(&world, Rebuild { heads: heads.clone(), ..Rebuild::default() }).await.is_err());
    let (archive, _) = rebuild(&anew(world), Rebuild { heads, ..losses() }).await.unwrap();
    assert!(archive.rebuild_matter().is_some());
}

async fn copy_of(world: &World) -> Vec<(u64, Vec<u8>)> {
    let mut copy = Vec::new();
    for at in (0..16 * MIB).step_by(SEGMENT as usize) {
        copy.push((at, world.bench.handle().read(at, SEGMENT as usize).await.unwrap().to_vec()));
    }
    copy
}

#[tokio::test]
async fn of_two_buckets_of_one_name_the_newer_has_it() {
    let world = World::sized(39, 16 * MIB, SEGMENT);
    let archive = world.create().await;
    for _ in 0..3 {
        archive.create_bucket(&admin(), "again", NewBucket::default()).await.unwrap();
        archive.delete_bucket(&admin(), "again").await.unwrap();
    }
    archive.create_bucket(&admin(), "again", locked_bucket()).await.unwrap();
    archive.close().await.unwrap();
    drop(archive);
    let (archive, report) = rebuild(&anew(world), Rebuild::default()).await.unwrap();
    assert_eq!(report.buckets, 4);
    assert!(archive.bucket(&admin(), "again").await.unwrap().object_lock.is_some());
    assert_eq!(archive.list_buckets(&admin()).await.unwrap().len(), 1);
}

/// The clock's alarm of a session is known to a rebuild only through an orderly close.
#[tokio::test]
async fn a_rebuild_never_lifts_a_freeze_of_the_clock() {
    // (how the session ends, the clock jumps and is set right again, the rebuilt clock is frozen)
    for (what, jumps, in_order, frozen) in [
        ("an orderly close", false, true, false),
        ("a freeze, then an orderly close", true, true, true),
        ("a freeze, then a crash", true, false, true),
        ("a crash", false, false, true),
    ] {
        let world = World::sized(43, 16 * MIB, SEGMENT);
        let archive = world.create().await;
        archive.create_bucket(&admin(), "locked", locked_bucket()).await.unwrap();
        archive.close().await.unwrap();
        drop(archive);
        let archive = world.open().await;
        if jumps {
            let wall = world.stage.now().wall;
            world.stage.set_wall(Timestamp(wall.0 + DAY));
            archive.step().await.unwrap();
            world.stage.set_wall(wall);
            archive.step().await.unwrap();
            assert!(archive.clock().frozen.is_some());
        }
        if in_order {
            archive.close().await.unwrap();
        }
        drop(archive);
        let world = anew(world);
        let (archive, report) = rebuild(&world, Rebuild::default()).await.unwrap();
        assert_eq!(archive.clock().frozen.is_some(), frozen, "{what}: {:?}", archive.clock());
        assert_eq!(archive.standing_alarms().iter().any(|alarm| alarm.kind() == "clock"), frozen, "{what}");
        assert_eq!(report.frozen.is_some(), frozen, "{what}: {report:?}");
        // An officer accepts it, and the next orderly close is proof of that.
        archive.accept_clock(&admin()).await.unwrap();
        archive.close().await.unwrap();
        drop(archive);
        let (archive, _) = rebuild(&anew(world), Rebuild::default()).await.unwrap();
        assert_eq!(archive.clock().frozen, None, "{what}");
    }
}

/// A close that the next opening follows proves nothing about that opening.
#[tokio::test]
async fn only_the_last_close_proves_the_clock_well() {
    let world = World::sized(44, 16 * MIB, SEGMENT);
    let archive = world.create().await;
    archive.close().await.unwrap();
    drop(archive);
    // The opening's own note of the identity finds no room.
    world.bench.set_no_new(true);
    let archive = world.open().await;
    drop(archive);
    world.bench.set_no_new(false);
    let (archive, _) = rebuild(&anew(world), Rebuild::default()).await.unwrap();
    assert!(archive.clock().frozen.is_some(), "{:?}", archive.clock());
}

/// The system clock is a year ahead at a rebuild. A head of the rebuilt log still shows that the
/// pool was set back.
#[tokio::test]
async fn a_rebuild_explains_no_head_of_its_own_log() {
    let world = World::sized(45, 16 * MIB, SEGMENT);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "locked", locked_bucket()).await.unwrap();
    for number in 0..30 {
        put(&archive, "locked", &format!("before {number}"), b"record").await.unwrap();
    }
    world.stage.pass(60_000);
    archive.step().await.unwrap();
    let lost = archive.audit_head_to_send().await.unwrap();
    drop(archive);
    let now = world.stage.now().wall;
    world.stage.set_wall(now.plus_days(365));
    let world = anew(world);
    let (archive, _) = rebuild(&world, Rebuild { heads: vec![lost.clone()], ..Rebuild::default() }).await.unwrap();
    archive.close().await.unwrap();
    drop(archive);
    let old = (copied(&*world.catalog), copy_of(&world).await);
    world.stage.set_wall(now.plus_days(30));
    let archive = world.open().await;
    for number in 0..10 {
        put(&archive, "locked", &format!("after {number}"), b"record").await.unwrap();
    }
    let since = archive.audit_head_to_send().await.unwrap();
    assert!(since.records < lost.records, "of a number that the rebuild lost: {since:?}");
    assert_eq!(archive.compare_head(&since).unwrap(), HeadVerdict::Contained);
    assert_eq!(archive.compare_head(&lost).unwrap(), HeadVerdict::Lost);
    drop(archive);
    // The whole store is set back to just behind the rebuild.
    for (at, bytes) in &old.1 {
        world.bench.handle().write(*at, vec![stele_media::Buffer::copy_of(bytes).freeze()], true).await.unwrap();
    }
    let world = World { catalog: put_back(&old.0).await, ..world };
    let options = Options { read_only: true, ..world.options.clone() };
    let archive = Archive::open(world.foundation(), options).await.unwrap();
    assert!(matches!(archive.compare_head(&since).unwrap(), HeadVerdict::Newer { .. }));
    assert_eq!(archive.compare_head(&lost).unwrap(), HeadVerdict::Lost);
}

/// The drives with the last records of the log come back after the log went on without them.
#[tokio::test]
async fn a_log_that_was_cut_off_does_not_go_on_behind_what_came_since() {
    let (world, _, lost, _) = with_a_lost_note(46).await;
    let log = |world: &World| {
        let snapshot = world.catalog.snapshot().unwrap();
        snapshot.range(crate::record::AUDIT, &KeyRange::all(), 10_000, Direction::Forward).unwrap()
    };
    let before = log(&world).len();
    world.bench.lose(lost);
    let world = anew(world);
    let (archive, report) = rebuild(&world, losses()).await.unwrap();
    assert!(report.audit_records < before as u64, "{report:?}");
    let head = archive.audit_head_to_send().await.unwrap();
    archive.close().await.unwrap();
    drop(archive);
    let since = log(&world);
    assert!(since.len() < before, "the log before has more records: {} and {before}", since.len());
    world.bench.lose(0..0);
    let world = anew(world);
    let (archive, _) = rebuild(&world, Rebuild::default()).await.unwrap();
    assert_eq!(archive.compare_head(&head).unwrap(), HeadVerdict::Contained);
    let now = log(&world);
    assert_eq!(now[..since.len()], since, "what was recorded stands");
    assert!(now.len() <= since.len() + 2, "only this opening follows: {} and {}", now.len(), since.len());
}
