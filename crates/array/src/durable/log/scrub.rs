//! Reading the live part of the log on every member, and repairing what differs.

use stele_media::{Priority, Shared};

use super::group::Header;
use super::ring::{Expected, RingReader};
use super::{Live, Log};
use crate::drives::label::LOG_AT;
use crate::model::ArrayError;
use crate::model::place::{DriveNumber, Lsn};

impl Log {
    /// Compares every group that is durable now on all members and rewrites damaged copies; groups that come meanwhile
    /// are the next pass's, or a busy pool would never see the end. Returns copies repaired. A group that is whole nowhere
    /// is reported: until the next checkpoint a crash would lose it.
    pub async fn scrub(&self) -> Result<u64, ArrayError> {
        let _turn = self.0.scrubbing.lock().await;
        let mut repaired = 0;
        let mut next = 0;
        let last = self.state().watermark;
        while let Some(live) = self.pin_from(next, last) {
            let result = self.scrub_group(live).await;
            let mut state = self.change();
            state.pinned = None;
            state.drop_trimmed();
            drop(state);
            self.0.space.wake_all();
            repaired += result?;
            next = live.sequence + 1;
        }
        Ok(repaired)
    }

    /// The first live group from `sequence` up to `last`; it stays until it is unpinned.
    fn pin_from(&self, sequence: u64, last: u64) -> Option<Live> {
        let mut state = self.change();
        let live = state.live.iter().find(|live| live.sequence >= sequence).copied();
        let live = live.filter(|live| live.sequence <= last)?;
        state.pinned = Some(live.sequence);
        Some(live)
    }

    /// The group that holds the (durable) record, from the first member that has it whole. None where it was trimmed, or no
    /// member has it.
    pub async fn group_of(&self, lsn: Lsn) -> Option<(Header, Shared)> {
        let (live, members) = {
            let state = self.state();
            let after = state.live.partition_point(|live| live.first <= lsn);
            (after.checked_sub(1).and_then(|at| state.live.get(at)).copied()?, state.members.clone())
        };
        for member in members {
            if let Some(group) = self.group_on(member, live, Priority::Host).await {
                return Some(group);
            }
        }
        None
    }

    async fn group_on(&self, member: DriveNumber, live: Live, priority: Priority) -> Option<(Header, Shared)> {
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
        let mut reader = RingReader::new(&self.0.io, index, ring, priority).only_what_is_asked();
        reader.group(live.offset, &expected).await.filter(|(header, _)| header.crc == live.crc)
    }

    async fn scrub_group(&self, live: Live) -> Result<u64, ArrayError> {
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
            match self.group_on(member, live, Priority::Scrub).await {
                Some((_, bytes)) => whole = Some(bytes),
                None => bad.push(member),
            }
        }
        if bad.is_empty() {
            return Ok(0);
        }
        let Some(bytes) = whole else {
            return Err(ArrayError::Damaged(format!(
                "group {} of the log is damaged on {}; write a checkpoint now",
                live.sequence,
                super::recover::names(&bad)
            )));
        };
        let mut repaired = 0;
        for member in bad {
            let Some(index) = self.0.labels.index(member) else { continue };
            let io = &self.0.io;
            let write = io.write(index, LOG_AT + live.offset, vec![bytes.clone()], Priority::Scrub).await;
            if write.is_ok() && io.flush(index).await.is_ok() && !thin {
                repaired += 1;
            }
        }
        Ok(repaired)
    }
}
