//! An overlay: the changes committed since a checkpoint, by key and by commit, in memory.
//!
//! A key has one version for each commit that changed it, so that an older view still reads its own
//! state. The store bounds the size of the overlay: it freezes the overlay and writes it into the
//! B-tree.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{PoisonError, RwLock};

use bytes::Bytes;

use crate::range::Slices;
use crate::{Direction, Table};

type Place = (Table, Bytes);

/// A record's new value; `None` deletes it.
pub(crate) type Change = Option<Bytes>;
/// Changes by place.
pub(crate) type Changes = BTreeMap<(Table, Bytes), Change>;

/// Approximate memory of a version besides its bytes.
const ENTRY_BYTES: usize = 96;

#[derive(Default)]
pub(crate) struct Memtable {
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    versions: BTreeMap<(Table, Bytes), Vec<Version>>,
    size: Size,
}

/// The estimated costs of a memtable.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Size {
    /// Memory, in bytes.
    pub bytes: usize,
    /// Largest number of B-tree pages that writing it may take: the leaf, half of a split, a part
    /// of the path.
    pub pages: u64,
}

struct Version {
    commit: u64,
    change: Change,
}

/// A part of a range: entries in order, and whether more entries may follow the last one.
pub(crate) struct Chunk {
    pub entries: Vec<(Bytes, Change)>,
    pub more: bool,
}

impl Memtable {
    /// Adds the changes of one batch; `commit` is the batch's last transaction.
    pub fn add(&self, changes: Changes, commit: u64) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let State { versions, size } = &mut *state;
        for (place, change) in changes {
            let length = change.as_ref().map_or(0, Bytes::len);
            size.bytes += ENTRY_BYTES + place.1.len() + length;
            let versions = versions.entry(place).or_default();
            if versions.is_empty() {
                size.pages += 3;
            }
            // Large values have pages of their own, rounded up to a power of two.
            size.pages += 2 * (length as u64 / super::layout::BLOCK);
            versions.push(Version { commit, change });
        }
    }

    pub fn size(&self) -> Size {
        self.state.read().unwrap_or_else(PoisonError::into_inner).size
    }

    /// The value of the key at `commit`; `None` if it has no version that old here, so that a lower
    /// layer decides.
    pub fn get(&self, place: &(Table, Bytes), commit: u64) -> Option<Change> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.versions.get(place).and_then(|versions| at(versions, commit))
    }

    /// The first `limit` entries of the range at `commit`, including deletions.
    pub fn chunk(&self, table: Table, range: Slices<'_>, commit: u64, limit: usize, direction: Direction) -> Chunk {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let mut range = state.versions.range(places(table, range));
        let mut entries = Vec::new();
        loop {
            if entries.len() == limit {
                return Chunk { entries, more: true };
            }
            let next = match direction {
                Direction::Forward => range.next(),
                Direction::Backward => range.next_back(),
            };
            let Some(((_, key), versions)) = next else { return Chunk { entries, more: false } };
            if let Some(change) = at(versions, commit) {
                entries.push((key.clone(), change));
            }
        }
    }

    /// The latest change of up to `limit` keys after `after`, in order.
    pub fn latest(&self, after: Option<&(Table, Bytes)>, limit: usize) -> Vec<((Table, Bytes), Change)> {
        let low = after.map_or(Bound::Unbounded, Bound::Excluded);
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let range = state.versions.range((low, Bound::Unbounded)).take(limit);
        range.filter_map(|(place, versions)| Some((place.clone(), versions.last()?.change.clone()))).collect()
    }
}

/// A range of keys of the table as a range of places. The range must not be void.
pub(crate) fn places(table: Table, range: Slices<'_>) -> (Bound<Place>, Bound<Place>) {
    let key = |key: &[u8]| (table, Bytes::copy_from_slice(key));
    let low = match range.0 {
        Bound::Included(low) => Bound::Included(key(low)),
        Bound::Excluded(low) => Bound::Excluded(key(low)),
        Bound::Unbounded => Bound::Included(key(&[])),
    };
    let high = match range.1 {
        Bound::Included(high) => Bound::Included(key(high)),
        Bound::Excluded(high) => Bound::Excluded(key(high)),
        Bound::Unbounded => Bound::Excluded((Table(table.0.saturating_add(1)), Bytes::new())),
    };
    (low, high)
}

fn at(versions: &[Version], commit: u64) -> Option<Change> {
    versions.iter().rev().find(|version| version.commit <= commit).map(|version| version.change.clone())
}
