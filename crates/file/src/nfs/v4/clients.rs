//! The clients of version 4.1: who they are, and the table of all that the server remembers of
//! them.
//!
//! One mutex guards the table. A change takes the time as a value and never waits. An open also
//! counts at the share ([`crate::Files::opened`]), which is an asynchronous call. So a change that
//! ends opens answers them as [`ClosedFile`] values, and the caller tells the share.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::opens::{LockState, Open};
use super::sessions::{CreateAnswer, Session, SessionId};
use super::{CLIENTS_MAX, CLIENTS_PER_ADDRESS, LEASE, STATES_TOTAL, status};
use crate::locks::{LockClient, LockProtocol, LockedFile, Locks};
use crate::nfs::rpc::Credentials;

/// Between two looks for clients whose lease has ended.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The user that a client's record belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Principal {
    Anonymous,
    User(u32),
}

impl From<&Credentials> for Principal {
    fn from(credentials: &Credentials) -> Principal {
        match credentials {
            Credentials::Sys { uid, .. } => Principal::User(*uid),
            Credentials::None | Credentials::Tls => Principal::Anonymous,
        }
    }
}

/// A use of a file that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClosedFile {
    pub file: LockedFile,
    pub writes: bool,
}

/// What EXCHANGE_ID answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exchanged {
    pub client: u64,
    /// The number that CREATE_SESSION must have next.
    pub sequence: u32,
    pub confirmed: bool,
}

pub(super) struct Client {
    pub owner: Bytes,
    /// Where its record was made.
    pub address: IpAddr,
    pub verifier: [u8; 8],
    pub principal: Principal,
    pub confirmed: bool,
    pub renewed: Instant,
    /// Compounds under way: the lease does not end meanwhile.
    pub busy: usize,
    /// The last CREATE_SESSION, and its answer.
    pub create_sequence: u32,
    pub created: Option<CreateAnswer>,
    pub sessions: Vec<SessionId>,
    /// RECLAIM_COMPLETE came.
    pub reclaimed: bool,
    pub next_state: u32,
    pub opens: BTreeMap<u32, Open>,
    pub open_of: BTreeMap<(LockedFile, Bytes), u32>,
    pub locks: BTreeMap<u32, LockState>,
    pub lock_of: BTreeMap<(LockedFile, Bytes), u32>,
}

impl Client {
    fn has_state(&self) -> bool {
        !self.opens.is_empty() || !self.locks.is_empty()
    }
}

/// The records of one owner: at most one of each kind.
#[derive(Default)]
struct Records {
    confirmed: Option<u64>,
    unconfirmed: Option<u64>,
}

pub(super) struct Table {
    pub clients: BTreeMap<u64, Client>,
    owners: BTreeMap<Bytes, Records>,
    pub sessions: HashMap<SessionId, Session>,
    pub next_session: u64,
    /// Bytes that the slots of all sessions may keep.
    pub kept: usize,
    pub kept_of: HashMap<IpAddr, usize>,
    /// Opens and lock owners of all clients, and their bound.
    pub states: usize,
    pub states_max: usize,
    next_client: u64,
    next_look: Instant,
}

/// The table of clients.
pub struct Clients {
    table: Mutex<Table>,
    pub(super) locks: Arc<Locks>,
    pub(super) secret: [u8; 32],
    instance: u32,
}

/// The name of a client in the table of locks.
pub fn lock_client(client: u64) -> LockClient {
    LockClient { protocol: LockProtocol::Nfs4, name: Bytes::copy_from_slice(&client.to_be_bytes()) }
}

impl Clients {
    /// `instance` differs from that of every earlier start, so that no number of a client comes
    /// again.
    pub fn new(secret: [u8; 32], instance: u32, locks: Arc<Locks>) -> Clients {
        let table = Table {
            clients: BTreeMap::new(),
            owners: BTreeMap::new(),
            sessions: HashMap::new(),
            next_session: 0,
            kept: 0,
            kept_of: HashMap::new(),
            states: 0,
            states_max: STATES_TOTAL,
            next_client: 0,
            next_look: Instant::now(),
        };
        Clients { table: Mutex::new(table), locks, secret, instance }
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Clients with a confirmed record.
    pub fn count(&self) -> usize {
        self.table().clients.values().filter(|client| client.confirmed).count()
    }

    /// Opens of all clients.
    pub fn opens(&self) -> usize {
        self.table().clients.values().map(|client| client.opens.len()).sum()
    }

    /// Sessions of all clients.
    pub fn sessions(&self) -> usize {
        self.table().sessions.len()
    }

    /// EXCHANGE_ID: the cases of RFC 8881, section 18.35.5. `update` is
    /// EXCHGID4_FLAG_UPD_CONFIRMED_REC_A.
    pub fn exchange_id(
        &self,
        owner: Bytes,
        verifier: [u8; 8],
        (principal, address): (Principal, IpAddr),
        update: bool,
        now: Instant,
    ) -> (Result<Exchanged, u32>, Vec<ClosedFile>) {
        let mut table = self.table();
        let records = table.owners.get(&owner);
        let confirmed = records.and_then(|records| records.confirmed);
        let unconfirmed = records.and_then(|records| records.unconfirmed);
        let known = confirmed.and_then(|number| Some((number, table.clients.get_mut(&number)?)));
        if update {
            return match known {
                None => (Err(status::NOENT), Vec::new()),
                Some((_, client)) if client.verifier != verifier => (Err(status::NOT_SAME), Vec::new()),
                Some((_, client)) if client.principal != principal => (Err(status::PERM), Vec::new()),
                Some((number, client)) => (Ok(exchanged(number, client)), Vec::new()),
            };
        }
        let mut ended = Vec::new();
        match known {
            Some((number, client)) if client.principal == principal && client.verifier == verifier => {
                return (Ok(exchanged(number, client)), ended);
            }
            // Another user claims the owner: it gets it only from a client that holds nothing.
            Some((number, client)) if client.principal != principal => {
                if client.has_state() && now.duration_since(client.renewed) < LEASE {
                    return (Err(status::CLID_INUSE), ended);
                }
                ended = self.forget(&mut table, &[number]);
            }
            // The client has begun anew: CREATE_SESSION ends what it had.
            Some(_) | None => {}
        }
        if let Some(number) = unconfirmed {
            ended.extend(self.forget(&mut table, &[number]));
        }
        let address = address.to_canonical();
        match self.make_room(&mut table, address) {
            Ok(more) => ended.extend(more),
            Err(status) => return (Err(status), ended),
        }
        let number = self.number(&mut table);
        let client = Client {
            owner: owner.clone(),
            address,
            verifier,
            principal,
            confirmed: false,
            renewed: now,
            busy: 0,
            create_sequence: 0,
            created: None,
            sessions: Vec::new(),
            reclaimed: false,
            next_state: 0,
            opens: BTreeMap::new(),
            open_of: BTreeMap::new(),
            locks: BTreeMap::new(),
            lock_of: BTreeMap::new(),
        };
        let answer = exchanged(number, &client);
        table.clients.insert(number, client);
        table.owners.entry(owner).or_default().unconfirmed = Some(number);
        (Ok(answer), ended)
    }

    /// A number that no other machine guesses from its own: to know it is half of taking part in
    /// the client's sessions.
    fn number(&self, table: &mut Table) -> u64 {
        loop {
            table.next_client += 1;
            let digest =
                blake3::keyed_hash(&self.secret, &domain(b"client", u64::from(self.instance), table.next_client));
            let low = digest.as_bytes().first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
            let number = u64::from(self.instance) << 32 | u64::from(low);
            // 0 stands for no client, and the largest for none as well.
            if low != 0 && low != u32::MAX && !table.clients.contains_key(&number) {
                return number;
            }
        }
    }

    /// Room for one more record. A record that was never confirmed holds nothing: the oldest one
    /// goes, and its client asks again.
    fn make_room(&self, table: &mut Table, address: IpAddr) -> Result<Vec<ClosedFile>, u32> {
        let of_address = table.clients.values().filter(|client| client.address == address).count();
        let own = of_address >= CLIENTS_PER_ADDRESS;
        if !own && table.clients.len() < CLIENTS_MAX {
            return Ok(Vec::new());
        }
        let idle = table.clients.iter().filter(|(_, client)| {
            !client.confirmed && client.sessions.is_empty() && (!own || client.address == address)
        });
        let oldest = idle.min_by_key(|(_, client)| client.renewed).map(|(number, _)| *number);
        Ok(self.forget(table, &[oldest.ok_or(status::DELAY)?]))
    }

    /// A first CREATE_SESSION confirms the record, and ends the one that the owner had before.
    pub(super) fn confirm(&self, table: &mut Table, number: u64) -> Vec<ClosedFile> {
        let Some(client) = table.clients.get_mut(&number) else { return Vec::new() };
        client.confirmed = true;
        let owner = client.owner.clone();
        let records = table.owners.entry(owner).or_default();
        records.unconfirmed = None;
        match records.confirmed.replace(number) {
            Some(former) if former != number => self.forget(table, &[former]),
            _ => Vec::new(),
        }
    }

    /// DESTROY_CLIENTID.
    pub fn destroy_client(&self, number: u64, principal: Principal) -> Result<(), u32> {
        let mut table = self.table();
        match table.clients.get(&number) {
            None => Err(status::STALE_CLIENTID),
            Some(client) if client.principal != principal => Err(status::WRONG_CRED),
            Some(client) if client.has_state() || !client.sessions.is_empty() => Err(status::CLIENTID_BUSY),
            Some(_) => {
                self.forget(&mut table, &[number]);
                Ok(())
            }
        }
    }

    /// RECLAIM_COMPLETE for all file systems.
    pub fn reclaim_complete(&self, number: u64) -> Result<(), u32> {
        let mut table = self.table();
        let client = table.clients.get_mut(&number).ok_or(status::DEADSESSION)?;
        match std::mem::replace(&mut client.reclaimed, true) {
            true => Err(status::COMPLETE_ALREADY),
            false => Ok(()),
        }
    }

    /// Ends the clients whose lease has ended; looks once a second at most.
    pub fn expire(&self, now: Instant) -> Vec<ClosedFile> {
        let mut table = self.table();
        if now < table.next_look {
            return Vec::new();
        }
        table.next_look = now + LOOK_EVERY;
        let silent = |client: &Client| client.busy == 0 && now.duration_since(client.renewed) >= LEASE;
        let gone: Vec<u64> =
            table.clients.iter().filter(|(_, client)| silent(client)).map(|(number, _)| *number).collect();
        self.forget(&mut table, &gone)
    }

    /// Forgets the opens of a share that is served no more. Its locks are forgotten by the table of
    /// locks.
    pub fn forget_share(&self, share: u32) {
        let mut table = self.table();
        let mut gone = 0;
        for client in table.clients.values_mut() {
            let before = client.states();
            client.opens.retain(|_, open| open.file.share != share);
            client.open_of.retain(|(file, _), _| file.share != share);
            client.locks.retain(|_, lock| lock.file.share != share);
            client.lock_of.retain(|(file, _), _| file.share != share);
            gone += before - client.states();
        }
        table.states -= gone;
    }

    /// Releases the locks of all of them in one pass over the table of locks.
    fn forget(&self, table: &mut Table, numbers: &[u64]) -> Vec<ClosedFile> {
        let gone: Vec<Client> = numbers.iter().filter_map(|number| table.remove(*number)).collect();
        let holders: BTreeSet<LockClient> = numbers.iter().map(|number| lock_client(*number)).collect();
        self.locks.release_all(&holders);
        gone.iter().flat_map(|client| client.opens.values().map(Open::ended)).collect()
    }
}

impl Table {
    fn remove(&mut self, number: u64) -> Option<Client> {
        let client = self.clients.remove(&number)?;
        for session in &client.sessions {
            self.drop_session(session);
        }
        self.states -= client.states();
        if let Some(records) = self.owners.get_mut(&client.owner) {
            records.confirmed = records.confirmed.filter(|other| *other != number);
            records.unconfirmed = records.unconfirmed.filter(|other| *other != number);
            if records.confirmed.is_none() && records.unconfirmed.is_none() {
                self.owners.remove(&client.owner);
            }
        }
        Some(client)
    }
}

/// What a keyed digest is of: the secret signs handles too, so each use has a word and a length of
/// its own.
pub(super) fn domain(word: &[u8], first: u64, second: u64) -> Vec<u8> {
    [word, &first.to_be_bytes(), &second.to_be_bytes()].concat()
}

fn exchanged(number: u64, client: &Client) -> Exchanged {
    Exchanged { client: number, sequence: client.create_sequence.wrapping_add(1), confirmed: client.confirmed }
}
