//! Places for pages: the table's own rows, cut into pages.
//!
//! A place is given out once and comes back when no anchor that could be opened refers to it any more. Places are given in
//! order within a row, so that a checkpoint writes long runs.

use std::collections::BTreeMap;

use crate::layout::units::Units;
use crate::place::RowId;

/// A page's worth of a table row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    pub row: RowId,
    pub index: u32,
}

impl Place {
    pub fn packed(self) -> u64 {
        u64::from(self.row.0) << 32 | u64::from(self.index)
    }

    pub fn unpack(packed: u64) -> Place {
        Place { row: RowId((packed >> 32) as u32), index: packed as u32 }
    }
}

/// Which places are taken.
#[derive(Default)]
pub struct Space {
    rows: BTreeMap<RowId, Units>,
}

impl Space {
    pub fn add_row(&mut self, row: RowId, places: u32) {
        self.rows.insert(row, Units::new(places));
    }

    pub fn rows(&self) -> impl Iterator<Item = RowId> + '_ {
        self.rows.keys().copied()
    }

    pub fn is_used(&self, row: RowId) -> bool {
        self.rows.get(&row).is_some_and(|units| units.used() > 0)
    }

    pub fn contains(&self, place: Place) -> bool {
        self.rows.get(&place.row).is_some_and(|units| place.index < units.total())
    }

    /// Free places in rows that `fit`.
    pub fn free(&self, fit: &dyn Fn(RowId) -> bool) -> u64 {
        self.rows.iter().filter(|(row, _)| fit(**row)).map(|(_, units)| u64::from(units.free())).sum()
    }

    /// The next free place in rows that `fit`, the lowest row first.
    pub fn take(&mut self, fit: &dyn Fn(RowId) -> bool) -> Option<Place> {
        let (row, units) = self.rows.iter_mut().find(|(row, units)| units.free() > 0 && fit(**row))?;
        let index = units.first_free()?;
        units.take(index);
        Some(Place { row: *row, index })
    }

    /// Marks a place as taken; false when it does not exist or has an owner already.
    pub fn claim(&mut self, place: Place) -> bool {
        let Some(units) = self.rows.get_mut(&place.row) else { return false };
        let free = place.index < units.total() && !units.is_taken(place.index);
        if free {
            units.take(place.index);
        }
        free
    }

    pub fn release(&mut self, place: Place) {
        let units = self.rows.get_mut(&place.row);
        units.unwrap_or_else(|| panic!("{place:?} lies in no row of the table")).release(place.index);
    }

    pub fn used(&self) -> u64 {
        self.rows.values().map(|units| u64::from(units.used())).sum()
    }
}
