//! Opens and locks of clients: what a stateid stands for.
//!
//! An open is a reservation in the table of locks ([`crate::locks`]), and its byte ranges are locks
//! there. All protocols therefore see them. This module keeps what only this protocol has: the
//! numbers of states and their sequences.

use bytes::Bytes;

use super::clients::{Client, Clients, ClosedFile, Table, lock_client};
use super::stateid::Stateid;
use super::{Failure, Outcome, STATES_MAX, status};
use crate::locks::{LockError, LockOwner, LockRange, LockedFile, Reservation, Uses};
use crate::nfs::server::Grace;

/// The bits of `share_access` and `share_deny`.
pub const READ: u32 = 1;
pub const WRITE: u32 = 2;
pub const BOTH: u32 = READ | WRITE;

/// A file that an open owner has open.
pub struct Open {
    pub file: LockedFile,
    pub owner: Bytes,
    pub access: u32,
    pub deny: u32,
    sequence: u32,
}

impl Open {
    pub fn ended(&self) -> ClosedFile {
        ClosedFile { file: self.file, writes: self.access & WRITE != 0 }
    }
}

/// The locks of a lock owner on a file.
pub struct LockState {
    pub file: LockedFile,
    owner: Bytes,
    /// The open that the locks were made with; they end with it.
    open: u32,
    sequence: u32,
}

/// A file that was opened.
pub struct Opened {
    pub stateid: Stateid,
    /// The use that the caller must take back from the share: one is counted for each open, the
    /// strongest one.
    pub extra: Option<ClosedFile>,
    /// Access, denials and sequence that the owner had before.
    pub before: Option<(u32, u32, u32)>,
}

/// Which locks a request is about.
pub enum Locker {
    /// The first lock of an owner, with an open.
    New {
        open: Stateid,
        owner: Bytes,
    },
    Known(Stateid),
}

/// A range to lock.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub range: LockRange,
    pub exclusive: bool,
}

fn uses(bits: u32) -> Uses {
    Uses { read: bits & READ != 0, write: bits & WRITE != 0 }
}

/// An owner in the table of locks. Owners of opens and owners of locks are different owners.
fn open_owner(client: u64, owner: &[u8]) -> LockOwner {
    LockOwner { client: lock_client(client), handle: [b"o", owner].concat().into() }
}

pub fn lock_owner(client: u64, owner: &[u8]) -> LockOwner {
    LockOwner { client: lock_client(client), handle: [b"l", owner].concat().into() }
}

/// The client and the lock owner that this protocol named.
pub fn lock_owner_parts(owner: &LockOwner) -> (u64, &[u8]) {
    let client = owner.client.name.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    (client, owner.handle.get(1..).unwrap_or_default())
}

impl Table {
    fn is_full(&self) -> bool {
        self.states >= self.states_max
    }

    fn client(&mut self, number: u64) -> Outcome<&mut Client> {
        self.clients.get_mut(&number).ok_or(Failure::Status(status::DEADSESSION))
    }
}

impl Client {
    pub(super) fn states(&self) -> usize {
        self.opens.len() + self.locks.len()
    }

    /// `full`: the server has no room for one more state.
    fn number(&mut self, full: bool) -> Outcome<u32> {
        if full || self.states() >= STATES_MAX {
            return Err(Failure::Status(status::NOSPC));
        }
        loop {
            self.next_state = self.next_state.wrapping_add(1);
            if !self.opens.contains_key(&self.next_state) && !self.locks.contains_key(&self.next_state) {
                return Ok(self.next_state);
            }
        }
    }

    fn open_mut(&mut self, client: u64, stateid: Stateid, file: LockedFile) -> Outcome<(u32, &mut Open)> {
        let (owner, number) = stateid.parts();
        let open = self.opens.get_mut(&number).filter(|open| owner == client && open.file == file);
        let open = open.ok_or(Failure::Status(status::BAD_STATEID))?;
        in_order(stateid, open.sequence)?;
        Ok((number, open))
    }

    fn lock_mut(&mut self, client: u64, stateid: Stateid, file: LockedFile) -> Outcome<(u32, &mut LockState)> {
        let (owner, number) = stateid.parts();
        let lock = self.locks.get_mut(&number).filter(|lock| owner == client && lock.file == file);
        let lock = lock.ok_or(Failure::Status(status::BAD_STATEID))?;
        in_order(stateid, lock.sequence)?;
        Ok((number, lock))
    }
}

/// A sequence of 0 stands for the latest.
fn in_order(stateid: Stateid, sequence: u32) -> Outcome {
    match stateid.sequence {
        0 => Ok(()),
        given if given == sequence => Ok(()),
        given if given < sequence => Err(Failure::Status(status::OLD_STATEID)),
        _ => Err(Failure::Status(status::BAD_STATEID)),
    }
}

/// The next sequence; 0 has another meaning and is left out.
fn next(sequence: u32) -> u32 {
    sequence.wrapping_add(1).max(1)
}

impl Clients {
    /// Whether the client may open and lock now: only claims during grace, and after
    /// RECLAIM_COMPLETE only those of a share that opened late.
    pub fn may_claim(&self, client: u64, reclaim: bool, grace: Grace) -> Outcome {
        let reclaimed = self.table().client(client)?.reclaimed;
        match (reclaim, grace, reclaimed) {
            (true, Grace::Start, false) | (true, Grace::Late, _) => Ok(()),
            (true, _, _) => Err(Failure::Status(status::NO_GRACE)),
            (false, Grace::Over, true) => Ok(()),
            (false, _, _) => Err(Failure::Status(status::GRACE)),
        }
    }

    /// Opens a file, or adds to what its owner has open. The caller has told the share of a use
    /// with this access; the answer has the use that it must take back.
    pub fn open(&self, client: u64, file: LockedFile, owner: &Bytes, access: u32, deny: u32) -> Outcome<Opened> {
        let mut table = self.table();
        let full = table.is_full();
        let known = table.client(client)?;
        let key = (file, owner.clone());
        let number = known.open_of.get(&key).copied();
        let before =
            number.and_then(|number| known.opens.get(&number)).map(|open| (open.access, open.deny, open.sequence));
        let (had, denied, _) = before.unwrap_or_default();
        let number = match number {
            Some(number) => number,
            None => known.number(full)?,
        };
        let reservation =
            Reservation { owner: open_owner(client, owner), access: uses(had | access), deny: uses(denied | deny) };
        self.locks.reserve(file, reservation).map_err(|error| match error {
            LockError::Full => status::NOSPC,
            LockError::Held(_) | LockError::Reserved => status::SHARE_DENIED,
        })?;
        let fresh = Open { file, owner: owner.clone(), access: 0, deny: 0, sequence: 0 };
        let open = known.opens.entry(number).or_insert(fresh);
        open.access = had | access;
        open.deny = denied | deny;
        open.sequence = next(open.sequence);
        let stateid = Stateid::new(client, number, open.sequence);
        known.open_of.insert(key, number);
        table.states += usize::from(before.is_none());
        let extra = before.map(|(had, ..)| ClosedFile { file, writes: had & access & WRITE != 0 });
        Ok(Opened { stateid, extra, before })
    }

    /// Takes back an open whose client learns of no success: `before` is what [`Clients::open`]
    /// found. Answers whether it did. Another call of the client may have changed or ended the open
    /// meanwhile: then there is nothing to take back.
    pub fn undo_open(&self, client: u64, file: LockedFile, stateid: Stateid, before: Option<(u32, u32, u32)>) -> bool {
        let Some((access, deny, sequence)) = before else { return self.close(client, file, stateid).is_ok() };
        let mut table = self.table();
        let Ok(known) = table.client(client) else { return false };
        let Ok((_, open)) = known.open_mut(client, stateid, file) else { return false };
        let owner = open_owner(client, &open.owner);
        // Less than it has is never in the way of others.
        let _ = self.locks.reserve(file, Reservation { owner, access: uses(access), deny: uses(deny) });
        (open.access, open.deny, open.sequence) = (access, deny, sequence);
        true
    }

    /// OPEN_DOWNGRADE. `Some`: the open writes no more, and the share is to be told.
    pub fn downgrade(
        &self,
        client: u64,
        file: LockedFile,
        stateid: Stateid,
        access: u32,
        deny: u32,
    ) -> Outcome<(Stateid, bool)> {
        let mut table = self.table();
        let known = table.client(client)?;
        let (number, open) = known.open_mut(client, stateid, file)?;
        if access & !open.access != 0 || deny & !open.deny != 0 {
            return Err(Failure::Status(status::INVAL));
        }
        let owner = open_owner(client, &open.owner);
        let reservation = Reservation { owner, access: uses(access), deny: uses(deny) };
        self.locks.reserve(file, reservation).map_err(|_| status::SERVERFAULT)?;
        let stops_writing = open.access & WRITE != 0 && access & WRITE == 0;
        (open.access, open.deny) = (access, deny);
        open.sequence = next(open.sequence);
        Ok((Stateid::new(client, number, open.sequence), stops_writing))
    }

    /// CLOSE: its locks end too.
    pub fn close(&self, client: u64, file: LockedFile, stateid: Stateid) -> Outcome<ClosedFile> {
        let mut table = self.table();
        let known = table.client(client)?;
        let states = known.states();
        let (number, open) = known.open_mut(client, stateid, file)?;
        let (ended, owner) = (open.ended(), open.owner.clone());
        known.opens.remove(&number);
        known.open_of.remove(&(file, owner.clone()));
        let with_it = |lock: &LockState| lock.open == number;
        for lock in known.locks.values().filter(|lock| with_it(lock)) {
            // Unlocking everything leaves no part that would need room.
            let _ = self.locks.unlock(file, &lock_owner(client, &lock.owner), LockRange::ALL);
            known.lock_of.remove(&(file, lock.owner.clone()));
        }
        known.locks.retain(|_, lock| !with_it(lock));
        let gone = states - known.states();
        table.states -= gone;
        self.locks.unreserve(file, &open_owner(client, &owner));
        Ok(ended)
    }

    /// Whether content may be read or written under this state. A read with an open for writing is
    /// allowed: a client that caches pages reads what surrounds its write.
    pub fn check_use(&self, client: u64, file: LockedFile, stateid: Stateid, writes: bool) -> Outcome {
        if stateid == Stateid::ANONYMOUS || stateid == Stateid::BYPASS {
            let passes = !writes && stateid == Stateid::BYPASS;
            let denied = !passes && self.locks.denies(file, Uses { read: !writes, write: writes });
            return if denied { Err(Failure::Status(status::LOCKED)) } else { Ok(()) };
        }
        let mut table = self.table();
        let known = table.client(client)?;
        let open = match known.lock_mut(client, stateid, file) {
            Ok((_, lock)) => lock.open,
            Err(Failure::Status(status::BAD_STATEID)) => known.open_mut(client, stateid, file)?.0,
            Err(other) => return Err(other),
        };
        let open = known.opens.get(&open).ok_or(Failure::Status(status::BAD_STATEID))?;
        match !writes || open.access & WRITE != 0 {
            true => Ok(()),
            false => Err(Failure::Status(status::OPENMODE)),
        }
    }

    pub fn lock(&self, client: u64, file: LockedFile, locker: Locker, wanted: Range) -> Outcome<Stateid> {
        let mut table = self.table();
        let full = table.is_full();
        let known = table.client(client)?;
        let (open, owner, state) = match locker {
            Locker::New { open, owner } => {
                let (open, _) = known.open_mut(client, open, file)?;
                let state = known.lock_of.get(&(file, owner.clone())).copied();
                (open, owner, state)
            }
            Locker::Known(stateid) => {
                let (number, lock) = known.lock_mut(client, stateid, file)?;
                (lock.open, lock.owner.clone(), Some(number))
            }
        };
        let access = known.opens.get(&open).map_or(0, |open| open.access);
        if access & (if wanted.exclusive { WRITE } else { READ }) == 0 {
            return Err(Failure::Status(status::OPENMODE));
        }
        let number = match state {
            Some(number) => number,
            None => known.number(full)?,
        };
        self.locks.lock(file, &lock_owner(client, &owner), wanted.range, wanted.exclusive).map_err(
            |error| match error {
                LockError::Held(held) => Failure::Denied(held),
                LockError::Full | LockError::Reserved => Failure::Status(status::NOSPC),
            },
        )?;
        known.lock_of.insert((file, owner.clone()), number);
        let lock = known.locks.entry(number).or_insert(LockState { file, owner, open, sequence: 0 });
        lock.sequence = next(lock.sequence);
        let stateid = Stateid::new(client, number, lock.sequence);
        table.states += usize::from(state.is_none());
        Ok(stateid)
    }

    pub fn unlock(&self, client: u64, file: LockedFile, stateid: Stateid, range: LockRange) -> Outcome<Stateid> {
        let mut table = self.table();
        let known = table.client(client)?;
        let (number, lock) = known.lock_mut(client, stateid, file)?;
        let owner = lock_owner(client, &lock.owner);
        self.locks.unlock(file, &owner, range).map_err(|_| status::NOSPC)?;
        lock.sequence = next(lock.sequence);
        Ok(Stateid::new(client, number, lock.sequence))
    }

    /// FREE_STATEID: of a lock owner that holds no lock.
    pub fn free(&self, client: u64, stateid: Stateid) -> Outcome {
        let mut table = self.table();
        let known = table.client(client)?;
        let (owner, number) = stateid.parts();
        let bad = Failure::Status(status::BAD_STATEID);
        if owner != client || stateid.is_special() {
            return Err(bad);
        }
        if let Some(open) = known.opens.get(&number) {
            in_order(stateid, open.sequence)?;
            return Err(Failure::Status(status::LOCKS_HELD));
        }
        let Some(lock) = known.locks.get(&number) else { return Err(bad) };
        in_order(stateid, lock.sequence)?;
        let holder = lock_owner(client, &lock.owner);
        if self.locks.held(lock.file).iter().any(|held| held.owner == holder) {
            return Err(Failure::Status(status::LOCKS_HELD));
        }
        let key = (lock.file, lock.owner.clone());
        known.lock_of.remove(&key);
        known.locks.remove(&number);
        table.states -= 1;
        Ok(())
    }

    /// TEST_STATEID: the status of one state.
    pub fn test(&self, client: u64, stateid: Stateid) -> u32 {
        let mut table = self.table();
        let Ok(known) = table.client(client) else { return status::BAD_STATEID };
        let (owner, number) = stateid.parts();
        let open = known.opens.get(&number).map(|open| open.sequence);
        let sequence = open.or_else(|| known.locks.get(&number).map(|lock| lock.sequence));
        match sequence.filter(|_| owner == client && !stateid.is_special()) {
            None => status::BAD_STATEID,
            Some(sequence) => match in_order(stateid, sequence) {
                Err(Failure::Status(status)) => status,
                _ => status::OK,
            },
        }
    }
}
