//! A stock that all requests share, of which one access key takes a part at most.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use stele_archive::Actor;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Keys above which those without a request are forgotten.
const KEYS_KEPT: usize = 1024;

/// A part of the stock, until it is dropped.
pub(crate) struct KeyedPermit {
    _any: OwnedSemaphorePermit,
    _of_key: Option<OwnedSemaphorePermit>,
}

pub(super) struct KeyedSemaphore {
    any: Arc<Semaphore>,
    /// Of one key.
    key_max: usize,
    of_keys: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl KeyedSemaphore {
    pub(super) fn new(all_max: usize, key_max: usize) -> KeyedSemaphore {
        KeyedSemaphore { any: Arc::new(Semaphore::new(all_max)), key_max, of_keys: Mutex::default() }
    }

    /// The part of a key, which lives as long as a request holds some of it or waits for it.
    fn of(&self, key: &str) -> Arc<Semaphore> {
        let mut keys = self.of_keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = keys.get(key).and_then(Weak::upgrade) {
            return known;
        }
        if keys.len() >= KEYS_KEPT {
            keys.retain(|_, part| part.strong_count() > 0);
        }
        let new = Arc::new(Semaphore::new(self.key_max));
        keys.insert(key.to_owned(), Arc::downgrade(&new));
        new
    }

    /// First of the key's own part, so that a key at its bound waits for its own requests and takes
    /// no place in the line.
    pub(super) async fn take(&self, actor: &Actor, count: u32) -> Option<KeyedPermit> {
        let _of_key = match actor {
            Actor::Key(key) => Some(self.of(key).acquire_many_owned(count).await.ok()?),
            _ => None,
        };
        Some(KeyedPermit { _any: self.any.clone().acquire_many_owned(count).await.ok()?, _of_key })
    }
}
