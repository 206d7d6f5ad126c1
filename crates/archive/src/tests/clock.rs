//! The compliance clock beside a catalog that is busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stele_catalog::{Catalog, CatalogError, MemoryCatalog, Pending, Receipt, Snapshot, Transaction};

use super::*;

const DAY: u64 = 86_400_000;

/// A catalog that has no room in its queue while it is told so.
#[derive(Default)]
struct Crowded {
    inner: MemoryCatalog,
    busy: AtomicBool,
}

impl Catalog for Crowded {
    fn commit(&self, transaction: Transaction) -> Pending<Receipt> {
        match self.busy.load(Ordering::Relaxed) {
            true => Pending::ready(Err(CatalogError::Busy)),
            false => self.inner.commit(transaction),
        }
    }

    fn snapshot(&self) -> std::result::Result<Box<dyn Snapshot>, CatalogError> {
        self.inner.snapshot()
    }
}

/// Every freeze is in the audit log, also one that came while the catalog took nothing.
#[tokio::test]
async fn an_alarm_whose_record_was_refused_is_recorded_later() {
    let crowded = Arc::new(Crowded::default());
    let world = World { catalog: Arc::clone(&crowded) as Arc<dyn Catalog>, ..World::new(1) };
    let archive = world.create().await;
    let recorded = async || {
        let log = archive.audit_records(&admin(), 1, 1000).await.unwrap();
        log.iter().filter(|record| record.action == "ClockAlarm").count()
    };
    world.stage.set_wall(world.stage.now().wall.plus_days(1));
    crowded.busy.store(true, Ordering::Relaxed);
    assert!(archive.step().await.is_err());
    assert!(archive.clock().frozen.is_some());
    crowded.busy.store(false, Ordering::Relaxed);
    assert_eq!(recorded().await, 0);
    let report = archive.step().await.unwrap();
    assert!(report.alarms.iter().any(|alarm| alarm.kind() == "clock"), "{report:?}");
    assert_eq!(recorded().await, 1);
    // Once.
    world.stage.pass(DAY / 24);
    assert!(archive.step().await.unwrap().alarms.is_empty());
    assert_eq!(recorded().await, 1);
}
