//! Floor 2: the array. A pool of drives that declusters, checks, repairs and rebuilds, and offers volumes
//! that are drives themselves.
//!
//! [`Pool`] is the whole state machine: it is handed events and the time, and hands back actions. It has no
//! threads, reads no clock, draws no entropy and does no I/O. Inside, flows of several steps are coroutines
//! on a small deterministic executor; they only choose what happens next, and change state in plain calls.

pub mod admin;
mod ahead;
mod alarm;
pub mod anchor;
mod apply;
mod cache;
mod carry;
pub mod checkpoint;
mod claim;
mod codec;
mod commands;
mod destage;
mod drives;
mod enclosures;
mod engine;
pub mod error;
mod flush;
mod growth;
pub mod hospital;
mod host;
pub mod inspect;
pub mod io;
mod joining;
pub mod label;
mod layers;
pub mod layout;
pub mod log;
mod losses;
mod membership;
mod memory;
mod missed;
mod moving;
pub mod mutation;
mod ordered;
pub mod place;
pub mod pool;
mod ragged;
pub mod reactor;
mod read;
mod rebuild;
pub mod records;
mod recovery;
mod redo;
mod reinstate;
mod repair;
mod scrub;
mod space;
mod status;
mod stripe;
pub mod sync;
pub mod table;
pub mod task;
#[cfg(test)]
mod testing;
mod volumes;
mod whole;
mod write;
#[cfg(test)]
mod yard;

pub use admin::{
    AheadCounts, Alarm, AlarmKind, CacheLimits, CacheStatus, CodeSpace, Command, CreateOptions, Departed, DigestUnit,
    DriveHealth, DriveStatus, NOT_A_MEMBER, OpenOptions, PoolStatus, Progress, Reply, Severity, VolumeDetail,
    VolumeSpec, VolumeStatus, WriteMode,
};
pub use error::ArrayError;
pub use pool::{Action, Attached, Event, Pool, State};
pub use whole::WHOLE_MAX;
