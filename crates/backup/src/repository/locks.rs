//! Locked snapshots: until a date no client removes a snapshot or anything that it needs, whatever
//! credentials it has.
//!
//! The store holds the locks, as retention in COMPLIANCE mode. A snapshot is locked in this order:
//!
//! 1. Every segment that it references, the header, the keys and the defaults are locked until the
//!    date. A longer lock stays.
//! 2. The snapshot is stored, with its lock.
//!
//! A snapshot that is stored already is locked in the same order, and its lock is prolonged so: see
//! [`Repository::lock_stored`].
//!
//! Crash points: before 2 there is no snapshot, and some objects are kept for longer than
//! necessary. Behind 2 all is there. So a listed locked snapshot never needs an object that is not
//! locked as long. The session that runs meanwhile keeps prune from removing a segment between its
//! use and its lock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{Closed, Repository};
use crate::codec::Decoder;
use crate::error::{BackupError, Result};
use crate::newer;
use crate::references::References;
use crate::snapshot::SnapshotId;
use crate::store::{Folder, Name};

/// Objects that are locked at the same time.
const LOCKERS: usize = 8;

const MAGIC: [u8; 8] = *b"STLBDEF1";
const DEFAULTS_BYTES: usize = 48;
/// Those of a later version may be longer.
const DEFAULTS_BYTES_MAX: u64 = 4096;
/// The longest default: 100 years.
pub const KEEP_SECONDS_MAX: u64 = 100 * 366 * 86_400;

/// What to do about defaults that are damaged.
const DAMAGED_DEFAULTS: &str = "bring the object back from a copy; until then name the lock of each \
    backup by `stele backup run --keep-until`";

/// What backups do unless they are told otherwise. It is chosen with the repository, and never
/// changes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Defaults {
    /// Snapshots are locked for so many seconds from their storing on. Zero: they are not locked.
    pub keep_seconds: u64,
}

impl Defaults {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = [MAGIC.as_slice(), &self.keep_seconds.to_le_bytes()].concat();
        let hash = blake3::hash(&bytes);
        bytes.extend_from_slice(hash.as_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Defaults> {
        if let Some(error) = newer::refusal_of_sealed("the object 'defaults' of the repository", bytes, &MAGIC) {
            return Err(error);
        }
        let mut decoder = Decoder::new(bytes, "defaults of the repository");
        if decoder.array()? != MAGIC {
            return Err(decoder.damaged("they begin as no defaults do"));
        }
        let keep_seconds = decoder.u64()?;
        let hash: [u8; 32] = decoder.array()?;
        decoder.end()?;
        if bytes.get(..DEFAULTS_BYTES - 32).map(blake3::hash) != Some(hash.into()) || keep_seconds > KEEP_SECONDS_MAX {
            return Err(decoder.damaged("their hash differs, or their period is impossible"));
        }
        Ok(Defaults { keep_seconds })
    }
}

impl Closed {
    /// The defaults. A repository that was made without them has none.
    pub fn defaults(&self) -> Result<Defaults> {
        let bytes = self.store.get(&Name::defaults(), DEFAULTS_BYTES_MAX);
        match bytes.and_then(|bytes| Defaults::decode(&bytes)) {
            Err(BackupError::Missing(_)) => Ok(Defaults::default()),
            Err(BackupError::Damaged(text)) => Err(BackupError::Damaged(format!("{text}; {DAMAGED_DEFAULTS}"))),
            read => read,
        }
    }

    /// Locks everything that a snapshot with these references needs, except the snapshot itself.
    pub fn lock_needed(&self, references: &References, until: u64) -> Result<()> {
        let mut names = vec![Name::repository()];
        match self.defaults() {
            Ok(defaults) if defaults == Defaults::default() => {}
            // Damaged ones are there, and an earlier version of them may be whole. Those of a later
            // version are needed too.
            Ok(_) | Err(BackupError::Damaged(_) | BackupError::Newer(_)) => names.push(Name::defaults()),
            Err(error) => return Err(error),
        }
        self.store.list(Folder::Keys, &mut |listed| {
            names.push(listed.name);
            Ok(())
        })?;
        names.extend(references.0.keys().map(Name::segment));
        let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
        std::thread::scope(|scope| {
            for _ in 0..LOCKERS.min(names.len()) {
                scope.spawn(|| {
                    while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if let Err(error) = self.store.lock(name, until) {
                            failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                            // The others find no further name.
                            next.store(names.len(), Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

impl Repository {
    /// Locks a snapshot that is stored already, with everything that it needs. A longer lock stays.
    /// Gives the end of the snapshot's lock.
    ///
    /// It needs no session. Only what exists can be locked, and what is locked stays. So if the
    /// snapshot itself could be locked last, all that it needs was there before. A snapshot that is
    /// forgotten meanwhile is an error.
    pub fn lock_stored(&self, id: &SnapshotId, until: u64) -> Result<u64> {
        let references = self.snapshot(id)?.references;
        self.lock_needed(&references, until)?;
        let name = Name::of(Folder::Snapshots, &id.0);
        self.store.lock(&name, until)?;
        match self.store.locked_until(&name)? {
            Some(locked) if locked >= until => Ok(locked),
            _ => Err(BackupError::Failed(format!(
                "{} does not show the lock of snapshot {}: run the command again",
                self.store.place(),
                id.short()
            ))),
        }
    }
}

#[cfg(test)]
mod tests;
