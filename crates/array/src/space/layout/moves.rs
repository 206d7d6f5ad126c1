//! Which row's stripes move next when drives were added, and whether a drive can be emptied onto
//! the others.

use std::collections::BTreeMap;

use stele_ground::{Bytes, counted};

use super::{Drive, Layout, Row, RowClass, RowKind};
use crate::drives::label::Configuration;
use crate::model::place::{DriveNumber, RowId};

/// What moving a row must gain, for each cell that goes elsewhere, in units of a drive's fill: less
/// would only shuffle.
const GAIN_MIN: u64 = 2;

/// The sum of the squares of all drives' fills is what moves make smaller: this is its growth by
/// one more unit, scaled.
fn weight(drive: &Drive, units: u64) -> u64 {
    (units << 24) / u64::from(drive.units.total().max(1))
}

impl Layout {
    /// As `choose_row`, for a row whose cells come free elsewhere soon after: for so long it may
    /// use the reserve. In a full pool there is no other way to make use of a drive that was added.
    pub fn choose_row_to_move(&self, class: RowClass, allowed: &dyn Fn(DriveNumber) -> bool) -> Option<Row> {
        self.choose(class, allowed, true)
    }

    /// The row whose stripes should move so that drives fill alike, with the least filled drives
    /// that may take them in view; none when nothing is gained any more.
    pub fn heaviest_row(&self, allowed: &dyn Fn(DriveNumber) -> bool) -> Option<RowId> {
        let load = |row: &Row| -> u64 {
            row.members.iter().filter_map(|member| self.drives.get(usize::from(member.cell.drive.0))).map(fill).sum()
        };
        let data = self.rows.values().filter(|row| row.class.kind == RowKind::Data);
        let heaviest =
            data.max_by_key(|row| (load(row) / row.members.len().max(1) as u64, std::cmp::Reverse(row.id)))?;
        let other = self.choose(heaviest.class, allowed, true)?;
        let gone = heaviest.members.iter().map(|member| member.cell.drive).filter(|drive| !other.uses(*drive));
        let come = other.members.iter().map(|member| member.cell.drive).filter(|drive| !heaviest.uses(*drive));
        let of = |drive: DriveNumber| self.drives.get(usize::from(drive.0));
        let (mut less, mut more) = (0, 0);
        for drive in gone.filter_map(of) {
            less += weight(drive, u64::from(drive.units.used()));
        }
        for drive in come.filter_map(of) {
            more += weight(drive, u64::from(drive.units.used()) + GAIN_MIN);
        }
        (less > more).then_some(heaviest.id)
    }

    /// Bytes of cells that drives hold beyond their even share: about what has to move.
    pub fn surplus(&self) -> u64 {
        let open = || self.drives.iter().filter(|drive| drive.open);
        let total: u64 = open().map(|drive| u64::from(drive.units.total())).sum();
        let used: u64 = open().map(|drive| u64::from(drive.units.used())).sum();
        let share = |drive: &Drive| (used * u64::from(drive.units.total())).div_ceil(total.max(1));
        open().map(|drive| u64::from(drive.units.used()).saturating_sub(share(drive))).sum::<u64>() * self.unit_size
    }

    /// Whether everything that lies on these drives finds other cells, under a configuration that
    /// lets them take no more. `absorbed` says of how many rows of a class the stripes fit in other
    /// rows. Err: which code does not fit.
    pub fn can_empty(
        &self,
        configuration: &Configuration,
        drives: &[DriveNumber],
        absorbed: &dyn Fn(RowClass) -> usize,
    ) -> Result<(), String> {
        let mut after = self.clone();
        after.configure(configuration);
        let rows: Vec<Row> =
            after.rows.values().filter(|row| drives.iter().any(|drive| row.uses(*drive))).cloned().collect();
        let mut emptied: BTreeMap<RowClass, usize> = BTreeMap::new();
        for (done, row) in rows.iter().enumerate() {
            let gone = emptied.entry(row.class).or_default();
            *gone += 1;
            if row.class.kind == RowKind::Data && *gone <= absorbed(row.class) {
                after.remove_row(row.id);
                continue;
            }
            let roomy = after.choose_row(row.class, &|_| true);
            let Some(other) = roomy.or_else(|| after.choose_row_to_move(row.class, &|_| true)) else {
                return Err(format!(
                    "{} of {} rows of {} find no other drives with room for them",
                    rows[done..].iter().filter(|left| left.class == row.class).count(),
                    rows.iter().filter(|all| all.class == row.class).count(),
                    row.class.code
                ));
            };
            after.insert_row(other);
            after.remove_row(row.id);
        }
        let short = |drive: &Drive| u64::from(drive.reserved.saturating_sub(drive.units.free()));
        let before = |drive: usize| self.drives.get(drive).filter(|drive| drive.open).map_or(0, short);
        let open = after.drives.iter().enumerate().filter(|(_, drive)| drive.open);
        let lacking: u64 = open.map(|(at, drive)| short(drive).saturating_sub(before(at))).sum();
        match lacking {
            0 => Ok(()),
            _ => Err(format!(
                "the rows that must move would take {} of {} of the spare space",
                counted(lacking, "unit"),
                Bytes(self.unit_size)
            )),
        }
    }
}

/// In thousandths.
fn fill(drive: &Drive) -> u64 {
    u64::from(drive.units.used()) * 1000 / u64::from(drive.units.total().max(1))
}
