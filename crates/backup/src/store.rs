//! Where a repository is: a small set of named, immutable objects.
//!
//! A store promises: when `put` returns, the object is durable and every later call sees it, whole;
//! `create` never replaces an object. It may fail at any call. It may list an object late only if
//! it says so; all stores here list at once. The store's clock dates objects, so no client can date
//! its own snapshots.

pub mod directory;
pub mod memory;
pub mod s3;

use std::ops::Range;

use crate::crypt::{from_hex, hex};
use crate::error::{BackupError, Result};
use crate::segment::SegmentId;

/// The folders of a repository.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Folder {
    Keys,
    Segments,
    Snapshots,
    Sessions,
    Epochs,
    /// Chunks that a check found damaged.
    Damaged,
}

impl Folder {
    pub fn name(self) -> &'static str {
        match self {
            Folder::Keys => "keys",
            Folder::Segments => "segments",
            Folder::Snapshots => "snapshots",
            Folder::Sessions => "sessions",
            Folder::Epochs => "epochs",
            Folder::Damaged => "damaged",
        }
    }
}

/// The name of an object: lower-case letters, digits, `-` and `/`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Name(String);

/// The object that makes a place a repository.
pub const REPOSITORY: &str = "repository";
/// The object with the defaults of backups.
pub const DEFAULTS: &str = "defaults";

impl Name {
    pub fn repository() -> Name {
        Name(REPOSITORY.to_owned())
    }

    pub fn defaults() -> Name {
        Name(DEFAULTS.to_owned())
    }

    /// Segments are spread over 256 folders.
    pub fn segment(id: &SegmentId) -> Name {
        let hex = hex(&id.0);
        Name(format!("{}/{}/{hex}", Folder::Segments.name(), hex.get(..2).unwrap_or_default()))
    }

    /// An object whose name is an id.
    pub fn of(folder: Folder, id: &[u8]) -> Name {
        Name(format!("{}/{}", folder.name(), hex(id)))
    }

    /// An epoch. The digits keep the order of names that of numbers.
    pub fn epoch(number: u64) -> Name {
        Name(format!("{}/{number:016x}", Folder::Epochs.name()))
    }

    /// The name as a store lists it. None: no object of a repository has it.
    pub fn parse(folder: Folder, text: &str) -> Option<Name> {
        let rest = text.strip_prefix(folder.name())?.strip_prefix('/')?;
        let last = match folder {
            // A segment has one name: with another one, a planted object would pass for it.
            Folder::Segments => rest.split_once('/').filter(|(first, last)| is_segment(first, last))?.1,
            _ => rest,
        };
        let digits = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        (!last.is_empty() && last.len() <= 64 && last.chars().all(digits)).then(|| Name(text.to_owned()))
    }

    pub fn is_in(&self, folder: Folder) -> bool {
        self.0.split_once('/').is_some_and(|(first, _)| first == folder.name())
    }

    pub fn text(&self) -> &str {
        &self.0
    }

    /// The last part of the name.
    pub fn last(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    pub fn id<const N: usize>(&self) -> Option<[u8; N]> {
        from_hex(self.last())
    }

    /// The BLAKE3 of the object's bytes, where the name is made of it.
    pub fn content_hash(&self) -> Option<[u8; 32]> {
        self.id().filter(|_| self.is_in(Folder::Segments))
    }
}

/// Whether the folder is that of the segment with this name.
fn is_segment(folder: &str, name: &str) -> bool {
    name.len() == 64 && folder.len() == 2 && name.starts_with(folder)
}

/// An object in a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    pub name: Name,
    pub size: u64,
    /// When it was stored, by the store's clock: seconds since 1970.
    pub stored: u64,
}

pub trait Store: Send + Sync {
    /// The place, for messages.
    fn place(&self) -> String;

    /// Stores an object that must not exist, durably.
    /// [`BackupError::Exists`](crate::BackupError::Exists): it does.
    fn create(&self, name: &Name, bytes: &[u8]) -> Result<()>;

    /// As `create`, and gives the buffer back to be filled again. A store that sends it can do so
    /// without a copy.
    fn create_from(&self, name: &Name, bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.create(name, &bytes).map(|()| bytes)
    }

    /// Stores or replaces a small object, durably. Only sessions are replaced.
    fn replace(&self, name: &Name, bytes: &[u8]) -> Result<()>;

    /// The whole object, of at most `max` bytes.
    fn get(&self, name: &Name, max: u64) -> Result<Vec<u8>>;

    /// A part of the object; it is an error if the object ends before the part.
    fn get_range(&self, name: &Name, range: Range<u64>) -> Result<Vec<u8>>;

    /// As `get_range`, into a buffer of an earlier call: the same memory again costs less than new
    /// memory for each part.
    fn get_range_into(&self, name: &Name, range: Range<u64>, into: &mut Vec<u8>) -> Result<()> {
        *into = self.get_range(name, range)?;
        Ok(())
    }

    /// Calls `each` for every object of the folder, in no order.
    fn list(&self, folder: Folder, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()>;

    /// Removes an object. [`BackupError::Refused`](crate::BackupError::Refused): retention or
    /// credentials forbid it.
    fn remove(&self, name: &Name) -> Result<()>;

    /// Locks an object until at least `until`, seconds since 1970: before, no right removes it. A
    /// longer lock stays. [`BackupError::Invalid`](crate::BackupError::Invalid): the store has no
    /// locks.
    fn lock(&self, _name: &Name, _until: u64) -> Result<()> {
        Err(self.lockless())
    }

    /// As `create`; the object is locked from its first moment.
    fn create_locked(&self, _name: &Name, _bytes: &[u8], _until: u64) -> Result<()> {
        Err(self.lockless())
    }

    /// Until when retention or a hold keeps the object from every caller, if that lies ahead.
    fn locked_until(&self, _name: &Name) -> Result<Option<u64>> {
        Ok(None)
    }

    /// The same, also where a privileged caller may remove it earlier.
    fn kept_until(&self, name: &Name) -> Result<Option<u64>> {
        self.locked_until(name)
    }

    /// Whether objects can be locked.
    fn has_locks(&self) -> Result<bool> {
        Ok(false)
    }

    /// How the store locks every new object by itself, if it does and says so.
    fn locks_all(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// What the maker of a repository should know about the place.
    fn advice(&self) -> Option<String> {
        None
    }

    /// The error of a store without locks.
    fn lockless(&self) -> BackupError {
        BackupError::Invalid(format!("{} has no locks: they need a bucket with Object Lock", self.place()))
    }

    /// The store's clock: seconds since 1970.
    fn now(&self) -> Result<u64>;

    /// Whether reading costs about as much as reading a local file, so that a cache would gain
    /// nothing.
    fn is_local(&self) -> bool;

    /// Removes what killed writers left, if the store knows such things.
    fn tidy(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
