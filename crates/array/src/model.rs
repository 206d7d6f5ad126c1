//! What the pool is made of and what is said of it: places, errors, alarms, options, events and
//! actions. No behaviour.

pub mod admin;
mod alarm;
mod drive;
pub mod error;
pub mod events;
pub mod mutation;
pub mod place;

pub use admin::{
    AheadCounts, Alarm, AlarmKind, CacheLimits, CacheStatus, CodeSpace, Command, CreateOptions, DigestUnit, Incomplete,
    OpenOptions, PoolStatus, Progress, Reply, Severity, Shard, VolumeDetail, VolumeSpec, VolumeStatus, WriteMode,
};
pub use drive::{Departed, DriveHealth, DriveStatus, NOT_A_MEMBER};
pub use error::{ArrayError, Scrubbed};
pub use events::{Action, Attached, Event};
