//! The share of a volume's memory that a connection may hold. It bounds the memory, and no
//! initiator starves another.
//!
//! The limit counts the bytes under way on a volume, and the replies that wait for the peer. It is
//! divided evenly among the connected initiators, and an initiator's connections share its part. An
//! initiator without a request under way may always begin one, so that a request larger than the
//! part is still served. At the limit a connection stops reading its socket, and the client's own
//! window stops it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Limits of one volume and of each of its connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes under way on a volume, over all its connections.
    pub volume_bytes: u64,
    /// Bytes under way on one connection; below, requests.
    pub connection_bytes: u64,
    pub connection_requests: u32,
    /// Largest number of connections to one export.
    pub connections: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { volume_bytes: 256 << 20, connection_bytes: 64 << 20, connection_requests: 256, connections: 256 }
    }
}

/// The state that initiators share for one volume.
#[derive(Default)]
pub struct Pot {
    initiators: Mutex<BTreeMap<String, Arc<Initiator>>>,
    count: AtomicU64,
    /// While it is not zero, the volume takes no new connection that may write.
    pub(crate) pauses: AtomicU64,
}

#[derive(Default)]
struct Initiator {
    bytes: AtomicU64,
    connections: AtomicU64,
}

/// A connection's part in its volume. Dropping it returns the part.
pub struct Share {
    pot: Arc<Pot>,
    name: String,
    initiator: Arc<Initiator>,
    limits: Limits,
    bytes: u64,
    requests: u32,
    /// The part of the bytes that are replies not taken by the peer.
    untaken: u64,
}

impl Share {
    pub fn join(pot: &Arc<Pot>, initiator: &str, limits: Limits) -> Share {
        let mut initiators = pot.initiators.lock().unwrap_or_else(PoisonError::into_inner);
        let one = Arc::clone(initiators.entry(initiator.to_owned()).or_default());
        one.connections.fetch_add(1, Relaxed);
        pot.count.store(initiators.len() as u64, Relaxed);
        drop(initiators);
        Share {
            pot: Arc::clone(pot),
            name: initiator.to_owned(),
            initiator: one,
            limits,
            bytes: 0,
            requests: 0,
            untaken: 0,
        }
    }

    /// Whether a request of this many bytes may begin now.
    pub fn has_room(&self, bytes: u64) -> bool {
        let initiator = self.initiator.bytes.load(Relaxed);
        if initiator == 0 {
            return true;
        }
        let part = self.limits.volume_bytes / self.pot.count.load(Relaxed).max(1);
        let fits = self.bytes == 0 || self.bytes + bytes <= self.limits.connection_bytes;
        fits && self.requests < self.limits.connection_requests && initiator + bytes <= part
    }

    pub fn take(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.requests += 1;
        self.initiator.bytes.fetch_add(bytes, Relaxed);
    }

    pub fn give_back(&mut self, bytes: u64) {
        self.bytes -= bytes;
        self.requests -= 1;
        self.initiator.bytes.fetch_sub(bytes, Relaxed);
    }

    /// Records the bytes of replies that wait for the peer. They hold memory although their
    /// requests are done: a peer that asks and takes nothing reaches its limit.
    pub fn note_untaken(&mut self, bytes: u64) {
        if bytes != self.untaken {
            self.bytes = self.bytes - self.untaken + bytes;
            self.initiator.bytes.fetch_add(bytes, Relaxed);
            self.initiator.bytes.fetch_sub(self.untaken, Relaxed);
            self.untaken = bytes;
        }
    }

    /// Number of requests under way.
    pub fn requests(&self) -> u32 {
        self.requests
    }

    /// A turn's work, divided among the connections of one initiator: more connections get no more
    /// turns.
    pub fn part_of(&self, quantum: u64) -> u64 {
        (quantum / self.initiator.connections.load(Relaxed).max(1)).max(1)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.initiator.bytes.fetch_sub(self.bytes, Relaxed);
        let mut initiators = self.pot.initiators.lock().unwrap_or_else(PoisonError::into_inner);
        if self.initiator.connections.fetch_sub(1, Relaxed) == 1 {
            initiators.remove(&self.name);
        }
        self.pot.count.store(initiators.len() as u64, Relaxed);
    }
}

#[cfg(test)]
mod tests;
