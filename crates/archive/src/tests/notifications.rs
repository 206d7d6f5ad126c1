//! Events of objects: durable with their changes, in order, bounded, and told by the rules of the
//! bucket alone.

use std::sync::Arc;

use stele_catalog::{MemoryCatalog, Template, Transaction};

use super::*;
use crate::audit::Event;
use crate::record::version::VersionRow;
use crate::record::{EVENT_ENDS, EVENTS, keys};
use crate::store::lookup;

fn rule(events: &[&str]) -> NotificationRule {
    NotificationRule {
        id: "rule".into(),
        form: TargetForm::Queue,
        target: "hook".into(),
        arn: "arn:stele:sqs::hook:webhook".into(),
        events: events.iter().map(|event| (*event).to_owned()).collect(),
        prefix: Some("in/".into()),
        suffix: None,
    }
}

async fn told(world: &World, versioning: bool) -> Archive {
    let archive = world.create().await;
    let new = NewBucket { versioning, ..NewBucket::default() };
    archive.create_bucket(&admin(), "told", new).await.unwrap();
    let rules = vec![rule(&["s3:ObjectCreated:*", "s3:ObjectRemoved:*", "s3:LifecycleExpiration:*"])];
    archive.change_bucket(&admin(), "told", BucketChange::Notifications(Some(rules))).await.unwrap();
    archive
}

fn names(archive: &Archive) -> Vec<String> {
    archive.pending_events("hook", 1000).unwrap().into_iter().map(|(_, event)| event.name).collect()
}

#[tokio::test]
async fn every_change_that_a_rule_selects_has_an_event() {
    let world = World::new(1);
    let archive = told(&world, true).await;
    let stored = put(&archive, "told", "in/a", b"seven b").await.unwrap();
    put(&archive, "told", "out/a", b"x").await.unwrap();
    let delete =
        |version| DeleteRequest { bucket: "told".into(), key: "in/a".into(), version, ..DeleteRequest::default() };
    archive.delete(&admin(), delete(None)).await.unwrap();
    archive.delete(&admin(), delete(Some(stored.version))).await.unwrap();
    assert!(archive.delete(&admin(), DeleteRequest { etag: Some("x".into()), ..delete(None) }).await.is_err());
    let expected = ["TestEvent", "ObjectCreated:Put", "ObjectRemoved:DeleteMarkerCreated", "ObjectRemoved:Delete"];
    assert_eq!(names(&archive), expected);
    let events = archive.pending_events("hook", 1000).unwrap();
    let numbers: Vec<u64> = events.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    let put = &events[1].1;
    assert_eq!((put.size, put.etag.clone()), (Some(7), Some(stored.etag.to_string())));
    assert_eq!((put.version.clone(), put.key.as_str()), (Some(stored.version.to_string()), "in/a"));
    // The number of the audit record is still that of the record.
    let log = archive.audit_records(&admin(), 1, 1000).await.unwrap();
    let record = log.iter().find(|record| record.action == "PutObject").unwrap();
    assert_eq!(stored.logged, Some(record.number));
}

#[tokio::test]
async fn the_end_of_a_retention_is_told_once() {
    for action in [ExpiryAction::Notify, ExpiryAction::Delete, ExpiryAction::Keep] {
        let world = World::new(11);
        let archive = world.create().await;
        let new = NewBucket { object_lock: true, expiry: action, ..NewBucket::default() };
        archive.create_bucket(&admin(), "told", new).await.unwrap();
        let rules = vec![rule(&["s3:ObjectRetention:Expired", "s3:LifecycleExpiration:*"])];
        archive.change_bucket(&admin(), "told", BucketChange::Notifications(Some(rules))).await.unwrap();
        let until = archive.store().compliance_now().plus_days(1);
        let retention = Some(Retention { mode: RetentionMode::Compliance, until });
        for key in ["in/a", "out/a"] {
            let request = PutRequest { bucket: "told".into(), key: key.into(), retention, ..PutRequest::default() };
            crate::testing::put_as(&archive, &admin(), request, b"x").await.unwrap();
        }
        while archive.step().await.unwrap().more {}
        assert_eq!(names(&archive), ["TestEvent"], "{action:?}");
        world.stage.pass(3 * 86_400_000);
        for _ in 0..3 {
            while archive.step().await.unwrap().more {}
            world.stage.pass(400_000);
        }
        let expected: &[&str] = match action {
            ExpiryAction::Notify => &["TestEvent", "ObjectRetention:Expired"],
            ExpiryAction::Delete => &["TestEvent", "LifecycleExpiration:Delete"],
            ExpiryAction::Keep => &["TestEvent"],
        };
        assert_eq!(names(&archive), expected, "{action:?}");
    }
}

#[tokio::test]
async fn events_outlive_a_crash_until_they_are_delivered() {
    let world = World::new(2);
    let archive = told(&world, false).await;
    put(&archive, "told", "in/a", b"a").await.unwrap();
    put(&archive, "told", "in/b", b"b").await.unwrap();
    // Without a close.
    drop(archive);
    let archive = world.open().await;
    assert_eq!(names(&archive), ["TestEvent", "ObjectCreated:Put", "ObjectCreated:Put"]);
    archive.delivered("hook", 2).await.unwrap();
    drop(archive);
    let archive = world.open().await;
    let left = archive.pending_events("hook", 1000).unwrap();
    assert_eq!(left.iter().map(|(number, event)| (*number, event.key.as_str())).collect::<Vec<_>>(), [(3, "in/b")]);
    archive.delivered("hook", 3).await.unwrap();
    put(&archive, "told", "in/c", b"c").await.unwrap();
    assert_eq!(archive.pending_events("hook", 10).unwrap()[0].0, 4, "numbers go on");
}

#[tokio::test]
async fn at_the_limit_writes_succeed_and_events_are_counted() {
    let world = World::new(3);
    let archive = told(&world, false).await;
    let event = crate::record::encode(&archive.pending_events("hook", 1).unwrap()[0].1);
    for _ in 0..EVENTS_PENDING_MAX / 2_000 {
        let fill = (0..2_000).fold(Transaction::new(), |fill, _| {
            let key = Template::new().bytes(keys::all_under("hook")).number();
            fill.append((EVENT_ENDS, keys::event_head("hook")), EVENTS, key, Template::new().bytes(event.clone()))
        });
        archive.store().catalog().commit(fill).await.unwrap();
    }
    archive.store().event_lag().note("hook", EVENTS_PENDING_MAX);
    put(&archive, "told", "in/a", b"a").await.unwrap();
    put(&archive, "told", "in/b", b"b").await.unwrap();
    let lag = archive.target_lags().unwrap();
    assert_eq!((lag[0].pending, lag[0].dropped), (EVENTS_PENDING_MAX + 1, 2));
    let alarmed = async || archive.standing_alarms().iter().any(|alarm| alarm.kind == AlarmKind::Notifications);
    assert!(alarmed().await, "nothing is late yet, but events were dropped");
    for through in (1_000..=EVENTS_PENDING_MAX + 1_000).step_by(1_000) {
        archive.delivered("hook", through).await.unwrap();
    }
    put(&archive, "told", "in/c", b"c").await.unwrap();
    let lag = archive.target_lags().unwrap();
    assert_eq!((lag[0].pending, lag[0].dropped), (1, 2));
    archive.delivered("hook", u64::MAX).await.unwrap();
    assert!(alarmed().await, "the drops are told for a day");
    drop(archive);
    let archive = world.open().await;
    let alarmed = async || archive.standing_alarms().iter().any(|alarm| alarm.kind == AlarmKind::Notifications);
    assert!(alarmed().await, "also after a restart");
    world.stage.pass(24 * 60 * 60 * 1000);
    assert!(!alarmed().await);
}

#[tokio::test]
async fn a_target_that_lags_is_told_whatever_the_clock_says() {
    let world = World::new(7);
    let archive = told(&world, false).await;
    let alarmed = || archive.standing_alarms().iter().any(|alarm| alarm.kind == AlarmKind::Notifications);
    assert!(!alarmed());
    let begun = archive.store().wall();
    world.stage.pass(11 * 60 * 1000);
    assert!(alarmed());
    world.stage.set_wall(Timestamp(begun.0 - 60 * 60 * 1000));
    assert!(alarmed(), "a clock that was set back hides no target");
    archive.delivered("hook", u64::MAX).await.unwrap();
    assert!(!alarmed());
}

#[tokio::test]
async fn a_small_catalog_holds_fewer_events() {
    for (catalog, events) in [(0, 1_000), (128 << 20, 2_048), (1 << 30, 16_384), (1 << 40, EVENTS_PENDING_MAX)] {
        assert_eq!(events_pending_max(catalog), events, "{catalog}");
    }
    let mut world = World::new(10);
    world.options.events_pending_max = 3;
    let archive = told(&world, false).await;
    for key in ["in/a", "in/b", "in/c", "in/d"] {
        put(&archive, "told", key, b"x").await.unwrap();
    }
    let lag = archive.target_lags().unwrap();
    assert_eq!((lag[0].pending, lag[0].dropped), (3, 2), "the test event is one of them");
}

#[tokio::test]
async fn a_count_that_ran_ahead_drops_nothing() {
    let world = World::new(4);
    let archive = told(&world, false).await;
    // As after many transactions that failed.
    archive.store().event_lag().note("hook", EVENTS_PENDING_MAX);
    put(&archive, "told", "in/a", b"a").await.unwrap();
    assert_eq!(names(&archive), ["TestEvent", "ObjectCreated:Put"]);
}

#[tokio::test]
async fn rules_survive_a_rebuild_and_only_administrators_set_them() {
    let world = World::new(5);
    let archive = told(&world, false).await;
    let rules = archive.notifications(&admin(), "told").await.unwrap();
    let user = Caller { rights: Arc::new(Rights::user("told", "")), ..admin() };
    let user = Caller { actor: Actor::Key("USER".into()), ..user };
    let refused = archive.change_bucket(&user, "told", BucketChange::Notifications(None)).await;
    assert!(matches!(refused, Err(ArchiveError::Denied(_))), "{refused:?}");
    archive.close().await.unwrap();
    drop(archive);
    let world = World { catalog: Arc::new(MemoryCatalog::new()), ..world };
    let filled = Archive::fill(&world.foundation(), &world.options, Rebuild::default()).await.unwrap();
    let (archive, _) = filled.adopt(world.foundation(), world.options.clone()).await.unwrap();
    assert_eq!(archive.notifications(&admin(), "told").await.unwrap(), rules);
    put(&archive, "told", "in/a", b"a").await.unwrap();
    assert_eq!(names(&archive), ["ObjectCreated:Put"]);
}

#[tokio::test]
async fn new_tags_are_told_by_the_rules_that_stand() {
    let world = World::new(9);
    let archive = told(&world, false).await;
    put(&archive, "told", "in/a", b"a").await.unwrap();
    let store = archive.store();
    let (before, lock) = store.lock_authorized(&admin(), Access::Write, "told", "in/a").await.unwrap();
    let found = lookup::readable(&*store.snapshot().unwrap(), &before, "in/a", None).unwrap();
    // Acknowledged while the change of the tags is under way.
    let rules = Some(vec![rule(&["s3:ObjectTagging:*"])]);
    archive.change_bucket(&admin(), "told", BucketChange::Notifications(rules)).await.unwrap();
    let event = Event::new(&admin(), Action::SetTags).object("told", "in/a").happened("ObjectTagging:Put");
    let tags = |row: &mut VersionRow| row.tags = [("a".to_owned(), "b".to_owned())].into();
    let changed = store.change_version(&before, "in/a", &found, lock, event, tags).await;
    assert!(matches!(changed, Err(ArchiveError::Conflict(_))), "{changed:?}");
    let tags = [("a".to_owned(), "b".to_owned())].into();
    archive.set_tags(&admin(), "told", "in/a", None, tags).await.unwrap();
    assert_eq!(names(&archive).last().unwrap(), "ObjectTagging:Put");
}

#[tokio::test]
async fn a_share_has_no_notifications() {
    let world = World::new(6);
    let archive = told(&world, false).await;
    let shared = archive.change_bucket(&admin(), "told", BucketChange::Share).await;
    assert!(matches!(shared, Err(ArchiveError::InvalidState(_))), "{shared:?}");
}

#[tokio::test]
async fn events_of_a_target_that_left_the_configuration_can_be_deleted() {
    let world = World::new(8);
    let archive = told(&world, false).await;
    put(&archive, "told", "in/a", b"a").await.unwrap();
    archive.close().await.unwrap();
    drop(archive);
    let reopen = async |senders: &[&str]| {
        let senders = senders.iter().map(|name| (*name).to_owned()).collect();
        let options = Options { notification_targets: Some(Arc::new(senders)), ..world.options.clone() };
        Archive::open(world.foundation(), options).await.unwrap()
    };
    let alarm = |archive: &Archive| {
        let mut alarms = archive.standing_alarms().into_iter();
        alarms.find(|alarm| alarm.kind == AlarmKind::Notifications).map(|alarm| alarm.message)
    };
    let archive = reopen(&["hook"]).await;
    assert_eq!(alarm(&archive), None);
    let refused = archive.forget_events(&admin(), "hook").await;
    assert!(matches!(refused, Err(ArchiveError::InvalidState(_))), "{refused:?}");
    archive.close().await.unwrap();
    drop(archive);
    let archive = reopen(&["other"]).await;
    let said = alarm(&archive).unwrap();
    assert!(said.contains("forget hook") && said.contains("rules of `told` name it"), "{said}");
    let user = Caller { rights: Arc::new(Rights::user("told", "")), ..admin() };
    assert!(matches!(archive.forget_events(&user, "hook").await, Err(ArchiveError::Denied(_))));
    let unknown = archive.forget_events(&admin(), "nothing").await;
    assert!(matches!(unknown, Err(ArchiveError::NoSuchThing(_))), "{unknown:?}");
    assert_eq!(archive.forget_events(&admin(), "hook").await.unwrap(), 2);
    assert!(names(&archive).is_empty());
    let log = archive.audit_records(&admin(), 1, 1000).await.unwrap();
    assert!(log.iter().any(|record| record.detail.as_deref().is_some_and(|detail| detail.contains("`hook`"))));
    put(&archive, "told", "in/b", b"b").await.unwrap();
    assert_eq!(archive.pending_events("hook", 10).unwrap()[0].0, 3, "numbers go on");
    archive.forget_events(&admin(), "hook").await.unwrap();
    archive.change_bucket(&admin(), "told", BucketChange::Notifications(None)).await.unwrap();
    assert_eq!(alarm(&archive), None);
}

/// The key of the self-test's object hides nothing of a client's.
#[tokio::test]
async fn an_object_of_a_client_has_its_event_whatever_its_key() {
    use crate::model::bucket::CANARY_KEY;
    let world = World::new(8);
    let archive = world.create().await;
    let new = NewBucket { object_lock: true, ..NewBucket::default() };
    archive.create_bucket(&admin(), "told", new).await.unwrap();
    let rules = vec![NotificationRule { prefix: None, ..rule(&["s3:ObjectCreated:*", "s3:ObjectRetention:*"]) }];
    archive.change_bucket(&admin(), "told", BucketChange::Notifications(Some(rules))).await.unwrap();
    archive.self_test(&admin(), Some("told"), None).await.unwrap();
    assert_eq!(names(&archive), ["TestEvent"], "the canary has none");
    put(&archive, "told", CANARY_KEY, b"theirs").await.unwrap();
    assert_eq!(names(&archive), ["TestEvent", "ObjectCreated:Put"]);
}
