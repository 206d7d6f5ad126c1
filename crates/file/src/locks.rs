//! Locks of byte ranges, for all protocols: one table has the owner of each locked range of each
//! file.
//!
//! The rules are those of POSIX. A lock of an owner replaces the owner's locks of the same bytes;
//! unlocking the middle of a lock leaves two. Two owners may share bytes that both only read. The
//! table is in memory: after a restart, clients claim their locks again during the protocol's grace
//! period.
//!
//! Bounded by [`Limits`]. Whatever would exceed a limit is refused, and changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::Inode;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Locks and share reservations in all.
    pub locks_max: usize,
    /// Of one client; of all clients of NLM at one address, since they choose their names.
    pub client_max: usize,
    /// On one file: each call looks at all of them.
    pub file_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { locks_max: 1 << 18, client_max: 1 << 16, file_max: 1 << 12 }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LockedFile {
    pub share: u32,
    pub inode: Inode,
}

/// A protocol whose clients hold locks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LockProtocol {
    Nlm,
    Nfs4,
    Fuse,
}

/// A machine or session that holds locks, and loses all of them at once when it is gone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LockClient {
    pub protocol: LockProtocol,
    /// The protocol's name of it. For NLM the address, a slash, and the name that the client gives
    /// itself.
    pub name: Bytes,
}

impl LockClient {
    /// The clients that share a limit have the same one.
    fn host(&self) -> LockClient {
        let whole = self.name.len();
        let end = match self.protocol {
            LockProtocol::Nlm => self.name.iter().position(|byte| *byte == b'/').unwrap_or(whole),
            LockProtocol::Nfs4 | LockProtocol::Fuse => whole,
        };
        LockClient { protocol: self.protocol, name: self.name.slice(..end) }
    }
}

/// A process of a client, as the protocol names it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LockOwner {
    pub client: LockClient,
    pub handle: Bytes,
}

/// Bytes from the first to the last one, both included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LockRange {
    first: u64,
    last: u64,
}

impl LockRange {
    pub const ALL: LockRange = LockRange { first: 0, last: u64::MAX };

    /// A length of 0 means up to the end of any file. None: the range ends beyond the largest
    /// offset.
    pub fn new(offset: u64, length: u64) -> Option<LockRange> {
        let last = match length {
            0 => u64::MAX,
            length => offset.checked_add(length - 1)?,
        };
        Some(LockRange { first: offset, last })
    }

    pub fn offset(self) -> u64 {
        self.first
    }

    /// 0 means up to the end of any file.
    pub fn length(self) -> u64 {
        (self.last - self.first).wrapping_add(1) * u64::from(self.last != u64::MAX)
    }

    pub fn overlaps(self, other: LockRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Overlapping, or without a byte between them.
    fn touches(self, other: LockRange) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }

    /// What is left of this range without the other: a part before and a part behind.
    fn without(self, other: LockRange) -> impl Iterator<Item = LockRange> {
        let before = (self.first < other.first).then(|| LockRange { first: self.first, last: other.first - 1 });
        let behind = (self.last > other.last).then(|| LockRange { first: other.last + 1, last: self.last });
        before.into_iter().chain(behind)
    }
}

/// A lock that is held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    pub owner: LockOwner,
    pub range: LockRange,
    pub exclusive: bool,
}

/// A reservation of a whole file, as DOS has them: the uses that its owner makes of it, and those
/// that it denies to others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reservation {
    pub owner: LockOwner,
    pub access: Uses,
    pub deny: Uses,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Uses {
    pub read: bool,
    pub write: bool,
}

impl Uses {
    fn meets(self, other: Uses) -> bool {
        self.read && other.read || self.write && other.write
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LockError {
    /// This lock of another owner is in the way.
    Held(Box<Held>),
    /// A reservation of another owner is in the way.
    Reserved,
    /// A limit of the table is reached.
    Full,
}

#[derive(Default)]
struct OnFile {
    held: Vec<Held>,
    reserved: Vec<Reservation>,
}

#[derive(Default)]
struct Table {
    files: BTreeMap<LockedFile, OnFile>,
    /// How many locks and reservations each client has on each of its files.
    clients: BTreeMap<LockClient, BTreeMap<LockedFile, usize>>,
    /// How many the clients have that share a limit, and how many there are in all.
    counts: BTreeMap<LockClient, usize>,
    total: usize,
}

/// The table of locks.
#[derive(Default)]
pub struct Locks {
    limits: Limits,
    table: Mutex<Table>,
    released: Notify,
}

impl Locks {
    pub fn new(limits: Limits) -> Locks {
        Locks { limits, ..Locks::default() }
    }

    /// The lock of another owner that is in the way, if there is one.
    pub fn test(&self, file: LockedFile, owner: &LockOwner, range: LockRange, exclusive: bool) -> Option<Held> {
        self.table().files.get(&file)?.conflict(owner, range, exclusive).cloned()
    }

    pub fn lock(
        &self,
        file: LockedFile,
        owner: &LockOwner,
        range: LockRange,
        exclusive: bool,
    ) -> Result<(), LockError> {
        let mut table = self.table();
        let on_file = table.files.get(&file);
        if let Some(held) = on_file.and_then(|on_file| on_file.conflict(owner, range, exclusive)) {
            return Err(LockError::Held(Box::new(held.clone())));
        }
        let next = on_file.map(|on_file| on_file.held.as_slice()).unwrap_or_default();
        let next = after_lock(next, Held { owner: owner.clone(), range, exclusive });
        let weaker = !exclusive;
        self.replace(&mut table, file, &owner.client, next)?;
        drop(table);
        if weaker {
            self.released.notify_waiters();
        }
        Ok(())
    }

    /// As [`Locks::lock`], but waits until no other lock is in the way. There is no order among
    /// those that wait.
    pub async fn lock_when_free(
        &self,
        file: LockedFile,
        owner: &LockOwner,
        range: LockRange,
        exclusive: bool,
    ) -> Result<(), LockError> {
        loop {
            let mut released = std::pin::pin!(self.released.notified());
            released.as_mut().enable();
            match self.lock(file, owner, range, exclusive) {
                Err(LockError::Held(_)) => released.await,
                other => return other,
            }
        }
    }

    /// Unlocking bytes that are not locked is no error. Fails only if two parts would remain and
    /// there is no room for them.
    pub fn unlock(&self, file: LockedFile, owner: &LockOwner, range: LockRange) -> Result<(), LockError> {
        let mut table = self.table();
        let Some(on_file) = table.files.get(&file) else { return Ok(()) };
        let next = after_unlock(&on_file.held, owner, range);
        self.replace(&mut table, file, &owner.client, next)?;
        drop(table);
        self.released.notify_waiters();
        Ok(())
    }

    /// Reserves the whole file; another reservation of the same owner is replaced.
    pub fn reserve(&self, file: LockedFile, reservation: Reservation) -> Result<(), LockError> {
        let mut table = self.table();
        let client = reservation.owner.client.clone();
        let others = table.files.get(&file).map(|on_file| on_file.reserved.as_slice()).unwrap_or_default();
        let (own, others): (Vec<_>, Vec<_>) = others.iter().partition(|other| other.owner == reservation.owner);
        let meets = |other: &&Reservation| other.deny.meets(reservation.access) || reservation.deny.meets(other.access);
        if others.iter().any(meets) {
            return Err(LockError::Reserved);
        }
        let replaced = own.len();
        let next: Vec<Reservation> = others.into_iter().cloned().chain([reservation]).collect();
        self.admit(&table, &client, next.len(), 1, replaced)?;
        table.files.entry(file).or_default().reserved = next;
        table.recount(&client, file, 1, replaced);
        Ok(())
    }

    /// Whether a reservation denies these uses of the file to a caller without one.
    pub fn denies(&self, file: LockedFile, uses: Uses) -> bool {
        let table = self.table();
        let reserved = table.files.get(&file).map(|on_file| on_file.reserved.as_slice()).unwrap_or_default();
        reserved.iter().any(|reservation| reservation.deny.meets(uses))
    }

    pub fn unreserve(&self, file: LockedFile, owner: &LockOwner) {
        let mut table = self.table();
        let Some(on_file) = table.files.get_mut(&file) else { return };
        let before = on_file.reserved.len();
        on_file.reserved.retain(|reservation| reservation.owner != *owner);
        let gone = before - on_file.reserved.len();
        table.recount(&owner.client, file, 0, gone);
        table.forget_if_free(file);
    }

    /// Releases everything that the client holds. Answers how many locks and reservations it looked
    /// at.
    pub fn release(&self, client: &LockClient) -> usize {
        self.release_all(&BTreeSet::from([client.clone()]))
    }

    /// The same for many clients. Each file that one of them has something on is looked at once.
    pub fn release_all(&self, clients: &BTreeSet<LockClient>) -> usize {
        let mut table = self.table();
        let mut files = BTreeSet::new();
        for client in clients {
            let Some(on_files) = table.clients.remove(client) else { continue };
            table.count(client, 0, on_files.values().sum());
            files.extend(on_files.into_keys());
        }
        let mut looked = 0;
        for file in &files {
            let Some(on_file) = table.files.get_mut(file) else { continue };
            looked += on_file.held.len() + on_file.reserved.len();
            on_file.held.retain(|held| !clients.contains(&held.owner.client));
            on_file.reserved.retain(|reservation| !clients.contains(&reservation.owner.client));
            table.forget_if_free(*file);
        }
        drop(table);
        if !files.is_empty() {
            self.released.notify_waiters();
        }
        looked
    }

    /// Forgets the locks of a share that is served no more.
    pub fn forget_share(&self, share: u32) {
        let mut table = self.table();
        let files: Vec<LockedFile> = table.files.keys().filter(|file| file.share == share).copied().collect();
        for file in files {
            let Some(on_file) = table.files.remove(&file) else { continue };
            let owners = on_file.held.into_iter().map(|held| held.owner);
            for owner in owners.chain(on_file.reserved.into_iter().map(|reservation| reservation.owner)) {
                table.recount(&owner.client, file, 0, 1);
            }
        }
        drop(table);
        self.released.notify_waiters();
    }

    /// All clients that hold something.
    pub fn clients(&self) -> Vec<LockClient> {
        self.table().clients.keys().cloned().collect()
    }

    /// Locks and reservations in all.
    pub fn count(&self) -> usize {
        self.table().total
    }

    /// The locks on a file, in the order of their first bytes.
    pub fn held(&self, file: LockedFile) -> Vec<Held> {
        let mut held = self.table().files.get(&file).map(|on_file| on_file.held.clone()).unwrap_or_default();
        held.sort_by_key(|held| held.range);
        held
    }

    fn replace(
        &self,
        table: &mut Table,
        file: LockedFile,
        client: &LockClient,
        next: Vec<Held>,
    ) -> Result<(), LockError> {
        let before = table.files.get(&file).map_or(0, |on_file| on_file.held.len());
        // Other clients' locks are in both numbers.
        self.admit(table, client, next.len(), next.len(), before)?;
        table.recount(client, file, next.len(), before);
        table.files.entry(file).or_default().held = next;
        table.forget_if_free(file);
        Ok(())
    }

    fn admit(
        &self,
        table: &Table,
        client: &LockClient,
        on_file: usize,
        added: usize,
        removed: usize,
    ) -> Result<(), LockError> {
        let own = table.counts.get(&client.host()).copied().unwrap_or_default();
        let full = on_file > self.limits.file_max
            || own + added > self.limits.client_max + removed
            || table.total + added > self.limits.locks_max + removed;
        match added > removed && full {
            true => Err(LockError::Full),
            false => Ok(()),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn recount(&mut self, client: &LockClient, file: LockedFile, added: usize, removed: usize) {
        self.count(client, added, removed);
        let files = self.clients.entry(client.clone()).or_default();
        let count = files.entry(file).or_default();
        *count = *count + added - removed;
        if *count == 0 {
            files.remove(&file);
        }
        if files.is_empty() {
            self.clients.remove(client);
        }
    }

    fn count(&mut self, client: &LockClient, added: usize, removed: usize) {
        self.total = self.total + added - removed;
        let host = client.host();
        let count = self.counts.entry(host.clone()).or_default();
        *count = *count + added - removed;
        if *count == 0 {
            self.counts.remove(&host);
        }
    }

    fn forget_if_free(&mut self, file: LockedFile) {
        if self.files.get(&file).is_some_and(OnFile::is_free) {
            self.files.remove(&file);
        }
    }
}

impl OnFile {
    fn is_free(&self) -> bool {
        self.held.is_empty() && self.reserved.is_empty()
    }

    fn conflict(&self, owner: &LockOwner, range: LockRange, exclusive: bool) -> Option<&Held> {
        let others = self.held.iter().filter(|held| held.range.overlaps(range) && held.owner != *owner);
        others.into_iter().find(|held| held.exclusive || exclusive)
    }
}

fn after_unlock(held: &[Held], owner: &LockOwner, range: LockRange) -> Vec<Held> {
    let mut next = Vec::with_capacity(held.len() + 1);
    for lock in held {
        match lock.owner == *owner && lock.range.overlaps(range) {
            false => next.push(lock.clone()),
            true => next.extend(lock.range.without(range).map(|range| Held { range, ..lock.clone() })),
        }
    }
    next
}

/// Cuts the owner's locks of these bytes, and joins the new one with its neighbours of the same
/// kind.
fn after_lock(held: &[Held], mut new: Held) -> Vec<Held> {
    let mut next = after_unlock(held, &new.owner, new.range);
    next.retain(|lock| {
        let joins = lock.owner == new.owner && lock.exclusive == new.exclusive && lock.range.touches(new.range);
        if joins {
            new.range.first = new.range.first.min(lock.range.first);
            new.range.last = new.range.last.max(lock.range.last);
        }
        !joins
    });
    next.push(new);
    next
}

impl Locks {
    /// The clients of a protocol whose names begin so.
    pub fn clients_of_host(&self, protocol: LockProtocol, prefix: &[u8]) -> Vec<LockClient> {
        let first = LockClient { protocol, name: Bytes::copy_from_slice(prefix) };
        let table = self.table();
        let from = table.clients.range(first..).map(|(client, _)| client);
        from.take_while(|client| client.protocol == protocol && client.name.starts_with(prefix)).cloned().collect()
    }
}

#[cfg(test)]
mod tests;
