//! When the log is washed of what destroyed keys were.
//!
//! Zeros over a key's entry are in place when its disposal is acknowledged; the ring of the log holds what the entry was until
//! it comes round again, or is washed. Washing takes a pass over every drive's ring, so a server does it once in a while and
//! when it stops, and only where keys were destroyed since.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use stele_array::{ArrayError, Command};

use super::Node;

/// A server before this one may have destroyed keys and not have washed.
const UNKNOWN: u64 = u64::MAX;

/// How many keys had been destroyed when the log was last washed.
pub struct Washing {
    covers: AtomicU64,
}

impl Default for Washing {
    fn default() -> Washing {
        Washing { covers: AtomicU64::new(UNKNOWN) }
    }
}

impl Node {
    /// Overwrites what the log holds of the past.
    pub async fn wash(&self) -> Result<(), ArrayError> {
        let destroyed = self.keys_destroyed();
        self.pool.command(Command::WashLog).await?;
        self.washing.covers.store(destroyed, Relaxed);
        Ok(())
    }

    /// Washes where keys were destroyed since the last time, or may have been before the start.
    pub async fn wash_if_due(&self) -> Result<(), ArrayError> {
        if self.washing.covers.load(Relaxed) == self.keys_destroyed() {
            return Ok(());
        }
        self.wash().await
    }

    fn keys_destroyed(&self) -> u64 {
        self.archive().map_or(0, |archive| archive.keys_destroyed())
    }
}
