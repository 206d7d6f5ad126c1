//! The journal: a ring of batches. Each batch is forced before any transaction in it is
//! acknowledged.
//!
//! A batch is a header, its changes, and zeros up to a whole block. Its digest is a BLAKE3 over all
//! of that and over the digest of the previous batch. A batch therefore counts only as the
//! successor of its predecessor, and remains of an earlier round of the ring can never be mistaken
//! for it. Batches are written one at a time, so only the last may be torn. A batch that does not
//! verify although a valid one follows is damage, which is reported and not skipped.
//!
//! A batch that does not fit before the ring's end starts at the ring's beginning.

use bytes::Bytes;
use stele_ground::MIB;
use stele_media::{Buffer, Handle, MediaError, Op, Shared};

use super::area::{force, retried};
use super::fault::of_media;
use super::layout::{BLOCK, Layout};
use super::memtable::Changes;
use crate::transaction::CHANGE_BYTES;
use crate::{CatalogError, KEY_MAX, Table, VALUE_MAX};

const MAGIC: &[u8; 8] = b"STELEJNL";
const HEADER: usize = 128;
const DIGESTED: usize = 80;
/// The length that marks a deletion.
const DELETED: u32 = u32::MAX;
/// Largest number of payload bytes in a batch: a group of transactions, and one more of the largest
/// size.
pub(crate) const BATCH_MAX: usize = 10 * MIB as usize;

/// The position of the next batch, and its predecessor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// Number of the batch; the first batch of a catalog is 1.
    pub sequence: u64,
    /// Bytes from the start of the ring.
    pub at: u64,
    /// The digest of the previous batch; for the first batch, the catalog's id and zeros.
    pub previous: [u8; 32],
}

impl Position {
    pub fn first(id: &[u8; 16]) -> Position {
        let mut previous = [0; 32];
        previous[..16].copy_from_slice(id);
        Position { sequence: 1, at: 0, previous }
    }
}

pub(crate) struct Journal {
    handle: Handle,
    id: [u8; 16],
    at: u64,
    length: u64,
    pub next: Position,
    /// Bytes ever written, including the gaps at the ring's end. The difference to the checkpoint's
    /// value is in use.
    pub written: u64,
}

/// A batch read back.
#[derive(Debug, PartialEq, Eq)]
pub struct Read {
    pub sequence: u64,
    pub commit: u64,
    pub changes: Changes,
    pub digest: [u8; 32],
    /// Its bytes on the volume.
    pub length: u64,
}

impl Journal {
    pub fn new(handle: &Handle, layout: &Layout, next: Position) -> Journal {
        Journal {
            handle: handle.clone(),
            id: layout.id,
            at: layout.journal_at,
            length: layout.journal,
            next,
            written: 0,
        }
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    /// The position for a batch of this length, and the bytes of the ring that it takes, with a gap
    /// before it.
    fn place(&self, length: u64) -> (u64, u64) {
        if self.next.at + length > self.length {
            (0, self.length - self.next.at + length)
        } else {
            (self.next.at, length)
        }
    }

    /// Bytes of the ring that the batch would take now.
    pub fn need(&self, batch: &[u8]) -> u64 {
        self.place(batch.len() as u64).1
    }

    /// Writes a batch made by [`encode`] for the next position. The caller has checked the space.
    pub fn append(&mut self, batch: &[u8], digest: [u8; 32]) -> Result<(), CatalogError> {
        let (at, data) = self.lay(batch);
        // Forced: every acknowledgement of a commit depends on this write.
        force(&self.handle, at, data).map_err(|error| self.failed(batch, &error))?;
        self.pass(batch, digest);
        Ok(())
    }

    /// The forced write of such a batch. Once it is durable, the journal has to [`Self::pass`] it.
    pub fn forced(&self, batch: &[u8]) -> Op {
        let (at, data) = self.lay(batch);
        Op::Write { at, data: vec![data], fua: true }
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The batch's place on the volume, and its bytes for the drives.
    fn lay(&self, batch: &[u8]) -> (u64, Shared) {
        let length = batch.len() as u64;
        let (at, _) = self.place(length);
        assert!(at + length <= self.length, "a batch stays within the journal");
        assert!(claimed(batch, &self.id) == Some(length), "a reader takes the batch for one");
        (self.at + at, Buffer::copy_of(batch).freeze())
    }

    /// The batch is durable.
    pub fn pass(&mut self, batch: &[u8], digest: [u8; 32]) {
        let length = batch.len() as u64;
        let (at, need) = self.place(length);
        assert!(sequence(batch) == self.next.sequence, "batches become durable in order");
        self.advance(at, length, digest);
        self.written += need;
    }

    /// The batch could not be written.
    pub fn failed(&self, batch: &[u8], error: &MediaError) -> CatalogError {
        let place = self.at + self.place(batch.len() as u64).0;
        let number = self.next.sequence;
        CatalogError::Stopped(format!("batch {number} of the journal could not be written at byte {place}: {error}"))
    }

    fn advance(&mut self, at: u64, length: u64, digest: [u8; 32]) {
        // At the very end of the ring, the next batch finds no space and starts at the beginning.
        self.next = Position { sequence: self.next.sequence + 1, at: at + length, previous: digest };
    }

    /// Reads the batch at the next position and advances past it; `None` at the journal's end.
    pub fn replay(&mut self) -> Result<Option<Read>, CatalogError> {
        for at in [self.next.at, 0] {
            if let Some(read) = self.read(at)?
                && read.sequence == self.next.sequence
            {
                let need = if at == self.next.at { read.length } else { self.length - self.next.at + read.length };
                self.advance(at, read.length, read.digest);
                self.written += need;
                return Ok(Some(read));
            }
            if self.next.at == 0 {
                break;
            }
        }
        Ok(None)
    }

    fn read(&self, at: u64) -> Result<Option<Read>, CatalogError> {
        if at + BLOCK > self.length {
            return Ok(None);
        }
        let first = self.bytes(at, BLOCK)?;
        let Some(length) = claimed(&first, &self.id) else { return Ok(None) };
        if at + length > self.length {
            return Ok(None);
        }
        let rest = if length > BLOCK { Some(self.bytes(at, length)?) } else { None };
        decode(rest.as_deref().unwrap_or(&first), &self.id, Some(&self.next.previous))
    }

    fn bytes(&self, at: u64, length: u64) -> Result<Buffer, CatalogError> {
        let place = self.at + at;
        retried(&self.handle, || self.handle.read_blocking(place, length as usize))
            .map_err(|error| of_media(&format!("the journal cannot be read at byte {place} of the volume"), &error, ""))
    }

    /// After the last batch: searches the whole ring for a batch that would belong after it.
    pub fn check_end(&self) -> Result<(), CatalogError> {
        let mut at = 0;
        while at < self.length {
            let length = (self.length - at).min(4 * MIB);
            let part = self.bytes(at, length)?;
            for (index, block) in part.chunks_exact(BLOCK as usize).enumerate() {
                let here = at + index as u64 * BLOCK;
                let Some(length) = claimed(block, &self.id) else { continue };
                if sequence(block) <= self.next.sequence || here + length > self.length {
                    continue;
                }
                if let Some(later) = decode(&self.bytes(here, length)?, &self.id, None)? {
                    return Err(CatalogError::Damaged(format!(
                        "batch {} of the journal, expected at byte {} of the volume, does not verify, but batch {} \
                         after it does: acknowledged commits are unreadable; repair the volume, or rebuild the \
                         catalog from the data volume",
                        self.next.sequence,
                        self.at + self.next.at,
                        later.sequence
                    )));
                }
            }
            at += length;
        }
        Ok(())
    }
}

/// The bytes of a batch and its digest.
pub fn encode(id: &[u8; 16], position: &Position, commit: u64, changes: &Changes) -> (Vec<u8>, [u8; 32]) {
    let payload: usize = changes.iter().map(|((_, key), change)| CHANGE_BYTES + key.len() + length(change)).sum();
    let mut batch = Vec::with_capacity((HEADER + payload).next_multiple_of(BLOCK as usize));
    batch.extend_from_slice(MAGIC);
    batch.extend_from_slice(id);
    batch.extend_from_slice(&position.sequence.to_le_bytes());
    batch.extend_from_slice(&commit.to_le_bytes());
    batch.extend_from_slice(&(payload as u32).to_le_bytes());
    batch.extend_from_slice(&(changes.len() as u32).to_le_bytes());
    batch.extend_from_slice(&position.previous);
    assert_eq!(batch.len(), DIGESTED);
    batch.resize(HEADER, 0);
    for ((table, key), change) in changes {
        batch.extend_from_slice(&table.0.to_le_bytes());
        batch.extend_from_slice(&(key.len() as u32).to_le_bytes());
        batch.extend_from_slice(&change.as_ref().map_or(DELETED, |value| value.len() as u32).to_le_bytes());
        batch.extend_from_slice(key);
        batch.extend_from_slice(change.as_deref().unwrap_or_default());
    }
    let digest = digest(&batch);
    batch[DIGESTED..DIGESTED + 32].copy_from_slice(&digest);
    batch.resize(batch.len().next_multiple_of(BLOCK as usize), 0);
    (batch, digest)
}

fn length(change: &Option<Bytes>) -> usize {
    change.as_ref().map_or(0, Bytes::len)
}

fn digest(batch: &[u8]) -> [u8; 32] {
    let (header, payload) = batch.split_at(HEADER.min(batch.len()));
    let mut hasher = blake3::Hasher::new();
    hasher.update(header.get(..DIGESTED).unwrap_or(header)).update(payload);
    *hasher.finalize().as_bytes()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn sequence(block: &[u8]) -> u64 {
    block.get(24..32).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// The length on the volume that the block's header claims; `None` if it starts no batch of this
/// catalog.
fn claimed(block: &[u8], id: &[u8; 16]) -> Option<u64> {
    if !block.starts_with(MAGIC) || block.get(8..24)? != id {
        return None;
    }
    let payload = word(block, 40)? as usize;
    (payload <= BATCH_MAX).then(|| ((HEADER + payload) as u64).next_multiple_of(BLOCK))
}

/// Decodes a batch. Returns `None` if the bytes are not a whole batch of this catalog, or not the
/// successor of a given `previous`. Returns an error if the batch verifies but makes no sense.
pub fn decode(bytes: &[u8], id: &[u8; 16], previous: Option<&[u8; 32]>) -> Result<Option<Read>, CatalogError> {
    let Some(length) = claimed(bytes, id) else { return Ok(None) };
    let payload = word(bytes, 40).map_or(0, |length| length as usize);
    let (Some(batch), Some(stored)) = (bytes.get(..HEADER + payload), bytes.get(DIGESTED..DIGESTED + 32)) else {
        return Ok(None);
    };
    if bytes.get(48..80).is_none_or(|before| previous.is_some_and(|wanted| before != wanted)) || digest(batch) != stored
    {
        return Ok(None);
    }
    let entries = word(bytes, 44).unwrap_or(0);
    let nonsense = || {
        CatalogError::Damaged(format!(
            "batch {} of the journal verifies but cannot be read; use the build that wrote it",
            sequence(bytes)
        ))
    };
    let mut changes = Changes::new();
    let mut rest = batch.get(HEADER..).unwrap_or_default();
    for _ in 0..entries {
        let (place, change, left) = entry(rest).ok_or_else(nonsense)?;
        if changes.last_key_value().is_some_and(|(last, _)| *last >= place) {
            return Err(nonsense());
        }
        changes.insert(place, change);
        rest = left;
    }
    if !rest.is_empty() {
        return Err(nonsense());
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(stored);
    let commit = bytes.get(32..40).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
    Ok(Some(Read { sequence: sequence(bytes), commit, changes, digest, length }))
}

type Entry<'a> = ((Table, Bytes), Option<Bytes>, &'a [u8]);

fn entry(bytes: &[u8]) -> Option<Entry<'_>> {
    let (table, rest) = bytes.split_first_chunk::<2>()?;
    let table = Table(u16::from_le_bytes(*table));
    let (key, value) = (word(rest, 0)? as usize, word(rest, 4)?);
    let rest = rest.get(8..)?;
    if key > KEY_MAX || table.0 == u16::MAX {
        return None;
    }
    let (key, rest) = rest.split_at_checked(key)?;
    let place = (table, Bytes::copy_from_slice(key));
    if value == DELETED {
        return Some((place, None, rest));
    }
    if value as usize > VALUE_MAX {
        return None;
    }
    let (value, rest) = rest.split_at_checked(value as usize)?;
    Some((place, Some(Bytes::copy_from_slice(value)), rest))
}

#[cfg(test)]
mod tests;
