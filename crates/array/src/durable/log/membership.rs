//! Which drives carry the log, and how one is replaced.
//!
//! An epoch change waits until every departed group has landed or failed, writes those groups to the newcomers as well,
//! and has a majority of the labels agree that later groups lie on the new members. Only then is anything acknowledged again,
//! so that an acknowledged group always lies on all members of its epoch, or of the one after.

use std::collections::{BTreeMap, BTreeSet};

use stele_media::Shared;

use super::Log;
use crate::drives::label::{Configuration, Labels, LogEpoch};
use crate::model::ArrayError;
use crate::model::mutation::Mutation;
use crate::model::place::DriveNumber;
use crate::runtime::sync::join_all;

/// Replicas there should be.
pub fn wanted(labels: &Labels) -> usize {
    labels.configuration().replicas().min(labels.usable().len())
}

/// Fewer than m + 1 members are too few to acknowledge anything, unless the operator accepted it.
pub fn enough(labels: &Labels, members: &[DriveNumber]) -> Result<(), ArrayError> {
    let least =
        if labels.is_disabled(Mutation::LogMembers) { 1 } else { labels.configuration().tolerates as usize + 1 };
    if members.len() >= least || labels.overridden() && !members.is_empty() {
        return Ok(());
    }
    Err(ArrayError::Degraded(format!(
        "the log has {} of the {least} drives it needs at least; writes stop until drives are returned or replaced",
        members.len()
    )))
}

/// `keep` and as many more usable drives as are wanted: from the enclosures least used first, then by number.
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
        let Some(best) = free.min_by_key(|drive| (crowd.get(&enclosure(**drive)).copied().unwrap_or(0), **drive))
        else {
            break;
        };
        *crowd.entry(enclosure(*best)).or_default() += 1;
        members.push(*best);
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

    /// Drives came, returned, or more replicas are wanted: fills up the members, if any lack. Answers when done.
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
        let members = self.state().members.clone();
        if self.state().read_only || choose(&self.0.labels, &members, &BTreeSet::new()).len() <= members.len() {
            return Ok(());
        }
        self.change().changing = true;
        self.change_members().await
    }

    /// A drive that answers is to carry the log no more. Answers when later groups lie on others.
    pub async fn leave(&self, drive: DriveNumber) -> Result<(), ArrayError> {
        loop {
            // Each time: a change of members that was under way may have made it one.
            self.drive_lost(drive);
            self.replenish().await?;
            let state = self.state();
            if state.read_only || !state.members.contains(&drive) {
                return Ok(());
            }
        }
    }

    /// Starts an epoch change when a member is lost and none is under way.
    pub(super) fn mend(&self) {
        let mut state = self.change();
        let lost = state.members.iter().any(|member| state.lost.contains(member));
        if !lost || state.changing || state.stopped.is_some() {
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
        self.kick();
        self.0.pressure.wake_all();
        result
    }

    async fn try_change_members(&self) -> Result<(), ArrayError> {
        loop {
            self.all_landed().await;
            let (kept, lost, next_group, oldest) = {
                let state = self.state();
                let kept: Vec<_> = state.members.iter().copied().filter(|m| !state.lost.contains(m)).collect();
                (kept, state.lost.clone(), state.next_group, state.live.front().map_or(0, |live| live.sequence))
            };
            let members = choose(&self.0.labels, &kept, &lost);
            enough(&self.0.labels, &members)?;
            let newcomers = &members[kept.len()..];
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
            // Whoever is no member any more may become one again once it is usable.
            let members = state.members.clone();
            state.lost.retain(|lost| members.contains(lost));
            return Ok(());
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

    /// Makes the groups that are not acknowledged durable on the newcomers; false when one of those failed.
    async fn copy_flights(&self, newcomers: &[DriveNumber]) -> bool {
        let flights: Vec<(u64, u64, Shared)> =
            self.state().flights.iter().map(|f| (f.sequence, f.offset, f.bytes.clone())).collect();
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
                        all = false;
                    }
                }
            }
        }
        all
    }
}
