//! Reading the log back after a crash.
//!
//! From the checkpoint's position on, each group is taken from any member that has it whole and in
//! the chain. The first group that no member has ends the log. Where a member ever published a
//! watermark beyond, that group was acknowledged and is lost, which is refused by name. The same is
//! done where no member can read the end: the group may be there, and acknowledged. Before the
//! log serves again, every live group is on every member and flushed: a process killed without a
//! power cut leaves groups that were never flushed. A new epoch keeps what was cut off from ever
//! being continued. A crash anywhere in here is recovered by doing it again: what is written before
//! the epoch commit is only bytes that were accepted anyway.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use stele_ground::{BLOCK, PoolId};
use stele_media::{MediaFault, Priority, Shared};

use super::group::{self, Header};
use super::ring::{Expected, RingReader, Sight};
use super::{Live, Log, LogPosition, LogState, WINDOW, membership};
use crate::drives::label::{LOG_AT, Labels, LogEpoch};
use crate::durable::records::Record;
use crate::model::ArrayError;
use crate::model::mutation::Mutation;
use crate::model::place::{DriveNumber, Lsn};
use crate::runtime::io::Io;
use crate::runtime::sync::join_all;

/// What recovery found out, for alarms and status.
#[derive(Clone, Default, Debug)]
pub struct Recovery {
    pub groups: u64,
    pub records: u64,
    /// Copies of groups that were lacking on members and were written again.
    pub repaired: u64,
    /// Members with damaged or missing groups.
    pub damaged: Vec<DriveNumber>,
}

struct Walk {
    io: Io,
    epochs: Vec<LogEpoch>,
    ring: u64,
    members: Vec<DriveNumber>,
    readers: Vec<RingReader>,
    expected: Expected,
    /// Where the next group lies, unless it went to the start of the ring.
    offset: u64,
    live: Vec<Live>,
    /// By live group: which members have it.
    holders: Vec<BTreeSet<DriveNumber>>,
    /// The newest groups as they were read, at most [`WINDOW`]: what was on its way when the power
    /// went may lie on one drive only, and that drive may not give it a second time.
    newest: VecDeque<Shared>,
    next_lsn: Option<Lsn>,
    /// Makes the tags of the pool's groups.
    secret: u64,
    /// The newest group has one.
    tagged: bool,
    /// The members of the last epoch that cannot read the place where the log ends, if none of the
    /// others shows that it ends there.
    unreadable_end: Vec<DriveNumber>,
    found: Recovery,
}

impl Log {
    /// Reads all replicas from `from` on and hands every durable record to `sink`, in order; then
    /// copies live groups to members that lack them, flushes, and begins a new epoch (a label
    /// commit). `Damaged` names the members when a group that was acknowledged is nowhere whole;
    /// then what `sink` was given is void. Nothing is written when `read_only`, and the log then
    /// refuses appends.
    pub async fn recover(
        io: &Io,
        labels: &Labels,
        from: LogPosition,
        read_only: bool,
        mut sink: impl AsyncFnMut(Lsn, Record) -> Result<(), ArrayError>,
    ) -> Result<(Log, Recovery), ArrayError> {
        let mut walk = Walk::new(io, labels, from)?;
        while let Some((header, bytes)) = walk.next_group().await {
            let records = group::records(&header, &bytes).ok_or_else(|| walk.unreadable(&header))?;
            let mut lsn = header.first;
            for record in records {
                sink(lsn, record).await?;
                lsn = lsn.next();
                walk.found.records += 1;
            }
            walk.found.groups += 1;
        }
        walk.refuse_holes(from).await?;
        walk.refuse_unreadable_end(labels)?;
        let mut state = walk.state();
        if read_only {
            state.read_only = true;
            return Ok((Log::assemble(io, labels, state), walk.found));
        }
        let latest = walk.epochs.last().map(|epoch| epoch.members.clone()).unwrap_or_default();
        // A member that takes no writes is left out, as it would be if it failed later.
        let mut avoid = BTreeSet::new();
        let members = loop {
            let usable = |member: &DriveNumber| labels.is_usable(*member) && !avoid.contains(member);
            let keep: Vec<DriveNumber> = latest.iter().copied().filter(usable).collect();
            let members = membership::choose(labels, &keep, &avoid);
            membership::enough(labels, &members)?;
            if io.is_disabled(Mutation::LogReplicate) {
                break members;
            }
            match walk.replicate(labels, &members).await? {
                None => break members,
                Some(failed) => avoid.insert(failed),
            };
        };
        let mut epoch = 0;
        labels
            .commit(|configuration| {
                epoch = membership::begin_epoch(configuration, state.next_group, &members, from.group);
            })
            .await?;
        state.members = members;
        state.epoch = epoch;
        Ok((Log::assemble(io, labels, state), walk.found))
    }
}

/// What a header must have to count as one of the log, outside of the chain: a host may have
/// written it.
#[derive(Clone, Copy)]
struct Witness {
    pool: PoolId,
    secret: u64,
    /// The log's last group has a tag, so what followed it has too. Version 0.1.0 wrote none.
    tagged: bool,
    /// Nothing but the pool is looked at.
    anything: bool,
    /// More groups than up to this one do not fit into the ring.
    sequence_max: u64,
}

impl Witness {
    fn admits(&self, header: &Header, block: &[u8]) -> bool {
        let tagged = header.tag == group::tag_of(block, self.secret) || header.tag == 0 && !self.tagged;
        let possible = header.watermark < header.sequence && header.sequence <= self.sequence_max;
        header.pool == self.pool && (tagged && possible || self.anything)
    }
}

impl Walk {
    fn new(io: &Io, labels: &Labels, from: LogPosition) -> Result<Walk, ArrayError> {
        let configuration = labels.configuration();
        let epochs = configuration.log.clone();
        let ring = configuration.log_size.0;
        let all: BTreeSet<DriveNumber> = epochs.iter().flat_map(|epoch| epoch.members.iter().copied()).collect();
        let members: Vec<DriveNumber> = all.into_iter().filter(|member| labels.is_usable(*member)).collect();
        let latest = epochs.last().map(|epoch| epoch.members.as_slice()).unwrap_or_default();
        if !latest.iter().any(|member| members.contains(member)) {
            return Err(ArrayError::Degraded(format!(
                "none of the drives that carry the log is here; return one of {}",
                names(latest)
            )));
        }
        if let Some(oldest) = epochs.first().filter(|oldest| oldest.first_group > from.group) {
            return Err(ArrayError::Damaged(format!(
                "the newest checkpoint found needs the log from group {} on, which has been given up up to group {}; newer \
                 checkpoints are on drives that are missing: return those",
                from.group, oldest.first_group
            )));
        }
        if from.offset >= ring || !from.offset.is_multiple_of(BLOCK as u64) {
            return Err(ArrayError::Damaged("the checkpoint names a place outside of the log".to_owned()));
        }
        let index = |member: &DriveNumber| labels.index(*member).unwrap_or(usize::MAX);
        let readers = members.iter().map(|m| RingReader::new(io, index(m), ring, Priority::Urgent)).collect();
        let expected = Expected {
            pool: configuration.pool,
            sequence: from.group,
            epoch: 0,
            previous: from.previous,
            check_epoch: !io.is_disabled(Mutation::LogEpoch),
            check_chain: !io.is_disabled(Mutation::LogChain),
        };
        Ok(Walk {
            io: io.clone(),
            epochs,
            ring,
            members,
            readers,
            expected,
            offset: from.offset,
            live: Vec::new(),
            holders: Vec::new(),
            newest: VecDeque::new(),
            next_lsn: (from.group > 0).then_some(from.lsn),
            secret: configuration.seed,
            tagged: false,
            unreadable_end: Vec::new(),
            found: Recovery::default(),
        })
    }

    fn epoch_of(&self, sequence: u64) -> Option<&LogEpoch> {
        self.epochs.iter().rev().find(|epoch| epoch.first_group <= sequence)
    }

    /// What each member shows of the next group, and where.
    async fn sights(&mut self) -> Vec<(u64, Sight)> {
        let (offset, ring) = (self.offset, self.ring);
        let is_first = self.live.is_empty();
        let expected = self.expected;
        let sights = self.readers.iter_mut().map(|reader| async move {
            let here = reader.sight(offset, &expected).await;
            // The writer goes back to the start of the ring where a group does not fit before its
            // end, and only there. A look at the start costs what was read ahead here, which a
            // member that lacks many groups would read again for each.
            let fits = offset + group::total_max(ring) <= ring;
            if is_first || fits || matches!(here, Sight::Whole(..)) {
                return (offset, here);
            }
            // A drive that reads or wrote in the wrong place may show it at the start all the same.
            match reader.sight(0, &expected).await {
                Sight::Whole(header, bytes) if offset + header.total() > ring => (0, Sight::Whole(header, bytes)),
                Sight::Unreadable => (0, Sight::Unreadable),
                _ => (offset, here),
            }
        });
        join_all(sights).await
    }

    async fn next_group(&mut self) -> Option<(Header, Shared)> {
        let epoch = self.epoch_of(self.expected.sequence)?;
        let should = epoch.members.clone();
        self.expected.epoch = epoch.epoch;
        let mut best: Option<(u64, Header, Shared)> = None;
        let mut holders = BTreeSet::new();
        let mut unreadable = Vec::new();
        let mut is_seen = false;
        let mut sights = self.sights().await;
        if !sights.iter().any(|(_, sight)| matches!(sight, Sight::Whole(..))) {
            // A drive that read in the wrong place once shows what it has when it is asked again.
            self.readers.iter_mut().for_each(RingReader::forget);
            sights = self.sights().await;
        }
        for (member, (offset, sight)) in self.members.iter().zip(sights) {
            match sight {
                Sight::Whole(header, bytes) => {
                    let read = (offset, header, bytes);
                    if best.as_ref().is_none_or(|best| best.0 == read.0 && best.1 == read.1) {
                        holders.insert(*member);
                        best.get_or_insert(read);
                    }
                }
                Sight::Other => is_seen |= should.contains(member),
                Sight::Unreadable => unreadable.extend(should.contains(member).then_some(*member)),
            }
        }
        let Some((offset, header, bytes)) = best else {
            // A member that shows something else did not take it, so it was not acknowledged.
            self.unreadable_end = if is_seen { Vec::new() } else { unreadable };
            return None;
        };
        if self.next_lsn.is_some_and(|lsn| lsn != header.first) {
            return None;
        }
        let lacking = should.iter().filter(|member| self.members.contains(member) && !holders.contains(member));
        let known = &self.found.damaged;
        let lacking: Vec<DriveNumber> = lacking.filter(|member| !known.contains(member)).copied().collect();
        self.found.damaged.extend(lacking);
        let total = header.total();
        self.tagged = header.tag == group::tag_of(&bytes, self.secret);
        self.live.push(Live {
            sequence: header.sequence,
            first: header.first,
            offset,
            total,
            crc: header.crc,
            previous: header.previous,
        });
        self.holders.push(holders);
        self.newest.push_back(bytes.clone());
        if self.newest.len() > WINDOW {
            self.newest.pop_front();
        }
        self.offset = offset + total;
        self.expected.sequence += 1;
        self.expected.previous = header.crc;
        self.next_lsn = Some(Lsn(header.first.0 + u64::from(header.count)));
        Some((header, bytes))
    }

    /// Looks for evidence that a group beyond the end was once acknowledged.
    async fn refuse_holes(&mut self, from: LogPosition) -> Result<(), ArrayError> {
        let missing = self.expected.sequence;
        let agreed = self.epochs.last().map_or(0, |epoch| epoch.first_group);
        let mut watermark = agreed.saturating_sub(1).max(from.group);
        if self.io.is_disabled(Mutation::LogHole) {
            return Ok(());
        }
        let (start, end, ring, witness) = (from.offset, self.offset, self.ring, self.witness());
        let scans = self.readers.iter_mut().map(|reader| async move {
            let mut highest = 0;
            let admit = |header: &Header, block: &[u8]| witness.admits(header, block);
            let mut note = |header: &Header| highest = highest.max(header.watermark);
            if end > start {
                reader.headers(end, ring, admit, &mut note).await;
                reader.headers(0, start, admit, &mut note).await;
            } else {
                reader.headers(end, start, admit, &mut note).await;
            }
            highest
        });
        watermark = join_all(scans).await.into_iter().fold(watermark, u64::max);
        if watermark < missing {
            return Ok(());
        }
        let members = self.epoch_of(missing).map(|epoch| epoch.members.as_slice()).unwrap_or_default();
        Err(ArrayError::Damaged(hole(missing, watermark, members, &self.members)))
    }

    /// A group that no member here can read is not taken for one that was never acknowledged,
    /// unless the operator accepted to miss writes.
    fn refuse_unreadable_end(&self, labels: &Labels) -> Result<(), ArrayError> {
        if self.unreadable_end.is_empty() || labels.overridden() {
            return Ok(());
        }
        let group = self.expected.sequence;
        let members = self.epoch_of(group).map(|epoch| epoch.members.as_slice()).unwrap_or_default();
        let away: Vec<DriveNumber> = members.iter().copied().filter(|member| !self.members.contains(member)).collect();
        Err(ArrayError::Damaged(unreadable_end(group, &self.unreadable_end, &away)))
    }

    fn witness(&self) -> Witness {
        Witness {
            pool: self.expected.pool,
            secret: self.secret,
            tagged: self.tagged,
            anything: self.io.is_disabled(Mutation::LogTag),
            sequence_max: self.expected.sequence.saturating_add(self.ring / BLOCK as u64),
        }
    }

    fn unreadable(&self, header: &Header) -> ArrayError {
        ArrayError::Damaged(format!(
            "group {} of the log holds a record this version cannot read; open the pool with the version that wrote it",
            header.sequence
        ))
    }

    fn state(&self) -> LogState {
        let next_lsn = self.next_lsn.unwrap_or(Lsn(1));
        let mut state = LogState::new(self.ring, Vec::new(), 0);
        state.next_lsn = next_lsn;
        state.durable = Lsn(next_lsn.0 - 1);
        state.next_group = self.expected.sequence;
        state.watermark = self.expected.sequence - 1;
        state.head = self.offset;
        state.previous = self.expected.previous;
        state.live_bytes = self.live.iter().map(|live| live.total).sum();
        state.live = self.live.iter().copied().collect();
        state
    }

    /// Puts every live group onto every member that lacks it, and flushes all members. Answers a
    /// member that failed.
    async fn replicate(&mut self, labels: &Labels, members: &[DriveNumber]) -> Result<Option<DriveNumber>, ArrayError> {
        let readers: BTreeMap<DriveNumber, usize> = self.members.iter().copied().zip(0..).collect();
        let older = self.live.len() - self.newest.len();
        for (number, (live, holders)) in self.live.iter().zip(&self.holders).enumerate() {
            let lacking: Vec<DriveNumber> =
                members.iter().copied().filter(|member| !holders.contains(member)).collect();
            if lacking.is_empty() {
                continue;
            }
            let mut copy = number.checked_sub(older).and_then(|at| self.newest.get(at)).cloned();
            for holder in holders {
                if copy.is_some() {
                    break;
                }
                let Some(reader) = readers.get(holder).and_then(|at| self.readers.get_mut(*at)) else { continue };
                let expected =
                    Expected { sequence: live.sequence, previous: live.previous, check_epoch: false, ..self.expected };
                let group = reader.group(live.offset, &expected).await.filter(|(header, _)| header.crc == live.crc);
                copy = group.map(|(_, bytes)| bytes);
            }
            let bytes = copy.ok_or_else(|| {
                ArrayError::Damaged(format!("group {} of the log was whole and is not any more; scrub", live.sequence))
            })?;
            let write = |member: DriveNumber| {
                let (io, place, bytes) = (&self.io, labels.index(member), bytes.clone());
                async move {
                    let index = place?;
                    let at = LOG_AT + live.offset;
                    // Passing failures are asked once more.
                    match io.write(index, at, vec![bytes.clone()], Priority::Urgent).await {
                        Err(error) if error.fault == MediaFault::Retry => {
                            io.write(index, at, vec![bytes], Priority::Urgent).await.ok()
                        }
                        other => other.ok(),
                    }
                }
            };
            let results = join_all(lacking.iter().map(|member| write(*member))).await;
            if let Some((failed, _)) = lacking.iter().zip(&results).find(|(_, result)| result.is_none()) {
                return Ok(Some(*failed));
            }
            self.found.repaired += lacking.len() as u64;
        }
        let flush = |member: DriveNumber| {
            let (io, place) = (&self.io, labels.index(member));
            async move { io.flush(place?).await.ok() }
        };
        let results = join_all(members.iter().map(|member| flush(*member))).await;
        Ok(members.iter().zip(&results).find(|(_, result)| result.is_none()).map(|(failed, _)| *failed))
    }
}

/// What is said of an acknowledged group that no member has whole. Which drives took it is known as
/// long as a label says so.
fn hole(missing: u64, watermark: u64, members: &[DriveNumber], looked_at: &[DriveNumber]) -> String {
    let whereabouts = match (members, looked_at) {
        ([], []) => "no label says which drives took it, and no drive that holds the log is here".to_string(),
        ([], looked_at) => {
            format!("no label says which drives took it; looked for on {}", names(looked_at))
        }
        (members, _) => format!("its replicas are on {}", names(members)),
    };
    format!(
        "the log is damaged: group {missing} was acknowledged (as far as {watermark}), but no replica has it whole; \
         {whereabouts}; return missing drives, or restore them"
    )
}

/// What is said of a group that may have been acknowledged, whose place no member here can read.
fn unreadable_end(group: u64, unreadable: &[DriveNumber], away: &[DriveNumber]) -> String {
    let next = match away {
        [] => "try again".to_string(),
        away => format!("return {}, which may have it", names(away)),
    };
    format!(
        "the end of the log cannot be read on {}: group {group} may have been acknowledged; {next}; as the last resort \
         --override-quorum opens the pool without it",
        names(unreadable)
    )
}

pub(super) fn names(drives: &[DriveNumber]) -> String {
    drives.iter().map(|drive| drive.to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
