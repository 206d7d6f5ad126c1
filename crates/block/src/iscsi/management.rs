//! Task management (RFC 7143, 11.5 and 11.6): aborts and resets. A function is answered once the
//! tasks that it ended have left the drive. No part of an aborted write therefore happens after the
//! answer to its abort.
//!
//! Limits: [`FUNCTIONS_MAX`] functions of a connection wait, [`SETS_MAX`] of them for more than one
//! task. A further one is rejected, and has no effect.

use super::connection::{Connection, IMMEDIATE_MAX, Phase, REJECT_PROTOCOL, Task, lun_of};
use super::pdu::{Header, NO_TAG, opcode};
use super::shared::{Scope, Shared, WINDOW};
use crate::scsi::{Reset, Sense};

const ABORT_TASK: u8 = 1;
const ABORT_TASK_SET: u8 = 2;
const CLEAR_TASK_SET: u8 = 4;
const UNIT_RESET: u8 = 5;
const WARM_RESET: u8 = 6;
const COLD_RESET: u8 = 7;
const REASSIGN: u8 = 8;

const COMPLETE: u8 = 0;
const NO_TASK: u8 = 1;
const NO_UNIT: u8 = 2;
const NO_REASSIGNMENT: u8 = 4;
const UNSUPPORTED: u8 = 5;
const REJECTED: u8 = 255;

/// Largest number of functions that wait: an initiator may abort each command that it has under
/// way.
pub(super) const FUNCTIONS_MAX: usize = WINDOW as usize + IMMEDIATE_MAX;
/// Largest number of these that end sets of tasks. Each of them has a ticket at every task of every
/// connection that it concerns.
pub(super) const SETS_MAX: usize = 8;

/// A function that waits for tasks to end.
pub struct Awaiting {
    tag: u32,
    function: u8,
}

impl Connection {
    pub(super) fn manage(&mut self, shared: &mut Shared, header: &Header) {
        let (function, tag) = (header.flags() & 0x7f, header.tag());
        if tag == NO_TAG {
            return self.reject(shared, header, REJECT_PROTOCOL);
        }
        if matches!(function, ABORT_TASK..=UNIT_RESET) && lun_of(header.lun()) != Some(0) {
            return self.managed(shared, tag, NO_UNIT);
        }
        if self.has_too_many(function) {
            return self.managed(shared, tag, REJECTED);
        }
        let nexus = self.nexus();
        let ticket = match function {
            ABORT_TASK => {
                let task = header.u32(20);
                if !self.tasks.contains_key(&task) {
                    let ended = shared.end_one_early(&self.place, task, header.u32(32), header.command_number());
                    self.hear(shared);
                    return self.managed(shared, tag, if ended { COMPLETE } else { NO_TASK });
                }
                let ticket = shared.ticket(self.place.serial);
                self.aborting.insert(ticket, 1);
                self.abandon(shared, task, Some(ticket));
                ticket
            }
            ABORT_TASK_SET => self.abort_before(shared, Scope::Nexus(nexus), header),
            CLEAR_TASK_SET => {
                shared.unit.tell_all(Sense::COMMANDS_CLEARED, Some(nexus));
                self.abort_before(shared, Scope::All, header)
            }
            UNIT_RESET | WARM_RESET | COLD_RESET => self.abort_before(shared, Scope::All, header),
            REASSIGN => return self.managed(shared, tag, NO_REASSIGNMENT),
            _ => return self.managed(shared, tag, UNSUPPORTED),
        };
        self.awaiting.insert(ticket, Awaiting { tag, function });
        self.hear(shared);
    }

    /// Whether functions wait in such number that this one must not join them.
    fn has_too_many(&self, function: u8) -> bool {
        let ends_set = |function: u8| function != ABORT_TASK;
        let sets = || self.awaiting.values().filter(|awaiting| ends_set(awaiting.function)).count();
        self.awaiting.len() >= FUNCTIONS_MAX || ends_set(function) && sets() >= SETS_MAX
    }

    /// Ends the tasks, and the commands sent before the function whose turn has not come.
    fn abort_before(&self, shared: &mut Shared, scope: Scope<'_>, header: &Header) -> u32 {
        shared.end_early(&self.place, scope, Some(header.command_number()));
        shared.abort(self.place.serial, scope)
    }

    /// The tasks that a function waited for have ended.
    pub(super) fn settled(&mut self, shared: &mut Shared, ticket: u32) {
        let Some(Awaiting { tag, function }) = self.awaiting.remove(&ticket) else {
            return self.answer_settled(shared, ticket);
        };
        let nexus = self.nexus();
        match function {
            UNIT_RESET => shared.reset(Reset::Unit, nexus),
            WARM_RESET | COLD_RESET => shared.reset(Reset::Target, nexus),
            _ => {}
        }
        self.managed(shared, tag, COMPLETE);
        if function == COLD_RESET {
            // All connections of all sessions end, this one after its answer.
            let sessions: Vec<u16> = shared.sessions.keys().copied().collect();
            sessions.into_iter().for_each(|tsih| shared.end_session(tsih));
            self.hear(shared);
        }
    }

    fn managed(&mut self, shared: &mut Shared, tag: u32, response: u8) {
        let mut header = Header::new(opcode::MANAGED, 0x80);
        header.put(2, &[response]);
        header.set_tag(tag);
        self.stamp(shared, &mut header, true);
        self.out.push(header, &[]);
    }

    /// A ticket of a command has settled: the command is answered if it waited for nothing else.
    fn answer_settled(&mut self, shared: &mut Shared, ticket: u32) {
        let found = self.tasks.iter_mut().find(|(_, task)| task.awaits.contains(&ticket));
        let Some((tag, task)) = found else { return };
        let tag = *tag;
        task.awaits.retain(|awaited| *awaited != ticket);
        if task.awaits.is_empty()
            && let Phase::Answering(reply) = &mut task.phase
            && let Some(reply) = reply.take()
        {
            self.respond(shared, tag, reply);
        }
    }

    pub(super) fn abort_all(&mut self, shared: &mut Shared, ticket: u32) {
        let tags: Vec<u32> = self.tasks.keys().copied().collect();
        // One more than the number of tasks, so that the ticket is not settled before all tasks are
        // notified.
        self.aborting.insert(ticket, tags.len() + 1);
        for tag in tags {
            self.abandon(shared, tag, Some(ticket));
        }
        self.one_less(shared, ticket);
    }

    /// Ends a task without an answer: at once, or when it returns from the drive. A task may be
    /// ended several times; each ticket waits until the task has returned.
    pub(super) fn abandon(&mut self, shared: &mut Shared, tag: u32, ticket: Option<u32>) {
        let Some(task) = self.tasks.get_mut(&tag) else { return };
        task.aborted = true;
        task.tickets.extend(ticket);
        if !matches!(task.phase, Phase::Running) {
            self.end(shared, tag);
        }
    }

    pub(super) fn one_less(&mut self, shared: &mut Shared, ticket: u32) {
        let Some(left) = self.aborting.get_mut(&ticket) else { return };
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.aborting.remove(&ticket);
            shared.settle(ticket);
        }
    }

    /// The export has ended: takes no further command, lets the commands under way answer, and then
    /// closes. Commands whose data has not arrived end without an answer. Called in every turn.
    pub fn withdraw(&mut self, shared: &mut Shared) {
        if self.closing {
            return;
        }
        if !std::mem::replace(&mut self.withdrawing, true) {
            let gathers = |task: &Task| matches!(task.phase, Phase::Gathering(_));
            let tags: Vec<u32> = self.tasks.iter().filter(|(_, task)| gathers(task)).map(|(tag, _)| *tag).collect();
            tags.into_iter().for_each(|tag| self.abandon(shared, tag, None));
        }
        if !self.tasks.is_empty() {
            return;
        }
        let mut header = Header::new(opcode::ASYNC, 0x80);
        header.set_tag(NO_TAG);
        self.stamp(shared, &mut header, true);
        // The target drops all connections of this session.
        header.put(36, &[3]);
        self.out.push(header, &[]);
        self.close(shared);
    }
}
