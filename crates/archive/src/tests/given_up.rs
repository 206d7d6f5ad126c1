//! Changes that are given up at every point at which they wait: a rebuild of the catalog finds what
//! the catalog had.
//!
//! A note on the data volume is durable before its commit. A request that goes away in between must
//! not leave a note that only a rebuild believes: it would release a hold that stands, or admit an
//! officer whom no officer approved.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use stele_catalog::{Catalog, CatalogError, Direction, KeyRange, MemoryCatalog, Pending, Receipt, Snapshot, Table};
use stele_catalog::{Record, Transaction};

use super::*;
use crate::record::access_key::AccessKeyRow;
use crate::record::bucket::BucketRow;
use crate::record::class::ClassRow;
use crate::record::matter::MatterRow;
use crate::record::version::VersionRow;
use crate::record::{ACCESS_KEYS, BUCKETS, CLASSES, MATTERS, VERSIONS, decode, keys};
use crate::testing::{Gate, MIB, officer, put_as};

const ALL: usize = 1_000_000;

#[derive(Clone)]
struct Scene {
    key: String,
    admission: String,
    close: String,
}

type Request = Pin<Box<dyn Future<Output = ()>>>;
type Requests = Vec<(&'static str, fn(Archive, Scene) -> Request)>;

macro_rules! request {
    ($name:literal, |$archive:ident, $scene:ident| $body:expr) => {
        ($name, |$archive: Archive, $scene: Scene| -> Request {
            Box::pin(async move {
                let _ = &$scene;
                let _ = $body;
            })
        })
    };
}

fn requests() -> Requests {
    vec![
        request!("a released hold", |a, s| a.set_legal_hold(&admin(), "locked", "held", None, false).await),
        request!("a bypassed retention", |a, s| a
            .set_retention(&admin(), "locked", "governed", None, None, true)
            .await),
        request!("a release from a matter", |a, s| {
            let name = VersionName { bucket: "locked".into(), key: "listed".into(), version: None };
            a.hold_listed(&admin(), "smith", vec![name], false).await
        }),
        request!("a release of a selection", |a, s| {
            let selection = Selection { bucket: "locked".into(), ..Selection::default() };
            a.hold_selected(&admin(), "smith", selection, false).await
        }),
        request!("a closed matter", |a, s| a.approve(&officer("ben", 2), &s.close).await),
        request!("an opened matter", |a, s| a.open_matter(&admin(), "jones", "Jones v. Smith").await),
        request!("an officer admitted", |a, s| a.approve(&officer("ben", 2), &s.admission).await),
        request!("a new access key", |a, s| a.create_access_key(&admin(), "new", Rights::user("plain", "")).await),
        request!("a new officer", |a, s| a.create_access_key(&admin(), "dora", Rights::officer()).await),
        request!("a revoked access key", |a, s| a.revoke_access_key(&admin(), &s.key).await),
        request!("a changed bucket", |a, s| {
            a.change_bucket(&admin(), "plain", BucketChange::Versioning(Versioning::Enabled)).await
        }),
        request!("a new bucket", |a, s| a.create_bucket(&admin(), "fresh", NewBucket::default()).await),
        request!("a deleted bucket", |a, s| a.delete_bucket(&admin(), "empty").await),
        request!("a new class", |a, s| a.create_class(&admin(), "month", terms(30), "").await),
        request!("an activated class", |a, s| a.activate_class(&admin(), "year", None).await),
    ]
}

fn terms(days: u64) -> ClassTerms {
    ClassTerms {
        initiation: Initiation::Creation,
        retver: Some(days),
        retmin: 0,
        action: ExpiryAction::Keep,
        mode: RetentionMode::Compliance,
    }
}

async fn scene(archive: &Archive) -> Scene {
    let new = NewBucket { object_lock: true, ..NewBucket::default() };
    archive.create_bucket(&admin(), "locked", new).await.unwrap();
    for name in ["plain", "empty"] {
        archive.create_bucket(&admin(), name, NewBucket::default()).await.unwrap();
    }
    let until = archive.store().compliance_now().plus_days(900);
    for key in ["held", "governed", "listed"] {
        let request = PutRequest {
            bucket: "locked".into(),
            key: key.into(),
            legal_hold: key == "held",
            retention: (key == "governed").then_some(Retention { mode: RetentionMode::Governance, until }),
            ..PutRequest::default()
        };
        put_as(archive, &admin(), request, key.as_bytes()).await.unwrap();
    }
    archive.open_matter(&admin(), "smith", "Smith v. Jones").await.unwrap();
    archive.open_matter(&admin(), "tax", "audit of 2026").await.unwrap();
    for (matter, key) in [("smith", "listed"), ("tax", "governed")] {
        let name = VersionName { bucket: "locked".into(), key: key.into(), version: None };
        archive.hold_listed(&admin(), matter, vec![name], true).await.unwrap();
    }
    archive.create_class(&admin(), "year", terms(365), "").await.unwrap();
    let key = archive.create_access_key(&admin(), "old", Rights::user("plain", "")).await.unwrap().id;
    for name in ["anna", "ben"] {
        archive.create_access_key(&admin(), name, Rights::officer()).await.unwrap();
    }
    let admission = archive.create_access_key(&admin(), "cleo", Rights::officer()).await.unwrap().awaits.unwrap();
    let close = archive.request_close(&officer("anna", 1), "tax").await.unwrap().id;
    while archive.step().await.unwrap().more {}
    Scene { key, admission, close }
}

/// Everything that notes describe, as the catalog has it.
fn known(catalog: &dyn Catalog) -> BTreeMap<String, String> {
    let snapshot = catalog.snapshot().unwrap();
    let rows = |table| -> Vec<Record> { snapshot.range(table, &KeyRange::all(), 10_000, Direction::Forward).unwrap() };
    let mut known = BTreeMap::new();
    let mut know = |table: Table, key: &[u8], says: String| {
        let name = match table {
            VERSIONS => keys::split(key).unwrap().1,
            _ => String::from_utf8_lossy(key).into_owned(),
        };
        known.insert(format!("{} {name}", table.0), says);
    };
    for (key, raw) in rows(VERSIONS) {
        let row: VersionRow = decode(VERSIONS, &key, &raw).unwrap();
        let matters: Vec<&str> = row.matters().collect();
        know(VERSIONS, &key, format!("{:?} {matters:?} {:?}", row.retention, row.tags));
    }
    for (key, raw) in rows(BUCKETS) {
        let row: BucketRow = decode(BUCKETS, &key, &raw).unwrap();
        know(BUCKETS, &key, format!("{:?}", BucketRow { change: 0, note: Default::default(), ..row }));
    }
    for (key, raw) in rows(ACCESS_KEYS) {
        let row: AccessKeyRow = decode(ACCESS_KEYS, &key, &raw).unwrap();
        know(ACCESS_KEYS, &key, format!("{:?}", AccessKeyRow { change: 0, note: Default::default(), ..row }));
    }
    for (key, raw) in rows(MATTERS) {
        let row: MatterRow = decode(MATTERS, &key, &raw).unwrap();
        know(MATTERS, &key, format!("{:?}", MatterRow { change: 0, note: Default::default(), ..row }));
    }
    for (key, raw) in rows(CLASSES) {
        let row: ClassRow = decode(CLASSES, &key, &raw).unwrap();
        know(CLASSES, &key, format!("{:?}", ClassRow { change: 0, note: Default::default(), ..row }));
    }
    known
}

/// What follows the request before the catalog is lost.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// Background work takes its steps.
    Steps,
    /// The store is closed at once.
    Close,
    /// The power goes, and the store is opened again.
    PowerCut,
}

/// Whether the request came to its end within so many polls.
fn given_up(
    (name, request): (&str, fn(Archive, Scene) -> Request),
    polls: usize,
    then: Then,
    failures: &mut Vec<String>,
) -> bool {
    let (world, gate): (World, Gate) = World::gated(7, 32 * MIB, 256 << 10);
    gate.close();
    let archive = gate.drive(world.create(), ALL).unwrap();
    let scene = gate.drive(scene(&archive), ALL).unwrap();
    let finished = gate.drive(request(archive.clone(), scene), polls).is_some();
    match then {
        Then::Steps => gate.drive(async { while archive.step().await.unwrap().more {} }, ALL).unwrap(),
        Then::Close => gate.drive(archive.close(), ALL).unwrap().unwrap(),
        Then::PowerCut => {
            gate.cut();
            gate.close();
            drop(archive);
            world.bench.power_on();
            drop(gate.drive(world.open(), ALL).unwrap());
        }
    }
    gate.open();
    let before = known(&*world.catalog);
    let world = World { catalog: Arc::new(MemoryCatalog::new()), ..world };
    drop(gate.drive(Archive::rebuild(world.foundation(), world.options.clone()), ALL).unwrap().unwrap());
    let after = known(&*world.catalog);
    for (what, says) in &after {
        if before.get(what) != Some(says) {
            let was = before.get(what);
            failures.push(format!("{name}, given up after {polls} polls, {then:?}: {what} was {was:?}, is {says}"));
        }
    }
    for what in before.keys().filter(|what| !after.contains_key(*what)) {
        failures.push(format!("{name}, given up after {polls} polls, {then:?}: {what} is gone"));
    }
    finished
}

fn check_all(then: Then) {
    let mut failures = Vec::new();
    for (name, request) in requests() {
        let mut polls = 0;
        while !given_up((name, request), polls, then, &mut failures) {
            polls += 1;
        }
        assert!(polls > 1, "{name} never waits");
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn a_rebuild_finds_no_change_that_was_given_up() {
    check_all(Then::Steps);
}

#[test]
fn a_rebuild_finds_no_change_given_up_before_the_close() {
    check_all(Then::Close);
}

#[test]
fn a_rebuild_finds_no_change_that_a_power_cut_undid() {
    check_all(Then::PowerCut);
}

/// A close while the request still waits refuses its commit.
#[test]
fn a_rebuild_finds_no_change_that_the_close_cut_off() {
    let (world, gate): (World, Gate) = World::gated(7, 32 * MIB, 256 << 10);
    gate.close();
    let archive = gate.drive(world.create(), ALL).unwrap();
    gate.drive(scene(&archive), ALL).unwrap();
    let caller = admin();
    let mut request = Box::pin(archive.set_legal_hold(&caller, "locked", "held", None, false));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(request.as_mut().poll(&mut context).is_pending());
    gate.drive(archive.close(), ALL).unwrap().unwrap();
    let answer = gate.drive(request, ALL).unwrap();
    assert!(matches!(answer, Err(ArchiveError::Stopped(_))), "{answer:?}");
    drop(archive);
    drop(gate.drive(world.open(), ALL).unwrap());
    let world = World { catalog: Arc::new(MemoryCatalog::new()), ..world };
    let rebuilt = Archive::rebuild(world.foundation(), world.options.clone());
    let (archive, _) = gate.drive(rebuilt, ALL).unwrap().unwrap();
    let held = gate.drive(archive.legal_hold(&admin(), "locked", "held", None), ALL).unwrap().unwrap();
    assert!(held, "the hold was never released");
}

/// The segment of the note is full before the power goes, and the catalog calls other segments
/// open.
#[test]
fn a_rebuild_finds_no_change_of_an_earlier_segment() {
    let (world, gate): (World, Gate) = World::gated(7, 32 * MIB, 256 << 10);
    gate.close();
    let archive = gate.drive(world.create(), ALL).unwrap();
    gate.drive(scene(&archive), ALL).unwrap();
    let (noted_in, _) = archive.store().appender().tail().unwrap();
    assert!(gate.drive(archive.set_legal_hold(&admin(), "locked", "held", None, false), 1).is_none());
    gate.drive(put(&archive, "plain", "long", &content(1, 2 << 20)), ALL).unwrap().unwrap();
    let (open, _) = archive.store().appender().tail().unwrap();
    assert_ne!(noted_in, open);
    gate.cut();
    gate.close();
    drop(archive);
    world.bench.power_on();
    drop(gate.drive(world.open(), ALL).unwrap());
    let world = World { catalog: Arc::new(MemoryCatalog::new()), ..world };
    let rebuilt = Archive::rebuild(world.foundation(), world.options.clone());
    let (archive, _) = gate.drive(rebuilt, ALL).unwrap().unwrap();
    let held = gate.drive(archive.legal_hold(&admin(), "locked", "held", None), ALL).unwrap().unwrap();
    assert!(held, "the hold was never released");
}

/// Reclamation moves the note that takes a creation back, as long as the note of the creation may
/// be somewhere.
#[tokio::test]
async fn a_withdrawn_creation_outlives_reclamation() {
    let world = World::sized(3, 32 * MIB, 256 << 10);
    let archive = world.create().await;
    scene(&archive).await;
    let store = archive.store();
    let lock = store.lock_named::<MatterRow>("jones").await.unwrap();
    let row = MatterRow::new("Jones v. Smith".into(), Actor::Local(0), None, store.wall());
    // The name is taken between the judgement and the commit, as far as this transaction can tell.
    let taken = Transaction::new().absent(MATTERS, "smith".to_string());
    assert!(store.write_named("jones", row, taken.with_reserve(), None, lock).await.unwrap().is_err());
    let (noted_in, _) = store.appender().tail().unwrap();
    put(&archive, "plain", "long", &content(1, 1 << 20)).await.unwrap();
    store.compensate().await.unwrap();
    let (withdrawn_in, _) = store.appender().tail().unwrap();
    assert_ne!(noted_in, withdrawn_in);
    put(&archive, "plain", "longer", &content(2, 1 << 20)).await.unwrap();
    assert!(store.reclaim(withdrawn_in).await.unwrap().retired);
    world.stage.pass(86_400_000);
    assert_eq!(store.free_retired().await.unwrap(), 1);
    drop((store, archive));
    let world = World { catalog: Arc::new(MemoryCatalog::new()), ..world };
    let (archive, _) = Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap();
    let names: Vec<String> = archive.matters(&admin()).await.unwrap().into_iter().map(|matter| matter.name).collect();
    assert_eq!(names, ["smith", "tax"]);
}

/// Refuses the next commit, but not before it is told to answer.
#[derive(Default)]
struct RefusesLate {
    inner: MemoryCatalog,
    armed: std::sync::atomic::AtomicBool,
    answer: std::sync::Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Catalog for RefusesLate {
    fn commit(&self, transaction: Transaction) -> Pending<Receipt> {
        if !self.armed.swap(false, std::sync::atomic::Ordering::SeqCst) {
            return self.inner.commit(transaction);
        }
        let (answerer, pending) = Pending::channel();
        *self.answer.lock().unwrap() = Some(Box::new(move || answerer.answer(Err(CatalogError::Busy))));
        pending
    }

    fn snapshot(&self) -> std::result::Result<Box<dyn Snapshot>, CatalogError> {
        self.inner.snapshot()
    }
}

#[tokio::test]
async fn a_commit_refused_behind_a_lost_client_stays_refused() {
    let mut world = World::new(1);
    let catalog = Arc::<RefusesLate>::default();
    world.catalog = Arc::clone(&catalog) as Arc<dyn Catalog>;
    let archive = world.create().await;
    scene(&archive).await;
    {
        catalog.armed.store(true, std::sync::atomic::Ordering::SeqCst);
        let caller = admin();
        let mut request = Box::pin(archive.set_legal_hold(&caller, "locked", "held", None, false));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        while catalog.answer.lock().unwrap().is_none() {
            assert!(request.as_mut().poll(&mut context).is_pending());
        }
    }
    let answer = catalog.answer.lock().unwrap().take().unwrap();
    answer();
    while archive.step().await.unwrap().more {}
    drop(archive);
    world.catalog = Arc::new(MemoryCatalog::new());
    let (archive, _) = Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap();
    assert!(archive.legal_hold(&admin(), "locked", "held", None).await.unwrap(), "the hold could not be released");
}

#[tokio::test]
async fn a_compensation_without_room_outlives_the_close() {
    let world = World::new(1);
    let archive = world.create().await;
    scene(&archive).await;
    let found = |archive: &Archive| {
        let bucket = archive.store().buckets().by_name("locked").unwrap();
        let snapshot = archive.store().snapshot().unwrap();
        (Arc::clone(&bucket), crate::store::lookup::readable(&*snapshot, &bucket, "held", None).unwrap())
    };
    // The row changes between the note and the commit of a release, and from then on the volume
    // takes nothing more.
    let (bucket, before) = found(&archive);
    archive.set_tags(&admin(), "locked", "held", None, Tags::from([("a".into(), "b".into())])).await.unwrap();
    let lock = archive.store().lock(bucket.number, "held").await.unwrap();
    let answer = archive
        .store()
        .write_version_anew(Transaction::new(), &bucket, "held", &before, lock, None, |row| row.hold = false)
        .await
        .unwrap();
    assert!(answer.is_err());
    world.bench.set_full(true);
    archive.close().await.unwrap();
    drop(archive);
    world.bench.set_full(false);
    let archive = world.open().await;
    archive.close().await.unwrap();
    drop(archive);
    let world = World { catalog: Arc::new(MemoryCatalog::new()), ..world };
    let (archive, _) = Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap();
    assert!(archive.legal_hold(&admin(), "locked", "held", None).await.unwrap(), "the hold was never released");
}
