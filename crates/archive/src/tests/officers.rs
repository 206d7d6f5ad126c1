//! What a retention officer began ends with the officer's key, its rights and its time.

use std::future::Future;
use std::sync::Arc;

use stele_catalog::{Direction, KeyRange, MemoryCatalog};

use super::*;
use crate::model::time::DAY;
use crate::record::version::VersionRow;
use crate::record::{MATTER_HOLDS, REQUESTS, VERSIONS as VERSION_TABLE, decode};
use crate::testing::{Gate, MIB, officer};
use crate::{Act, People};

const VERSIONS: usize = 60;
const ALL: usize = 1_000_000;

async fn store(world: &World) -> Archive {
    let archive = world.create().await;
    archive.create_bucket(&admin(), "records", NewBucket::default()).await.unwrap();
    archive.open_matter(&admin(), "smith", "Smith v. Jones").await.unwrap();
    for n in 0..VERSIONS {
        put(&archive, "records", &format!("record {n}"), b"record").await.unwrap();
    }
    archive.hold_selected(&admin(), "smith", everything(), true).await.unwrap();
    while archive.step().await.unwrap().more {}
    assert_eq!(held(world), VERSIONS);
    archive
}

fn everything() -> Selection {
    Selection { bucket: "records".into(), ..Selection::default() }
}

fn held(world: &World) -> usize {
    let snapshot = world.catalog.snapshot().unwrap();
    snapshot.range(MATTER_HOLDS, &KeyRange::all(), 10_000, Direction::Forward).unwrap().len()
}

/// A new officer's key, and its caller.
async fn anna(archive: &Archive) -> (String, Caller) {
    let life = KeyLife::For(DAY);
    let id = archive.create_expiring_access_key(&admin(), "anna", Rights::officer(), life).await.unwrap().id;
    let caller = archive.officer_credentials(&id).await.unwrap().caller.at(1);
    (id, caller)
}

/// What ends an officer.
#[derive(Clone, Copy, Debug)]
enum End {
    Revoked,
    Narrowed,
    Expired,
}

async fn end(world: &World, archive: &Archive, id: &str, end: End) {
    match end {
        End::Revoked => archive.revoke_access_key(&admin(), id).await.unwrap(),
        End::Narrowed => drop(archive.narrow_access_key(&admin(), id, Rights::default()).await.unwrap()),
        End::Expired => world.stage.pass(2 * DAY),
    }
}

#[tokio::test]
async fn a_release_ends_with_the_officer_who_asked() {
    for how in [End::Revoked, End::Narrowed, End::Expired] {
        let world = World::new(1);
        let archive = store(&world).await;
        let (id, caller) = anna(&archive).await;
        archive.hold_selected(&caller, "smith", everything(), false).await.unwrap();
        end(&world, &archive, &id, how).await;
        while archive.step().await.unwrap().more {}
        assert_eq!(held(&world), VERSIONS, "{how:?}");
        let job = archive.matter(&admin(), "smith").await.unwrap().job.unwrap();
        assert!(job.ended.is_some() && job.failure.is_some(), "{how:?}: {job:?}");
    }
}

#[tokio::test]
async fn a_release_does_not_begin_anew_after_a_rebuild() {
    for how in [End::Revoked, End::Narrowed, End::Expired] {
        let world = World::new(2);
        let archive = store(&world).await;
        let (id, caller) = anna(&archive).await;
        archive.hold_selected(&caller, "smith", everything(), false).await.unwrap();
        end(&world, &archive, &id, how).await;
        archive.close().await.unwrap();
        drop(archive);
        let world = World { catalog: Arc::new(MemoryCatalog::new()), ..world };
        let (archive, _) = Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap();
        while archive.step().await.unwrap().more {}
        assert_eq!(held(&world), VERSIONS, "{how:?}");
        assert!(archive.credentials(&id).await.is_err() || matches!(how, End::Narrowed));
    }
}

/// The page of a release, or a list, is under way while the officer's key ends: no release commits
/// behind that.
#[test]
fn no_release_commits_behind_the_end_of_the_officer() {
    for (how, action) in [(End::Revoked, "RevokeAccessKey"), (End::Narrowed, "NarrowAccessKey")] {
        for listed in [false, true] {
            let (world, gate): (World, Gate) = World::gated(7, 64 * MIB, MIB);
            gate.close();
            let archive = gate.drive(store(&world), ALL).unwrap();
            let (id, caller) = gate.drive(anna(&archive), ALL).unwrap();
            let releases = async {
                if listed {
                    let name = |n| VersionName { bucket: "records".into(), key: format!("record {n}"), version: None };
                    drop(archive.hold_listed(&caller, "smith", (0..VERSIONS).map(name).collect(), false).await);
                } else {
                    archive.hold_selected(&caller, "smith", everything(), false).await.unwrap();
                    while archive.step().await.unwrap().more {}
                }
            };
            let ends = async {
                while held(&world) == VERSIONS {
                    tokio::task::yield_now().await;
                }
                end(&world, &archive, &id, how).await;
            };
            gate.drive(async { tokio::join!(releases, ends) }, ALL).unwrap();
            let log = gate.drive(archive.audit_records(&admin(), 1, 10_000), ALL).unwrap().unwrap();
            let at = log.iter().position(|record| record.action == action).unwrap();
            let released = |record: &&AuditRecord| {
                record.action == "Matter"
                    && record.version.is_some()
                    && record.refused.is_none()
                    && record.detail.as_ref().is_some_and(|detail| detail.contains("`smith` off"))
            };
            assert!(log[..at].iter().filter(released).count() > 0, "some were released before");
            assert_eq!(log[at..].iter().filter(released).count(), 0, "{how:?}, listed: {listed}");
            assert!(held(&world) > 0);
        }
    }
}

/// A page of events is under way while the officer's key ends: none is told behind that.
#[test]
fn no_event_is_told_behind_the_end_of_the_officer() {
    const EVENTS: usize = 150;
    for (how, action) in [(End::Revoked, "RevokeAccessKey"), (End::Narrowed, "NarrowAccessKey")] {
        let (world, gate): (World, Gate) = World::gated(8, 64 * MIB, MIB);
        gate.close();
        let archive = gate.drive(super::classes::store(&world), ALL).unwrap();
        let terms = super::classes::terms(Initiation::Event, Some(10), 0, ExpiryAction::Keep);
        gate.drive(super::classes::active(&archive, "staff", terms), ALL).unwrap();
        for n in 0..EVENTS {
            let key = format!("record {n}");
            gate.drive(super::classes::put_in(&archive, &key, Some("staff")), ALL).unwrap().unwrap();
        }
        let waiting = || {
            let snapshot = world.catalog.snapshot().unwrap();
            let rows = snapshot.range(VERSION_TABLE, &KeyRange::all(), 10_000, Direction::Forward).unwrap();
            let rows = rows.iter().map(|(key, row)| decode::<VersionRow>(VERSION_TABLE, key, row).unwrap());
            rows.filter(VersionRow::awaits_event).count()
        };
        let (id, caller) = gate.drive(anna(&archive), ALL).unwrap();
        let (selection, at) = (everything(), archive.store().later_now());
        let told = archive.tell_events(&caller, &selection, at, false, None);
        let ends = async {
            while waiting() == EVENTS {
                tokio::task::yield_now().await;
            }
            end(&world, &archive, &id, how).await;
        };
        drop(gate.drive(async { tokio::join!(told, ends) }, ALL).unwrap());
        let log = gate.drive(archive.audit_records(&admin(), 1, 10_000), ALL).unwrap().unwrap();
        let end = log.iter().position(|record| record.action == action).unwrap();
        let is_event = |record: &&AuditRecord| {
            record.action == "SetRetention"
                && record.refused.is_none()
                && record.detail.as_ref().is_some_and(|detail| detail.contains("from the event"))
        };
        assert!(log[..end].iter().filter(is_event).count() > 0, "some were told before");
        assert_eq!(log[end..].iter().filter(is_event).count(), 0, "{how:?}");
        assert!(waiting() > 0);
    }
}

/// An approval that was not used yet is void once either officer is one no more.
#[tokio::test]
async fn an_approved_export_ends_with_either_officer() {
    for author in [true, false] {
        for how in [End::Revoked, End::Narrowed, End::Expired] {
            let world = World::new(4);
            let archive = store(&world).await;
            let ask = archive.request_restriction(&officer("a", 1), Act::KeyExport, People::Two).await.unwrap();
            archive.approve(&officer("b", 2), &ask.id).await.unwrap();
            let (anna, ben) = (anna(&archive).await, anna(&archive).await);
            let (ends, stays) = if author { (&anna, &ben) } else { (&ben, &anna) };
            if matches!(how, End::Expired) {
                let now = archive.store().key_now();

                let hour = KeyLife::Until(Timestamp(now.0 + DAY / 24));
                archive.set_key_life(&admin(), &ends.0, hour).await.unwrap();
            }
            let asked = archive.request_export(&anna.1).await.unwrap();
            archive.approve(&ben.1.clone().at(2), &asked.id).await.unwrap();
            match how {
                End::Expired => world.stage.pass(DAY / 12),
                how => end(&world, &archive, &ends.0, how).await,
            }
            archive.credentials(&stays.0).await.unwrap();
            let exported = archive.export_master_key(&admin()).await;
            assert!(matches!(exported, Err(ArchiveError::Denied(_))), "{how:?}, author {author}");
        }
    }
}

#[tokio::test]
async fn the_list_of_requests_says_which_are_void() {
    for how in [End::Revoked, End::Narrowed] {
        let world = World::new(6);
        let archive = store(&world).await;
        let (anna, (_, ben)) = (anna(&archive).await, anna(&archive).await);
        let ben = ben.at(2);
        let first = archive.request_restriction(&anna.1, Act::KeyExport, People::Two).await.unwrap();
        archive.request_restriction(&ben, Act::Bypass, People::Two).await.unwrap();
        end(&world, &archive, &anna.0, how).await;
        let listed = archive.requests(&admin()).await.unwrap();
        let void = listed.iter().filter(|request| request.says.starts_with("void, "));
        let void: Vec<_> = void.map(|request| request.id.clone()).collect();
        assert_eq!((listed.len(), &void), (2, &vec![first.id.clone()]), "{how:?}");
        assert!(archive.approve(&ben, &first.id).await.is_err());
        archive.refuse_request(&ben, &first.id).await.unwrap();
        assert_eq!(archive.requests(&admin()).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn an_approved_export_of_two_valid_officers_takes_place() {
    let world = World::new(5);
    let archive = store(&world).await;
    let ask = archive.request_restriction(&officer("a", 1), Act::KeyExport, People::Two).await.unwrap();
    archive.approve(&officer("b", 2), &ask.id).await.unwrap();
    let (anna, ben) = (anna(&archive).await, anna(&archive).await);
    let asked = archive.request_export(&anna.1).await.unwrap();
    archive.approve(&ben.1.at(2), &asked.id).await.unwrap();
    archive.export_master_key(&admin()).await.unwrap();
}

/// A local administrator and an officer that the store has no row of go on.
#[tokio::test]
async fn a_release_of_a_valid_officer_goes_on() {
    for caller in [admin(), officer("ben", 2)] {
        let world = World::new(3);
        let archive = store(&world).await;
        archive.hold_selected(&caller, "smith", everything(), false).await.unwrap();
        while archive.step().await.unwrap().more {}
        assert_eq!(held(&world), 0);
    }
}

/// An administrator needs no officer to make keys that wait to become officers' ones.
#[tokio::test]
async fn pending_officers_leave_room_for_requests_of_officers() {
    let world = World::new(41);
    let archive = world.create().await;
    for _ in 0..2 {
        let made = archive.create_access_key(&admin(), "first", Rights::officer()).await.unwrap();
        assert!(archive.credentials(&made.id).await.is_ok(), "the first two need no approval");
    }
    let mut pending = 0;
    while archive.create_access_key(&admin(), "pending", Rights::officer()).await.is_ok() {
        pending += 1;
        assert!(pending < 100);
    }
    assert!(pending >= 10, "{pending}");
    for _ in 0..10 {
        archive.request_restriction(&officer("anna", 1), Act::Bypass, People::Two).await.unwrap();
    }
}

/// The approval is under way while the approving officer's key is narrowed.
#[test]
fn no_approval_commits_behind_the_end_of_the_approver() {
    let (mut polls, mut overtaken) = (0, 0);
    loop {
        let (world, gate): (World, Gate) = World::gated(9, 64 * MIB, MIB);
        gate.close();
        let archive = gate.drive(world.create(), ALL).unwrap();
        let made = async {
            let ben = archive.create_access_key(&admin(), "ben", Rights::officer()).await.unwrap().id;
            let caller = archive.officer_credentials(&ben).await.unwrap().caller.at(2);
            let asked = archive.request_restriction(&officer("anna", 1), Act::Bypass, People::Two).await.unwrap();
            (ben, caller, asked.id)
        };
        let (ben, caller, request) = gate.drive(made, ALL).unwrap();
        let mut approval = Box::pin(archive.approve(&caller, &request));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let mut ended = false;
        for _ in 0..polls {
            match approval.as_mut().poll(&mut context) {
                std::task::Poll::Ready(_) => {
                    ended = true;
                    break;
                }
                std::task::Poll::Pending => drop(gate.step()),
            }
        }
        if ended {
            break;
        }
        drop(gate.drive(archive.narrow_access_key(&admin(), &ben, Rights::default()), ALL).unwrap().unwrap());
        let waits = || world.catalog.snapshot().unwrap().get(REQUESTS, request.as_bytes()).unwrap().is_some();
        if waits() {
            overtaken += 1;
            let approved = gate.drive(approval, ALL).unwrap();
            assert!(approved.is_err() && waits(), "after {polls} polls: {approved:?}");
        }
        polls += 1;
    }
    assert!(overtaken > 1, "the approval was overtaken behind its judgement");
}
