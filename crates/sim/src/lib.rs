//! Floor 6: the simulated world. It runs pools on simulated drives under a seed, with faults and
//! crashes, against an oracle.
//!
//! - [`machine`]: drives in bays, virtual time, one event at a time, a crash at any drive
//!   operation.
//! - [`oracle`]: the possible contents of each block of each volume. [`host`]: the reader and
//!   writer of a volume.
//! - [`atlas`]: the damage that the array must still tolerate.
//! - [`script`]: a history in named steps, without dice.
//! - [`setup`], [`history`], [`world`]: the pool that a seed builds, the events of its run, and the
//!   loop that carries them out.
//! - [`proof`]: whether a pool that calls itself whole survives the promised losses.
//! - [`enumerate`]: every crash of a short workload instead of some of a long one.
//! - [`kill`]: no simulation: a process that is killed again and again, and the state that the next
//!   one finds.
//! - [`loops`]: no simulation either: a served pool on loop devices that are pulled and replaced.
//! - [`stage`]: the world behind a port, for code that stands on a volume and blocks;
//!   [`catalog_world`]: the catalog on it, [`pool_world`]: a pool below it, [`archive_world`]: the
//!   archive on two volumes of that pool.
//! - [`shards_world`]: a pool of several shards, whose commands are cut off between two of them.
//! - [`virtual_pool`]: a pool in virtual time without chance, to measure durations.
//! - [`run`]: runs a seed once, or twice with equal traces; runs many seeds; prints the command
//!   that repeats one.

pub mod archive_world;
pub mod atlas;
pub mod catalog_world;
pub mod coverage;
pub mod enumerate;
pub mod history;
pub mod host;
pub mod kill;
pub mod loops;
pub mod machine;
pub mod oracle;
pub mod pool_world;
pub mod proof;
pub mod run;
pub mod script;
pub mod setup;
pub mod shards_world;
pub mod stage;
pub mod system;
pub mod trace;
pub mod virtual_pool;
pub mod world;
