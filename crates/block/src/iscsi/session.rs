//! A session on the volume's reactor: it moves bytes between the socket and the [`Connection`], and
//! operations between the connection and the volume.
//!
//! Limits: a turn moves at most [`QUANTUM`] bytes in each direction, divided among the connections of one initiator.
//! With [`OUT_MAX`] bytes unsent, or no space at the volume, it reads only requested data. A closed connection has
//! [`LINGER`] to take the data sent to it.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::os::fd::RawFd;
use std::os::linux::net::TcpStreamExt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use stele_ground::{Duration, Instant};
use stele_media::{Completion, Interest, MediaError, MediaFault, Op, ReactorSession, Waker};

use super::connection::Connection;
use super::node::{Joined, Keeper, Neighbour, Node, lock};
use super::shared::Shared;
use crate::scsi::{Answer, Ask, Port, Reached, UnitId};
use crate::{Disk, Peer, Stream};

const QUANTUM: u64 = 1 << 20;
const OUT_MAX: usize = 8 << 20;
/// Largest time for a peer to pause in the middle of a PDU, or to take no data.
const STALL_MAX: Duration = Duration::from_secs(120);
/// Interval between checks for space that other connections hold.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
const LINGER: Duration = Duration::from_secs(5);

/// A stream that can send acknowledgements at once.
pub trait Wire: Stream {
    /// Acknowledges the received data, without waiting for data to send.
    fn acknowledge(&mut self);
}

impl Wire for TcpStream {
    fn acknowledge(&mut self) {
        // A hint: without it the acknowledgement goes out later.
        let _ = self.set_quickack(true);
    }
}

type Answers = Arc<Mutex<Vec<(u32, Answer)>>>;

/// A unit of another target, for a copy.
struct Abroad {
    unit: UnitId,
    disk: Disk,
    /// The copy keeps it for as long as it needs the unit.
    held: Weak<()>,
}

pub struct Session<S: Wire> {
    stream: S,
    connection: Connection,
    shared: Arc<Mutex<Shared>>,
    disk: Disk,
    keeper: Arc<dyn Keeper>,
    node: Arc<Node>,
    peer: Peer,
    /// Answers that did not come from the volume: kept reservations, and units that were found.
    answers: Answers,
    abroad: Vec<Abroad>,
    units: u32,
    waker: Waker,
    finished: Vec<Completion>,
    /// The stream can no longer be read or written.
    dead: bool,
    /// Whether bytes moved since the last turn; below, the time of the last movement.
    moved: bool,
    moved_at: Option<Instant>,
    /// Number of held bytes that the volume was told of.
    held: u64,
    /// When closing: the time at which the connection is dropped.
    until: Option<Instant>,
}

impl<S: Wire> Session<S> {
    /// `rest`: bytes that arrived after the login.
    pub fn new(joined: Joined, stream: S, rest: &[u8]) -> Session<S> {
        let Joined { mut connection, shared, disk, keeper, node, peer, .. } = joined;
        let mut rest = rest;
        while !rest.is_empty() && !connection.is_closing() {
            let fed = connection.framing.feed(rest);
            rest = rest.get(fed..).unwrap_or_default();
            connection.receive(&mut lock(&shared));
        }
        Session {
            stream,
            connection,
            shared,
            disk,
            keeper,
            node,
            peer,
            answers: Answers::default(),
            abroad: Vec::new(),
            units: 0,
            waker: Waker::idle(),
            finished: Vec::new(),
            dead: false,
            moved: false,
            moved_at: None,
            held: 0,
            until: None,
        }
    }

    fn submit(&mut self) {
        for (tag, ask) in self.connection.take_asks() {
            match ask {
                Ask::Drive(UnitId(0), op) => self.disk.submit(u64::from(tag), op),
                Ask::Drive(unit, op) => self.submit_abroad(tag, unit, op),
                Ask::Whole(_, op) => self.disk.submit_whole(u64::from(tag), op),
                Ask::Keep(_, bytes) => {
                    let (answers, waker) = (Arc::clone(&self.answers), self.waker.clone());
                    let done = move |result| {
                        answers.lock().unwrap_or_else(PoisonError::into_inner).push((tag, Answer::Kept(result)));
                        waker.wake();
                    };
                    self.keeper.keep(&self.disk.target().export.volume, bytes, Box::new(done));
                }
                Ask::Find(search) => {
                    let found = search.names.iter().map(|name| self.find(&search.port, name)).collect();
                    self.answer_soon(tag, Answer::Found(found));
                }
            }
        }
    }

    fn answer_soon(&self, tag: u32, answer: Answer) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).push((tag, answer));
        self.waker.wake();
    }

    /// Opens a unit of another target for a copy.
    fn find(&mut self, port: &Port, name: &(u8, Vec<u8>)) -> Option<Reached> {
        let Neighbour { mut disk, mut reached } = self.node.neighbour(self.disk.target(), &self.peer, port, name)?;
        disk.start(self.waker.clone());
        self.units += 1;
        reached.unit = UnitId(self.units);
        self.abroad.push(Abroad { unit: reached.unit, disk, held: Arc::downgrade(&reached.hold) });
        Some(reached)
    }

    fn submit_abroad(&mut self, tag: u32, unit: UnitId, op: Op) {
        match self.abroad.iter_mut().find(|abroad| abroad.unit == unit && !abroad.disk.target().is_withdrawn()) {
            Some(abroad) => abroad.disk.submit(u64::from(tag), op),
            None => {
                let gone = MediaError::new(MediaFault::Gone, "the export was withdrawn");
                self.answer_soon(tag, Answer::Drive(op, Err(gone)));
            }
        }
    }

    /// Collects results of the volume, and events of other connections.
    fn collect(&mut self, now: Instant) {
        let shared = Arc::clone(&self.shared);
        let mut shared = lock(&shared);
        let geometry = self.disk.geometry();
        let block = shared.unit.profile.block();
        shared.unit.resize(geometry.size.0 / block);
        if self.disk.target().is_withdrawn() {
            self.connection.withdraw(&mut shared);
        }
        self.connection.hear(&mut shared);
        self.disk.reap(now, &mut self.finished);
        self.abroad.iter_mut().for_each(|abroad| abroad.disk.reap(now, &mut self.finished));
        for Completion { tag, op, result } in self.finished.drain(..) {
            self.connection.answer(&mut shared, tag as u32, Answer::Drive(op, result));
        }
        let answers = std::mem::take(&mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner));
        for (tag, answer) in answers {
            self.connection.answer(&mut shared, tag, answer);
        }
        drop(shared);
        self.submit();
        // Drop units that their copy has released and that have no operation under way.
        self.abroad.retain(|abroad| abroad.held.strong_count() > 0 || abroad.disk.under_way() > 0);
    }

    /// Reads the data that has arrived. Returns true if there may be more although the turn is over.
    fn read(&mut self) -> bool {
        let mut left = self.disk.part_of(QUANTUM);
        while self.may_read() {
            if left == 0 {
                return true;
            }
            let space = self.connection.framing.space();
            let wanted = space.len();
            match self.stream.read(space) {
                Ok(0) => {
                    self.dead = true;
                    self.connection.close(&mut lock(&self.shared));
                }
                Ok(count) => {
                    self.moved = true;
                    self.connection.framing.filled(count);
                    self.connection.receive(&mut lock(&self.shared));
                    self.submit();
                    left = left.saturating_sub(count as u64);
                    // The socket is empty: the next data wakes the session.
                    if count < wanted {
                        return false;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.dead = true;
                    self.connection.close(&mut lock(&self.shared));
                }
            }
        }
        false
    }

    /// Requested data is always read, other data only if there is space.
    fn may_read(&self) -> bool {
        let room = self.connection.out.bytes() < OUT_MAX && self.disk.has_room(0);
        !self.dead && !self.connection.is_closing() && (room || self.connection.is_gathering())
    }

    /// Reports the held bytes to the volume, and resumes commands that waited for space.
    fn account(&mut self) {
        let holds = self.connection.holds();
        if holds != self.held {
            if self.held > 0 {
                self.disk.release(self.held);
            }
            if holds > 0 {
                self.disk.reserve(holds);
            }
            self.held = holds;
        }
        self.connection.crowded = !self.disk.has_room(0);
        if self.connection.is_waiting() {
            self.connection.resume(&mut lock(&self.shared));
            self.submit();
        }
    }

    /// The time at which a peer that delays us has done so for too long.
    fn stalls_at(&mut self, now: Instant) -> Option<Instant> {
        let waits = !self.connection.out.is_empty() || (self.may_read() && self.connection.framing.is_amid());
        if std::mem::take(&mut self.moved) || !waits || self.moved_at.is_none() {
            self.moved_at = Some(now);
        }
        self.moved_at.filter(|_| waits && !self.dead).map(|since| since + STALL_MAX)
    }

    /// Sends the waiting data. Returns true if the socket takes no more at present.
    fn write(&mut self) -> bool {
        while !self.dead && !self.connection.out.is_empty() {
            match self.stream.write_vectored(&self.connection.out.slices()) {
                Ok(0) => self.dead = true,
                Ok(count) => {
                    self.moved = true;
                    self.connection.out.sent(count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.dead = true,
            }
        }
        match self.stream.flush() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => true,
            Err(_) => {
                self.dead = true;
                false
            }
            Ok(()) => false,
        }
    }
}

impl<S: Wire> ReactorSession for Session<S> {
    fn descriptor(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    fn start(&mut self, waker: Waker) {
        self.disk.start(waker.clone());
        lock(&self.shared).listen(self.connection.serial(), waker.clone());
        self.waker = waker;
    }

    fn turn(&mut self, now: Instant) -> Interest {
        self.collect(now);
        let again = self.read();
        // Initiators send header and data separately. Their systems may hold the data back until the header is
        // acknowledged.
        let expects = self.connection.framing.is_amid() || std::mem::take(&mut self.connection.expects);
        if expects && self.connection.out.is_empty() && !self.dead {
            self.stream.acknowledge();
        }
        let blocked = self.write();
        self.account();
        let stalled = self.stalls_at(now);
        if stalled.is_some_and(|at| at <= now) {
            self.dead = true;
        }
        if self.dead && !self.connection.is_closing() {
            self.connection.close(&mut lock(&self.shared));
        }
        let disks = [&self.disk].into_iter().chain(self.abroad.iter().map(|abroad| &abroad.disk));
        let mut at = disks.filter_map(Disk::next_event).chain(stalled).min();
        if self.connection.crowded {
            // No event reports that other connections have returned space.
            at = Some(at.map_or(now + LOOK_AGAIN, |at| at.min(now + LOOK_AGAIN)));
        }
        let mut end = false;
        if self.connection.is_closing() {
            let until = *self.until.get_or_insert(now + LINGER);
            let sent = self.dead || self.connection.out.is_empty() || now >= until;
            end = sent && self.connection.is_over();
            at = Some(at.map_or(until, |at| at.min(until)));
        }
        Interest { read: self.may_read() && !again, write: blocked, again, at, end }
    }
}

impl<S: Wire> Drop for Session<S> {
    fn drop(&mut self) {
        self.connection.forget(&mut lock(&self.shared));
    }
}
