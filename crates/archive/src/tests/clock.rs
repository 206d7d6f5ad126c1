//! The compliance clock beside a catalog that is busy.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

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

/// Other work writes the clock's row while an acceptance is committed, and its task has not heard
/// of the commit yet.
#[test]
fn an_accepted_alarm_stays_so_whatever_is_written_beside_it() {
    const ALL: usize = 1_000_000;
    for beside in ["a barrier", "a step", "a close"] {
        let (world, gate) = World::gated(3, 64 << 20, 1 << 20);
        gate.close();
        let archive = gate.drive(world.create(), ALL).unwrap();
        world.stage.set_wall(world.stage.now().wall.plus_days(1));
        while gate.drive(archive.step(), ALL).unwrap().unwrap().more {}
        gate.drive(archive.step(), ALL).unwrap().unwrap();
        assert!(archive.clock().frozen.is_some());
        // The row is due.
        world.stage.pass(31_000);
        let (store, caller) = (archive.store(), admin());
        let mut context = Context::from_waker(Waker::noop());
        let mut accepted = Box::pin(archive.accept_clock(&caller));
        assert!(accepted.as_mut().poll(&mut context).is_pending());
        let mut other: Pin<Box<dyn Future<Output = Result<()>> + '_>> = match beside {
            "a barrier" => Box::pin(store.barrier()),
            "a step" => Box::pin(async { archive.step().await.map(drop) }),
            _ => Box::pin(archive.close()),
        };
        let mut ended = None;
        while ended.is_none() {
            match other.as_mut().poll(&mut context) {
                Poll::Ready(end) => ended = Some(end),
                Poll::Pending if gate.step() => {}
                // It waits for the acceptance.
                Poll::Pending => break,
            }
        }
        gate.drive(accepted, ALL).unwrap().unwrap();
        ended.unwrap_or_else(|| gate.drive(other, ALL).unwrap()).unwrap();
        drop((store, archive));
        let archive = gate.drive(world.open(), ALL).unwrap();
        assert_eq!(archive.clock().frozen, None, "{beside}");
    }
}
