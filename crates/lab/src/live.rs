//! Real storage under load: a thread for each worker, each with its own engine, buffers and
//! histograms.
//!
//! One definition of latency for every target: from the *intended* start of an access to the clock
//! reading at which its answer was found. In a closed loop an access is meant to start when the
//! answer before it was found. In an open loop it is meant to start when the rate says so, whether
//! or not a place is free. So a target that stalls is not spared the accesses that would have come
//! meanwhile. The clock is read once for each batch of answers.
//!
//! Workers keep no shared state: each hands its histograms over at the end of every round, and
//! those are merged exactly.

pub mod backup;
pub mod clock;
pub mod content;
pub mod directory;
pub mod engine;
mod fill;
pub(crate) mod inline;
pub mod iscsi;
pub(crate) mod local;
pub mod nbd;
pub mod nfs;
pub mod purge;
pub mod random;
mod reach;
pub mod read_back;
pub mod run;
pub mod s3;
pub mod signatures;
pub(crate) mod stream;
pub(crate) mod system_place;
pub mod target;
pub(crate) mod uring;
pub mod versions;
pub mod volume;
mod worker;
pub mod wrong;

#[cfg(test)]
mod tests;
