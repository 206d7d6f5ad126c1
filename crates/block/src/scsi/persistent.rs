//! PERSISTENT RESERVE IN and OUT (SPC-5 5.14): registrations by key, and a reservation held by one
//! registrant or by all. Not supported: SPEC_I_PT (an initiator registers itself, or moves its
//! registration).
//!
//! A change takes effect when it is kept. If it cannot be kept, the command fails and nothing has
//! changed. Changes are made one at a time ([`CHANGES`]), so that each is made to the state that
//! the one before it has left.

use stele_media::MediaError;

use super::command::Blocks;
use super::exec::{Ask, Exec, ExecStep, Stage, sense_of};
use super::field::{Page, be16, be32, be64, octet, part};
use super::registrations::{Holder, REGISTRANTS_MAX, Registration, Registrations};
use super::{Port, Reply, Sense, Status, Unit};

/// The types: write exclusive, exclusive access, and both for registrants only and for all
/// registrants.
const KINDS: [u8; 6] = [1, 3, 5, 6, 7, 8];

/// The lane of PERSISTENT RESERVE OUT, beyond the blocks of every medium.
pub const CHANGES: Blocks = Blocks { at: u64::MAX - 1, count: 1 };

#[derive(Clone, Default, Debug)]
pub struct Reservations {
    now: Registrations,
}

/// A change that is being kept.
pub struct Change {
    next: Reservations,
    outcome: Outcome,
}

/// The effects of a PERSISTENT RESERVE OUT that concern other nexuses.
#[derive(Default)]
struct Outcome {
    told: Vec<(Port, Sense)>,
    aborted: Vec<Port>,
}

enum Refusal {
    Conflict,
    Sense(Sense),
}

impl From<Sense> for Refusal {
    fn from(sense: Sense) -> Refusal {
        Refusal::Sense(sense)
    }
}

/// The fields of a request.
struct Asked {
    port: Port,
    key: u64,
    new_key: u64,
    kind: u8,
    persists: bool,
}

impl Reservations {
    /// Decodes kept reservations; unreadable ones are not guessed.
    pub fn restore(kept: &[u8]) -> Option<Reservations> {
        Some(Reservations { now: Registrations::decode(kept)? })
    }

    /// The version of reservations that a later version of Stele kept, if they are whole.
    pub fn later(kept: &[u8]) -> Option<char> {
        Registrations::later(kept)
    }

    pub fn has_registrants(&self) -> bool {
        !self.now.list.is_empty()
    }

    pub fn registrations(&self) -> usize {
        self.now.list.len()
    }

    /// The type of the reservation, with its holder unless all registrants hold it.
    pub fn held(&self) -> Option<(u8, Option<&Port>)> {
        let holder = self.now.holder.as_ref()?;
        Some((holder.kind, (!self.now.held_by_all()).then_some(&holder.port)))
    }

    /// Whether the reservation refuses this port a command that reads or writes.
    pub fn denies(&self, port: Option<&Port>, writes: bool) -> bool {
        let Some(holder) = &self.now.holder else { return false };
        let Some(port) = port else { return true };
        if self.now.is_holder(port) || (holder.kind >= 5 && self.now.key_of(port).is_some()) {
            return false;
        }
        // The odd types of the first two pairs and of the third are write exclusive: they let
        // others read.
        let write_exclusive = matches!(holder.kind, 1 | 5 | 7);
        writes || !write_exclusive
    }

    pub fn report(&self, action: u8) -> Vec<u8> {
        let now = &self.now;
        let mut page = Page::default();
        match action {
            0 => {
                page = page.u32(now.generation).u32(0);
                for one in &now.list {
                    page = page.u64(one.key);
                }
                page.length32(4).0
            }
            1 => {
                page = page.u32(now.generation).u32(0);
                if let Some(holder) = &now.holder {
                    let key = if now.held_by_all() { 0 } else { now.key_of(&holder.port).unwrap_or(0) };
                    page = page.u64(key).u32(0).u8(0).u8(holder.kind).u16(0);
                }
                page.length32(4).0
            }
            2 => {
                // ATP_C, PTPL_C; the type mask is valid; ALLOW COMMANDS 3; PTPL_A.
                let persists = u8::from(now.persists);
                page.u16(8).u8(0x05).u8(0x80 | 0x30 | persists).u16(0xea01).u16(0).0
            }
            _ => {
                page = page.u32(now.generation).u32(0);
                for one in &now.list {
                    let holds = now.is_holder(&one.port);
                    let kind = if holds { now.holder.as_ref().map_or(0, |holder| holder.kind) } else { 0 };
                    let name = transport_id(&one.port.initiator);
                    page = page.u64(one.key).u32(0).u8(u8::from(holds)).u8(kind).u32(0).u16(one.port.target);
                    page = page.u32(name.len() as u32).bytes(&name);
                }
                page.length32(4).0
            }
        }
    }

    fn register(&mut self, asked: &Asked, ignoring: bool) -> Result<Outcome, Refusal> {
        let mut outcome = Outcome::default();
        let known = self.now.key_of(&asked.port);
        if !ignoring && known.unwrap_or(0) != asked.key {
            return Err(Refusal::Conflict);
        }
        match (known, asked.new_key) {
            (None, 0) => {}
            (Some(_), 0) => self.unregister(&asked.port, &mut outcome),
            (Some(_), key) => {
                for one in self.now.list.iter_mut().filter(|one| one.port == asked.port) {
                    one.key = key;
                }
            }
            (None, key) => {
                if self.now.list.len() >= REGISTRANTS_MAX {
                    return Err(Sense::NO_ROOM_TO_REGISTER.into());
                }
                self.now.list.push(Registration { port: asked.port.clone(), key });
            }
        }
        self.now.persists = asked.persists;
        self.now.generation = self.now.generation.wrapping_add(1);
        Ok(outcome)
    }

    fn unregister(&mut self, port: &Port, outcome: &mut Outcome) {
        let held = self.now.is_holder(port);
        self.now.list.retain(|one| one.port != *port);
        if !held {
            return;
        }
        if self.now.held_by_all() && !self.now.list.is_empty() {
            // The others keep the reservation; its record must name one of them.
            if let (Some(holder), Some(first)) = (&mut self.now.holder, self.now.list.first()) {
                holder.port = first.port.clone();
            }
            return;
        }
        let kind = self.now.holder.take().map_or(0, |holder| holder.kind);
        if matches!(kind, 5 | 6) {
            outcome.told.extend(self.now.list.iter().map(|one| (one.port.clone(), Sense::RESERVATIONS_RELEASED)));
        }
    }

    fn reserve(&mut self, asked: &Asked) -> Result<Outcome, Refusal> {
        match &self.now.holder {
            Some(holder) if self.now.is_holder(&asked.port) && holder.kind == asked.kind => {}
            Some(_) => return Err(Refusal::Conflict),
            None => self.now.holder = Some(Holder { port: asked.port.clone(), kind: asked.kind }),
        }
        Ok(Outcome::default())
    }

    fn release(&mut self, asked: &Asked) -> Result<Outcome, Refusal> {
        let mut outcome = Outcome::default();
        if !self.now.is_holder(&asked.port) {
            return Ok(outcome);
        }
        let kind = self.now.holder.as_ref().map_or(0, |holder| holder.kind);
        if kind != asked.kind {
            return Err(Sense::INVALID_RELEASE.into());
        }
        self.now.holder = None;
        if kind >= 5 {
            let others = self.now.list.iter().filter(|one| one.port != asked.port);
            outcome.told.extend(others.map(|one| (one.port.clone(), Sense::RESERVATIONS_RELEASED)));
        }
        Ok(outcome)
    }

    fn clear(&mut self, asked: &Asked) -> Outcome {
        let mut outcome = Outcome::default();
        let others = self.now.list.iter().filter(|one| one.port != asked.port);
        outcome.told.extend(others.map(|one| (one.port.clone(), Sense::RESERVATIONS_PREEMPTED)));
        self.now.list.clear();
        self.now.holder = None;
        self.now.generation = self.now.generation.wrapping_add(1);
        outcome
    }

    fn preempt(&mut self, asked: &Asked, aborts: bool) -> Result<Outcome, Refusal> {
        let mut outcome = Outcome::default();
        let holder = self.now.holder.clone();
        let all = self.now.held_by_all();
        let victim = asked.new_key;
        let holder_key = holder.as_ref().and_then(|holder| self.now.key_of(&holder.port));
        // The reservation falls when its holder's key is named, or, if all hold it, when no key is
        // named.
        let takes = match &holder {
            None => false,
            Some(_) if all => victim == 0,
            Some(_) => holder_key == Some(victim),
        };
        if victim == 0 && !takes {
            return Err(Sense::in_list(8).into());
        }
        let falls = |one: &Registration| one.port != asked.port && (one.key == victim || (takes && all));
        let fallen: Vec<Port> = self.now.list.iter().filter(|one| falls(one)).map(|one| one.port.clone()).collect();
        let named = self.now.list.iter().any(|one| one.key == victim);
        if !named && !takes {
            return Err(Refusal::Conflict);
        }
        self.now.list.retain(|one| !fallen.contains(&one.port));
        for port in &fallen {
            outcome.told.push((port.clone(), Sense::REGISTRATIONS_PREEMPTED));
        }
        if takes {
            let changed = holder.as_ref().is_some_and(|holder| holder.kind != asked.kind);
            self.now.holder = Some(Holder { port: asked.port.clone(), kind: asked.kind });
            if changed {
                let rest = self.now.list.iter().filter(|one| one.port != asked.port);
                outcome.told.extend(rest.map(|one| (one.port.clone(), Sense::RESERVATIONS_RELEASED)));
            }
        } else if all && let (Some(holder), Some(first)) = (&mut self.now.holder, self.now.list.first()) {
            holder.port = first.port.clone();
        }
        if aborts {
            outcome.aborted = fallen;
        }
        self.now.generation = self.now.generation.wrapping_add(1);
        Ok(outcome)
    }

    fn register_and_move(&mut self, asked: &Asked, list: &[u8]) -> Result<Outcome, Refusal> {
        let mut outcome = Outcome::default();
        if !self.now.is_holder(&asked.port) || self.now.held_by_all() {
            return Err(if self.now.holder.is_none() || self.now.is_holder(&asked.port) {
                Refusal::Sense(Sense::in_list(0))
            } else {
                Refusal::Conflict
            });
        }
        let length = be32(list, 20) as usize;
        if asked.new_key == 0 || list.len() < 24 + length {
            return Err(Sense::in_list(8).into());
        }
        let name = named_port(part(list, 24, length)).ok_or(Sense::in_list(24))?;
        let port = Port { initiator: name, target: be16(list, 18) };
        if port == asked.port || port.target != asked.port.target {
            return Err(Sense::in_list(24).into());
        }
        let full = self.now.list.len() >= REGISTRANTS_MAX;
        match self.now.list.iter_mut().find(|one| one.port == port) {
            Some(one) => one.key = asked.new_key,
            None if full => return Err(Sense::NO_ROOM_TO_REGISTER.into()),
            None => self.now.list.push(Registration { port: port.clone(), key: asked.new_key }),
        }
        if let Some(holder) = &mut self.now.holder {
            holder.port = port;
        }
        if octet(list, 17) & 0x02 != 0 {
            self.unregister(&asked.port, &mut outcome);
        }
        self.now.persists = asked.persists;
        self.now.generation = self.now.generation.wrapping_add(1);
        Ok(outcome)
    }
}

impl Unit {
    pub(super) fn persistent_out(&mut self, exec: &mut Exec, action: u8, scope: u8, kind: u8, length: u32) -> ExecStep {
        match self.persistent(exec, action, scope, kind, length) {
            Ok(None) => ExecStep::good(),
            Ok(Some(change)) => {
                let kept = change.next.now.persists.then(|| change.next.now.encode());
                exec.stage = Stage::Keeping(Box::new(change));
                self.keeping = true;
                ExecStep::Ask(Ask::Keep(self.id, kept))
            }
            Err(Refusal::Conflict) => ExecStep::Done(Reply::status(Status::ReservationConflict)),
            Err(Refusal::Sense(sense)) => ExecStep::done(sense),
        }
    }

    /// The reservations were kept, or could not be.
    pub(super) fn reservations_kept(&mut self, stage: Stage, result: Result<(), MediaError>) -> ExecStep {
        self.keeping = false;
        match (stage, result) {
            (Stage::Keeping(change), Ok(())) => {
                let Change { next, outcome } = *change;
                self.reservations = next;
                self.announce(outcome);
                ExecStep::good()
            }
            (_, Ok(())) => ExecStep::good(),
            (_, Err(error)) => ExecStep::done(sense_of(&error, true)),
        }
    }

    fn announce(&mut self, outcome: Outcome) {
        let nexuses: Vec<_> = self.nexuses.iter().map(|(nexus, port)| (*nexus, port.clone())).collect();
        for (nexus, port) in nexuses {
            for (_, sense) in outcome.told.iter().filter(|(told, _)| *told == port) {
                self.attentions.raise(nexus, *sense);
            }
        }
        self.aborting.extend(outcome.aborted);
    }

    /// The change that the command asks for; `None`: nothing is to change.
    fn persistent(&self, exec: &Exec, action: u8, scope: u8, kind: u8, length: u32) -> Result<Option<Change>, Refusal> {
        let list = exec.whole();
        let moves = action == 7;
        if list.len() < 24 || (!moves && length != 24 && octet(&list, 20) & 0x08 == 0) {
            return Err(Sense::LIST_LENGTH.into());
        }
        // For SPEC_I_PT; ALL_TG_PT adds nothing, since there is only one port.
        if !moves && octet(&list, 20) & 0x08 != 0 {
            return Err(Sense::in_list(20).into());
        }
        let reserves = matches!(action, 1 | 2 | 4 | 5);
        if reserves && (scope != 0 || (!KINDS.contains(&kind) && action != 2)) {
            return Err(Sense::in_cdb(2).into());
        }
        let Some(port) = self.nexuses.get(&exec.nexus).cloned() else { return Err(Refusal::Conflict) };
        let flags = octet(&list, if moves { 17 } else { 20 });
        let asked = Asked { port, key: be64(&list, 0), new_key: be64(&list, 8), kind, persists: flags & 1 != 0 };
        if !matches!(action, 0 | 6) && self.reservations.now.key_of(&asked.port) != Some(asked.key) {
            return Err(Refusal::Conflict);
        }
        // Who is not registered, and registers no key, changes nothing: not even whether
        // reservations persist.
        let registers_nothing = matches!(action, 0 | 6) && asked.new_key == 0;
        if registers_nothing && self.reservations.now.key_of(&asked.port).is_none() {
            return if action == 6 || asked.key == 0 { Ok(None) } else { Err(Refusal::Conflict) };
        }
        let mut next = self.reservations.clone();
        let outcome = match action {
            0 => next.register(&asked, false),
            1 => next.reserve(&asked),
            2 => next.release(&asked),
            3 => Ok(next.clear(&asked)),
            4 => next.preempt(&asked, false),
            5 => next.preempt(&asked, true),
            6 => next.register(&asked, true),
            _ => next.register_and_move(&asked, &list),
        }?;
        Ok(Some(Change { next, outcome }))
    }
}

/// An iSCSI TransportID with the initiator's name and session: format 1.
fn transport_id(initiator: &str) -> Vec<u8> {
    let mut name = initiator.as_bytes().to_vec();
    name.push(0);
    name.resize(name.len().next_multiple_of(4).max(20), 0);
    Page::default().u8(0x45).u8(0).u16(name.len() as u16).bytes(&name).0
}

fn named_port(id: &[u8]) -> Option<String> {
    if octet(id, 0) != 0x45 {
        return None;
    }
    let name = part(id, 4, usize::from(be16(id, 2)));
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = std::str::from_utf8(name).ok()?;
    text.contains(",i,0x").then(|| text.to_owned())
}
