use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use stele_catalog::{CatalogError, MemoryCatalog, Record, Table, Transaction};

use super::*;

const TABLE: Table = Table(1);

/// A snapshot that counts what is read.
struct Counting {
    inner: Box<dyn Snapshot>,
    reads: AtomicUsize,
    records: AtomicUsize,
}

impl Snapshot for Counting {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, CatalogError> {
        self.inner.get(table, key)
    }

    fn range(
        &self,
        table: Table,
        range: &KeyRange,
        limit: usize,
        direction: Direction,
    ) -> Result<Vec<Record>, CatalogError> {
        let page = self.inner.range(table, range, limit, direction)?;
        self.reads.fetch_add(1, Relaxed);
        self.records.fetch_add(page.len(), Relaxed);
        Ok(page)
    }

    fn commit_number(&self) -> u64 {
        self.inner.commit_number()
    }
}

/// Groups of records, in a catalog.
fn groups(count: usize, of: usize) -> Counting {
    let catalog = MemoryCatalog::new();
    for group in 0..count {
        let puts = (0..of).map(|n| format!("{group:04}/{n:04}"));
        let all = puts.fold(Transaction::new(), |all, key| all.put(TABLE, key, Bytes::from_static(b"value")));
        catalog.commit(all).wait().unwrap();
    }
    Counting { inner: catalog.snapshot().unwrap(), reads: AtomicUsize::new(0), records: AtomicUsize::new(0) }
}

/// What a listing reads for groups of records of which it uses the first `used`, then skipping the
/// rest.
#[test]
fn a_scan_reads_little_more_than_what_it_uses() {
    // Groups, records of each, records used of each; the most reads and records.
    for (count, of, used, reads, records) in [
        (200, 200, 1, 220, 420),
        (200, 200, 3, 420, 1020),
        // One read has several groups.
        (200, 10, 1, 140, 2100),
        (200, 2, 1, 40, 800),
        (2000, 1, 1, 30, 2100),
        (20, 200, 200, 80, 4400),
    ] {
        let snapshot = groups(count, of);
        let mut scan = Scan::new(&snapshot, TABLE, KeyRange::all());
        for group in 0..count {
            for n in 0..used {
                let (key, _) = scan.next().unwrap().unwrap();
                assert_eq!(key, format!("{group:04}/{n:04}"), "{count} groups of {of}, {used} used");
            }
            scan.skip_to(format!("{group:04}0").into());
        }
        assert_eq!(scan.next().unwrap(), None);
        let read = (snapshot.reads.load(Relaxed), snapshot.records.load(Relaxed));
        assert!(read.0 <= reads && read.1 <= records, "{count} groups of {of}, {used} used: {read:?}");
    }
}
