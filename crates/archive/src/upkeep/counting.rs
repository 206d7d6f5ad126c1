//! Counts the needed bytes of each segment again.
//!
//! The counts choose the segments to reclaim. They change in memory and are written at intervals,
//! so after a kill they lack what the last seconds took off them. A store that is killed again and
//! again would look ever fuller. A count therefore begins when an opening follows no orderly close,
//! and when a scrub ends.
//!
//! It reads one view of the catalog, page by page. Changes go on meanwhile, and are added to what
//! the view shows.

use std::collections::BTreeMap;
use std::sync::Arc;

use stele_catalog::{Direction, KeyRange};

use crate::model::error::Result;
use crate::record::segment::SegmentUse;
use crate::space::places::{REFERRING, referred};
use crate::state::count::Count;
use crate::store::Store;
use crate::upkeep::background::StepReport;

/// Rows of one page.
const PAGE: usize = if cfg!(test) { 5 } else { 4096 };
/// Elapsed milliseconds for which a count keeps its view. Behind that it goes on with a new one,
/// since the catalog cannot free what a view sees. The count is then about right.
const VIEW_MAX: u64 = 600_000;

impl Store {
    /// Begins a count, in place of one under way.
    pub(crate) fn count_again(&self) -> Result<()> {
        let before = self.segments().rows();
        let view = self.snapshot()?;
        let taken = self.elapsed();
        self.upkeep().put_count(Count { view, taken, before, table: 0, after: None, found: BTreeMap::new() });
        Ok(())
    }

    /// Counts one page further, if a count is under way.
    pub(crate) fn count_step(self: &Arc<Store>, report: &mut StepReport) {
        let Some(mut count) = self.upkeep().take_count() else { return };
        match count.read_page(self) {
            Ok(true) => {
                self.upkeep().put_count(count);
                report.more = true;
            }
            Ok(false) => self.correct_counts(&count),
            // Damage that reads and scrubs report. The next scrub counts again.
            Err(error) => tracing::warn!("the needed bytes of the segments were not counted again: {error}"),
        }
    }

    fn correct_counts(&self, count: &Count) {
        for (number, before) in &count.before {
            if !matches!(before.usage, SegmentUse::Open | SegmentUse::Sealed) {
                continue;
            }
            let found = count.found.get(number).copied().unwrap_or(0);
            self.segments().change(*number, |row| {
                if row.incarnation == before.incarnation {
                    // What no row refers to is counted where it is written, and never less.
                    row.live = (found + i64::from(before.kept) + row.live - before.live).max(0);
                }
            });
        }
        self.upkeep().clear_crowded();
    }
}

impl Count {
    /// False: all is read.
    fn read_page(&mut self, store: &Store) -> Result<bool> {
        if store.elapsed().saturating_sub(self.taken) > VIEW_MAX {
            (self.view, self.taken) = (store.snapshot()?, store.elapsed());
        }
        let mut left = PAGE;
        while let Some(table) = REFERRING.get(self.table).copied() {
            let range = self.after.take().map_or_else(KeyRange::all, |after| KeyRange::all().after(after));
            let page = self.view.range(table, &range, left, Direction::Forward)?;
            for (key, value) in &page {
                for place in referred(table, key, value)? {
                    *self.found.entry(place.segment).or_insert(0) += i64::from(place.length);
                }
            }
            if page.len() < left {
                left -= page.len();
                self.table += 1;
            } else {
                self.after = page.into_iter().next_back().map(|(key, _)| key);
                return Ok(true);
            }
        }
        Ok(false)
    }
}
