//! Rows that break the enclosure rule: more of their strips in one enclosure than their code can
//! lose.
//!
//! A row is chosen within the rule where the drives with room allow it, and beyond it where they do
//! not: storing with less safety comes before not storing. Drives that are added, freed, replaced
//! or said to be elsewhere change what they allow.

use std::collections::BTreeMap;

use super::balance::{self, Candidate};
use super::{Drive, Layout, Member, Row, RowClass, RowKind};
use crate::model::place::{DriveNumber, RowId};

/// Rows of volumes that break the rule.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Crowding {
    /// All of them: the loss of one enclosure makes their stripes unreadable.
    pub exposed: Vec<RowId>,
    /// Those that need not: the drives in use could keep the rule. The worst come first.
    pub crowded: Vec<RowId>,
}

/// What every status asks of every row. A large pool has hundreds of thousands, so
/// [`super::shared::SharedLayout`] keeps it until the layout changes.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Survey {
    /// Rows of volumes that break the enclosure rule.
    broken: Vec<RowId>,
    /// Members with a replacement.
    pub replaced: u64,
}

impl Layout {
    /// The most strips of the row in one enclosure.
    pub fn crowd(&self, row: &Row) -> usize {
        let enclosure = |member: &Member| {
            let cell = member.replacement.unwrap_or(member.cell);
            self.drives.get(usize::from(cell.drive.0)).map_or(u32::MAX, |drive| drive.enclosure)
        };
        // Asked of every row: few comparisons cost less than a map.
        let beside = |member| row.members.iter().filter(|other| enclosure(other) == enclosure(member)).count();
        row.members.iter().map(beside).max().unwrap_or(0)
    }

    /// True when no enclosure holds more members of the row than its code can lose.
    pub fn within_enclosure_rule(&self, row: &Row) -> bool {
        self.crowd(row) <= row.class.code.tolerates()
    }

    pub fn survey(&self) -> Survey {
        let mut survey = Survey::default();
        for row in self.rows.values() {
            survey.replaced += row.members.iter().filter(|member| member.replacement.is_some()).count() as u64;
            if row.class.kind == RowKind::Data && !self.within_enclosure_rule(row) {
                survey.broken.push(row.id);
            }
        }
        survey
    }

    /// Which rows break the rule, and which of them although the `allowed` drives could keep it,
    /// whatever room they have.
    pub fn crowding(&self, survey: &Survey, allowed: &dyn Fn(DriveNumber) -> bool) -> Crowding {
        let drives = self.drives_that(allowed, |_, _| true);
        let mut kept: BTreeMap<RowClass, bool> = BTreeMap::new();
        let mut crowding = Crowding { exposed: survey.broken.clone(), crowded: Vec::new() };
        for row in survey.broken.iter().filter_map(|id| self.rows.get(id)) {
            if *kept.entry(row.class).or_insert_with(|| keep_rule(&drives, row.class)) {
                crowding.crowded.push(row.id);
            }
        }
        crowding.crowded.sort_by_key(|id| std::cmp::Reverse(self.rows.get(id).map_or(0, |row| self.crowd(row))));
        crowding
    }

    /// True when there is room for the row's stripes within the rule. There is room now, where the
    /// reserve may be used for a moment, and also without the reserve as soon as the row's own
    /// cells are free.
    pub fn can_spread(&self, row: RowId, allowed: &dyn Fn(DriveNumber) -> bool) -> bool {
        let Some(row) = self.rows.get(&row) else { return false };
        let now = self.drives_that(allowed, |_, drive| drive.units.free() > 0);
        let then = self
            .drives_that(allowed, |number, drive| drive.units.free() + u32::from(row.uses(number)) > drive.reserved);
        keep_rule(&now, row.class) && keep_rule(&then, row.class)
    }

    fn drives_that(
        &self,
        allowed: &dyn Fn(DriveNumber) -> bool,
        fit: impl Fn(DriveNumber, &Drive) -> bool,
    ) -> Vec<Candidate> {
        let drives = self.drives.iter().zip(0..).map(|(drive, at)| (DriveNumber(at), drive));
        let fit = drives.filter(|(number, drive)| drive.open && allowed(*number) && fit(*number, drive));
        fit.map(|(number, drive)| Candidate {
            drive: usize::from(number.0),
            enclosure: drive.enclosure,
            used: drive.units.used(),
            total: drive.units.total(),
        })
        .collect()
    }
}

/// Whether a row of the class on some of these drives can keep the rule.
fn keep_rule(drives: &[Candidate], class: RowClass) -> bool {
    let (width, most) = (class.code.width(), class.code.tolerates());
    balance::enclosure_limit(drives, width, most).is_some_and(|limit| limit <= most)
}
