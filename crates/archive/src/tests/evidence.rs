//! The audit log notices every edit and every gap, and says who was refused what.

use bytes::Bytes;
use stele_catalog::{Direction, Head, KeyRange, MemoryCatalog, Transaction};

use super::*;
use crate::record::settings::{AUDIT_HEAD, AUDIT_SEALED};
use crate::record::{AUDIT, CHECKPOINTS, SETTINGS, keys};

async fn busy(world: &World) -> Archive {
    let archive = world.create().await;
    archive.create_bucket(&admin(), "log", NewBucket::default()).await.unwrap();
    for n in 0..1200 {
        put(&archive, "log", &format!("key {n}"), b"data").await.unwrap();
    }
    archive.step().await.unwrap();
    archive
}

#[tokio::test]
async fn any_edit_gap_or_cut_is_found() {
    let world = World::new(1);
    let archive = busy(&world).await;
    let anchor = archive.audit_head().await.unwrap();
    put(&archive, "log", "later", b"data").await.unwrap();
    let verdict = archive.audit_verify(&admin(), Some(anchor.clone())).await.unwrap();
    assert!(verdict.findings.is_empty(), "{verdict:?}");
    assert_eq!(verdict.anchored, Some(anchor.records));
    assert_eq!(verdict.checkpoints, 1);

    let forged = SignedHead { records: 3, ..anchor.clone() };
    let verdict = archive.audit_verify(&admin(), Some(forged)).await.unwrap();
    assert!(verdict.findings.iter().any(|finding| finding.contains("signature")), "{verdict:?}");

    let original = world.catalog.snapshot().unwrap().get(AUDIT, &keys::number(700)).unwrap().unwrap();
    let mut edited = original.to_vec();
    *edited.last_mut().unwrap() ^= 1;
    let last = archive.audit_head().await.unwrap().records;
    let changes: Vec<(&str, Transaction)> = vec![
        ("an edited record", Transaction::new().put(AUDIT, keys::number(700), edited)),
        ("a missing record", Transaction::new().delete(AUDIT, keys::number(700))),
        ("a cut end", Transaction::new().delete(AUDIT, keys::number(last))),
        ("an added record", Transaction::new().put(AUDIT, keys::number(last + 1), original.clone())),
    ];
    for (what, change) in changes {
        let before: Vec<(Bytes, Option<Bytes>)> = [700, last, last + 1]
            .map(|number| {
                let key = keys::number(number);
                let value = world.catalog.snapshot().unwrap().get(AUDIT, &key).unwrap();
                (key, value)
            })
            .into();
        world.catalog.commit(change).await.unwrap();
        let verdict = archive.audit_verify(&admin(), None).await.unwrap();
        assert!(!verdict.findings.is_empty(), "{what}");
        let back = before.into_iter().fold(Transaction::new(), |transaction, (key, value)| match value {
            Some(value) => transaction.put(AUDIT, key, value),
            None => transaction.delete(AUDIT, key),
        });
        world.catalog.commit(back).await.unwrap();
    }
    assert!(archive.audit_verify(&admin(), None).await.unwrap().findings.is_empty());
}

#[tokio::test]
async fn a_store_set_back_as_a_whole_is_found_by_the_anchor() {
    let world = World::new(2);
    let archive = busy(&world).await;
    while archive.step().await.unwrap().more {}
    let anchor = archive.audit_head_to_send().await.unwrap();
    drop(archive);
    // Where the store was not closed in order, the rebuilt catalog has the log only up to its last
    // checkpoint: as good as set back.
    let world = World { catalog: std::sync::Arc::new(MemoryCatalog::new()), ..world };
    let (archive, report) = Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap();
    assert_eq!(report.audit_records, 1024);
    let verdict = archive.audit_verify(&admin(), None).await.unwrap();
    assert!(verdict.findings.len() == 1 && verdict.findings[0].starts_with("records 1025 to "), "{verdict:?}");
    let verdict = archive.audit_verify(&admin(), Some(anchor)).await.unwrap();
    assert!(!verdict.findings.is_empty() && verdict.anchored.is_none(), "{verdict:?}");
}

#[tokio::test]
async fn refusals_are_recorded_with_their_actor() {
    let world = World::new(3);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "mine", NewBucket::default()).await.unwrap();
    put(&archive, "mine", "in/a", b"data").await.unwrap();
    let key = archive.create_access_key(&admin(), "reader", Rights::user("mine", "in/")).await.unwrap();
    let caller = archive.credentials(&key.id).await.unwrap().caller.from("10.0.0.9");
    let read = |key: &str| GetRequest { bucket: "mine".into(), key: key.into(), ..GetRequest::default() };
    assert!(archive.get(&caller, read("in/a")).await.is_ok());
    assert!(matches!(archive.get(&caller, read("out")).await, Err(ArchiveError::Denied(_))));
    assert!(matches!(archive.get(&Caller::anonymous(), read("in/a")).await, Err(ArchiveError::Denied(_))));
    let denied = archive.create_bucket(&caller, "other", NewBucket::default()).await;
    assert!(matches!(denied, Err(ArchiveError::Denied(_))));
    let records = archive.audit_records(&admin(), 1, 100).await.unwrap();
    let refused: Vec<_> = records.iter().filter(|record| record.refused.is_some()).collect();
    assert_eq!(refused.len(), 3);
    assert_eq!(refused[0].actor, format!("key {}", key.id));
    assert_eq!(refused[0].origin.as_deref(), Some("10.0.0.9"));
    assert_eq!(refused[1].actor, "anonymous");
    assert!(matches!(archive.audit_records(&caller, 1, 1).await, Err(ArchiveError::Denied(_))));
    archive.revoke_access_key(&admin(), &key.id).await.unwrap();
    assert!(matches!(archive.credentials(&key.id).await, Err(ArchiveError::NoSuchAccessKey(_))));
    let open = BucketChange::Anonymous(AnonymousAccess::Read);
    archive.change_bucket(&admin(), "mine", open).await.unwrap();
    assert!(archive.get(&Caller::anonymous(), read("in/a")).await.is_ok());
}

/// Changes a record, chains everything behind it anew and makes the head say so, as a program that
/// can write the catalog could.
async fn forge(world: &World, number: u64) {
    let snapshot = world.catalog.snapshot().unwrap();
    let mut head = Head::default();
    let mut change = Transaction::new();
    for (key, value) in snapshot.range(AUDIT, &KeyRange::all(), 100_000, Direction::Forward).unwrap() {
        head.count += 1;
        let mut value = value.to_vec();
        if head.count == number {
            let mut row: crate::record::audit::AuditRow = crate::record::decode(AUDIT, &key, &value).unwrap();
            row.detail = Some("nothing happened here".into());
            value = crate::record::encode(&row).to_vec();
            change = change.put(AUDIT, key, value.clone());
        }
        head.link = stele_catalog::link(&head.link, head.count, &value);
    }
    world.catalog.commit(change.put(SETTINGS, AUDIT_HEAD, head.encode())).await.unwrap();
}

async fn without_checkpoints(world: &World) {
    let snapshot = world.catalog.snapshot().unwrap();
    let rows = snapshot.range(CHECKPOINTS, &KeyRange::all(), 100, Direction::Forward).unwrap();
    assert!(!rows.is_empty());
    let change = rows.into_iter().fold(Transaction::new(), |change, (key, _)| change.delete(CHECKPOINTS, key));
    world.catalog.commit(change).await.unwrap();
}

#[tokio::test]
async fn a_log_changed_and_chained_again_is_found_and_not_signed() {
    let last =
        |world: &World| Head::decode(world.catalog.snapshot().unwrap().get(SETTINGS, AUDIT_HEAD).unwrap().as_deref());
    // (what, the record that is changed; none: the last, take checkpoints away, take the signed end
    // away)
    let cases = [
        ("under a checkpoint", Some(700), false, false),
        ("and the checkpoints are gone", Some(700), true, false),
        ("and the signed end too", Some(700), true, true),
        ("behind the checkpoints", None, false, false),
        ("only the checkpoints are gone", Some(0), true, false),
        ("only the signed end is gone", Some(0), false, true),
    ];
    for (what, number, checkpoints, sealed) in cases {
        for reopened in [false, true] {
            let world = World::new(4);
            let mut archive = busy(&world).await;
            assert!(archive.audit_verify(&admin(), None).await.unwrap().findings.is_empty());
            match reopened {
                true => archive.close().await.unwrap(),
                false => drop(archive.step().await.unwrap()),
            }
            let number = match number {
                Some(number) => number,
                None => last(&world).unwrap().count,
            };
            forge(&world, number).await;
            if checkpoints {
                without_checkpoints(&world).await;
            }
            if sealed {
                let change = Transaction::new().delete(SETTINGS, AUDIT_SEALED);
                world.catalog.commit(change).await.unwrap();
            }
            let before = world.catalog.snapshot().unwrap().range(CHECKPOINTS, &KeyRange::all(), 9, Direction::Forward);
            if reopened {
                drop(archive);
                // The data volume knows how the log ended: what is below is not even opened for
                // writing.
                match Archive::open(world.foundation(), world.options.clone()).await {
                    Ok(opened) => archive = opened,
                    Err(ArchiveError::Unpaired(_)) if number > 0 => {
                        let options = crate::Options { read_only: true, ..world.options.clone() };
                        let archive = Archive::open(world.foundation(), options).await.unwrap();
                        assert!(archive.standing_alarms().iter().any(|alarm| alarm.kind() == "pairing"), "{what}");
                        assert!(!archive.audit_verify(&admin(), None).await.unwrap().findings.is_empty(), "{what}");
                        continue;
                    }
                    Err(error) => panic!("{what}: {error}"),
                }
            }
            for n in 0..1100 {
                put(&archive, "log", &format!("more {n}"), b"data").await.unwrap();
            }
            let report = archive.step().await.unwrap();
            assert!(report.alarms.iter().any(|alarm| alarm.kind == AlarmKind::Audit), "{what}: {report:?}");
            assert!(archive.standing_alarms().iter().any(|alarm| alarm.kind() == "audit"), "{what}");
            let after = world.catalog.snapshot().unwrap().range(CHECKPOINTS, &KeyRange::all(), 9, Direction::Forward);
            assert_eq!(before.unwrap(), after.unwrap(), "{what}: nothing was signed");
            let verdict = archive.audit_verify(&admin(), None).await.unwrap();
            assert!(!verdict.findings.is_empty(), "{what}");
            assert!(archive.audit_head().await.is_err(), "{what}: no head is signed");
        }
    }
}

#[tokio::test]
async fn a_log_set_back_under_an_open_store_is_not_signed_again() {
    let world = World::new(5);
    let archive = busy(&world).await;
    let old = world.catalog.snapshot().unwrap().get(SETTINGS, AUDIT_SEALED).unwrap().unwrap();
    put(&archive, "log", "later", b"data").await.unwrap();
    archive.step().await.unwrap();
    world.catalog.commit(Transaction::new().put(SETTINGS, AUDIT_SEALED, old)).await.unwrap();
    let last = archive.audit_head().await.unwrap().records;
    forge(&world, last).await;
    let report = archive.step().await.unwrap();
    assert!(report.alarms.iter().any(|alarm| alarm.kind == AlarmKind::Audit), "{report:?}");
}

#[tokio::test]
async fn heads_signed_now_and_then_each_anchor_the_log_up_to_them() {
    let world = World::new(6);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "log", NewBucket::default()).await.unwrap();
    let mut heads = vec![archive.audit_head().await.unwrap()];
    for round in 0..6 {
        for n in 0..400 {
            put(&archive, "log", &format!("{round} {n}"), b"data").await.unwrap();
        }
        // Before and after the step that writes checkpoints: a head is right at either moment.
        heads.push(archive.audit_head().await.unwrap());
        archive.step().await.unwrap();
        heads.push(archive.audit_head().await.unwrap());
        assert_eq!(
            archive.audit_head().await.unwrap().records,
            heads.last().unwrap().records,
            "signing adds no record"
        );
    }
    for head in heads {
        let verdict = archive.audit_verify(&admin(), Some(head.clone())).await.unwrap();
        assert!(verdict.findings.is_empty() && verdict.anchored == Some(head.records), "{head:?}: {verdict:?}");
    }
}

#[tokio::test]
async fn strangers_cannot_fill_the_log() {
    let world = World::new(7);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "mine", NewBucket::default()).await.unwrap();
    let read = || GetRequest { bucket: "mine".into(), key: "key".into(), ..GetRequest::default() };
    let refused = |records: &[AuditRecord]| records.iter().filter(|record| record.actor == "anonymous").count();
    for _ in 0..5000 {
        assert!(matches!(archive.get(&Caller::anonymous(), read()).await, Err(ArchiveError::Denied(_))));
    }
    let records = archive.audit_records(&admin(), 1, 10_000).await.unwrap();
    assert_eq!(refused(&records), 100);
    world.stage.pass(60_000);
    archive.get(&Caller::anonymous(), read()).await.err().unwrap();
    let records = archive.audit_records(&admin(), 1, 10_000).await.unwrap();
    let detail = records.last().unwrap().detail.clone().unwrap_or_default();
    assert!(detail.contains("4900 refusals before this were left out"), "{detail}");
    // Those who are known have a larger budget, each its own.
    let known = archive.create_access_key(&admin(), "known", Rights::user("other", "")).await.unwrap();
    let caller = archive.credentials(&known.id).await.unwrap().caller;
    for _ in 0..300 {
        archive.get(&caller, read()).await.err().unwrap();
    }
    let records = archive.audit_records(&admin(), 1, 10_000).await.unwrap();
    assert_eq!(records.iter().filter(|record| record.actor.starts_with("key ")).count(), 300);
    let made = records.iter().find(|record| record.action == "CreateAccessKey").unwrap().detail.clone().unwrap();
    assert!(made.ends_with("(known): roles user; may read, write, delete, list in `other/`"), "{made}");
}

#[tokio::test]
async fn a_clock_moved_while_closed_alarms_until_it_is_accepted() {
    let day = 86_400_000;
    for ahead in [true, false] {
        let world = World::new(8);
        let archive = world.create().await;
        assert_eq!(archive.standing_alarms(), []);
        archive.close().await.unwrap();
        drop(archive);
        let wall = world.stage.now().wall.0;
        world.stage.set_wall(Timestamp(if ahead { wall + 9 * day } else { wall - day }));
        let archive = world.open().await;
        let first = archive.step().await.unwrap();
        assert!(first.alarms.iter().any(|alarm| alarm.kind() == "clock"), "{first:?}");
        assert!(archive.step().await.unwrap().alarms.is_empty(), "reported once");
        let standing = archive.standing_alarms();
        assert!(standing.iter().any(|alarm| alarm.kind == AlarmKind::Clock), "{standing:?}");
        // Moved again while frozen and closed: an alarm of its own.
        archive.close().await.unwrap();
        drop(archive);
        world.stage.set_wall(Timestamp(world.stage.now().wall.0 - day));
        let archive = world.open().await;
        let again = archive.step().await.unwrap();
        assert!(again.alarms.iter().any(|alarm| alarm.message.contains("went back")), "{again:?}");
        archive.accept_clock(&admin()).await.unwrap();
        assert_eq!(archive.standing_alarms(), []);
    }
}
