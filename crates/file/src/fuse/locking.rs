//! Byte-range locks of processes on this machine (fcntl), in the table of all protocols.
//!
//! The kernel asks for each lock, and says which owner closes the file. An owner whose process ends
//! closes its files, so that no lock outlives it. Locks of a whole open file (F_OFD_SETLK) end with
//! the last close of that file, of which the kernel tells without their owner: the owners that
//! locked through it are therefore remembered.
//!
//! A process waits for a lock as long as it takes. The kernel holds its signals back meanwhile,
//! SIGKILL too, and tells of them in a way that fuser does not pass on. So each process that waits
//! is looked at now and then, and gets EINTR once a signal is there for it. Without one EINTR must
//! not be answered: of it the kernel makes a number that is for itself alone (512), and only a
//! signal turns that back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fuser::Errno;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::caller::has_signal;
use super::share::PATIENCE;
use crate::Inode;
use crate::locks::{LockClient, LockError, LockOwner, LockProtocol, LockRange, LockedFile, Locks};

/// The table of locks, and the number of the share in it.
#[derive(Clone)]
pub struct LockTable {
    pub locks: Arc<Locks>,
    pub share: u32,
}

/// The kernel's largest offset: a lock up to it is one up to the end of any file.
const OFFSET_MAX: u64 = i64::MAX as u64;
/// How often a process that waits is looked at. A signal counts if two looks in a row find it:
/// another thread of the process may be about to take it.
const LOOK: Duration = Duration::from_millis(200);
/// The most calls of a mount that wait for a lock: fewer than calls that wait in all, since those
/// that end the wait must get in.
const WAITING_MAX: usize = 1024;

/// Mounts of this process so far: each is a client of its own.
static MOUNTS: AtomicU64 = AtomicU64::new(0);

/// Locks through one mount.
pub(super) struct Locking {
    table: LockTable,
    client: LockClient,
    /// Owners that have locked through an open file, by its handle. Bounded by the locks of a
    /// client.
    through: Mutex<BTreeMap<u64, BTreeSet<u64>>>,
    /// Places of calls that wait.
    waiting: Semaphore,
    /// The mount is gone: nothing is locked any more.
    gone: AtomicBool,
}

/// The bytes of a lock and its kind.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub inode: Inode,
    /// As the kernel names it.
    pub owner: u64,
    pub first: u64,
    /// Included.
    pub last: u64,
    pub kind: i32,
}

impl Wanted {
    fn range(&self) -> Result<LockRange, Errno> {
        let length = match self.last {
            OFFSET_MAX.. => 0,
            last => last.checked_sub(self.first).ok_or(Errno::EINVAL)? + 1,
        };
        LockRange::new(self.first, length).ok_or(Errno::EINVAL)
    }
}

/// A lock that is in the way: first and last byte, and kind.
pub(super) type InTheWay = (u64, u64, i32);

impl Locking {
    pub(super) fn new(table: LockTable) -> Locking {
        let number = MOUNTS.fetch_add(1, Ordering::Relaxed);
        let name = Bytes::copy_from_slice(&number.to_be_bytes());
        let client = LockClient { protocol: LockProtocol::Fuse, name };
        let (waiting, gone) = (Semaphore::new(WAITING_MAX), AtomicBool::new(false));
        Locking { table, client, through: Mutex::default(), waiting, gone }
    }

    fn file(&self, inode: Inode) -> LockedFile {
        LockedFile { share: self.table.share, inode }
    }

    fn owner(&self, owner: u64) -> LockOwner {
        LockOwner { client: self.client.clone(), handle: Bytes::copy_from_slice(&owner.to_be_bytes()) }
    }

    pub(super) fn test(&self, wanted: Wanted) -> Result<Option<InTheWay>, Errno> {
        let exclusive = is_exclusive(wanted.kind)?;
        let owner = self.owner(wanted.owner);
        let held = self.table.locks.test(self.file(wanted.inode), &owner, wanted.range()?, exclusive);
        Ok(held.map(|held| {
            let last = match held.range.length() {
                0 => OFFSET_MAX,
                length => (held.range.offset() + length - 1).min(OFFSET_MAX),
            };
            let kind = if held.exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
            (held.range.offset().min(OFFSET_MAX), last, kind)
        }))
    }

    /// Locks or unlocks. `handle`: of the open file; `waits`: the thread waits until no lock of
    /// another owner is in the way.
    pub(super) async fn set(&self, handle: u64, wanted: Wanted, waits: Option<u32>) -> Result<(), Errno> {
        let (file, owner, range) = (self.file(wanted.inode), self.owner(wanted.owner), wanted.range()?);
        let locks = &self.table.locks;
        if wanted.kind == libc::F_UNLCK {
            return locks.unlock(file, &owner, range).map_err(|_| Errno::ENOLCK);
        }
        let exclusive = is_exclusive(wanted.kind)?;
        // Before the lock is there, so that a close in between takes it back.
        self.through().entry(handle).or_default().insert(wanted.owner);
        let locked = match (locks.lock(file, &owner, range, exclusive), waits) {
            (Err(LockError::Held(_)), Some(thread)) => {
                self.wait(thread, locks.lock_when_free(file, &owner, range, exclusive)).await?
            }
            (locked, _) => locked,
        };
        if self.gone.load(Ordering::SeqCst) {
            self.table.locks.release(&self.client);
            return Err(Errno::EIO);
        }
        locked.map_err(|error| match error {
            LockError::Held(_) | LockError::Reserved => Errno::EAGAIN,
            LockError::Full => Errno::ENOLCK,
        })
    }

    /// Waits for the lock, until a signal is there for the thread or the mount is gone. Whether a
    /// signal is there is not known of every thread; one of which it is not waits for [`PATIENCE`]
    /// at most.
    async fn wait(
        &self,
        thread: u32,
        locked: impl Future<Output = Result<(), LockError>>,
    ) -> Result<Result<(), LockError>, Errno> {
        let _place = self.waiting.try_acquire().map_err(|_| Errno::ENOLCK)?;
        let mut locked = std::pin::pin!(locked);
        let (began, mut had_signal) = (Instant::now(), false);
        loop {
            if let Ok(locked) = tokio::time::timeout(LOOK, locked.as_mut()).await {
                return Ok(locked);
            }
            if self.gone.load(Ordering::SeqCst) {
                return Err(Errno::EIO);
            }
            match has_signal(thread) {
                Some(true) if had_signal => return Err(Errno::EINTR),
                None if began.elapsed() >= PATIENCE => return Err(Errno::EAGAIN),
                found => had_signal = found == Some(true),
            }
        }
    }

    /// An owner has closed the file, whether or not others have it open.
    pub(super) fn closed_by(&self, inode: Inode, owner: u64) {
        // Unlocking everything leaves no two parts, and so cannot fail.
        let _ = self.table.locks.unlock(self.file(inode), &self.owner(owner), LockRange::ALL);
    }

    /// No one has the open file any more.
    pub(super) fn released(&self, inode: Inode, handle: u64) {
        let owners = self.through().remove(&handle);
        owners.into_iter().flatten().for_each(|owner| self.closed_by(inode, owner));
    }

    /// The mount is gone.
    pub(super) fn release_all(&self) {
        // First, so that no call locks behind it.
        self.gone.store(true, Ordering::SeqCst);
        self.through().clear();
        self.table.locks.release(&self.client);
    }

    fn through(&self) -> MutexGuard<'_, BTreeMap<u64, BTreeSet<u64>>> {
        self.through.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_exclusive(kind: i32) -> Result<bool, Errno> {
    match kind {
        libc::F_RDLCK => Ok(false),
        libc::F_WRLCK => Ok(true),
        _ => Err(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests;
