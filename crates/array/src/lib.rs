//! Floor 2: the array. A pool of drives that declusters, checks, repairs and rebuilds, and offers
//! volumes that are drives themselves.
//!
//! [`Pool`] is the whole state machine: it is handed events and the time, and hands back actions.
//! It has no threads, reads no clock, draws no entropy and does no I/O. Inside, flows of several
//! steps are coroutines on a small deterministic executor; they only choose what happens next, and
//! change state in plain calls.
//!
//! The folders are listed from the ground up: each imports only from those above it in this list
//! (`xtask/src/tidy/folders.rs`).

mod model;

mod runtime;

mod cache;

mod formats;

mod drives;

mod space;

mod durable;

mod volumes;

mod state;

mod engine;

mod stripe;

mod destage;

mod layers;

mod hosts;

mod upkeep;

mod members;

pub mod pool;

mod reactor;

pub mod server;

#[cfg(test)]
mod testing;

/// The tests spend a sixth of their time in the system's allocator.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub use destage::checkpoint;
pub use drives::label;
pub use durable::{anchor, log, records, table};
pub use hosts::atomic::ATOMIC_WRITE_MAX;
pub use model::{
    Action, AheadCounts, Alarm, AlarmKind, ArrayError, Attached, CacheLimits, CacheStatus, CodeSpace, Command,
    CreateOptions, Departed, DigestUnit, DriveHealth, DriveStatus, Event, Incomplete, NOT_A_MEMBER, OpenOptions,
    PoolStatus, Progress, Reply, Severity, Shard, VolumeDetail, VolumeSpec, VolumeStatus, WriteMode, admin, error,
    mutation, place,
};
pub use pool::{Pool, State, inspect};
pub use runtime::{io, sync, task};
pub use space::layout;
pub use state::hospital;
