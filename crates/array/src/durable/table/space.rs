//! Places for pages: the table's own rows, cut into pages.
//!
//! A place is given out once and comes back when no anchor that could be opened refers to it any
//! more. Places are given from the longest free runs, so that a checkpoint writes few runs, and
//! short gaps are left until they have grown together. With the lowest places first, checkpoints of
//! random writes soon consist of single pages, four drive writes each.

use std::collections::BTreeMap;

use crate::model::place::RowId;
use crate::space::layout::units::UnitMap;

/// A page's worth of a table row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PagePlace {
    pub row: RowId,
    pub index: u32,
}

impl PagePlace {
    pub fn packed(self) -> u64 {
        u64::from(self.row.0) << 32 | u64::from(self.index)
    }

    pub fn unpack(packed: u64) -> PagePlace {
        PagePlace { row: RowId((packed >> 32) as u32), index: packed as u32 }
    }
}

/// Which places are taken.
#[derive(Default)]
pub struct PageSpace {
    rows: BTreeMap<RowId, UnitMap>,
}

impl PageSpace {
    pub fn add_row(&mut self, row: RowId, places: u32) {
        self.rows.insert(row, UnitMap::new(places));
    }

    pub fn rows(&self) -> impl Iterator<Item = RowId> + '_ {
        self.rows.keys().copied()
    }

    pub fn is_used(&self, row: RowId) -> bool {
        self.rows.get(&row).is_some_and(|units| units.used() > 0)
    }

    pub fn contains(&self, place: PagePlace) -> bool {
        self.rows.get(&place.row).is_some_and(|units| place.index < units.total())
    }

    /// Free places in rows that `fit`.
    pub fn free(&self, fit: &dyn Fn(RowId) -> bool) -> u64 {
        self.rows.iter().filter(|(row, _)| fit(**row)).map(|(_, units)| u64::from(units.free())).sum()
    }

    /// So many free places in rows that `fit`, from the longest runs, in order; none when there are
    /// not as many.
    pub fn take(&mut self, wanted: usize, fit: &dyn Fn(RowId) -> bool) -> Option<Vec<PagePlace>> {
        if wanted == 0 {
            return Some(Vec::new());
        }
        let rows = || self.rows.iter().filter(|(row, units)| units.free() > 0 && fit(**row));
        let all =
            || rows().flat_map(|(row, units)| units.free_runs().map(move |(first, length)| (length, *row, first)));
        // Of a large table only the runs that are long enough to be among those taken are sorted.
        let mut places: BTreeMap<u32, usize> = BTreeMap::new();
        all().for_each(|(length, ..)| *places.entry(length).or_default() += length as usize);
        let mut found = 0;
        let least = places.iter().rev().find_map(|(length, places)| {
            found += places;
            (found >= wanted).then_some(*length)
        })?;
        let mut runs: Vec<(u32, PagePlace)> = all()
            .filter(|(length, ..)| *length >= least)
            .map(|(length, row, index)| (length, PagePlace { row, index }))
            .collect();
        runs.sort_unstable_by_key(|(length, first)| (std::cmp::Reverse(*length), *first));
        let places = runs.into_iter().flat_map(|(length, first)| {
            (first.index..first.index + length).map(move |index| PagePlace { row: first.row, index })
        });
        let mut taken: Vec<PagePlace> = places.take(wanted).collect();
        for place in &taken {
            if let Some(units) = self.rows.get_mut(&place.row) {
                units.take(place.index);
            }
        }
        taken.sort_unstable();
        Some(taken)
    }

    /// Marks a place as taken; false when it does not exist or has an owner already.
    pub fn claim(&mut self, place: PagePlace) -> bool {
        let Some(units) = self.rows.get_mut(&place.row) else { return false };
        let free = place.index < units.total() && !units.is_taken(place.index);
        if free {
            units.take(place.index);
        }
        free
    }

    pub fn release(&mut self, place: PagePlace) {
        let units = self.rows.get_mut(&place.row);
        units.unwrap_or_else(|| panic!("{place:?} lies in no row of the table")).release(place.index);
    }

    pub fn used(&self) -> u64 {
        self.rows.values().map(|units| u64::from(units.used())).sum()
    }
}

#[cfg(test)]
mod tests;
