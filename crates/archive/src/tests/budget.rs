//! What refusals may take of the audit log, and what a revoked key may still do.

use std::sync::{Arc, Mutex};

use stele_catalog::{Catalog, CatalogError, Pending, Receipt, Reserve, Snapshot, Transaction};

use super::*;
use crate::testing::put_as;

async fn known(archive: &Archive, name: &str, rights: Rights) -> Caller {
    let key = archive.create_access_key(&admin(), name, rights).await.unwrap();
    archive.credentials(&key.id).await.unwrap().caller
}

async fn records(archive: &Archive) -> Vec<AuditRecord> {
    archive.audit_records(&admin(), 1, 100_000).await.unwrap()
}

fn refused(records: &[AuditRecord], caller: &Caller) -> usize {
    let actor = caller.actor.to_string();
    records.iter().filter(|record| record.actor == actor && record.refused.is_some()).count()
}

#[tokio::test]
async fn a_known_key_has_a_budget_of_refusals_and_the_rest_is_counted() {
    let world = World::new(1);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "mine", NewBucket::default()).await.unwrap();
    let (loud, quiet) = (
        known(&archive, "loud", Rights::user("other", "")).await,
        known(&archive, "quiet", Rights::user("other", "")).await,
    );
    let key = "k".repeat(1000);
    for n in 0..5000 {
        let delete = DeleteRequest { bucket: "mine".into(), key: format!("{key}{n}"), ..DeleteRequest::default() };
        assert!(matches!(archive.delete(&loud, delete).await, Err(ArchiveError::Denied(_))));
    }
    let delete = || DeleteRequest { bucket: "mine".into(), key: "k".into(), ..DeleteRequest::default() };
    archive.delete(&quiet, delete()).await.unwrap_err();
    let log = records(&archive).await;
    assert_eq!((refused(&log, &loud), refused(&log, &quiet)), (1000, 1), "a budget each");
    let alarms = archive.standing_alarms();
    let counted = alarms.iter().find(|alarm| alarm.kind == AlarmKind::Refusals).unwrap();
    // They are counted too where the catalog has stopped.
    assert!(counted.message.ends_with("they are too many, or it takes no record now"), "{}", counted.message);
    // Background work says what was left out, once.
    world.stage.pass(300_000);
    archive.step().await.unwrap();
    archive.step().await.unwrap();
    let log = records(&archive).await;
    let summaries: Vec<_> = log.iter().filter(|record| record.action == "Summary").collect();
    assert_eq!(summaries.len(), 1, "{summaries:?}");
    let detail = summaries[0].detail.clone().unwrap();
    assert!(detail.starts_with(&format!("4000 refusals of {} from ", loud.actor)), "{detail}");
    // So does the close.
    for _ in 0..100 {
        archive.delete(&loud, delete()).await.unwrap_err();
    }
    archive.close().await.unwrap();
    drop(archive);
    let archive = world.open().await;
    let log = records(&archive).await;
    assert_eq!(log.iter().filter(|record| record.action == "Summary").count(), 2);
    world.stage.pass(3_700_000);
    assert_eq!(archive.standing_alarms(), []);
}

#[tokio::test]
async fn a_log_that_was_set_back_takes_no_refusals() {
    let world = World::new(2);
    let archive = world.create().await;
    let refuse = async || {
        archive.audit_refusal(&Caller::anonymous(), "GET", "/bucket/key", "wrong signature").await.unwrap();
        records(&archive).await.len()
    };
    let (before, after) = (records(&archive).await.len(), refuse().await);
    assert_eq!(after, before + 1);
    archive.keep_refusals_out();
    assert_eq!(refuse().await, after);
}

#[tokio::test]
async fn what_callers_send_is_cut_in_the_log() {
    let world = World::new(2);
    let archive = world.create().await;
    let long = "x".repeat(31_000);
    archive.audit_refusal(&Caller::anonymous(), "GET", &long, &long).await.unwrap();
    archive
        .get(&admin(), GetRequest { bucket: long.clone(), key: "k".into(), ..GetRequest::default() })
        .await
        .err()
        .unwrap();
    archive.delete_bucket(&known(&archive, "less", Rights::user("other", "")).await, &long).await.unwrap_err();
    let log = records(&archive).await;
    assert!(
        log.iter().any(|record| record.detail.as_ref().is_some_and(|detail| detail.ends_with("... (31004 bytes)")))
    );
    for record in log {
        let length = serde_json::to_string(&record).unwrap().len();
        assert!(length < 10_000, "record {} has {length} bytes", record.number);
    }
    // What a new key may do is never cut: its record would hide it.
    let grants = (0..200).map(|n| Rights::user(&format!("bucket-number-{n}"), "").grants.remove(0)).collect();
    let many = Rights { grants, ..Rights::default() };
    let refused = archive.create_access_key(&admin(), "many", many).await;
    assert!(matches!(refused, Err(ArchiveError::InvalidArgument(_))));
    let refused = archive.create_access_key(&admin(), &long, Rights::officer()).await;
    assert!(matches!(refused, Err(ArchiveError::InvalidArgument(_))));
}

#[tokio::test]
async fn nothing_of_a_revoked_key_is_done_after_its_revocation() {
    let world = World::new(3);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "mine", NewBucket::default()).await.unwrap();
    let key = archive.create_access_key(&admin(), "user", Rights::user("mine", "")).await.unwrap();
    let user = archive.credentials(&key.id).await.unwrap().caller;
    let request = |key: &str| PutRequest { bucket: "mine".into(), key: key.into(), ..PutRequest::default() };
    put_as(&archive, &user, request("before"), b"before").await.unwrap();
    let mut writer = archive.put(&user, request("under way")).await.unwrap();
    writer.write(bytes::Bytes::from_static(b"the body")).await.unwrap();
    archive.revoke_access_key(&admin(), &key.id).await.unwrap();
    let finished = writer.finish(Expected::default()).await;
    assert!(matches!(finished, Err(ArchiveError::Denied(_))), "{finished:?}");
    assert!(get(&archive, "mine", "under way").await.is_err());
    let delete = DeleteRequest { bucket: "mine".into(), key: "before".into(), ..DeleteRequest::default() };
    let deleted = archive.delete(&user, delete).await;
    assert!(matches!(deleted, Err(ArchiveError::Denied(_))), "{deleted:?}");
    assert_eq!(get(&archive, "mine", "before").await.unwrap(), b"before");
    assert_eq!(refused(&records(&archive).await, &user), 2, "both are recorded");
}

/// A catalog that tells how much of its reserve a transaction might have used.
struct Watched(Arc<dyn Catalog>, Mutex<Reserve>);

impl Catalog for Watched {
    fn commit(&self, transaction: Transaction) -> Pending<Receipt> {
        *self.1.lock().unwrap() = transaction.reserve;
        self.0.commit(transaction)
    }
    fn order(&self) -> Option<stele_media::Order> {
        self.0.order()
    }
    fn snapshot(&self) -> std::result::Result<Box<dyn Snapshot>, CatalogError> {
        self.0.snapshot()
    }
}

#[tokio::test]
async fn users_leave_half_of_the_reserve_to_those_who_stop_them() {
    let world = World::new(4);
    let catalog = Arc::new(Watched(Arc::clone(&world.catalog) as Arc<dyn Catalog>, Mutex::new(Reserve::None)));
    let foundation = crate::Foundation { catalog: Arc::clone(&catalog) as Arc<dyn Catalog>, ..world.foundation() };
    let archive = Archive::create(foundation, world.options.clone()).await.unwrap();
    let used = || std::mem::take(&mut *catalog.1.lock().unwrap());
    let new = NewBucket { object_lock: true, versioning: true, ..NewBucket::default() };
    archive.create_bucket(&admin(), "mine", new).await.unwrap();
    let access = [Access::Read, Access::Write, Access::Delete, Access::Retain].into();
    let grants = vec![Grant { bucket: None, prefix: String::new(), access }];
    let user = known(&archive, "user", Rights { roles: [Role::User].into(), grants, ..Rights::default() }).await;
    let request = PutRequest { bucket: "mine".into(), key: "k".into(), ..PutRequest::default() };
    let info = put_as(&archive, &user, request, b"record").await.unwrap();
    // As often as it likes, also where the catalog is full.
    archive.set_legal_hold(&user, "mine", "k", Some(info.version), true).await.unwrap();
    assert_eq!(used(), Reserve::Half);
    archive.set_legal_hold(&admin(), "mine", "k", Some(info.version), false).await.unwrap();
    assert_eq!(used(), Reserve::All);
    let key = user.actor.to_string();
    let id = archive.list_access_keys(&admin()).await.unwrap().remove(0).id;
    assert!(key.contains(&id), "{key} {id}");
    archive.revoke_access_key(&admin(), &id).await.unwrap();
    assert_eq!(used(), Reserve::All);
}
