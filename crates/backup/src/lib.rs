//! Floor 4: backups. A repository of deduplicated, compressed, encrypted chunks in a store,
//! snapshots of file trees in it, and the agent that makes, restores and checks them.
//!
//! The store sees neither names nor content, yet it can read which segments a snapshot needs. So it
//! can keep, remove and check them without the key. FORMAT/backup.md has every stored byte,
//! SEMANTICS/backup.md what is promised.
//!
//! The library reads no clock that dates anything and asks the system for no entropy: both come
//! from [`repository::Surroundings`] and from the store. It starts threads and reads files; nothing
//! in it is asynchronous.

pub mod backup;
pub mod browse;
pub mod chunker;
mod codec;
pub mod compress;
pub mod crypt;
pub mod diff;
mod error;
pub mod filter;
pub mod forget;
pub mod index;
pub mod keyring;
mod newer;
mod packer;
pub mod prune;
pub mod references;
pub mod repository;
pub mod restore;
pub mod segment;
pub mod snapshot;
pub mod store;
#[cfg(test)]
mod testing;
pub mod tree;
pub mod verify;
pub mod versions;
mod walk;

pub use error::{BackupError, Result};
