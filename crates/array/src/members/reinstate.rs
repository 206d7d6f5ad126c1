//! Drives that an operator takes back: their errors are forgotten, and one that was given up takes
//! part again.
//!
//! A cable that came loose for a second costs a drive its place. What such a drive holds is old
//! where it was written meanwhile, and nothing on the drive says where. So it comes back by the way
//! on which a drive that was away does. Its label is checked. It is `Filling` in the labels of a
//! majority before anything is written to it, and its own label says no more about what it holds
//! than before. Only when every strip on it verifies or was written again does it count as whole
//! (`rebuild.rs`, `membership.rs`). Crash points:
//!
//! 1. before the commit: the drive is given up as before, and nothing on it has changed but a block
//!    that holds nothing;
//! 2. after it: the next opening finds the drive `Filling`, and goes on.

use std::rc::Rc;

use stele_ground::Bytes;

use crate::drives::label::agreement::is_ancestor;
use crate::drives::label::codec::Label;
use crate::drives::label::discover::{Reading, read_label};
use crate::drives::label::{DriveEntry, DriveState};
use crate::engine::Engine;
use crate::engine::serving::Serving;
use crate::model::place::DriveNumber;
use crate::model::{AlarmKind, ArrayError, Severity};

/// A drive that was attached is looked at so often, and so many times, until it takes part.
const LOOK_EVERY: stele_ground::Duration = stele_ground::Duration::from_millis(10);
const LOOKS_MAX: u32 = 1000;

impl Serving {
    /// Forgets a drive's errors, and takes it back if it was given up for them.
    pub async fn clear_drive(self: &Rc<Self>, drive: u32) -> Result<(), ArrayError> {
        let engine = &self.engine;
        let _turn = engine.administering.lock().await;
        engine.check_writable()?;
        let (number, entry) = engine.entry_of(drive)?;
        if entry.state == DriveState::Failed {
            let index = self.find(number, &entry).await?;
            return self.reinstate(number, &entry, index).await;
        }
        let Some(index) = engine.drives.index(number) else {
            return Err(ArrayError::Degraded(format!(
                "{number} does not answer; when its path is good again: stele drive online {drive}"
            )));
        };
        engine.takes_writes(index, &engine.drives.seen(number).name).await?;
        engine.hospital.replaced(number);
        if !engine.drives.has_missed(number) && !engine.drives.seen(number).stale {
            engine.drives.change(number, |seen| seen.note.clear());
        }
        engine.membership.note_change();
        Ok(())
    }

    /// Takes back the drive that was attached at the index, whether it was away or given up.
    pub async fn online_drive(self: &Rc<Self>, drive: u32, index: u32) -> Result<(), ArrayError> {
        let (engine, index) = (&self.engine, index as usize);
        engine.check_writable()?;
        let (number, entry) = engine.entry_of(drive)?;
        if entry.state == DriveState::Failed {
            let _turn = engine.administering.lock().await;
            return self.reinstate(number, &entry, index).await;
        }
        // One that was only away takes part by itself, or it is said why not.
        for _ in 0..LOOKS_MAX {
            if engine.drives.labels.number(index).is_some_and(|found| found != number) {
                return Err(ArrayError::Invalid(format!("that is not {number} but another drive of the pool")));
            }
            if engine.drives.index(number) == Some(index) {
                return Ok(());
            }
            if let Some(rejected) = self.rejected_at(index) {
                return Err(ArrayError::Refused(format!("{} is not used: {}", rejected.attached.name, rejected.note)));
            }
            engine.io.sleep(LOOK_EVERY).await;
        }
        Err(ArrayError::Degraded(format!("{number} was not taken back: what is attached carries no label of it")))
    }

    /// Where a drive that was given up is attached.
    async fn find(&self, number: DriveNumber, entry: &DriveEntry) -> Result<usize, ArrayError> {
        let engine = &self.engine;
        if let Some(index) = engine.drives.index(number) {
            return Ok(index);
        }
        let mut attached: Vec<usize> = self.rejected().iter().map(|rejected| rejected.index).collect();
        attached.extend(self.arrivals());
        attached.retain(|index| !engine.io.is_gone(*index) && engine.drives.labels.number(*index).is_none());
        for index in attached {
            if let Reading::Label(label) = read_label(&engine.io, index, entry.size).await
                && label.number == number
                && is_own(&label, entry)
            {
                return Ok(index);
            }
        }
        Err(ArrayError::Degraded(format!(
            "{number} does not answer; when its path is good again: stele drive online {}",
            number.0
        )))
    }

    /// Takes back, to be brought up to date, a drive that was given up.
    async fn reinstate(
        self: &Rc<Self>,
        number: DriveNumber,
        entry: &DriveEntry,
        index: usize,
    ) -> Result<(), ArrayError> {
        let engine = &self.engine;
        let (name, size) = self.attached_at(index, entry);
        if size < entry.size {
            return Err(ArrayError::Invalid(format!("{name} has {size}, and {number} is to have {}", entry.size)));
        }
        let label = match read_label(&engine.io, index, entry.size).await {
            Reading::Label(label) => label,
            Reading::Unreadable(message) => {
                return Err(ArrayError::Degraded(format!("the label of {name} cannot be read: {message}; replace it")));
            }
            Reading::None(_) => {
                return Err(ArrayError::Refused(format!("{name} carries no label that can be read; replace {number}")));
            }
        };
        engine.check_is(number, entry, &label, &name)?;
        engine.takes_writes(index, &name).await?;
        engine.settle_losses().await?;
        if engine.drive_state(number) != DriveState::Failed {
            return Err(ArrayError::Invalid(format!("{number} is in use again already")));
        }
        let was_attached = engine.drives.index(number).is_some();
        // Whatever it missed while it was here is among what is verified now.
        engine.drives.forget_missed(number);
        engine.drives.labels.attach_returned(number, index, &label);
        engine.drives.change(number, |seen| {
            (seen.stale, seen.missing_since) = (true, None);
            seen.name.clone_from(&name);
            seen.note = "was given up, and was taken back; being brought up to date".into();
        });
        let committed = engine.commit_state(number, DriveState::Filling).await;
        if committed.is_err() || !engine.drives.labels.holds_newest(number) {
            if committed.is_ok() {
                engine.commit_state(number, DriveState::Failed).await?;
            }
            if !was_attached {
                engine.drives.labels.detach(number);
            }
            committed?;
            return Err(ArrayError::Degraded(format!(
                "{name} does not take its label; {number} is still to be replaced"
            )));
        }
        // It is to be looked at whatever a rebuild under way thought of it before.
        engine.drives.change(number, |seen| seen.stale = true);
        engine.hospital.replaced(number);
        self.accept(index);
        let text = format!("{number} ({name}) was taken back and is brought up to date");
        engine.alarm(AlarmKind::DriveStale, Severity::Notice, Some(number), text);
        engine.log.replenish().await?;
        engine.membership.note_change();
        engine.destaging.forgive_all();
        engine.destaging.want();
        Ok(())
    }

    /// The drive at the index is one that the pool gave up, and was not written to elsewhere since.
    pub async fn was_given_up(&self, index: usize) -> bool {
        let Some(size) = self.unused_at(index).map(|attached| attached.geometry.size) else { return false };
        let Reading::Label(label) = read_label(&self.engine.io, index, size).await else { return false };
        let number = label.number;
        let entry = self.engine.drives.labels.configuration().drives.get(usize::from(number.0)).cloned();
        entry.is_some_and(|entry| {
            entry.state == DriveState::Failed && self.engine.check_is(number, &entry, &label, "it").is_ok()
        })
    }

    /// Name and size of what is attached at the index.
    fn attached_at(&self, index: usize, entry: &DriveEntry) -> (String, Bytes) {
        if let Some(number) = self.engine.drives.labels.number(index) {
            return (self.engine.drives.seen(number).name, entry.size);
        }
        let unused = self.unused_at(index);
        unused.map_or_else(|| ("the drive".to_owned(), entry.size), |unused| (unused.name, unused.geometry.size))
    }
}

/// The label is that of the drive which the pool's table has under its number.
fn is_own(label: &Label, entry: &DriveEntry) -> bool {
    let own = label.configuration.drives.get(usize::from(label.number.0)).map(|entry| entry.identity);
    own == Some(entry.identity)
}

impl Engine {
    fn entry_of(&self, drive: u32) -> Result<(DriveNumber, DriveEntry), ArrayError> {
        let configuration = self.drives.labels.configuration();
        let entry = usize::try_from(drive).ok().and_then(|at| configuration.drives.get(at)).cloned();
        let number = u16::try_from(drive).map(DriveNumber).ok().zip(entry);
        match number {
            None => Err(ArrayError::Missing(format!("the pool has no drive {drive}"))),
            Some((number, entry)) => match entry.state {
                DriveState::Retired => {
                    Err(ArrayError::Missing(format!("{number} has left the pool; wipe it and add it to use it again")))
                }
                DriveState::Joining => Err(ArrayError::Refused(format!("{number} is being added; try again then"))),
                _ => Ok((number, entry)),
            },
        }
    }

    /// Refuses a drive that is not the one that was given up, or was written to elsewhere since.
    fn check_is(&self, number: DriveNumber, entry: &DriveEntry, label: &Label, name: &str) -> Result<(), ArrayError> {
        let configuration = self.drives.labels.configuration();
        let theirs = &label.configuration;
        if theirs.pool != configuration.pool {
            return Err(ArrayError::Refused(format!("{name} belongs to pool {}", theirs.pool)));
        }
        if label.number != number || !is_own(label, entry) {
            return Err(ArrayError::Refused(format!("{name} carries the label of another drive than {number}")));
        }
        if !is_ancestor(theirs, &configuration) || theirs.epoch > configuration.epoch {
            return Err(ArrayError::Refused(format!(
                "{name} was written to elsewhere, as of epoch {}, and this pool is at {}; replace it",
                theirs.epoch, configuration.epoch
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
