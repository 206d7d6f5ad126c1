//! Where drives are, and stripes that do not survive the loss of an enclosure although the drives
//! allow it.
//!
//! An operator says in which enclosure a drive is. That changes nothing on any drive but the
//! labels; stripes that then crowd an enclosure move (`moving.rs`), each verified and written
//! elsewhere before its old slot is free.

use std::rc::Rc;

use crate::drives::label::DriveState;
use crate::engine::Engine;
use crate::model::ArrayError;
use crate::model::place::{DriveNumber, RowId};
use crate::space::layout::crowding::Crowding;
use crate::upkeep::moving::Step;

impl Engine {
    /// Puts down in which enclosure a drive is.
    pub async fn set_enclosure(self: &Rc<Self>, drive: u32, enclosure: u32) -> Result<(), ArrayError> {
        let _turn = self.administering.lock().await;
        self.check_writable()?;
        let known = usize::try_from(drive).ok().and_then(|at| {
            let configuration = self.drives.labels.configuration();
            configuration.drives.get(at).map(|entry| (DriveNumber(at as u16), entry.clone()))
        });
        let Some((number, entry)) = known else {
            return Err(ArrayError::Missing(format!("the pool has no drive {drive}")));
        };
        match entry.state {
            DriveState::Retired => return Err(ArrayError::Missing(format!("{number} has left the pool"))),
            DriveState::Failed => {
                return Err(ArrayError::Refused(format!(
                    "{number} was given up and holds nothing that counts; name the enclosure of the drive that replaces it: \
                     stele pool replace {drive} PATH@{enclosure}"
                )));
            }
            DriveState::Joining => {
                return Err(ArrayError::Refused(format!("{number} is being added; try again when it takes part")));
            }
            _ if entry.leaving => {
                return Err(ArrayError::Refused(format!("{number} is being emptied and takes no more strips")));
            }
            _ if entry.enclosure == enclosure => return Ok(()),
            _ => {}
        }
        self.drives
            .labels
            .commit(|configuration| {
                if let Some(entry) = configuration.drives.get_mut(usize::from(number.0)) {
                    entry.enclosure = enclosure;
                }
            })
            .await?;
        self.layout_follows();
        self.membership.note_change();
        Ok(())
    }

    /// Rows that break the enclosure rule, judged by the drives that strips may move to now.
    pub fn crowding(&self) -> Crowding {
        let sound = self.sound_drives();
        self.layout.read().crowding(&self.layout.survey(), &|drive| sound.contains(&drive))
    }

    /// Stripes that the loss of one enclosure makes unreadable; and of them those that could lie
    /// better.
    pub fn crowded_stripes(&self) -> (u64, u64) {
        let Crowding { exposed, crowded } = self.crowding();
        let stripes =
            |rows: Vec<RowId>| rows.into_iter().map(|row| u64::from(self.look(|core| core.space.used(row)))).sum();
        (stripes(exposed), stripes(crowded))
    }

    /// The first of the crowded rows whose stripes have room to lie within the rule.
    pub fn row_to_spread(&self, crowded: &[RowId]) -> Option<RowId> {
        let sound = self.sound_drives();
        let layout = self.layout.read();
        crowded.iter().copied().find(|row| layout.can_spread(*row, &|drive| sound.contains(&drive)))
    }

    /// Moves a row's stripes into rows that keep the rule: into new ones where there are too few.
    /// Each pass leaves one crowded row less, since none of the others takes stripes meanwhile and
    /// no row is made beyond the rule for it.
    pub async fn spread_row(self: &Rc<Self>, row: RowId, crowded: &[RowId]) -> Result<Step, ArrayError> {
        let closed: Vec<RowId> = crowded
            .iter()
            .copied()
            .filter(|other| {
                *other != row
                    && !self.look(|core| core.space.is_closed(*other))
                    && self.step(|core| core.space.close(*other, true))
            })
            .collect();
        let spread = self.spread_apart(row).await;
        for other in closed {
            self.step(|core| core.space.close(other, false));
        }
        self.admission.make_room();
        spread
    }

    async fn spread_apart(self: &Rc<Self>, row: RowId) -> Result<Step, ArrayError> {
        loop {
            let Some(class) = self.look(|core| core.space.row_class(row)) else { return Ok(Step::Moved) };
            // What is free in the row counts until it is closed, and its stripes need as much
            // besides.
            if self.look(|core| core.space.unpromised(class)) > u64::from(self.look(|core| core.space.slots(row))) {
                return self.empty_row(row).await;
            }
            let sound = self.sound_drives();
            let within = self.layout.read().can_spread(row, &|drive| sound.contains(&drive));
            if !within || !self.grow_to_move(class).await? {
                self.free_empty_rows().await?;
                return Ok(Step::PutOff(format!(
                    "no room for another row of {} within the enclosure rule",
                    class.code
                )));
            }
        }
    }
}

/// Why rows that crowd an enclosure stay as they are.
pub fn cannot_spread(rows: usize) -> String {
    format!(
        "{rows} rows have more strips in one enclosure than their code can lose, and the drives elsewhere have no room for \
         them; delete or discard data, or add drives there"
    )
}

#[cfg(test)]
mod tests;
