//! How a pool is opened: by a server, by a command without one, and with which caches.

use stele_array::OpenOptions;
use stele_ground::Duration;

use crate::config::{Config, machine};

/// The mode of an opening.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    pub override_quorum: bool,
    /// Write nothing to the drives.
    pub read_only: bool,
    /// The archive answers reads and refuses every change.
    pub archive_read_only: bool,
    /// Without a server: compare the log with the heads that were sent elsewhere. A server does so
    /// in any case, before it opens the archive for writing.
    pub compares: bool,
}

impl Opening {
    pub fn for_server() -> Opening {
        Opening { override_quorum: false, read_only: false, archive_read_only: false, compares: false }
    }

    /// For a command without a server: the array is writable, the archive read-only.
    pub fn for_command() -> Opening {
        Opening { archive_read_only: true, ..Opening::for_server() }
    }
}

/// The options of the array.
pub(super) fn options(config: &Config, opening: Opening) -> OpenOptions {
    let memory = machine::memory_here();
    OpenOptions {
        read_only: opening.read_only,
        override_quorum: opening.override_quorum,
        table_cache: config.memory.table.0,
        block_cache: config.memory.blocks(memory),
        dirty_limit: config.memory.dirty.0,
        flush_high: config.memory.flush_high,
        flush_low: config.memory.flush_low,
        flush_age: Duration::from_secs(config.memory.flush_age),
        background_rate: config.pool.background_rate.map(|rate| rate.0),
        background_memory: config.memory.background(memory),
        rebuild_after: Duration::from_secs(config.pool.rebuild_after),
        ..OpenOptions::default()
    }
}
