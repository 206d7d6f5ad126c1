//! Changes of the things that notes on the data volume describe: versions, buckets and access keys.
//!
//! A change is noted on the data volume, durably, before its transaction is committed. A rebuild of
//! the catalog takes the newest note of each thing. Where the catalog refuses the commit, a
//! compensating note follows (see [`compensation`]).

pub(crate) mod buckets;
pub(crate) mod compensation;
pub(crate) mod named;
pub(crate) mod versions;
