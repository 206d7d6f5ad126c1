//! The locks that serialise changes to the versions of a key. Requests wait in the order in which they came.
//!
//! The order matters beyond fairness. Two clients that keep writing would starve all other waiters of an unfair lock:
//! each of them asks again before a third has woken up.
//!
//! Keys share a fixed number of locks, so that memory is bounded. Two keys that share one only wait longer. A request
//! that holds one lock must not wait for a second, which may be the same.

use std::sync::Arc;

use stele_ground::digest::context;
use tokio::sync::{Mutex, OwnedMutexGuard};

const LOCKS: usize = 1024;

pub(crate) type KeyLock = OwnedMutexGuard<()>;

pub(crate) struct KeyLocks(Vec<Arc<Mutex<()>>>);

impl KeyLocks {
    pub fn new() -> KeyLocks {
        KeyLocks((0..LOCKS).map(|_| Arc::default()).collect())
    }

    /// The lock of a key. Keys with counters differ in their last bytes only, and must not share a lock. The FNV hash
    /// carries such a difference to a few bits only, so it is mixed once more.
    pub fn of(&self, bucket: u32, key: &str) -> Arc<Mutex<()>> {
        let hash = key
            .bytes()
            .fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
        Arc::clone(&self.0[context(hash, u64::from(bucket)) as usize % LOCKS])
    }
}
