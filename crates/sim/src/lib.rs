//! Floor 6: the world. Runs pools on simulated drives under a seed, with faults and crashes, against an oracle.
//!
//! - [`machine`]: drives in bays, virtual time, one event at a time, a crash at any drive operation.
//! - [`oracle`]: what each block of each volume may hold. [`host`]: who reads and writes.
//! - [`atlas`]: what may still be hurt, so that the array must answer.
//! - [`script`]: a history in named steps, without dice.
//! - [`setup`], [`story`], [`world`]: what a seed builds, what befalls it, and the loop they meet in.
//! - [`proof`]: whether a pool that calls itself whole survives what it promises to.
//! - [`enumerate`]: every crash of a short workload instead of some of a long one.
//! - [`kill`]: no simulation: a process that is killed again and again, and what the next one finds.
//! - [`loops`]: no simulation either: a served pool on loop devices that are pulled and replaced.
//! - [`stage`]: the world behind a port, for what stands on a volume and blocks; [`shelf`]: the catalog on it, [`rack`]: a pool beneath it,
//!   [`custody`]: the archive on two volumes of that.
//! - [`clinic`]: a pool in virtual time without chance, for what takes how long.
//! - [`run`]: a seed, twice with equal traces or once; many seeds; how to repeat one.

pub mod atlas;
pub mod clinic;
pub mod coverage;
pub mod custody;
pub mod enumerate;
pub mod host;
pub mod kill;
pub mod loops;
pub mod machine;
pub mod oracle;
pub mod proof;
pub mod rack;
pub mod run;
pub mod script;
pub mod setup;
pub mod shelf;
pub mod stage;
pub mod story;
pub mod system;
pub mod trace;
pub mod world;
