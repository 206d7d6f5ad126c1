//! Background work, and the questions of operators about the store.

pub mod affected;
pub mod background;
pub(crate) mod counting;
pub(crate) mod expiry;
pub(crate) mod growth;
pub(crate) mod holding;
pub(crate) mod indexing;
pub(crate) mod lifecycle;
pub(crate) mod pausing;
pub(crate) mod reclaim;
pub mod scrub;
pub mod self_test;
pub mod status;
