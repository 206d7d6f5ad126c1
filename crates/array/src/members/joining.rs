//! Drives that join the pool: together into the table, one after the other among the voters.
//!
//! A majority of the drives must agree on every change, before as after it, so at most one voter
//! comes at a time. Else the newcomers alone could be a majority of a table that the others never
//! took. Crash points:
//!
//! 1. before the first commit: nothing has happened; the drives are as blank as before;
//! 2. after it: the drives are in the table as `Joining`. They hold nothing and do not vote. The
//!    next opening goes on if all of them are there with their label, and otherwise drops them all;
//! 3. after some of the later commits: some drives take part, and the next opening goes on with the
//!    rest. One that is not there by then joins when it is back.

use std::rc::Rc;

use stele_ground::DriveId;
use stele_media::{Buffer, Priority};

use crate::drives::label::codec::{Label, NoLabel};
use crate::drives::label::discover::{Reading, read_label};
use crate::drives::label::{Configuration, DriveEntry, DriveState, LOG_AT, refusal};
use crate::durable::log::ring::RingReader;
use crate::engine::Engine;
use crate::engine::serving::Serving;
use crate::model::mutation::Mutation;
use crate::model::place::DriveNumber;
use crate::model::{ArrayError, Attached, Departed};

/// A drive that is to be put into the table.
pub struct Newcomer {
    pub index: usize,
    pub attached: Attached,
    pub identity: DriveId,
    /// Of the newest label that an earlier place in the pool left on it. The new ones go on from
    /// there, or the old one would count for more than they.
    pub sequence: u64,
}

/// Bytes of a ring that are looked at, and overwritten, at once.
const CLEARED: u64 = 1 << 20;

impl Serving {
    /// The drive that is attached at the index, if it is free to be put in under the identity.
    pub fn newcomer_at(&self, index: u32, identity: DriveId) -> Result<Attached, ArrayError> {
        let labels = &self.engine.drives.labels;
        let Some(attached) = self.unused_at(index as usize) else {
            return Err(ArrayError::Missing(format!("no drive was attached at index {index}; attach it first")));
        };
        if labels.number(index as usize).is_some() {
            return Err(ArrayError::Invalid(format!("{} is in the pool already", attached.name)));
        }
        if labels.configuration().drives.iter().any(|entry| entry.identity == identity) {
            return Err(ArrayError::Invalid(format!("identity {identity} is taken by a drive of the pool")));
        }
        Ok(attached)
    }
}

impl Engine {
    /// The label of this pool on a drive that is to be put in; `None` if the drive has no label.
    /// Refuses one that carries any other label, or whose label cannot be read: it may be a drive
    /// of any pool.
    pub async fn own_label(&self, index: usize, attached: &Attached) -> Result<Option<Label>, ArrayError> {
        let name = &attached.name;
        match read_label(&self.io, index, attached.geometry.size).await {
            Reading::None(NoLabel::Blank) => Ok(None),
            Reading::Label(label) if label.configuration.pool == self.drives.labels.configuration().pool => {
                Ok(Some(*label))
            }
            reading => Err(refusal(name, &reading)),
        }
    }

    /// Writes to a drive and flushes it, where nothing is kept: a drive that takes no writes is not
    /// put in.
    pub async fn takes_writes(&self, index: usize, name: &str) -> Result<(), ArrayError> {
        let at = LOG_AT - stele_ground::BLOCK as u64;
        let block = Buffer::zeroed(stele_ground::BLOCK).freeze();
        let tried = match self.io.write(index, at, vec![block], Priority::Urgent).await {
            Ok(()) => self.io.flush(index).await,
            Err(error) => Err(error),
        };
        tried.map_err(|error| {
            ArrayError::Degraded(format!(
                "{name} takes no writes ({error}); nothing has changed: leave it out, or replace it"
            ))
        })
    }

    /// Overwrites what looks like groups of this pool's log on a drive that is put in. The drive
    /// may have had a place in the pool, or in another history of it, and what that acknowledged
    /// would count against this log.
    pub async fn clear_groups(&self, index: usize, name: &str) -> Result<(), ArrayError> {
        let (pool, ring) = {
            let configuration = self.drives.labels.configuration();
            (configuration.pool, configuration.log_size.0)
        };
        if self.io.is_disabled(Mutation::OldGroups) {
            return Ok(());
        }
        let cleared = async {
            let mut reader = RingReader::new(&self.io, index, ring, Priority::Scrub);
            for from in (0..ring).step_by(CLEARED as usize) {
                let to = (from + CLEARED).min(ring);
                if reader.may_have_groups(from, to, pool).await {
                    let zeros = Buffer::zeroed((to - from) as usize).freeze();
                    self.io.write(index, LOG_AT + from, vec![zeros], Priority::Scrub).await?;
                }
            }
            self.io.flush(index).await
        };
        cleared.await.map_err(|error| {
            ArrayError::Degraded(format!(
                "{name} keeps groups of a log that cannot be overwritten ({error}); the pool is unchanged, the drive's log \
                 may be overwritten in part: leave the drive out, or replace it"
            ))
        })
    }

    /// Puts new drives into the table: all or none. [`Engine::finish_joining`] puts them among the
    /// voters.
    pub async fn join(self: &Rc<Self>, drives: &[Newcomer]) -> Result<Vec<DriveNumber>, ArrayError> {
        let labels = &self.drives.labels;
        let first = labels.configuration().drives.len();
        let numbers: Vec<DriveNumber> = (first..first + drives.len()).map(|at| DriveNumber(at as u16)).collect();
        for (number, newcomer) in numbers.iter().zip(drives) {
            labels.attach_new(*number, newcomer.index, true, newcomer.sequence);
        }
        let committed = labels
            .commit(|configuration| {
                let joined = configuration.epoch;
                let entry = |newcomer: &Newcomer| DriveEntry {
                    identity: newcomer.identity,
                    enclosure: newcomer.attached.enclosure,
                    size: newcomer.attached.geometry.size,
                    state: DriveState::Joining,
                    leaving: false,
                    joined,
                };
                configuration.drives.extend(drives.iter().map(entry));
            })
            .await;
        let refused = numbers.iter().find(|number| !labels.holds_newest(**number)).copied();
        if committed.is_err() || refused.is_some() {
            if committed.is_ok() {
                labels.commit(|configuration| configuration.drives.truncate(first)).await?;
            }
            numbers.iter().for_each(|number| labels.detach(*number));
            committed?;
            return Err(ArrayError::Degraded(
                "a drive to add did not take its label; none was added: leave it out, or replace it".to_owned(),
            ));
        }
        Ok(numbers)
    }

    /// Goes on with additions that were cut off: makes voters, one at a time, of drives that are in
    /// the table and took their label. Where none of the drives that were added together votes and
    /// one of them is not here with its label, none joins: no operator was told that they had. Does
    /// nothing where no drive is joining.
    pub async fn finish_joining(self: &Rc<Self>) -> Result<(), ArrayError> {
        let labels = &self.drives.labels;
        let waiting = joining(&labels.configuration());
        let (meant, dropped): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|number| self.is_joining_meant(*number));
        if !dropped.is_empty() {
            // In one commit, or those that are left would later look as if they had been added
            // alone.
            labels.commit(|configuration| set_state(configuration, &dropped, DriveState::Retired)).await?;
            dropped.iter().for_each(|number| self.never_joined(*number));
        }
        for number in meant {
            if labels.index(number).is_some() && !labels.holds_newest(number) {
                // A label passed it by: a majority is enough for a commit.
                labels.commit(|_| ()).await?;
            }
            // One that is not here joins when it is back.
            if labels.holds_newest(number) {
                let change = |configuration: &mut Configuration| {
                    configuration.growing = true;
                    set_state(configuration, &[number], DriveState::Active);
                };
                labels.commit(change).await?;
            }
        }
        self.layout_follows();
        // Rows may be better off with them.
        self.membership.note_change();
        Ok(())
    }

    /// A drive that was to join has left the table instead. It holds nothing and may be taken out.
    pub fn never_joined(&self, drive: DriveNumber) {
        let Some(index) = self.drives.index(drive) else { return };
        self.io.detach(index);
        self.drives.labels.detach(drive);
        self.membership.note_departed([Departed { index: Some(index as u32), name: self.drives.seen(drive).name }]);
    }

    /// A drive waits to become a voter, and could: it is here.
    pub fn is_one_joining(&self) -> bool {
        joining(&self.drives.labels.configuration()).iter().any(|number| self.drives.index(*number).is_some())
    }

    /// Whether a drive that is joining is to join: each of those added with it took its label.
    pub fn is_joining_meant(&self, number: DriveNumber) -> bool {
        let labels = &self.drives.labels;
        let configuration = labels.configuration();
        let Some(own) = configuration.drives.get(usize::from(number.0)) else { return false };
        let drives = || configuration.drives.iter().zip(0..).filter(|(entry, _)| entry.joined == own.joined);
        drives().any(|(entry, _)| entry.state.votes())
            || drives().all(|(entry, at)| entry.state != DriveState::Joining || labels.holds_newest(DriveNumber(at)))
    }

    /// A drive that is joining is attached again, and goes on.
    pub async fn joining_returned(
        self: &Rc<Self>,
        drive: DriveNumber,
        index: usize,
        label: &Label,
    ) -> Result<(), ArrayError> {
        let _turn = self.administering.lock().await;
        self.check_writable()?;
        self.check_has_stayed(index)?;
        self.drives.labels.attach_returned(drive, index, label);
        self.drives.labels.caught_up(drive);
        self.finish_joining().await
    }

    /// The layout places by the table of drives in force.
    pub fn layout_follows(&self) {
        let configuration = self.drives.labels.configuration().clone();
        self.layout.write().configure(&configuration);
    }
}

fn set_state(configuration: &mut Configuration, drives: &[DriveNumber], state: DriveState) {
    for number in drives {
        if let Some(entry) = configuration.drives.get_mut(usize::from(number.0)) {
            entry.state = state;
        }
    }
}

fn joining(configuration: &Configuration) -> Vec<DriveNumber> {
    let drives = configuration.drives.iter().enumerate();
    drives.filter(|(_, entry)| entry.state == DriveState::Joining).map(|(at, _)| DriveNumber(at as u16)).collect()
}
