//! Which drives carry the log, and how one is replaced.
//!
//! An epoch change waits until every departed group has landed or failed, and writes those groups
//! to the newcomers as well. It has a majority of the labels agree that later groups lie on the new
//! members. Only then is anything acknowledged again, so that an acknowledged group always lies on
//! all members of its epoch, or of the one after.

use std::collections::{BTreeMap, BTreeSet};

use stele_ground::Duration;
use stele_media::Shared;

use super::Log;
use crate::drives::label::{ASK_AGAIN, ATTACHED_PATIENCE, Configuration, Labels, LogEpoch};
use crate::model::ArrayError;
use crate::model::mutation::Mutation;
use crate::model::place::DriveNumber;
use crate::runtime::sync::join_all;

/// How long the log goes on without a lacking member before it asks the other drives again: at
/// first, and at most.
const REFILL_FIRST: Duration = Duration::from_secs(60);
const REFILL_MAX: Duration = Duration::from_secs(3600);
/// So often, which takes a day; after that a drive that comes, or the next loss, begins anew.
const REFILLS: u32 = 28;

/// How often a member that answers is asked to leave: what was under way may have made it a member
/// again.
const LEAVES: u32 = 3;

/// Replicas there should be.
pub fn wanted(labels: &Labels) -> usize {
    labels.configuration().replicas().min(labels.usable().len())
}

/// Fewer than m + 1 members, or than all drives that answer, are too few to acknowledge anything,
/// unless the operator accepted it.
pub fn enough(labels: &Labels, members: &[DriveNumber]) -> Result<(), ArrayError> {
    let least = if labels.is_disabled(Mutation::LogMembers) { 1 } else { labels.holders() };
    if members.len() >= least || labels.overridden() && !members.is_empty() {
        return Ok(());
    }
    Err(ArrayError::Degraded(format!(
        "the log has {} of the {least} drives it needs at least; writes stop until drives are returned or replaced",
        members.len()
    )))
}

/// `keep` and as many more usable drives as are wanted: those with the newest label first, from the
/// enclosures least used, then by number.
pub fn choose(labels: &Labels, keep: &[DriveNumber], avoid: &BTreeSet<DriveNumber>) -> Vec<DriveNumber> {
    let wanted = wanted(labels);
    let usable = labels.lasting();
    let configuration = labels.configuration();
    let enclosure = |drive: DriveNumber| configuration.drives.get(usize::from(drive.0)).map_or(0, |e| e.enclosure);
    let mut members: Vec<DriveNumber> = keep.to_vec();
    let mut crowd: BTreeMap<u32, usize> = BTreeMap::new();
    for member in &members {
        *crowd.entry(enclosure(*member)).or_default() += 1;
    }
    while members.len() < wanted {
        let free = usable.iter().filter(|drive| !members.contains(drive) && !avoid.contains(drive));
        let crowd_of = |drive: DriveNumber| crowd.get(&enclosure(drive)).copied().unwrap_or(0);
        let Some(best) = free.copied().min_by_key(|drive| (!labels.is_up_to_date(*drive), crowd_of(*drive), *drive))
        else {
            break;
        };
        *crowd.entry(enclosure(best)).or_default() += 1;
        members.push(best);
    }
    members
}

/// Adds an epoch and forgets those in which no group is live any more.
pub fn begin_epoch(configuration: &mut Configuration, first_group: u64, members: &[DriveNumber], oldest: u64) -> u64 {
    // The epoch of the commit that carries this: above any epoch used before.
    let epoch = configuration.epoch;
    configuration.log.retain(|past| past.first_group < first_group);
    configuration.log.push(LogEpoch { epoch, first_group, members: members.to_vec() });
    while let [_, second, ..] = &configuration.log[..]
        && second.first_group <= oldest
    {
        configuration.log.remove(0);
    }
    epoch
}

impl Log {
    /// A drive was lost or declared failed: if it is a member, it is replaced.
    pub fn drive_lost(&self, drive: DriveNumber) {
        let mut state = self.change();
        if state.read_only || !state.members.contains(&drive) {
            return;
        }
        state.lost.insert(drive);
        drop(state);
        self.mend();
    }

    /// Drives came, returned, or more replicas are wanted: fills up the members, if any lack.
    /// Answers when done.
    pub async fn replenish(&self) -> Result<(), ArrayError> {
        loop {
            let landed = self.0.landed.changed();
            if let Some(error) = self.stopped() {
                return Err(error);
            }
            if !self.state().changing {
                break;
            }
            landed.await;
        }
        if !self.could_be_fuller() {
            return Ok(());
        }
        self.change().changing = true;
        self.change_members().await
    }

    /// Members lack, and there are drives that could take their place.
    fn could_be_fuller(&self) -> bool {
        let members = self.state().members.clone();
        !self.state().read_only && choose(&self.0.labels, &members, &BTreeSet::new()).len() > members.len()
    }

    /// A drive that could not take over the log may be able to later: without this a log that lacks
    /// a member would lack it until a drive comes.
    fn refill_later(&self) {
        if !self.could_be_fuller() || self.stopped().is_some() || std::mem::replace(&mut self.change().refilling, true)
        {
            return;
        }
        let log = self.clone();
        self.0.io.spawn(async move {
            let mut wait = REFILL_FIRST;
            for _ in 0..REFILLS {
                log.0.io.sleep(wait).await;
                wait = Duration(wait.0 * 2).min(REFILL_MAX);
                // An error has stopped the log, which tells everybody who waits.
                if log.replenish().await.is_err() || !log.could_be_fuller() {
                    break;
                }
            }
            log.change().refilling = false;
        });
    }

    /// A drive that answers is to carry the log no more. Answers when later groups lie on others.
    /// An error where no other drive takes its place: then it carries the log as before.
    pub async fn leave(&self, drive: DriveNumber) -> Result<(), ArrayError> {
        // What is under way may make it a member.
        self.replenish().await?;
        for _ in 0..LEAVES {
            {
                let mut state = self.change();
                if state.read_only || !state.members.contains(&drive) {
                    return Ok(());
                }
                state.unwanted.insert(drive);
            }
            self.mend();
            self.replenish().await?;
        }
        let is_member = self.state().members.contains(&drive);
        match is_member {
            true => Err(ArrayError::Degraded(format!("no other drive takes the log of {drive}; add or return drives"))),
            false => Ok(()),
        }
    }

    /// Starts an epoch change when a member is lost and none is under way.
    pub(super) fn mend(&self) {
        let mut state = self.change();
        let leaves = |member: &DriveNumber| state.lost.contains(member) || state.unwanted.contains(member);
        if !state.members.iter().any(leaves) || state.changing || state.stopped.is_some() {
            return;
        }
        state.changing = true;
        drop(state);
        let log = self.clone();
        self.0.io.spawn(async move {
            // An error has stopped the log, which tells everybody who waits.
            drop(log.change_members().await);
        });
    }

    async fn change_members(&self) -> Result<(), ArrayError> {
        let result = self.try_change_members().await;
        if let Err(error) = &result {
            self.stop(error.clone());
        }
        self.change().changing = false;
        self.0.landed.wake_all();
        self.acknowledge();
        self.mend();
        self.refill_later();
        self.kick();
        self.0.pressure.wake_all();
        result
    }

    async fn try_change_members(&self) -> Result<(), ArrayError> {
        let until = self.0.io.now() + ATTACHED_PATIENCE;
        loop {
            self.all_landed().await;
            let (kept, answering, avoid, unwanted, next_group, oldest) = {
                let state = self.state();
                let avoid = &state.lost | &state.unwanted;
                let kept: Vec<_> = state.members.iter().copied().filter(|m| !avoid.contains(m)).collect();
                let answering = state.members.iter().filter(|m| !state.lost.contains(m)).count();
                let oldest = state.live.front().map_or(0, |live| live.sequence);
                (kept, answering, avoid, state.unwanted.clone(), state.next_group, oldest)
            };
            let members = choose(&self.0.labels, &kept, &avoid);
            // A drive that leaves the pool needs no successor while enough drives carry the log.
            let may_go = {
                let (configuration, state) = (self.0.labels.configuration(), self.state());
                let leaves = |m: &&DriveNumber| configuration.drives.get(usize::from(m.0)).is_some_and(|e| e.leaving);
                unwanted.iter().filter(leaves).filter(|drive| state.members.contains(drive)).count()
            };
            let is_enough = members.len() + may_go >= answering && enough(&self.0.labels, &members).is_ok();
            if members.len() < answering && !is_enough {
                // A member that answers stays where no drive takes its place.
                let mut state = self.change();
                state.unwanted.clear();
                if !state.members.iter().any(|member| state.lost.contains(member)) {
                    state.lost.clear();
                    return Ok(());
                }
                continue;
            }
            if let Err(error) = enough(&self.0.labels, &members) {
                // A controller that resets answers all that is out with errors, and takes
                // everything a moment later.
                if self.0.io.now() >= until || !self.ask_lost_again().await {
                    return Err(self.with_last_failure(error));
                }
                continue;
            }
            let newcomers = &members[kept.len()..];
            if newcomers.is_empty() && members == self.state().members {
                // No drive that was asked could come.
                let mut state = self.change();
                state.lost.clear();
                state.unwanted.clear();
                return Ok(());
            }
            if !self.copy_flights(newcomers).await {
                continue;
            }
            let mut epoch = 0;
            self.0.labels.commit(|c| epoch = begin_epoch(c, next_group, &members, oldest)).await?;
            let on: Vec<String> = members.iter().map(|member| member.0.to_string()).collect();
            tracing::debug!("log epoch {epoch}: groups from {next_group} on lie on drives {}", on.join(", "));
            let mut state = self.change();
            state.members = members;
            state.epoch = epoch;
            state.thin_below = next_group;
            state.counters.epoch_changes += 1;
            // A drive that is no member any more may become one again once it is usable.
            let members = state.members.clone();
            state.lost.retain(|lost| members.contains(lost));
            state.unwanted.retain(|drive| !unwanted.contains(drive));
            return Ok(());
        }
    }

    /// Writes what is not acknowledged once more to members that failed and are still attached,
    /// after a while: those that take it count again, and so do other drives that failed. False
    /// where no such drive is attached.
    async fn ask_lost_again(&self) -> bool {
        let lost: Vec<DriveNumber> = {
            let usable = self.0.labels.usable();
            self.state().lost.iter().copied().filter(|drive| usable.contains(drive)).collect()
        };
        if lost.is_empty() {
            return false;
        }
        self.0.io.sleep(ASK_AGAIN).await;
        for drive in lost {
            let flights: Vec<(u64, u64, Shared)> = {
                let state = self.state();
                let lacking = state.flights.iter().filter(|flight| !flight.held.contains(&drive));
                lacking.map(|flight| (flight.sequence, flight.offset, flight.bytes.clone())).collect()
            };
            let mut is_well = true;
            for (sequence, offset, bytes) in flights {
                is_well &= self.put(drive, offset, bytes).await.is_ok();
                let mut state = self.change();
                if is_well && let Some(flight) = state.flights.iter_mut().find(|flight| flight.sequence == sequence) {
                    flight.held.insert(drive);
                }
                if !is_well {
                    break;
                }
            }
            if is_well {
                tracing::info!("{drive} takes the log again");
                self.change().lost.remove(&drive);
            }
        }
        true
    }

    /// What an operator can mend is what the drive says.
    fn with_last_failure(&self, error: ArrayError) -> ArrayError {
        match (&self.state().last_failure, error) {
            (Some((drive, failure)), ArrayError::Degraded(text)) => {
                ArrayError::Degraded(format!("{text}; the write that failed last, on {drive}: {failure}"))
            }
            (_, error) => error,
        }
    }

    async fn all_landed(&self) {
        loop {
            let landed = self.0.landed.changed();
            if self.state().flights.iter().all(|flight| flight.landed) {
                return;
            }
            landed.await;
        }
    }

    /// Whether the newcomers answer at all; the others count as lost.
    async fn answer(&self, newcomers: &[DriveNumber]) -> bool {
        let ask = |drive: DriveNumber| async move {
            match self.0.labels.index(drive) {
                Some(index) => self.0.io.answers(index).await,
                None => false,
            }
        };
        let answers = join_all(newcomers.iter().map(|drive| ask(*drive))).await;
        let silent = newcomers.iter().zip(&answers).filter(|(_, answers)| !**answers).map(|(drive, _)| *drive);
        self.change().lost.extend(silent);
        !answers.contains(&false)
    }

    /// Makes the groups that are not acknowledged durable on the newcomers; false when one of those
    /// failed.
    async fn copy_flights(&self, newcomers: &[DriveNumber]) -> bool {
        let flights: Vec<(u64, u64, Shared)> =
            self.state().flights.iter().map(|f| (f.sequence, f.offset, f.bytes.clone())).collect();
        if flights.is_empty() {
            return self.answer(newcomers).await;
        }
        let mut all = true;
        for (sequence, offset, bytes) in flights {
            let results = join_all(newcomers.iter().map(|drive| self.put(*drive, offset, bytes.clone()))).await;
            let mut state = self.change();
            for (drive, result) in newcomers.iter().zip(results) {
                match result {
                    Ok(()) => {
                        if let Some(flight) = state.flights.iter_mut().find(|flight| flight.sequence == sequence) {
                            flight.held.insert(*drive);
                        }
                    }
                    Err(error) => {
                        tracing::warn!("{drive} cannot take over the log: {error}");
                        state.lost.insert(*drive);
                        state.last_failure = Some((*drive, error));
                        all = false;
                    }
                }
            }
        }
        all
    }
}
