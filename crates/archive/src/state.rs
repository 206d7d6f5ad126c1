//! The memory that tasks share: one type for each owner, with private fields and methods that do
//! not wait.

pub(crate) mod audit_end;
pub(crate) mod bodies;
pub(crate) mod body_memory;
pub(crate) mod buckets;
pub(crate) mod budget;
pub(crate) mod caches;
pub(crate) mod clock;
pub(crate) mod count;
pub(crate) mod disposals;
pub(crate) mod event_lag;
pub(crate) mod holding;
pub(crate) mod inventories;
pub(crate) mod key_locks;
pub(crate) mod log_tree;
pub(crate) mod owned;
pub(crate) mod refusals;
pub(crate) mod sessions;
pub(crate) mod shared;
pub(crate) mod timer;
pub(crate) mod upkeep;
pub(crate) mod usage;
