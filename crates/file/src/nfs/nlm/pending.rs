//! LOCKs under way, so that an UNLOCK or a CANCEL which comes meanwhile ends them too.
//!
//! A LOCK waits for the rights of its caller, also after its connection is gone. A client that was
//! interrupted sends CANCEL and UNLOCK, and believes their answers. NLM has no lease: a lock
//! granted after that would stay until the client's machine starts again. The mutex is held over
//! the look at a call and over what it does, so that one of both comes first.
//!
//! Bounded by the requests under way on all connections.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::locks::{LockClient, LockOwner, LockRange, LockedFile};

#[derive(Default)]
pub struct Pending(Mutex<Calls>);

#[derive(Default)]
struct Calls {
    calls: BTreeMap<(LockOwner, u64), Call>,
    next: u64,
}

struct Call {
    wanted: Subject,
    cancelled: bool,
}

/// What a call locks: bytes, or the whole file as DOS does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subject {
    pub file: LockedFile,
    pub reserves: bool,
    pub range: LockRange,
}

impl Subject {
    fn meets(self, other: Subject) -> bool {
        self.file == other.file && self.reserves == other.reserves && self.range.overlaps(other.range)
    }
}

/// A call under way; dropped, it is forgotten.
pub struct Waiting {
    pending: Arc<Pending>,
    key: (LockOwner, u64),
}

impl Pending {
    pub fn enter(self: &Arc<Pending>, owner: LockOwner, wanted: Subject) -> Waiting {
        let mut calls = self.calls();
        calls.next += 1;
        let key = (owner, calls.next);
        calls.calls.insert(key.clone(), Call { wanted, cancelled: false });
        Waiting { pending: self.clone(), key }
    }

    /// Calls of the owner that want something of the subject are denied.
    pub fn cancel(&self, owner: &LockOwner, subject: Subject) {
        let range = (owner.clone(), 0)..=(owner.clone(), u64::MAX);
        for (_, call) in self.calls().calls.range_mut(range) {
            call.cancelled |= call.wanted.meets(subject);
        }
    }

    /// All calls of these clients are denied.
    pub fn cancel_clients(&self, is_meant: impl Fn(&LockClient) -> bool) {
        for ((owner, _), call) in &mut self.calls().calls {
            call.cancelled |= is_meant(&owner.client);
        }
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.calls().calls.len()
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Does what the call wants, unless it was cancelled.
    pub fn perform<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let calls = self.pending.calls();
        let is_live = calls.calls.get(&self.key).is_some_and(|call| !call.cancelled);
        is_live.then(act)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.pending.calls().calls.remove(&self.key);
    }
}
