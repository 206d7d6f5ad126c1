//! The memory for bodies on their way to the data volume: a bounded number of bytes.
//!
//! Waiting bodies are served in the order in which they came. A body that keeps a large piece for a
//! client that has fallen silent would hold up every other body. It therefore learns that others
//! wait, and hands on what it has.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::model::error::{ArchiveError, Result};

/// Bytes of one permit.
const UNIT: usize = 1024;

pub(crate) struct BodyMemory {
    free: Arc<Semaphore>,
    /// How many bodies wait for memory.
    waiting: watch::Sender<usize>,
}

/// Counts one waiting body until it is dropped.
struct Waiting<'a>(&'a BodyMemory);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.send_modify(|waiting| *waiting -= 1);
    }
}

impl BodyMemory {
    /// At least 4 MiB, so that every piece fits.
    pub fn new(bytes: u64) -> BodyMemory {
        let units = (bytes / UNIT as u64).clamp(4096, 1 << 28) as usize;
        BodyMemory { free: Arc::new(Semaphore::new(units)), waiting: watch::Sender::new(0) }
    }

    /// Permits for so many bytes, rounded up.
    pub fn permits(bytes: usize) -> usize {
        bytes.div_ceil(UNIT)
    }

    /// Takes memory that is free now. None: there is not enough of it.
    pub fn try_take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).try_acquire_many_owned(BodyMemory::permits(bytes) as u32).ok()
    }

    /// Waits for memory. The caller should hold none meanwhile.
    pub async fn take(&self, bytes: usize) -> Result<OwnedSemaphorePermit> {
        self.waiting.send_modify(|waiting| *waiting += 1);
        let _waiting = Waiting(self);
        let memory = Arc::clone(&self.free).acquire_many_owned(BodyMemory::permits(bytes) as u32).await;
        memory.map_err(|_| ArchiveError::Stopped("the store is closing".into()))
    }

    /// Resolves while a body waits for memory.
    pub async fn wanted(&self) {
        // The sender lives as long as this borrow of it.
        let _ = self.waiting.subscribe().wait_for(|waiting| *waiting > 0).await;
    }
}
