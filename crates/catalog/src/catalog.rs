//! The seam that every catalog implements: commit a transaction, open a snapshot.
//!
//! Failure model: a commit that answers `Ok` is durable and every later snapshot shows it. One that
//! answers an error other than [`CatalogError::Stopped`] changed nothing, now and after a restart.
//! `Stopped` leaves open whether the transaction took place; the store accepts nothing more until it
//! is opened again, and then it shows what happened.

use bytes::Bytes;
use stele_media::Order;

use crate::{CatalogError, Direction, KeyRange, Pending, Receipt, Table, Transaction};

/// A key and its value.
pub type Record = (Bytes, Bytes);

/// An ordered record store. Shared by reference between threads; object-safe.
pub trait Catalog: Send + Sync {
    /// Queues the transaction; the answer is awaited, or waited for with [`Pending::wait`]. It is under way
    /// from this call on, whether or not the answer is ever asked for. Durable once the answer is `Ok`.
    fn commit(&self, transaction: Transaction) -> Pending<Receipt>;

    /// The order in which this catalog's commits become durable, if they share it with ports: what a port of the same order
    /// has ordered before a transaction is committed is durable if the transaction is.
    fn order(&self) -> Option<Order> {
        None
    }

    /// A consistent view of everything acknowledged so far. Cheap; holding one for hours costs space, as
    /// what it still sees cannot be freed. One that outlives its catalog may answer with errors.
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, CatalogError>;
}

/// One state of the catalog. Calls block while they read from storage: microseconds for what is in memory,
/// a drive's access time for what is not; an async caller hands long scans to a blocking thread.
pub trait Snapshot: Send + Sync {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, CatalogError>;

    /// At most `limit` records of the range, in key order or against it. To continue a scan, ask for
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
