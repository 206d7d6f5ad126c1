//! Counters of connections, for operators: totals since each connection began. A reader computes
//! rates from two samples.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use stele_media::{MediaError, Op};

/// Counters of one connection, changed on the reactor and read from any thread.
#[derive(Default)]
pub struct Counters {
    pub reads: AtomicU64,
    pub read_bytes: AtomicU64,
    pub writes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub flushes: AtomicU64,
    /// Trims, zeroings, cache and status requests.
    pub others: AtomicU64,
    pub errors: AtomicU64,
    /// Requests under way now.
    pub queue: AtomicU64,
}

impl Counters {
    pub fn count(&self, op: &Op, result: &Result<(), MediaError>) {
        let length = op.range().map_or(0, |(_, length)| length);
        match op {
            Op::Read { .. } | Op::View { .. } => {
                self.reads.fetch_add(1, Relaxed);
                self.read_bytes.fetch_add(length, Relaxed);
            }
            Op::Write { .. } => {
                self.writes.fetch_add(1, Relaxed);
                self.written_bytes.fetch_add(length, Relaxed);
            }
            Op::Flush => {
                self.flushes.fetch_add(1, Relaxed);
            }
            _ => {
                self.others.fetch_add(1, Relaxed);
            }
        }
        if result.is_err() {
            self.errors.fetch_add(1, Relaxed);
        }
    }
}

/// A connection, for an operator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConnectionView {
    pub id: u64,
    pub export: String,
    pub protocol: super::Protocol,
    /// Address, or user of the Unix socket.
    pub peer: String,
    pub tls: bool,
    pub read_only: bool,
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub flushes: u64,
    pub others: u64,
    pub errors: u64,
    pub queue: u64,
}

/// The connections of one export.
#[derive(Default)]
pub struct Connections(Mutex<BTreeMap<u64, Listed>>);

struct Listed {
    peer: super::Peer,
    /// As in [`super::Peer::initiator`].
    initiator: String,
    counters: Arc<Counters>,
    waker: Option<stele_media::Waker>,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

impl Connections {
    /// Lists a connection and returns its number. `None`: of `most` places none is free, or the
    /// initiator has more connections than places are free. So one initiator takes half of them,
    /// the next one half of the rest: it keeps no other out.
    pub fn enter(&self, peer: &super::Peer, counters: &Arc<Counters>, most: u32) -> Option<u64> {
        let mut listed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (initiator, free) = (peer.initiator(), (most as usize).saturating_sub(listed.len()));
        let of_it = listed.values().filter(|other| other.initiator == initiator).count();
        if free == 0 || of_it > free {
            return None;
        }
        let id = NEXT.fetch_add(1, Relaxed);
        let (peer, counters) = (peer.clone(), Arc::clone(counters));
        listed.insert(id, Listed { peer, initiator, counters, waker: None });
        Some(id)
    }

    /// Registers the waker of a connection that now runs on a reactor.
    pub fn settle(&self, id: u64, waker: stele_media::Waker) {
        if let Some(listed) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&id) {
            listed.waker = Some(waker);
        }
    }

    pub fn leave(&self, id: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    pub fn wake_all(&self) {
        let listed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listed.values().filter_map(|listed| listed.waker.as_ref()).for_each(stele_media::Waker::wake);
    }

    pub fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub fn list(&self, export: &super::Export) -> Vec<ConnectionView> {
        let listed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listed
            .iter()
            .map(|(id, Listed { peer, counters, .. })| ConnectionView {
                id: *id,
                export: export.name.clone(),
                protocol: export.protocol,
                peer: peer.name.clone(),
                tls: peer.tls,
                read_only: export.read_only,
                reads: counters.reads.load(Relaxed),
                read_bytes: counters.read_bytes.load(Relaxed),
                writes: counters.writes.load(Relaxed),
                written_bytes: counters.written_bytes.load(Relaxed),
                flushes: counters.flushes.load(Relaxed),
                others: counters.others.load(Relaxed),
                errors: counters.errors.load(Relaxed),
                queue: counters.queue.load(Relaxed),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Peer;

    #[test]
    fn an_initiator_that_takes_all_it_can_keeps_no_other_out() {
        let (connections, counters) = (Connections::default(), Arc::default());
        let peer = |host: u8| Peer { address: Some([10, 0, 0, host].into()), ..Peer::default() };
        let fill = |host| {
            let entered: Vec<u64> = std::iter::from_fn(|| connections.enter(&peer(host), &counters, 256)).collect();
            (entered.len(), entered)
        };
        let (of_first, first) = fill(1);
        assert_eq!((of_first, fill(2).0, fill(3).0), (129, 64, 32));
        assert!(connections.enter(&peer(4), &counters, 256).is_some());
        // Who gives places back gets them again.
        first.into_iter().for_each(|id| connections.leave(id));
        assert!(fill(1).0 >= 60);
        let alone = Connections::default();
        assert!(alone.enter(&peer(1), &counters, 1).is_some() && alone.enter(&peer(1), &counters, 1).is_none());
        assert!(alone.enter(&peer(2), &counters, 0).is_none());
    }
}
