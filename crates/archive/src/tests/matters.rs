//! Named matters: what they hold, how they are put, released and closed, and that a rebuild finds
//! them.

use std::collections::BTreeMap;
use std::sync::Arc;

use stele_catalog::{Direction, KeyRange, MemoryCatalog};
use stele_ground::Dice;

use super::*;
use crate::record::version::VersionRef;
use crate::record::{MATTER_HOLDS, MATTER_PROGRESS};
use crate::space::compensations::NoteSubject;
use crate::testing::{officer, put_as};

const DAY: u64 = 86_400_000;

async fn store(world: &World) -> Archive {
    let archive = world.create().await;
    archive.create_bucket(&admin(), "plain", NewBucket::default()).await.unwrap();
    let new = NewBucket { versioning: true, ..NewBucket::default() };
    archive.create_bucket(&admin(), "versioned", new).await.unwrap();
    let new = NewBucket { object_lock: true, expiry: ExpiryAction::Delete, ..NewBucket::default() };
    archive.create_bucket(&admin(), "locked", new).await.unwrap();
    archive
}

fn selection(bucket: &str, prefix: &str) -> Selection {
    Selection { bucket: bucket.into(), prefix: prefix.into(), ..Selection::default() }
}

fn of(info: &ObjectInfo) -> VersionName {
    VersionName { bucket: info.bucket.clone(), key: info.key.clone(), version: Some(info.version) }
}

async fn delete(archive: &Archive, info: &ObjectInfo) -> Result<Deleted> {
    let request = DeleteRequest {
        bucket: info.bucket.clone(),
        key: info.key.clone(),
        version: Some(info.version),
        bypass_governance: true,
        ..DeleteRequest::default()
    };
    archive.delete(&admin(), request).await
}

fn retained<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(ArchiveError::Retained { .. })), "{result:?}");
}

async fn steps(archive: &Archive) {
    while archive.step().await.unwrap().more {}
}

async fn list(archive: &Archive, matter: &str, versions: Vec<VersionName>, on: bool) {
    for listed in archive.hold_listed(&admin(), matter, versions, on).await.unwrap() {
        assert_eq!(listed, Listed { unchanged: false, failure: None });
    }
}

async fn close(archive: &Archive, matter: &str) {
    let asked = archive.request_close(&officer("anna", 1), matter).await.unwrap();
    archive.approve(&officer("ben", 2), &asked.id).await.unwrap();
}

fn held(world: &World) -> usize {
    let snapshot = world.catalog.snapshot().unwrap();
    snapshot.range(MATTER_HOLDS, &KeyRange::all(), 10_000, Direction::Forward).unwrap().len()
}

#[tokio::test]
async fn a_version_under_any_matter_stays() {
    let world = World::new(1);
    let archive = store(&world).await;
    archive.open_matter(&admin(), "smith", "Smith v. Jones").await.unwrap();
    archive.open_matter(&admin(), "tax", "audit of 2026").await.unwrap();
    let free = put(&archive, "plain", "file", b"first").await.unwrap();
    assert!(world.guard.told.lock().unwrap().is_empty());
    list(&archive, "smith", vec![of(&free)], true).await;
    list(&archive, "tax", vec![of(&free)], true).await;
    assert!(!archive.step().await.unwrap().unprotected);
    assert_eq!(*world.guard.told.lock().unwrap(), [true], "the volumes are protected");
    for _ in 0..2 {
        retained(delete(&archive, &free).await);
        retained(put(&archive, "plain", "file", b"second").await);
        let bucket = archive.delete_bucket(&admin(), "plain").await;
        assert!(matches!(bucket, Err(ArchiveError::BucketNotEmpty(_))), "{bucket:?}");
        let why = archive.why(&admin(), "plain", "file", None).await.unwrap();
        assert!(why.protected && why.deletable_from.is_none() && !why.legal_hold, "{why:?}");
        assert!(why.reasons.iter().any(|reason| reason.contains("`tax`") && reason.contains("audit of 2026")));
        // The release from one matter leaves the other.
        archive.hold_listed(&admin(), "smith", vec![of(&free)], false).await.unwrap();
    }
    list(&archive, "tax", vec![of(&free)], false).await;
    put(&archive, "plain", "file", b"second").await.unwrap();
    assert!(archive.step().await.unwrap().unprotected);

    // Expiration leaves it, with its retention over.
    let until = archive.store().compliance_now().plus_days(1);
    let request = PutRequest {
        bucket: "locked".into(),
        key: "record".into(),
        retention: Some(Retention { mode: RetentionMode::Compliance, until }),
        ..PutRequest::default()
    };
    let record = put_as(&archive, &admin(), request, b"record").await.unwrap();
    list(&archive, "tax", vec![of(&record)], true).await;
    world.stage.pass(3 * DAY);
    let report = archive.step().await.unwrap();
    assert_eq!((report.expired, report.alarms.len()), (0, 0), "expiration does not try it either: {report:?}");
    retained(delete(&archive, &record).await);
    list(&archive, "tax", vec![of(&record)], false).await;
    world.stage.pass(400_000);
    assert_eq!(archive.step().await.unwrap().expired, 1);
}

#[tokio::test]
async fn only_a_retention_officer_changes_matters() {
    let world = World::new(2);
    let archive = store(&world).await;
    let file = put(&archive, "versioned", "file", b"x").await.unwrap();
    let mut rights = Rights::user("versioned", "");
    rights.roles.insert(Role::StorageAdministrator);
    rights.roles.insert(Role::Auditor);
    let other = Caller { rights: rights.into(), ..officer("carl", 3) };
    let denied = |result: Result<()>| assert!(matches!(result, Err(ArchiveError::Denied(_))), "{result:?}");
    denied(archive.open_matter(&other, "mine", "why not").await.map(drop));
    assert_eq!(archive.store().witnessing().superblock().format, 1, "a refusal does not change the store's format");
    archive.open_matter(&officer("anna", 1), "smith", "Smith v. Jones").await.unwrap();
    assert_eq!(archive.store().witnessing().superblock().format, 2);
    denied(archive.hold_listed(&other, "smith", vec![of(&file)], true).await.map(drop));
    denied(archive.hold_selected(&other, "smith", selection("versioned", ""), true).await.map(drop));
    archive.hold_listed(&officer("anna", 1), "smith", vec![of(&file)], true).await.unwrap();
    denied(archive.hold_listed(&other, "smith", vec![of(&file)], false).await.map(drop));
    denied(archive.hold_selected(&other, "smith", selection("versioned", ""), false).await.map(drop));
    denied(archive.request_close(&other, "smith").await.map(drop));
    denied(archive.request_close(&admin(), "smith").await.map(drop));
    let asked = archive.request_close(&officer("anna", 1), "smith").await.unwrap();
    denied(archive.approve(&officer("anna", 1), &asked.id).await.map(drop));
    denied(archive.approve(&officer("ben", 1), &asked.id).await.map(drop));
    retained(delete(&archive, &file).await);
    let records = archive.audit_records(&admin(), 1, 1000).await.unwrap();
    let refused = records.iter().filter(|record| record.refused.is_some()).count();
    assert!(refused >= 8, "{records:?}");
    for (name, reason) in [("s3", "x"), ("rebuild", "x"), ("smith", "again"), ("Upper", "x"), ("blank", " ")] {
        assert!(archive.open_matter(&admin(), name, reason).await.is_err(), "{name}");
    }
}

#[tokio::test]
async fn a_selection_takes_what_it_names_and_nothing_else() {
    let world = World::new(3);
    let archive = store(&world).await;
    archive.open_matter(&admin(), "smith", "Smith v. Jones").await.unwrap();
    let mut stored = Vec::new();
    for n in 0..30 {
        let key = format!("{}/{n}", if n % 3 == 0 { "in" } else { "out" });
        let tags = Tags::from([("case".to_string(), (n % 2).to_string())]);
        let request = PutRequest { bucket: "versioned".into(), key, tags, ..PutRequest::default() };
        stored.push(put_as(&archive, &admin(), request, b"data").await.unwrap());
        world.stage.pass(1000);
    }
    archive
        .delete(&admin(), DeleteRequest { bucket: "versioned".into(), key: "in/0".into(), ..Default::default() })
        .await
        .unwrap();
    let selection = Selection {
        tags: BTreeMap::from([("case".to_string(), "1".to_string())]),
        stored_after: Some(stored[5].modified),
        stored_before: Some(stored[21].modified),
        ..selection("versioned", "in/")
    };
    let counted = archive.count_selected(&admin(), Some("smith"), &selection, None).await.unwrap();
    assert_eq!((counted.selected, counted.under, counted.next), (2, 0, None), "9 and 15");
    archive.hold_selected(&admin(), "smith", selection.clone(), true).await.unwrap();
    let later = PutRequest {
        bucket: "versioned".into(),
        key: "in/9".into(),
        tags: stored[9].tags.clone(),
        ..Default::default()
    };
    let later = put_as(&archive, &admin(), later, b"later").await.unwrap();
    let other = archive.hold_selected(&admin(), "smith", selection.clone(), false).await;
    assert!(matches!(other, Err(ArchiveError::InvalidState(_))), "one job at a time: {other:?}");
    steps(&archive).await;
    let info = archive.matter(&admin(), "smith").await.unwrap();
    let job = info.job.unwrap();
    assert_eq!((info.versions, job.changed, job.failed, job.ended.is_some()), (Some(2), 2, 0, true));
    for (n, info) in stored.iter().enumerate() {
        match n {
            9 | 15 => retained(delete(&archive, info).await),
            _ => drop(delete(&archive, info).await.unwrap()),
        }
    }
    delete(&archive, &later).await.unwrap();
    archive.hold_selected(&admin(), "smith", selection, false).await.unwrap();
    steps(&archive).await;
    assert_eq!(held(&world), 0);
    delete(&archive, &stored[9]).await.unwrap();

    // Versions that are stored after the job began are not selected.
    archive.hold_selected(&admin(), "smith", self::selection("versioned", ""), true).await.unwrap();
    let later = put(&archive, "versioned", "z", b"later").await.unwrap();
    steps(&archive).await;
    retained(delete(&archive, &stored[15]).await);
    delete(&archive, &later).await.unwrap();
}

#[tokio::test]
async fn the_close_of_a_matter_releases_all_of_it_and_only_it() {
    let world = World::new(4);
    let archive = store(&world).await;
    for name in ["smith", "tax"] {
        archive.open_matter(&admin(), name, "a reason").await.unwrap();
    }
    let mut stored = Vec::new();
    for n in 0..40 {
        stored.push(put(&archive, "versioned", &format!("k{n}"), b"x").await.unwrap());
    }
    list(&archive, "smith", stored.iter().map(of).collect(), true).await;
    list(&archive, "tax", stored[..5].iter().map(of).collect(), true).await;
    close(&archive, "smith").await;
    retained(delete(&archive, &stored[9]).await);
    let refused = archive.hold_listed(&admin(), "smith", vec![of(&stored[0])], true).await;
    assert!(matches!(refused, Err(ArchiveError::InvalidState(_))));
    steps(&archive).await;
    let info = archive.matter(&admin(), "smith").await.unwrap();
    assert_eq!((info.state, info.versions, info.closed.is_some()), (MatterState::Closed, Some(0), true), "{info:?}");
    assert_eq!(held(&world), 5);
    retained(delete(&archive, &stored[4]).await);
    delete(&archive, &stored[5]).await.unwrap();
    assert!(archive.open_matter(&admin(), "smith", "again").await.is_err(), "a name is used once");
    assert!(archive.request_close(&officer("anna", 1), "smith").await.is_err());
}

#[tokio::test]
async fn the_matter_s3_is_the_legal_hold() {
    let world = World::new(5);
    let archive = store(&world).await;
    let file = put(&archive, "locked", "file", b"x").await.unwrap();
    list(&archive, "s3", vec![of(&file)], true).await;
    assert!(archive.legal_hold(&admin(), "locked", "file", None).await.unwrap());
    assert_eq!(archive.matter(&admin(), "s3").await.unwrap().versions, Some(1));
    archive.hold_selected(&admin(), "s3", selection("locked", ""), false).await.unwrap();
    steps(&archive).await;
    assert!(!archive.legal_hold(&admin(), "locked", "file", None).await.unwrap());
    let unlocked = archive.hold_selected(&admin(), "s3", selection("versioned", ""), true).await;
    assert!(matches!(unlocked, Err(ArchiveError::InvalidRequest(_))), "it takes Object Lock: {unlocked:?}");
    assert!(archive.request_close(&officer("anna", 1), "s3").await.is_err());
    assert!(archive.hold_selected(&admin(), "rebuild", selection("locked", ""), false).await.is_err());
}

#[tokio::test]
async fn a_hold_set_during_a_release_of_s3_stays() {
    for rebuilt in [false, true] {
        let mut world = World::new(15);
        let mut archive = store(&world).await;
        let mut stored = Vec::new();
        for n in 0..5 {
            stored.push(of(&put(&archive, "locked", &format!("k{n}"), b"x").await.unwrap()));
        }
        // Not held before; held before and again; held by a list and again; held before alone;
        // never held.
        archive.set_legal_hold(&admin(), "locked", "k1", None, true).await.unwrap();
        list(&archive, "s3", stored[2..4].to_vec(), true).await;
        archive.hold_selected(&admin(), "s3", selection("locked", ""), false).await.unwrap();
        for key in ["k0", "k1", "k2"] {
            archive.set_legal_hold(&admin(), "locked", key, None, true).await.unwrap();
        }
        if rebuilt {
            archive.close().await.unwrap();
            drop(archive);
            world.catalog = Arc::new(MemoryCatalog::new());
            (archive, _) = Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap();
        }
        steps(&archive).await;
        let mut held = Vec::new();
        for n in 0..5 {
            held.push(archive.legal_hold(&admin(), "locked", &format!("k{n}"), None).await.unwrap());
        }
        assert_eq!(held, [true, true, true, false, false], "rebuilt: {rebuilt}");
        let job = archive.matter(&admin(), "s3").await.unwrap().job.unwrap();
        assert_eq!((job.changed, job.held_since, job.failed, job.ended.is_some()), (1, 3, 0, true), "{job:?}");
        let records = archive.audit_records(&admin(), 1, 1000).await.unwrap();
        let says = |record: &AuditRecord| record.detail.clone().unwrap_or_default();
        assert!(records.iter().any(|record| says(record).contains("1 changed, 0 failed, 3 held anew")), "{records:?}");
        // A release that begins later takes them off.
        archive.hold_selected(&admin(), "s3", selection("locked", ""), false).await.unwrap();
        steps(&archive).await;
        assert!(!archive.legal_hold(&admin(), "locked", "k1", None).await.unwrap());
    }
}

#[tokio::test]
async fn a_rebuild_finds_matters_and_continues_their_jobs() {
    let mut world = World::new(6);
    let archive = store(&world).await;
    for name in ["smith", "tax"] {
        archive.open_matter(&admin(), name, "a reason").await.unwrap();
    }
    let mut stored = Vec::new();
    for n in 0..20 {
        stored.push(put(&archive, "versioned", &format!("k{n}"), b"x").await.unwrap());
    }
    list(&archive, "smith", stored[..3].iter().map(of).collect(), true).await;
    list(&archive, "smith", vec![of(&stored[2])], false).await;
    // Begun, and not a step done.
    archive.hold_selected(&admin(), "tax", selection("versioned", "k1"), true).await.unwrap();
    archive.close().await.unwrap();
    drop(archive);
    world.catalog = Arc::new(MemoryCatalog::new());
    let (archive, report) = Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap();
    assert!(report.findings.is_empty(), "{report:?}");
    let matter = archive.matter(&admin(), "smith").await.unwrap();
    assert_eq!((matter.reason.as_str(), matter.versions), ("a reason", Some(2)));
    retained(delete(&archive, &stored[1]).await);
    delete(&archive, &stored[2]).await.unwrap();
    steps(&archive).await;
    assert_eq!(archive.matter(&admin(), "tax").await.unwrap().versions, Some(11));
    retained(delete(&archive, &stored[19]).await);
    assert_eq!(archive.store().witnessing().superblock().format, 2);
}

#[tokio::test]
async fn a_matter_keeps_the_names_of_files_without_object_lock() {
    let world = World::new(7);
    let archive = store(&world).await;
    archive.create_bucket(&admin(), "share", NewBucket::default()).await.unwrap();
    archive.change_bucket(&admin(), "share", BucketChange::Share).await.unwrap();
    let gateway = Caller::gateway("a test");
    let request = PutRequest { bucket: "share".into(), key: "17".into(), ..PutRequest::default() };
    let file = put_as(&archive, &gateway, request, b"a file").await.unwrap();
    assert_eq!(archive.keeps(&gateway, "share", "17").unwrap(), None);
    archive.open_matter(&admin(), "smith", "Smith v. Jones").await.unwrap();
    archive.hold_selected(&admin(), "smith", selection("share", ""), true).await.unwrap();
    steps(&archive).await;
    let why = archive.keeps(&gateway, "share", "17").unwrap();
    assert!(why.is_some_and(|why| why.contains("smith")));
    list(&archive, "smith", vec![of(&file)], false).await;
    assert_eq!(archive.keeps(&gateway, "share", "17").unwrap(), None);
}

/// Power fails after each of the first writes; the twin is the plain rule: an acknowledged hold
/// stands, and nothing else changes. Reclamation, restarts and a rebuild come in between.
#[tokio::test]
async fn holds_match_a_plain_twin_through_power_cuts() {
    for seed in 0..12 {
        holds_through_power_cuts(seed).await;
    }
}

const MATTERS: [&str; 3] = ["m0", "m1", "s3"];

async fn holds_through_power_cuts(seed: u64) {
    let mut world = World::sized(seed, 24 << 20, 256 << 10);
    let mut dice = Dice::new(seed);
    let mut archive = store(&world).await;
    for name in &MATTERS[..2] {
        archive.open_matter(&admin(), name, "a reason").await.unwrap();
    }
    // Each version, and the matters that it is certainly or possibly under.
    let mut twins: BTreeMap<String, (ObjectInfo, [Option<bool>; 3])> = BTreeMap::new();
    for n in 0..160 {
        if dice.one_in(12) {
            world.bench.cut_after(dice.below(14));
        }
        let which = dice.below(3) as usize;
        let matter = MATTERS[which];
        let on = dice.one_in(2);
        let result = match dice.below(8) {
            0..=1 => {
                let bytes = content(n, dice.below(20_000) as usize);
                put(&archive, "locked", &format!("k{n}"), &bytes).await.map(|info| {
                    twins.insert(info.key.clone(), (info, [Some(false); 3]));
                })
            }
            2..=4 => {
                let keys: Vec<String> = twins.keys().cloned().collect();
                let Some(key) = dice.pick(&keys) else { continue };
                let (info, under) = twins.get_mut(key).unwrap();
                under[which] = under[which].filter(|now| *now == on);
                match archive.hold_listed(&admin(), matter, vec![of(info)], on).await {
                    Ok(listed) if listed[0].failure.is_none() => {
                        under[which] = Some(on);
                        Ok(())
                    }
                    Ok(listed) => Err(ArchiveError::Stopped(format!("{listed:?}"))),
                    Err(error) => Err(error),
                }
            }
            5 => {
                let asked = archive.hold_selected(&admin(), matter, selection("locked", "k1"), on).await.map(drop);
                let mut done = asked;
                while done.is_ok() {
                    match archive.step().await {
                        Ok(report) if report.more => {}
                        other => {
                            done = other.map(drop);
                            break;
                        }
                    }
                }
                for (key, (_, under)) in twins.iter_mut().filter(|(key, _)| key.starts_with("k1")) {
                    assert!(key.starts_with('k'));
                    under[which] = if done.is_ok() { Some(on) } else { under[which].filter(|now| *now == on) };
                }
                done
            }
            6 => {
                let keys: Vec<String> = twins.keys().cloned().collect();
                let Some(key) = dice.pick(&keys) else { continue };
                let (info, under) = twins[key].clone();
                match delete(&archive, &info).await {
                    Ok(_) => {
                        assert!(under.iter().all(|under| *under != Some(true)), "{key} under {under:?} was deleted");
                        twins.remove(key);
                        Ok(())
                    }
                    Err(ArchiveError::Retained { .. }) => {
                        assert!(under.iter().any(|under| *under != Some(false)), "{key} under nothing stays");
                        Ok(())
                    }
                    Err(error) => {
                        if under.iter().all(|under| *under != Some(true)) {
                            twins.remove(key);
                        }
                        Err(error)
                    }
                }
            }
            _ => {
                world.stage.pass(dice.below(DAY));
                archive.step().await.map(drop)
            }
        };
        if world.bench.is_dead() || dice.one_in(30) {
            world.bench.power_on();
            drop(archive);
            archive = world.open().await;
            // A job whose beginning may have taken place is finished before the twin goes on.
            while archive.step().await.unwrap().more {}
            check_certain(&archive, &twins).await;
            settle(&archive, &mut twins).await;
        } else if let Err(error) = result {
            panic!("seed {seed}, step {n}: {error}");
        }
    }
    world.bench.power_on();
    drop(archive);
    archive = world.open().await;
    steps(&archive).await;
    settle(&archive, &mut twins).await;
    archive.close().await.unwrap();
    drop(archive);
    world.catalog = Arc::new(MemoryCatalog::new());
    let (archive, _) = Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap();
    check_certain(&archive, &twins).await;
    for (info, under) in twins.values() {
        match under.contains(&Some(true)) {
            true => retained(delete(&archive, info).await),
            false => drop(delete(&archive, info).await.unwrap()),
        }
    }
    let progress = world.catalog.snapshot().unwrap();
    assert!(progress.range(MATTER_PROGRESS, &KeyRange::all(), 10, Direction::Forward).unwrap().is_empty());
}

async fn names(archive: &Archive, info: &ObjectInfo) -> Vec<String> {
    archive.why(&admin(), &info.bucket, &info.key, Some(info.version)).await.unwrap().matters
}

async fn check_certain(archive: &Archive, twins: &BTreeMap<String, (ObjectInfo, [Option<bool>; 3])>) {
    for (key, (info, under)) in twins {
        let names = names(archive, info).await;
        for (which, matter) in MATTERS.iter().enumerate() {
            let now = names.iter().any(|name| name == matter);
            assert!(under[which].is_none_or(|under| under == now), "{key}: {matter} is {now}, not {under:?}");
        }
    }
}

/// What a power cut left open is as it is.
async fn settle(archive: &Archive, twins: &mut BTreeMap<String, (ObjectInfo, [Option<bool>; 3])>) {
    for (info, under) in twins.values_mut() {
        let names = names(archive, info).await;
        for (which, matter) in MATTERS.iter().enumerate() {
            under[which] = Some(names.iter().any(|name| name == matter));
        }
    }
}

#[tokio::test]
async fn a_put_leaves_no_version_out_while_others_change_much() {
    let world = World::new(17);
    let archive = store(&world).await;
    for number in 0..20 {
        put(&archive, "versioned", &format!("{number}"), b"record").await.unwrap();
    }
    archive.open_matter(&admin(), "smith", "a reason").await.unwrap();
    archive.hold_selected(&admin(), "smith", selection("versioned", ""), true).await.unwrap();
    let store = archive.store();
    let mut others = Vec::new();
    while let Ok(noting) = store.compensations().begin(NoteSubject::Upload(VersionRef {
        bucket: 1,
        key: String::new(),
        number: others.len() as u64,
    })) {
        others.push(noting);
    }
    archive.step().await.unwrap();
    assert_eq!(held(&world), 0, "no room for it");
    archive.open_matter(&admin(), "tax", "a reason").await.expect("an officer's change finds room");
    drop(others);
    steps(&archive).await;
    assert_eq!(held(&world), 20);
    let matter = archive.matter(&admin(), "smith").await.unwrap();
    assert!(matter.job.iter().all(|job| job.failed == 0), "{matter:?}");
}
