//! The requests that are served at once: in all, and of one access key.
//!
//! A request holds its turn until the client has taken the answer, and a slow client is served for
//! long. The bound of one access key leaves turns for the others, wherever its clients are. The
//! bound of a host's connections, which is below that of all turns, does the same for clients
//! without a key.

use super::Frontend;
use crate::refusal::refuse;
use s3s::{S3ErrorCode, S3Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use stele_archive::Actor;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Keys above which those without a request are forgotten.
const KEYS_KEPT: usize = 1024;

/// A request's turn, until it is dropped.
pub(crate) struct Turn {
    _any: OwnedSemaphorePermit,
    _of_key: Option<OwnedSemaphorePermit>,
}

pub(super) struct Turns {
    any: Arc<Semaphore>,
    /// Of one key.
    key_max: usize,
    of_keys: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl Turns {
    pub(super) fn new(all_max: usize, key_max: usize) -> Turns {
        Turns { any: Arc::new(Semaphore::new(all_max)), key_max, of_keys: Mutex::default() }
    }

    /// The turns of a key, which live as long as a request holds one or waits for one.
    fn of(&self, key: &str) -> Arc<Semaphore> {
        let mut keys = self.of_keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = keys.get(key).and_then(Weak::upgrade) {
            return known;
        }
        if keys.len() >= KEYS_KEPT {
            keys.retain(|_, turns| turns.strong_count() > 0);
        }
        let new = Arc::new(Semaphore::new(self.key_max));
        keys.insert(key.to_owned(), Arc::downgrade(&new));
        new
    }

    /// First the key's own turn, so that a key at its bound waits for its own requests and takes no
    /// place in the line.
    async fn take(&self, actor: &Actor) -> Option<Turn> {
        let _of_key = match actor {
            Actor::Key(key) => Some(self.of(key).acquire_owned().await.ok()?),
            _ => None,
        };
        Some(Turn { _any: self.any.clone().acquire_owned().await.ok()?, _of_key })
    }
}

impl Frontend {
    /// Waits for a turn, at most for the queue's patience.
    pub(crate) async fn turn(&self, actor: &Actor) -> S3Result<Turn> {
        match timeout(self.settings.queue_patience, self.turns.take(actor)).await {
            Ok(Some(turn)) => Ok(turn),
            _ => {
                self.metrics.request_shed();
                Err(refuse(S3ErrorCode::SlowDown, "Please reduce your request rate."))
            }
        }
    }
}
