//! The self-test finds that everything forbidden is refused, and says so where it is not.

use super::*;
use crate::model::bucket::CANARY_KEY;
use crate::testing::put_as;

const DAY: u64 = 86_400_000;

#[tokio::test]
async fn every_forbidden_operation_is_refused_and_the_result_is_recorded() {
    let world = World::new(1);
    let archive = world.create().await;
    let new = NewBucket { object_lock: true, ..NewBucket::default() };
    archive.create_bucket(&admin(), "locked", new).await.unwrap();
    archive.create_bucket(&admin(), "plain", NewBucket::default()).await.unwrap();
    let results = archive.self_test(&admin(), None, None).await.unwrap();
    let [result] = results.as_slice() else { panic!("only the locked bucket: {results:?}") };
    assert!(result.passed(), "{result:?}");
    assert_eq!(result.attempts.len(), 11);
    let canary = result.canary.clone().unwrap();
    let record = archive.audit_records(&admin(), result.record.unwrap(), 1).await.unwrap().remove(0);
    assert_eq!((record.action.as_str(), record.version.as_deref()), ("SelfTest", Some(canary.as_str())));
    assert_eq!(record.detail.as_deref(), Some("11 of 11 forbidden operations were refused; the canary is intact"));
    let log = archive.audit_records(&admin(), 1, 1000).await.unwrap();
    let refusals = log.iter().filter(|record| record.actor == "stele self-test" && record.refused.is_some()).count();
    assert_eq!(refusals, 8, "what reached the archive's operations is in the log: {log:?}");

    // The canary stays the same, its retention is renewed before it ends.
    world.stage.pass(3 * DAY / 2);
    let again = archive.self_test(&admin(), Some("locked"), None).await.unwrap().remove(0);
    assert_eq!((again.canary, again.intact), (Some(canary), true));
    world.stage.pass(DAY);
    assert!(archive.self_test(&admin(), None, None).await.unwrap().iter().all(SelfTest::passed));
    let plain = archive.self_test(&admin(), Some("plain"), None).await.unwrap().remove(0);
    assert!(plain.skipped.is_some() && !plain.passed());
    assert_eq!(archive.standing_alarms(), []);
}

#[tokio::test]
async fn the_self_test_passes_at_every_protection_level() {
    let world = World::new(5);
    let archive = world.create().await;
    for (name, level) in
        [("basic", Protection::Basic), ("governance", Protection::Governance), ("compliance", Protection::Compliance)]
    {
        let new = NewBucket { object_lock: true, protection: Some(level), ..NewBucket::default() };
        archive.create_bucket(&admin(), name, new).await.unwrap();
        let result = archive.self_test(&admin(), Some(name), None).await.unwrap().remove(0);
        assert!(result.passed(), "{name}: {result:?}");
    }
}

#[tokio::test]
async fn a_client_that_writes_the_canarys_key_raises_no_alarm() {
    let world = World::new(4);
    let archive = world.create().await;
    let new = NewBucket { object_lock: true, ..NewBucket::default() };
    archive.create_bucket(&admin(), "locked", new).await.unwrap();
    let first = archive.self_test(&admin(), None, None).await.unwrap().remove(0).canary;
    for client in [admin(), Caller::system("inventory")] {
        let until = archive.store().later_now().plus_days(30);
        let request = PutRequest {
            bucket: "locked".into(),
            key: CANARY_KEY.into(),
            retention: Some(Retention { mode: RetentionMode::Compliance, until }),
            ..PutRequest::default()
        };
        let theirs = put_as(&archive, &client, request, b"not a canary").await.unwrap().version.to_string();
        let result = archive.self_test(&admin(), None, None).await.unwrap().remove(0);
        assert!(result.passed(), "{:?}: {result:?}", client.actor);
        assert!(result.canary.is_some() && result.canary != Some(theirs) && result.canary != first);
    }
}

#[tokio::test]
async fn a_self_test_of_damaged_content_does_not_pass() {
    let world = World::new(2);
    let archive = world.create().await;
    let new = NewBucket { object_lock: true, ..NewBucket::default() };
    archive.create_bucket(&admin(), "locked", new).await.unwrap();
    archive.self_test(&admin(), None, None).await.unwrap();
    archive.close().await.unwrap();
    drop(archive);
    let archive = world.open().await;
    world.bench.lose(0..world.bench.size());
    let results = archive.self_test(&admin(), None, None).await;
    let passed = results.as_ref().is_ok_and(|results| results.iter().all(SelfTest::passed));
    assert!(!passed, "{results:?}");
}

#[tokio::test]
async fn a_self_test_takes_a_role() {
    let world = World::new(3);
    let archive = world.create().await;
    let key = archive.create_access_key(&admin(), "user", Rights::user("b", "")).await.unwrap();
    let user = archive.credentials(&key.id).await.unwrap().caller;
    assert!(matches!(archive.self_test(&user, None, None).await, Err(ArchiveError::Denied(_))));
}
