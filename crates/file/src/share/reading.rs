//! Reading content: from the cache, from the archived version, or zeros.
//!
//! Content of the archive is verified there before a byte of it comes here. It is kept in the cache
//! where there is room.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use futures_util::future::{BoxFuture, try_join_all};
use stele_archive::{ByteRange, GetRequest, VersionId};
use stele_media::MediaError;

use super::Share;
use super::core::{Part, Source, zeros};
use super::records::{ArchivedRow, BLOCK, GROUP, InodeRow, SLOT};
use crate::files::Data;
use crate::model::Caller;
use crate::permission::may_read_content;
use crate::{FileError, Inode, Result};

/// Bytes that a miss fetches from the archive at once: one group.
pub const READ_AHEAD: u64 = SLOT * GROUP;
/// A piece that is less than this part of its buffer is copied out of it.
const COPIED_BELOW: u64 = 4;
/// Times that a read looks anew, because content was evicted in between, before it asks its client
/// to.
const ATTEMPTS: usize = 16;

/// Content that was fetched and may not have found room in the cache.
struct Fetched {
    start: u64,
    bytes: Bytes,
    epoch: u64,
}

impl Share {
    pub(super) async fn read_content(&self, caller: &Caller, inode: Inode, offset: u64, length: u32) -> Result<Data> {
        let mut fetched: Option<Fetched> = None;
        for _ in 0..ATTEMPTS {
            let gate = self.step(|core| {
                let attributes = core.living(inode)?;
                let (_, content) = core.content(inode.0)?;
                may_read_content(caller, &attributes)?;
                if fetched.is_none() {
                    content.note_read(offset, offset.saturating_add(u64::from(length)));
                }
                Ok(Arc::clone(&content.gate))
            })?;
            let held = gate.read_owned().await;
            // The row names no version that the archive does not show.
            self.refresh().await?;
            let (size, parts, row, epoch) = self.step(|core| {
                let size = core.attributes(inode.0)?.size;
                let end = offset.saturating_add(u64::from(length)).min(size);
                core.load(inode.0, offset.min(end), end)?;
                let (row, content) = core.content(inode.0)?;
                let epoch = content.epoch;
                Ok((size, content.parts(offset, end, row.served()), row, epoch))
            })?;
            fetched = fetched.filter(|fetched| fetched.epoch == epoch);
            let Some(end) = parts.last().map(|part| part.end) else {
                return Ok(Data { pieces: Vec::new(), end: offset >= size });
            };
            if fetched.is_none() {
                self.counters.read(&parts);
            }
            let missing = parts.iter().find(|part| {
                let here = |fetched: &Fetched| {
                    part.start >= fetched.start && part.end <= fetched.start + fetched.bytes.len() as u64
                };
                part.source == Source::Archive && !fetched.as_ref().is_some_and(here)
            });
            if let Some(missing) = missing {
                let start = missing.start;
                let wanted = parts.iter().filter(|part| part.source == Source::Archive).map(|part| part.end).max();
                drop(held);
                match self.fetch(inode.0, &row, start, wanted.unwrap_or(start), epoch).await {
                    Ok(found) => fetched = Some(found),
                    // The version was replaced while it was read: the file is looked at anew.
                    Err(FileError::Damaged(_)) if self.epoch(inode.0) != Some(epoch) => {}
                    Err(error) => return Err(error),
                }
                continue;
            }
            let pieces = match parts.as_slice() {
                [Part { source: Source::Cache(at), start, end }] => self.read_cache(*at, end - start).await?,
                parts => self.join(parts, fetched.as_ref()).await?,
            };
            drop(held);
            return Ok(Data { pieces, end: end >= size });
        }
        Err(FileError::Retry("the cache is too full to hold what is read; try again".into()))
    }

    /// Pieces of several kinds, side by side.
    async fn join(&self, parts: &[Part], fetched: Option<&Fetched>) -> Result<Vec<Bytes>> {
        let pieces = try_join_all(parts.iter().map(|part| async {
            match (part.source, fetched) {
                (Source::Cache(at), _) => self.read_cache(at, part.end - part.start).await,
                (Source::Archive, Some(fetched)) => {
                    let (from, to) = (part.start - fetched.start, part.end - fetched.start);
                    Ok(vec![frugal(fetched.bytes.slice(from as usize..to as usize), fetched.bytes.len() as u64)])
                }
                _ => Ok(vec![zeros(part.end - part.start)]),
            }
        }))
        .await?;
        Ok(pieces.into_iter().flatten().collect())
    }

    /// Bytes of the cache volume, at any offset; pieces of the volume's own memory.
    pub(super) async fn read_cache(&self, at: u64, length: u64) -> Result<Vec<Bytes>> {
        let first = at / BLOCK * BLOCK;
        let end = (at + length).next_multiple_of(BLOCK);
        let mut pieces = self.cache.view(first, end - first).await.map_err(|error| broken(&error))?;
        cut(&mut pieces, at - first, length);
        Ok(pieces.into_iter().map(|piece| frugal(piece, BLOCK)).collect())
    }

    /// Fetches whole slots around a range, and keeps them in the cache where there is room. Where
    /// the cache is off, the range alone.
    async fn fetch(&self, inode: u64, row: &InodeRow, start: u64, end: u64, epoch: u64) -> Result<Fetched> {
        let Some(archived) = &row.archived else {
            return Err(FileError::Retry("the file has changed; try again".into()));
        };
        if self.bypasses() {
            let bytes = self.read_archived(inode, archived, start, end.min(archived.used)).await?;
            return Ok(Fetched { start, bytes, epoch });
        }
        let first = start / SLOT * SLOT;
        let end = end.max(first + READ_AHEAD).next_multiple_of(SLOT).min(archived.used);
        let bytes = self.read_archived(inode, archived, first, end).await?;
        match self.keep(inode, epoch, first, &bytes).await {
            Ok(()) => {}
            Err(error @ (FileError::Stale | FileError::Stopped(_))) => return Err(error),
            // The cache is a convenience of reads: what the archive has verified is answered
            // without it.
            Err(error) => {
                tracing::debug!(share = %self.name, inode, %error, "what was read from the archive is not kept in the cache");
            }
        }
        Ok(Fetched { start: first, bytes, epoch })
    }

    pub(super) fn epoch(&self, inode: u64) -> Option<u64> {
        self.step(|core| Ok(core.contents.get(&inode).map(|content| content.epoch))).unwrap_or_default()
    }

    /// A range of an archived version. A boxed future: most reads and writes find what they need in
    /// the cache, and carry no state of this one.
    pub(super) fn read_archived<'a>(
        &'a self,
        inode: u64,
        row: &'a ArchivedRow,
        start: u64,
        end: u64,
    ) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(self.read_version(inode, row, start, end))
    }

    async fn read_version(&self, inode: u64, row: &ArchivedRow, start: u64, end: u64) -> Result<Bytes> {
        let version = VersionId::parse(&row.version).map_err(|error| FileError::Damaged(error.to_string()))?;
        let request = GetRequest {
            bucket: self.name.clone(),
            key: key_of(inode),
            version: Some(version),
            range: ByteRange::From { first: start, last: Some(end - 1) },
            ..GetRequest::default()
        };
        let mut reader = self.archive.get(&self.caller("reading"), request).await.map_err(|error| refused(&error))?;
        let mut bytes = Vec::with_capacity((end - start) as usize);
        while let Some(piece) = reader.next().await {
            bytes.extend_from_slice(&piece.map_err(|error| refused(&error))?);
        }
        match bytes.len() as u64 == end - start {
            true => Ok(bytes.into()),
            false => Err(FileError::Damaged(format!(
                "version {} of inode {inode} in `{}` ended {} bytes early",
                row.version,
                self.name,
                end - start - bytes.len() as u64
            ))),
        }
    }

    /// Puts fetched content into the cache. Blocks that were written meanwhile stay as they are.
    pub(super) async fn keep(&self, inode: u64, epoch: u64, start: u64, bytes: &Bytes) -> Result<()> {
        let end = start + bytes.len() as u64;
        let gate = self.step(|core| Ok(Arc::clone(&core.content(inode)?.1.gate)))?;
        let held = Arc::new(gate.write_owned().await);
        let parts = self.step(|core| {
            let (row, content) = core.content(inode)?;
            // Another version, or less of it: what was fetched is of no use to later readers.
            if content.epoch != epoch || row.served() < end {
                return Ok(Vec::new());
            }
            if !core.allocate(inode, start, end)? {
                return Ok(Vec::new());
            }
            let (row, content) = core.content(inode)?;
            let missing: Vec<_> = content.parts(start, end, row.served());
            Ok(missing
                .into_iter()
                .filter(|part| part.source == Source::Archive)
                .map(|part| (part, content.slot(part.start / SLOT).place))
                .collect())
        })?;
        for (part, _) in &parts {
            // A part lies in one slot or in several; each slot is written by itself.
            let mut at = part.start;
            while at < part.end {
                let until = (at / SLOT * SLOT + SLOT).min(part.end);
                let (from, to) = ((at - start) as usize, (until - start) as usize);
                let place = self.step(|core| Ok(core.content(inode)?.1.slot(at / SLOT).place))?;
                let whole = until.next_multiple_of(BLOCK) - until;
                let mut data = vec![bytes.slice(from..to)];
                if whole > 0 {
                    data.push(zeros(whole));
                }
                self.write_cache((place - 1) * SLOT + at % SLOT, data, false, Arc::clone(&held)).await?;
                self.step(|core| {
                    core.content(inode)?.1.validate(at, until);
                    Ok(())
                })?;
                at = until;
            }
        }
        Ok(())
    }
}

impl InodeRow {
    /// Bytes from the start that the archived version serves.
    pub(super) fn served(&self) -> u64 {
        self.archived.as_ref().map_or(0, |archived| archived.used)
    }
}

/// A piece that keeps alive at most `COPIED_BELOW` times its own length, out of a buffer of `whole`
/// bytes: a protocol may keep it for as long as its client takes to read the answer.
fn frugal(piece: Bytes, whole: u64) -> Bytes {
    match (piece.len() as u64) * COPIED_BELOW < whole {
        true => Bytes::copy_from_slice(&piece),
        false => piece,
    }
}

/// Leaves `length` bytes from `skip` on.
fn cut(pieces: &mut Vec<Bytes>, mut skip: u64, mut length: u64) {
    pieces.retain_mut(|piece| {
        let passed = skip.min(piece.len() as u64);
        piece.advance(passed as usize);
        skip -= passed;
        piece.truncate((length as usize).min(piece.len()));
        length -= piece.len() as u64;
        !piece.is_empty()
    });
}

/// The archive's key of a file.
pub fn key_of(inode: u64) -> String {
    format!("{inode:016x}")
}

/// The file that has this key.
pub fn inode_of(key: &str) -> Option<u64> {
    u64::from_str_radix(key, 16).ok().filter(|inode| key_of(*inode) == key)
}

pub(super) fn broken(error: &MediaError) -> FileError {
    use stele_media::MediaFault;
    match error.fault {
        MediaFault::Full => FileError::NoSpace,
        MediaFault::Retry => FileError::Retry(error.to_string()),
        _ => FileError::Damaged(format!("the cache volume: {error}")),
    }
}

pub(super) fn refused(error: &stele_archive::ArchiveError) -> FileError {
    use stele_archive::ArchiveError;
    match error {
        ArchiveError::NoSpace(_) => FileError::NoSpace,
        ArchiveError::QuotaExceeded { .. } => FileError::OverQuota,
        ArchiveError::Retained { message, .. } => FileError::ReadOnly(message.clone()),
        ArchiveError::TooLarge { .. } => FileError::TooLarge,
        ArchiveError::InvalidArgument(message)
        | ArchiveError::InvalidRequest(message)
        | ArchiveError::NoSuchThing(message) => FileError::Invalid(message.clone()),
        ArchiveError::ReadOnly(message) => FileError::ReadOnly(message.clone()),
        ArchiveError::Busy(message) | ArchiveError::Conflict(message) => FileError::Retry(message.clone()),
        ArchiveError::Stopped(message) => FileError::Stopped(message.clone()),
        other => FileError::Damaged(format!("the archive: {other}")),
    }
}
