//! Makes the index of properties of a catalog that has none, or whose index says nothing any more.
//!
//! First every record of the former index is deleted, then each version gets its records, page by
//! page. Requests go on beside that, and keep the records of the versions that they change. A page
//! requires that its versions are unchanged; if one has changed, smaller pages are tried. The place
//! reached is in the catalog, so a restart goes on from there. Until the end a search reads all
//! versions below its prefix.

use std::sync::Arc;

use bytes::Bytes;
use stele_catalog::{Direction, KeyRange, Transaction};

use crate::model::error::{ArchiveError, Result};
use crate::record::properties::{INDEX, IndexRow, IndexStage, index_of};
use crate::record::version::VersionRow;
use crate::record::{PROPERTIES, SETTINGS, VERSIONS, decode, encode};
use crate::store::Store;
use crate::upkeep::background::StepReport;

/// Records that a step deletes.
const CLEARED: usize = if cfg!(test) { 7 } else { 2000 };
/// Versions of one page. The smaller ones are for a page of which another version changes each
/// time.
const PAGES: [usize; 4] = if cfg!(test) { [5, 3, 2, 1] } else { [512, 64, 8, 1] };
/// Records of one transaction: at the longest keys this is 2 MiB with its conditions.
const RECORDS: usize = if cfg!(test) { 6 } else { 512 };

impl Store {
    /// Takes the next page, if the index is not complete.
    pub(crate) async fn index_step(self: &Arc<Store>, report: &mut StepReport) -> Result<()> {
        if !self.upkeep().is_indexing_due(self.elapsed()) {
            return Ok(());
        }
        match self.index_page().await {
            Ok(true) => {
                report.more = true;
                Ok(())
            }
            Ok(false) => {
                self.upkeep().indexing_is_over();
                Ok(())
            }
            Err(error @ ArchiveError::Stopped(_)) => Err(error),
            // Searches are slow until then, and nothing else depends on it.
            Err(error) => {
                tracing::warn!("the index of searches is not complete, and the work goes on later: {error}");
                self.upkeep().index_later(self.elapsed());
                Ok(())
            }
        }
    }

    /// Does one page. False: the index is complete.
    async fn index_page(&self) -> Result<bool> {
        let Some(raw) = self.snapshot()?.get(SETTINGS, INDEX)? else {
            return Err(ArchiveError::damaged("the catalog", "the state of its index of properties is missing"));
        };
        let last = self.identity().look(|identity| identity.pairing);
        let Some(row) = IndexRow::known(Some(&raw), last) else {
            return Err(ArchiveError::damaged(
                "the catalog",
                "the state of its index of properties is of another opening",
            ));
        };
        match row.stage.clone() {
            IndexStage::Complete => return Ok(false),
            IndexStage::Clearing => self.clear_page(&raw, row).await?,
            IndexStage::Filling(after) => {
                let after = after.map(|key| Bytes::from(Vec::from(key)));
                for size in PAGES {
                    match self.fill_page(&raw, &row, after.as_ref(), size).await {
                        Err(ArchiveError::Conflict(_)) => {}
                        done => return done.map(|()| true),
                    }
                }
            }
        }
        Ok(true)
    }

    async fn clear_page(&self, raw: &Bytes, row: IndexRow) -> Result<()> {
        let records = self.snapshot()?.range(PROPERTIES, &KeyRange::all(), CLEARED, Direction::Forward)?;
        let mut transaction = Transaction::new();
        for (record, _) in &records {
            transaction = transaction.delete(PROPERTIES, record.clone());
        }
        if records.len() < CLEARED {
            let row = IndexRow { stage: IndexStage::Filling(None), ..row };
            transaction = transaction.equals(SETTINGS, INDEX, raw.clone()).put(SETTINGS, INDEX, encode(&row));
        }
        self.catalog().commit(transaction).await?;
        Ok(())
    }

    async fn fill_page(&self, raw: &Bytes, row: &IndexRow, after: Option<&Bytes>, size: usize) -> Result<()> {
        let range = match after {
            Some(after) => KeyRange::all().after(after.clone()),
            None => KeyRange::all(),
        };
        let versions = self.snapshot()?.range(VERSIONS, &range, size, Direction::Forward)?;
        // Clients need the room of the catalog more than searches do.
        let page = || Transaction::new().with_spare_room();
        let mut transaction = page();
        for (key, value) in &versions {
            let version: VersionRow = decode(VERSIONS, key, value)?;
            let records: Vec<_> = index_of(&version, key).collect();
            // A version under very many matters takes several transactions. Each requires its row.
            for records in records.chunks(RECORDS) {
                if transaction.mutations.len() + records.len() > RECORDS {
                    self.catalog().commit(std::mem::replace(&mut transaction, page())).await?;
                }
                transaction = transaction.digest(VERSIONS, key.clone(), *blake3::hash(value).as_bytes());
                for (table, record, empty) in records {
                    transaction = transaction.put(*table, record.clone(), empty.clone());
                }
            }
        }
        let stage = match versions.last() {
            Some((last, _)) if versions.len() == size => IndexStage::Filling(Some(last.to_vec().into())),
            _ => IndexStage::Complete,
        };
        if stage == IndexStage::Complete {
            tracing::info!("the index of searches is complete");
        }
        let row = IndexRow { stage, ..row.clone() };
        let transaction = transaction.equals(SETTINGS, INDEX, raw.clone()).put(SETTINGS, INDEX, encode(&row));
        Ok(self.catalog().commit(transaction).await.map(drop)?)
    }
}
