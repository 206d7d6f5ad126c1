//! Layout: which cells make a row, and which cells are free.
//!
//! Purely in memory and synchronous; the owner of a change logs it (`Record::RowCreate` ..) or, for
//! the table's own rows, writes it into the anchor. Choosing and applying are apart, so that replay
//! applies what the log says and never chooses again:
//! - live: `choose_row` -> log `RowCreate` -> `insert_row`; `choose_spare` -> log `Replacement` ->
//!   `set_replacement`; rebuild finished: log `MemberChanged` -> `change_member`. Log and apply in
//!   one synchronous step.
//! - open: `insert_row` for every row of the pages; replay: the same calls for records at or after
//!   the cut (what is before the cut is in the pages already).
//! - a cell whose release is not durable yet must not be given away: the engine makes such changes
//!   within `withhold`, and hands the cells to `give_back` when the record is durable.
//!
//! An ordinary row never takes a drive's units below its share of the reserve; spares and the
//! table's rows may.

use std::collections::{BTreeMap, BTreeSet};

use stele_codes::Code;
use stele_ground::Dice;

use crate::drives::label::Configuration;
use crate::model::place::{DriveNumber, RowId, StripCell};

pub mod balance;
pub mod crowding;
mod moves;
pub mod row;
mod shared;
pub mod units;

use balance::Candidate;
pub use row::{Member, Row, RowClass, RowKind};
pub use shared::SharedLayout;
pub use units::UnitCount;
use units::UnitMap;

/// Rows that are begun before others are full take at most one part in so many of what is free.
const PLENTY: u64 = 16;

/// Rows, cells and reserve.
#[derive(Clone)]
pub struct Layout {
    unit_size: u64,
    seed: u64,
    spare_drives: u32,
    drives: Vec<Drive>,
    rows: BTreeMap<RowId, Row>,
    /// Rows that two drives share, by pair.
    together: Vec<u32>,
    /// Rows made since open: moves the dice on.
    made: u64,
    /// Cells that no row has and no row may take: their release is not durable yet.
    withheld: BTreeSet<StripCell>,
    withholding: bool,
}

#[derive(Clone)]
struct Drive {
    enclosure: u32,
    /// Takes new cells.
    open: bool,
    units: UnitMap,
    reserved: u32,
    rows: BTreeMap<RowId, u32>,
    /// Rows in which it is a parity member.
    parity: u32,
}

impl Drive {
    fn candidate(&self, drive: usize) -> Candidate {
        Candidate { drive, enclosure: self.enclosure, used: self.units.used(), total: self.units.total() }
    }
}

impl Layout {
    pub fn new(configuration: &Configuration) -> Layout {
        let mut layout = Layout {
            unit_size: configuration.unit_size.0,
            seed: configuration.seed,
            spare_drives: 0,
            drives: Vec::new(),
            rows: BTreeMap::new(),
            together: Vec::new(),
            made: 0,
            withheld: BTreeSet::new(),
            withholding: false,
        };
        layout.configure(configuration);
        layout
    }

    /// Takes over drive states, new drives and sizes after a configuration change.
    pub fn configure(&mut self, configuration: &Configuration) {
        self.spare_drives = configuration.spare_drives;
        let before = self.drives.len();
        for (at, entry) in configuration.drives.iter().enumerate() {
            let total = configuration.units(DriveNumber(at as u16));
            match self.drives.get_mut(at) {
                Some(drive) => {
                    drive.units.grow(total);
                    drive.open = entry.takes_more();
                    drive.enclosure = entry.enclosure;
                }
                None => self.drives.push(Drive {
                    enclosure: entry.enclosure,
                    open: entry.takes_more(),
                    units: UnitMap::new(total),
                    reserved: 0,
                    rows: BTreeMap::new(),
                    parity: 0,
                }),
            }
        }
        if self.drives.len() > before {
            self.recount_pairs();
        }
        self.share_reserve();
    }

    /// Every drive keeps its part of what the spare drives would hold, rounded up: at most half of
    /// itself. A pool that shrank to as many drives as it has spare ones would otherwise take
    /// nothing new.
    fn share_reserve(&mut self) {
        let open = self.drives.iter().filter(|drive| drive.open).count() as u64;
        let spare = u64::from(self.spare_drives).min(open / 2);
        for drive in &mut self.drives {
            let share = u64::from(drive.units.total()) * spare;
            drive.reserved =
                if drive.open { share.div_ceil(open.max(1)).min(u64::from(drive.units.total())) as u32 } else { 0 };
        }
    }

    /// A row of this class on the best drives, with a free number; none when the drives that may
    /// take it are too few. Only drives that `allowed` accepts are considered. Nothing changes.
    pub fn choose_row(&self, class: RowClass, allowed: &dyn Fn(DriveNumber) -> bool) -> Option<Row> {
        self.choose(class, allowed, class.kind == RowKind::Table)
    }

    /// As `choose_row`, for a pool that has too few drives for the class since it gave some up. As
    /// many of these as it takes get members as well, whose strips are written when the drives are
    /// replaced.
    pub fn choose_row_lacking(
        &self,
        class: RowClass,
        allowed: &dyn Fn(DriveNumber) -> bool,
        given_up: &[DriveNumber],
    ) -> Option<Row> {
        let lacking = given_up.iter().filter_map(|number| {
            let drive = self.drives.get(usize::from(number.0)).filter(|drive| drive.units.free() > 0)?;
            Some(drive.candidate(usize::from(number.0)))
        });
        let lacking: Vec<Candidate> = lacking.take(class.code.tolerates()).collect();
        let here: Vec<Candidate> = self.candidates(allowed, false).collect();
        (1..=lacking.len()).find_map(|count| self.place(class, &[&here, lacking.get(..count)?].concat()))
    }

    fn choose(&self, class: RowClass, allowed: &dyn Fn(DriveNumber) -> bool, may_reserve: bool) -> Option<Row> {
        self.place(class, &self.candidates(allowed, may_reserve).collect::<Vec<_>>())
    }

    fn place(&self, class: RowClass, candidates: &[Candidate]) -> Option<Row> {
        let mut dice = Dice::new(self.seed ^ (self.made + self.rows.len() as u64).wrapping_mul(0x9E37_79B9));
        let together = |a: usize, b: usize| self.together(a, b);
        let code = class.code;
        let mut drives = balance::choose(candidates, code.width(), code.tolerates(), &together, &mut dice)?;
        // The last strips are parity: they go to those whose share of parity is least, so that no
        // drive is the parity drive.
        let share = |drive: &usize| {
            let drive = self.drives.get(*drive);
            drive.map_or(0, |drive| (u64::from(drive.parity) << 20) / (drive.rows.len() as u64 + 1))
        };
        drives.sort_by_key(|drive| std::cmp::Reverse(share(drive)));
        let (data, parity) = drives.split_at_mut(code.data());
        dice.shuffle(data);
        dice.shuffle(parity);
        let member = |drive: usize| {
            let unit = self.drives.get(drive)?.units.first_free()?;
            Some(Member { cell: StripCell { drive: DriveNumber(drive as u16), unit }, replacement: None })
        };
        let members = drives.into_iter().map(member).collect::<Option<_>>()?;
        Some(Row { id: self.free_id(), class, members })
    }

    fn candidates<'a>(
        &'a self,
        allowed: &'a dyn Fn(DriveNumber) -> bool,
        may_reserve: bool,
    ) -> impl Iterator<Item = Candidate> + 'a {
        let room = move |drive: &Drive| {
            let kept = if may_reserve { 0 } else { drive.reserved };
            drive.units.free() > kept
        };
        let drives = self.drives.iter().enumerate();
        drives
            .filter(move |(at, drive)| drive.open && room(drive) && allowed(DriveNumber(*at as u16)))
            .map(|(at, drive)| drive.candidate(at))
    }

    /// The number that the next row gets.
    pub fn free_id(&self) -> RowId {
        match self.rows.last_key_value() {
            None => RowId(0),
            Some((last, _)) if (last.0 as usize) < self.rows.len() => RowId(last.0 + 1),
            Some(_) => {
                let gap = self.rows.keys().zip(0..).find(|(id, expected)| id.0 != *expected);
                RowId(gap.map_or(self.rows.len() as u32, |(_, expected)| expected))
            }
        }
    }

    /// Slots that could still be made in new rows of this class, without touching the reserve.
    pub fn slots_left(&self, class: RowClass) -> u64 {
        let width = class.code.width() as u64;
        let all: Vec<Candidate> = self.candidates(&|_| true, false).collect();
        let Some(limit) = balance::enclosure_limit(&all, class.code.width(), class.code.tolerates()) else { return 0 };
        // So many rows fit when every enclosure gives at most `limit`, and every drive one, to each
        // row.
        let fit = |rows: u64| {
            let mut by_enclosure: BTreeMap<u32, u64> = BTreeMap::new();
            for drive in self.drives.iter().filter(|drive| drive.open) {
                let free = u64::from(drive.units.free().saturating_sub(drive.reserved));
                *by_enclosure.entry(drive.enclosure).or_default() += free.min(rows);
            }
            by_enclosure.values().map(|free| (*free).min(rows * limit as u64)).sum::<u64>() >= rows * width
        };
        let (mut low, mut high) = (0u64, 1 << 32);
        while low + 1 < high {
            let middle = (low + high) / 2;
            if fit(middle) { low = middle } else { high = middle }
        }
        low * u64::from(self.slots_per_row(class))
    }

    /// True where so many rows of the class take but a small part of what is free, the reserve left
    /// out.
    pub fn has_plenty(&self, class: RowClass, rows: usize) -> bool {
        let free = |drive: &Drive| u64::from(drive.units.free().saturating_sub(drive.reserved));
        let all: u64 = self.drives.iter().filter(|drive| drive.open).map(free).sum();
        (rows * class.code.width()) as u64 * PLENTY <= all
    }

    /// A cell for the strips of a lost member: on a drive that holds no other member or replacement
    /// of the row, within the enclosure rule where possible, the least filled first. May use the
    /// reserve.
    pub fn choose_spare(&self, row: RowId, member: usize, allowed: &dyn Fn(DriveNumber) -> bool) -> Option<StripCell> {
        self.choose_cell(row, member, allowed, true)
    }

    /// As `choose_spare`, for a member whose drive leaves. The reserve stays as it is, and so does
    /// the enclosure rule where the drives allow it.
    pub fn choose_home(&self, row: RowId, member: usize, allowed: &dyn Fn(DriveNumber) -> bool) -> Option<StripCell> {
        let cell = self.choose_cell(row, member, allowed, false)?;
        let before = self.rows.get(&row)?;
        let mut after = before.clone();
        after.members.get_mut(member)?.replacement = Some(cell);
        let crowds = !self.within_enclosure_rule(&after) && self.within_enclosure_rule(before);
        (!crowds || !self.enclosures_allow(before.class, allowed)).then_some(cell)
    }

    fn choose_cell(
        &self,
        row: RowId,
        member: usize,
        allowed: &dyn Fn(DriveNumber) -> bool,
        may_reserve: bool,
    ) -> Option<StripCell> {
        let row = self.rows.get(&row)?;
        let others = || row.members.iter().enumerate().filter(|(at, _)| *at != member).map(|(_, member)| member);
        let in_enclosure = |enclosure: u32| {
            let here =
                |cell: StripCell| self.drives.get(usize::from(cell.drive.0)).is_some_and(|d| d.enclosure == enclosure);
            others().filter(|other| here(other.replacement.unwrap_or(other.cell))).count()
        };
        let most = row.class.code.tolerates();
        let shared = |drive: usize| {
            others().map(|other| u64::from(self.together(drive, usize::from(other.cell.drive.0)))).sum::<u64>()
        };
        let candidates = self.candidates(allowed, may_reserve);
        let best = candidates.filter(|candidate| !row.uses(DriveNumber(candidate.drive as u16)));
        let best = best.min_by_key(|candidate| {
            let crowd = in_enclosure(candidate.enclosure);
            let over = if crowd < most { 0 } else { crowd };
            (
                over,
                u64::from(candidate.used) * 1024 / u64::from(candidate.total.max(1)),
                shared(candidate.drive),
                candidate.drive,
            )
        })?;
        let unit = self.drives.get(best.drive)?.units.first_free()?;
        Some(StripCell { drive: DriveNumber(best.drive as u16), unit })
    }

    /// True when `insert_row` would take the row: for rows that were read and not made here.
    pub fn admits(&self, row: &Row) -> bool {
        let free = |cell: StripCell| {
            let units = self.drives.get(usize::from(cell.drive.0)).map(|drive| &drive.units);
            units.is_some_and(|units| cell.unit < units.total() && !units.is_taken(cell.unit))
        };
        match self.rows.get(&row.id) {
            Some(known) => known == row,
            None => {
                distinct(row) && cells(row).all(free) && cells(row).collect::<BTreeSet<_>>().len() == cells(row).count()
            }
        }
    }

    /// Takes the row's cells. The same row again changes nothing; panics when a cell belongs to
    /// another row (invariant 4), or two members share a drive (invariant 12).
    pub fn insert_row(&mut self, row: Row) {
        if let Some(known) = self.rows.get(&row.id) {
            assert_eq!(*known, row, "row {} is known otherwise", row.id.0);
            return;
        }
        for cell in cells(&row) {
            self.take(cell, row.id);
        }
        assert!(distinct(&row), "invariant 12: row {} has a drive twice", row.id.0);
        self.count_pairs(&row, 1);
        self.rows.insert(row.id, row);
        self.made += 1;
    }

    pub fn remove_row(&mut self, row: RowId) {
        let Some(row) = self.rows.remove(&row) else { return };
        self.count_pairs(&row, u32::MAX);
        for cell in cells(&row) {
            self.release(cell, row.id);
        }
    }

    /// Sets, or with none releases, a member's replacement.
    pub fn set_replacement(&mut self, row: RowId, member: usize, cell: Option<StripCell>) {
        self.alter(row, member, |member| member.replacement = cell);
    }

    /// The member's cell becomes `cell`; its former cell is released, and a replacement is cleared.
    pub fn change_member(&mut self, row: RowId, member: usize, cell: StripCell) {
        self.alter(row, member, |member| *member = Member { cell, replacement: None });
    }

    fn alter(&mut self, id: RowId, member: usize, change: impl FnOnce(&mut Member)) {
        let Some(before) = self.rows.get(&id).cloned() else { return };
        let mut after = before.clone();
        let Some(place) = after.members.get_mut(member) else { return };
        change(place);
        assert!(distinct(&after), "invariant 12: row {} would have a drive twice", id.0);
        let (old, new): (Vec<StripCell>, Vec<StripCell>) = (cells(&before).collect(), cells(&after).collect());
        self.count_pairs(&before, u32::MAX);
        for cell in old.iter().filter(|cell| !new.contains(cell)) {
            self.release(*cell, id);
        }
        for cell in new.iter().filter(|cell| !old.contains(cell)) {
            self.take(*cell, id);
        }
        self.count_pairs(&after, 1);
        self.rows.insert(id, after);
    }

    /// Makes a change whose releases are not durable yet. Answers the cells that it gave up: they
    /// stay taken until `give_back`.
    pub fn withhold(&mut self, change: impl FnOnce(&mut Layout)) -> Vec<StripCell> {
        let before = self.withheld.clone();
        self.withholding = true;
        change(self);
        self.withholding = false;
        self.withheld.difference(&before).copied().collect()
    }

    /// The release of these cells is durable: they are free.
    pub fn give_back(&mut self, cells: &[StripCell]) {
        for cell in cells {
            assert!(self.withheld.remove(cell), "invariant 4: {cell:?} is given back and was not withheld");
            if let Some(drive) = self.drives.get_mut(usize::from(cell.drive.0)) {
                drive.units.release(cell.unit);
            }
        }
    }

    pub fn row(&self, row: RowId) -> Option<&Row> {
        self.rows.get(&row)
    }

    /// The exception mask a stripe newly put into the row has: its strips go to replacements where
    /// there are any.
    pub fn fresh_exceptions(&self, row: RowId) -> u32 {
        let Some(row) = self.row(row) else { return 0 };
        let replaced = row.members.iter().enumerate().filter(|(_, member)| member.replacement.is_some());
        replaced.fold(0, |mask, (strip, _)| mask | 1 << strip)
    }

    /// In order of number.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    /// Rows with a member or replacement on the drive, in order.
    pub fn rows_on(&self, drive: DriveNumber) -> Vec<RowId> {
        self.drives.get(usize::from(drive.0)).map_or_else(Vec::new, |drive| drive.rows.keys().copied().collect())
    }

    pub fn units(&self, drive: DriveNumber) -> UnitCount {
        self.drives.get(usize::from(drive.0)).map_or_else(UnitCount::default, |drive| UnitCount {
            total: drive.units.total(),
            used: drive.units.used(),
            reserved: drive.reserved,
        })
    }

    /// Slots a row of this class has.
    pub fn slots_per_row(&self, class: RowClass) -> u32 {
        (self.unit_size / class.strip.0) as u32
    }

    /// True when the drives that may be chosen for a row of this class keep the enclosure rule.
    pub fn enclosures_allow(&self, class: RowClass, allowed: &dyn Fn(DriveNumber) -> bool) -> bool {
        let candidates: Vec<Candidate> = self.candidates(allowed, class.kind == RowKind::Table).collect();
        let most = class.code.tolerates();
        balance::enclosure_limit(&candidates, class.code.width(), most).is_some_and(|limit| limit <= most)
    }

    /// Says why a code cannot be laid out on the drives in use, or which protection it lacks there
    /// (an empty list: none).
    pub fn judge(&self, code: Code) -> Result<Vec<String>, String> {
        let open: Vec<Candidate> = self.candidates(&|_| true, true).collect();
        let (width, most) = (code.width(), code.tolerates());
        let Some(limit) = balance::enclosure_limit(&open, width, most) else {
            return Err(format!(
                "{code} needs {width} drives, and {} have room; add drives or choose a narrower code",
                open.len()
            ));
        };
        let mut lacks = Vec::new();
        if limit > most {
            lacks.push(format!(
                "{code} puts up to {limit} strips of a stripe into one enclosure and survives the loss of {most}: losing an enclosure loses data; spread the drives over more enclosures"
            ));
        }
        if open.len() == width {
            lacks.push(format!(
                "{code} uses all {width} drives: after a loss there is no drive to rebuild onto until it is replaced"
            ));
        }
        Ok(lacks)
    }

    /// Every asserted invariant, at once; for tests and scrub: distinct drives, one owner per cell,
    /// counts that agree.
    pub fn check(&self) {
        let mut owners: BTreeMap<StripCell, RowId> = BTreeMap::new();
        for row in self.rows.values() {
            assert!(distinct(row), "invariant 12: row {} has a drive twice", row.id.0);
            for cell in cells(row) {
                assert_eq!(owners.insert(cell, row.id), None, "{cell:?} has two owners");
                assert!(self.drives[usize::from(cell.drive.0)].units.is_taken(cell.unit), "{cell:?} counts as free");
            }
        }
        for (at, drive) in self.drives.iter().enumerate() {
            let owned = owners.keys().chain(&self.withheld).filter(|cell| usize::from(cell.drive.0) == at).count();
            assert_eq!(owned, drive.units.used() as usize, "drive {at} counts units that nobody owns");
        }
        let mut again = vec![0u32; self.together.len()];
        for row in self.rows.values() {
            for (a, b) in pairs(row) {
                again[a * self.drives.len() + b] += 1;
            }
        }
        assert_eq!(again, self.together, "the counts of pairs disagree with the rows");
    }

    fn together(&self, a: usize, b: usize) -> u32 {
        self.together.get(a * self.drives.len() + b).copied().unwrap_or(0)
    }

    fn take(&mut self, cell: StripCell, row: RowId) {
        let drive = self.drives.get_mut(usize::from(cell.drive.0));
        let drive = drive.unwrap_or_else(|| panic!("{cell:?} lies on no drive of the pool"));
        drive.units.take(cell.unit);
        *drive.rows.entry(row).or_default() += 1;
    }

    fn release(&mut self, cell: StripCell, row: RowId) {
        let Some(drive) = self.drives.get_mut(usize::from(cell.drive.0)) else { return };
        match self.withholding {
            true => assert!(self.withheld.insert(cell), "invariant 4: {cell:?} is given up twice"),
            false => drive.units.release(cell.unit),
        }
        if let Some(count) = drive.rows.get_mut(&row) {
            *count -= 1;
            if *count == 0 {
                drive.rows.remove(&row);
            }
        }
    }

    fn count_pairs(&mut self, row: &Row, by: u32) {
        let width = self.drives.len();
        for (a, b) in pairs(row) {
            let count = &mut self.together[a * width + b];
            *count = count.wrapping_add(by);
        }
        for member in row.members.iter().skip(row.class.code.data()) {
            let drive = &mut self.drives[usize::from(member.cell.drive.0)];
            drive.parity = drive.parity.wrapping_add(by);
        }
    }

    fn recount_pairs(&mut self) {
        self.together = vec![0; self.drives.len() * self.drives.len()];
        self.drives.iter_mut().for_each(|drive| drive.parity = 0);
        for row in std::mem::take(&mut self.rows).into_values() {
            self.count_pairs(&row, 1);
            self.rows.insert(row.id, row);
        }
    }
}

fn cells(row: &Row) -> impl Iterator<Item = StripCell> + '_ {
    row.members.iter().flat_map(|member| [Some(member.cell), member.replacement]).flatten()
}

/// Ordered pairs of different drives of a row.
fn pairs(row: &Row) -> impl Iterator<Item = (usize, usize)> + '_ {
    let drives = || cells(row).map(|cell| usize::from(cell.drive.0));
    drives().flat_map(move |a| drives().map(move |b| (a, b))).filter(|(a, b)| a != b)
}

/// No drive holds strips of two members. A member's replacement may lie on its own drive.
fn distinct(row: &Row) -> bool {
    let mut seen: BTreeMap<DriveNumber, usize> = BTreeMap::new();
    row.members.iter().enumerate().all(|(at, member)| {
        [Some(member.cell), member.replacement]
            .into_iter()
            .flatten()
            .all(|cell| *seen.entry(cell.drive).or_insert(at) == at)
    })
}

#[cfg(test)]
mod tests;
