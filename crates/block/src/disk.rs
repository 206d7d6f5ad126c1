//! The command path of every protocol: one connection's access to its volume.
//!
//! An operation travels with its buffers to the owner of the volume, and returns with them into the
//! connection's own queue, which wakes the connection. On the volume's reactor that takes two short
//! uncontended locks; nothing is copied.
//!
//! Limits: those of [`crate::Limits`]. The session checks [`Disk::has_room`] before it reads a
//! request's data. If the volume answers `Retry` (its mailbox is full), the operation is kept and
//! submitted again after [`RETRY_AFTER`]; the client does not notice. Operations without data may
//! name any range, and the volume looks at every stripe of it. An initiator has [`RANGES_MAX`]
//! bytes of these with the volume, and the further ones wait here.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use stele_ground::{Duration, Instant};
use stele_media::{Completion, Geometry, MediaError, MediaFault, Op, Priority, Waker};

use crate::share::Share;
use crate::{Counters, Peer, Target};

/// Pause of an operation that found the volume's queue full.
pub const RETRY_AFTER: Duration = Duration::from_millis(1);

/// Number of attempts after which the client gets an error: about half a minute.
const TRIES_MAX: u32 = 30_000;
/// Weight of a request that moves no data.
const LEAST_WEIGHT: u64 = 512;

/// Bytes of zeroings, trims and queries of extents that are with the volume at once, divided among
/// the connections of an initiator; one operation of a connection always is. A hundred such
/// requests of one connection made the hosts of other volumes wait for seconds.
const RANGES_MAX: u64 = 256 << 20;

/// Returned beside the completion; a volume that dies may answer with another operation.
#[derive(Clone, Copy)]
struct Ticket {
    weight: u64,
    /// Bytes of a range that the volume looks through; 0 where the operation moves its data.
    range: u64,
    tries: u32,
    /// An atomic write: after a crash it is there completely or not at all.
    whole: bool,
}

/// The queue into which the volume's thread puts completions.
#[derive(Default)]
struct Inbox(Mutex<Vec<(Ticket, Completion)>>);

/// One connection's access to its volume.
pub struct Disk {
    target: Arc<Target>,
    share: Share,
    counters: Arc<Counters>,
    connection: u64,
    local: bool,
    waker: Waker,
    inbox: Arc<Inbox>,
    /// Operations to submit again.
    held: Vec<(u64, Op, Ticket)>,
    held_until: Option<Instant>,
    /// Bytes of ranges with the volume. Below, the operations that wait until there are fewer.
    ranges: u64,
    waiting: VecDeque<(u64, Op, Ticket)>,
    arrived: Vec<(Ticket, Completion)>,
}

/// The reason why a connection is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Denied {
    /// The export's access rules refuse it; the text is for the server's log.
    Access(String),
    /// The export has its largest number of connections.
    Crowded,
    /// The export was withdrawn just now, or its volume takes no connection at present.
    Closed,
}

impl Disk {
    /// Checks the access rules and counts the connection among those of the export.
    pub fn open(target: &Arc<Target>, peer: &Peer) -> Result<Disk, Denied> {
        target.export.access.admit(peer).map_err(Denied::Access)?;
        let counters = Arc::new(Counters::default());
        let entered = target.connections.enter(peer, &counters, target.limits.connections);
        let connection = entered.ok_or(Denied::Crowded)?;
        // Looked at only after it is counted: who closes the export first and counts then misses
        // none.
        if target.is_closed() {
            target.connections.leave(connection);
            return Err(Denied::Closed);
        }
        Ok(Disk {
            share: Share::join(&target.pot, &peer.initiator(), target.limits),
            target: Arc::clone(target),
            counters,
            connection,
            local: peer.address.is_none(),
            waker: Waker::idle(),
            inbox: Arc::default(),
            held: Vec::new(),
            held_until: None,
            ranges: 0,
            waiting: VecDeque::new(),
            arrived: Vec::new(),
        })
    }

    /// From now on completions wake this session.
    pub fn start(&mut self, waker: Waker) {
        self.target.connections.settle(self.connection, waker.clone());
        self.waker = waker;
    }

    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// Whether the peer uses a Unix socket.
    pub fn is_local(&self) -> bool {
        self.local
    }

    /// The present geometry: a volume may grow.
    pub fn geometry(&self) -> Geometry {
        self.target.handle.geometry()
    }

    pub fn is_read_only(&self) -> bool {
        self.target.export.read_only
    }

    /// Whether a request that moves this many bytes may begin.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.share.has_room(bytes)
    }

    /// Number of requests under way.
    pub fn under_way(&self) -> u32 {
        self.share.requests()
    }

    /// This connection's share of a turn's work.
    pub fn part_of(&self, quantum: u64) -> u64 {
        self.share.part_of(quantum)
    }

    /// Reserves memory for a payload that is still arriving, before there is an operation.
    pub fn reserve(&mut self, bytes: u64) {
        self.share.take(bytes);
    }

    /// Returns the reservation when the operation begins, or when the payload does not come.
    pub fn release(&mut self, bytes: u64) {
        self.share.give_back(bytes);
    }

    /// Records the bytes of replies that the peer has not taken yet.
    pub fn note_untaken(&mut self, bytes: u64) {
        self.share.note_untaken(bytes);
    }

    /// Begins an operation. A write to a read-only export is refused here, independently of the
    /// protocol.
    pub fn submit(&mut self, tag: u64, op: Op) {
        self.begin(tag, op, false);
    }

    /// Like `submit`, for an atomic write (`Handle::submit_whole`).
    pub fn submit_whole(&mut self, tag: u64, op: Op) {
        self.begin(tag, op, true);
    }

    fn begin(&mut self, tag: u64, op: Op, whole: bool) {
        let ticket = Ticket { weight: weight(&op), range: range(&op), tries: 0, whole };
        self.share.take(ticket.weight);
        if self.is_read_only() && matches!(op, Op::Write { .. } | Op::Zero { .. } | Op::Discard { .. }) {
            let error = MediaError::new(MediaFault::Refused, "the export is read-only");
            self.arrived.push((Ticket { range: 0, ..ticket }, Completion { tag, op, result: Err(error) }));
            self.waker.wake();
            return;
        }
        if ticket.range > 0 {
            self.waiting.push_back((tag, op, ticket));
            return self.begin_ranges();
        }
        self.hand_over(tag, op, ticket);
    }

    /// Hands over the operations on ranges whose turn has come. None begins on an export that was
    /// taken away.
    fn begin_ranges(&mut self) {
        if !self.waiting.is_empty() && self.target.is_withdrawn() {
            self.drop_waiting(|_| true);
            return self.waker.wake();
        }
        let most = self.share.part_of(RANGES_MAX);
        while let Some((_, _, next)) = self.waiting.front()
            && (self.ranges == 0 || self.ranges.saturating_add(next.range) <= most)
            && let Some((tag, op, ticket)) = self.waiting.pop_front()
        {
            self.ranges = self.ranges.saturating_add(ticket.range);
            self.hand_over(tag, op, ticket);
        }
    }

    /// Fails the operations among those that the volume has not got whose requests are over: they
    /// must not reach it later.
    pub fn drop_held(&mut self, is_over: impl Fn(u64) -> bool) {
        for (tag, op, ticket) in mem::take(&mut self.held) {
            match is_over(tag) {
                true => self.arrived.push(ended(tag, op, ticket)),
                false => self.held.push((tag, op, ticket)),
            }
        }
        self.drop_waiting(is_over);
        if self.held.is_empty() {
            self.held_until = None;
        }
    }

    fn drop_waiting(&mut self, is_over: impl Fn(u64) -> bool) {
        for (tag, op, ticket) in mem::take(&mut self.waiting) {
            match is_over(tag) {
                // It is not counted among the ranges.
                true => self.arrived.push(ended(tag, op, Ticket { range: 0, ..ticket })),
                false => self.waiting.push_back((tag, op, ticket)),
            }
        }
    }

    /// Moves the finished operations. `now` serves operations that wait for space in the volume's
    /// queue.
    pub fn reap(&mut self, now: Instant, into: &mut Vec<Completion>) {
        if self.held_until.is_some_and(|at| at <= now) {
            self.held_until = None;
            for (tag, op, ticket) in mem::take(&mut self.held) {
                self.hand_over(tag, op, Ticket { tries: ticket.tries + 1, ..ticket });
            }
        }
        self.arrived.append(&mut self.inbox.0.lock().unwrap_or_else(PoisonError::into_inner));
        for (ticket, Completion { tag, op, result }) in self.arrived.drain(..) {
            if ticket.tries < TRIES_MAX && result.as_ref().is_err_and(|error| error.fault == MediaFault::Retry) {
                self.held.push((tag, op, ticket));
                self.held_until.get_or_insert(now + RETRY_AFTER);
                continue;
            }
            self.share.give_back(ticket.weight);
            self.ranges = self.ranges.saturating_sub(ticket.range);
            self.counters.count(&op, &result);
            into.push(Completion { tag, op, result });
        }
        self.begin_ranges();
        self.counters.queue.store(u64::from(self.share.requests()), Relaxed);
    }

    /// The time of the next attempt for operations that wait for space.
    pub fn next_event(&self) -> Option<Instant> {
        self.held_until
    }

    fn hand_over(&self, tag: u64, op: Op, ticket: Ticket) {
        let priority = if matches!(op, Op::Flush) { Priority::Urgent } else { Priority::Host };
        let (inbox, waker) = (Arc::clone(&self.inbox), self.waker.clone());
        let done = move |op, result| {
            inbox.0.lock().unwrap_or_else(PoisonError::into_inner).push((ticket, Completion { tag, op, result }));
            waker.wake();
        };
        match ticket.whole {
            true => self.target.handle.submit_whole(op, priority, Box::new(done)),
            false => self.target.handle.submit(op, priority, Box::new(done)),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.target.connections.leave(self.connection);
    }
}

fn ended(tag: u64, op: Op, ticket: Ticket) -> (Ticket, Completion) {
    let error = MediaError::new(MediaFault::Gone, "the request has ended");
    (ticket, Completion { tag, op, result: Err(error) })
}

fn weight(op: &Op) -> u64 {
    match op {
        Op::Read { .. } | Op::View { .. } | Op::Write { .. } => {
            op.range().map_or(0, |(_, length)| length).max(LEAST_WEIGHT)
        }
        _ => LEAST_WEIGHT,
    }
}

/// The bytes that the volume looks through for an operation that moves none.
fn range(op: &Op) -> u64 {
    match op {
        Op::Zero { length, .. } | Op::Discard { length, .. } | Op::Extents { length, .. } => *length,
        Op::Read { .. } | Op::View { .. } | Op::Write { .. } | Op::Flush => 0,
    }
}
