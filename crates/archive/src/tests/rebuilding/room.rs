//! A rebuild into a catalog that takes no large transactions.

use std::sync::atomic::{AtomicU64, Ordering};

use stele_catalog::{CatalogError, Pending, Receipt, Snapshot};

use super::*;

/// Changes of a transaction that this catalog takes.
const CHANGES: usize = 200;

/// A nearly full catalog: a transaction counts at its worst case.
#[derive(Default)]
struct Narrow {
    inner: MemoryCatalog,
    refused: AtomicU64,
}

impl Catalog for Narrow {
    fn commit(&self, transaction: Transaction) -> Pending<Receipt> {
        if transaction.mutations.len() > CHANGES {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Pending::ready(Err(CatalogError::Full("a test".into())));
        }
        self.inner.commit(transaction)
    }

    fn snapshot(&self) -> std::result::Result<Box<dyn Snapshot>, CatalogError> {
        self.inner.snapshot()
    }
}

#[tokio::test]
async fn a_rebuild_divides_what_finds_no_room_at_once() {
    let world = World::sized(51, 16 * MIB, SEGMENT);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "locked", locked_bucket()).await.unwrap();
    for number in 0..150 {
        retained(&archive, &format!("key {number}"), 400, 100).await;
    }
    archive.close().await.unwrap();
    drop(archive);
    let narrow = Arc::new(Narrow::default());
    let world = World { catalog: Arc::clone(&narrow) as Arc<dyn Catalog>, ..world };
    let (archive, report) = rebuild(&world, Rebuild::default()).await.unwrap();
    assert!(narrow.refused.load(Ordering::Relaxed) > 0);
    assert_eq!(report.versions, 150);
    for number in 0..150 {
        let kept = archive.retention(&admin(), "locked", &format!("key {number}"), None).await.unwrap();
        assert_eq!(kept.mode, RetentionMode::Compliance);
    }
}
