//! Scans over the tables of the catalog.

use std::ops::Bound;

use bytes::Bytes;
use stele_catalog::{Catalog, Direction, KeyRange, Snapshot};

use crate::model::error::Result;

/// Records per read at most, and of the first one. A skip drops the records that were read too far.
const SCAN_MAX: usize = 128;
const SCAN_FIRST: usize = 16;

/// Records of a table in order, read in pages, with skips.
pub(crate) struct Scan<'a> {
    snapshot: &'a dyn Snapshot,
    table: stele_catalog::Table,
    range: KeyRange,
    page: std::vec::IntoIter<(Bytes, Bytes)>,
    ended: bool,
    /// The length of the next read. It doubles while the scan reads on.
    size: usize,
    /// Records of the page that were used, and whether a skip over others of them ended within the
    /// page.
    used: usize,
    landed: bool,
}

impl<'a> Scan<'a> {
    pub fn new(snapshot: &'a dyn Snapshot, table: stele_catalog::Table, range: KeyRange) -> Scan<'a> {
        let page = Vec::new().into_iter();
        Scan { snapshot, table, range, page, ended: false, size: SCAN_FIRST, used: 0, landed: false }
    }

    pub fn next(&mut self) -> Result<Option<(Bytes, Bytes)>> {
        loop {
            if let Some(record) = self.page.next() {
                self.used += 1;
                return Ok(Some(record));
            }
            if self.ended || self.range.is_void() {
                return Ok(None);
            }
            let page = self.snapshot.range(self.table, &self.range, self.size, Direction::Forward)?;
            self.ended = page.len() < self.size;
            self.size = (self.size * 2).min(SCAN_MAX);
            (self.used, self.landed) = (0, false);
            if let Some((last, _)) = page.last() {
                self.range = self.range.clone().after(last.clone());
            }
            self.page = page.into_iter();
        }
    }

    /// Continues at this key if it lies ahead. A scan never goes back, so no key leads it out of
    /// its range.
    pub fn skip_to(&mut self, key: Bytes) {
        let mut dropped = false;
        while let Some((ahead, _)) = self.page.as_slice().first() {
            if *ahead >= key {
                self.landed |= dropped;
                return;
            }
            self.page.next();
            dropped = true;
        }
        let is_ahead = match &self.range.low {
            Bound::Included(low) | Bound::Excluded(low) => key > *low,
            Bound::Unbounded => true,
        };
        if !self.ended && is_ahead {
            self.range = self.range.clone().from(key);
            // A listing that folds keys seeks for each prefix, and uses one record of each. One of
            // keys with many versions has several of them in a page.
            self.size = match (dropped, self.landed) {
                (false, _) => self.size,
                (true, true) => SCAN_FIRST,
                (true, false) => self.used.clamp(1, SCAN_FIRST),
            };
        }
    }
}

const PAGE: usize = 1000;

/// Every record of a table, in order.
pub(crate) fn scan(
    catalog: &dyn Catalog,
    table: stele_catalog::Table,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> Result<()> {
    let snapshot = catalog.snapshot()?;
    let mut range = KeyRange::all();
    loop {
        let records = snapshot.range(table, &range, PAGE, Direction::Forward)?;
        for (key, value) in &records {
            each(key, value)?;
        }
        match records.last() {
            Some((key, _)) if records.len() == PAGE => range = KeyRange::all().after(key.clone()),
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
