//! Floor 5: the laboratory. Workloads as data, targets that carry them out on real storage and in
//! virtual time, the search for the highest load at a response time, records of what was found, and
//! reports of them. The published papers and the formats of other tools are a floor above, in
//! `stele-papers`.
//!
//! What runs in virtual time repeats to the last digit: targets are state machines over modelled
//! drives, time is a value, and chance comes from seeds. Only `live` and `usage` read a clock: they
//! measure real storage. Threads only divide cases among themselves; no case sees another's state.

pub mod ab_test;
pub mod baseline;
pub mod closed;
pub mod compare;
pub mod csv;
pub mod environment;
pub mod error;
pub mod estimate;
pub mod ffsb;
pub mod fio;
pub mod histogram;
pub mod history;
pub mod hosts;
pub mod job;
pub mod live;
pub mod medium;
pub mod mix;
pub mod modelled;
pub mod objective;
pub mod pool;
pub mod precondition;
pub mod profile;
pub mod raid;
pub mod record;
pub mod replay;
pub mod report;
pub mod search;
pub mod spindle;
pub mod steady;
pub mod sweep;
pub mod usage;
pub mod view;
pub mod workload;
