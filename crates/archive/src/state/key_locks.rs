//! The locks that serialise changes to the versions of a key. Requests wait in the order in which
//! they came.
//!
//! The order matters beyond fairness. Two clients that keep writing would starve all other waiters
//! of an unfair lock: each of them asks again before a third has woken up.
//!
//! Keys share a fixed number of locks, so that memory is bounded. Two keys that share one only wait
//! longer. A request that holds one lock must not wait for a second, which may be the same. One
//! that needs several takes them at once, in the order of their places.
//!
//! What stores content also shares the lock of its bucket's settings, from its judgement to its
//! commit. A change of the settings waits for it, and what comes later is judged by the new
//! settings. Without that, the commit would fail: it requires the settings by which it was judged.
//! The key's lock comes first.

use std::sync::Arc;

use stele_ground::digest::context;
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

const LOCKS: usize = 1024;
/// Buckets share these as keys share theirs.
const SETTINGS_LOCKS: usize = 64;

pub(crate) type KeyLock = OwnedMutexGuard<()>;

pub(crate) struct KeyLocks(Vec<Arc<Mutex<()>>>);

impl KeyLocks {
    pub fn new() -> KeyLocks {
        KeyLocks((0..LOCKS).map(|_| Arc::default()).collect())
    }

    /// The place of a key's lock. Keys with counters differ in their last bytes only, and must not
    /// share a lock. The FNV hash carries such a difference to a few bits only, so it is mixed once
    /// more.
    pub fn place(&self, bucket: u32, key: &str) -> usize {
        let hash = key
            .bytes()
            .fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
        context(hash, u64::from(bucket)) as usize % LOCKS
    }

    pub fn at(&self, place: usize) -> Arc<Mutex<()>> {
        Arc::clone(&self.0[place])
    }
}

/// The locks of the settings of buckets.
pub(crate) struct SettingsLocks(Vec<Arc<RwLock<()>>>);

impl SettingsLocks {
    pub fn new() -> SettingsLocks {
        SettingsLocks((0..SETTINGS_LOCKS).map(|_| Arc::default()).collect())
    }

    /// Waits for a change of the bucket's settings under way. The next one waits until the guard is
    /// dropped.
    pub async fn share(&self, bucket: u32) -> OwnedRwLockReadGuard<()> {
        Arc::clone(&self.0[bucket as usize % SETTINGS_LOCKS]).read_owned().await
    }

    /// Waits until nothing is stored by the bucket's settings, and lets nothing begin.
    pub async fn alone(&self, bucket: u32) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.0[bucket as usize % SETTINGS_LOCKS]).write_owned().await
    }

    /// As `alone`, for rules that bind all buckets.
    pub async fn alone_in_all(&self) -> Vec<OwnedRwLockWriteGuard<()>> {
        let mut held = Vec::with_capacity(SETTINGS_LOCKS);
        for lock in &self.0 {
            held.push(Arc::clone(lock).write_owned().await);
        }
        held
    }
}
