//! Sessions: slots that keep the answers to repeated calls, so that a call takes place exactly
//! once.
//!
//! A client numbers the calls of each slot. The next number is a new call; the last number again is
//! a repetition, which gets the kept answer. Bounded: a session reserves its slots times the
//! largest kept answer at its creation, from [`KEPT_TOTAL`] for all sessions, and
//! [`KEPT_PER_ADDRESS`] for those of one address.

use std::net::IpAddr;

use bytes::Bytes;
use tokio::time::Instant;

use super::clients::{Clients, ClosedFile, Principal, Table, domain};
use super::{KEPT_MAX, KEPT_MIN, KEPT_PER_ADDRESS, KEPT_TOTAL, OPERATIONS_MAX, SESSIONS_MAX, SLOTS_MAX, status};
use crate::nfs::record::RECORD_MAX;

pub type SessionId = [u8; 16];

/// Smaller requests and answers hold no operation that does anything.
const RECORD_MIN: u32 = 256;
/// A digest of a call: repeating another call than the last one is refused.
pub type Digest = [u8; 16];

/// `channel_attrs4`, without what only RDMA has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Channel {
    pub request_max: u32,
    pub response_max: u32,
    pub kept_max: u32,
    pub operations_max: u32,
    pub slots: u32,
}

/// What CREATE_SESSION answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreatedSession {
    pub session: SessionId,
    pub sequence: u32,
    pub fore: Channel,
    pub back: Channel,
}

pub type CreateAnswer = Result<CreatedSession, u32>;

/// What CREATE_SESSION asks for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub client: u64,
    pub sequence: u32,
    pub flags_known: bool,
    pub fore: Channel,
    pub back: Channel,
}

#[derive(Default)]
struct Slot {
    /// Of the last call.
    sequence: u32,
    busy: bool,
    digest: Digest,
    answer: Option<Bytes>,
}

pub struct Session {
    pub(super) client: u64,
    channel: Channel,
    slots: Vec<Slot>,
    reserved: usize,
    /// The address that the reserved bytes count for.
    address: IpAddr,
}

/// A call in its slot.
#[derive(Clone, Copy, Debug)]
pub struct SessionCall {
    pub session: SessionId,
    pub slot: u32,
    pub sequence: u32,
    pub client: u64,
    pub channel: Channel,
}

/// What SEQUENCE asks for.
#[derive(Clone, Copy, Debug)]
pub struct Sequence {
    pub session: SessionId,
    pub sequence: u32,
    pub slot: u32,
    pub keep: bool,
    pub operations: u32,
    pub length: usize,
    pub digest: Digest,
}

/// Whether a call came before.
#[derive(Debug)]
pub enum Begun {
    New(SessionCall),
    /// It came, and this was its answer.
    Kept(Bytes),
    /// It came, and its answer was not kept.
    NotKept(SessionCall),
}

impl Table {
    pub(super) fn drop_session(&mut self, session: &SessionId) {
        if let Some(session) = self.sessions.remove(session) {
            self.kept -= session.reserved;
            if let Some(kept) = self.kept_of.get_mut(&session.address) {
                *kept -= session.reserved;
                if *kept == 0 {
                    self.kept_of.remove(&session.address);
                }
            }
        }
    }
}

impl Clients {
    pub fn create_session(
        &self,
        wanted: Wanted,
        principal: Principal,
        now: Instant,
    ) -> (CreateAnswer, Vec<ClosedFile>) {
        let mut table = self.table();
        let Some(client) = table.clients.get_mut(&wanted.client) else {
            return (Err(status::STALE_CLIENTID), Vec::new());
        };
        // Before anything else, since the answer to a repeated call names a session.
        if client.principal != principal {
            return (Err(status::CLID_INUSE), Vec::new());
        }
        if wanted.sequence == client.create_sequence {
            return (client.created.unwrap_or(Err(status::SEQ_MISORDERED)), Vec::new());
        }
        if wanted.sequence != client.create_sequence.wrapping_add(1) {
            return (Err(status::SEQ_MISORDERED), Vec::new());
        }
        client.create_sequence = wanted.sequence;
        client.renewed = now;
        let full = client.sessions.len() >= SESSIONS_MAX;
        let answer = match full {
            true => Err(status::NOSPC),
            false => self.make_session(&mut table, &wanted),
        };
        let ended = if answer.is_ok() { self.confirm(&mut table, wanted.client) } else { Vec::new() };
        if let Some(client) = table.clients.get_mut(&wanted.client) {
            client.created = Some(answer);
            client.sessions.extend(answer.ok().map(|created| created.session));
        }
        (answer, ended)
    }

    fn make_session(&self, table: &mut Table, wanted: &Wanted) -> CreateAnswer {
        if !wanted.flags_known {
            return Err(status::INVAL);
        }
        let Channel { request_max, response_max, kept_max, operations_max, slots } = wanted.fore;
        if request_max < RECORD_MIN || response_max < RECORD_MIN {
            return Err(status::TOOSMALL);
        }
        if slots == 0 || operations_max == 0 {
            return Err(status::INVAL);
        }
        let kept_max = kept_max.min(KEPT_MAX);
        let each = (kept_max as usize).max(KEPT_MIN);
        let Some(address) = table.clients.get(&wanted.client).map(|client| client.address) else {
            return Err(status::STALE_CLIENTID);
        };
        let own = table.kept_of.get(&address).copied().unwrap_or_default();
        let room = (KEPT_TOTAL - table.kept).min(KEPT_PER_ADDRESS - own) / each;
        let slots = slots.min(SLOTS_MAX).min(u32::try_from(room).unwrap_or(SLOTS_MAX));
        if slots == 0 {
            return Err(status::NOSPC);
        }
        let fore = Channel {
            request_max: request_max.min(RECORD_MAX as u32),
            response_max: response_max.min(RECORD_MAX as u32),
            kept_max,
            operations_max: operations_max.min(OPERATIONS_MAX),
            slots,
        };
        // A number that no client guesses: it is all that a call needs to take part in a session.
        table.next_session += 1;
        let digest = blake3::keyed_hash(&self.secret, &domain(b"session", wanted.client, table.next_session));
        let session: SessionId = digest.as_bytes().first_chunk().copied().unwrap_or_default();
        let reserved = slots as usize * each;
        table.kept += reserved;
        *table.kept_of.entry(address).or_default() += reserved;
        let empty = (0..slots).map(|_| Slot::default()).collect();
        table
            .sessions
            .insert(session, Session { client: wanted.client, channel: fore, slots: empty, reserved, address });
        Ok(CreatedSession { session, sequence: wanted.sequence, fore, back: wanted.back })
    }

    /// DESTROY_SESSION. Calls under way finish, and their answers are not kept.
    pub fn destroy_session(&self, session: &SessionId) -> Result<(), u32> {
        let mut table = self.table();
        let client = table.sessions.get(session).ok_or(status::BADSESSION)?.client;
        table.drop_session(session);
        if let Some(client) = table.clients.get_mut(&client) {
            client.sessions.retain(|other| other != session);
        }
        Ok(())
    }

    pub fn has_session(&self, session: &SessionId) -> bool {
        self.table().sessions.contains_key(session)
    }

    /// SEQUENCE. A new call renews the client's lease, and holds its slot until [`Clients::finish`]
    /// or [`Clients::abandon`].
    pub fn begin(&self, wanted: &Sequence, now: Instant) -> Result<Begun, u32> {
        let mut table = self.table();
        let session = table.sessions.get_mut(&wanted.session).ok_or(status::BADSESSION)?;
        let (client, channel) = (session.client, session.channel);
        let slot = session.slots.get_mut(wanted.slot as usize).ok_or(status::BADSLOT)?;
        let place =
            SessionCall { session: wanted.session, slot: wanted.slot, sequence: wanted.sequence, client, channel };
        if wanted.sequence == slot.sequence {
            return match () {
                () if slot.busy => Err(status::DELAY),
                // The slot was never used.
                () if slot.digest == Digest::default() => Err(status::SEQ_MISORDERED),
                () if slot.digest != wanted.digest => Err(status::SEQ_FALSE_RETRY),
                () => Ok(slot.answer.clone().map_or(Begun::NotKept(place), Begun::Kept)),
            };
        }
        if wanted.sequence != slot.sequence.wrapping_add(1) {
            return Err(status::SEQ_MISORDERED);
        }
        if slot.busy {
            return Err(status::DELAY);
        }
        if wanted.operations > channel.operations_max {
            return Err(status::TOO_MANY_OPS);
        }
        if wanted.length > channel.request_max as usize {
            return Err(status::REQ_TOO_BIG);
        }
        *slot = Slot { sequence: wanted.sequence, busy: true, digest: wanted.digest, answer: None };
        if let Some(client) = table.clients.get_mut(&client) {
            client.renewed = now;
            client.busy += 1;
        }
        Ok(Begun::New(place))
    }

    /// The call is done; the answer is kept if there is one.
    pub fn finish(&self, place: &SessionCall, answer: Option<Bytes>, now: Instant) {
        self.leave(place, now, |slot| {
            slot.busy = false;
            slot.answer = answer;
        });
    }

    /// The call had no answer: it may come again as a new one.
    pub fn abandon(&self, place: &SessionCall, now: Instant) {
        self.leave(place, now, |slot| {
            *slot = Slot { sequence: slot.sequence.wrapping_sub(1), ..Slot::default() };
        });
    }

    fn leave(&self, place: &SessionCall, now: Instant, change: impl FnOnce(&mut Slot)) {
        let mut table = self.table();
        let slot =
            table.sessions.get_mut(&place.session).and_then(|session| session.slots.get_mut(place.slot as usize));
        if let Some(slot) = slot.filter(|slot| slot.busy && slot.sequence == place.sequence) {
            change(slot);
        }
        if let Some(client) = table.clients.get_mut(&place.client) {
            client.busy = client.busy.saturating_sub(1);
            client.renewed = now;
        }
    }
}
