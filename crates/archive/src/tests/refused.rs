//! Changes that are noted on the data volume and then refused by the catalog: no rebuild may find
//! them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use stele_catalog::Mutation::Put;
use stele_catalog::Precondition::Equals;
use stele_catalog::{Catalog, CatalogError, Failure, MemoryCatalog, Pending, Receipt, Snapshot, Transaction};

use super::*;
use crate::record::segment::SegmentUse;
use crate::record::{FREE_SLOTS, VERSIONS};
use crate::testing::MIB;

/// Refuses as many commits as it is told to, as one that has too much to do. Or it stops, with the
/// commit undone.
#[derive(Default)]
pub(super) struct Refusing {
    inner: MemoryCatalog,
    refusals: AtomicU32,
    stopped: AtomicBool,
}

impl Refusing {
    pub fn refuse(&self, times: u32) {
        self.refusals.store(times, SeqCst);
    }

    pub fn stop(&self) {
        self.stopped.store(true, SeqCst);
    }
}

impl Catalog for Refusing {
    fn commit(&self, transaction: Transaction) -> Pending<Receipt> {
        if self.stopped.load(SeqCst) {
            return Pending::ready(Err(CatalogError::Stopped("it was stopped".into())));
        }
        match self.refusals.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)) {
            Ok(_) => Pending::ready(Err(CatalogError::Busy)),
            Err(_) => self.inner.commit(transaction),
        }
    }

    fn snapshot(&self) -> std::result::Result<Box<dyn Snapshot>, CatalogError> {
        self.inner.snapshot()
    }
}

/// A store with a held version in a locked bucket, an empty bucket, and a key.
async fn scene() -> (World, Arc<Refusing>, Archive, String) {
    let mut world = World::new(1);
    let catalog = Arc::<Refusing>::default();
    world.catalog = Arc::clone(&catalog) as Arc<dyn Catalog>;
    let archive = world.create().await;
    let new = NewBucket { object_lock: true, ..NewBucket::default() };
    archive.create_bucket(&admin(), "locked", new).await.unwrap();
    archive.create_bucket(&admin(), "empty", NewBucket::default()).await.unwrap();
    let request = PutRequest { bucket: "locked".into(), key: "key".into(), legal_hold: true, ..PutRequest::default() };
    crate::testing::put_as(&archive, &admin(), request, b"record").await.unwrap();
    let key = archive.create_access_key(&admin(), "tests", Rights::all()).await.unwrap();
    (world, catalog, archive, key.id)
}

/// Releases the hold, removes the bucket and revokes the key, and is refused each time by as many
/// commits in a row.
async fn be_refused(catalog: &Refusing, archive: &Archive, key: &str, times: u32) {
    let refused = |answer: Result<()>| match answer {
        Err(ArchiveError::Busy(_)) => catalog.refusals.store(times, SeqCst),
        other => panic!("{other:?}"),
    };
    catalog.refusals.store(times, SeqCst);
    refused(archive.set_legal_hold(&admin(), "locked", "key", None, false).await.map(drop));
    refused(archive.delete_bucket(&admin(), "empty").await);
    refused(archive.revoke_access_key(&admin(), key).await);
    catalog.refusals.store(0, SeqCst);
}

async fn check_rebuilt(mut world: World, archive: Archive, key: &str) {
    drop(archive);
    world.catalog = Arc::new(MemoryCatalog::new());
    let (archive, report) = Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap();
    assert_eq!(report.findings, Vec::<String>::new());
    assert!(archive.legal_hold(&admin(), "locked", "key", None).await.unwrap(), "the hold could not be released");
    archive.bucket(&admin(), "empty").await.unwrap();
    archive.credentials(key).await.unwrap();
    assert_eq!(get(&archive, "locked", "key").await.unwrap(), b"record");
}

#[tokio::test]
async fn a_change_that_was_refused_is_not_found_by_a_rebuild() {
    let (world, catalog, archive, key) = scene().await;
    be_refused(&catalog, &archive, &key, 1).await;
    check_rebuilt(world, archive, &key).await;
}

#[tokio::test]
async fn background_work_compensates_a_refused_change() {
    let (world, catalog, archive, key) = scene().await;
    be_refused(&catalog, &archive, &key, 2).await;
    while archive.step().await.unwrap().more {}
    check_rebuilt(world, archive, &key).await;
}

#[tokio::test]
async fn a_rebuild_deletes_no_bucket_in_which_a_version_exists() {
    let (world, catalog, archive, _) = scene().await;
    put(&archive, "empty", "last", b"in time").await.unwrap();
    // The deletion as it looks where the version came behind its judgement, and the power went
    // before it was taken back.
    let bucket = archive.store().buckets().by_name("empty").unwrap();
    let mut row = bucket.row.clone();
    row.deleted = Some(archive.store().wall());
    let lock = archive.store().lock(0, "").await.unwrap();
    catalog.refusals.store(1, SeqCst);
    let refused = archive.store().write_bucket(bucket.number, row, Transaction::new(), None, lock).await.unwrap();
    assert!(refused.is_err());
    drop(archive);
    let world = World { catalog: Arc::new(MemoryCatalog::new()), ..world };
    let (archive, _) = Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap();
    assert_eq!(get(&archive, "empty", "last").await.unwrap(), b"in time");
}

/// Has no room in its queue for what frees the slots of destroyed keys.
#[derive(Default)]
struct Unsettling(MemoryCatalog);

impl Catalog for Unsettling {
    fn commit(&self, transaction: Transaction) -> Pending<Receipt> {
        let mut mutations = transaction.mutations.iter();
        match mutations.any(|mutation| matches!(mutation, Put { table, .. } if *table == FREE_SLOTS)) {
            true => Pending::ready(Err(CatalogError::Busy)),
            false => self.0.commit(transaction),
        }
    }

    fn snapshot(&self) -> std::result::Result<Box<dyn Snapshot>, CatalogError> {
        self.0.snapshot()
    }
}

#[tokio::test]
async fn a_write_that_took_place_is_answered_as_one() {
    let world = World { catalog: Arc::new(Unsettling::default()), ..World::new(2) };
    let archive = world.create().await;
    archive.create_bucket(&admin(), "plain", NewBucket::default()).await.unwrap();
    // Each overwrites the one before, whose slot is to be freed.
    for n in 0..100 {
        let stored = put(&archive, "plain", "key", &content(n, 100)).await;
        assert!(stored.is_ok(), "write {n} took place: {stored:?}");
    }
    assert_eq!(get(&archive, "plain", "key").await.unwrap(), content(99, 100));
}

#[tokio::test]
async fn a_busy_catalog_makes_no_segment_look_damaged() {
    let catalog = Arc::<Refusing>::default();
    let world = World { catalog: Arc::clone(&catalog) as Arc<dyn Catalog>, ..World::sized(3, 16 * MIB, 256 << 10) };
    let archive = world.create().await;
    archive.create_bucket(&admin(), "plain", NewBucket::default()).await.unwrap();
    for n in 0..40 {
        put(&archive, "plain", &format!("key {n}"), &content(n, 20_000)).await.unwrap();
    }
    let store = archive.store();
    let sealed = store.segments().rows().into_iter().find(|(_, row)| row.usage == SegmentUse::Sealed);
    let (segment, _) = sealed.expect("a full segment");
    catalog.refuse(1);
    let refused = store.reclaim(segment).await;
    assert!(matches!(refused, Err(ArchiveError::Busy(_))), "{refused:?}");
    assert!(!store.upkeep().is_unmovable(segment));
    assert!(store.reclaim(segment).await.unwrap().retired);
    for n in 0..40 {
        assert_eq!(get(&archive, "plain", &format!("key {n}")).await.unwrap(), content(n, 20_000));
    }
}

/// Refuses changes of versions that exist, as if each were changed by another request at once.
#[derive(Default)]
struct Contending {
    inner: MemoryCatalog,
    contended: AtomicBool,
}

impl Catalog for Contending {
    fn commit(&self, transaction: Transaction) -> Pending<Receipt> {
        let is_version = |condition: &_| matches!(condition, Equals { table, .. } if *table == VERSIONS);
        let precondition = transaction.preconditions.iter().position(is_version);
        match precondition.filter(|_| self.contended.load(SeqCst)) {
            Some(precondition) => Pending::ready(Err(CatalogError::Failed(Failure { precondition, found: None }))),
            None => self.inner.commit(transaction),
        }
    }

    fn snapshot(&self) -> std::result::Result<Box<dyn Snapshot>, CatalogError> {
        self.inner.snapshot()
    }
}

#[tokio::test]
async fn a_record_that_changed_while_it_was_moved_is_moved_later() {
    let catalog = Arc::<Contending>::default();
    let world = World { catalog: Arc::clone(&catalog) as Arc<dyn Catalog>, ..World::sized(4, 16 * MIB, 256 << 10) };
    let archive = world.create().await;
    archive.create_bucket(&admin(), "plain", NewBucket::default()).await.unwrap();
    for n in 0..40 {
        put(&archive, "plain", &format!("key {n}"), &content(n, 20_000)).await.unwrap();
    }
    let kept = |n: &u64| n.is_multiple_of(8);
    for n in (0..40).filter(|n| !kept(n)) {
        let request = DeleteRequest { bucket: "plain".into(), key: format!("key {n}"), ..DeleteRequest::default() };
        archive.delete(&admin(), request).await.unwrap();
    }
    let steps = async || {
        let mut moved = 0;
        loop {
            let report = archive.step().await.unwrap();
            assert_eq!(report.alarms, [], "a conflict is no damage");
            moved += report.moved;
            if !report.more {
                return moved;
            }
        }
    };
    catalog.contended.store(true, SeqCst);
    assert_eq!(steps().await, 0);
    assert_eq!(archive.store().upkeep().unmovable(), BTreeSet::new());
    catalog.contended.store(false, SeqCst);
    assert_eq!(steps().await, 0, "it is tried later, not at once");
    world.stage.pass(2 * 60_000);
    assert!(steps().await > 0);
    for n in (0..40).filter(kept) {
        assert_eq!(get(&archive, "plain", &format!("key {n}")).await.unwrap(), content(n, 20_000));
    }
}
