//! The shared state of a target's connections: the unit, the sessions with the order of their
//! commands, and a mailbox for events between connections. A thread that holds the lock works for
//! microseconds and never waits.
//!
//! Limits: [`SESSIONS_MAX`] sessions, [`WINDOW`] commands under way in each. Commands that arrive
//! before their turn keep at most [`EARLY_MAX`] bytes of a session, together with the data
//! that follows them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stele_media::Waker;

use super::login::{LoginResult, Refusal};
use super::parameters::Parameters;
use super::pdu::{Frame, is_before, opcode};
use crate::scsi::{NexusId, Port, Profile, Reached, Reservations, Reset, Sense, Unit, UnitId, is_named};

pub const SESSIONS_MAX: usize = 256;
/// Largest number of commands of a session under way.
pub const WINDOW: u32 = 128;
/// Largest number of data bytes of a session's commands that arrived before their turn. The first
/// connection that brings more ends.
pub const EARLY_MAX: usize = 4 << 20;
/// A PDU of data counts as so many bytes at least.
const EARLY_LEAST: usize = 512;
/// Number of initiator ports remembered, to tell a new initiator from one that lost its nexus.
const KNOWN_MAX: usize = 4096;

/// An event for a connection.
pub enum Event {
    /// A command whose turn has come, or data that followed it before.
    Deliver(Frame),
    /// One of its own tasks may begin.
    Run(u32),
    /// End all tasks, and settle the ticket when they have ended.
    Abort(u32),
    /// The work of the ticket is done.
    Settled(u32),
    Close,
}

/// Tasks that are being ended, and the function that waits for them.
struct Ticket {
    left: usize,
    owner: u32,
}

/// The connections whose tasks are to end.
#[derive(Clone, Copy)]
pub enum Scope<'a> {
    All,
    Nexus(NexusId),
    /// All that an initiator port has begun, also in sessions that have ended.
    Port(&'a Port),
}

/// A connection, from its login until none of its operations is with the drive.
struct Link {
    inbox: Vec<Event>,
    waker: Option<Waker>,
    nexus: NexusId,
    port: Port,
    cid: u16,
    /// No operation of it is with the drive, or will be: it has not begun, or it has closed.
    idle: bool,
}

/// The decision about an operation of another unit's copy.
pub enum Visit {
    /// It runs under this number.
    Runs(u32),
    /// A command has these blocks to itself at present.
    Later,
    /// This unit does not let it, or no longer.
    Refused,
}

/// A command that arrived before its turn, with the unsolicited data that followed it.
struct Early {
    /// The connection that brought them.
    serial: u32,
    frame: Frame,
    data: Vec<Frame>,
}

impl Early {
    fn bytes(&self) -> usize {
        self.frame.data.len() + self.data.iter().map(data_bytes).sum::<usize>()
    }

    fn is_command(&self, tag: u32) -> bool {
        self.frame.header.opcode() == opcode::COMMAND && self.frame.header.tag() == tag
    }
}

fn data_bytes(frame: &Frame) -> usize {
    frame.data.len().max(EARLY_LEAST)
}

/// A session: an initiator port with its connections.
pub struct Nexus {
    pub id: NexusId,
    port: Port,
    pub initiator: String,
    pub isid: [u8; 6],
    pub parameters: Parameters,
    /// Connections by connection id.
    pub connections: BTreeMap<u16, u32>,
    /// The number of the next command.
    pub expected: u32,
    pub highest: u32,
    /// Commands that arrived before their turn, on any connection.
    held: BTreeMap<u32, Early>,
    /// The bytes of their data.
    early: usize,
    /// SCSI commands with a lower number were ended before their turn came: they are not carried
    /// out.
    ended_below: Option<u32>,
    /// Numbers of commands that were ended one by one before their turn came.
    void: BTreeSet<u32>,
    pub under_way: u32,
}

impl Nexus {
    /// Ends the commands with lower numbers whose turn has not come, also if they have not arrived.
    fn end_below(&mut self, number: Option<u32>) {
        let after_window = self.highest.wrapping_add(1);
        let is_more = |below: &u32| {
            is_before(self.expected, *below)
                && !is_before(after_window, *below)
                && self.ended_below.is_none_or(|former| is_before(former, *below))
        };
        if let Some(below) = number.filter(is_more) {
            self.ended_below = Some(below);
        }
    }

    /// Ends the commands that have arrived before their turn.
    fn end_held(&mut self) {
        let numbers = self.held.iter().filter(|(_, early)| early.frame.header.opcode() == opcode::COMMAND);
        let numbers: Vec<u32> = numbers.map(|(number, _)| *number).collect();
        numbers.into_iter().for_each(|number| self.end_number(number));
    }

    fn end_number(&mut self, number: u32) {
        if let Some(early) = self.held.remove(&number) {
            self.early = self.early.saturating_sub(early.bytes());
        }
        self.void.insert(number);
    }

    /// Whether a function ended this command before its turn came.
    fn has_ended(&self, frame: &Frame) -> bool {
        frame.header.opcode() == opcode::COMMAND
            && self.ended_below.is_some_and(|below| is_before(frame.header.command_number(), below))
    }
}

/// The decision about a numbered command.
pub enum Turn {
    Now(Frame),
    /// It waits for others, or is outside the window.
    Not,
    /// Too much data waits for its turn: the connection must end.
    Flood,
}

pub struct Shared {
    pub name: String,
    pub unit: Unit,
    pub sessions: BTreeMap<u16, Nexus>,
    links: BTreeMap<u32, Link>,
    tickets: BTreeMap<u32, Ticket>,
    /// Operations here that belong to copies of other units, each with the tickets that wait for
    /// its end.
    visits: BTreeMap<u32, Vec<u32>>,
    /// Another export of the volume has taken over the reservations: no further command begins
    /// here.
    retired: bool,
    known: BTreeSet<String>,
    next: u32,
    next_tsih: u16,
}

/// A place in a session.
pub struct Place {
    pub serial: u32,
    pub tsih: u16,
    pub cid: u16,
    pub nexus: NexusId,
    /// The session's parameters, with those of this connection.
    pub parameters: Parameters,
}

impl Shared {
    pub fn new(profile: Profile, reservations: Reservations) -> Shared {
        Shared {
            name: profile.target.clone(),
            unit: Unit::new(UnitId(0), profile, reservations),
            sessions: BTreeMap::new(),
            links: BTreeMap::new(),
            tickets: BTreeMap::new(),
            visits: BTreeMap::new(),
            retired: false,
            known: BTreeSet::new(),
            next: 0,
            next_tsih: 0,
        }
    }

    /// Hands its reservations over to a successor, which serves the same volume. `None`: they are
    /// being changed just now.
    pub fn retire(&mut self) -> Option<Reservations> {
        let reservations = self.unit.settled_reservations()?;
        self.retired = true;
        Some(reservations)
    }

    pub fn is_retired(&self) -> bool {
        self.retired
    }

    /// Finds or makes the session that a login asks for, with a place in it for the connection.
    pub fn join(&mut self, agreed: &LoginResult) -> Result<Place, Refusal> {
        let serial = self.number();
        let tsih = if agreed.tsih == 0 { self.begin_session(agreed)? } else { agreed.tsih };
        let Some(session) = self.sessions.get_mut(&tsih) else { return Err(Refusal::NO_SESSION) };
        if session.initiator != agreed.initiator || session.isid != agreed.isid {
            return Err(Refusal::NO_SESSION);
        }
        let old = session.connections.get(&agreed.cid).copied();
        if old.is_none() && session.connections.len() >= usize::from(session.parameters.connections) {
            return Err(Refusal::TOO_MANY);
        }
        session.connections.insert(agreed.cid, serial);
        let (nexus, port) = (session.id, session.port.clone());
        let parameters = session.parameters.on_connection(&agreed.parameters);
        if let Some(old) = old {
            self.post(old, Event::Close);
        }
        let link = Link { inbox: Vec::new(), waker: None, nexus, port, cid: agreed.cid, idle: true };
        self.links.insert(serial, link);
        Ok(Place { serial, tsih, cid: agreed.cid, nexus, parameters })
    }

    /// Whether an operation of an ended connection, whose place this connection has taken, may
    /// still reach the drive: the former session of the same initiator port, or a former connection
    /// with the same id.
    pub fn has_former(&self, place: &Place) -> bool {
        let Some(own) = self.links.get(&place.serial) else { return false };
        self.links.iter().any(|(serial, link)| {
            let former = link.nexus != own.nexus || link.cid == own.cid;
            *serial != place.serial && !link.idle && link.port == own.port && former
        })
    }

    /// Whether no operation of any connection can reach the drive.
    pub fn is_quiet(&self) -> bool {
        self.visits.is_empty() && self.links.values().all(|link| link.idle)
    }

    /// A connection begins to take commands, or is closed and has no operation with the drive any
    /// more.
    pub fn note_idle(&mut self, serial: u32, idle: bool) {
        if let Some(link) = self.links.get_mut(&serial) {
            link.idle = idle;
        }
    }

    fn begin_session(&mut self, agreed: &LoginResult) -> Result<u16, Refusal> {
        let same = |session: &Nexus| session.initiator == agreed.initiator && session.isid == agreed.isid;
        let old = self.sessions.iter().find(|(_, session)| same(session)).map(|(tsih, _)| *tsih);
        if let Some(old) = old {
            self.end_session(old);
        }
        if self.sessions.len() >= SESSIONS_MAX {
            return Err(Refusal::RESOURCES);
        }
        let id = NexusId(self.number());
        loop {
            self.next_tsih = self.next_tsih.wrapping_add(1);
            if self.next_tsih != 0 && !self.sessions.contains_key(&self.next_tsih) {
                break;
            }
        }
        let isid: String = agreed.isid.iter().map(|byte| format!("{byte:02x}")).collect();
        let port = Port { initiator: format!("{},i,0x{isid}", agreed.initiator), target: 1 };
        let known = self.known.contains(&port.initiator);
        if self.known.len() < KNOWN_MAX {
            self.known.insert(port.initiator.clone());
        }
        self.unit.attach(id, port.clone(), known);
        let session = Nexus {
            id,
            port,
            initiator: agreed.initiator.clone(),
            isid: agreed.isid,
            parameters: agreed.parameters.clone(),
            connections: BTreeMap::new(),
            expected: agreed.command_number,
            highest: agreed.command_number.wrapping_add(WINDOW - 1),
            held: BTreeMap::new(),
            early: 0,
            ended_below: None,
            void: BTreeSet::new(),
            under_way: 0,
        };
        self.sessions.insert(self.next_tsih, session);
        Ok(self.next_tsih)
    }

    /// Ends a session with all its connections.
    pub fn end_session(&mut self, tsih: u16) {
        let Some(session) = self.sessions.remove(&tsih) else { return };
        self.unit.detach(session.id);
        for serial in session.connections.values() {
            self.post(*serial, Event::Close);
        }
    }

    /// A connection has left its session. The last connection ends the session.
    pub fn leave(&mut self, place: &Place) {
        let Some(session) = self.sessions.get_mut(&place.tsih) else { return };
        // Also where another connection has its place now: the initiator sends them again there.
        session.held.retain(|_, early| early.serial != place.serial);
        session.early = session.held.values().map(Early::bytes).sum();
        if session.connections.get(&place.cid) == Some(&place.serial) {
            session.connections.remove(&place.cid);
        }
        if session.connections.is_empty() {
            self.end_session(place.tsih);
        }
    }

    /// Removes a connection from which nothing more arrives.
    pub fn forget(&mut self, serial: u32) {
        let Some(link) = self.links.remove(&serial) else { return };
        for event in link.inbox {
            if let Event::Abort(ticket) = event {
                self.settle(ticket);
            }
        }
        self.tickets.retain(|_, ticket| ticket.owner != serial);
    }

    pub fn listen(&mut self, serial: u32, waker: Waker) {
        if let Some(link) = self.links.get_mut(&serial) {
            link.waker = Some(waker);
        }
    }

    pub fn events(&mut self, serial: u32) -> Vec<Event> {
        self.links.get_mut(&serial).map(|link| std::mem::take(&mut link.inbox)).unwrap_or_default()
    }

    pub fn post(&mut self, serial: u32, event: Event) {
        if let Some(link) = self.links.get_mut(&serial) {
            link.inbox.push(event);
            link.waker.iter().for_each(Waker::wake);
        }
    }

    /// Ends the tasks of connections, and settles a ticket when they have ended.
    pub fn abort(&mut self, owner: u32, scope: Scope<'_>) -> u32 {
        let ticket = self.number();
        let concerned = |link: &Link| match scope {
            Scope::All => true,
            Scope::Nexus(nexus) => link.nexus == nexus,
            Scope::Port(port) => link.port == *port,
        };
        let busy = self.links.iter().filter(|(_, link)| !link.idle && concerned(link));
        let serials: Vec<u32> = busy.map(|(serial, _)| *serial).collect();
        for serial in &serials {
            self.post(*serial, Event::Abort(ticket));
        }
        let mut left = serials.len() + 1;
        // The initiator of a copy may use another port here. Its operations are short: wait for all
        // of them.
        if !matches!(scope, Scope::Nexus(_)) {
            for tickets in self.visits.values_mut() {
                tickets.push(ticket);
                left += 1;
            }
        }
        self.tickets.insert(ticket, Ticket { left, owner });
        // The one more, so that a ticket without tasks settles too.
        self.settle(ticket);
        ticket
    }

    /// A copy that another unit carries out begins an operation here for an initiator port, on
    /// these bytes.
    pub fn visit(&mut self, port: &Port, range: (u64, u64), writes: bool) -> Visit {
        let (readable, writable) = self.unit.lets_copy(port);
        if self.retired || !(if writes { writable } else { readable }) {
            return Visit::Refused;
        }
        let visit = self.number();
        if !self.unit.enter_visit(u64::from(visit), range) {
            return Visit::Later;
        }
        self.visits.insert(visit, Vec::new());
        Visit::Runs(visit)
    }

    /// The operation has ended.
    pub fn end_visit(&mut self, visit: u32) {
        let tickets = self.visits.remove(&visit).unwrap_or_default();
        tickets.into_iter().for_each(|ticket| self.settle(ticket));
        self.release(u64::from(visit));
    }

    /// Makes a ticket for one task of one connection.
    pub fn ticket(&mut self, owner: u32) -> u32 {
        let ticket = self.number();
        self.tickets.insert(ticket, Ticket { left: 1, owner });
        ticket
    }

    /// A connection has ended its part of a ticket's tasks.
    pub fn settle(&mut self, number: u32) {
        let Some(ticket) = self.tickets.get_mut(&number) else { return };
        ticket.left = ticket.left.saturating_sub(1);
        if ticket.left == 0 {
            let owner = ticket.owner;
            self.tickets.remove(&number);
            self.post(owner, Event::Settled(number));
        }
    }

    /// Takes a numbered command, and decides whether its turn has come.
    pub fn sequence(&mut self, place: &Place, frame: Frame) -> Turn {
        let Some(session) = self.sessions.get_mut(&place.tsih) else { return Turn::Not };
        let number = frame.header.command_number();
        if is_before(number, session.expected) || is_before(session.highest, number) {
            return Turn::Not;
        }
        if number != session.expected {
            if session.held.contains_key(&number) || session.void.contains(&number) {
                return Turn::Not;
            }
            if session.early + frame.data.len() > EARLY_MAX {
                return Turn::Flood;
            }
            session.early += frame.data.len();
            session.held.insert(number, Early { serial: place.serial, frame, data: Vec::new() });
            return Turn::Not;
        }
        session.expected = session.expected.wrapping_add(1);
        let is_ended = session.has_ended(&frame);
        self.take_turns(place.tsih);
        if is_ended { Turn::Not } else { Turn::Now(frame) }
    }

    /// Keeps unsolicited data of a command whose turn has not come; other data is dropped. Returns
    /// false if too much waits: the connection must end.
    pub fn hold_data(&mut self, place: &Place, frame: Frame) -> bool {
        let Some(session) = self.sessions.get_mut(&place.tsih) else { return true };
        let tag = frame.header.tag();
        let its = session.held.values_mut().find(|early| early.serial == place.serial && early.is_command(tag));
        let Some(early) = its else { return true };
        session.early += data_bytes(&frame);
        early.data.push(frame);
        session.early <= EARLY_MAX
    }

    /// Delivers the commands whose turn has come.
    fn take_turns(&mut self, tsih: u16) {
        let Some(session) = self.sessions.get_mut(&tsih) else { return };
        let mut freed = Vec::new();
        loop {
            if session.void.remove(&session.expected) {
                session.expected = session.expected.wrapping_add(1);
                continue;
            }
            let Some(early) = session.held.remove(&session.expected) else { break };
            session.expected = session.expected.wrapping_add(1);
            session.early = session.early.saturating_sub(early.bytes());
            if !session.has_ended(&early.frame) {
                let Early { serial, frame, data } = early;
                freed.extend([frame].into_iter().chain(data).map(|frame| (serial, frame)));
            }
        }
        if session.ended_below.is_some_and(|below| !is_before(session.expected, below)) {
            session.ended_below = None;
        }
        for (serial, frame) in freed {
            self.post(serial, Event::Deliver(frame));
        }
    }

    /// Ends the commands whose turn has not come. These are those that the session sent before its
    /// function with this number, also if they have not arrived, and all that have arrived of other
    /// sessions that the function concerns.
    pub fn end_early(&mut self, place: &Place, scope: Scope<'_>, number: Option<u32>) {
        for (tsih, session) in &mut self.sessions {
            let concerned = match scope {
                Scope::All => true,
                Scope::Nexus(nexus) => session.id == nexus,
                Scope::Port(port) => session.port == *port,
            };
            if !concerned {
                continue;
            }
            if *tsih == place.tsih {
                session.end_below(number);
            } else {
                session.end_held();
            }
        }
    }

    /// Ends a command of the session whose turn has not come. Returns false if there can be none:
    /// its number is neither held nor still to arrive.
    pub fn end_one_early(&mut self, place: &Place, tag: u32, reference: u32, number: u32) -> bool {
        let Some(session) = self.sessions.get_mut(&place.tsih) else { return false };
        let held = session.held.iter().find(|(_, early)| early.is_command(tag)).map(|(number, _)| *number);
        // A command that has not arrived counts as received from now on (RFC 7143, 11.6.1).
        let missing = !is_before(reference, session.expected)
            && is_before(reference, number)
            && !is_before(session.highest, reference)
            && !session.held.contains_key(&reference);
        let Some(ended) = held.or(missing.then_some(reference)) else { return false };
        session.end_number(ended);
        self.take_turns(place.tsih);
        true
    }

    /// The values of ExpCmdSN and MaxCmdSN to send now.
    pub fn window(&mut self, tsih: u16) -> (u32, u32) {
        let Some(session) = self.sessions.get_mut(&tsih) else { return (0, 0) };
        let room = WINDOW.saturating_sub(session.under_way);
        let highest = session.expected.wrapping_add(room).wrapping_sub(1);
        // MaxCmdSN must never decrease.
        if is_before(session.highest, highest) {
            session.highest = highest;
        }
        (session.expected, session.highest)
    }

    pub fn count(&mut self, tsih: u16, begins: bool) {
        if let Some(session) = self.sessions.get_mut(&tsih) {
            session.under_way = if begins { session.under_way + 1 } else { session.under_way.saturating_sub(1) };
        }
    }

    /// Called after all tasks were told to end.
    pub fn reset(&mut self, reset: Reset, by: NexusId) {
        self.unit.reset(reset, Some(by));
    }

    /// The pool's free space has fallen below its threshold.
    pub fn threshold_reached(&mut self) {
        self.unit.tell_all(Sense::THRESHOLD_REACHED, None);
    }

    /// A command has ended: starts those that waited for it.
    pub fn release(&mut self, key: u64) {
        for freed in self.unit.leave(key) {
            self.post((freed >> 32) as u32, Event::Run(freed as u32));
        }
    }

    /// Its unit for a copy of another unit, if it has that name and the initiator is logged in here
    /// too.
    pub fn reached(&self, port: &Port, (kind, designator): &(u8, Vec<u8>)) -> Option<Reached> {
        let initiator = port.initiator.split(",i,").next().unwrap_or_default();
        let logged_in = self.sessions.values().any(|session| session.initiator == initiator);
        if !logged_in || !is_named(&self.unit.profile, *kind, designator) {
            return None;
        }
        let Profile { blocks, block_bytes, .. } = self.unit.profile;
        let (readable, writable) = self.unit.lets_copy(port);
        // The transport sets the number.
        Some(Reached { unit: UnitId(0), blocks, block_bytes, readable, writable, hold: Arc::default() })
    }

    fn number(&mut self) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.next
    }
}
