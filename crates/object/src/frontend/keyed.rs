//! A stock that all requests share, of which one access key takes a part at most.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use stele_archive::Actor;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Keys above which those without a request are forgotten.
const KEYS_KEPT: usize = 1024;

/// A part of the stock, until it is dropped.
pub(crate) struct KeyedPermit {
    any: OwnedSemaphorePermit,
    of_key: Option<OwnedSemaphorePermit>,
}

impl KeyedPermit {
    /// Gives back all but `count`.
    pub(super) fn shrink(&mut self, count: usize) {
        for part in [Some(&mut self.any), self.of_key.as_mut()].into_iter().flatten() {
            drop(part.split(part.num_permits().saturating_sub(count)));
        }
    }
}

pub(super) struct KeyedSemaphore {
    any: Arc<Semaphore>,
    /// Of one key.
    key_max: usize,
    /// Clients without a key share one part, as if they had a key.
    bounds_strangers: bool,
    of_keys: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl KeyedSemaphore {
    pub(super) fn new(all_max: usize, key_max: usize) -> KeyedSemaphore {
        let any = Arc::new(Semaphore::new(all_max));
        KeyedSemaphore { any, key_max, bounds_strangers: false, of_keys: Mutex::default() }
    }

    /// The same, and all clients without a key together have the part of one key.
    pub(super) fn bounding_strangers(self) -> KeyedSemaphore {
        KeyedSemaphore { bounds_strangers: true, ..self }
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
        let key = match actor {
            Actor::Key(key) => Some(key.as_str()),
            // No key has an empty name.
            Actor::Anonymous if self.bounds_strangers => Some(""),
            _ => None,
        };
        let of_key = match key {
            Some(key) => Some(self.of(key).acquire_many_owned(count).await.ok()?),
            None => None,
        };
        Some(KeyedPermit { any: self.any.clone().acquire_many_owned(count).await.ok()?, of_key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn strangers_share_the_part_of_one_key_where_it_says_so() {
        let taken = |stock: &KeyedSemaphore, actor: &Actor, count| stock.take(actor, count).now_or_never().flatten();
        let key = |name: &str| Actor::Key(name.into());
        let stock = KeyedSemaphore::new(8, 4).bounding_strangers();
        let mut first = taken(&stock, &Actor::Anonymous, 3).unwrap();
        assert!(taken(&stock, &Actor::Anonymous, 2).is_none(), "their part is taken");
        let other = taken(&stock, &key("a"), 4).unwrap();
        assert!(taken(&stock, &key("b"), 2).is_none(), "one of eight is left");
        first.shrink(2);
        assert!(taken(&stock, &Actor::Anonymous, 2).is_some(), "one came back, to them and to all");
        first.shrink(5);
        assert!(taken(&stock, &Actor::Anonymous, 3).is_none(), "nothing grows");
        drop((first, other));
        assert!(taken(&stock, &key("b"), 4).is_some());
        let unbound = KeyedSemaphore::new(8, 4);
        assert!(taken(&unbound, &Actor::Anonymous, 8).is_some());
    }
}
