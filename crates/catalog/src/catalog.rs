//! The interface that every catalog implements: commit a transaction, open a snapshot.
//!
//! Failure model: a commit that returns `Ok` is durable, and every later snapshot shows it. A
//! commit that returns an error other than [`CatalogError::Stopped`] changed nothing, now and after
//! a restart. After `Stopped` it is unknown whether the transaction took place. The store accepts
//! nothing more until it is opened again, and then shows the result.

use bytes::Bytes;
use stele_media::Order;

use crate::{CatalogError, Direction, KeyRange, Pending, Receipt, Table, Transaction};

/// A key and its value.
pub type Record = (Bytes, Bytes);

/// An ordered record store. Shared by reference between threads; object-safe.
pub trait Catalog: Send + Sync {
    /// Begins the transaction, for which it may read records from the volume. The caller awaits the
    /// answer, or blocks in [`Pending::wait`]. The transaction is under way from this call on, even
    /// if the answer is dropped. It is durable once the answer is `Ok`.
    fn commit(&self, transaction: Transaction) -> Pending<Receipt>;

    /// The order that this catalog's commits share with ports, if any. A write that a port of the
    /// same order has ordered before a commit is durable if the transaction is.
    fn order(&self) -> Option<Order> {
        None
    }

    /// A consistent view of everything acknowledged so far. Cheap. A view held for hours costs
    /// space, since the data it sees cannot be freed. A view that outlives its catalog may return
    /// errors.
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, CatalogError>;
}

/// One state of the catalog. Calls block while they read from storage: microseconds for data in
/// memory, otherwise a drive's access time. An async caller hands long scans to a blocking thread.
pub trait Snapshot: Send + Sync {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, CatalogError>;

    /// At most `limit` records of the range, in key order or in reverse. To continue a scan, pass
    /// [`KeyRange::after`] (or [`KeyRange::below`]) the last key seen.
    fn range(
        &self,
        table: Table,
        range: &KeyRange,
        limit: usize,
        direction: Direction,
    ) -> Result<Vec<Record>, CatalogError>;

    /// The number of the last transaction that this view contains.
    fn commit_number(&self) -> u64;

    /// How many reads of storage this thread has waited for so far, in all views. It stays the same
    /// while a call is answered from memory.
    fn waits(&self) -> u64 {
        0
    }
}

impl<C: Catalog + ?Sized> Catalog for std::sync::Arc<C> {
    fn commit(&self, transaction: Transaction) -> Pending<Receipt> {
        (**self).commit(transaction)
    }
    fn order(&self) -> Option<Order> {
        (**self).order()
    }
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, CatalogError> {
        (**self).snapshot()
    }
}

impl<C: Catalog + ?Sized> Catalog for Box<C> {
    fn commit(&self, transaction: Transaction) -> Pending<Receipt> {
        (**self).commit(transaction)
    }
    fn order(&self) -> Option<Order> {
        (**self).order()
    }
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, CatalogError> {
        (**self).snapshot()
    }
}
