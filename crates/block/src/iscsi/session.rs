//! A session on the volume's reactor: it moves bytes between the socket and the [`Connection`], and
//! operations between the connection and the volume.
//!
//! Limits: a turn moves at most [`QUANTUM`] bytes in each direction, divided among the connections
//! of one initiator. A copy to another unit asks that unit before each operation. With [`OUT_MAX`]
//! bytes unsent it reads nothing. With no space at the volume it reads only to receive the data
//! that it waits for. A closed connection has [`LINGER`] to take the data sent to it.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::os::fd::RawFd;
use std::os::linux::net::TcpStreamExt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use stele_ground::{Duration, Instant};
use stele_media::{Completion, Interest, MediaError, MediaFault, Op, ReactorSession, Waker};

use super::node::{Joined, Keeper, Member, Neighbour, Node, lock};
use super::shared::{Shared, Visit};
use crate::progress::Progress;
use crate::scsi::{Answer, Ask, Port, Reached, UnitId};
use crate::{Disk, Peer, Stream};

const QUANTUM: u64 = 1 << 20;
const OUT_MAX: usize = 8 << 20;
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

/// A unit of another target, for copies. However often their lists name it, it is one connection
/// there.
struct Abroad {
    unit: UnitId,
    disk: Disk,
    shared: Arc<Mutex<Shared>>,
    port: Port,
    /// Operations under way: the task, and the number under which the other unit knows its
    /// operation.
    visits: Vec<(u64, u32)>,
    /// The copies keep it for as long as they need the unit.
    held: Weak<()>,
}

pub struct IscsiSession {
    /// A trait object: the session is compiled here, and not in every program that serves it.
    stream: Box<dyn Wire>,
    member: Member,
    disk: Disk,
    keeper: Arc<dyn Keeper>,
    node: Arc<Node>,
    peer: Peer,
    /// Answers that did not come from the volume: kept reservations, and units that were found.
    answers: Answers,
    abroad: Vec<Abroad>,
    /// Operations in other units that wait until no command has their blocks to itself.
    later: Vec<(u32, UnitId, Op)>,
    units: u32,
    waker: Waker,
    finished: Vec<Completion>,
    /// The stream can no longer be read or written.
    dead: bool,
    receiving: Progress,
    sending: Progress,
    /// Number of held bytes that the volume was told of.
    held: u64,
    /// When closing: the time at which the connection is dropped.
    until: Option<Instant>,
}

impl IscsiSession {
    /// `rest`: bytes that arrived after the login.
    pub fn new(joined: Joined, stream: Box<dyn Wire>, rest: &[u8]) -> IscsiSession {
        let Joined { mut member, disk, keeper, node, peer, .. } = joined;
        let mut rest = rest;
        member.connection.begin(&mut lock(&member.shared));
        while !rest.is_empty() && member.connection.is_reading() {
            let fed = member.connection.framing.feed(rest);
            rest = rest.get(fed..).unwrap_or_default();
            member.connection.receive(&mut lock(&member.shared));
        }
        IscsiSession {
            stream,
            member,
            disk,
            keeper,
            node,
            peer,
            answers: Answers::default(),
            abroad: Vec::new(),
            later: Vec::new(),
            units: 0,
            waker: Waker::idle(),
            finished: Vec::new(),
            dead: false,
            receiving: Progress::default(),
            sending: Progress::default(),
            held: 0,
            until: None,
        }
    }

    #[cfg(test)]
    pub fn unsent(&self) -> usize {
        self.member.connection.out.bytes()
    }

    fn submit(&mut self) {
        for (tag, ask) in self.member.connection.take_asks() {
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

    /// Finds a unit of another target for a copy, and opens it unless a copy of the same initiator
    /// has.
    fn find(&mut self, port: &Port, name: &(u8, Vec<u8>)) -> Option<Reached> {
        let found = self.node.neighbours(self.disk.target(), &self.peer, port, name);
        found.into_iter().find_map(|neighbour| self.reach(port, neighbour))
    }

    fn reach(&mut self, port: &Port, neighbour: Neighbour) -> Option<Reached> {
        let Neighbour { target, shared, mut reached } = neighbour;
        let same = |abroad: &&mut Abroad| Arc::ptr_eq(abroad.disk.target(), &target) && abroad.port == *port;
        if let Some(known) = self.abroad.iter_mut().find(same) {
            reached.unit = known.unit;
            match known.held.upgrade() {
                Some(hold) => reached.hold = hold,
                None => known.held = Arc::downgrade(&reached.hold),
            }
            return Some(reached);
        }
        let mut disk = Disk::open(&target, &self.peer).ok()?;
        disk.start(self.waker.clone());
        self.units += 1;
        reached.unit = UnitId(self.units);
        let (unit, port, held) = (reached.unit, port.clone(), Arc::downgrade(&reached.hold));
        self.abroad.push(Abroad { unit, disk, shared, port, visits: Vec::new(), held });
        Some(reached)
    }

    /// The other unit is asked for each operation: it may have fenced the initiator since the copy
    /// began.
    fn submit_abroad(&mut self, tag: u32, unit: UnitId, op: Op) {
        let tag = u64::from(tag);
        let found = self.abroad.iter_mut().find(|abroad| abroad.unit == unit && !abroad.disk.target().is_withdrawn());
        let Some(abroad) = found else {
            return self.refuse_abroad(tag, op, MediaFault::Gone, "the export was withdrawn");
        };
        let (range, writes) = (op.range().unwrap_or_default(), matches!(op, Op::Write { .. }));
        let visit = lock(&abroad.shared).visit(&abroad.port, range, writes);
        match visit {
            Visit::Runs(visit) => {
                abroad.visits.push((tag, visit));
                abroad.disk.submit(tag, op);
            }
            Visit::Later => self.later.push((tag as u32, unit, op)),
            Visit::Refused => {
                self.refuse_abroad(tag, op, MediaFault::Refused, "the other unit no longer lets the initiator copy")
            }
        }
    }

    /// Asks the other units again for operations whose blocks a command had to itself.
    fn submit_later(&mut self) {
        for (tag, unit, op) in std::mem::take(&mut self.later) {
            match self.member.connection.has_ended(tag) {
                true => self.refuse_abroad(u64::from(tag), op, MediaFault::Gone, "the request has ended"),
                false => self.submit_abroad(tag, unit, op),
            }
        }
    }

    fn refuse_abroad(&self, tag: u64, op: Op, fault: MediaFault, reason: &'static str) {
        self.answer_soon(tag as u32, Answer::Drive(op, Err(MediaError::new(fault, reason))));
    }

    /// Collects results of the volume, and events of other connections.
    fn collect(&mut self, now: Instant) {
        let mut shared = lock(&self.member.shared);
        let geometry = self.disk.geometry();
        let block = shared.unit.profile.block();
        shared.unit.resize(geometry.size.0 / block);
        self.member.connection.hear(&mut shared);
        drop(shared);
        self.reap(now);
        self.submit_later();
        let mut shared = lock(&self.member.shared);
        for Completion { tag, op, result } in self.finished.drain(..) {
            self.member.connection.answer(&mut shared, tag as u32, Answer::Drive(op, result));
        }
        let answers = std::mem::take(&mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner));
        for (tag, answer) in answers {
            self.member.connection.answer(&mut shared, tag, answer);
        }
        if self.disk.target().is_withdrawn() {
            self.member.connection.withdraw(&mut shared);
        }
        drop(shared);
        self.submit();
        // Drop units that their copy has released and that have no operation under way.
        self.abroad.retain(|abroad| abroad.held.strong_count() > 0 || abroad.disk.under_way() > 0);
    }

    /// Takes the finished operations. It holds no lock: the other units of a copy have locks of
    /// their own.
    fn reap(&mut self, now: Instant) {
        let connection = &self.member.connection;
        let ended = |tag: u64| connection.has_ended(tag as u32);
        self.disk.drop_held(ended);
        self.disk.reap(now, &mut self.finished);
        for abroad in &mut self.abroad {
            abroad.disk.drop_held(ended);
            let before = self.finished.len();
            abroad.disk.reap(now, &mut self.finished);
            for Completion { tag, .. } in self.finished.iter().skip(before) {
                if let Some(at) = abroad.visits.iter().position(|(task, _)| task == tag) {
                    let (_, visit) = abroad.visits.swap_remove(at);
                    lock(&abroad.shared).end_visit(visit);
                }
            }
        }
    }

    /// Reads the data that has arrived. Returns true if there may be more although the turn is
    /// over.
    fn read(&mut self) -> bool {
        let mut left = self.disk.part_of(QUANTUM);
        while self.may_read() {
            if left == 0 {
                return true;
            }
            let space = self.member.connection.framing.space();
            let wanted = space.len();
            match self.stream.read(space) {
                Ok(0) => {
                    self.dead = true;
                    self.member.connection.close(&mut lock(&self.member.shared));
                }
                Ok(count) => {
                    self.receiving.moved = true;
                    self.member.connection.framing.filled(count);
                    self.member.connection.receive(&mut lock(&self.member.shared));
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
                    self.member.connection.close(&mut lock(&self.member.shared));
                }
            }
        }
        false
    }

    /// A peer that does not take its answers is not read from, whatever it still has to send: each
    /// PDU may ask for another answer. Without space at the volume, only the data that commands
    /// wait for is a reason to read.
    fn may_read(&self) -> bool {
        let takes = self.member.connection.out.bytes() < OUT_MAX;
        let wanted = self.disk.has_room(0) || self.member.connection.is_gathering();
        !self.dead && self.member.connection.is_reading() && takes && wanted
    }

    /// Reports the held bytes to the volume.
    fn note_held(&mut self) {
        let holds = self.member.connection.holds();
        if holds != self.held {
            if self.held > 0 {
                self.disk.release(self.held);
            }
            if holds > 0 {
                self.disk.reserve(holds);
            }
            self.held = holds;
        }
    }

    /// Reports the held bytes, and resumes commands that waited for space.
    fn account(&mut self) {
        self.note_held();
        self.member.connection.crowded = !self.disk.has_room(0);
        if self.member.connection.is_waiting() {
            self.member.connection.resume(&mut lock(&self.member.shared));
            self.submit();
            self.note_held();
        }
    }

    /// The time at which a peer that delays us has done so for too long.
    fn stalls_at(&mut self, now: Instant) -> Option<Instant> {
        let connection = &self.member.connection;
        let owes = self.may_read() && (connection.framing.is_amid() || connection.is_gathering());
        let receiving = self.receiving.stalls_at(now, owes && !self.dead);
        let sending = self.sending.stalls_at(now, !self.member.connection.out.is_empty() && !self.dead);
        receiving.into_iter().chain(sending).min()
    }

    /// Sends the waiting data. Returns true if the socket takes no more at present.
    fn write(&mut self) -> bool {
        while !self.dead && !self.member.connection.out.is_empty() {
            match self.stream.write_vectored(&self.member.connection.out.slices()) {
                Ok(0) => self.dead = true,
                Ok(count) => {
                    self.sending.moved = true;
                    self.member.connection.out.sent(count);
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

impl ReactorSession for IscsiSession {
    fn descriptor(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    fn start(&mut self, waker: Waker) {
        self.disk.start(waker.clone());
        lock(&self.member.shared).listen(self.member.connection.serial(), waker.clone());
        self.waker = waker;
    }

    fn turn(&mut self, now: Instant) -> Interest {
        self.collect(now);
        let again = self.read();
        // Initiators send header and data separately. Their systems may hold the data back until
        // the header is acknowledged.
        let expects = self.member.connection.framing.is_amid() || std::mem::take(&mut self.member.connection.expects);
        if expects && self.member.connection.out.is_empty() && !self.dead {
            self.stream.acknowledge();
        }
        let mut blocked = self.write();
        self.account();
        if !blocked && !self.member.connection.out.is_empty() {
            // Commands that found space only now have requested their data.
            blocked = self.write();
            self.note_held();
        }
        let stalled = self.stalls_at(now);
        if stalled.is_some_and(|at| at <= now) {
            self.dead = true;
        }
        if self.dead && !self.member.connection.is_closing() {
            self.member.connection.close(&mut lock(&self.member.shared));
        }
        let disks = [&self.disk].into_iter().chain(self.abroad.iter().map(|abroad| &abroad.disk));
        let mut at = disks.filter_map(Disk::next_event).chain(stalled).min();
        if self.member.connection.crowded || !self.later.is_empty() {
            // No event reports that other connections have returned space.
            at = Some(at.map_or(now + LOOK_AGAIN, |at| at.min(now + LOOK_AGAIN)));
        }
        let mut end = false;
        if self.member.connection.is_closing() {
            let until = *self.until.get_or_insert(now + LINGER);
            let sent = self.dead || self.member.connection.out.is_empty() || now >= until;
            end = sent && self.member.connection.is_over();
            at = Some(at.map_or(until, |at| at.min(until)));
        }
        Interest { read: self.may_read() && !again, write: blocked, again, at, end }
    }
}
