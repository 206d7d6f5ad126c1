//! Writing content: into slots of the cache volume, in place.
//!
//! A write of whole blocks shares the file's gate with others. One that changes a block in part has
//! it alone, since it reads the block before, and so has one that goes to the end of the file.
//! Bytes behind the end of a file are never seen: the block that holds the end is padded with zeros
//! whenever the file grows past it.
//!
//! Crash points of an unstable write:
//! 1. before the slot's record is saved: the slot is free again, the file is as it was;
//! 2. after an earlier save: blocks that the file had before hold the old bytes or the new ones. An
//!    archived file is marked as open, durably, before its first block changes, so that its version
//!    is never taken for its content.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Buf, Bytes, BytesMut};
use futures_channel::oneshot;
use futures_util::future::{Either, try_join_all};
use stele_media::{MediaError, Op, Priority};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard};

use super::Share;
use super::archiving::Waiting;
use super::core::{Core, Grown, Source, zeros};
use super::reading::broken;
use super::records::{ACTIVE, BLOCK, SLOT, inode_key};
use crate::files::{Changed, Stability};
use crate::model::{Caller, SIZE_MAX};
use crate::permission::may_write_content;
use crate::rules;
use crate::{Attributes, FileError, Inode, Result};

/// The gate of a file, held for one write.
enum Held {
    /// Beside other writes of whole blocks.
    Shared {
        _gate: OwnedRwLockReadGuard<()>,
    },
    Alone {
        _gate: OwnedRwLockWriteGuard<()>,
    },
}

/// The gate of a file, held by a write that may change blocks. A write whose caller went away
/// counts as a change when it leaves the gate: archiving may have read the blocks before.
struct Landing {
    /// `Content::landed`.
    landed: Arc<AtomicU64>,
    _held: Held,
}

impl Drop for Landing {
    fn drop(&mut self) {
        self.landed.fetch_add(1, Ordering::Relaxed);
    }
}

/// When a write to the cache volume is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Durable,
    /// When the volume has it.
    Written,
    /// When reads see it, and what the volume makes durable later is durable only with it.
    Ordered,
}

/// What a write finds under the file's gate.
enum Place {
    /// The file is another than before the wait for the gate.
    Other,
    Full,
    /// Every slot is there. `pads`: the block that holds the present end has to be padded first.
    Here {
        size_now: u64,
        pads: bool,
        answer: Answer,
        landed: Arc<AtomicU64>,
    },
}

/// Bytes before the end of a file that can only grow, in which writes that were sent earlier may
/// still arrive, unless they are archived.
const LATE_MAX: u64 = 8 << 20;
/// Unstable writes of a share that may be answered and not durable; further ones are answered when
/// they are.
pub(super) const BEHIND_MAX: usize = 128;
/// How often an append that is in the file tries to become durable, and between two attempts.
const SETTLES_MAX: usize = 200;
const SETTLE_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);
/// Times that a write tries anew after the file was archived.
const ATTEMPTS: usize = 64;

impl Share {
    /// `place`: where the data goes; None is the end that the file has under its gate.
    pub(super) async fn write_content(
        &self,
        caller: &Caller,
        inode: Inode,
        place: Option<u64>,
        mut data: Vec<Bytes>,
        stability: Stability,
    ) -> Result<(Changed, Stability)> {
        let length: u64 = data.iter().map(|piece| piece.len() as u64).sum();
        let end_from = |offset: u64| offset.checked_add(length).filter(|end| *end <= SIZE_MAX);
        let (appends, mut offset) = (place.is_none(), place.unwrap_or_default());
        let mut end = end_from(offset);
        let forced = stability != Stability::Unstable || self.bypasses();
        let (mut waiting, mut attempts) = (Waiting::default(), 0);
        while attempts < ATTEMPTS {
            attempts += 1;
            // Where a caller went away, a row may look open whose transaction failed.
            self.refresh().await?;
            if appends {
                offset = self.step(|core| Ok(core.living(inode)?.size))?;
                end = end_from(offset);
            }
            if end != Some(offset)
                && let Some(archived) = self.step(|core| core.repeated(inode.0, offset))?
            {
                self.skip_repeated(caller, inode, archived, &mut offset, &mut data).await?;
                if end == Some(offset) {
                    // All of it is archived.
                    let found = self.step(|core| self.writable(core, caller, inode, u64::MAX))?;
                    return Ok((Changed { before: found.clone(), after: found }, Stability::File));
                }
                continue;
            }
            let (found, open, gate) = self.step(|core| {
                let found = self.writable(core, caller, inode, offset)?;
                let (row, content) = core.content(inode.0)?;
                Ok((found, row.open, Arc::clone(&content.gate)))
            })?;
            let end = end.ok_or(FileError::TooLarge)?;
            let size = found.size;
            if length == 0 {
                return Ok((Changed { before: found.clone(), after: found }, Stability::File));
            }
            // Opened before there is room, the file would be archived again meanwhile.
            if !open
                && !self.step(|core| core.has_room(inode.0, offset / BLOCK * BLOCK, end.next_multiple_of(BLOCK)))?
            {
                attempts -= 1;
                self.wait_for_room(&mut waiting).await?;
                continue;
            }
            if !open {
                // Alone: others see the row as open before it is durable, and write once they have
                // the gate.
                let _held = gate.write_owned().await;
                let still = self.step(|core| {
                    if core.repeated(inode.0, offset)?.is_some() {
                        return Ok(false);
                    }
                    self.writable(core, caller, inode, offset)?;
                    Ok(!core.content(inode.0)?.0.open)
                })?;
                if still {
                    self.reopen(inode.0).await?;
                }
                continue;
            }
            let whole = offset.is_multiple_of(BLOCK) && end.is_multiple_of(BLOCK);
            // A file whose end is within a block that is not written over grows past bytes that may
            // be no zeros.
            let clean = size.is_multiple_of(BLOCK) || offset <= size / BLOCK * BLOCK || end <= size;
            let held = match whole && clean && !appends {
                true => Held::Shared { _gate: gate.read_owned().await },
                false => Held::Alone { _gate: gate.write_owned().await },
            };
            // Looked at again under the gate: it may have been archived, truncated or committed
            // meanwhile.
            let mut range = (offset, end);
            let place = self.step(|core| {
                if appends {
                    let at = core.living(inode)?.size;
                    range = (at, end_from(at).ok_or(FileError::TooLarge)?);
                }
                let (offset, end) = range;
                if core.repeated(inode.0, offset)?.is_some() {
                    return Ok(Place::Other);
                }
                let size_now = self.writable(core, caller, inode, offset)?.size;
                let still = core.content(inode.0)?.0.open && !core.view.is_stale();
                if !still || (size_now != size && matches!(held, Held::Shared { .. }) && size_now < offset) {
                    return Ok(Place::Other);
                }
                let first = if size_now < offset { size_now / BLOCK * BLOCK } else { offset / BLOCK * BLOCK };
                let pads = size_now < offset && !size_now.is_multiple_of(BLOCK) && first / BLOCK != offset / BLOCK;
                let room = (!pads || core.allocate(inode.0, first, first + BLOCK)?)
                    && core.allocate(inode.0, offset / BLOCK * BLOCK, end.next_multiple_of(BLOCK))?;
                if !room {
                    // No one can make room for a file without a name: it is never archived.
                    return if core.slots.refuses(inode.0) { Err(FileError::NoSpace) } else { Ok(Place::Full) };
                }
                // Blocks may change from here on, also where the write fails: what archiving has
                // read is not the content.
                core.content(inode.0)?.1.generation += 1;
                let answer = self.answer(core, inode.0, (offset, end), forced)?;
                let at = self.surroundings.now().monotonic;
                core.activate(inode.0, at);
                let landed = Arc::clone(&core.content(inode.0)?.1.landed);
                Ok(Place::Here { size_now, pads, answer, landed })
            })?;
            let (offset, end) = range;
            let (size_now, pads, answer, landed) = match place {
                Place::Here { size_now, pads, answer, landed } => (size_now, pads, answer, landed),
                Place::Other => continue,
                Place::Full => {
                    drop(held);
                    attempts -= 1;
                    self.wait_for_room(&mut waiting).await?;
                    continue;
                }
            };
            let is_alone = matches!(held, Held::Alone { .. });
            let held = Arc::new(Landing { landed, _held: held });
            if pads && is_alone {
                self.pad(inode.0, size_now, Arc::clone(&held)).await?;
            }
            let (start, data) = match is_alone {
                true => self.complete(inode.0, offset, data, size_now).await?,
                false => (offset, data),
            };
            let blocks = self.store(inode.0, start, data, answer, Arc::clone(&held)).await?;
            // One step, so that no block behind the end is recorded before the end is. And both
            // answers are of it: a client that sees its own changes alone between them keeps what
            // it has cached.
            let changed = self.step(|core| {
                let before = core.attributes(inode.0)?;
                let stored = core.content(inode.0)?.1.validate(start, start + blocks);
                let after = self.grow(core, caller, inode, end, stored)?;
                Ok(Changed { before, after })
            })?;
            drop(held);
            if !forced {
                return Ok((changed, Stability::Unstable));
            }
            match appends {
                true => Box::pin(self.settle_appended(inode.0)).await?,
                false => self.settle(inode.0, true).await?,
            }
            return Ok((changed, Stability::File));
        }
        Err(FileError::Retry("the file is archived again and again while it is written; try again".into()))
    }

    /// As `settle`, for bytes that are at the end of the file already: a caller that is asked to
    /// come again would append them once more.
    async fn settle_appended(&self, inode: u64) -> Result<()> {
        for _ in 0..SETTLES_MAX {
            match self.settle(inode, true).await {
                Err(FileError::Retry(_)) => tokio::time::sleep(SETTLE_PAUSE).await,
                settled => return settled,
            }
        }
        Err(FileError::Damaged("the file has what was appended, and it could not be made durable".into()))
    }

    /// When a write of whole blocks is answered. Small unstable ones are answered early, since a
    /// commit makes them durable. What goes on where the last write ended is not: the volume holds
    /// such pieces back, and writes them together.
    fn answer(&self, core: &mut Core, inode: u64, (start, end): (u64, u64), forced: bool) -> Result<Answer> {
        let content = core.content(inode)?.1;
        let goes_on = std::mem::replace(&mut content.written_to, end) == start;
        let early = end - start < SLOT && !goes_on && self.behind.load(Ordering::Relaxed) < BEHIND_MAX;
        Ok(match forced {
            true => Answer::Durable,
            false if early => Answer::Ordered,
            false => Answer::Written,
        })
    }

    /// Takes archived bytes of a file that can only grow out of a write, where the write repeats
    /// them as they are. Clients send whole pages: an append begins where its page begins. The rest
    /// is judged as a write of its own. A caller who may not read the file learns nothing of it.
    async fn skip_repeated(
        &self,
        caller: &Caller,
        inode: Inode,
        archived: u64,
        offset: &mut u64,
        data: &mut Vec<Bytes>,
    ) -> Result<()> {
        let length: usize = data.iter().map(Bytes::len).sum();
        let mut left = usize::try_from(archived - *offset).map_or(length, |most| most.min(length));
        let present = match u32::try_from(left) {
            Ok(left) => self.read_content(caller, inode, *offset, left).await,
            Err(_) => Err(FileError::Denied),
        };
        let pieces = match present {
            Ok(present) => present.pieces,
            Err(FileError::Denied) => Vec::new(),
            Err(error) => return Err(error),
        };
        if !pieces.iter().flatten().eq(data.iter().flatten().take(left)) {
            return Err(FileError::ReadOnly("the file is committed; it can only grow".into()));
        }
        *offset += left as u64;
        for piece in data.iter_mut() {
            let part = left.min(piece.len());
            piece.advance(part);
            left -= part;
        }
        data.retain(|piece| !piece.is_empty());
        Ok(())
    }

    /// The attributes of a file that the caller may write to.
    fn writable(&self, core: &mut Core, caller: &Caller, inode: Inode, offset: u64) -> Result<Attributes> {
        let attributes = core.living(inode)?;
        let (row, _) = core.content(inode.0)?;
        if row.committed.is_some() && !self.grows(&row) {
            return Err(FileError::ReadOnly(match row.appends() {
                true => "the retention of the file has ended; it can grow only after an extension".into(),
                false => "the file is committed; its content cannot change".into(),
            }));
        }
        if row.appends() && offset < row.served().max(attributes.size.saturating_sub(LATE_MAX)) {
            return Err(FileError::ReadOnly("the file is committed; it can only grow".into()));
        }
        may_write_content(caller, &attributes)?;
        Ok(attributes)
    }

    /// Marks an archived file as open, durably, before its content changes. By a caller that has
    /// the file's gate alone.
    pub(super) async fn reopen(&self, inode: u64) -> Result<()> {
        self.locked().end_slack(inode);
        self.change(|change, _| {
            let mut row = change.row(inode)?;
            if row.committed.is_some() && !self.grows(&row) {
                return Err(FileError::ReadOnly("the file is committed; its content cannot change".into()));
            }
            row.open = true;
            row.lags = None;
            change.put_bytes(ACTIVE, inode_key(change.share(), inode), Bytes::new());
            change.put_row(inode, row);
            Ok(())
        })
        .await?;
        self.note_active(inode)
    }

    /// Zeros behind the end of the file, in the block that holds the end, before the file grows
    /// past it.
    pub(super) async fn pad<G: Send + Sync + 'static>(&self, inode: u64, size: u64, held: Arc<G>) -> Result<()> {
        let first = size / BLOCK * BLOCK;
        let (start, data) = self.complete(inode, first, Vec::new(), size).await?;
        let length = self.store(inode, start, data, Answer::Written, held).await?;
        self.step(|core| {
            core.content(inode)?.1.validate(start, start + length);
            Ok(())
        })
    }

    /// Makes whole blocks of data that covers some in part: with what the file has there, and zeros
    /// behind its end.
    async fn complete(&self, inode: u64, offset: u64, data: Vec<Bytes>, size: u64) -> Result<(u64, Vec<Bytes>)> {
        let length: u64 = data.iter().map(|piece| piece.len() as u64).sum();
        let (start, end) = (offset / BLOCK * BLOCK, (offset + length).max(offset + 1).next_multiple_of(BLOCK));
        let mut whole = Vec::with_capacity(data.len() + 2);
        if start < offset || length == 0 {
            let until = if length == 0 { end } else { offset };
            whole.extend(self.present(inode, start, until, size).await?);
        }
        whole.extend(data);
        if length > 0 && offset + length < end {
            whole.extend(self.present(inode, offset + length, end, size).await?);
        }
        Ok((start, whole))
    }

    /// What the file has in a range of one block, and zeros behind its end. Under the gate.
    async fn present(&self, inode: u64, start: u64, end: u64, size: u64) -> Result<Vec<Bytes>> {
        let until = size.clamp(start, end);
        let (parts, row) = self.step(|core| {
            let (row, content) = core.content(inode)?;
            Ok((content.parts(start, until, row.served()), row))
        })?;
        let mut pieces = Vec::new();
        for part in parts {
            match (part.source, &row.archived) {
                (Source::Cache(at), _) => pieces.extend(self.read_cache(at, part.end - part.start).await?),
                (Source::Archive, Some(archived)) => {
                    pieces.push(self.read_archived(inode, archived, part.start, part.end).await?);
                }
                _ => pieces.push(zeros(part.end - part.start)),
            }
        }
        if until < end {
            pieces.push(zeros(end - until));
        }
        Ok(pieces)
    }

    /// Writes whole blocks into their slots. The gate stays held until the volume has answered, or
    /// ordered the write, also where the caller goes away: a late write into a slot of another file
    /// would be damage.
    /// Answers the bytes; they count once the caller says that they are valid.
    async fn store<G: Send + Sync + 'static>(
        &self,
        inode: u64,
        start: u64,
        data: Vec<Bytes>,
        answer: Answer,
        held: Arc<G>,
    ) -> Result<u64> {
        let length: u64 = data.iter().map(|piece| piece.len() as u64).sum();
        assert!(start.is_multiple_of(BLOCK) && length.is_multiple_of(BLOCK), "whole blocks are stored");
        let end = start + length;
        // Neighbouring slots are one write.
        let runs = self.step(|core| {
            let content = core.content(inode)?.1;
            let mut runs: Vec<(u64, u64)> = Vec::new();
            let mut at = start;
            while at < end {
                let until = (at / SLOT * SLOT + SLOT).min(end);
                let place = content.slot(at / SLOT).place;
                assert_ne!(place, 0, "a block is written without a slot");
                let on = (place - 1) * SLOT + at % SLOT;
                match runs.last_mut() {
                    Some((first, length)) if *first + *length == on => *length += until - at,
                    _ => runs.push((on, until - at)),
                }
                at = until;
            }
            Ok(runs)
        })?;
        let mut data = data.into_iter();
        let mut left = data.next().unwrap_or_default();
        let writes = runs.into_iter().map(|(at, length)| {
            let mut pieces = Vec::new();
            let mut missing = length as usize;
            while missing > 0 {
                while left.is_empty() {
                    left = data.next().unwrap_or_default();
                }
                let piece = left.split_to(missing.min(left.len()));
                missing -= piece.len();
                pieces.push(piece);
            }
            match answer {
                Answer::Ordered => Either::Left(self.write_behind(at, pieces, Arc::clone(&held))),
                answer => Either::Right(self.write_cache(at, pieces, answer == Answer::Durable, Arc::clone(&held))),
            }
        });
        try_join_all(writes.collect::<Vec<_>>()).await?;
        Ok(length)
    }

    /// As `write_cache`, answered when the write has its place in the volume's order.
    fn write_behind<G: Send + Sync + 'static>(
        &self,
        at: u64,
        pieces: Vec<Bytes>,
        held: Arc<G>,
    ) -> impl Future<Output = Result<()>> + Send + use<G> {
        let (order, ordered) = oneshot::channel();
        let (sender, receiver) = oneshot::channel();
        let behind = Arc::clone(&self.behind);
        behind.fetch_add(1, Ordering::Relaxed);
        let said = Box::new(move || {
            drop(held);
            let _ = order.send(());
        });
        let done = Box::new(move |_, result: std::result::Result<(), MediaError>| {
            behind.fetch_sub(1, Ordering::Relaxed);
            // Where it was answered already, the log has stopped, and so a commit fails as well.
            drop(sender.send(result));
        });
        let op = Op::Write { at, data: aligned(pieces), fua: false };
        self.cache.submit_ordered(op, Priority::Host, said, done);
        async move {
            match ordered.await {
                Ok(()) => Ok(()),
                Err(_) => answered(receiver).await,
            }
        }
    }

    /// One write to the cache volume, with what it keeps alive. `forced`: durable when it is
    /// answered.
    pub(super) fn write_cache<G: Send + Sync + 'static>(
        &self,
        at: u64,
        pieces: Vec<Bytes>,
        forced: bool,
        held: Arc<G>,
    ) -> impl Future<Output = Result<()>> + Send + use<G> {
        let (sender, receiver) = oneshot::channel();
        let data = aligned(pieces);
        let done = Box::new(move |_, result| {
            drop(sender.send(result));
            drop(held);
        });
        self.cache.submit(Op::Write { at, data, fua: forced }, Priority::Host, done);
        answered(receiver)
    }

    /// The file shows what was written.
    fn grow(&self, core: &mut Core, caller: &Caller, inode: Inode, end: u64, stored: u64) -> Result<Attributes> {
        let now = core.now(self.stamp());
        let size = core.attributes(inode.0)?.size;
        let (row, content) = core.content(inode.0)?;
        let drops = rules::mode_after_write(caller, row.mode) != row.mode;
        let grown =
            content.grown.get_or_insert(Grown { size, modified: now, writes: 0, stored: 0, without_set_id: false });
        grown.size = grown.size.max(end);
        grown.modified = now;
        grown.writes += 1;
        grown.without_set_id |= drops;
        grown.stored += stored;
        content.generation += 1;
        let at = self.surroundings.now().monotonic;
        core.activate(inode.0, at);
        core.attributes(inode.0)
    }
}

impl Core {
    /// Up to where a file that can only grow is archived, if a write begins before that.
    fn repeated(&mut self, inode: u64, offset: u64) -> Result<Option<u64>> {
        self.living(Inode(inode))?;
        let row = self.content(inode)?.0;
        Ok(Some(row.served()).filter(|archived| row.appends() && offset < *archived))
    }
}

/// What the cache volume has answered.
async fn answered(receiver: oneshot::Receiver<std::result::Result<(), MediaError>>) -> Result<()> {
    match receiver.await {
        Ok(result) => result.map_err(|error| broken(&error)),
        Err(_) => Err(FileError::Stopped("the cache volume's server has stopped".into())),
    }
}

/// Drives take pieces of whole sectors; a piece that is none is copied together with its
/// neighbours.
fn aligned(pieces: Vec<Bytes>) -> Vec<Bytes> {
    if pieces.iter().all(|piece| (piece.len() as u64).is_multiple_of(BLOCK)) {
        return pieces;
    }
    let length = pieces.iter().map(Bytes::len).sum();
    let mut whole = BytesMut::with_capacity(length);
    for mut piece in pieces {
        while piece.has_remaining() {
            let part = piece.split_to(piece.len());
            whole.extend_from_slice(&part);
        }
    }
    vec![whole.freeze()]
}
