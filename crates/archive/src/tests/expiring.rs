//! The way of expiration through the retained versions: what it passes by, what comes back, and
//! what a rate counts.

use std::task::Poll;

use stele_catalog::{Direction, KeyRange, Table, Transaction};

use super::*;
use crate::record::settings::EXPIRY;
use crate::record::{EXPIRE_AGAIN, RETAINED, SETTINGS, VERSIONS};
use crate::space::BLOCK;
use crate::testing::{officer, put_as};

const DAY: u64 = 86_400_000;
/// More than the time between two turns.
const TURN: u64 = 301_000;
const ALL: usize = 1_000_000;

fn world() -> World {
    World::sized(7, 24 << 20, 256 << 10)
}

/// A store with a bucket for each action.
async fn store(world: &World) -> Archive {
    let archive = world.create().await;
    for (name, expiry) in [("kept", ExpiryAction::Keep), ("told", ExpiryAction::Notify), ("gone", ExpiryAction::Delete)]
    {
        let new = NewBucket { object_lock: true, expiry, ..NewBucket::default() };
        archive.create_bucket(&admin(), name, new).await.unwrap();
    }
    archive
}

async fn put_for(archive: &Archive, bucket: &str, key: &str, mode: RetentionMode, time: u64) -> ObjectInfo {
    let until = Timestamp(archive.store().later_now().0 + time);
    let retention = Some(Retention { mode, until });
    let request = PutRequest { bucket: bucket.into(), key: key.into(), retention, ..PutRequest::default() };
    put_as(archive, &admin(), request, b"record").await.unwrap()
}

/// Retained versions for a time.
async fn fill(archive: &Archive, bucket: &str, count: usize, time: u64) {
    for n in 0..count {
        put_for(archive, bucket, &format!("key {n}"), RetentionMode::Compliance, time).await;
    }
}

async fn fill_one(archive: &Archive, bucket: &str, n: usize) {
    put_for(archive, bucket, &format!("key {n}"), RetentionMode::Compliance, DAY).await;
}

async fn opened_again(world: &World, archive: Archive) -> Archive {
    drop(archive);
    let archive = world.open().await;
    // The clock counts the time for which the store was closed.
    world.stage.pass(1000);
    archive
}

fn count(world: &World, table: Table) -> usize {
    world.catalog.snapshot().unwrap().range(table, &KeyRange::all(), 10_000, Direction::Forward).unwrap().len()
}

/// The number of versions that a turn deletes.
async fn turn(world: &World, archive: &Archive) -> u64 {
    world.stage.pass(TURN);
    let mut expired = 0;
    loop {
        let report = archive.step().await.unwrap();
        assert!(report.alarms.is_empty(), "{:?}", report.alarms);
        expired += report.expired;
        if !report.more {
            return expired;
        }
    }
}

fn name_of(info: &ObjectInfo) -> VersionName {
    VersionName { bucket: info.bucket.clone(), key: info.key.clone(), version: Some(info.version) }
}

#[tokio::test]
async fn versions_that_stay_do_not_use_up_the_rate() {
    let world = world();
    let archive = store(&world).await;
    fill(&archive, "kept", 300, DAY).await;
    let held = put_for(&archive, "gone", "held", RetentionMode::Compliance, DAY).await;
    archive.set_legal_hold(&admin(), "gone", "held", Some(held.version), true).await.unwrap();
    fill(&archive, "told", 4, DAY + 1000).await;
    fill(&archive, "gone", 5, 2 * DAY).await;
    archive.limit_expiration(&admin(), Some(1)).await.unwrap();
    world.stage.pass(3 * DAY);
    let (mut notified, mut expired) = (Vec::new(), Vec::new());
    for second in 0..20 {
        world.stage.pass(1000);
        let report = archive.step().await.unwrap();
        assert!(report.expired + report.notified <= 1, "the rate counts what is done");
        notified.extend((report.notified > 0).then_some(second));
        expired.extend((report.expired > 0).then_some(second));
    }
    assert_eq!((notified, expired), (vec![0, 1, 2, 3], vec![4, 5, 6, 7, 8]));
    // The next turn has nothing to look at.
    assert_eq!(turn(&world, &archive).await, 0);
    assert_eq!(count(&world, RETAINED), 300 + 1 + 4);
}

#[tokio::test]
async fn a_pass_goes_on_after_a_restart_in_its_middle() {
    let world = world();
    let archive = store(&world).await;
    fill(&archive, "kept", 1200, DAY).await;
    fill(&archive, "gone", 3, 2 * DAY).await;
    world.stage.pass(3 * DAY);
    let first = archive.step().await.unwrap();
    assert!(first.more && first.expired == 0, "a page is 1000 versions: {first:?}");
    let archive = opened_again(&world, archive).await;
    archive.accept_clock(&admin()).await.unwrap();
    // Anew from the first version it would take two pages.
    assert_eq!(archive.step().await.unwrap().expired, 3);
    // What is retained later is behind the place.
    fill(&archive, "gone", 2, 2 * DAY).await;
    let archive = opened_again(&world, archive).await;
    archive.accept_clock(&admin()).await.unwrap();
    world.stage.pass(3 * DAY);
    assert_eq!(turn(&world, &archive).await, 2);
}

/// Each way by which a version may go that the pass has gone by, with a restart before the next
/// turn, and without.
#[tokio::test]
async fn what_may_go_later_comes_back() {
    for restart in [false, true] {
        let world = world();
        let mut archive = store(&world).await;
        let governed = put_for(&archive, "gone", "governed", RetentionMode::Governance, 90 * DAY).await;
        let held = put_for(&archive, "gone", "held", RetentionMode::Compliance, DAY).await;
        let matter = put_for(&archive, "gone", "matter", RetentionMode::Compliance, DAY).await;
        let twice = put_for(&archive, "gone", "twice", RetentionMode::Compliance, DAY).await;
        archive.open_matter(&admin(), "smith", "Smith v. Jones").await.unwrap();
        for info in [&matter, &twice] {
            archive.hold_listed(&admin(), "smith", vec![name_of(info)], true).await.unwrap();
        }
        for info in [&held, &twice] {
            archive.set_legal_hold(&admin(), "gone", &info.key, Some(info.version), true).await.unwrap();
        }
        fill(&archive, "gone", 1, 2 * DAY).await;
        world.stage.pass(3 * DAY);
        assert_eq!(turn(&world, &archive).await, 1);
        assert_eq!(turn(&world, &archive).await, 0);

        archive.set_legal_hold(&admin(), "gone", "held", Some(held.version), false).await.unwrap();
        archive.set_legal_hold(&admin(), "gone", "twice", Some(twice.version), false).await.unwrap();
        archive.hold_listed(&officer("anna", 1), "smith", vec![name_of(&matter)], false).await.unwrap();
        let soon = Retention { mode: RetentionMode::Governance, until: Timestamp(archive.store().later_now().0 + 1) };
        let (by, version) = (admin(), Some(governed.version));
        archive.set_retention(&by, "gone", "governed", version, Some(soon), true).await.unwrap();
        assert_eq!(count(&world, EXPIRE_AGAIN), 3, "one of two holds is not the last");
        if restart {
            archive = opened_again(&world, archive).await;
            archive.accept_clock(&admin()).await.unwrap();
        }
        assert_eq!(turn(&world, &archive).await, 3, "restart: {restart}");
        let left = turn(&world, &archive).await;
        assert_eq!((left, count(&world, EXPIRE_AGAIN), count(&world, RETAINED)), (0, 0, 1));
    }
}

/// A version that is held again before the next turn stays, and goes once it is released again.
#[tokio::test]
async fn a_version_that_came_back_is_judged_by_its_newest_state() {
    let world = world();
    let archive = store(&world).await;
    let info = put_for(&archive, "gone", "key", RetentionMode::Compliance, DAY).await;
    let hold = async |on| archive.set_legal_hold(&admin(), "gone", "key", Some(info.version), on).await.unwrap();
    hold(true).await;
    world.stage.pass(2 * DAY);
    assert_eq!(turn(&world, &archive).await, 0);
    for _ in 0..3 {
        hold(false).await;
        hold(true).await;
        assert_eq!(turn(&world, &archive).await, 0);
        assert_eq!(count(&world, EXPIRE_AGAIN), 0, "what stays is forgotten");
    }
    hold(false).await;
    assert_eq!(turn(&world, &archive).await, 1);
}

#[tokio::test]
async fn another_action_of_a_bucket_begins_anew() {
    let world = world();
    let archive = store(&world).await;
    fill(&archive, "kept", 20, DAY).await;
    fill(&archive, "told", 20, DAY).await;
    world.stage.pass(2 * DAY);
    assert_eq!(turn(&world, &archive).await, 0);
    for bucket in ["kept", "told"] {
        let change = BucketChange::Expiry(ExpiryAction::Delete);
        archive.change_bucket(&admin(), bucket, change).await.unwrap();
        assert_eq!(archive.step().await.unwrap().expired, 0, "not before the next turn");
        assert_eq!(turn(&world, &archive).await, 20, "{bucket}");
    }
}

/// A bucket's action changes at each point at which the first page of a pass waits, which has gone
/// by its version.
#[tokio::test]
async fn an_action_that_changes_under_a_page_is_not_missed() {
    for polls in 0.. {
        let (world, gate) = World::gated(9, 24 << 20, 256 << 10);
        let archive = store(&world).await;
        fill(&archive, "kept", 1, DAY).await;
        fill(&archive, "gone", 1, 2 * DAY).await;
        world.stage.pass(3 * DAY);
        gate.close();
        let mut step = Box::pin(archive.step());
        let mut ended = None;
        for _ in 0..polls {
            if let Poll::Ready(report) = futures_util::poll!(&mut step) {
                ended = Some(report.unwrap());
                break;
            }
            gate.step();
        }
        let officer = admin();
        let change = BucketChange::Expiry(ExpiryAction::Delete);
        let mut change = Box::pin(archive.change_bucket(&officer, "kept", change));
        while futures_util::poll!(&mut change).is_pending() {
            assert!(gate.step(), "it waits for the gate");
        }
        gate.open();
        let is_over = ended.is_some();
        let first = match ended {
            Some(report) => report.expired,
            None => step.await.unwrap().expired,
        };
        assert_eq!(first + turn(&world, &archive).await, 2, "after {polls} polls");
        if is_over {
            assert!(polls > 4, "the step waits");
            return;
        }
    }
}

/// Deletions and notices of one page meet the end of a segment. The one that prepares the next
/// segment goes on while the others wait for it.
#[test]
fn a_page_goes_on_where_a_segment_ends() {
    // Room for none, for a few and for most of the certificates.
    for room in [200, 4000, 12_000] {
        let (world, gate) = World::gated(9, 24 << 20, 256 << 10);
        let archive = gate.drive(store(&world), ALL).unwrap();
        for n in 0..40 {
            gate.drive(fill_one(&archive, ["told", "gone"][n % 2], n), ALL).unwrap();
        }
        let store = archive.store();
        while store.appender().tail().is_some_and(|(_, tail)| tail + room < store.segments().size - BLOCK) {
            gate.drive(put(&archive, "kept", "filler", b"a few words"), ALL).unwrap().unwrap();
        }
        let (segment, _) = store.appender().tail().unwrap();
        world.stage.pass(2 * DAY);
        gate.close();
        let report = gate.drive(archive.step(), ALL).unwrap().unwrap();
        assert_eq!((report.expired, report.notified, report.alarms.len()), (20, 20, 0), "{room}: {report:?}");
        assert_ne!(store.appender().tail().unwrap().0, segment, "{room}: the segment ended");
    }
}

/// The refused notice of one version is taken back under the lock for which the next one waits.
#[test]
fn a_refused_notice_does_not_wait_for_the_next_of_its_key() {
    let mut refused = 0;
    for polls in 0.. {
        let (world, gate) = World::gated(9, 24 << 20, 256 << 10);
        let archive = gate.drive(store(&world), ALL).unwrap();
        for _ in 0..3 {
            gate.drive(fill_one(&archive, "told", 0), ALL).unwrap();
        }
        world.stage.pass(2 * DAY);
        gate.close();
        let mut step = Box::pin(archive.step());
        let ended = gate.drive(&mut step, polls);
        let quota = Quota { bytes: Some(1 << 30), ..Quota::default() };
        gate.drive(archive.change_bucket(&admin(), "told", BucketChange::Quota(quota)), ALL).unwrap().unwrap();
        let is_over = ended.is_some();
        let first = ended.unwrap_or_else(|| gate.drive(step, ALL).unwrap()).unwrap();
        world.stage.pass(TURN);
        let second = gate.drive(archive.step(), ALL).unwrap().unwrap();
        assert_eq!((first.notified + second.notified, first.alarms.len()), (3, 0), "after {polls} polls");
        refused += usize::from(second.notified > 0);
        if is_over {
            break;
        }
    }
    assert!(refused > 1, "the change came between two notices {refused} times");
}

/// What can keep a version, or all of them, while a page of expiration is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Keeps {
    Hold,
    Matter,
    Extension,
    Pause,
}

impl Keeps {
    async fn act(self, archive: &Archive, info: &ObjectInfo) -> crate::Result<()> {
        let by = admin();
        match self {
            Keeps::Hold => archive.set_legal_hold(&by, "gone", &info.key, Some(info.version), true).await.map(drop),
            Keeps::Matter => {
                let listed = archive.hold_listed(&by, "smith", vec![name_of(info)], true).await?;
                listed[0].failure.clone().map_or(Ok(()), |failure| Err(ArchiveError::InvalidState(failure)))
            }
            Keeps::Extension => {
                let until = Timestamp(archive.store().later_now().0 + 9 * DAY);
                let longer = Some(Retention { mode: RetentionMode::Compliance, until });
                archive.set_retention(&by, "gone", &info.key, Some(info.version), longer, false).await.map(drop)
            }
            Keeps::Pause => archive.pause_expiration(&by, "an audit").await.map(drop),
        }
    }
}

/// It arrives at each point at which the page waits: between two notes, between note and commit,
/// between two commits. What was answered stands: a version that is kept stays, and during a pause
/// none goes.
#[tokio::test]
async fn what_keeps_a_version_holds_against_a_page_under_way() {
    for keeps in [Keeps::Hold, Keeps::Matter, Keeps::Extension, Keeps::Pause] {
        let (mut kept, mut late) = (0, 0);
        for polls in 0.. {
            let (world, gate) = World::gated(9, 24 << 20, 256 << 10);
            let archive = store(&world).await;
            archive.open_matter(&admin(), "smith", "Smith v. Jones").await.unwrap();
            fill(&archive, "gone", 3, DAY).await;
            let info = put_for(&archive, "gone", "last", RetentionMode::Compliance, DAY).await;
            world.stage.pass(2 * DAY);
            gate.close();
            let mut step = Box::pin(archive.step());
            let mut ended = false;
            for _ in 0..polls {
                ended = ended || futures_util::poll!(&mut step).is_ready();
                gate.step();
                // The budget of the runtime's primitives is for one poll of the test.
                tokio::task::yield_now().await;
            }
            let mut act = Box::pin(keeps.act(&archive, &info));
            let answer = loop {
                if let Poll::Ready(answer) = futures_util::poll!(&mut act) {
                    break answer;
                }
                // It may wait for a version's lock, which the page holds.
                ended = ended || futures_util::poll!(&mut step).is_ready();
                gate.step();
                tokio::task::yield_now().await;
            };
            let before = count(&world, RETAINED);
            gate.open();
            let is_over = ended;
            if !ended {
                assert!(step.await.unwrap().alarms.is_empty());
            }
            turn(&world, &archive).await;
            let all = ListVersionsRequest { bucket: "gone".into(), limit: 9, ..ListVersionsRequest::default() };
            let here = archive.list_versions(&admin(), all).await.unwrap().versions;
            let is_here = here.iter().any(|here| here.version == info.version);
            match (keeps, &answer) {
                (Keeps::Pause, answer) => {
                    assert_eq!(answer, &Ok(()), "after {polls} polls");
                    assert_eq!(count(&world, RETAINED), before, "{keeps:?} after {polls} polls");
                }
                (_, Ok(())) => assert!(is_here, "{keeps:?} after {polls} polls"),
                (_, Err(_)) => assert!(!is_here, "{keeps:?} after {polls} polls: {answer:?}"),
            }
            kept += usize::from(here.len() < 4 && is_here);
            late += usize::from(!is_here);
            if is_over {
                break;
            }
        }
        assert!(late > 1, "{keeps:?}: it came too late {late} times");
        assert!(kept > 0, "{keeps:?}: it came between two versions {kept} times");
    }
}

/// Records that cannot be read, until a rebuild of the catalog or a restore mends them.
#[tokio::test]
async fn versions_that_fail_do_not_stop_those_behind() {
    let world = world();
    let archive = store(&world).await;
    fill(&archive, "kept", 10, DAY).await;
    let change = BucketChange::Expiry(ExpiryAction::Delete);
    archive.change_bucket(&admin(), "kept", change).await.unwrap();
    let rows = world.catalog.snapshot().unwrap().range(VERSIONS, &KeyRange::all(), 100, Direction::Forward).unwrap();
    assert_eq!(rows.len(), 10);
    fill(&archive, "gone", 3, 2 * DAY).await;
    for (key, _) in &rows {
        world.catalog.commit(Transaction::new().put(VERSIONS, key.clone(), b"damaged".to_vec())).wait().unwrap();
    }
    world.stage.pass(3 * DAY);
    let report = archive.step().await.unwrap();
    let told: Vec<&Alarm> = report.alarms.iter().filter(|alarm| alarm.kind == AlarmKind::Expiration).collect();
    assert_eq!((report.expired, told.len(), count(&world, EXPIRE_AGAIN)), (3, 1, 10), "{report:?}");
    assert!(told[0].message.contains("and 9 more"), "{told:?}");
    for (key, value) in rows {
        world.catalog.commit(Transaction::new().put(VERSIONS, key, value)).wait().unwrap();
    }
    let archive = opened_again(&world, archive).await;
    archive.accept_clock(&admin()).await.unwrap();
    assert_eq!(turn(&world, &archive).await, 10);
    turn(&world, &archive).await;
    assert_eq!(count(&world, EXPIRE_AGAIN), 0);
}

/// The pass begins with the first version once a day, whatever it was told.
#[tokio::test]
async fn a_version_that_nothing_brought_back_goes_within_a_day() {
    let world = world();
    let archive = store(&world).await;
    let info = put_for(&archive, "gone", "key", RetentionMode::Compliance, DAY).await;
    archive.set_legal_hold(&admin(), "gone", "key", Some(info.version), true).await.unwrap();
    world.stage.pass(2 * DAY);
    assert_eq!(turn(&world, &archive).await, 0);
    archive.set_legal_hold(&admin(), "gone", "key", Some(info.version), false).await.unwrap();
    let lost = world.catalog.snapshot().unwrap().range(EXPIRE_AGAIN, &KeyRange::all(), 10, Direction::Forward).unwrap();
    for (key, _) in lost {
        world.catalog.commit(Transaction::new().delete(EXPIRE_AGAIN, key)).wait().unwrap();
    }
    assert_eq!(turn(&world, &archive).await, 0);
    world.stage.pass(DAY);
    assert_eq!(turn(&world, &archive).await, 1);
}

/// A place behind the clock's time, as after a crash that took the clock back.
#[tokio::test]
async fn a_place_ahead_of_the_clock_is_not_trusted() {
    let world = world();
    let archive = store(&world).await;
    fill(&archive, "gone", 1, DAY).await;
    let ahead = crate::record::settings::ExpiryRow {
        judged: Some(crate::record::keys::numbers(archive.store().later_now().0 + 30 * DAY, 9).to_vec().into()),
        begun: Timestamp(archive.store().later_now().0 + DAY),
    };
    let put = Transaction::new().put(SETTINGS, EXPIRY, crate::record::encode(&ahead));
    world.catalog.commit(put).wait().unwrap();
    world.stage.pass(DAY + 1000);
    assert_eq!(turn(&world, &archive).await, 1);
}

#[tokio::test]
async fn a_pause_is_told_until_it_ends() {
    let world = world();
    let mut archive = store(&world).await;
    let told = |archive: &Archive| -> Vec<String> {
        let all = archive.standing_alarms().into_iter();
        all.filter(|alarm| alarm.kind == AlarmKind::ExpirationPaused).map(|alarm| alarm.message).collect()
    };
    assert!(told(&archive).is_empty());
    archive.pause_expiration(&admin(), "the tax audit").await.unwrap();
    for _ in 0..2 {
        let message = told(&archive).pop().unwrap();
        assert!(message.contains("paused since 20") && message.ends_with(": the tax audit"), "{message}");
        archive = opened_again(&world, archive).await;
    }
    archive.resume_expiration(&admin()).await.unwrap();
    assert!(told(&archive).is_empty());
}
