//! Group commit: groups depart in order, land in any order, and are acknowledged in order.
//!
//! A group departs when none is on its way, after every task that was ready has had its turn to
//! append. It departs behind others only when it is large. One whose records all linger waits for
//! one that does not. Small groups that overtake each other would share the drives' flushes among
//! fewer records: eight writers of 4 KiB then wait for 13,000 flushes a second instead of 5,000.

use stele_media::{MediaError, MediaFault, Priority, Shared};

use super::group::{Header, Payload};
use super::{Flight, Live, Log, LogState, WINDOW};
use crate::drives::label::LOG_AT;
use crate::model::mutation::Mutation;
use crate::model::place::{DriveNumber, Lsn};
use crate::runtime::sync::join_all;

/// A group of so many bytes departs behind others that are on their way.
const PIPELINED_MIN: usize = 64 << 10;

/// Times a write or flush is tried when the drive says that trying again may help.
const TRIES: u32 = 3;

impl LogState {
    /// A group waits, and may go now.
    fn may_depart(&self) -> bool {
        let large = !self.full.is_empty() || self.filling.as_ref().is_some_and(|group| group.length() >= PIPELINED_MIN);
        let room = self.flights.is_empty() || (large && self.flights.len() < WINDOW);
        let waiting = large || self.filling.as_ref().is_some_and(|group| group.urgent);
        waiting && room && !self.changing && self.stopped.is_none() && !self.meets_washing()
    }

    /// The next group would go where the ring is being overwritten.
    fn meets_washing(&self) -> bool {
        let next = self.full.front().or(self.filling.as_ref());
        let (Some((from, to)), Some(next)) = (self.washing, next) else { return false };
        let total = super::group::total(next.length());
        let offset = self.place_of(total);
        offset < to && from < offset + total
    }

    /// Where the next group of so many bytes goes: behind the head, or at the ring's start where it
    /// does not fit.
    fn place_of(&self, total: u64) -> u64 {
        if self.head + total > self.ring { 0 } else { self.head }
    }
}

impl Log {
    /// Schedules a departure, unless one is scheduled or cannot be now.
    pub(super) fn kick(&self) {
        let mut state = self.change();
        if state.kicked || !state.may_depart() {
            return;
        }
        state.kicked = true;
        drop(state);
        let log = self.clone();
        self.0.io.spawn(async move {
            log.change().kicked = false;
            log.depart();
            log.kick();
        });
    }

    fn depart(&self) {
        let mut state = self.change();
        if !state.may_depart() {
            return;
        }
        let Some(filling) = state.full.pop_front().or_else(|| state.filling.take()) else { return };
        let cost = filling.cost;
        let total = super::group::total(filling.length());
        assert!(total <= cost, "a group of {total} bytes costs more than the {cost} set aside");
        let offset = state.place_of(total);
        let (pool, secret) = {
            let configuration = self.0.labels.configuration();
            (configuration.pool, configuration.seed)
        };
        let header = Header {
            pool,
            epoch: state.epoch,
            sequence: state.next_group,
            first: Lsn(0),
            count: 0,
            length: 0,
            watermark: state.watermark,
            trim: state.live.front().map_or(filling.first, |live| live.first),
            previous: state.previous,
            payload: Payload::Crc(0),
            tag: 0,
            crc: 0,
        };
        let (header, bytes) = filling.finish(&self.0.buffers, header, secret);
        let live = Live {
            sequence: header.sequence,
            first: header.first,
            offset,
            total,
            crc: header.crc,
            previous: header.previous,
        };
        // Nothing that is live may be written over; the reservations saw to it.
        if let Some(oldest) = state.live.front() {
            let clear = offset > oldest.offset || offset + total <= oldest.offset;
            assert!(clear, "the log's head ran into its tail");
        }
        state.live.push_back(live);
        state.live_bytes += total;
        state.filling_cost -= cost;
        state.head = offset + total;
        state.previous = header.crc;
        state.next_group += 1;
        state.counters.groups += 1;
        let last = Lsn(header.first.0 + u64::from(header.count) - 1);
        state.flights.push_back(Flight {
            sequence: header.sequence,
            last,
            offset,
            bytes: bytes.clone(),
            held: Default::default(),
            landed: false,
        });
        let members = state.members.clone();
        drop(state);
        if total < cost {
            self.0.space.wake_all();
        }
        if self.wants_checkpoint() {
            self.0.pressure.wake_all();
        }
        let log = self.clone();
        self.0.io.spawn(async move { log.fly(header.sequence, offset, bytes, members).await });
    }

    async fn fly(&self, sequence: u64, offset: u64, bytes: Shared, members: Vec<DriveNumber>) {
        let results = join_all(members.iter().map(|member| self.put(*member, offset, bytes.clone()))).await;
        let mut state = self.change();
        for (member, result) in members.iter().zip(results) {
            match result {
                Ok(()) => {
                    if let Some(flight) = state.flights.iter_mut().find(|flight| flight.sequence == sequence) {
                        flight.held.insert(*member);
                    }
                }
                Err(error) => {
                    tracing::warn!("the log on {member} failed: {error}");
                    state.lost.insert(*member);
                    state.last_failure = Some((*member, error));
                }
            }
        }
        if let Some(flight) = state.flights.iter_mut().find(|flight| flight.sequence == sequence) {
            flight.landed = true;
        }
        drop(state);
        self.0.landed.wake_all();
        self.mend();
        self.acknowledge();
        self.kick();
    }

    /// Writes to the ring of one member, durably.
    pub(super) async fn put(&self, member: DriveNumber, offset: u64, bytes: Shared) -> Result<(), MediaError> {
        let io = &self.0.io;
        let mut tries = 0;
        loop {
            let Some(index) = self.0.labels.index(member) else {
                return Err(MediaError::new(MediaFault::Gone, format!("{member} is not attached")));
            };
            let (at, data) = (LOG_AT + offset, vec![bytes.clone()]);
            let result = match io.is_disabled(Mutation::LogFlush) {
                true => io.write(index, at, data, Priority::Urgent).await,
                false => io.write_durable(index, at, data, Priority::Urgent).await,
            };
            tries += 1;
            match result {
                Err(error) if error.fault == MediaFault::Retry && tries < TRIES => {}
                other => return other,
            }
        }
    }

    /// Moves the mark of what is durable over every group that all members hold, in order.
    pub(super) fn acknowledge(&self) {
        let mut state = self.change();
        if state.changing || state.stopped.is_some() {
            return;
        }
        let mut moved = false;
        if self.0.io.is_disabled(Mutation::LogOrder)
            && let Some(at) = state.flights.iter().rposition(|flight| flight.landed)
        {
            let last = state.flights[at].last;
            state.durable = state.durable.max(last);
            moved = true;
        }
        while let Some(flight) = state.flights.front() {
            // Acknowledged only here: `put` has written the group durably on each of the members.
            if !flight.landed || !state.members.iter().all(|member| flight.held.contains(member)) {
                break;
            }
            let (last, sequence) = (flight.last, flight.sequence);
            assert!(
                sequence == state.watermark + 1,
                "invariant 1: group {sequence} is acknowledged right after {}",
                state.watermark
            );
            state.durable = state.durable.max(last);
            state.watermark = sequence;
            state.flights.pop_front();
            moved = true;
        }
        drop(state);
        if moved {
            self.wake_waiters();
        }
    }
}
