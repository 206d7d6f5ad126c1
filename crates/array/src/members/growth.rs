//! Drives that join the pool, and drives that leave it.
//!
//! Drives join in the steps of `joining.rs`: from then on they may be chosen for new rows, and
//! nothing else changes. A drive that is to leave is marked in the labels first, and takes nothing
//! more. When everything has moved off it (`moving.rs`), the log and the tables leave it too, and a
//! second configuration change retires its number. A crash anywhere in between leaves a pool that
//! goes on where it was, since both intents are in the labels.

use std::collections::BTreeSet;
use std::rc::Rc;

use stele_ground::{Bytes, DriveId};

use crate::drives::label::{Configuration, DriveEntry, DriveState};
use crate::engine::Engine;
use crate::engine::serving::Serving;
use crate::members::joining::Newcomer;
use crate::model::place::DriveNumber;
use crate::model::{AlarmKind, ArrayError, Departed, Severity};
use crate::space::layout::RowKind;

/// Drives a pool has at most, those that left included: their numbers are never used again.
const DRIVES_MAX: usize = 512;
/// Drives a pool has at least.
const DRIVES_MIN: usize = 3;
/// The least that a drive must have room for.
const UNITS_MIN: u32 = 16;

impl Serving {
    /// Takes attached drives into the pool. All or none.
    pub async fn add_drives(self: &Rc<Self>, drives: &[(u32, DriveId)]) -> Result<(), ArrayError> {
        let engine = &self.engine;
        let _turn = engine.administering.lock().await;
        let joining = self.candidates(drives).await?;
        for newcomer in &joining {
            engine.takes_writes(newcomer.index, &newcomer.attached.name).await?;
            engine.clear_groups(newcomer.index, &newcomer.attached.name).await?;
        }
        let numbers = engine.join(&joining).await?;
        // Known by its name before anything else may fail: what is in the table is not let go.
        for (number, newcomer) in numbers.iter().zip(&joining) {
            engine.drives.change(*number, |seen| seen.name.clone_from(&newcomer.attached.name));
            self.accept(newcomer.index);
        }
        engine.finish_joining().await?;
        engine.step(|core| core.space.note_room(false));
        engine.admission.make_room();
        engine.destaging.forgive_all();
        engine.destaging.want();
        // The drives are members now, whatever becomes of this. A log that lacks members takes them
        // later, and what stopped it tells everybody who writes; tables widen with the next rebuild
        // or the next change of the drives.
        if let Err(error) = engine.log.replenish().await {
            tracing::warn!("drives were added, and the log does not use them yet: {error}");
        } else if let Err(error) = engine.widen_tables().await {
            tracing::warn!("drives were added, and the tables do not use them yet: {error}");
        }
        Ok(())
    }

    /// Refuses where `add_drives` would, and changes nothing.
    pub async fn would_add(&self, drives: &[(u32, DriveId)]) -> Result<(), ArrayError> {
        for newcomer in self.candidates(drives).await? {
            self.engine.takes_writes(newcomer.index, &newcomer.attached.name).await?;
        }
        Ok(())
    }

    /// The attached drives, if the pool may have all of them.
    async fn candidates(&self, drives: &[(u32, DriveId)]) -> Result<Vec<Newcomer>, ArrayError> {
        let engine = &self.engine;
        engine.check_writable()?;
        let mut joining: Vec<Newcomer> = Vec::new();
        for (index, identity) in drives {
            joining.push(self.candidate(*index, *identity, &joining).await?);
        }
        if joining.is_empty() {
            return Err(ArrayError::Invalid("no drive to add was named".into()));
        }
        let first = engine.drives.labels.configuration().drives.len();
        if first + joining.len() > DRIVES_MAX {
            return Err(ArrayError::Full(format!(
                "a pool numbers {DRIVES_MAX} drives in all, and {first} numbers are taken; replace drives instead"
            )));
        }
        Ok(joining)
    }

    /// The attached drive at the index, if the pool may have it.
    async fn candidate(&self, index: u32, identity: DriveId, joining: &[Newcomer]) -> Result<Newcomer, ArrayError> {
        let engine = &self.engine;
        let attached = self.newcomer_at(index, identity)?;
        let name = &attached.name;
        let is_it = |other: &Newcomer| other.index == index as usize || other.identity == identity;
        if joining.iter().any(is_it) {
            return Err(ArrayError::Invalid(format!("{name} is in the pool already")));
        }
        {
            let configuration = engine.drives.labels.configuration();
            let units = units_of(&configuration, attached.geometry.size);
            if units < UNITS_MIN {
                return Err(ArrayError::Invalid(format!(
                    "{name} of {} is too small: labels and log take {}, and {UNITS_MIN} units of {} must remain; use a \
                     larger drive",
                    attached.geometry.size,
                    Bytes(configuration.units_at()),
                    configuration.unit_size
                )));
            }
        }
        let mut sequence = 0;
        if let Some(label) = engine.own_label(index as usize, &attached).await? {
            let configuration = engine.drives.labels.configuration();
            let own = configuration.drives.get(usize::from(label.number.0));
            let mine = label.configuration.drives.get(usize::from(label.number.0));
            // It left, or it was to join and the pool went on without it: nothing of the pool is on
            // it.
            let left = own.is_some_and(|entry| entry.state == DriveState::Retired);
            let never_joined = mine.is_some_and(|entry| entry.state == DriveState::Joining)
                && own.is_none_or(|entry| Some(entry.identity) != mine.map(|mine| mine.identity));
            if !left && !never_joined {
                return Err(ArrayError::Refused(format!(
                    "{name} carries the label of {} of this pool; put it in the place of a failed drive instead",
                    label.number
                )));
            }
            sequence = label.sequence;
        }
        Ok(Newcomer { index: index as usize, attached, identity, sequence })
    }
}

impl Engine {
    /// Begins to empty a drive. Repeating it is harmless.
    pub async fn remove_drive(self: &Rc<Self>, drive: u32) -> Result<(), ArrayError> {
        let _turn = self.administering.lock().await;
        self.check_writable()?;
        let number = u16::try_from(drive).map(DriveNumber);
        let drive = number.map_err(|_| ArrayError::Missing(format!("the pool has no drive {drive}")))?;
        let mut after = self.drives.labels.configuration().clone();
        let Some(entry) = after.drives.get_mut(usize::from(drive.0)) else {
            return Err(ArrayError::Missing(format!("the pool has no {drive}")));
        };
        match (entry.state, entry.leaving) {
            (DriveState::Retired, _) => return Err(ArrayError::Missing(format!("{drive} has left the pool already"))),
            (DriveState::Joining, _) => {
                // It holds nothing: it was to join, and does not yet.
                self.drives
                    .labels
                    .commit(|table| table.drives[usize::from(drive.0)].state = DriveState::Retired)
                    .await?;
                self.never_joined(drive);
                self.layout_follows();
                return Ok(());
            }
            (_, true) => return Ok(()),
            _ => entry.leaving = true,
        }
        // What is on its way to be free counts.
        self.settle_cells().await?;
        self.check_can_leave(drive, &after, 0)?;
        self.drives
            .labels
            .commit(|configuration| {
                if let Some(entry) = configuration.drives.get_mut(usize::from(drive.0)) {
                    entry.leaving = true;
                }
            })
            .await?;
        let configuration = self.drives.labels.configuration().clone();
        self.layout.write().configure(&configuration);
        self.membership.note_change();
        Ok(())
    }

    /// A drive that is being emptied stays. What has moved off it stays where it is, until drives
    /// are filled alike again.
    pub async fn keep_drive(self: &Rc<Self>, drive: u32) -> Result<(), ArrayError> {
        let _turn = self.administering.lock().await;
        self.check_writable()?;
        let number = u16::try_from(drive).map(DriveNumber);
        let drive = number.map_err(|_| ArrayError::Missing(format!("the pool has no drive {drive}")))?;
        let entry = self.drives.labels.configuration().drives.get(usize::from(drive.0)).cloned();
        match entry {
            None => return Err(ArrayError::Missing(format!("the pool has no {drive}"))),
            Some(entry) if entry.state == DriveState::Retired => {
                return Err(ArrayError::Missing(format!("{drive} has left the pool already; add it again")));
            }
            Some(entry) if !entry.leaving => {
                return Err(ArrayError::Invalid(format!("{drive} is not being removed")));
            }
            Some(_) => {}
        }
        self.drives
            .labels
            .commit(|configuration| {
                if let Some(entry) = configuration.drives.get_mut(usize::from(drive.0)) {
                    (entry.leaving, configuration.growing) = (false, true);
                }
            })
            .await?;
        self.layout_follows();
        self.membership.note_change();
        self.log.replenish().await?;
        self.widen_tables().await
    }

    /// Refuses where `remove_drive` would refuse the old drive when a new one has joined in its
    /// place.
    pub fn check_can_be_replaced(&self, old: DriveNumber, new: DriveEntry) -> Result<(), ArrayError> {
        let mut after = self.drives.labels.configuration().clone();
        after.drives.push(new);
        let leaves_already =
            after.drives.get_mut(usize::from(old.0)).is_none_or(|entry| std::mem::replace(&mut entry.leaving, true));
        // One that leaves already was looked at when that began.
        if leaves_already {
            return self.check_readable_rows(old);
        }
        self.check_can_leave(old, &after, 1)
    }

    /// Refuses where what remains could not hold everything, or something could not be read to be
    /// moved. `joining`: sound drives of `after` that are not in the table yet.
    fn check_can_leave(&self, drive: DriveNumber, after: &Configuration, joining: usize) -> Result<(), ArrayError> {
        let remain: Vec<&DriveEntry> = after.drives.iter().filter(|entry| entry.takes_more()).collect();
        let refuse = |why: String| Err(ArrayError::Refused(format!("{drive} cannot be removed: {why}")));
        if remain.len() < DRIVES_MIN {
            return refuse(format!("a pool has at least {DRIVES_MIN} drives, and {} would remain", remain.len()));
        }
        let least = after.tolerates as usize + 1;
        let lasting = self.drives.labels.lasting();
        let lasting =
            lasting.iter().filter(|other| **other != drive && self.drives.is_sound(**other)).count() + joining;
        if lasting < least {
            return refuse(format!(
                "the log needs {least} sound drives, and {lasting} would remain; return missing ones"
            ));
        }
        if let Err(why) = self.check_majority_without(drive, joining) {
            return refuse(why);
        }
        for volume in self.look(|core| core.volumes.all()) {
            let code = volume.shape.code();
            if remain.len() < code.width() {
                return refuse(format!(
                    "volume '{}' of {code} needs {} drives, and {} would remain; add drives first",
                    volume.name(),
                    code.width(),
                    remain.len()
                ));
            }
        }
        let leaving: Vec<DriveNumber> = (0..after.drives.len() as u16)
            .map(DriveNumber)
            .filter(|number| after.drives.get(usize::from(number.0)).is_some_and(|entry| entry.leaving))
            .collect();
        let layout = self.layout.read();
        let absorbed =
            |class| self.look(|core| core.space.absorbed(class, &|row| leaving.iter().any(|drive| row.uses(*drive))));
        if let Err(why) = layout.can_empty(after, &leaving, &absorbed) {
            return refuse(format!("{why} on the {} drives that would remain; add drives first", remain.len()));
        }
        drop(layout);
        self.check_readable_rows(drive)
    }

    /// Refuses to empty a drive where some stripe on it cannot be read now, and so not be moved.
    pub fn check_readable_rows(&self, drive: DriveNumber) -> Result<(), ArrayError> {
        let layout = self.layout.read();
        let rows = layout.rows().filter(|row| row.class.kind == RowKind::Data && row.uses(drive));
        let mut used = rows.filter(|row| self.look(|core| core.space.used(row.id)) > 0);
        match used.find(|row| self.strips_without(row, |_| false) > row.class.code.tolerates()) {
            None => Ok(()),
            Some(row) => Err(ArrayError::Refused(format!(
                "{drive} cannot be removed: stripes of {} in row {} cannot be read now, and so not be moved; wait for the \
                 rebuild, or return missing drives first",
                row.class.code, row.id.0
            ))),
        }
    }

    /// The drives that answer must be able to agree that this one is gone, and go on agreeing.
    /// `joining`: drives that are voters by then, and answer.
    fn check_majority_without(&self, drive: DriveNumber, joining: usize) -> Result<(), String> {
        let answer = self.drives.labels.usable().into_iter().filter(|other| *other != drive).count() + joining;
        let configuration = self.drives.labels.configuration();
        let voters = configuration.drives.iter().filter(|entry| entry.state.votes()).count() + joining;
        match answer * 2 > voters {
            true => Ok(()),
            false => Err(format!(
                "more than half of {voters} drives must agree, and {answer} besides it answer; return missing ones"
            )),
        }
    }

    /// Drives that are to leave, in order.
    pub fn leaving(&self) -> Vec<DriveNumber> {
        let configuration = self.drives.labels.configuration();
        let leaving = configuration.drives.iter().enumerate().filter(|(_, entry)| entry.leaving);
        leaving.map(|(at, _)| DriveNumber(at as u16)).collect()
    }

    /// No stripe lies on the drive any more: tables and log leave it, and then it leaves the pool.
    pub async fn retire(self: &Rc<Self>, drive: DriveNumber) -> Result<(), ArrayError> {
        self.table.evacuate(drive).await?;
        // The log stops for good where it has too few drives, and drives may have gone since this
        // one was to leave.
        let (least, others) = (self.drives.labels.configuration().tolerates as usize + 1, self.sound_drives().len());
        if others < least {
            return Err(ArrayError::Degraded(format!(
                "the log needs {least} sound drives besides {drive}, and there are {others}; return missing ones"
            )));
        }
        self.check_majority_without(drive, 0).map_err(|why| ArrayError::Degraded(format!("{drive} stays: {why}")))?;
        self.log.leave(drive).await?;
        // Behind this the tables' new cells are what counts, and no group that only older members
        // hold is needed.
        self.checkpoint().await?;
        let _turn = self.administering.lock().await;
        if !self.leaving().contains(&drive) {
            // It was decided otherwise meanwhile.
            return Ok(());
        }
        if !self.layout.read().rows_on(drive).is_empty() {
            return Err(ArrayError::Full(format!("something has come to {drive} meanwhile")));
        }
        self.drives
            .labels
            .commit(|configuration| {
                if let Some(entry) = configuration.drives.get_mut(usize::from(drive.0)) {
                    (entry.state, entry.leaving) = (DriveState::Retired, false);
                }
            })
            .await?;
        let configuration = self.drives.labels.configuration().clone();
        self.layout.write().configure(&configuration);
        let left = self.layout.read().rows_on(drive);
        assert!(left.is_empty(), "invariant 12: {drive} has left the pool and {} rows still lie on it", left.len());
        let index = self.drives.index(drive);
        if let Some(index) = index {
            self.io.detach(index);
            self.drives.labels.detach(drive);
        }
        self.membership.forget_loss(drive);
        self.hospital.replaced(drive);
        let (name, called) = self.drives.change(drive, |seen| {
            (seen.stale, seen.missing_since) = (false, None);
            seen.note.clear();
            (seen.name.clone(), seen.called(drive))
        });
        let departed = Departed { index: index.map(|index| index as u32), name };
        self.membership.note_departed([departed]);
        self.membership.note_change();
        let text = format!("{called} is empty and has left the pool; it can be taken out");
        self.alarm(AlarmKind::DriveRemoved, Severity::Notice, Some(drive), text);
        Ok(())
    }

    /// Everybody holds about alike now.
    pub async fn grown(&self) -> Result<(), ArrayError> {
        self.drives.labels.commit(|configuration| configuration.growing = false).await?;
        let text = "stripes have moved onto the added drives".to_owned();
        self.alarm(AlarmKind::GrowthFinished, Severity::Notice, None, text);
        Ok(())
    }

    /// Drives that strips may move to now.
    pub fn sound_drives(&self) -> BTreeSet<DriveNumber> {
        self.drives.labels.lasting().into_iter().filter(|drive| self.drives.is_sound(*drive)).collect()
    }
}

/// Allocation units that a drive of this size would have.
fn units_of(configuration: &Configuration, size: Bytes) -> u32 {
    let mut with = configuration.clone();
    let entry = DriveEntry {
        identity: DriveId::default(),
        enclosure: 0,
        size,
        state: DriveState::Active,
        leaving: false,
        joined: 0,
    };
    with.drives.push(entry);
    with.units(DriveNumber((with.drives.len() - 1) as u16))
}
