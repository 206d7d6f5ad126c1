//! One state of the embedded catalog: the overlays, newest first, over the B-tree.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::base::Base;
use super::memtable::{Change, Memtable};
use super::waiting;
use crate::catalog::Record;
use crate::{CatalogError, Direction, KeyRange, Snapshot, Table};

/// Number of overlay entries read beyond the requested limit, since some may be deletions: as many
/// as the limit, up to this. A seek for one record must not copy dozens. It doubles where deletions
/// use them up.
const AHEAD_MAX: usize = 64;
/// Largest number of overlay entries copied at once, since that holds a memtable's lock.
const CHUNK_MAX: usize = 1024;

/// A view is cheap to make and to clone. The overlays below `active` no longer change.
#[derive(Clone)]
pub struct View {
    pub(crate) active: Arc<Memtable>,
    pub(crate) frozen: Option<Arc<Memtable>>,
    pub(crate) base: Arc<Base>,
    /// The last transaction that the view shows.
    pub(crate) commit: u64,
}

impl View {
    fn overlays(&self) -> impl Iterator<Item = &Memtable> {
        [Some(&self.active), self.frozen.as_ref()].into_iter().flatten().map(Arc::as_ref)
    }

    pub(crate) fn find(&self, place: &(Table, Bytes)) -> Result<Option<Bytes>, CatalogError> {
        for overlay in self.overlays() {
            if let Some(change) = overlay.get(place, self.commit) {
                return Ok(change);
            }
        }
        self.base.get(place.0, &place.1)
    }

    /// The overlays' part of a range: merged, with newer entries first, up to the place where all
    /// overlays are known.
    fn overlay(
        &self,
        table: Table,
        range: &KeyRange,
        limit: usize,
        direction: Direction,
    ) -> (Vec<(Bytes, Change)>, Option<Bytes>) {
        let mut merged: Vec<(Bytes, Change)> = Vec::new();
        let mut end: Option<Bytes> = None;
        for overlay in self.overlays() {
            let chunk = overlay.chunk(table, range.as_slices(), self.commit, limit, direction);
            if chunk.more {
                let last = chunk.entries.last().map(|(key, _)| key.clone());
                end = match (end, last) {
                    (Some(one), Some(other)) => Some(if order(&one, &other, direction).is_le() { one } else { other }),
                    (one, other) => one.or(other),
                };
            }
            merged = merge(merged, chunk.entries, direction);
        }
        if let Some(end) = &end {
            merged.retain(|(key, _)| order(key, end, direction).is_le());
        }
        (merged, end)
    }
}

impl Snapshot for View {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, CatalogError> {
        self.find(&(table, Bytes::copy_from_slice(key)))
    }

    fn range(
        &self,
        table: Table,
        range: &KeyRange,
        limit: usize,
        direction: Direction,
    ) -> Result<Vec<Record>, CatalogError> {
        let mut records = Vec::new();
        let mut range = range.clone();
        let mut ahead = limit.clamp(1, AHEAD_MAX);
        while records.len() < limit && !range.is_void() && table.0 != u16::MAX {
            let wanted = (limit - records.len()).min(CHUNK_MAX) + ahead;
            let (overlay, end) = self.overlay(table, &range, wanted, direction);
            ahead = (2 * ahead).min(AHEAD_MAX);
            // Cut at the end of the known overlay entries: beyond it the B-tree alone may be
            // outdated.
            let mut part = range.clone();
            if let Some(end) = &end {
                match direction {
                    Direction::Forward => part.high = Bound::Included(end.clone()),
                    Direction::Backward => part.low = Bound::Included(end.clone()),
                }
            }
            let mut overlay = overlay.into_iter().peekable();
            let mut base = self.base.range(table, part.as_slices(), direction)?.peekable();
            while records.len() < limit {
                let side = match (overlay.peek(), base.peek()) {
                    (None, None) => break,
                    (Some(_), None) => Ordering::Less,
                    (None, Some(_)) => Ordering::Greater,
                    (Some((key, _)), Some(Ok((other, _)))) => order(key, other, direction),
                    (Some(_), Some(Err(_))) => Ordering::Greater,
                };
                if side.is_ge()
                    && let Some(record) = base.next()
                {
                    let record = record?;
                    if side.is_gt() {
                        records.push(record);
                    }
                }
                if side.is_le()
                    && let Some((key, Some(value))) = overlay.next()
                {
                    records.push((key, value));
                }
            }
            match end {
                Some(end) if direction == Direction::Forward => range = range.after(end),
                Some(end) => range = range.below(end),
                None => break,
            }
        }
        Ok(records)
    }

    fn commit_number(&self) -> u64 {
        self.commit
    }

    fn waits(&self) -> u64 {
        waiting::waits()
    }
}

fn order(left: &[u8], right: &[u8], direction: Direction) -> Ordering {
    match direction {
        Direction::Forward => left.cmp(right),
        Direction::Backward => right.cmp(left),
    }
}

/// Merges two ordered lists; of equal keys the entry in `newer` stays.
fn merge(newer: Vec<(Bytes, Change)>, older: Vec<(Bytes, Change)>, direction: Direction) -> Vec<(Bytes, Change)> {
    if newer.is_empty() {
        return older;
    }
    let mut merged = Vec::with_capacity(newer.len() + older.len());
    let (mut newer, mut older) = (newer.into_iter().peekable(), older.into_iter().peekable());
    while let (Some((left, _)), Some((right, _))) = (newer.peek(), older.peek()) {
        let side = order(left, right, direction);
        if side.is_ge() {
            let passed = older.next();
            if side.is_gt() {
                merged.extend(passed);
            }
        }
        if side.is_le() {
            merged.extend(newer.next());
        }
    }
    merged.extend(newer);
    merged.extend(older);
    merged
}
