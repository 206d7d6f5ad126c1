//! The B-tree at one durable commit: the layer below the overlays of a view.
//!
//! All records live in one redb table, under the table's number (big-endian) and the key. Opening a
//! view therefore costs nothing, and neighbours share pages. Table 65535 is the catalog's own: it
//! holds the checkpoint.

use std::ops::Bound;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use redb::{Database, ReadOnlyTable, ReadableDatabase, StorageError, TableDefinition, TableError};

use super::area::Area;
use super::journal::Position;
use crate::catalog::Record;
use crate::range::Slices;
use crate::{CatalogError, Direction, Table};

pub(crate) const RECORDS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");
/// The key of the [`Checkpoint`] within redb.
pub(crate) const CHECKPOINT: [u8; 3] = [0xFF, 0xFF, 1];

/// One durable state of the B-tree. While it is held, its pages are not reused.
pub struct Base {
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
    area: Arc<Area>,
}

/// The part of the journal that the B-tree contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    /// Position from which replay of the journal continues.
    pub journal: Position,
    /// Number of the last transaction in the B-tree.
    pub commit: u64,
}

impl Checkpoint {
    /// Sequence, position, digest of the previous batch, commit number; integers are little-endian.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(56);
        bytes.extend_from_slice(&self.journal.sequence.to_le_bytes());
        bytes.extend_from_slice(&self.journal.at.to_le_bytes());
        bytes.extend_from_slice(&self.journal.previous);
        bytes.extend_from_slice(&self.commit.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Checkpoint, CatalogError> {
        let damaged = || CatalogError::Damaged(format!("the checkpoint record has {} bytes, not 56", bytes.len()));
        let bytes: &[u8; 56] = bytes.try_into().map_err(|_| damaged())?;
        let word =
            |at: usize| bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes);
        let mut previous = [0; 32];
        previous.copy_from_slice(&bytes[16..48]);
        Ok(Checkpoint { journal: Position { sequence: word(0), at: word(8), previous }, commit: word(48) })
    }
}

/// The key of a record within redb.
pub(crate) fn place(table: Table, key: &[u8]) -> Vec<u8> {
    let mut place = Vec::with_capacity(2 + key.len());
    place.extend_from_slice(&table.0.to_be_bytes());
    place.extend_from_slice(key);
    place
}

/// redb panics on a page that it cannot interpret. Pages come from a volume that verifies its data,
/// so the cause is a broken volume or an error in our code. In both cases the process must survive.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, CatalogError>) -> Result<T, CatalogError> {
    std::panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(CatalogError::Damaged("a page of the B-tree makes no sense; rebuild from the data volume".into()))
    })
}

impl Base {
    /// The state after the last commit.
    pub(crate) fn latest(database: &Database, area: &Arc<Area>) -> Result<Base, CatalogError> {
        const WHAT: &str = "the table of records cannot be opened";
        let transaction = database.begin_read().map_err(|error| area.explain(WHAT, &error.into_storage()))?;
        let table = transaction.open_table(RECORDS).map_err(|error| match error {
            TableError::Storage(error) => area.explain(WHAT, &error),
            error => CatalogError::Damaged(format!("{WHAT}: {error}")),
        })?;
        Ok(Base { table, area: Arc::clone(area) })
    }

    fn unreadable(&self, error: StorageError) -> CatalogError {
        self.area.explain("the B-tree cannot be read", &error)
    }

    pub(crate) fn checkpoint(&self) -> Result<Checkpoint, CatalogError> {
        match self.table.get(&CHECKPOINT[..]).map_err(|error| self.unreadable(error))? {
            Some(value) => Checkpoint::decode(value.value()),
            None => Err(CatalogError::Damaged("the B-tree has no checkpoint record".into())),
        }
    }

    pub fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, CatalogError> {
        guarded(|| {
            let found = self.table.get(&place(table, key)[..]).map_err(|error| self.unreadable(error))?;
            Ok(found.map(|value| Bytes::copy_from_slice(value.value())))
        })
    }

    /// The records of a range, lazily.
    pub(crate) fn range(
        &self,
        table: Table,
        range: Slices<'_>,
        direction: Direction,
    ) -> Result<impl Iterator<Item = Result<Record, CatalogError>> + '_, CatalogError> {
        let bound = |bound: Bound<&[u8]>, open: Bound<Vec<u8>>| match bound {
            Bound::Included(key) => Bound::Included(place(table, key)),
            Bound::Excluded(key) => Bound::Excluded(place(table, key)),
            Bound::Unbounded => open,
        };
        let low = bound(range.0, Bound::Included(place(table, &[])));
        // Table 65535 holds no records, so there is always a next table.
        let high = bound(range.1, Bound::Excluded(place(Table(table.0.saturating_add(1)), &[])));
        let slices = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
        let mut records = guarded(|| self.table.range::<&[u8]>(slices).map_err(|error| self.unreadable(error)))?;
        Ok(std::iter::from_fn(move || {
            let next = guarded(|| {
                let next = match direction {
                    Direction::Forward => records.next(),
                    Direction::Backward => records.next_back(),
                };
                let Some(record) = next else { return Ok(None) };
                let (key, value) = record.map_err(|error| self.unreadable(error))?;
                let key = Bytes::copy_from_slice(key.value().get(2..).unwrap_or_default());
                Ok(Some((key, Bytes::copy_from_slice(value.value()))))
            });
            next.transpose()
        }))
    }
}

/// Every redb error of these calls is a storage error or says that the database is gone.
trait IntoStorage {
    fn into_storage(self) -> StorageError;
}

impl IntoStorage for redb::TransactionError {
    fn into_storage(self) -> StorageError {
        match self {
            redb::TransactionError::Storage(error) => error,
            _ => StorageError::DatabaseClosed,
        }
    }
}
