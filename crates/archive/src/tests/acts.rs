//! How many people an act takes: rules that only get stricter, and acts of two officers. And the
//! pause of expiration.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use stele_catalog::MemoryCatalog;

use super::*;
use crate::testing::{Gate, officer, put_as};
use crate::{Act, People};

const DAY: u64 = 86_400_000;

async fn store(world: &World) -> Archive {
    store_of(world, Protection::Governance).await
}

async fn store_of(world: &World, protection: Protection) -> Archive {
    let archive = world.create().await;
    let protection = Some(protection);
    let new = NewBucket { object_lock: true, expiry: ExpiryAction::Delete, protection, ..NewBucket::default() };
    archive.create_bucket(&admin(), "records", new).await.unwrap();
    archive
}

async fn put_retained(archive: &Archive, key: &str, mode: RetentionMode, days: u64) -> ObjectInfo {
    let until = archive.store().later_now().plus_days(days);
    let request = PutRequest {
        bucket: "records".into(),
        key: key.into(),
        retention: Some(Retention { mode, until }),
        ..PutRequest::default()
    };
    put_as(archive, &admin(), request, b"record").await.unwrap()
}

async fn bypass(archive: &Archive, info: &ObjectInfo) -> Result<Deleted> {
    let request = DeleteRequest {
        bucket: info.bucket.clone(),
        key: info.key.clone(),
        version: Some(info.version),
        bypass_governance: true,
        ..DeleteRequest::default()
    };
    archive.delete(&admin(), request).await
}

fn of(info: &ObjectInfo) -> VersionName {
    VersionName { bucket: info.bucket.clone(), key: info.key.clone(), version: Some(info.version) }
}

async fn by_two(archive: &Archive, asked: Result<RequestInfo>) -> Result<String> {
    let asked = asked.unwrap();
    let alone = archive.approve(&officer("anna", 1), &asked.id).await;
    assert!(matches!(alone, Err(ArchiveError::Denied(_))), "nobody approves what they asked for: {alone:?}");
    archive.approve(&officer("ben", 2), &asked.id).await
}

async fn restrict(archive: &Archive, act: Act, people: People) {
    by_two(archive, archive.request_restriction(&officer("anna", 1), act, people).await).await.unwrap();
}

fn denied<T: std::fmt::Debug>(what: &str, result: Result<T>, word: &str) {
    match result {
        Err(ArchiveError::Denied(message)) => assert!(message.contains(word), "{what}: {message}"),
        other => panic!("{what}: {other:?}"),
    }
}

fn retained<T: std::fmt::Debug>(what: &str, result: Result<T>, word: &str) {
    match result {
        Err(ArchiveError::Retained { message, .. }) => assert!(message.contains(word), "{what}: {message}"),
        other => panic!("{what}: {other:?}"),
    }
}

#[tokio::test]
async fn without_a_rule_one_person_acts_as_before() {
    let world = World::new(1);
    let archive = store(&world).await;
    let governed = put_retained(&archive, "governed", RetentionMode::Governance, 5).await;
    bypass(&archive, &governed).await.unwrap();
    archive.export_master_key(&admin()).await.unwrap();
    archive.accept_clock(&admin()).await.unwrap();
    let rules = archive.act_rules(&admin()).await.unwrap();
    let rules: Vec<String> = rules.iter().map(|rule| format!("{} {}", rule.act, rule.people)).collect();
    assert_eq!(rules, ["bypass one", "clock-accept one", "clock-credit two", "key-export one", "new-officer two"]);
}

#[tokio::test]
async fn a_rule_only_gets_stricter_and_a_rebuild_finds_it() {
    let mut world = World::sized(2, 24 << 20, 256 << 10);
    let archive = store(&world).await;
    let anna = officer("anna", 1);
    denied(
        "an administrator",
        archive.request_restriction(&admin(), Act::Bypass, People::Two).await,
        "no retention officer",
    );
    for (act, people) in [(Act::Bypass, People::One), (Act::ClockCredit, People::Two), (Act::NewOfficer, People::One)] {
        let asked = archive.request_restriction(&anna, act, people).await;
        assert!(matches!(asked, Err(ArchiveError::InvalidState(_))), "{act} {people}: {asked:?}");
    }
    let early = archive.request_restriction(&anna, Act::Bypass, People::Two).await;
    restrict(&archive, Act::Bypass, People::Off).await;
    let late = by_two(&archive, early).await;
    assert!(matches!(late, Err(ArchiveError::InvalidState(_))), "an older request does not loosen it: {late:?}");
    restrict(&archive, Act::KeyExport, People::Two).await;
    archive.close().await.unwrap();
    drop(archive);
    for rebuilt in [false, true] {
        let archive = match rebuilt {
            false => world.open().await,
            true => {
                world.catalog = Arc::new(MemoryCatalog::new());
                Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap().0
            }
        };
        let rules = archive.act_rules(&admin()).await.unwrap();
        let strict: Vec<_> = rules.iter().filter(|rule| rule.people != rule.act.least()).collect();
        assert_eq!(strict.len(), 2, "rebuilt {rebuilt}: {rules:?}");
        archive.close().await.unwrap();
    }
}

#[tokio::test]
async fn two_officers_delete_what_one_may_not() {
    let world = World::new(3);
    let archive = store(&world).await;
    restrict(&archive, Act::Bypass, People::Two).await;
    let anna = officer("anna", 1);
    let governed = put_retained(&archive, "governed", RetentionMode::Governance, 5).await;
    let strict = put_retained(&archive, "strict", RetentionMode::Compliance, 5).await;
    let held = put_retained(&archive, "held", RetentionMode::Governance, 5).await;
    archive.set_legal_hold(&admin(), "records", "held", None, true).await.unwrap();
    retained("a bypass by one", bypass(&archive, &governed).await, "two officers");
    let none = archive.set_retention(&admin(), "records", "governed", None, None, true).await;
    retained("a weaker retention by one", none, "bypass");
    for info in [&strict, &held] {
        let asked = archive.request_deletion(&anna, &of(info), "an error").await;
        assert!(matches!(asked, Err(ArchiveError::Retained { .. })), "{asked:?}");
        let log = archive.audit_records(&admin(), 1, 1000).await.unwrap();
        let named = format!("version {} is deleted", info.version);
        let detail = log.last().and_then(|record| record.detail.clone()).unwrap_or_default();
        assert!(detail.contains(&named), "the refusal names the version: {detail}");
    }
    for none in ["", " \t"] {
        let asked = archive.request_deletion(&anna, &of(&governed), none).await;
        assert!(matches!(asked, Err(ArchiveError::InvalidArgument(_))), "{asked:?}");
    }
    let asked = archive.request_deletion(&anna, &of(&governed), "stored by mistake").await;
    let says = &asked.as_ref().unwrap().says;
    assert!(
        says.contains("is deleted before GOVERNANCE retention ends") && says.ends_with("stored by mistake"),
        "{says}"
    );
    by_two(&archive, asked).await.unwrap();
    assert!(get(&archive, "records", "governed").await.is_err());
    archive.step().await.unwrap();
    let made = archive.disposal_certificate(&admin(), "records", "governed", governed.version, None).await.unwrap();
    assert_eq!(made.verify(&super::receipts::key_of(&made.head)), Ok(()));
    assert_eq!((made.removal.cause.as_str(), made.removal.approvals.len()), ("governance bypassed", 1));
    assert_eq!(made.removal.approvals[0].asked_by, "key anna (uid 1)");
    // A hold that came in between stops it, and so does the end of the right.
    let late = put_retained(&archive, "late", RetentionMode::Governance, 5).await;
    let asked = archive.request_deletion(&anna, &of(&late), "an error").await;
    let again = archive.request_deletion(&anna, &of(&late), "an error").await;
    archive.set_legal_hold(&admin(), "records", "late", None, true).await.unwrap();
    let done = by_two(&archive, asked).await;
    assert!(matches!(done, Err(ArchiveError::Retained { .. })), "{done:?}");
    archive.set_legal_hold(&admin(), "records", "late", None, false).await.unwrap();
    restrict(&archive, Act::Bypass, People::Off).await;
    denied("a deletion that was switched off", by_two(&archive, again).await, "switched off for good");
    retained("a bypass that is switched off", bypass(&archive, &late).await, "switched off for good");
    // What has passed goes without a bypass.
    world.stage.pass(6 * DAY);
    bypass(&archive, &late).await.unwrap();
}

#[tokio::test]
async fn a_refusal_names_officers_only_where_they_can_delete() {
    let world = World::new(12);
    let archive = store(&world).await;
    let governed = put_retained(&archive, "governed", RetentionMode::Governance, 5).await;
    let strict = put_retained(&archive, "strict", RetentionMode::Compliance, 5).await;
    let held = put_retained(&archive, "held", RetentionMode::Governance, 5).await;
    archive.set_legal_hold(&admin(), "records", "held", None, true).await.unwrap();
    for (people, said) in [(People::Two, "takes two officers"), (People::Off, "switched off for good")] {
        restrict(&archive, Act::Bypass, people).await;
        for (info, is_said) in [(&governed, true), (&strict, false), (&held, false)] {
            let Err(ArchiveError::Retained { message, .. }) = bypass(&archive, info).await else {
                panic!("{} was not refused", info.key)
            };
            assert_eq!(message.contains(said), is_said, "{message}");
        }
    }
}

#[tokio::test]
async fn the_list_tells_requests_that_can_change_nothing() {
    let world = World::new(13);
    let archive = store(&world).await;
    let anna = officer("anna", 1);
    let governed = put_retained(&archive, "governed", RetentionMode::Governance, 5).await;
    archive.open_matter(&admin(), "smith", "Smith v. Jones").await.unwrap();
    let mut twice = Vec::new();
    for _ in 0..2 {
        twice.push((
            archive.request_deletion(&anna, &of(&governed), "wrong customer").await.unwrap(),
            archive.request_close(&anna, "smith").await.unwrap(),
            archive.request_restriction(&anna, Act::KeyExport, People::Two).await.unwrap(),
        ));
    }
    let open = async || {
        let listed = archive.requests(&admin()).await.unwrap();
        let void = listed.iter().filter(|request| request.says.starts_with("void, since it can change nothing"));
        (listed.len(), void.count())
    };
    assert_eq!(open().await, (6, 0));
    let (delete, close, restriction) = twice.swap_remove(0);
    for (asked, left) in [(delete, (5, 1)), (close, (4, 2)), (restriction, (3, 3))] {
        by_two(&archive, Ok(asked)).await.unwrap();
        assert_eq!(open().await, left);
    }
    // Another officer ends them.
    for (delete, close, restriction) in twice {
        for asked in [delete, close, restriction] {
            assert!(archive.approve(&officer("ben", 2), &asked.id).await.is_err(), "{}", asked.says);
            archive.refuse_request(&officer("ben", 2), &asked.id).await.unwrap();
        }
    }
    assert_eq!(open().await, (0, 0));
}

#[tokio::test]
async fn why_says_how_many_people_a_bypass_takes() {
    let world = World::new(4);
    let archive = store(&world).await;
    let governed = put_retained(&archive, "governed", RetentionMode::Governance, 5).await;
    let check = async |people: &str, word: &str| {
        let why = archive.why(&admin(), "records", "governed", Some(governed.version)).await.unwrap();
        let told = why.reasons.iter().filter(|reason| reason.contains("GOVERNANCE retention ends"));
        assert!(told.clone().all(|reason| reason.contains(word)) && told.count() == 1, "{people}: {why:?}");
    };
    check("one", "a caller with the permission may bypass it").await;
    restrict(&archive, Act::Bypass, People::Two).await;
    check("two", "takes two officers: `stele disposal delete` asks").await;
    restrict(&archive, Act::Bypass, People::Off).await;
    check("off", "is switched off for good").await;
}

#[tokio::test]
async fn an_approval_deletes_nothing_that_is_kept_longer_since() {
    let world = World::new(8);
    let archive = store(&world).await;
    let anna = officer("anna", 1);
    let later =
        |days| Some(Retention { mode: RetentionMode::Governance, until: world.stage.now().wall.plus_days(days) });
    for (what, before, after, deleted) in [
        ("a longer retention", later(5), later(3650), false),
        ("a first retention", None, later(3650), false),
        ("the same retention", later(5), later(5), true),
        ("a shorter retention", later(5), later(2), true),
        ("no retention", None, None, true),
    ] {
        let request =
            PutRequest { bucket: "records".into(), key: what.into(), retention: before, ..PutRequest::default() };
        let info = put_as(&archive, &admin(), request, b"record").await.unwrap();
        let asked = archive.request_deletion(&anna, &of(&info), "an error").await;
        if before != after {
            archive.set_retention(&admin(), "records", what, Some(info.version), after, true).await.unwrap();
        }
        match by_two(&archive, asked).await {
            Ok(_) => assert!(deleted, "{what}"),
            Err(ArchiveError::InvalidState(message)) => {
                assert!(!deleted && message.contains("ask again"), "{what}: {message}");
            }
            Err(other) => panic!("{what}: {other}"),
        }
        assert_eq!(get(&archive, "records", what).await.is_err(), deleted, "{what}");
        if !deleted {
            // Asked anew, with the date that stands.
            by_two(&archive, archive.request_deletion(&anna, &of(&info), "an error").await).await.unwrap();
        }
    }
}

#[tokio::test]
async fn an_export_of_the_master_key_uses_up_an_approval() {
    let world = World::new(4);
    let archive = store(&world).await;
    restrict(&archive, Act::KeyExport, People::Two).await;
    denied("one person", archive.export_master_key(&admin()).await, "two officers");
    let asked = archive.request_export(&officer("anna", 1)).await;
    denied("before approval", archive.export_master_key(&admin()).await, "two officers");
    let id = asked.as_ref().unwrap().id.clone();
    by_two(&archive, asked).await.unwrap();
    denied("approval twice", archive.approve(&officer("carl", 3), &id).await, "already");
    archive.export_master_key(&admin()).await.unwrap();
    denied("the second export", archive.export_master_key(&admin()).await, "two officers");
    // An approval that was not used is void with its request.
    by_two(&archive, archive.request_export(&officer("anna", 1)).await).await.unwrap();
    world.stage.pass(4 * DAY);
    denied("after its end", archive.export_master_key(&admin()).await, "two officers");
    restrict(&archive, Act::KeyExport, People::Off).await;
    denied("for good", archive.request_export(&officer("anna", 1)).await, "switched off");
    denied("for good", archive.export_master_key(&admin()).await, "switched off");
}

#[tokio::test]
async fn two_officers_accept_the_alarm_that_they_were_asked_about() {
    let world = World::new(5);
    let archive = store(&world).await;
    restrict(&archive, Act::ClockAccept, People::Two).await;
    let nothing = archive.request_acceptance(&officer("anna", 1)).await;
    assert!(matches!(nothing, Err(ArchiveError::InvalidState(_))), "{nothing:?}");
    let wall = world.stage.now().wall;
    let jump = |days: u64| {
        world.stage.set_wall(Timestamp(wall.0 + days * DAY));
        archive.step()
    };
    jump(9).await.unwrap();
    assert!(archive.clock().frozen.is_some());
    denied("one person", archive.accept_clock(&admin()).await, "two officers");
    let asked = archive.request_acceptance(&officer("anna", 1)).await;
    by_two(&archive, asked).await.unwrap();
    assert_eq!(archive.clock().frozen, None);
    jump(30).await.unwrap();
    restrict(&archive, Act::ClockAccept, People::Off).await;
    denied("for good", archive.request_acceptance(&officer("anna", 1)).await, "switched off");
    assert!(archive.clock().frozen.is_some());
}

#[tokio::test]
async fn the_alarm_of_the_clock_says_who_ends_it() {
    let world = World::new(12);
    let archive = store(&world).await;
    world.stage.set_wall(world.stage.now().wall.plus_days(9));
    let message = || {
        let alarms = archive.standing_alarms();
        alarms.into_iter().find(|alarm| alarm.kind() == "clock").expect("the alarm stands").message
    };
    assert!(message().contains("an administrator of this machine or a retention officer"), "{}", message());
    restrict(&archive, Act::ClockAccept, People::Two).await;
    assert!(message().contains("two retention officers"), "{}", message());
    restrict(&archive, Act::ClockAccept, People::Off).await;
    assert!(message().contains("for good"), "{}", message());
}

#[tokio::test]
async fn no_officer_is_admitted_once_that_is_switched_off() {
    let world = World::new(6);
    let archive = store(&world).await;
    for name in ["first", "second"] {
        archive.create_access_key(&admin(), name, Rights::officer()).await.unwrap();
    }
    let third = archive.create_access_key(&admin(), "third", Rights::officer()).await.unwrap();
    restrict(&archive, Act::NewOfficer, People::Off).await;
    denied("waiting", archive.approve(&officer("ben", 2), &third.awaits.unwrap()).await, "switched off");
    let fourth = archive.create_access_key(&admin(), "fourth", Rights::officer()).await;
    denied("new", fourth.map(drop), "switched off");
    archive.create_access_key(&admin(), "user", Rights::user("records", "")).await.unwrap();
}

#[tokio::test]
async fn a_pause_keeps_and_the_rate_delays_expiration() {
    let mut world = World::sized(7, 24 << 20, 256 << 10);
    let archive = store(&world).await;
    for n in 0..50 {
        put_retained(&archive, &format!("key {n}"), RetentionMode::Compliance, 2).await;
    }
    let user = Caller { rights: Rights::user("records", "").into(), ..officer("carl", 3) };
    denied("a user", archive.pause_expiration(&user, "").await, "");
    archive.pause_expiration(&admin(), "an audit").await.unwrap();
    world.stage.pass(3 * DAY);
    assert_eq!(archive.step().await.unwrap().expired, 0);
    archive.close().await.unwrap();
    drop(archive);
    let archive = world.open().await;
    assert_eq!(archive.step().await.unwrap().expired, 0, "after another opening");
    archive.close().await.unwrap();
    drop(archive);
    world.catalog = Arc::new(MemoryCatalog::new());
    let archive = Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap().0;
    world.stage.pass(60_000);
    assert_eq!(archive.step().await.unwrap().expired, 0, "after a rebuild");
    assert_eq!(archive.expiration(&admin()).await.unwrap().reason.as_deref(), Some("an audit"));
    archive.limit_expiration(&admin(), Some(5)).await.unwrap();
    let resumed = archive.resume_expiration(&admin()).await.unwrap();
    assert_eq!((resumed.paused_since, resumed.rate), (None, Some(5)));
    let mut most = 0;
    let mut expired = 0;
    for _ in 0..30 {
        world.stage.pass(1000);
        let report = archive.step().await.unwrap();
        most = most.max(report.expired);
        expired += report.expired;
    }
    assert_eq!((most, expired), (5, 50));
    for rate in [0, u32::MAX] {
        assert!(archive.limit_expiration(&admin(), Some(rate)).await.is_err());
    }
}

#[tokio::test]
async fn a_rule_about_bypasses_binds_buckets_of_level_basic() {
    let world = World::new(8);
    let archive = store_of(&world, Protection::Basic).await;
    put_retained(&archive, "before", RetentionMode::Governance, 5).await;
    put_retained(&archive, "after", RetentionMode::Governance, 5).await;
    put_retained(&archive, "passed", RetentionMode::Governance, 1).await;
    let set = async |key: &str, change: Option<(RetentionMode, u64)>, bypass: bool| {
        let now = archive.store().later_now();
        let retention = change.map(|(mode, days)| Retention { mode, until: now.plus_days(days) });
        archive.set_retention(&admin(), "records", key, None, retention, bypass).await
    };
    set("before", None, false).await.unwrap();
    restrict(&archive, Act::Bypass, People::Two).await;
    for people in [People::Two, People::Off] {
        for bypass in [false, true] {
            retained("lifted", set("after", None, bypass).await, "officers decided so");
            let shorter = set("after", Some((RetentionMode::Governance, 1)), bypass).await;
            retained("shortened", shorter, "officers decided so");
        }
        if people == People::Two {
            restrict(&archive, Act::Bypass, People::Off).await;
        }
    }
    set("after", Some((RetentionMode::Governance, 9)), false).await.unwrap();
    set("after", Some((RetentionMode::Compliance, 9)), false).await.unwrap();
    world.stage.pass(2 * DAY);
    set("passed", None, false).await.unwrap();
}

/// A bypass is judged and waits when the rule, or the right of its caller, is taken away: it does
/// not commit behind that.
#[test]
fn no_bypass_commits_behind_a_stricter_rule() {
    const ALL: usize = 1_000_000;
    let cases = [(false, false), (false, true), (true, false), (true, true)].map(|case| (Protection::Governance, case));
    // Level `basic` asks for no bypass.
    let basic = [(true, false), (true, true)].map(|case| (Protection::Basic, case));
    for (level, (lifted, narrowed)) in cases.into_iter().chain(basic) {
        let (mut polls, mut overtaken) = (0, 0);
        loop {
            let (world, gate): (World, Gate) = World::gated(7, 64 << 20, 1 << 20);
            gate.close();
            let archive = gate.drive(store_of(&world, level), ALL).unwrap();
            let bypassing = level == Protection::Governance;
            let info = gate.drive(put_retained(&archive, "governed", RetentionMode::Governance, 5), ALL).unwrap();
            let mut rights = Rights { bypass_governance: true, ..Rights::user("records", "") };
            rights.grants.iter_mut().for_each(|grant| grant.access.extend([Access::Retain]));
            let made = async { archive.create_access_key(&admin(), "user", rights.clone()).await };
            let key = gate.drive(made, ALL).unwrap().unwrap();
            let caller = gate.drive(archive.credentials(&key.id), ALL).unwrap().unwrap().caller;
            let request = DeleteRequest {
                bucket: "records".into(),
                key: "governed".into(),
                version: Some(info.version),
                bypass_governance: true,
                ..DeleteRequest::default()
            };
            let mut bypass: Pin<Box<dyn Future<Output = bool> + '_>> = match lifted {
                false => Box::pin(async { archive.delete(&caller, request).await.is_ok() }),
                true => Box::pin(async {
                    archive.set_retention(&caller, "records", "governed", None, None, bypassing).await.is_ok()
                }),
            };
            let mut context = Context::from_waker(Waker::noop());
            let mut answer = None;
            for _ in 0..polls {
                match bypass.as_mut().poll(&mut context) {
                    Poll::Ready(done) => answer = answer.or(Some(done)),
                    Poll::Pending => drop(gate.step()),
                }
                if answer.is_some() {
                    break;
                }
            }
            if answer.is_some() {
                break;
            }
            match narrowed {
                false => gate.drive(restrict(&archive, Act::Bypass, People::Two), ALL).unwrap(),
                true => {
                    let narrow = match bypassing {
                        true => Rights { bypass_governance: false, ..rights },
                        false => Rights { bypass_governance: true, ..Rights::user("records", "") },
                    };
                    drop(gate.drive(archive.narrow_access_key(&admin(), &key.id, narrow), ALL).unwrap().unwrap());
                }
            }
            let retention = || {
                let row = archive.store().buckets().by_name("records").and_then(|bucket| {
                    crate::store::lookup::readable(&*archive.store().snapshot()?, &bucket, "governed", None)
                });
                row.ok().and_then(|found| found.row.retention)
            };
            if retention().is_some() {
                overtaken += 1;
                let done = gate.drive(bypass, ALL).unwrap();
                assert!(!done, "{level:?}, lifted: {lifted}, narrowed: {narrowed}, after {polls} polls");
                assert!(retention().is_some());
            }
            polls += 1;
        }
        assert!(overtaken > 1, "the bypass was overtaken behind its judgement");
    }
}

/// The system clock jumps while a page of expiration is under way.
#[tokio::test]
async fn a_freeze_stops_a_page_of_expiration() {
    let (world, gate) = World::gated(9, 24 << 20, 256 << 10);
    let archive = store(&world).await;
    for n in 0..20 {
        put_retained(&archive, &format!("key {n}"), RetentionMode::Compliance, 2).await;
    }
    world.stage.pass(3 * DAY);
    let left = || {
        let all = archive.store().snapshot().unwrap();
        all.range(crate::record::RETAINED, &stele_catalog::KeyRange::all(), 100, stele_catalog::Direction::Forward)
            .unwrap()
            .len()
    };
    gate.close();
    let mut step = Box::pin(archive.step());
    while left() == 20 {
        assert!(futures_util::poll!(&mut step).is_pending());
        assert!(gate.step(), "it waits for the gate");
    }
    world.stage.set_wall(Timestamp(world.stage.now().wall.0 + DAY));
    archive.clock();
    gate.open();
    assert_eq!(step.await.unwrap().expired, 1);
    assert_eq!(left(), 19);
}
