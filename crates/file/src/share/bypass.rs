//! A share whose cache is off: its cache volume holds content that is not archived yet, and nothing
//! else.
//!
//! Each write is durable on the cache volume before its answer. A file is archived once it was left
//! alone for a second and no protocol has it open for writing. Its version is read back whole,
//! which the archive verifies, and only then do its slots come free. Reads of archived content come
//! from the archive, verified, and are not kept.
//!
//! Crash points of giving slots back:
//! 1. before the version was read back: a start finds the slots in the records, and background work
//!    gives them back;
//! 2. before the transaction that drops the records is durable: the same. The version serves the
//!    content in both cases.

use minicbor::{Decode, Encode};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use stele_archive::{GetRequest, VersionId};
use stele_ground::Duration;

use super::reading::{key_of, refused};
use super::records::ArchivedRow;
use super::{Share, Worked};
use crate::{FileError, Result};

/// How long a file is left alone before it is archived, where the cache is off: a stream of writes
/// is no reason to store a version between any two of them.
const IDLE: Duration = Duration::from_secs(1);
/// Files of which one round gives back the slots.
const FILES_AT_ONCE: usize = 256;
/// Between two attempts to read back a version that could not be read.
const AGAIN: Duration = Duration::from_secs(60);

/// Whether a share keeps archived content in its cache volume.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum Caching {
    #[default]
    #[n(0)]
    On,
    #[n(1)]
    Off,
}

impl Share {
    /// Whether the cache is off.
    pub(super) fn bypasses(&self) -> bool {
        self.bypasses.load(Ordering::Relaxed)
    }

    /// How long a file is left alone before it is archived.
    pub(super) fn patience(&self) -> Duration {
        let patience = self.settings().archive_after;
        if self.bypasses() { patience.min(IDLE) } else { patience }
    }

    /// Gives back the slots of all archived files. These were archived for a reader or a commit,
    /// were cached before the cache was off, or were left by a crash.
    pub(super) async fn give_back_all(&self, worked: &mut Worked) -> Result<()> {
        let queued = self.step(|core| Ok(core.queued()))?;
        let mut given = 0;
        for _ in 0..queued.min(FILES_AT_ONCE) {
            let Some(inode) = self.step(|core| Ok(core.next_archived()))? else { return Ok(()) };
            if self.give_back_noting(inode).await {
                given += 1;
                // Reading the others back takes a while.
                self.room.notify_waiters();
            }
        }
        worked.evicted += given;
        // Where none came free, the next attempt is no better at once.
        worked.more |= given > 0 && queued > FILES_AT_ONCE;
        Ok(())
    }

    /// As `give_back`. A failure is one of the file's, and named until the archive takes it.
    pub(super) async fn give_back_noting(&self, inode: u64) -> bool {
        let now = self.surroundings.now().monotonic;
        if self.locked().unread.get(&inode).is_some_and(|tried| now.since(*tried) < AGAIN) {
            return false;
        }
        let given = self.give_back(inode).await;
        let mut core = self.locked();
        core.unread.remove(&inode);
        match given {
            Ok(given) => given,
            Err(FileError::Stale | FileError::Retry(_)) => false,
            Err(error) => {
                let share = &self.name;
                tracing::error!(%share, inode, %error, "an archived version could not be read back; the cache keeps its content");
                core.unread.insert(inode, now);
                core.note_refusal(inode, error);
                false
            }
        }
    }

    /// Gives back the slots of an archived file, once its version was read back. Answers whether
    /// slots came free. Content whose version cannot be read back stays in the cache. If the
    /// version is damaged, the file is archived anew, where it may be.
    async fn give_back(&self, inode: u64) -> Result<bool> {
        let found = self.step(|core| {
            if core.slots.held(inode) == 0 {
                core.evicted(inode);
                return Ok(None);
            }
            let (row, content) = core.content(inode)?;
            let archived = row.archived.clone().filter(|_| !row.open && row.links > 0);
            Ok(archived.map(|archived| (archived, content.epoch, Arc::clone(&content.gate))))
        })?;
        let Some((archived, epoch, gate)) = found else { return Ok(false) };
        if let Err(error) = self.read_back(inode, &archived).await {
            // An archive that is busy, or stops, says nothing about the version.
            if !matches!(error, FileError::Damaged(_)) {
                return Err(error);
            }
            let _held = gate.write_owned().await;
            self.refresh().await?;
            let again = self.step(|core| {
                let (row, content) = core.content(inode)?;
                match row.open || row.links == 0 || content.epoch != epoch {
                    true => Ok(None),
                    false => Ok(Some(row.committed.is_none() || self.grows(&row))),
                }
            })?;
            return match again {
                // It is another version by now, or on its way out.
                None => Ok(false),
                Some(true) => self.reopen(inode).await.and(Err(error)),
                Some(false) => Err(error),
            };
        }
        let mut given = false;
        while self.evict_version(inode, Some(epoch)).await? {
            given = true;
        }
        Ok(given)
    }

    /// Reads a whole version, of which the archive verifies every byte.
    async fn read_back(&self, inode: u64, archived: &ArchivedRow) -> Result<()> {
        let version = VersionId::parse(&archived.version).map_err(|error| FileError::Damaged(error.to_string()))?;
        let request = GetRequest {
            bucket: self.name.clone(),
            key: key_of(inode),
            version: Some(version),
            ..GetRequest::default()
        };
        let mut reader = self.archive.get(&self.caller("reading"), request).await.map_err(|error| refused(&error))?;
        let mut length = 0;
        while let Some(piece) = reader.next().await {
            length += piece.map_err(|error| refused(&error))?.len() as u64;
        }
        match length == archived.size {
            true => Ok(()),
            false => Err(FileError::Damaged(format!(
                "version {} of inode {inode} in `{}` has {length} bytes, not {}",
                archived.version, self.name, archived.size
            ))),
        }
    }
}
