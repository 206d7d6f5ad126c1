//! The catalog behind a gate: once the store is closed, no transaction passes.
//!
//! A request that outlives its server must not commit after the row with the store's end. It would
//! be acknowledged, and the next opening would append over its records.

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

    /// Commits the transaction of `last` as the last one of all. A catalog takes transactions in
    /// order, so earlier ones are decided before it, and later ones are refused. A second close is
    /// refused too.
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
        // Held until the transaction is submitted, which waits for no more than a read.
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
