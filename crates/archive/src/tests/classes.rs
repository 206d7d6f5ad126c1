//! Management classes and events: which class applies, what activation refuses, and when versions
//! end.

use std::collections::BTreeMap;
use std::sync::Arc;

use stele_catalog::MemoryCatalog;
use stele_ground::Dice;

use super::*;
use crate::model::bucket::CANARY_KEY;
use crate::testing::{officer, put_as};

const DAY: u64 = 86_400_000;

pub(super) fn terms(initiation: Initiation, retver: Option<u64>, retmin: u64, action: ExpiryAction) -> ClassTerms {
    ClassTerms { initiation, retver, retmin, action, mode: RetentionMode::Compliance }
}

pub(super) async fn store(world: &World) -> Archive {
    let archive = world.create().await;
    let new = NewBucket { object_lock: true, ..NewBucket::default() };
    archive.create_bucket(&admin(), "records", new).await.unwrap();
    archive.create_bucket(&admin(), "plain", NewBucket::default()).await.unwrap();
    archive
}

pub(super) async fn active(archive: &Archive, name: &str, terms: ClassTerms) {
    archive.create_class(&admin(), name, terms, "").await.unwrap();
    archive.activate_class(&admin(), name, None).await.unwrap();
}

pub(super) async fn put_in(archive: &Archive, key: &str, class: Option<&str>) -> Result<ObjectInfo> {
    let request = PutRequest {
        bucket: "records".into(),
        key: key.into(),
        class: class.map(str::to_string),
        ..PutRequest::default()
    };
    put_as(archive, &admin(), request, b"record").await
}

async fn delete(archive: &Archive, info: &ObjectInfo) -> Result<Deleted> {
    let request = DeleteRequest {
        bucket: info.bucket.clone(),
        key: info.key.clone(),
        version: Some(info.version),
        bypass_governance: true,
        ..DeleteRequest::default()
    };
    archive.delete(&admin(), request).await
}

pub(super) fn retained<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(ArchiveError::Retained { .. })), "{result:?}");
}

async fn class_of(archive: &Archive, info: &ObjectInfo) -> Option<(String, u64)> {
    let why = archive.why(&admin(), &info.bucket, &info.key, Some(info.version)).await.unwrap();
    why.class.zip(why.class_version)
}

pub(super) fn now(archive: &Archive) -> Timestamp {
    archive.store().compliance_now()
}

#[tokio::test]
async fn a_class_is_activated_only_if_it_weakens_nothing() {
    let world = World::new(1);
    let archive = store(&world).await;
    active(&archive, "seven", terms(Initiation::Creation, Some(2555), 0, ExpiryAction::Keep)).await;
    let first = put_in(&archive, "first", Some("seven")).await.unwrap();
    for weaker in [
        terms(Initiation::Creation, Some(2554), 0, ExpiryAction::Keep),
        terms(Initiation::Creation, Some(2555), 0, ExpiryAction::Delete),
        ClassTerms {
            mode: RetentionMode::Governance,
            ..terms(Initiation::Creation, Some(2555), 0, ExpiryAction::Keep)
        },
    ] {
        archive.create_class(&admin(), "seven", weaker, "").await.unwrap();
        let refused = archive.activate_class(&admin(), "seven", None).await;
        assert!(matches!(refused, Err(ArchiveError::Weaker(_))), "{refused:?}");
        let (_, lines) = archive.compare_class(&admin(), "seven", None).await.unwrap();
        assert_eq!(lines.iter().filter(|line| line.weaker).count(), 1, "{lines:?}");
    }
    active(&archive, "seven", terms(Initiation::Event, Some(2555), 10, ExpiryAction::Keep)).await;
    let second = put_in(&archive, "second", Some("seven")).await.unwrap();
    assert_eq!(class_of(&archive, &first).await, Some(("seven".into(), 1)), "the class was copied");
    assert_eq!(class_of(&archive, &second).await, Some(("seven".into(), 5)));
    assert!(archive.activate_class(&admin(), "seven", Some(1)).await.is_err(), "there is no way back");
    for bad in [
        terms(Initiation::Event, None, 0, ExpiryAction::Keep),
        terms(Initiation::Event, Some(30_001), 0, ExpiryAction::Keep),
        terms(Initiation::Creation, Some(1), 1, ExpiryAction::Keep),
    ] {
        assert!(archive.create_class(&admin(), "bad", bad, "").await.is_err());
    }
    let user = Caller { rights: Rights::user("records", "").into(), ..officer("carl", 3) };
    let made =
        archive.create_class(&user, "own", terms(Initiation::Creation, Some(1), 0, ExpiryAction::Keep), "").await;
    assert!(matches!(made, Err(ArchiveError::Denied(_))));
    assert!(matches!(archive.activate_class(&user, "seven", None).await, Err(ArchiveError::Denied(_))));
}

#[tokio::test]
async fn the_first_rule_that_holds_names_the_class() {
    let world = World::new(2);
    let archive = store(&world).await;
    for (name, days) in [("mail", 10), ("large", 20), ("rest", 30), ("named", 40)] {
        active(&archive, name, terms(Initiation::Creation, Some(days), 0, ExpiryAction::Keep)).await;
    }
    let rules = vec![
        Binding { class: "mail".into(), prefix: "mail/".into(), suffix: ".eml".into(), ..Binding::default() },
        Binding { class: "large".into(), size_min: Some(100), size_max: Some(1000), ..Binding::default() },
    ];
    let classes = Bindings { default: Some("rest".into()), rules };
    let change = |bucket: &'static str, classes: Bindings| {
        let archive = archive.clone();
        async move { archive.change_bucket(&admin(), bucket, BucketChange::Classes(classes)).await }
    };
    assert!(change("plain", classes.clone()).await.is_err(), "it takes Object Lock");
    assert!(change("records", Bindings { default: Some("none".into()), ..Bindings::default() }).await.is_err());
    let mut empty = classes.clone();
    empty.rules[1].size_min = Some(1001);
    let refused = change("records", empty).await.unwrap_err().to_string();
    assert!(refused.contains("holds for no size: class `large`"), "{refused}");
    change("records", classes).await.unwrap();
    for (key, size, named, tag, days) in [
        ("mail/1.eml", 500, None, None, 10),
        ("mail/1.txt", 500, None, None, 20),
        ("mail/1.txt", 1001, None, None, 30),
        ("mail/1.eml", 500, Some("named"), None, 40),
        ("x", 1, None, Some("named"), 40),
    ] {
        let tags = tag.map(|tag: &str| ("stele:class".to_string(), tag.to_string())).into_iter().collect();
        let request = PutRequest {
            bucket: "records".into(),
            key: key.into(),
            class: named.map(str::to_string),
            tags,
            ..PutRequest::default()
        };
        let info = put_as(&archive, &admin(), request, &content(1, size)).await.unwrap();
        let until = archive.store().later_now().plus_days(days);
        let retention = Some(Retention { mode: RetentionMode::Compliance, until });
        assert_eq!(info.retention, retention, "{key} of {size} bytes, named {named:?}, tagged {tag:?}");
    }
    // Naming a class takes the right to retain; a longer retention of the request stands.
    let user = Caller { rights: Rights::user("records", "").into(), ..officer("carl", 3) };
    let request =
        PutRequest { bucket: "records".into(), key: "u".into(), class: Some("mail".into()), ..PutRequest::default() };
    assert!(matches!(put_as(&archive, &user, request, b"x").await, Err(ArchiveError::Denied(_))));
    let until = now(&archive).plus_days(15);
    let asked = Some(Retention { mode: RetentionMode::Governance, until });
    let request = PutRequest {
        bucket: "records".into(),
        key: "longer".into(),
        class: Some("mail".into()),
        retention: asked,
        ..PutRequest::default()
    };
    let info = put_as(&archive, &admin(), request, b"x").await.unwrap();
    assert_eq!(info.retention, Some(Retention { mode: RetentionMode::Compliance, until }));
    assert!(put_in(&archive, "x", Some("unknown")).await.is_err());
}

/// A tag that any writer may set does not decide by which class a copy is kept.
#[tokio::test]
async fn a_copy_takes_no_class_from_the_tags_of_its_source() {
    let world = World::new(15);
    let archive = store(&world).await;
    for (name, days) in [("day", 1), ("decade", 3650)] {
        active(&archive, name, terms(Initiation::Creation, Some(days), 0, ExpiryAction::Keep)).await;
    }
    let bindings = Bindings { default: Some("decade".into()), ..Bindings::default() };
    archive.change_bucket(&admin(), "records", BucketChange::Classes(bindings)).await.unwrap();
    put_in(&archive, "source", None).await.unwrap();
    let tags = |class: &str| Tags::from([("stele:class".into(), class.into()), ("case".into(), "1".into())]);
    let user = Caller { rights: Rights::user("records", "").into(), ..officer("carl", 3) };
    archive.set_tags(&user, "records", "source", None, tags("day")).await.unwrap();
    let copy = |key: &str, tags: Option<Tags>| {
        let source = CopySource { bucket: "records".into(), key: "source".into(), ..CopySource::default() };
        CopyRequest { source, bucket: "records".into(), key: key.into(), tags, ..CopyRequest::default() }
    };
    let copied = archive.copy(&admin(), copy("copy", None)).await.unwrap().object;
    assert_eq!(class_of(&archive, &copied).await, Some(("decade".into(), 1)));
    let (left, _) = archive.tags(&admin(), "records", "copy", None).await.unwrap();
    assert_eq!(left, Tags::from([("case".into(), "1".into())]));
    // A caller without the right to retain copies too, and a request names a class by its own tags.
    archive.copy(&user, copy("users", None)).await.unwrap();
    let copied = archive.copy(&admin(), copy("named", Some(tags("day")))).await.unwrap().object;
    assert_eq!(class_of(&archive, &copied).await, Some(("day".into(), 1)));
    assert!(matches!(archive.copy(&user, copy("denied", Some(tags("day")))).await, Err(ArchiveError::Denied(_))));
}

#[tokio::test]
async fn without_its_event_a_version_stays_for_ever() {
    let world = World::new(3);
    let archive = store(&world).await;
    let governed =
        ClassTerms { mode: RetentionMode::Governance, ..terms(Initiation::Event, Some(10), 30, ExpiryAction::Delete) };
    active(&archive, "staff", governed).await;
    let record = put_in(&archive, "record", Some("staff")).await.unwrap();
    let other = put_in(&archive, "other", Some("staff")).await.unwrap();
    for _ in 0..40 {
        world.stage.pass(30 * DAY);
        assert_eq!(archive.step().await.unwrap().expired, 0);
    }
    retained(delete(&archive, &record).await);
    for retention in [None, Some(Retention { mode: RetentionMode::Governance, until: now(&archive).plus_days(1) })] {
        let set = archive.set_retention(&admin(), "records", "record", None, retention, true).await;
        retained(set.map(drop));
    }
    // An event before the version was stored counts from then.
    let until = archive.tell_event(&officer("anna", 1), "records", "record", None, Timestamp(0)).await.unwrap();
    assert_eq!(until, record.modified.plus_days(30));
    let again = archive.tell_event(&admin(), "records", "record", None, now(&archive)).await;
    assert!(matches!(again, Err(ArchiveError::InvalidState(_))), "once: {again:?}");
    world.stage.pass(400_000);
    assert_eq!(archive.step().await.unwrap().expired, 1);
    retained(delete(&archive, &other).await);
    let user = Caller { rights: Rights::user("records", "").into(), ..officer("carl", 3) };
    let denied = archive.tell_event(&user, "records", "other", None, Timestamp(0)).await;
    assert!(matches!(denied, Err(ArchiveError::Denied(_))), "{denied:?}");

    // Before its date two officers take an event back.
    let later = now(&archive).plus_days(5);
    archive.tell_event(&admin(), "records", "other", None, later).await.unwrap();
    let name = VersionName { bucket: "records".into(), key: "other".into(), version: Some(other.version) };
    let asked = archive.request_revocation(&officer("anna", 1), &name).await.unwrap();
    assert!(archive.approve(&officer("anna", 1), &asked.id).await.is_err(), "another person approves");
    archive.approve(&officer("ben", 2), &asked.id).await.unwrap();
    assert!(archive.requests(&admin()).await.unwrap().is_empty());
    world.stage.pass(100 * DAY);
    archive.step().await.unwrap();
    retained(delete(&archive, &other).await);
    archive.tell_event(&admin(), "records", "other", None, Timestamp(0)).await.unwrap();
    let past = archive.request_revocation(&officer("anna", 1), &name).await;
    assert!(matches!(past, Err(ArchiveError::InvalidState(_))), "an event in the past stands: {past:?}");
}

#[tokio::test]
async fn events_are_told_to_a_selection_once() {
    let world = World::new(4);
    let archive = store(&world).await;
    active(&archive, "staff", terms(Initiation::Event, Some(10), 0, ExpiryAction::Delete)).await;
    active(&archive, "plain", terms(Initiation::Creation, Some(10), 0, ExpiryAction::Delete)).await;
    for n in 0..12 {
        put_in(&archive, &format!("smith/{n}"), Some(if n < 9 { "staff" } else { "plain" })).await.unwrap();
    }
    put_in(&archive, "other", Some("staff")).await.unwrap();
    let selection = Selection { bucket: "records".into(), prefix: "smith/".into(), ..Selection::default() };
    let at = now(&archive).plus_days(3);
    let dry = archive.tell_events(&admin(), &selection, at, true, None).await.unwrap();
    assert_eq!((dry.seen, dry.told, dry.before), (12, 9, 0));
    let told = archive.tell_events(&admin(), &selection, at, false, None).await.unwrap();
    assert_eq!((told.told, told.failed, told.next), (9, 0, None));
    let again = archive.tell_events(&admin(), &selection, Timestamp(0), false, None).await.unwrap();
    assert_eq!((again.told, again.before), (0, 9));
    let query = |from: Option<u64>, before: u64, bucket: Option<&str>, prefix: &str| ExpiringQuery {
        from: from.map(|days| now(&archive).plus_days(days)),
        before: now(&archive).plus_days(before),
        bucket: bucket.map(str::to_string),
        prefix: prefix.into(),
    };
    let (expiring, next) = archive.expiring(&admin(), &query(None, 20, None, ""), None).await.unwrap();
    assert_eq!((expiring.len(), next), (12, None));
    assert!(expiring.iter().all(|line| line.rule.contains("class") && line.action == "delete"), "{expiring:?}");
    let (sooner, _) = archive.expiring(&admin(), &query(None, 12, None, ""), None).await.unwrap();
    assert_eq!(sooner.len(), 3, "those of the class `plain`");
    for (asked, count) in [
        (query(Some(12), 20, None, ""), 9),
        (query(Some(0), 12, None, ""), 3),
        (query(Some(14), 20, None, ""), 0),
        (query(None, 20, Some("records"), ""), 12),
        (query(None, 20, Some("plain"), ""), 0),
        (query(Some(12), 20, Some("records"), "smith/1"), 1),
        (query(None, 20, Some("records"), "smith/1"), 3),
    ] {
        let (found, next) = archive.expiring(&admin(), &asked, None).await.unwrap();
        assert_eq!((found.len(), next), (count, None), "{asked:?}: {found:?}");
    }
    for wrong in [query(Some(12), 12, None, ""), query(None, 20, None, "smith/"), query(None, 20, Some("none"), "")] {
        assert!(archive.expiring(&admin(), &wrong, None).await.is_err(), "{wrong:?}");
    }
}

#[tokio::test]
async fn a_search_finds_exactly_what_has_the_properties() {
    let world = World::new(7);
    let archive = store(&world).await;
    active(&archive, "staff", terms(Initiation::Event, Some(10), 0, ExpiryAction::Keep)).await;
    archive.open_matter(&admin(), "smith", "a reason").await.unwrap();
    let mut held = Vec::new();
    for n in 0..1200_usize {
        let mut metadata = Metadata::default();
        metadata.headers.insert("content-type".into(), if n % 3 == 0 { "image/png" } else { "text/plain" }.into());
        metadata.user.insert("case".into(), (n % 5).to_string());
        let request = PutRequest {
            bucket: "records".into(),
            key: format!("{}/{n:04}", if n < 1100 { "in" } else { "out" }),
            class: (n % 2 == 0).then(|| "staff".into()),
            metadata,
            ..PutRequest::default()
        };
        let info = put_as(&archive, &admin(), request, &vec![0; n]).await.unwrap();
        if n % 7 == 0 {
            held.push(VersionName { bucket: info.bucket, key: info.key, version: Some(info.version) });
        }
    }
    archive.hold_listed(&admin(), "smith", held, true).await.unwrap();
    let query = FindQuery {
        selection: Selection { bucket: "records".into(), prefix: "in/".into(), ..Selection::default() },
        class: Some("staff".into()),
        matter: Some("smith".into()),
        size_min: Some(100),
        size_max: Some(1090),
        content_type: "image/".into(),
        metadata: Tags::from([("case".to_string(), "1".to_string())]),
    };
    // What is mistyped finds nothing, which reads as if nothing were held.
    for query in [
        FindQuery { class: Some("stuff".into()), ..query.clone() },
        FindQuery { matter: Some("smit".into()), ..query.clone() },
        FindQuery { size_max: Some(99), ..query.clone() },
    ] {
        assert!(archive.find(&admin(), &query, None).await.is_err(), "{query:?}");
    }
    let (found, next) = archive.find(&admin(), &query, None).await.unwrap();
    let expected: Vec<usize> = (100..=1090).filter(|n| n % 2 == 0 && n % 7 == 0 && n % 3 == 0 && n % 5 == 1).collect();
    assert_eq!((found.iter().map(|one| one.size_bytes as usize).collect::<Vec<_>>(), next), (expected, None));
    assert!(found.iter().all(|one| one.class.as_deref() == Some("staff") && one.matters == ["smith"]));
    // Every version is found once, over pages.
    let all =
        FindQuery { selection: Selection { bucket: "records".into(), ..Selection::default() }, ..FindQuery::default() };
    let (mut count, mut after, mut pages) = (0, None, 0);
    loop {
        let (found, next) = archive.find(&admin(), &all, after.as_deref()).await.unwrap();
        (count, after, pages) = (count + found.len(), next, pages + 1);
        if after.is_none() {
            break;
        }
    }
    assert_eq!((count, pages), (1200, 2));
    let user = Caller { rights: Rights::user("records", "").into(), ..officer("carl", 3) };
    assert!(matches!(archive.find(&user, &all, None).await, Err(ArchiveError::Denied(_))));
}

/// One version of the plain twin.
#[derive(Clone, Debug)]
struct Twin {
    info: ObjectInfo,
    /// Event-initiated; retver and retmin in days.
    class: (bool, Option<u64>, u64),
    deletes: bool,
    governance: bool,
    event: Option<u64>,
    /// The date to which a client extended it.
    extended: u64,
    held: [bool; 2],
}

impl Twin {
    /// The table of the exact rules. None: for ever.
    fn end(&self) -> Option<u64> {
        let stored = self.info.modified.0;
        let by_class = match (self.class, self.event) {
            ((false, Some(retver), _), _) => stored + retver * DAY,
            ((true, Some(retver), retmin), Some(event)) => {
                (stored + retmin * DAY).max(event.max(stored) + retver * DAY)
            }
            _ => return None,
        };
        Some(by_class.max(self.extended))
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.end().is_some_and(|end| end <= now.0)
    }

    fn is_held(&self) -> bool {
        self.held.contains(&true)
    }
}

/// Random histories of put, hold, release, event, extend, delete and expire against the table of
/// the exact rules, with restarts, and a rebuild at the end.
#[tokio::test]
async fn random_histories_follow_the_exact_rules() {
    for seed in 0..25 {
        history(seed).await;
    }
}

/// Name, whether from an event on, retver, retmin, whether expiration deletes, whether GOVERNANCE.
type Line = (&'static str, bool, Option<u64>, u64, bool, bool);

const CLASSES: [Line; 5] = [
    ("c0", false, Some(0), 0, true, false),
    ("c9", false, Some(9), 0, true, true),
    ("ever", false, None, 0, true, false),
    ("e5", true, Some(5), 12, true, false),
    ("e3", true, Some(3), 0, false, true),
];

async fn history(seed: u64) {
    let mut world = World::sized(seed, 24 << 20, 256 << 10);
    let mut dice = Dice::new(seed);
    let mut archive = store(&world).await;
    for (name, event, retver, retmin, deletes, governance) in CLASSES {
        let action = if deletes { ExpiryAction::Delete } else { ExpiryAction::Keep };
        let initiation = if event { Initiation::Event } else { Initiation::Creation };
        let mode = if governance { RetentionMode::Governance } else { RetentionMode::Compliance };
        active(&archive, name, ClassTerms { initiation, retver, retmin, action, mode }).await;
    }
    for name in ["m0", "m1"] {
        archive.open_matter(&admin(), name, "a reason").await.unwrap();
    }
    let mut twins: BTreeMap<String, Twin> = BTreeMap::new();
    for n in 0..150 {
        let keys: Vec<String> = twins.keys().cloned().collect();
        let picked = dice.pick(&keys).cloned();
        match (dice.below(10), picked) {
            (0..=2, _) | (_, None) => {
                let (name, event, retver, retmin, deletes, governance) = *dice.pick(&CLASSES).unwrap();
                let key = format!("k{n}");
                let info = put_in(&archive, &key, Some(name)).await.unwrap();
                let class = (event, retver, retmin);
                let twin = Twin { info, class, deletes, governance, event: None, extended: 0, held: [false; 2] };
                twins.insert(key, twin);
            }
            (3, Some(key)) => {
                let twin = twins.get_mut(&key).unwrap();
                let (which, on) = (dice.below(2) as usize, dice.one_in(2));
                let name = VersionName { bucket: "records".into(), key: key.clone(), version: Some(twin.info.version) };
                let done = archive.hold_listed(&admin(), ["m0", "m1"][which], vec![name], on).await.unwrap();
                assert_eq!(done[0].failure, None);
                twin.held[which] = on;
            }
            (4, Some(key)) => {
                let twin = twins.get_mut(&key).unwrap();
                let at = (now(&archive).0 + 10 * DAY).saturating_sub(dice.below(40 * DAY));
                let info = &twin.info;
                let told = archive.tell_event(&admin(), "records", &key, Some(info.version), Timestamp(at)).await;
                match twin.class.0 && twin.event.is_none() {
                    true => {
                        twin.event = Some(at);
                        assert_eq!(told.unwrap().0, twin.end().unwrap(), "{twin:?}");
                    }
                    false => assert!(told.is_err(), "{twin:?}"),
                }
            }
            (5, Some(key)) => {
                let twin = twins.get_mut(&key).unwrap();
                let until = archive.store().later_now().0 + 1 + dice.below(20 * DAY);
                let mode = if twin.governance { RetentionMode::Governance } else { RetentionMode::Compliance };
                let after = Some(Retention { mode, until: Timestamp(until) });
                let version = Some(twin.info.version);
                let set = archive.set_retention(&admin(), "records", &key, version, after, false).await;
                let allowed = twin.end().is_some_and(|end| end <= until || end <= now(&archive).0);
                assert_eq!(set.is_ok(), allowed, "{twin:?} to {until}: {set:?}");
                if allowed {
                    twin.extended = twin.extended.max(until);
                }
            }
            (6, Some(key)) => {
                let twin = twins[&key].clone();
                let deleted = delete(&archive, &twin.info).await;
                let bypassed = twin.governance && twin.end().is_some();
                let allowed = !twin.is_held() && (twin.is_over(now(&archive)) || bypassed);
                assert_eq!(deleted.is_ok(), allowed, "{twin:?} at {}: {deleted:?}", now(&archive));
                if allowed {
                    twins.remove(&key);
                }
            }
            (7, _) => {
                archive.close().await.unwrap();
                drop(archive);
                archive = world.open().await;
            }
            _ => {
                world.stage.pass(dice.below(4 * DAY));
                while archive.step().await.unwrap().more {}
                world.stage.pass(400_000);
                while archive.step().await.unwrap().more {}
                let at = now(&archive);
                twins.retain(|_, twin| !(twin.is_over(at) && twin.deletes && !twin.is_held()));
                compare(&archive, &twins).await;
                world.check_index();
            }
        }
    }
    archive.close().await.unwrap();
    drop(archive);
    world.catalog = Arc::new(MemoryCatalog::new());
    let (archive, report) = Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap();
    assert!(report.findings.is_empty(), "{report:?}");
    world.check_index();
    compare(&archive, &twins).await;
    assert_eq!(archive.classes(&admin()).await.unwrap().len(), CLASSES.len());
    put_in(&archive, "after", Some("e5")).await.unwrap();
}

/// Exactly the versions of the twin are there, with their ends.
async fn compare(archive: &Archive, twins: &BTreeMap<String, Twin>) {
    let request = ListVersionsRequest { bucket: "records".into(), limit: 1000, ..Default::default() };
    let page = archive.list_versions(&admin(), request).await.unwrap();
    let have: Vec<&str> = page.versions.iter().map(|info| info.key.as_str()).collect();
    let expected: Vec<&str> = twins.keys().map(String::as_str).collect();
    assert_eq!(have, expected);
    for (info, twin) in page.versions.iter().zip(twins.values()) {
        let until = info.retention.map(|retention| retention.until);
        let end = twin.end().map_or(Timestamp::LATEST, Timestamp);
        assert_eq!(until, Some(end), "{twin:?}");
    }
}

/// Power fails after each write around an activation and an event: each has taken place or not,
/// also by the data volume alone, and one that was acknowledged has.
#[tokio::test]
async fn a_power_cut_leaves_an_event_told_or_not_told() {
    for writes in 0..30 {
        let mut world = World::sized(writes, 24 << 20, 256 << 10);
        let archive = store(&world).await;
        active(&archive, "staff", terms(Initiation::Event, Some(10), 0, ExpiryAction::Delete)).await;
        let record = put_in(&archive, "record", Some("staff")).await.unwrap();
        archive
            .create_class(&admin(), "staff", terms(Initiation::Event, Some(20), 0, ExpiryAction::Delete), "")
            .await
            .unwrap();
        world.bench.cut_after(writes);
        let activated = archive.activate_class(&admin(), "staff", None).await.is_ok();
        let told = archive.tell_event(&admin(), "records", "record", None, Timestamp(0)).await.is_ok();
        drop(archive);
        world.bench.power_on();
        for rebuilt in [false, true] {
            let archive = match rebuilt {
                false => world.open().await,
                true => {
                    world.catalog = Arc::new(MemoryCatalog::new());
                    Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap().0
                }
            };
            let until = archive.retention(&admin(), "records", "record", None).await.unwrap().until;
            let end = record.modified.plus_days(10);
            assert!(until == end || !told && until == Timestamp::LATEST, "cut after {writes}: {until}");
            let active = archive.class(&admin(), "staff").await.unwrap().iter().position(|info| info.active);
            assert!(active == Some(1) || !activated && active == Some(0), "cut after {writes}: {active:?}");
            archive.close().await.unwrap();
        }
    }
}

/// A client's extension beyond the class outlives the event: taken back and told again, it ends no
/// sooner.
#[tokio::test]
async fn an_extension_outlives_an_event_that_is_taken_back() {
    let world = World::new(11);
    let archive = store(&world).await;
    active(&archive, "staff", terms(Initiation::Event, Some(30), 0, ExpiryAction::Keep)).await;
    let record = put_in(&archive, "record", Some("staff")).await.unwrap();
    archive.tell_event(&admin(), "records", "record", None, now(&archive).plus_days(5)).await.unwrap();
    let extended = now(&archive).plus_days(3650);
    let retention = Some(Retention { mode: RetentionMode::Compliance, until: extended });
    archive.set_retention(&admin(), "records", "record", None, retention, false).await.unwrap();
    let name = VersionName { bucket: "records".into(), key: "record".into(), version: Some(record.version) };
    let asked = archive.request_revocation(&officer("anna", 1), &name).await.unwrap();
    archive.approve(&officer("ben", 2), &asked.id).await.unwrap();
    let until = archive.tell_event(&admin(), "records", "record", None, Timestamp(0)).await.unwrap();
    assert!(until >= extended, "{until} is before {extended}");
}

#[tokio::test]
async fn the_canary_of_the_self_test_is_of_no_class() {
    let world = World::new(12);
    let archive = store(&world).await;
    active(&archive, "ages", terms(Initiation::Creation, Some(30_000), 0, ExpiryAction::Keep)).await;
    let bindings = Bindings { default: Some("ages".into()), ..Bindings::default() };
    archive.change_bucket(&admin(), "records", BucketChange::Classes(bindings)).await.unwrap();
    let record = put_in(&archive, "record", None).await.unwrap();
    assert_eq!(class_of(&archive, &record).await, Some(("ages".into(), 1)));
    assert!(archive.self_test(&admin(), Some("records"), None).await.unwrap().iter().all(SelfTest::passed));
    let canary = archive.why(&admin(), "records", CANARY_KEY, None).await.unwrap();
    assert_eq!(canary.class, None);
    // A client's object of that name is no canary.
    let forged = put_in(&archive, CANARY_KEY, None).await.unwrap();
    assert_eq!(class_of(&archive, &forged).await, Some(("ages".into(), 1)));
}
