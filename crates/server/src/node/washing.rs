//! Decides when to wash destroyed keys out of the log.
//!
//! When a disposal is acknowledged, zeros have overwritten the key's entry. The ring of the log
//! still holds the old entry until new records overwrite it, or until it is washed. A wash is a
//! pass over every drive's ring. The server therefore washes only now and then and when it stops,
//! and only if keys were destroyed since the last wash.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use stele_array::{ArrayError, Command};

use super::Node;

/// An earlier server may have destroyed keys without a wash.
const UNKNOWN: u64 = u64::MAX;

/// The number of destroyed keys at the time of the last wash.
pub struct Washing {
    covers: AtomicU64,
}

impl Default for Washing {
    fn default() -> Washing {
        Washing { covers: AtomicU64::new(UNKNOWN) }
    }
}

impl Node {
    /// Overwrites old records in the log.
    pub async fn wash(&self) -> Result<(), ArrayError> {
        let destroyed = self.keys_destroyed();
        self.pool.command(Command::WashLog).await?;
        self.washing.covers.store(destroyed, Relaxed);
        Ok(())
    }

    /// Washes if keys were destroyed since the last wash, or may have been before the start.
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
