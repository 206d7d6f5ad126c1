//! Floor 5: the laboratory. Workloads as data, targets that carry them out in virtual time, the search for the highest
//! load at a response time, and the published figures to set beside the answers.
//!
//! What runs in virtual time repeats to the last digit: targets are state machines over modelled drives, time is a value, and
//! chance comes from seeds. Only `live` and `usage` read a clock: they measure real storage. Threads only divide cases among themselves; no case sees another's state.

pub mod abba;
pub mod cases;
pub mod closed;
pub mod compare;
pub mod ds4500;
pub mod environment;
pub mod error;
pub mod export;
pub mod histogram;
pub mod hosts;
pub mod import;
pub mod job;
pub mod live;
pub mod medium;
pub mod modelled;
pub mod oddities;
pub mod paper;
pub mod pool;
pub mod precondition;
pub mod published;
pub mod raid;
pub mod recipe;
pub mod record;
pub mod report;
pub mod search;
pub mod set;
pub mod spindle;
pub mod steady;
pub mod sweep;
pub mod usage;
pub mod workload;
