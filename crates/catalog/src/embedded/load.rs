//! Fills a fresh catalog in bulk: for a rebuild from the data volume, and for a move.
//!
//! Records may come in any order; of two records with one key, the later counts. The journal is not
//! used, and the superblock is written last. An interrupted load leaves no catalog and must start
//! again.

use std::sync::Arc;

use bytes::Bytes;
use redb::Database;
use stele_ground::MIB;
use stele_media::Handle;

use super::area::Area;
use super::base::{CHECKPOINT, Checkpoint, RECORDS};
use super::checkpoint::{begin, failed, put};
use super::journal::Position;
use super::layout::{Format, Layout, finish, prepare};
use super::memtable::Changes;
use crate::{CatalogError, KEY_MAX, Table, VALUE_MAX};

/// Largest number of bytes gathered before they are sorted and written.
const GATHERED_MAX: usize = 32 * MIB as usize;
const CACHE: usize = 128 * MIB as usize;

/// A catalog under construction. Without [`Loader::finish`], dropping it leaves no catalog.
pub struct Loader {
    handle: Handle,
    layout: Layout,
    area: Arc<Area>,
    database: Database,
    gathered: Changes,
    bytes: usize,
    records: u64,
}

impl Loader {
    /// Starts a load and wipes the volume.
    pub fn new(handle: &Handle, format: &Format) -> Result<Loader, CatalogError> {
        let layout = prepare(handle, format)?;
        let (area, database) = Area::create(handle, &layout, CACHE)?;
        let handle = handle.clone();
        Ok(Loader { handle, layout, area, database, gathered: Changes::new(), bytes: 0, records: 0 })
    }

    pub fn put(&mut self, table: Table, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Result<(), CatalogError> {
        let (key, value) = (key.into(), value.into());
        if key.len() > KEY_MAX || value.len() > VALUE_MAX || table.0 == u16::MAX {
            return Err(CatalogError::Invalid(format!(
                "a record of table {} with a key of {} and a value of {} bytes",
                table.0,
                key.len(),
                value.len()
            )));
        }
        self.bytes += key.len() + value.len();
        self.records += 1;
        self.gathered.insert((table, key), Some(value));
        if self.bytes >= GATHERED_MAX { self.write(None) } else { Ok(()) }
    }

    /// Number of records put so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    fn write(&mut self, end: Option<&Checkpoint>) -> Result<(), CatalogError> {
        let transaction = begin(&self.database)?;
        {
            let mut records = transaction.open_table(RECORDS).map_err(failed)?;
            for (at, change) in std::mem::take(&mut self.gathered) {
                put(&mut records, &at, &change)?;
            }
            if let Some(checkpoint) = end {
                records.insert(&CHECKPOINT[..], &checkpoint.encode()[..]).map_err(failed)?;
            }
        }
        self.bytes = 0;
        if self.area.overgrown() {
            transaction.abort().map_err(failed)?;
            let message = format!("{} records do not fit on this volume; give the catalog a larger one", self.records);
            return Err(CatalogError::Full(message));
        }
        transaction.commit().map_err(failed)
    }

    /// Completes the catalog: durable, and ready to be opened. Its transactions are numbered from
    /// 1.
    pub fn finish(mut self) -> Result<(), CatalogError> {
        let checkpoint = Checkpoint { journal: Position::first(&self.layout.id), commit: 0 };
        self.write(Some(&checkpoint))?;
        self.area.close();
        finish(&self.handle, &self.area)
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // redb must not write when it is dropped.
        self.area.close();
    }
}
