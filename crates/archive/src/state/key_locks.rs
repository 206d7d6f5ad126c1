//! Whose turn it is to change the versions of a key: requests wait in the order in which they came.
//!
//! Order matters beyond fairness. A lock that is free to whoever asks next starves its other waiters for as long as two
//! clients keep writing: each of them asks again before a third one has woken up.
//!
//! Keys share a fixed number of locks, so that memory is bounded; two keys that share one only wait longer. Whoever holds a
//! lock must not wait for a second one, which may be the same.

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

    /// The lock of a key. Keys that count up differ in their last bytes only, and must not share it: hence the mixing behind
    /// the FNV hash, which carries a difference in the last byte to no more than a few bits.
    pub fn of(&self, bucket: u32, key: &str) -> Arc<Mutex<()>> {
        let hash = key
            .bytes()
            .fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
        Arc::clone(&self.0[context(hash, u64::from(bucket)) as usize % LOCKS])
    }
}
