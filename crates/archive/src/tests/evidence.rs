//! The audit log notices every edit and every gap, and says who was refused what.

use bytes::Bytes;
use stele_catalog::{MemoryCatalog, Transaction};

use super::*;
use crate::record::{AUDIT, keys};

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
    let anchor = archive.audit_head().await.unwrap();
    archive.close().await.unwrap();
    drop(archive);
    // The rebuilt catalog has the log only up to its last checkpoint: as good as set back.
    let world = World { catalog: std::sync::Arc::new(MemoryCatalog::new()), ..world };
    let (archive, report) = Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap();
    assert_eq!(report.audit_records, 1024);
    let verdict = archive.audit_verify(&admin(), None).await.unwrap();
    assert!(verdict.findings.is_empty(), "{verdict:?}");
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
