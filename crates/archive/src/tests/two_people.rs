//! The clock, and what takes two people: credit of time spent closed, and new retention officers.

use super::classes::{active, put_in, terms};
use super::*;
use crate::testing::{officer, put_as};

const DAY: u64 = 86_400_000;

/// A store with a bucket whose default is 30 days of COMPLIANCE.
async fn store(world: &World) -> Archive {
    let archive = world.create().await;
    let default = DefaultRetention { mode: RetentionMode::Compliance, period: Period::Days(30) };
    let new = NewBucket { object_lock: true, default_retention: Some(default), ..NewBucket::default() };
    archive.create_bucket(&admin(), "month", new).await.unwrap();
    archive
}

async fn put_record(archive: &Archive, key: &str) -> ObjectInfo {
    let request = PutRequest { bucket: "month".into(), key: key.into(), ..PutRequest::default() };
    put_as(archive, &admin(), request, b"record").await.unwrap()
}

async fn delete(archive: &Archive, info: &ObjectInfo) -> Result<Deleted> {
    let (bucket, key, version) = (info.bucket.clone(), info.key.clone(), Some(info.version));
    archive.delete(&admin(), DeleteRequest { bucket, key, version, ..DeleteRequest::default() }).await
}

async fn closed_for(archive: Archive, world: &World, days: u64) -> Archive {
    archive.close().await.unwrap();
    drop(archive);
    world.stage.set_wall(Timestamp(world.stage.now().wall.0 + days * DAY));
    world.open().await
}

fn denied<T: std::fmt::Debug>(what: &str, result: Result<T>) {
    assert!(matches!(result, Err(ArchiveError::Denied(_))), "{what}: {result:?}");
}

async fn about_the_clock(archive: &Archive) -> Vec<AuditRecord> {
    let records = archive.audit_records(&admin(), 1, 1000).await.unwrap();
    records.into_iter().filter(|record| ["ClockAccept", "Approve"].contains(&record.action.as_str())).collect()
}

#[tokio::test]
async fn a_default_retention_counts_from_the_later_clock() {
    let world = World::new(1);
    let archive = closed_for(store(&world).await, &world, 60).await;
    let now = world.stage.now().wall;
    let record = put_record(&archive, "new").await;
    assert_eq!(record.retention.unwrap().until, now.plus_days(30), "not from a clock that lags by 60 days");
    let asked = archive.request_credit(&officer("anna", 1)).await.unwrap();
    archive.approve(&officer("ben", 2), &asked.id).await.unwrap();
    assert!(matches!(delete(&archive, &record).await, Err(ArchiveError::Retained { .. })), "a day after it was stored");
    // A wall clock that is set back makes nothing shorter either.
    world.stage.set_wall(Timestamp(now.0 - 900 * DAY));
    let record = put_record(&archive, "later").await;
    assert!(record.retention.unwrap().until >= now.plus_days(30), "{record:?}");
    // A date that is over by either clock is no retention.
    world.stage.set_wall(now);
    let past = Retention { mode: RetentionMode::Compliance, until: Timestamp(now.0 - 1) };
    let request =
        PutRequest { bucket: "month".into(), key: "past".into(), retention: Some(past), ..PutRequest::default() };
    let refused = put_as(&archive, &admin(), request, b"record").await;
    assert!(matches!(refused, Err(ArchiveError::InvalidArgument(_))), "{refused:?}");
}

/// Begins an upload under a retention. Returns the request that completes it.
async fn begin(archive: &Archive, bucket: &str, key: &str, retention: Retention) -> CompleteRequest {
    let new = NewUpload { bucket: bucket.into(), key: key.into(), retention: Some(retention), ..NewUpload::default() };
    let upload = archive.create_upload(&admin(), new).await.unwrap().upload;
    let part = PartRequest {
        bucket: bucket.into(),
        key: key.into(),
        upload: upload.clone(),
        number: 1,
        ..PartRequest::default()
    };
    let mut writer = archive.put_part(&admin(), part).await.unwrap();
    writer.write(b"record".to_vec().into()).await.unwrap();
    let etag = writer.finish(Expected::default()).await.unwrap().etag.to_string();
    let parts = vec![CompletedPart { number: 1, etag, checksums: Vec::new() }];
    CompleteRequest { bucket: bucket.into(), key: key.into(), upload, parts, ..CompleteRequest::default() }
}

/// The wall clock passes the date of an upload before it is complete; the compliance clock does
/// not.
#[tokio::test]
async fn a_clock_that_is_set_ahead_takes_no_upload_its_retention() {
    let world = World::new(10);
    let archive = store(&world).await;
    let new = NewBucket { object_lock: true, ..NewBucket::default() };
    archive.create_bucket(&admin(), "locked", new).await.unwrap();
    let begun = world.stage.now().wall;
    let asked = Retention { mode: RetentionMode::Compliance, until: begun.plus_days(1) };
    let alone = begin(&archive, "locked", "alone", asked).await;
    let beside_a_default = begin(&archive, "month", "beside a default", asked).await;
    let late = begin(&archive, "locked", "late", asked).await;
    world.stage.set_wall(begun.plus_days(2));
    let alone = archive.complete_upload(&admin(), alone).await.unwrap();
    assert_eq!(alone.retention, Some(asked));
    assert!(matches!(delete(&archive, &alone).await, Err(ArchiveError::Retained { .. })));
    let beside_a_default = archive.complete_upload(&admin(), beside_a_default).await.unwrap();
    let longer = Retention { until: begun.plus_days(32), ..asked };
    assert_eq!(beside_a_default.retention, Some(longer), "the default counts from the later clock");
    // A date that the compliance clock has passed binds nothing any more.
    world.stage.set_wall(begun);
    world.stage.pass(2 * DAY);
    assert_eq!(archive.complete_upload(&admin(), late).await.unwrap().retention, None);
    delete(&archive, &alone).await.unwrap();
}

#[tokio::test]
async fn a_clock_that_is_set_ahead_is_never_credited() {
    let world = World::new(2);
    let archive = store(&world).await;
    let record = put_record(&archive, "kept").await;
    world.stage.set_wall(Timestamp(world.stage.now().wall.0 + 8 * 365 * DAY));
    world.stage.pass(60_000);
    archive.step().await.unwrap();
    denied("nothing was spent closed", archive.request_credit(&officer("anna", 1)).await);
    // Neither is it after the store was closed and opened with that clock.
    let archive = closed_for(archive, &world, 0).await;
    denied("still nothing", archive.request_credit(&officer("anna", 1)).await);
    assert!(matches!(delete(&archive, &record).await, Err(ArchiveError::Retained { .. })));
    let log = about_the_clock(&archive).await;
    assert_eq!(
        log.iter().filter(|record| record.refused.is_some()).count(),
        2,
        "refused credits are recorded: {log:?}"
    );
}

#[tokio::test]
async fn two_officers_who_are_two_people_credit_the_time_spent_closed() {
    let world = World::new(3);
    let archive = store(&world).await;
    let record = put_record(&archive, "kept").await;
    let archive = closed_for(archive, &world, 40).await;
    let key = archive.create_access_key(&admin(), "user", Rights::user("month", "")).await.unwrap();
    let user = archive.credentials(&key.id).await.unwrap().caller.at(7);
    denied("an administrator", archive.request_credit(&admin()).await);
    denied("a user", archive.request_credit(&user).await);
    let mut both = officer("both", 4);
    both.rights = std::sync::Arc::new(Rights::all());
    denied("an administrator's key", archive.request_credit(&both).await);
    let mut remote = officer("remote", 5);
    remote.peer = None;
    denied("an officer from nowhere", archive.request_credit(&remote).await);
    let asked = archive.request_credit(&officer("anna", 1)).await.unwrap();
    assert!(asked.says.contains("by 3456000 s"), "it says what will happen: {asked:?}");
    for (what, caller) in [
        ("the same key", officer("anna", 2)),
        ("the same user of the machine", officer("ben", 1)),
        ("an administrator", admin()),
        ("an administrator's key", both),
        ("a user", user),
    ] {
        denied(what, archive.approve(&caller, &asked.id).await);
    }
    assert!(archive.clock().frozen.is_some(), "a refused credit changes nothing");
    assert!(matches!(delete(&archive, &record).await, Err(ArchiveError::Retained { .. })));
    archive.approve(&officer("ben", 2), &asked.id).await.unwrap();
    let clock = archive.clock();
    assert_eq!((clock.frozen, clock.compliance_time), (None, clock.wall_time));
    assert!(archive.approve(&officer("ben", 2), &asked.id).await.is_err(), "once");
    let log = about_the_clock(&archive).await;
    let done = log.iter().find(|record| record.action == "Approve" && record.refused.is_none()).unwrap();
    let detail = done.detail.clone().unwrap();
    assert_eq!((done.actor.as_str(), done.origin.as_deref()), ("key ben", Some("uid 2 over the unix socket")));
    assert!(detail.contains("key anna (uid 1)") && detail.contains("by 3456000 s"), "{detail}");
    assert_eq!(log.iter().filter(|record| record.refused.is_some()).count(), 9, "{log:?}");
    drop(archive);
    let archive = world.open().await;
    delete(&archive, &record).await.unwrap();
}

#[tokio::test]
async fn a_request_is_over_after_three_days_or_when_refused() {
    let world = World::new(4);
    let archive = closed_for(store(&world).await, &world, 40).await;
    let (anna, ben) = (officer("anna", 1), officer("ben", 2));
    let asked = archive.request_credit(&anna).await.unwrap();
    archive.refuse_request(&ben, &asked.id).await.unwrap();
    assert!(archive.approve(&ben, &asked.id).await.is_err(), "refused");
    let asked = archive.request_credit(&anna).await.unwrap();
    assert_eq!(archive.requests(&admin()).await.unwrap(), std::slice::from_ref(&asked));
    world.stage.pass(3 * DAY);
    assert!(archive.approve(&ben, &asked.id).await.is_err(), "too late");
    archive.step().await.unwrap();
    assert_eq!(archive.requests(&admin()).await.unwrap(), []);
    let log = about_the_clock(&archive).await;
    assert!(log.iter().any(|record| record.actor == "stele approval"), "{log:?}");
}

/// A system clock that was ahead at the request, or is set back after it, gives a request no
/// longer life.
#[tokio::test]
async fn a_clock_that_is_set_back_prolongs_no_request() {
    for (what, at_request, afterwards) in [("it was ahead by a year", 365, 0), ("it is set back by a month", 0, -30)] {
        let world = World::new(12);
        let archive = store(&world).await;
        let (anna, ben) = (officer("anna", 1), officer("ben", 2));
        let begun = world.stage.now().wall;
        let on_day = |day: i64| Timestamp(begun.0.saturating_add_signed(day * DAY as i64));
        let ask = async |act| archive.request_restriction(&anna, act, crate::People::Two).await.unwrap();
        world.stage.set_wall(on_day(at_request));
        let (asked, late) = (ask(crate::Act::KeyExport).await, ask(crate::Act::Bypass).await);
        world.stage.set_wall(on_day(afterwards));
        archive.step().await.unwrap();
        let shown = archive.requests(&admin()).await.unwrap();
        let end = begun.plus_days(3).to_string();
        assert!(shown.len() == 2 && shown.iter().all(|request| request.expires == end), "{what}: {shown:?}");
        world.stage.pass(3 * DAY - 1000);
        archive.approve(&ben, &asked.id).await.unwrap();
        world.stage.pass(1000);
        assert!(archive.approve(&ben, &late.id).await.is_err(), "{what}: three days are over");
        archive.step().await.unwrap();
        assert_eq!(archive.requests(&admin()).await.unwrap(), [], "{what}");
    }
}

#[tokio::test]
async fn after_two_officers_a_third_takes_the_approval_of_one() {
    let world = World::new(5);
    let archive = store(&world).await;
    let make = async |name: &str| archive.create_access_key(&admin(), name, Rights::officer()).await.unwrap();
    let (anna, ben, cleo) = (make("anna").await, make("ben").await, make("cleo").await);
    assert_eq!((anna.awaits, ben.awaits), (None, None), "the first set-up");
    let asked = cleo.awaits.clone().unwrap();
    assert!(archive.credentials(&cleo.id).await.is_err(), "void until it is approved");
    let pending = |keys: Vec<AccessKeyInfo>| keys.iter().filter(|key| key.pending).count();
    assert_eq!(pending(archive.list_access_keys(&admin()).await.unwrap()), 1);
    denied("the administrator", archive.approve(&admin(), &asked).await);
    let by = async |key: &NewAccessKey, uid| archive.credentials(&key.id).await.unwrap().caller.at(uid);
    let anna_key = archive.list_access_keys(&admin()).await.unwrap();
    let anna = anna_key.iter().find(|key| key.description == "anna").unwrap().id.clone();
    let anna = archive.credentials(&anna).await.unwrap().caller;
    denied("an officer in the administrator's hand", archive.approve(&anna.clone().at(0), &asked).await);
    archive.approve(&anna.clone().at(1), &asked).await.unwrap();
    assert!(by(&cleo, 3).await.rights.approves());
    // Revoking every officer does not begin the set-up anew.
    for key in archive.list_access_keys(&admin()).await.unwrap() {
        archive.revoke_access_key(&admin(), &key.id).await.unwrap();
    }
    assert!(make("dora").await.awaits.is_some());
}

#[tokio::test]
async fn a_key_whose_request_is_over_is_revoked() {
    let world = World::new(5);
    let archive = store(&world).await;
    let make = async |name: &str| archive.create_access_key(&admin(), name, Rights::officer()).await.unwrap();
    let (anna, _ben) = (make("anna").await, make("ben").await);
    let anna = archive.credentials(&anna.id).await.unwrap().caller.at(1);
    let (refused, void, revoked) = (make("refused").await, make("void").await, make("revoked").await);
    let (lost, approved) = (archive.create_officer_after_loss(&admin(), "lost").await.unwrap(), make("approved").await);
    archive.approve(&anna, &approved.awaits.unwrap()).await.unwrap();
    archive.revoke_access_key(&admin(), &revoked.id).await.unwrap();
    archive.refuse_request(&anna, &revoked.awaits.unwrap()).await.unwrap();
    let asked = refused.awaits.unwrap();
    archive.refuse_request(&admin(), &asked).await.unwrap();
    let log = about_the_clock(&archive).await;
    let said = log.last().unwrap().detail.clone().unwrap();
    assert!(said.contains(&format!("access key {}", refused.id)) && said.contains(&asked), "{said}");
    world.stage.pass(3 * DAY);
    archive.step().await.unwrap();
    let check = async |archive: &Archive, over: &[&str]| {
        for key in archive.list_access_keys(&admin()).await.unwrap() {
            let name = key.description.as_str();
            let (is_over, waits) = (over.contains(&name) || name == "revoked", key.pending && key.revoked.is_none());
            assert_eq!((key.revoked.is_some(), waits), (is_over, name == "lost" && !is_over), "{name}");
            let is_valid = archive.credentials(&key.id).await.is_ok();
            assert_eq!(is_valid, ["anna", "ben", "approved"].contains(&name), "{name}");
        }
    };
    check(&archive, &["refused", "void"]).await;
    world.stage.pass(60 * DAY);
    archive.step().await.unwrap();
    check(&archive, &["refused", "void", "lost"]).await;
    denied_or_missing(archive.approve(&anna, &lost.awaits.unwrap()).await);
    denied_or_missing(archive.approve(&anna, &void.awaits.unwrap()).await);
    // The notes on the data volume say so too.
    archive.close().await.unwrap();
    drop(archive);
    let world = World { catalog: std::sync::Arc::new(stele_catalog::MemoryCatalog::new()), ..world };
    let filled = Archive::fill(&world.foundation(), &world.options, Rebuild::default()).await.unwrap();
    let (archive, _) = filled.adopt(world.foundation(), world.options.clone()).await.unwrap();
    for key in archive.list_access_keys(&admin()).await.unwrap() {
        let is_over = ["refused", "void", "lost", "revoked"].contains(&key.description.as_str());
        assert_eq!(key.revoked.is_some(), is_over, "{}", key.description);
    }
}

/// As an earlier version of Stele left it: the request is over, and its key is not revoked.
#[tokio::test]
async fn a_key_that_no_request_asks_for_is_revoked() {
    let world = World::new(11);
    let archive = store(&world).await;
    let make = async |name: &str| archive.create_access_key(&admin(), name, Rights::officer()).await.unwrap();
    let (_anna, _ben) = (make("anna").await, make("ben").await);
    let (left, waits) = (make("left").await, make("waits").await);
    let over = stele_catalog::Transaction::new().delete(crate::record::REQUESTS, left.awaits.clone().unwrap());
    world.catalog.commit(over).await.unwrap();
    archive.close().await.unwrap();
    drop(archive);
    let archive = world.open().await;
    archive.step().await.unwrap();
    for key in archive.list_access_keys(&admin()).await.unwrap() {
        assert_eq!(key.revoked.is_some(), key.id == left.id, "{}", key.description);
    }
    let asked: Vec<String> = archive.requests(&admin()).await.unwrap().into_iter().map(|request| request.id).collect();
    assert_eq!(asked, [waits.awaits.unwrap()]);
    let log = archive.audit_records(&admin(), 1, 1000).await.unwrap();
    let told = |record: &AuditRecord| record.detail.as_ref().is_some_and(|detail| detail.contains(&left.id));
    let revoked = log.iter().filter(|record| record.action == "RevokeAccessKey" && told(record)).count();
    assert_eq!(revoked, 1, "{log:?}");
}

fn denied_or_missing<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(ArchiveError::Denied(_) | ArchiveError::NoSuchThing(_))), "{result:?}");
}

#[tokio::test]
async fn lost_officers_are_replaced_after_a_month_of_alarms() {
    let world = World::new(6);
    let archive = store(&world).await;
    let make = async |name: &str| archive.create_access_key(&admin(), name, Rights::officer()).await.unwrap();
    let (anna, _ben) = (make("anna").await, make("ben").await);
    let anna = archive.credentials(&anna.id).await.unwrap().caller.at(1);
    let alarm = || archive.standing_alarms().iter().any(|alarm| alarm.kind == AlarmKind::Officers);
    let new = archive.create_officer_after_loss(&admin(), "new").await.unwrap();
    let refused = new.awaits.unwrap();
    assert!(alarm());
    archive.refuse_request(&anna, &refused).await.unwrap();
    assert!(!alarm(), "an officer was not lost after all");
    let new = archive.create_officer_after_loss(&admin(), "new").await.unwrap();
    let asked = new.awaits.unwrap();
    for days in [0, 29] {
        world.stage.pass(days * DAY);
        denied("too early", archive.approve(&admin(), &asked).await);
        assert!(alarm(), "after {days} days");
    }
    // The system clock does not shorten the wait.
    world.stage.set_wall(Timestamp(world.stage.now().wall.0 + 5 * DAY));
    denied("too early by the compliance clock", archive.approve(&admin(), &asked).await);
    world.stage.set_wall(Timestamp(world.stage.now().wall.0 - 5 * DAY));
    world.stage.pass(DAY + DAY / 2);
    archive.approve(&admin(), &asked).await.unwrap();
    assert!(!alarm());
    assert!(archive.credentials(&new.id).await.unwrap().caller.rights.approves());
}

/// Where a new officer needs no approval there is no waiting time either: the key would be valid at
/// once.
#[tokio::test]
async fn no_officer_counts_as_lost_before_two_were_made() {
    let world = World::new(6);
    let archive = store(&world).await;
    for officers in 0..2 {
        let refused = archive.create_officer_after_loss(&admin(), "new").await.map(|key| key.id);
        assert!(matches!(&refused, Err(ArchiveError::InvalidState(why)) if why.contains("no officer is lost")));
        assert_eq!(archive.list_access_keys(&admin()).await.unwrap().len(), officers);
        archive.create_access_key(&admin(), "first", Rights::officer()).await.unwrap();
    }
    assert!(archive.create_officer_after_loss(&admin(), "new").await.unwrap().awaits.is_some());
}

/// An administrator's key, however narrowed, is never an officer's: two of them would move the
/// clock alone.
#[tokio::test]
async fn narrowing_an_administrators_key_makes_no_officer() {
    let world = World::new(7);
    let archive = store(&world).await;
    let key = archive.create_access_key(&admin(), "all", Rights::all()).await.unwrap();
    let refused = archive.narrow_access_key(&admin(), &key.id, Rights::officer()).await;
    assert!(refused.as_ref().is_err_and(|error| !error.to_string().contains("  ")), "{refused:?}");
    denied("an officer by subtraction", refused);
    let with_user = Rights { roles: [Role::RetentionOfficer, Role::User].into(), ..Rights::officer() };
    denied("with another role", archive.narrow_access_key(&admin(), &key.id, with_user).await);
    archive.narrow_access_key(&admin(), &key.id, Rights::user("month", "")).await.unwrap();
    assert!(!archive.credentials(&key.id).await.unwrap().caller.rights.approves());
}

/// Two officers were made. Neither narrowing nor revoking them, nor a rebuild of the catalog in
/// between, lets the administrator make new ones alone.
#[tokio::test]
async fn a_rebuild_remembers_that_there_were_officers() {
    for narrowed_first in [false, true] {
        let world = World::new(8);
        let archive = store(&world).await;
        let make =
            async |archive: &Archive| archive.create_access_key(&admin(), "key", Rights::officer()).await.unwrap();
        let officers = [make(&archive).await, make(&archive).await];
        let narrow = async |archive: &Archive| {
            for key in &officers {
                archive.narrow_access_key(&admin(), &key.id, Rights::default()).await.unwrap();
            }
        };
        if narrowed_first {
            narrow(&archive).await;
        }
        archive.close().await.unwrap();
        drop(archive);
        let world = World { catalog: std::sync::Arc::new(stele_catalog::MemoryCatalog::new()), ..world };
        let filled = Archive::fill(&world.foundation(), &world.options, Rebuild::default()).await.unwrap();
        let (archive, _) = filled.adopt(world.foundation(), world.options.clone()).await.unwrap();
        if !narrowed_first {
            narrow(&archive).await;
        }
        assert!(make(&archive).await.awaits.is_some(), "narrowed before the rebuild: {narrowed_first}");
    }
}

#[tokio::test]
async fn a_request_ends_with_the_officer_who_made_it() {
    let world = World::new(9);
    let archive = store(&world).await;
    let mut officers = Vec::new();
    for uid in [1, 2] {
        let key = archive.create_access_key(&admin(), "officer", Rights::officer()).await.unwrap();
        officers.push((key.id.clone(), archive.credentials(&key.id).await.unwrap().caller.at(uid)));
    }
    let archive = closed_for(archive, &world, 40).await;
    let [(anna_key, anna), (_, ben)] = &officers[..] else { unreachable!() };
    let asked = archive.request_credit(anna).await.unwrap();
    archive.revoke_access_key(&admin(), anna_key).await.unwrap();
    denied("the author's key is revoked", archive.approve(ben, &asked.id).await);
    assert!(archive.clock().frozen.is_some(), "the clock did not move");
}

#[tokio::test]
async fn a_credit_accepts_only_the_alarm_that_it_names() {
    let (anna, ben) = (officer("anna", 1), officer("ben", 2));
    for (what, switched_off, jumps) in [
        ("the acceptance is switched off", true, false),
        ("the system clock jumps between request and approval", false, true),
        ("both", true, true),
    ] {
        let world = World::new(10);
        let archive = store(&world).await;
        if switched_off {
            let asked = archive.request_restriction(&anna, crate::Act::ClockAccept, crate::People::Off).await.unwrap();
            archive.approve(&ben, &asked.id).await.unwrap();
        }
        let archive = closed_for(archive, &world, 40).await;
        let asked = archive.request_credit(&anna).await.unwrap();
        assert_eq!(asked.says.contains("alarm is accepted"), !switched_off, "{what}: {}", asked.says);
        if jumps {
            world.stage.set_wall(Timestamp(world.stage.now().wall.0 + DAY));
        }
        let before = archive.clock().compliance_time;
        archive.approve(&ben, &asked.id).await.unwrap();
        let clock = archive.clock();
        assert!(clock.frozen.is_some() && clock.compliance_time > before, "{what}: {clock:?}");
        // The row says so too.
        drop(archive);
        let archive = world.open().await;
        assert!(archive.clock().frozen.is_some(), "{what}: after an opening");
    }
}

/// The system clock jumps while the commit of a credit or of an acceptance is under way.
#[tokio::test]
async fn an_alarm_beside_an_acceptance_stands() {
    for credit in [true, false] {
        let (world, gate) = World::gated(11, 24 << 20, 256 << 10);
        let archive = closed_for(store(&world).await, &world, 40).await;
        let asked = archive.request_credit(&officer("anna", 1)).await.unwrap();
        gate.close();
        let (caller, root) = (officer("ben", 2), admin());
        let mut done: std::pin::Pin<Box<dyn Future<Output = Result<()>>>> = match credit {
            true => Box::pin(async { archive.approve(&caller, &asked.id).await.map(drop) }),
            false => Box::pin(archive.accept_clock(&root)),
        };
        assert!(futures_util::poll!(&mut done).is_pending(), "it waits for its commit");
        world.stage.set_wall(Timestamp(world.stage.now().wall.0 + DAY));
        archive.clock();
        gate.open();
        done.as_mut().await.unwrap();
        drop(done);
        assert!(archive.clock().frozen.is_some(), "credit {credit}");
        archive.step().await.unwrap();
        drop(archive);
        assert!(world.open().await.clock().frozen.is_some(), "credit {credit}, after an opening");
    }
}

/// The officer's client goes away at every point at which the approval waits.
#[tokio::test]
async fn an_event_is_taken_back_with_its_approval_or_not_at_all() {
    let mut outcomes = std::collections::BTreeSet::new();
    for polls in 1.. {
        let (world, gate) = World::gated(12, 24 << 20, 256 << 10);
        let archive = super::classes::store(&world).await;
        active(&archive, "staff", terms(Initiation::Event, Some(30), 0, ExpiryAction::Keep)).await;
        let record = put_in(&archive, "record", Some("staff")).await.unwrap();
        let told = archive.store().later_now().plus_days(5);
        archive.tell_event(&admin(), "records", "record", None, told).await.unwrap();
        let name = VersionName { bucket: "records".into(), key: "record".into(), version: Some(record.version) };
        let asked = archive.request_revocation(&officer("anna", 1), &name).await.unwrap();
        gate.close();
        let ben = officer("ben", 2);
        // The runtime has no say in how often it is polled.
        let approval = tokio::task::unconstrained(archive.approve(&ben, &asked.id));
        let ended = gate.drive(approval, polls);
        gate.open();
        // Commits that were submitted take place.
        archive.step().await.unwrap();
        let until = archive.retention(&admin(), "records", "record", None).await.unwrap().until;
        let is_over = archive.requests(&admin()).await.unwrap().is_empty();
        assert_eq!(until == Timestamp::LATEST, is_over, "given up after {polls} polls: kept until {until}");
        let log = archive.audit_records(&admin(), 1, 1000).await.unwrap();
        let approvals = log.iter().filter(|record| record.action == "Approve").count();
        assert_eq!(approvals, usize::from(is_over), "given up after {polls} polls");
        outcomes.insert(is_over);
        if ended.is_some() {
            break;
        }
    }
    assert_eq!(outcomes.len(), 2, "it was given up before and behind the commit");
}
