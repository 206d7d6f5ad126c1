//! Events that are taken back and told again.

use super::classes::{active, now, put_in, retained, store, terms};
use super::*;
use crate::testing::officer;

/// A lifted retention comes back with the class, once the event is taken back and told again.
#[tokio::test]
async fn an_event_told_again_restores_a_lifted_retention() {
    let world = World::new(13);
    let archive = store(&world).await;
    let governed =
        ClassTerms { mode: RetentionMode::Governance, ..terms(Initiation::Event, Some(3650), 0, ExpiryAction::Keep) };
    active(&archive, "staff", governed).await;
    let record = put_in(&archive, "record", Some("staff")).await.unwrap();
    let name = VersionName { bucket: "records".into(), key: "record".into(), version: Some(record.version) };
    let at = now(&archive).plus_days(5);
    archive.tell_event(&admin(), "records", "record", None, at).await.unwrap();
    archive.set_retention(&admin(), "records", "record", None, None, true).await.unwrap();
    let asked = archive.request_revocation(&officer("anna", 1), &name).await.unwrap();
    archive.approve(&officer("ben", 2), &asked.id).await.unwrap();
    let kept = archive.retention(&admin(), "records", "record", None).await.unwrap();
    assert_eq!(kept, Retention { mode: RetentionMode::Governance, until: Timestamp::LATEST });
    let until = archive.tell_event(&admin(), "records", "record", None, at).await.unwrap();
    assert_eq!(until, at.plus_days(3650));
    let kept = archive.retention(&admin(), "records", "record", None).await.unwrap();
    assert_eq!(kept, Retention { mode: RetentionMode::Governance, until });
    let request = DeleteRequest {
        bucket: "records".into(),
        key: "record".into(),
        version: Some(record.version),
        ..DeleteRequest::default()
    };
    retained(archive.delete(&admin(), request).await);
    super::proofs::verifies(&archive, "records").await;
}

/// A crash came between the revocation and the end of its request: the request takes back no other
/// event.
#[tokio::test]
async fn a_revocation_takes_back_only_the_event_that_it_names() {
    let world = World::new(14);
    let archive = store(&world).await;
    active(&archive, "staff", terms(Initiation::Event, Some(30), 0, ExpiryAction::Keep)).await;
    let record = put_in(&archive, "record", Some("staff")).await.unwrap();
    let name = VersionName { bucket: "records".into(), key: "record".into(), version: Some(record.version) };
    let at = now(&archive).plus_days(5);
    archive.tell_event(&admin(), "records", "record", None, at).await.unwrap();
    let asked = archive.request_revocation(&officer("anna", 1), &name).await.unwrap();
    let catalog = archive.store();
    let catalog = catalog.catalog();
    let open = catalog.snapshot().unwrap().get(crate::record::REQUESTS, asked.id.as_bytes()).unwrap().unwrap();
    archive.approve(&officer("ben", 2), &asked.id).await.unwrap();
    let left = stele_catalog::Transaction::new().put(crate::record::REQUESTS, asked.id.clone(), open);
    catalog.commit(left).await.unwrap();
    world.stage.pass(1);
    archive.tell_event(&admin(), "records", "record", None, at).await.unwrap();
    let again = archive.approve(&officer("ben", 2), &asked.id).await;
    assert!(matches!(again, Err(ArchiveError::InvalidState(_))), "{again:?}");
    let kept = archive.retention(&admin(), "records", "record", None).await.unwrap();
    assert_eq!(kept.until, at.plus_days(30));
}

/// The date that a client reads of a version without an event, and asks for.
#[tokio::test]
async fn a_retention_that_was_asked_for_outlasts_the_event() {
    let world = World::new(15);
    let archive = store(&world).await;
    active(&archive, "staff", terms(Initiation::Event, Some(30), 0, ExpiryAction::Keep)).await;
    for asked in [false, true] {
        let key = format!("asked: {asked}");
        put_in(&archive, &key, Some("staff")).await.unwrap();
        let shown = archive.retention(&admin(), "records", &key, None).await.unwrap();
        if asked {
            archive.set_retention(&admin(), "records", &key, None, Some(shown), false).await.unwrap();
        }
        let at = now(&archive).plus_days(5);
        archive.tell_event(&admin(), "records", &key, None, at).await.unwrap();
        let kept = archive.retention(&admin(), "records", &key, None).await.unwrap();
        assert_eq!(kept.until, if asked { shown.until } else { at.plus_days(30) });
    }
}
