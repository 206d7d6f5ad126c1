//! Layout: which cells make a row, and which cells are free.
//!
//! Purely in memory and synchronous; the owner of a change logs it (`Record::RowCreate` ..) or, for the table's own rows,
//! writes it into the anchor. Choosing and applying are apart, so that replay applies what the log says and
//! never chooses again:
//! - live: `choose_row` -> log `RowCreate` -> `insert_row`; `choose_spare` -> log `Replacement` -> `set_replacement`;
//!   rebuild finished: log `MemberChanged` -> `change_member`.
//! - replay and open: `insert_row`, `set_replacement`, `change_member`, `remove_row` only. All are idempotent.
//!
//! An ordinary row never takes a drive's units below its share of the reserve; spares do.

use std::collections::BTreeMap;

use stele_codes::Code;
use stele_ground::{Bytes, Dice};

use crate::DigestUnit;
use crate::codec::{Reader, Writer};
use crate::label::Configuration;
use crate::place::{Cell, DriveNumber, RowId};

pub mod balance;
pub mod row;
pub mod units;

pub use row::{Member, Row, RowClass, RowKind};

/// Rows, cells and reserve.
pub struct Layout {
    _todo: (),
}

/// Units of a drive.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct UnitCount {
    pub total: u32,
    pub used: u32,
    /// Its share of the reserve.
    pub reserved: u32,
}

impl Layout {
    pub fn new(_configuration: &Configuration) -> Layout {
        todo!()
    }

    /// Takes over drive states, new drives and sizes after a configuration change.
    pub fn configure(&mut self, _configuration: &Configuration) {
        todo!()
    }

    /// A row of this class on the best drives, with a free number; none when the drives that may take it are too few.
    /// Only drives that `allowed` accepts are considered. Nothing changes.
    pub fn choose_row(&self, _class: RowClass, _allowed: &dyn Fn(DriveNumber) -> bool) -> Option<Row> {
        todo!()
    }

    /// Slots that could still be made in rows of this class, without touching the reserve (an estimate from below).
    pub fn slots_left(&self, _class: RowClass) -> u64 {
        todo!()
    }

    /// A cell for the strips of a lost member: on a drive that holds no other member or replacement of the row, within the
    /// enclosure rule where possible, the least used first. May use the reserve.
    pub fn choose_spare(&self, _row: RowId, _member: usize, _allowed: &dyn Fn(DriveNumber) -> bool) -> Option<Cell> {
        todo!()
    }

    /// Takes the row's cells. Idempotent; panics when a cell belongs to another row (invariant 4).
    pub fn insert_row(&mut self, _row: Row) {
        todo!()
    }

    pub fn remove_row(&mut self, _row: RowId) {
        todo!()
    }

    /// Sets, or with none releases, a member's replacement.
    pub fn set_replacement(&mut self, _row: RowId, _member: usize, _cell: Option<Cell>) {
        todo!()
    }

    /// The member's cell becomes `cell`; its former cell is released, and a replacement is cleared.
    pub fn change_member(&mut self, _row: RowId, _member: usize, _cell: Cell) {
        todo!()
    }

    pub fn row(&self, _row: RowId) -> Option<&Row> {
        todo!()
    }

    /// In order of number.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        std::iter::empty()
    }

    /// Rows with a member or replacement on the drive, in order.
    pub fn rows_on(&self, _drive: DriveNumber) -> Vec<RowId> {
        todo!()
    }

    pub fn units(&self, _drive: DriveNumber) -> UnitCount {
        todo!()
    }

    /// Slots a row of this class has.
    pub fn slots_per_row(&self, _class: RowClass) -> u32 {
        todo!()
    }

    /// True when every enclosure holds at most m members of the row.
    pub fn within_enclosure_rule(&self, _row: &Row) -> bool {
        todo!()
    }

    /// Says why a code cannot be laid out on these drives, or which protection it lacks there (an empty list: none).
    pub fn judge(&self, _code: Code) -> Result<Vec<String>, String> {
        todo!()
    }

    /// Every asserted invariant, at once; for tests and scrub: distinct drives, one owner per cell, counts that agree.
    pub fn check(&self) {
        todo!()
    }
}
