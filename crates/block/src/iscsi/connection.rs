//! A connection in the full feature phase: PDUs in, PDUs and operations of the drive out. It owns
//! its tasks. [`Shared`] holds the state that it shares with the target's other connections; every
//! call takes it.
//!
//! Limits: the session's window bounds the commands, and [`IMMEDIATE_MAX`] the immediate ones. At
//! most [`UNDER_WAY_MAX`] bytes of data are requested from the initiator, with the drive, or on
//! their way to the initiator; one command may always begin. Further commands wait in their order
//! of arrival, before they take a place among other connections' commands. An initiator that does
//! not read therefore delays no other. Unsolicited data comes on top; the window and the first
//! burst bound it.

use std::collections::{HashMap, VecDeque};

use stele_media::Op;

use super::framing::{Broken, Framing};
use super::login::LoginResult;
use super::management::Awaiting;
use super::outbox::Outbox;
use super::parameters::{DATA_MAX, Parameters};
use super::pdu::{Frame, Header, NO_TAG, opcode};
use super::shared::{Event, Place, Scope, Shared, Turn};
use super::transfer::Gathering;
use crate::scsi::{Answer, Ask, Exec, ExecStep, NexusId, Reply, Sense, decode};

/// Largest number of immediate commands under way besides the window's.
pub(super) const IMMEDIATE_MAX: usize = 64;
/// Largest number of data bytes of one connection that are requested, with the drive, or not yet
/// sent.
const UNDER_WAY_MAX: u64 = 32 << 20;

pub(super) enum Phase {
    Gathering(Gathering),
    /// Waits for other commands, or for space.
    Waiting,
    /// The drive has an operation.
    Running,
    /// Its answer waits for tickets.
    Answering(Option<Reply>),
}

/// A SCSI command under way.
pub(super) struct Task {
    pub exec: Exec,
    pub phase: Phase,
    /// The amount of data that the initiator expects to move, and its direction.
    pub expected: u32,
    pub reads: bool,
    pub writes: bool,
    /// Bytes that the command takes and returns.
    pub out: u64,
    pub numbered: bool,
    pub ordered: bool,
    /// The number of bytes that count as under way.
    pub weight: u64,
    /// Whether the weight is counted.
    pub admitted: bool,
    /// It was aborted: it gets no answer.
    pub aborted: bool,
    /// Its end settles them.
    pub tickets: Vec<u32>,
    /// It is answered when they have settled.
    pub awaits: Vec<u32>,
}

impl Task {
    /// Bytes of its data that have arrived.
    fn holds(&self) -> u64 {
        let tail = match &self.phase {
            Phase::Gathering(gathering) => gathering.tail_length(),
            _ => 0,
        };
        self.exec.length() + tail
    }
}

pub struct Connection {
    pub(super) place: Place,
    pub framing: Framing,
    pub out: Outbox,
    pub(super) parameters: Parameters,
    pub(super) status_number: u32,
    pub(super) tasks: HashMap<u32, Task>,
    pub(super) running: usize,
    /// Commands that wait for space.
    pub(super) waiting: VecDeque<u32>,
    pub(super) under_way: u64,
    /// The part of it that initiators were asked for and have not sent.
    pub(super) gathering: u64,
    /// Number of commands with unsolicited data on its way.
    pub(super) unsolicited: usize,
    /// All connections together are at their limit: only one command of this one begins.
    pub crowded: bool,
    pub(super) unnumbered: usize,
    pub(super) asks: Vec<(u32, Ask)>,
    /// Task management functions by their tickets.
    pub(super) awaiting: HashMap<u32, Awaiting>,
    /// Tickets, with the number of our tasks that they wait for.
    pub(super) aborting: HashMap<u32, usize>,
    /// Our address as the initiator uses it, for SendTargets.
    pub(super) local: String,
    pub(super) closing: bool,
    /// More unsolicited data of a command is on its way; the session that moves the bytes clears
    /// this.
    pub expects: bool,
    /// The export has ended; the commands under way are still answered.
    pub(super) withdrawing: bool,
    left: bool,
}

impl Connection {
    pub fn new(place: Place, agreed: &LoginResult, local: String) -> Connection {
        let mut framing = Framing::new(DATA_MAX as usize);
        let parameters = place.parameters.clone();
        (framing.header_digest, framing.data_digest) = (parameters.header_digest, parameters.data_digest);
        let mut out = Outbox::default();
        (out.header_digest, out.data_digest) = (parameters.header_digest, parameters.data_digest);
        Connection {
            place,
            framing,
            out,
            parameters,
            status_number: agreed.status_number,
            tasks: HashMap::new(),
            running: 0,
            waiting: VecDeque::new(),
            under_way: 0,
            gathering: 0,
            unsolicited: 0,
            crowded: false,
            unnumbered: 0,
            asks: Vec::new(),
            awaiting: HashMap::new(),
            aborting: HashMap::new(),
            local,
            closing: false,
            expects: false,
            withdrawing: false,
            left: false,
        }
    }

    pub fn serial(&self) -> u32 {
        self.place.serial
    }

    pub(super) fn nexus(&self) -> NexusId {
        self.place.nexus
    }

    /// Whether it takes more PDUs.
    pub fn is_reading(&self) -> bool {
        !self.closing && !self.withdrawing
    }

    /// Nothing more is read; once `is_over`, the connection can be dropped.
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    /// Closed, and none of its operations is with the drive.
    pub fn is_over(&self) -> bool {
        self.closing && self.running == 0
    }

    /// The operations for the drive, by task.
    pub fn take_asks(&mut self) -> Vec<(u32, Ask)> {
        std::mem::take(&mut self.asks)
    }

    /// Called once, before anything is received.
    pub fn begin(&mut self, shared: &mut Shared) {
        shared.note_idle(self.place.serial, false);
        // Another login may have taken its place already.
        self.hear(shared);
    }

    /// Ends the connection: tasks that are not with the drive end at once.
    pub fn close(&mut self, shared: &mut Shared) {
        if self.left {
            return;
        }
        self.left = true;
        self.closing = true;
        let tags: Vec<u32> = self.tasks.keys().copied().collect();
        for tag in tags {
            self.abandon(shared, tag, None);
        }
        shared.leave(&self.place);
        if self.is_over() {
            shared.note_idle(self.place.serial, true);
        }
        self.hear(shared);
    }

    /// Whether a task has ended although its operation is still with the drive.
    pub fn has_ended(&self, tag: u32) -> bool {
        self.left || self.tasks.get(&tag).is_none_or(|task| task.aborted)
    }

    /// Whether nothing of the connections whose place this one has taken can reach the drive any
    /// more.
    pub fn may_begin(&self, shared: &Shared) -> bool {
        !shared.has_former(&self.place)
    }

    /// Called after `is_over`, before the connection is dropped.
    pub fn forget(&mut self, shared: &mut Shared) {
        self.close(shared);
        self.hear(shared);
        shared.forget(self.place.serial);
    }

    /// Handles the events that other connections have left for this one.
    pub fn hear(&mut self, shared: &mut Shared) {
        for event in shared.events(self.place.serial) {
            match event {
                Event::Deliver(frame) if self.is_reading() => self.deliver(shared, frame),
                Event::Deliver(_) => {}
                Event::Run(tag) => self.start(shared, tag),
                Event::Abort(ticket) => self.abort_all(shared, ticket),
                Event::Settled(ticket) => self.settled(shared, ticket),
                Event::Close => self.close(shared),
            }
        }
    }

    /// Handles all PDUs that have arrived completely.
    pub fn receive(&mut self, shared: &mut Shared) {
        while self.is_reading() {
            match self.framing.frame() {
                Ok(Some(frame)) => self.handle(shared, frame),
                Ok(None) => return,
                Err(broken) => self.give_up(shared, &broken),
            }
        }
    }

    /// Without error recovery, an unreliable stream ends together with its session's connection.
    fn give_up(&mut self, shared: &mut Shared, broken: &Broken) {
        tracing::info!(target = shared.name, ?broken, "an iSCSI connection cannot be read on");
        self.close(shared);
    }

    fn handle(&mut self, shared: &mut Shared, frame: Frame) {
        match frame.header.opcode() {
            opcode::DATA_OUT => self.data_arrived(shared, frame),
            opcode::SNACK => self.reject(shared, &frame.header, REJECT_SNACK),
            opcode::NOP_OUT | opcode::COMMAND | opcode::MANAGEMENT | opcode::TEXT | opcode::LOGOUT => {
                if frame.header.is_immediate() {
                    return self.deliver(shared, frame);
                }
                match shared.sequence(&self.place, frame) {
                    Turn::Now(frame) => {
                        self.deliver(shared, frame);
                        self.hear(shared);
                    }
                    Turn::Not => {}
                    Turn::Flood => {
                        tracing::warn!(target = shared.name, "commands far ahead of their turn end a connection");
                        self.close(shared);
                    }
                }
            }
            _ => self.reject(shared, &frame.header, REJECT_UNSUPPORTED),
        }
    }

    /// Starts a command whose turn has come, or takes data that followed it.
    fn deliver(&mut self, shared: &mut Shared, frame: Frame) {
        match frame.header.opcode() {
            opcode::COMMAND => self.command(shared, frame),
            opcode::DATA_OUT => self.data_out(shared, frame),
            opcode::MANAGEMENT => self.manage(shared, &frame.header),
            opcode::NOP_OUT => self.nop(shared, &frame),
            opcode::TEXT => self.text(shared, &frame),
            _ => self.log_out(shared, &frame.header),
        }
    }

    fn command(&mut self, shared: &mut Shared, frame: Frame) {
        let header = frame.header;
        let (tag, flags) = (header.tag(), header.flags());
        let numbered = !header.is_immediate();
        let (reads, writes) = (flags & 0x40 != 0, flags & 0x20 != 0);
        if tag == NO_TAG || self.tasks.contains_key(&tag) || (reads && writes && header.u32(20) > 0) {
            return self.reject(shared, &header, REJECT_PROTOCOL);
        }
        if !numbered && self.unnumbered >= IMMEDIATE_MAX {
            return self.reject(shared, &header, REJECT_IMMEDIATE);
        }
        let cdb = header.bytes(32, 48);
        let prepared = match lun_of(header.lun()) {
            Some(0) => decode(cdb, &shared.unit.profile),
            _ => Err(Sense::NO_SUCH_UNIT),
        };
        let (out, back) = prepared.as_ref().map_or((0, 0), |prepared| (prepared.out, prepared.back));
        let inside = prepared.as_ref().map_or(0, |prepared| prepared.inside);
        let expected = header.u32(20);
        let mut task = Task {
            exec: Exec::new(self.nexus(), prepared),
            phase: Phase::Waiting,
            expected,
            reads,
            writes,
            out,
            numbered,
            ordered: matches!(flags & 7, 2 | 3),
            weight: back + inside,
            admitted: false,
            aborted: false,
            tickets: Vec::new(),
            awaits: Vec::new(),
        };
        task.exec.offered = if writes { u64::from(expected) } else { 0 };
        if numbered {
            shared.count(self.place.tsih, true);
        } else {
            self.unnumbered += 1;
        }
        if lun_of(header.lun()) != Some(0) {
            return self.respond_absent(shared, tag, task, cdb);
        }
        let wanted = if writes { out.min(u64::from(expected)) } else { 0 };
        let mut gathering = Gathering::new(wanted, header.lun());
        gathering.take(&mut task.exec.data, frame.data);
        gathering.unsolicited = writes && !header.is_final();
        self.unsolicited += usize::from(gathering.unsolicited);
        task.weight += wanted;
        task.phase = Phase::Gathering(gathering);
        self.tasks.insert(tag, task);
        self.gather_more(shared, tag);
    }

    fn has_room(&self, weight: u64) -> bool {
        let held = self.under_way + self.out.bytes() as u64;
        held == 0 || (!self.crowded && held + weight <= UNDER_WAY_MAX)
    }

    /// Whether the command may hold memory for its data; if not, it waits for space.
    pub(super) fn admit(&mut self, tag: u32) -> bool {
        let Some(task) = self.tasks.get(&tag) else { return false };
        if task.admitted {
            return true;
        }
        let (weight, gathers) = (task.weight, matches!(task.phase, Phase::Gathering(_)));
        if weight > 0 && !(self.waiting.is_empty() && self.has_room(weight)) {
            self.waiting.push_back(tag);
            return false;
        }
        self.count(tag, weight, gathers);
        true
    }

    fn count(&mut self, tag: u32, weight: u64, gathers: bool) {
        let Some(task) = self.tasks.get_mut(&tag) else { return };
        task.admitted = true;
        self.under_way += weight;
        if gathers {
            self.gathering += weight;
        }
    }

    /// Resumes commands for which there is space now.
    pub fn resume(&mut self, shared: &mut Shared) {
        while let Some(tag) = self.waiting.front().copied() {
            let weight = self.tasks.get(&tag).map_or(0, |task| task.weight);
            if !self.has_room(weight) {
                return;
            }
            self.waiting.pop_front();
            self.count(tag, weight, true);
            self.gather_more(shared, tag);
        }
    }

    /// Whether commands wait for space.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a command waits for data that the initiator is about to send, requested or not.
    pub fn is_gathering(&self) -> bool {
        self.gathering > 0 || self.unsolicited > 0
    }

    /// Bytes held that are not with the drive: requested data, data that came before its command
    /// found space, and unsent data.
    pub fn holds(&self) -> u64 {
        let early = match self.waiting.is_empty() && self.unsolicited == 0 {
            true => 0,
            false => self.tasks.values().filter(|task| !task.admitted).map(Task::holds).sum(),
        };
        self.gathering + early + self.out.bytes() as u64
    }

    /// The data has arrived: the command joins the others once there is space.
    pub(super) fn enter(&mut self, shared: &mut Shared, tag: u32) {
        if !self.admit(tag) {
            return;
        }
        let key = self.key(tag);
        let Some(task) = self.tasks.get_mut(&tag) else { return };
        task.phase = Phase::Waiting;
        self.gathering = self.gathering.saturating_sub(task.weight);
        match shared.unit.enter(key, &task.exec, task.ordered) {
            Ok(true) => self.start(shared, tag),
            Ok(false) => {}
            Err(reply) => self.respond(shared, tag, reply),
        }
    }

    pub(super) fn key(&self, tag: u32) -> u64 {
        u64::from(self.place.serial) << 32 | u64::from(tag)
    }

    fn start(&mut self, shared: &mut Shared, tag: u32) {
        if shared.is_retired() {
            return self.end(shared, tag);
        }
        let Some(task) = self.tasks.get_mut(&tag) else { return };
        let step = shared.unit.begin(&mut task.exec);
        self.go_on(shared, tag, step);
    }

    fn go_on(&mut self, shared: &mut Shared, tag: u32, step: ExecStep) {
        let Some(task) = self.tasks.get_mut(&tag) else { return };
        match step {
            ExecStep::Ask(ask) => {
                task.phase = Phase::Running;
                self.running += 1;
                self.asks.push((tag, ask));
            }
            ExecStep::Done(reply) if task.awaits.is_empty() => self.respond(shared, tag, reply),
            ExecStep::Done(reply) => {
                task.phase = Phase::Answering(Some(reply));
                // It changes nothing any more: others need not wait for the tasks that it waits
                // for.
                shared.release(self.key(tag));
            }
        }
    }

    /// Takes the result of an operation.
    pub fn answer(&mut self, shared: &mut Shared, tag: u32, answer: Answer) {
        self.running = self.running.saturating_sub(1);
        self.take_answer(shared, tag, answer);
        if self.left && self.is_over() {
            shared.note_idle(self.place.serial, true);
        }
    }

    fn take_answer(&mut self, shared: &mut Shared, tag: u32, answer: Answer) {
        let Some(task) = self.tasks.get_mut(&tag) else { return };
        let ended = task.aborted || self.left;
        // Kept reservations are in force, whether the command is still there or not.
        if ended && !matches!(answer, Answer::Kept(_)) {
            return self.end(shared, tag);
        }
        let step = shared.unit.advance(&mut task.exec, answer);
        for port in std::mem::take(&mut shared.unit.aborting) {
            shared.end_early(&self.place, Scope::Port(&port), None);
            let ticket = shared.abort(self.place.serial, Scope::Port(&port));
            task.awaits.push(ticket);
        }
        if ended || self.withdrawing && moves_data(&step) {
            return self.end(shared, tag);
        }
        let waits = !task.awaits.is_empty();
        self.go_on(shared, tag, step);
        if waits {
            self.hear(shared);
        }
    }

    /// Removes a task from all lists, and resumes the tasks that waited for it.
    pub(super) fn end(&mut self, shared: &mut Shared, tag: u32) {
        let Some(task) = self.tasks.remove(&tag) else { return };
        if matches!(&task.phase, Phase::Gathering(gathering) if gathering.unsolicited) {
            self.unsolicited = self.unsolicited.saturating_sub(1);
        }
        match task.phase {
            Phase::Gathering(_) if task.admitted => self.gathering = self.gathering.saturating_sub(task.weight),
            Phase::Gathering(_) => self.waiting.retain(|waiting| *waiting != tag),
            Phase::Waiting | Phase::Running | Phase::Answering(_) => shared.release(self.key(tag)),
        }
        if task.admitted {
            self.under_way = self.under_way.saturating_sub(task.weight);
        }
        if task.numbered {
            shared.count(self.place.tsih, false);
        } else {
            self.unnumbered = self.unnumbered.saturating_sub(1);
        }
        for ticket in task.tickets {
            self.one_less(shared, ticket);
        }
        if self.is_reading() {
            self.resume(shared);
        }
    }

    fn respond_absent(&mut self, shared: &mut Shared, tag: u32, task: Task, cdb: &[u8]) {
        self.tasks.insert(tag, task);
        let reply = crate::scsi::absent(cdb);
        self.respond(shared, tag, reply);
    }

    pub(super) fn stamp(&mut self, shared: &mut Shared, header: &mut Header, numbered: bool) {
        let (expected, highest) = shared.window(self.place.tsih);
        header.put32(24, self.status_number);
        header.put32(28, expected);
        header.put32(32, highest);
        if numbered {
            self.status_number = self.status_number.wrapping_add(1);
        }
    }

    pub(super) fn reject(&mut self, shared: &mut Shared, bad: &Header, reason: u8) {
        let mut header = Header::new(opcode::REJECT, 0x80);
        header.put(2, &[reason]);
        header.set_tag(NO_TAG);
        self.stamp(shared, &mut header, true);
        self.out.push(header, &[stele_media::Shared::copy_from_slice(&bad.0)]);
    }
}

/// Whether the step reads or changes data. The export has ended: a long command goes no further.
fn moves_data(step: &ExecStep) -> bool {
    match step {
        ExecStep::Ask(Ask::Drive(_, op)) => !matches!(op, Op::Flush),
        ExecStep::Ask(Ask::Whole(..)) => true,
        ExecStep::Ask(Ask::Keep(..) | Ask::Find(_)) | ExecStep::Done(_) => false,
    }
}

pub(super) const REJECT_SNACK: u8 = 0x03;
pub(super) const REJECT_PROTOCOL: u8 = 0x04;
pub(super) const REJECT_UNSUPPORTED: u8 = 0x05;
pub(super) const REJECT_IMMEDIATE: u8 = 0x06;

/// The number in a LUN of one level: peripheral or flat space addressing.
pub(super) fn lun_of(lun: u64) -> Option<u16> {
    let [first, second, rest @ ..] = lun.to_be_bytes();
    if rest != [0; 6] {
        return None;
    }
    match first >> 6 {
        0 if first == 0 => Some(u16::from(second)),
        1 => Some(u16::from(first & 0x3f) << 8 | u16::from(second)),
        _ => None,
    }
}
