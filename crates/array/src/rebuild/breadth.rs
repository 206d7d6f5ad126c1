//! How many rows the rebuild works on at once, and how much may not be lost any further.
//!
//! A row keeps its own drives busy and no others: for all drives to take part, and for a rebuild to be the faster the more
//! drives there are, several rows are worked on side by side. They are always of one urgency: nothing that can wait takes
//! a turn from what cannot.

use std::collections::BTreeSet;

use super::{Need, Task};
use crate::engine::Engine;
use crate::layout::{Row, RowKind};
use crate::place::{Cell, RowId};

/// Rows worked on at once, at most.
const ROWS_MAX: usize = 32;

impl Engine {
    /// The most urgent tasks that are worked on side by side: as urgent as the first, each of another row.
    pub(super) fn side_by_side(&self, tasks: &[Task]) -> Vec<Task> {
        let Some(first) = tasks.first() else { return Vec::new() };
        let width = self.space.row_class(first.row).map_or(1, |class| class.code.width());
        // Twice as many rows as fit side by side, so that a drive always has a request waiting behind the one it serves.
        let most = (2 * self.drives.labels.usable().len() / width.max(1)).clamp(1, ROWS_MAX);
        let mut rows: BTreeSet<RowId> = BTreeSet::new();
        let alike = tasks.iter().filter(|task| task.left == first.left && task.need == first.need);
        alike.filter(|task| rows.insert(task.row)).take(most).copied().collect()
    }

    /// All strips of the member are where they should be.
    pub(super) fn note_moved(&self, task: Task) {
        if task.need == Need::Spare && !self.rebuild_failed.get() {
            self.moved.borrow_mut().insert((task.row, task.member));
        }
    }

    pub(super) fn forget_moved(&self, row: RowId, member: usize) {
        self.moved.borrow_mut().remove(&(row, member as u8));
    }

    /// Stripes that have a slot; and of them those that may lose no further strip without loss of data.
    pub fn exposure(&self) -> (u64, u64) {
        let layout = self.space.layout.borrow();
        let moved = self.moved.borrow();
        let sound = |cell: Cell| self.drives.is_sound(cell.drive);
        let exposed = |row: &Row| {
            let weak = row.members.iter().enumerate().filter(|(at, member)| {
                let spare = member.replacement.filter(|_| moved.contains(&(row.id, *at as u8)));
                !sound(member.cell) && !spare.is_some_and(sound)
            });
            weak.count() >= row.class.code.tolerates()
        };
        let rows = layout.rows().filter(|row| row.class.kind == RowKind::Data);
        rows.fold((0, 0), |(all, critical), row| {
            let used = u64::from(self.space.used(row.id));
            (all + used, critical + if exposed(row) { used } else { 0 })
        })
    }
}
