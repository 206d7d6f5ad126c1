//! Records of the file gateway, beside the archive's own in one catalog.
//!
//! A file and its object change in one ordered sequence of transactions, so that both are as
//! durable as each other. The gateway has tables of its own and never reads or writes another.

use std::ops::RangeInclusive;

use stele_catalog::{Catalog, CatalogError, Mutation, Pending, Precondition, Receipt, Snapshot, Table, Transaction};

use stele_media::Order;

use crate::model::error::Result;
use crate::model::time::Timestamp;
use crate::seal::derive;
use crate::store::Archive;
use zeroize::Zeroizing;

/// The numbers of tables that are the gateway's.
pub const TABLES: RangeInclusive<u16> = 64..=79;

/// The gateway's part of the catalog. Clones share it.
#[derive(Clone)]
pub struct Records {
    archive: Archive,
}

impl Archive {
    /// The catalog's tables that belong to the file gateway.
    pub fn records(&self) -> Records {
        Records { archive: self.clone() }
    }

    /// A secret of this store for the file gateway: it signs the handles of files, and stays the
    /// same over restarts.
    pub fn gateway_secret(&self) -> Zeroizing<[u8; 32]> {
        let store = self.store();
        derive(&store.master().0, "file gateway", store.id())
    }

    /// The compliance clock, by which retention ends.
    pub fn compliance_time(&self) -> Timestamp {
        self.store().compliance_now()
    }

    /// The later of the compliance clock and the wall clock: a new retention counts from it.
    pub fn retention_base(&self) -> Timestamp {
        self.store().later_now()
    }
}

impl Records {
    pub(crate) fn archive(&self) -> &Archive {
        &self.archive
    }

    /// Commits a transaction of the gateway's tables, in order with all others. One that names
    /// another table is `Invalid`.
    pub fn commit(&self, transaction: Transaction) -> Pending<Receipt> {
        let store = self.archive.store();
        if let Err(error) = store.writable() {
            return Pending::ready(Err(CatalogError::Stopped(error.to_string())));
        }
        if let Some(Table(table)) = foreign_table(&transaction) {
            let message = format!("table {table} is none of the file gateway's");
            return Pending::ready(Err(CatalogError::Invalid(message)));
        }
        store.catalog.commit(transaction)
    }

    /// The order in which transactions become durable, which they may share with writes to volumes
    /// of the same pool.
    pub fn order(&self) -> Option<Order> {
        self.archive.store().catalog.order()
    }

    pub fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.archive.store().snapshot()
    }
}

/// A table of the transaction that is none of the gateway's.
pub(crate) fn foreign_table(transaction: &Transaction) -> Option<Table> {
    tables(transaction).find(|Table(number)| !TABLES.contains(number))
}

fn tables(transaction: &Transaction) -> impl Iterator<Item = Table> + '_ {
    let required = transaction.preconditions.iter().map(|precondition| match precondition {
        Precondition::Absent { table, .. }
        | Precondition::Present { table, .. }
        | Precondition::Equals { table, .. }
        | Precondition::Digest { table, .. }
        | Precondition::Within { table, .. }
        | Precondition::Empty { table, .. } => *table,
    });
    let changed = transaction.mutations.iter().flat_map(|mutation| match mutation {
        Mutation::Put { table, .. } | Mutation::Delete { table, .. } | Mutation::Add { table, .. } => [*table; 2],
        Mutation::Append { head_table, table, .. } => [*head_table, *table],
    });
    required.chain(changed)
}
