//! Changes of the configuration: announced, claimed, committed.

use stele_media::{MediaError, MediaFault};

use super::agreement::{self, is_single_change, majority};
use super::codec::Label;
use super::{ASK_AGAIN, ATTACHED_PATIENCE, Configuration, Discovery, DriveState, Labels, Next, fits};
use crate::model::ArrayError;
use crate::model::mutation::Mutation;
use crate::model::place::DriveNumber;
use crate::runtime::sync::join_all;

impl Labels {
    /// Drives that must hold an anchor, a page of the tables or a log group before it counts.
    pub fn holders(&self) -> usize {
        agreement::holders(&self.0.configuration.borrow(), self.usable().len())
    }

    /// Announces the epoch of this opening to the drives, which keep the configuration they hold.
    /// Until a majority has it flushed nothing is written with that epoch.
    pub async fn promise(&self, discovery: &Discovery) -> Result<(), ArrayError> {
        let _turn = self.0.committing.lock().await;
        if self.0.io.is_disabled(Mutation::Promise) {
            return Ok(());
        }
        let ballot = self.0.next.get();
        let present: Vec<(DriveNumber, &Label)> = discovery
            .present
            .iter()
            .filter_map(|(number, index)| Some((*number, discovery.labels.get(*index)?.as_deref()?)))
            .filter(|(number, _)| self.index(*number).is_some())
            .collect();
        let writes = present.iter().map(|(number, label)| async move {
            let register = self.register(*number);
            let promised = register.promised.max(ballot);
            let Label { configuration, complete, .. } = label;
            self.write_one(Next { configuration, number: *number, promised, complete: *complete }, false).await
        });
        let results = join_all(writes).await;
        let held: Vec<DriveNumber> =
            present.iter().zip(&results).filter(|(_, result)| result.is_ok()).map(|((number, _), _)| *number).collect();
        let configuration = self.0.configuration.borrow();
        let accepted = self.0.override_quorum && !held.is_empty();
        if !majority(&configuration, &held) && !accepted {
            return Err(ArrayError::Degraded(format!(
                "only {} of {} drives took the announcement of epoch {ballot}; return drives until more than half answer, \
                 then open the pool again",
                held.len(),
                agreement::voters(&configuration),
            )));
        }
        Ok(())
    }

    /// First commit of an opening pool: the newest configuration found, with the epoch announced.
    /// Drives that missed something are put down as such, since the commit renews their labels too.
    pub async fn claim(&self, stale: &[DriveNumber]) -> Result<(), ArrayError> {
        self.commit(|configuration| {
            configuration.clean = false;
            configuration.loss_accepted |= self.0.override_quorum && !configuration.shard.is_alone();
            for drive in stale {
                if let Some(entry) = configuration.drives.get_mut(usize::from(drive.0))
                    && entry.state == DriveState::Active
                {
                    entry.state = DriveState::Filling;
                }
            }
        })
        .await
    }

    /// Changes the configuration: epoch + 1, written and flushed on every usable drive; in force
    /// when a majority of the voters of both the old and the new table hold it. One at a time, in
    /// order. At most one voter comes or goes, so that majorities meet whichever of the two an
    /// opening finds. `Degraded` otherwise, and then this and every later commit is refused, since
    /// either configuration may be found at the next open.
    pub async fn commit(&self, change: impl FnOnce(&mut Configuration)) -> Result<(), ArrayError> {
        let _turn = self.0.committing.lock().await;
        if let Some(error) = self.undecided() {
            return Err(error);
        }
        let old = self.0.configuration.borrow().clone();
        let mut new = old.clone();
        new.epoch = self.0.next.get();
        change(&mut new);
        // What an override lets be written without a majority counts as in force wherever it is
        // found.
        new.settled = if self.0.override_quorum { new.epoch } else { self.0.settled.get() };
        let usable = self.usable();
        let apart = self.0.override_quorum && !majority(&old, &usable);
        if apart && !self.0.apart.get() {
            new.overrides.push(agreement::override_id(&new, &usable));
        }
        fits(&new)?;
        assert!(is_single_change(&old, &new), "invariant 11: several voters come or go in epoch {}", new.epoch);
        assert!(
            new.settled <= new.epoch && new.epoch > old.epoch,
            "invariant 11: epoch {} after {}",
            new.epoch,
            old.epoch
        );
        assert!(
            new.log.iter().all(|log| log.epoch <= new.epoch),
            "invariant 11: a log epoch above the configuration's"
        );
        // Where too few drives are here nothing is begun, so that nothing is left undecided.
        let here: Vec<DriveNumber> = self.takers(&old, &new);
        let hopeful = majority(&old, &here) && majority(&new, &here);
        if !hopeful && !self.0.override_quorum && !self.0.io.is_disabled(Mutation::LabelMajority) {
            return Err(too_few(here.len(), &new));
        }
        let mut held = Vec::new();
        let agrees = |held: &[DriveNumber]| {
            majority(&old, held) && majority(&new, held)
                || self.0.override_quorum && !held.is_empty()
                || self.0.io.is_disabled(Mutation::LabelMajority)
        };
        self.write_until(&new, here, &mut held, &agrees).await;
        if !agrees(&held) {
            let error = too_few(held.len(), &new);
            *self.0.undecided.borrow_mut() = Some(error.clone());
            return Err(error);
        }
        // Each drive counted has answered a flush after its label was written.
        self.0.apart.set(self.0.apart.get() || apart);
        self.0.next.set(new.epoch + 1);
        self.0.settled.set(new.epoch);
        *self.0.configuration.borrow_mut() = new;
        Ok(())
    }

    /// Writes the label to these drives. Those that fail and stay attached get the same label
    /// again, for a while, until enough hold it: a controller that resets answers all that is out
    /// with errors, and takes everything a moment later.
    async fn write_until(
        &self,
        new: &Configuration,
        mut targets: Vec<DriveNumber>,
        held: &mut Vec<DriveNumber>,
        agrees: &impl Fn(&[DriveNumber]) -> bool,
    ) {
        let until = self.0.io.now() + ATTACHED_PATIENCE;
        loop {
            let results = self.write_everywhere(new, &targets).await;
            held.extend(results.iter().filter(|(_, result)| result.is_ok()).map(|(drive, _)| *drive));
            targets = results
                .into_iter()
                .filter(|(drive, result)| {
                    matches!(result, Err(error) if error.fault != MediaFault::Gone) && self.index(*drive).is_some()
                })
                .map(|(drive, _)| drive)
                .collect();
            if targets.is_empty() || agrees(held) || self.0.io.now() >= until {
                return;
            }
            self.0.io.sleep(ASK_AGAIN).await;
        }
    }

    /// Drives that are present and in the new table, and one that leaves it in order: that one
    /// counts among the former voters, so that the others need not all answer.
    pub(super) fn takers(&self, old: &Configuration, new: &Configuration) -> Vec<DriveNumber> {
        let leaves = |at: usize, state: DriveState| {
            state == DriveState::Retired && old.drives.get(at).is_some_and(|entry| entry.state.votes())
        };
        let drives = new.drives.iter().map(|entry| entry.state).enumerate();
        drives
            .filter(|(at, state)| state.votes() || *state == DriveState::Joining || leaves(*at, *state))
            .map(|(at, _)| DriveNumber(at as u16))
            .filter(|number| self.index(*number).is_some())
            .collect()
    }

    /// One label on each of these drives; flushed where the result says so.
    pub(super) async fn write_everywhere(
        &self,
        new: &Configuration,
        targets: &[DriveNumber],
    ) -> Vec<(DriveNumber, Result<(), MediaError>)> {
        let writes = targets.iter().map(|number| {
            let (register, state) = (self.register(*number), new.drives[usize::from(number.0)].state);
            let caught_up = register.caught_up || self.0.io.is_disabled(Mutation::LabelComplete);
            let complete = agreement::renewed(register.complete, caught_up, state, new.epoch);
            let promised = register.promised.max(new.epoch);
            self.write_one(Next { configuration: new, number: *number, promised, complete }, false)
        });
        let results = join_all(writes).await;
        targets.iter().copied().zip(results).collect()
    }
}

fn too_few(held: usize, new: &Configuration) -> ArrayError {
    ArrayError::Degraded(format!(
        "only {held} of {} drives took the configuration of epoch {}; return drives until more than half answer, then open \
         the pool again",
        agreement::voters(new),
        new.epoch
    ))
}
