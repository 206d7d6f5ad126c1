//! The catalog as an open store sees it: once the store is closed, nothing passes.
//!
//! A request that outlives its server must not commit behind the record that says where the store ended: it would be
//! acknowledged, and the next opening would append over what it stored.

use std::sync::{Arc, PoisonError, RwLock};

use stele_catalog::{Catalog, CatalogError, Pending, Receipt, Snapshot, Transaction};
use stele_media::Order;

pub(crate) struct Gate {
    catalog: Arc<dyn Catalog>,
    closed: RwLock<bool>,
}

impl Gate {
    pub fn new(catalog: Arc<dyn Catalog>) -> Arc<Gate> {
        Arc::new(Gate { catalog, closed: RwLock::new(false) })
    }

    /// Commits what `last` makes as the last transaction of all. A catalog takes transactions in order, so whatever was
    /// submitted before is decided before this one, and whatever comes later is refused. A second close is refused too.
    pub fn close(&self, last: impl FnOnce() -> Transaction) -> Pending<Receipt> {
        let mut closed = self.closed.write().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *closed, true) {
            return Pending::ready(Err(refusal()));
        }
        self.catalog.commit(last())
    }
}

impl Catalog for Gate {
    fn commit(&self, transaction: Transaction) -> Pending<Receipt> {
        // Held until the transaction is submitted, which does not wait.
        let closed = self.closed.read().unwrap_or_else(PoisonError::into_inner);
        if *closed { Pending::ready(Err(refusal())) } else { self.catalog.commit(transaction) }
    }

    fn order(&self) -> Option<Order> {
        self.catalog.order()
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, CatalogError> {
        self.catalog.snapshot()
    }
}

fn refusal() -> CatalogError {
    CatalogError::Stopped("the store has been closed".into())
}
