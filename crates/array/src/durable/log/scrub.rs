//! Reading the live part of the log on every member, and repairing what differs.

use std::collections::{BTreeMap, BTreeSet};

use stele_media::{Priority, Shared};

use super::group::Header;
use super::ring::{Expected, RingReader};
use super::{Live, Log};
use crate::drives::label::{ASK_AGAIN, LOG_AT};
use crate::model::place::{DriveNumber, Lsn};
use crate::model::{ArrayError, Scrubbed};

/// What a pass over the log has seen so far.
#[derive(Default)]
struct Pass {
    repaired: u64,
    /// Members that were given a moment: a drive that fails for good is not waited for at every
    /// group.
    waited_for: BTreeSet<DriveNumber>,
    /// Groups that no member has whole.
    nowhere: Vec<u64>,
    nowhere_on: BTreeSet<DriveNumber>,
    /// Why a damaged copy could not be written again, and how many could not.
    unwritten: BTreeMap<DriveNumber, (String, u64)>,
}

impl Log {
    /// Compares every group that is durable now on all members and rewrites damaged copies; groups
    /// that come meanwhile are the next pass's, or a busy pool would never see the end. What cannot
    /// be put right keeps it from nothing else. A group that is whole nowhere is reported, since
    /// until the next checkpoint a crash would lose it, and so is a member that takes no copy.
    ///
    /// Each group is a turn of its own: a washing, which the end of the pool may wait for, comes in
    /// between. `ends`: no further group is looked at.
    pub async fn scrub(&self, ends: impl Fn() -> bool) -> Scrubbed {
        let mut pass = Pass::default();
        let mut next = 0;
        let last = self.state().watermark;
        while !ends() {
            let _turn = self.0.scrubbing.lock().await;
            let Some(live) = self.pin_from(next, last) else { break };
            self.scrub_group(live, &mut pass).await;
            let mut state = self.change();
            state.pinned = None;
            state.drop_trimmed();
            drop(state);
            self.0.space.wake_all();
            next = live.sequence + 1;
        }
        pass.end()
    }

    /// The first live group from `sequence` up to `last`; it stays until it is unpinned.
    fn pin_from(&self, sequence: u64, last: u64) -> Option<Live> {
        let mut state = self.change();
        let live = state.live.iter().find(|live| live.sequence >= sequence).copied();
        let live = live.filter(|live| live.sequence <= last)?;
        state.pinned = Some(live.sequence);
        Some(live)
    }

    /// The group that holds the (durable) record, from the first member that has it whole. None
    /// where it was trimmed, or no member has it.
    pub async fn group_of(&self, lsn: Lsn) -> Option<(Header, Shared)> {
        let (live, members) = {
            let state = self.state();
            let after = state.live.partition_point(|live| live.first <= lsn);
            (after.checked_sub(1).and_then(|at| state.live.get(at)).copied()?, state.members.clone())
        };
        for member in members {
            if let Some(group) = self.group_on(member, live).await {
                return Some(group);
            }
        }
        None
    }

    async fn group_on(&self, member: DriveNumber, live: Live) -> Option<(Header, Shared)> {
        let expected = Expected {
            pool: self.0.labels.configuration().pool,
            sequence: live.sequence,
            epoch: 0,
            previous: live.previous,
            check_epoch: false,
            check_chain: true,
        };
        let ring = self.state().ring;
        let index = self.0.labels.index(member)?;
        // As urgent as a host's: nothing is trimmed while a group is looked at. Behind the runs of
        // a rebuild a long group could wait until hosts have no room in the log.
        let mut reader = RingReader::new(&self.0.io, index, ring, Priority::Host).only_what_is_asked();
        reader.group(live.offset, &expected).await.filter(|(header, _)| header.crc == live.crc)
    }

    /// Whether the member has the group whole. One that has not is asked once more: a passing error
    /// is no damage.
    async fn group_asked_twice(&self, member: DriveNumber, live: Live, pass: &mut Pass) -> Option<(Header, Shared)> {
        let first = self.group_on(member, live).await;
        if first.is_some() || live.sequence < self.state().thin_below {
            return first;
        }
        if pass.waited_for.insert(member) {
            self.0.io.sleep(ASK_AGAIN).await;
        }
        self.group_on(member, live).await
    }

    async fn scrub_group(&self, live: Live, pass: &mut Pass) {
        let (members, thin) = {
            let state = self.state();
            (state.members.clone(), live.sequence < state.thin_below)
        };
        let mut whole = None;
        let mut bad: Vec<DriveNumber> = Vec::new();
        for member in members {
            if self.0.labels.index(member).is_none() {
                continue;
            }
            match self.group_asked_twice(member, live, pass).await {
                Some((_, bytes)) => whole = Some(bytes),
                // One that has left meanwhile is missing, not damaged.
                None if self.0.labels.index(member).is_some() => bad.push(member),
                None => {}
            }
        }
        let Some(bytes) = whole else {
            if !bad.is_empty() {
                pass.nowhere.push(live.sequence);
                pass.nowhere_on.extend(bad);
            }
            return;
        };
        for member in bad {
            let Some(index) = self.0.labels.index(member) else { continue };
            let io = &self.0.io;
            let write = io.write(index, LOG_AT + live.offset, vec![bytes.clone()], Priority::Host).await;
            let written = match write {
                Ok(()) => io.flush(index).await,
                failed => failed,
            };
            match written {
                Ok(()) if thin => {}
                Ok(()) => pass.repaired += 1,
                Err(error) => pass.unwritten.entry(member).or_insert_with(|| (error.to_string(), 0)).1 += 1,
            }
        }
    }
}

impl Pass {
    fn end(self) -> Scrubbed {
        let mut trouble = Vec::new();
        if let Some(first) = self.nowhere.first() {
            let on = super::recover::names(&self.nowhere_on.into_iter().collect::<Vec<_>>());
            let more = match self.nowhere.len() - 1 {
                0 => String::new(),
                more => format!(", and so are {more} more groups"),
            };
            trouble.push(ArrayError::Damaged(format!(
                "group {first} of the log is damaged on {on}{more}; write a checkpoint now"
            )));
        }
        trouble.extend(self.unwritten.into_iter().map(|(member, (error, groups))| {
            ArrayError::Degraded(format!(
                "{groups} groups of the log are damaged on {member} and cannot be written again ({error}); replace the drive"
            ))
        }));
        Scrubbed { repaired: self.repaired, trouble }
    }
}
