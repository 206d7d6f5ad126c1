//! Room for bodies on their way: a limited number of bytes, and word to those who keep some while others wait for it.
//!
//! Whoever waits is served in order. A body that keeps a large piece for a sender who has fallen silent would hold up
//! everybody: it is told that others wait, and hands on what it has.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::error::{ArchiveError, Result};

/// Bytes of one permit.
const UNIT: usize = 1024;

pub(crate) struct Room {
    free: Arc<Semaphore>,
    /// How many wait for room.
    waiting: watch::Sender<usize>,
}

/// Somebody waits, until this is dropped.
struct Waiting<'a>(&'a Room);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.send_modify(|waiting| *waiting -= 1);
    }
}

impl Room {
    /// At least 4 MiB, so that every piece fits.
    pub fn new(bytes: u64) -> Room {
        let units = (bytes / UNIT as u64).clamp(4096, 1 << 28) as usize;
        Room { free: Arc::new(Semaphore::new(units)), waiting: watch::Sender::new(0) }
    }

    /// Permits for so many bytes, rounded up.
    pub fn permits(bytes: usize) -> usize {
        bytes.div_ceil(UNIT)
    }

    /// Room that is free now.
    pub fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).try_acquire_many_owned(Room::permits(bytes) as u32).ok()
    }

    /// Waits for room. Whoever waits should keep none.
    pub async fn wait(&self, bytes: usize) -> Result<OwnedSemaphorePermit> {
        self.waiting.send_modify(|waiting| *waiting += 1);
        let _waiting = Waiting(self);
        let room = Arc::clone(&self.free).acquire_many_owned(Room::permits(bytes) as u32).await;
        room.map_err(|_| ArchiveError::Stopped("the store is closing".into()))
    }

    /// Resolves while somebody waits.
    pub async fn wanted(&self) {
        // The sender lives as long as this borrow of it.
        let _ = self.waiting.subscribe().wait_for(|waiting| *waiting > 0).await;
    }
}
