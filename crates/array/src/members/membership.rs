//! Drives that go, come back, are declared failed or replaced: the labels are told first, the
//! strips follow.
//!
//! The loss of a drive is committed to the labels of the others before any write that missed it is
//! acknowledged, so that the drive is known as stale should it return. A returned or new drive is
//! `Filling` until everything it should hold was verified or written again.

use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, select};
use stele_ground::{Bytes, DriveId, Duration};

use crate::drives::Seen;
use crate::drives::label::agreement::is_ancestor;
use crate::drives::label::codec::{Label, NoLabel};
use crate::drives::label::discover::{Reading, read_label};
use crate::drives::label::{Configuration, DriveEntry, DriveState};
use crate::engine::Engine;
use crate::engine::serving::{Rejected, Serving};
use crate::model::mutation::Mutation;
use crate::model::place::{DriveNumber, Lsn};
use crate::model::{AlarmKind, ArrayError, Attached, Departed, DriveHealth, Severity};
use crate::space::layout::{Member, RowKind};

/// A drive that is here and did not take the label that makes it a voter gets it again this often.
const JOIN_AGAIN: Duration = Duration::from_secs(60);
/// Why a blank drive that is attached is not used yet. That is no fault, and nothing is said.
const BLANK: &str = "it carries no label of this pool; put it in the place of a failed drive";
/// Why a drive that was given up is not used when it is attached. Its state says so.
const GIVEN_UP: &str = "it was given up; `stele drive clear` takes it back, or put it in the place of a failed drive";

/// A drive that may take the place of another.
struct Replacement {
    old: DriveNumber,
    state: DriveState,
    /// The enclosure of the old one.
    own: u32,
    /// The old one answers.
    answers: bool,
    index: usize,
    attached: Attached,
    needed: Bytes,
    sequence: u64,
}

impl Replacement {
    /// What the table says of the new drive when the old one begins to leave.
    fn newcomer(&self, identity: DriveId, enclosure: Option<u32>) -> DriveEntry {
        DriveEntry {
            identity,
            enclosure: enclosure.unwrap_or(self.own),
            size: self.attached.geometry.size,
            state: DriveState::Active,
            leaving: false,
            joined: 0,
        }
    }
}

impl Engine {
    /// Runs for the pool's life: goes on with additions that were cut off, and commits losses of
    /// drives.
    pub async fn membership_flow(self: Rc<Self>) {
        self.go_on_joining().await;
        loop {
            let changed = self.membership.changed();
            if self.membership.has_losses() {
                if self.settle_losses().await.is_err() {
                    return;
                }
            } else if !self.is_one_joining() {
                changed.await;
            } else if let Either::Right(_) = select(pin!(changed), pin!(self.io.sleep(JOIN_AGAIN))).await {
                self.go_on_joining().await;
            }
        }
    }

    async fn go_on_joining(self: &Rc<Self>) {
        if self.standing.is_read_only() {
            return;
        }
        let _turn = self.administering.lock().await;
        if let Err(error) = self.finish_joining().await {
            tracing::warn!("drives that were being added could not join: {error}");
        }
    }

    /// Changes a drive's standing in the labels.
    pub async fn commit_state(&self, drive: DriveNumber, state: DriveState) -> Result<(), ArrayError> {
        let labels = self.drives.labels.clone();
        labels
            .commit(|configuration| {
                // A commit that came first may have had it leave for good.
                if let Some(entry) = configuration.drives.get_mut(usize::from(drive.0))
                    && entry.state != DriveState::Retired
                {
                    entry.state = state;
                }
            })
            .await?;
        let configuration = self.drives.labels.configuration().clone();
        self.layout.write().configure(&configuration);
        Ok(())
    }

    /// Everything the drive should hold is on it.
    pub async fn filled(&self, drive: DriveNumber) -> Result<(), ArrayError> {
        let labels = &self.drives.labels;
        let (since, state) = (labels.attachments(), self.drive_state(drive));
        // A drive that leaves and is back may lack what was written meanwhile.
        let has_stayed = || labels.has_stayed(drive, since);
        let left = || ArrayError::Degraded(format!("{drive} left while it was being called whole"));
        // What was moved back is recorded for good before the drive counts as whole, or a crash
        // would leave strips in spare cells of a drive that no rebuild fills any more.
        self.log.durable(Lsn(self.log.next_lsn().0 - 1)).await?;
        // It may have left meanwhile, and its strips may be on their way to spare cells.
        if !has_stayed() || self.drive_state(drive) != state || self.has_spares(drive) {
            return Err(left());
        }
        labels.caught_up(drive);
        if state == DriveState::Filling {
            let whole = |configuration: &mut Configuration| {
                // A write that it misses from here on has a commit of its own, after this one.
                if let Some(entry) = configuration.drives.get_mut(usize::from(drive.0))
                    && entry.state == DriveState::Filling
                    && !self.drives.has_missed(drive)
                    && has_stayed()
                {
                    entry.state = DriveState::Active;
                }
            };
            labels.commit(whole).await?;
        }
        if !has_stayed() || ![state, DriveState::Active].contains(&self.drive_state(drive)) {
            // What is noted of it since then is newer.
            return Err(left());
        }
        let behind = self.drives.has_missed(drive);
        self.drives.change(drive, |seen| {
            seen.stale = false;
            seen.missing_since = None;
            if !behind {
                seen.note.clear();
            }
        });
        self.membership.note_change();
        self.verify_lost();
        self.log.replenish().await
    }

    /// Strips of the drive may lie in spare cells.
    pub fn has_spares(&self, drive: DriveNumber) -> bool {
        let here = |member: &Member| member.cell.drive == drive && member.replacement.is_some();
        let layout = self.layout.read();
        layout.rows().any(|row| row.class.kind == RowKind::Data && row.members.iter().any(here))
    }

    /// Gives a drive up at an operator's word.
    pub async fn fail_drive(&self, drive: DriveNumber) -> Result<(), ArrayError> {
        self.check_writable()?;
        self.check_can_lose(drive)?;
        if self.drives.index(drive).is_some() {
            self.can_do_without(drive).map_err(ArrayError::Refused)?;
        }
        self.commit_state(drive, DriveState::Failed).await?;
        if let Some(index) = self.drives.index(drive) {
            self.io.detach(index);
            self.drives.labels.detach(drive);
        }
        let now = self.io.now();
        self.drives.change(drive, |seen| {
            seen.missing_since = Some(now);
            seen.stale = true;
            seen.note = "declared failed; replace it".into();
        });
        self.membership.note_given_up(drive);
        self.log.drive_lost(drive);
        self.alarm(AlarmKind::DriveFailed, Severity::Warning, Some(drive), format!("{drive} was declared failed"));
        self.membership.note_change();
        Ok(())
    }

    /// Refuses to give up a drive that answers, where some stripe could then not be read any more.
    pub fn check_can_lose(&self, drive: DriveNumber) -> Result<(), ArrayError> {
        let configuration = self.drives.labels.configuration();
        let Some(entry) = configuration.drives.get(usize::from(drive.0)) else {
            return Err(ArrayError::Missing(format!("the pool has no {drive}")));
        };
        if !entry.state.votes() {
            return Err(ArrayError::Invalid(format!("{drive} is no longer in use")));
        }
        drop(configuration);
        match self.drives.index(drive) {
            Some(_) => self.check_unneeded(drive),
            None => Ok(()),
        }
    }

    /// Refuses where some stripe can be read only with this drive, which may be away and come back.
    fn check_unneeded(&self, drive: DriveNumber) -> Result<(), ArrayError> {
        let layout = self.layout.read();
        for row in layout.rows().filter(|row| row.uses(drive) && self.look(|core| core.space.used(row.id)) > 0) {
            let without = self.strips_without(row, |lost| lost == drive);
            if without > row.class.code.tolerates() {
                return Err(ArrayError::Refused(format!(
                    "giving {drive} up would make stripes of {} in row {} unreadable; wait for the rebuild, or bring \
                     missing drives back first",
                    row.class.code, row.id.0
                )));
            }
        }
        Ok(())
    }

    /// Refuses to let a drive go in whose place another one is put.
    fn check_can_go(&self, old: DriveNumber, give_up: bool) -> Result<(), ArrayError> {
        let answers = self.drives.index(old).is_some();
        if answers || !give_up {
            self.check_unneeded(old)?;
        }
        if answers && self.drive_state(old).votes() {
            self.can_do_without(old).map_err(ArrayError::Refused)?;
        }
        Ok(())
    }

    /// Who puts a drive into the table has waited, and it may have left again: it left before
    /// anybody knew whose it was.
    pub fn check_has_stayed(&self, index: usize) -> Result<(), ArrayError> {
        match self.io.is_gone(index) {
            true => Err(ArrayError::Degraded(format!("the drive at index {index} has left again; attach it anew"))),
            false => Ok(()),
        }
    }

    /// A drive of the pool is back at this index.
    async fn drive_returned(
        self: &Rc<Self>,
        drive: DriveNumber,
        index: usize,
        label: &Label,
    ) -> Result<(), ArrayError> {
        // A loss under way is committed first, or the drive would count as never gone.
        if !self.standing.is_read_only()
            && let Err(error) = self.settle_losses().await
        {
            tracing::warn!("{drive} is back, for reading only: {error}");
        }
        self.check_has_stayed(index)?;
        self.drives.labels.attach_returned(drive, index, label);
        self.drives.change(drive, |seen| {
            seen.stale = true;
            seen.missing_since = None;
            seen.note = "was away; being brought up to date".into();
        });
        self.alarm(
            AlarmKind::DriveStale,
            Severity::Notice,
            Some(drive),
            format!("{drive} is back and is brought up to date"),
        );
        if !self.standing.is_read_only() {
            self.commit_state(drive, DriveState::Filling).await?;
            // A rebuild that was quick has called it whole already, before the labels said anything
            // else.
            self.drives.change(drive, |seen| seen.stale = true);
            self.log.replenish().await?;
        }
        self.membership.note_change();
        self.destaging.forgive_all();
        self.destaging.want();
        Ok(())
    }
}

impl Serving {
    /// A drive was attached while the pool is open.
    pub fn attach(self: &Rc<Self>, index: usize, attached: Attached) {
        let serving = Rc::clone(self);
        self.arrive(index, attached.clone());
        self.engine.io.spawn(async move {
            if let Err(note) = serving.receive(index, &attached).await
                && serving.engine.drives.labels.number(index).is_none()
                && !serving.engine.io.is_gone(index)
                && note != BLANK
                && note != GIVEN_UP
            {
                serving.engine.alarm(
                    AlarmKind::DriveRejected,
                    Severity::Warning,
                    None,
                    format!("{} is not used: {note}", attached.name),
                );
                serving.reject(Rejected { index, attached, note, health: DriveHealth::Rejected });
            }
        });
    }

    pub async fn receive(self: &Rc<Self>, index: usize, attached: &Attached) -> Result<(), String> {
        let engine = &self.engine;
        let label = match read_label(&engine.io, index, attached.geometry.size).await {
            Reading::Label(label) => label,
            // Pushed in to be named by the operator's next command.
            Reading::None(NoLabel::Blank) => return Err(BLANK.into()),
            Reading::None(_) => {
                return Err(
                    "it carries no label that can be read; wipe it, and put it in the place of a failed drive".into()
                );
            }
            Reading::Unreadable(message) => return Err(format!("its label cannot be read: {message}")),
        };
        let (number, identity) = {
            let configuration = engine.drives.labels.configuration();
            let theirs = &label.configuration;
            if label.configuration.pool != configuration.pool {
                return Err(format!("it belongs to pool {}", label.configuration.pool));
            }
            let own = label.configuration.drives.get(usize::from(label.number.0)).map(|entry| entry.identity);
            let Some(entry) = configuration.drives.get(usize::from(label.number.0)) else {
                return Err("the pool's table does not know it".into());
            };
            if own != Some(entry.identity) {
                return Err("another drive has taken its place in the pool; it can be put in anew".into());
            }
            if !entry.state.votes() && entry.state != DriveState::Joining {
                return Err(GIVEN_UP.into());
            }
            if attached.geometry.size < entry.size {
                return Err(format!("it has {}, the pool needs {}", attached.geometry.size, entry.size));
            }
            if !is_ancestor(theirs, &configuration) || theirs.epoch > configuration.epoch {
                return Err(format!(
                    "it was written to elsewhere, as of epoch {}, and this pool is at {}; close the pool and open it with \
                     this drive there, or wipe the drive and put it in anew",
                    theirs.epoch, configuration.epoch
                ));
            }
            (label.number, entry.identity)
        };
        if engine.drives.index(number).is_some() {
            return Err(format!(
                "{number} with the same identity {identity} is attached already; one of them is a clone"
            ));
        }
        engine.drives.change(number, |seen| seen.name.clone_from(&attached.name));
        let returned = match engine.drive_state(number) {
            DriveState::Joining => engine.joining_returned(number, index, &label).await,
            _ => engine.drive_returned(number, index, &label).await,
        };
        returned.map_err(|error| error.to_string())
    }

    /// Puts an attached drive in the place of another one, which may be gone; everything is written
    /// to it again.
    pub async fn replace(
        self: &Rc<Self>,
        old: u32,
        new: u32,
        identity: DriveId,
        enclosure: Option<u32>,
        give_up: bool,
    ) -> Result<(), ArrayError> {
        let engine = &self.engine;
        let found = self.replacement(old, new, identity).await?;
        let hands_over = self.hands_over(&found, give_up);
        let Replacement { old, state, own, answers, index, attached, needed, sequence } = found;
        // A driver that opens a drive for this does not know where it is.
        let own = if engine.io.is_disabled(Mutation::Enclosures) { attached.enclosure } else { own };
        let attached = Attached { enclosure: enclosure.unwrap_or(own), ..attached };
        if hands_over {
            return self.hand_over(old, index, identity, attached).await;
        }
        let _turn = engine.administering.lock().await;
        let is_taken = engine.drives.labels.configuration().drives.iter().any(|entry| entry.identity == identity);
        let is_free = engine.drives.labels.number(index).is_none() && !is_taken;
        if !is_free || engine.drive_state(old) != state || engine.drives.index(old).is_some() != answers {
            let what =
                format!("another command changed {old} or {} meanwhile; look at the pool's status", attached.name);
            return Err(ArrayError::Refused(what));
        }
        engine.check_can_go(old, give_up)?;
        self.put_in(old, index, identity, attached, needed, sequence).await
    }

    /// Refuses where `replace` would, and changes nothing.
    pub async fn would_replace(
        &self,
        old: u32,
        new: u32,
        identity: DriveId,
        enclosure: Option<u32>,
        give_up: bool,
    ) -> Result<(), ArrayError> {
        let found = self.replacement(old, new, identity).await?;
        if self.hands_over(&found, give_up) {
            self.would_add(&[(new, identity)]).await?;
            return self.engine.check_can_be_replaced(found.old, found.newcomer(identity, enclosure));
        }
        self.engine.check_can_go(found.old, give_up)?;
        self.engine.takes_writes(found.index, &found.attached.name).await
    }

    /// The old drive stays until the new one has what lies on it.
    fn hands_over(&self, found: &Replacement, give_up: bool) -> bool {
        found.answers && found.state.votes() && !give_up && !self.engine.io.is_disabled(Mutation::CopyFirst)
    }

    /// The attached drive at an index, if it may take the place of the old one.
    async fn replacement(&self, old: u32, new: u32, identity: DriveId) -> Result<Replacement, ArrayError> {
        let engine = &self.engine;
        engine.check_writable()?;
        let old =
            DriveNumber(u16::try_from(old).map_err(|_| ArrayError::Missing(format!("the pool has no drive {old}")))?);
        let index = new as usize;
        let attached = self.newcomer_at(new, identity)?;
        let (needed, state, own) = {
            let configuration = engine.drives.labels.configuration();
            let entry = configuration
                .drives
                .get(usize::from(old.0))
                .ok_or_else(|| ArrayError::Missing(format!("the pool has no {old}")))?;
            (entry.size, entry.state, entry.enclosure)
        };
        if attached.geometry.size < needed {
            return Err(ArrayError::Invalid(format!(
                "{} has {}, the drive it replaces {needed}; use one at least as large",
                attached.name, attached.geometry.size
            )));
        }
        // Its next label goes on from the one that it carries, or that would count as newer.
        let sequence = engine.own_label(index, &attached).await?.map_or(0, |label| label.sequence);
        if state == DriveState::Retired {
            return Err(ArrayError::Missing(format!("{old} has left the pool already; add drives instead")));
        }
        let answers = engine.drives.index(old).is_some();
        Ok(Replacement { old, state, own, answers, index, attached, needed, sequence })
    }

    /// The new drive joins, and the old one is emptied and leaves: until then everything that it
    /// holds counts.
    async fn hand_over(
        self: &Rc<Self>,
        old: DriveNumber,
        index: usize,
        identity: DriveId,
        attached: Attached,
    ) -> Result<(), ArrayError> {
        let engine = &self.engine;
        self.place(index, attached.enclosure);
        engine.check_readable_rows(old)?;
        let _width = engine.table.keep_width();
        self.add_drives(&[(index as u32, identity)]).await?;
        let refused = engine.remove_drive(u32::from(old.0)).await;
        if let Err(error) = &refused
            && let Some(added) = engine.drives.labels.number(index)
            && let Err(second) = engine.remove_drive(u32::from(added.0)).await
        {
            tracing::warn!("{added} stays in the pool although {old} does ({error}): {second}");
        }
        refused
    }

    async fn put_in(
        self: &Rc<Self>,
        old: DriveNumber,
        index: usize,
        identity: DriveId,
        attached: Attached,
        needed: Bytes,
        sequence: u64,
    ) -> Result<(), ArrayError> {
        let engine = &self.engine;
        // Where the next shard's part of the drive begins, an opening learns from this size.
        let is_alone = engine.drives.labels.configuration().shard.is_alone();
        let size = if is_alone { needed } else { attached.geometry.size };
        engine.takes_writes(index, &attached.name).await?;
        engine.clear_groups(index, &attached.name).await?;
        // One voter leaves before another one comes in its place: see `label::agreement`.
        if engine.drive_state(old).votes() {
            engine.commit_state(old, DriveState::Failed).await?;
        }
        let former = engine
            .drives
            .index(old)
            .map(|index| Departed { index: Some(index as u32), name: engine.drives.seen(old).name });
        if let Some(index) = engine.drives.index(old) {
            engine.io.detach(index);
            engine.log.drive_lost(old);
        }
        // The driver lets go of what is attached still: its operator may want it elsewhere.
        engine.membership.note_departed(former);
        engine.membership.forget_loss(old);
        engine.drives.labels.attach_new(old, index, false, sequence);
        let enclosure = attached.enclosure;
        engine
            .drives
            .labels
            .commit(|configuration| {
                let joined = configuration.epoch;
                if let Some(entry) = configuration.drives.get_mut(usize::from(old.0)) {
                    // An operator who puts a drive in means to keep it.
                    let (state, leaving) = (DriveState::Filling, false);
                    *entry = DriveEntry { identity, enclosure, size, state, leaving, joined };
                }
            })
            .await?;
        if !engine.drives.labels.holds_newest(old) {
            // The drive that comes next may have no more than is needed.
            let failed = |configuration: &mut Configuration| {
                if let Some(entry) = configuration.drives.get_mut(usize::from(old.0)) {
                    (entry.state, entry.size) = (DriveState::Failed, needed);
                }
            };
            engine.drives.labels.commit(failed).await?;
            engine.layout_follows();
            engine.drives.labels.detach(old);
            return Err(ArrayError::Degraded(format!(
                "{} does not take its label; {old} is still to be replaced, by another drive",
                attached.name
            )));
        }
        let configuration = engine.drives.labels.configuration().clone();
        engine.layout.write().configure(&configuration);
        engine.drives.change(old, |seen| {
            // Another drive: what its predecessor did wrong is not its own.
            let (name, note) = (attached.name.clone(), "new; being filled".into());
            *seen = Seen { name, stale: true, note, ..Seen::default() };
        });
        engine.hospital.replaced(old);
        self.accept(index);
        engine.membership.note_change();
        // The drive is a member now, whatever becomes of this.
        if let Err(error) = engine.log.replenish().await {
            tracing::warn!("{} is in the pool, and the log does not use it yet: {error}", attached.name);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
