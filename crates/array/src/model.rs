//! What the pool is made of and what is said of it: places, errors, alarms, options, events and
//! actions. No behaviour.

pub mod admin;
mod alarm;
pub mod error;
pub mod events;
pub mod mutation;
pub mod place;

pub use admin::{
    AheadCounts, Alarm, AlarmKind, CacheLimits, CacheStatus, CodeSpace, Command, CreateOptions, Departed, DigestUnit,
    DriveHealth, DriveStatus, Incomplete, NOT_A_MEMBER, OpenOptions, PoolStatus, Progress, Reply, Severity, Shard,
    VolumeDetail, VolumeSpec, VolumeStatus, WriteMode,
};
pub use error::{ArrayError, Scrubbed};
pub use events::{Action, Attached, Event};
