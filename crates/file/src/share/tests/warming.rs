//! Records that must come from the drives. Callers wait for them side by side.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytes::Bytes;
use stele_catalog::{
    Catalog, CatalogError, Direction, KeyRange, MemoryCatalog, Pending, Receipt, Record, Snapshot, Table, Transaction,
};

use super::stage::{Stage, content, file};
use crate::Caller;
use crate::files::Files;
use crate::share::Share;
use crate::share::records::{ENTRIES, INODES};

thread_local! {
    static WAITS: Cell<u64> = const { Cell::new(0) };
}

/// Reads of rows and entries wait for drives, until they were read once.
#[derive(Default)]
struct Drives {
    /// Whether they do.
    cold: AtomicBool,
    read: Mutex<HashSet<Vec<u8>>>,
    /// Reads under way, and the most so far.
    under_way: Mutex<(u32, u32)>,
    changed: Condvar,
}

impl Drives {
    /// A drive answers when it has another read to do, or after a while.
    fn read(&self, table: Table, key: &[u8]) {
        let is_slow = self.cold.load(Ordering::Relaxed) && [ENTRIES, INODES].contains(&table);
        if !is_slow || !self.read.lock().unwrap().insert([&table.0.to_be_bytes(), key].concat()) {
            return;
        }
        WAITS.set(WAITS.get() + 1);
        let mut state = self.under_way.lock().unwrap();
        state.0 += 1;
        state.1 = state.1.max(state.0);
        self.changed.notify_all();
        let patience = Duration::from_secs(2);
        (state, _) = self.changed.wait_timeout_while(state, patience, |(_, most)| *most < 2).unwrap();
        state.0 -= 1;
    }
}

#[derive(Clone, Default)]
struct OnDrives {
    catalog: Arc<MemoryCatalog>,
    drives: Arc<Drives>,
}

impl Catalog for OnDrives {
    fn commit(&self, transaction: Transaction) -> Pending<Receipt> {
        self.catalog.commit(transaction)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, CatalogError> {
        Ok(Box::new(Looked { snapshot: self.catalog.snapshot()?, drives: Arc::clone(&self.drives) }))
    }
}

struct Looked {
    snapshot: Box<dyn Snapshot>,
    drives: Arc<Drives>,
}

impl Snapshot for Looked {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, CatalogError> {
        self.drives.read(table, key);
        self.snapshot.get(table, key)
    }

    fn range(
        &self,
        table: Table,
        range: &KeyRange,
        limit: usize,
        direction: Direction,
    ) -> Result<Vec<Record>, CatalogError> {
        self.snapshot.range(table, range, limit, direction)
    }

    fn commit_number(&self) -> u64 {
        self.snapshot.commit_number()
    }

    fn waits(&self) -> u64 {
        WAITS.get()
    }
}

/// A share with files `0` to `3`, none of which is in memory.
async fn cold() -> (OnDrives, Stage, Arc<Share>) {
    let catalog = OnDrives::default();
    let stage = Stage::new(1).with_catalog(Arc::new(catalog.clone()));
    let share = stage.share().await;
    for number in 0..4 {
        file(&share, &number.to_string(), &content(number, 100)).await;
    }
    drop(share);
    let share = stage.share().await;
    // The directory is in memory, as one in use is.
    share.attributes(share.root()).await.unwrap();
    catalog.drives.cold.store(true, Ordering::Relaxed);
    (catalog, stage, share)
}

#[tokio::test]
async fn lookups_wait_for_drives_side_by_side() {
    let (catalog, _stage, share) = cold().await;
    share.expect_waits();
    let find = async |name: &[u8]| share.lookup(&Caller::ROOT, share.root(), name).await;
    let (one, other) = tokio::join!(find(b"1"), find(b"2"));
    assert_ne!(one.unwrap().inode, other.unwrap().inode);
    assert_eq!(catalog.drives.under_way.lock().unwrap().1, 2);
}

#[tokio::test]
async fn a_step_that_waited_has_the_next_ones_read_first_until_they_need_not_wait() {
    let (catalog, _stage, share) = cold().await;
    let left = || share.waiting_reads.load(Ordering::Relaxed);
    // No read waits for another one here.
    catalog.drives.under_way.lock().unwrap().1 = 2;
    assert_eq!(left(), 0);
    share.lookup(&Caller::ROOT, share.root(), b"1").await.unwrap();
    let most = left();
    assert!(most > 0);
    for number in 0..most {
        share.lookup(&Caller::ROOT, share.root(), b"1").await.unwrap();
        assert_eq!(left(), most - 1 - number);
    }
    // A name that is not there must be read too.
    assert!(share.lookup(&Caller::ROOT, share.root(), b"none").await.is_err());
    assert_eq!(left(), most);
    let reads = catalog.drives.read.lock().unwrap().len();
    share.lookup(&Caller::ROOT, share.root(), b"3").await.unwrap();
    // The entry and the row, by the thread that waits; the step adds none.
    assert_eq!(catalog.drives.read.lock().unwrap().len(), reads + 2);
    assert_eq!(left(), most);
}
