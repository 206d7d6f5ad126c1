//! The key table: a wrapped key for every object, in entries of fixed size that are overwritten in
//! place.
//!
//! An object exists as long as its entry. Zeros over the entry are the first step of its disposal.
//! Entries change in rounds: all changes requested during one round go with the next. A round reads
//! the blocks that it lacks, changes them, and writes them. The next round begins when these writes
//! are ordered (see `order`). Each requested change completes when it is also durable (`fua`).
//!
//! Failure model: a failed block fails the changes in it; the next round reads it again. While the
//! pool refuses to read it, its former entries are read from memory, since those are durable. Slots
//! in a block that cannot be read or written are not handed out. A block that a power cut tore
//! differs from its former content only in the changed entries, and each entry has a CRC. An entry
//! is destroyed only by a caller that names its object, so a wrong slot number cannot destroy
//! another object's key.

mod entry;
mod unreadable;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::lock::Mutex as AsyncMutex;
use stele_catalog::{Catalog, Transaction};
use stele_media::{Buffer, Handle, MediaError, MediaFault, Op, Priority, Shared};
use tokio::sync::oneshot;

use crate::cache::Cache;
use crate::model::error::{ArchiveError, Result};
use crate::record::segment::{SegmentRow, SegmentUse};
use crate::record::{SEGMENTS, encode, keys};
use crate::space::BLOCK;
use crate::space::header::{SegmentHeader, SegmentKind};
use crate::space::numbers::Numbers;
use crate::space::order::{self, Completion, Written};
use crate::space::segments::Segments;

pub(crate) use entry::{ENTRY, Entry};

/// The offset of the entries in a segment of the table, behind the superblock or the header.
pub(crate) const FIRST: u32 = 2 * BLOCK;
/// Blocks kept in memory, so that a round need not read the blocks of the last one.
const REMEMBERED: usize = 1024;

pub(crate) struct KeyTable {
    volume: Handle,
    catalog: Arc<dyn Catalog>,
    segments: Arc<Segments>,
    store: [u8; 16],
    /// Slots never used before.
    fresh: Numbers,
    /// Numbers for incarnations.
    numbers: Arc<Numbers>,
    state: Mutex<State>,
    extending: AsyncMutex<()>,
    /// Entries overwritten since the store was opened. Their former content may still be in the log
    /// of the pool below.
    destroyed: AtomicU64,
}

struct State {
    /// The table's segments in order.
    parts: Vec<u32>,
    /// Destroyed slots that are ready for use. Their rows in the table of free slots go when they
    /// are used.
    free: Vec<u64>,
    pending: BTreeMap<u64, Vec<Change>>,
    round: Option<Round>,
    remembered: Cache<u64, Shared>,
    /// Blocks whose last write failed, as they were before it.
    former: Cache<u64, Shared>,
    /// Blocks that were read or written lately.
    usable: Cache<u64, ()>,
    /// Blocks that could not be read or written. The open store hands none of their slots out.
    bad: BTreeSet<u64>,
    /// The segment and incarnation of the next part. If the caller that prepares it goes away, the
    /// next one continues, so that no two segments become the same part.
    begun: Option<Begun>,
}

/// The next part of the table.
#[derive(Clone, Copy)]
struct Begun {
    number: u32,
    incarnation: u64,
    /// The segment may have the header of the part.
    headed: bool,
}

enum What {
    Write([u8; ENTRY]),
    Destroy { object: u64 },
}

/// A change of one entry.
struct Change {
    slot: u64,
    inside: usize,
    what: What,
    completion: Completion<()>,
    /// The slot is free once the change is ordered, since a later use comes behind it.
    release: bool,
    /// The entry belongs to another object and stays.
    foreign: Option<u64>,
}

/// A round under way.
struct Round {
    blocks: BTreeMap<u64, RoundBlock>,
    /// Reads, then writes, that are not ordered yet.
    outstanding: usize,
    landing: Arc<Landing>,
    /// A commit waits for one of its changes.
    followed: bool,
}

/// The writes of a round that are not durable yet, and the requests that wait for them.
#[derive(Default)]
struct Landing(Mutex<Landed>);

#[derive(Default)]
struct Landed {
    writes: usize,
    /// None until all of them are ordered.
    waiters: Option<Vec<oneshot::Sender<Result<()>>>>,
    failure: Option<MediaError>,
}

impl Landing {
    fn change(&self, change: impl FnOnce(&mut Landed)) {
        let (waiters, failure) = {
            let mut landed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut landed);
            if landed.writes > 0 {
                return;
            }
            (landed.waiters.take(), landed.failure.clone())
        };
        for waiter in waiters.into_iter().flatten() {
            drop(waiter.send(failure.clone().map_or(Ok(()), |error| Err(error.into()))));
        }
    }
}

struct RoundBlock {
    changes: Vec<Change>,
    /// As it was, then as it is written.
    bytes: Option<Shared>,
    before: Option<Shared>,
    failure: Option<MediaError>,
}

/// A slot handed to a writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    pub number: u64,
    /// It was used before: the transaction that uses it deletes its row from the table of free
    /// slots.
    pub used: bool,
}

impl KeyTable {
    pub fn new(
        volume: Handle,
        catalog: Arc<dyn Catalog>,
        segments: Arc<Segments>,
        numbers: Arc<Numbers>,
        fresh: Numbers,
        store: [u8; 16],
        parts: Vec<u32>,
    ) -> Arc<KeyTable> {
        let state = State {
            parts,
            free: Vec::new(),
            pending: BTreeMap::new(),
            round: None,
            remembered: Cache::new(REMEMBERED),
            former: Cache::new(REMEMBERED),
            usable: Cache::new(REMEMBERED),
            bad: BTreeSet::new(),
            begun: None,
        };
        let (state, extending, destroyed) = (Mutex::new(state), AsyncMutex::new(()), AtomicU64::new(0));
        Arc::new(KeyTable { volume, catalog, segments, store, fresh, numbers, state, extending, destroyed })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Entries in one segment.
    fn entries_per_part(&self) -> u64 {
        u64::from((self.segments.size - FIRST) / ENTRY as u32)
    }

    pub fn settle(&self, transaction: Transaction) -> Transaction {
        self.fresh.settle(transaction)
    }

    pub fn offer(&self, slots: impl IntoIterator<Item = u64>) {
        self.state().free.extend(slots);
    }

    /// A slot for a new object, in a block that can be read. `reserve`: delete markers may take the
    /// last segments.
    pub async fn take(&self, reserve: bool) -> Result<Slot> {
        loop {
            let free = self.state().free.pop();
            let slot = match free {
                Some(number) => Slot { number, used: true },
                None => {
                    // Room first: a number that was given out and has none is lost.
                    self.reach(self.fresh.given(), reserve).await?;
                    let number = self.fresh.next().await?;
                    self.reach(number, reserve).await?;
                    Slot { number, used: false }
                }
            };
            let taken = Taken { table: self, slot, kept: false };
            if self.usable(slot.number).await? {
                return Ok(taken.keep());
            }
            taken.keep();
            tracing::warn!("key slot {} lies in a block that cannot be read; it is left out", slot.number);
        }
    }

    /// Whether the slot's block can be read.
    async fn usable(&self, slot: u64) -> Result<bool> {
        let (block, _) = self.block(slot)?;
        {
            let mut state = self.state();
            if state.bad.contains(&block) {
                return Ok(false);
            }
            if state.usable.get(&block).is_some() {
                return Ok(true);
            }
        }
        match self.volume.read(block, BLOCK as usize).await {
            Ok(_) => {
                self.state().usable.insert(block, (), 1);
                Ok(true)
            }
            Err(error) if error.fault == MediaFault::Damaged => {
                self.state().bad.insert(block);
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Slots waiting for use, for tests.
    #[cfg(test)]
    pub fn free_slots(&self) -> Vec<u64> {
        self.state().free.clone()
    }

    /// The place of the slot on the volume.
    fn place(&self, slot: u64) -> Result<u64> {
        let per_part = self.entries_per_part();
        let part = usize::try_from(slot / per_part).unwrap_or(usize::MAX);
        let segment = self.state().parts.get(part).copied().ok_or_else(|| {
            ArchiveError::damaged(format!("key slot {slot}"), "it lies behind the end of the key table")
        })?;
        Ok(self.segments.start(segment) + u64::from(FIRST) + slot % per_part * ENTRY as u64)
    }

    /// The slot's block on the volume, and the offset of the entry in it.
    pub fn block(&self, slot: u64) -> Result<(u64, usize)> {
        let at = self.place(slot)?;
        Ok((at / u64::from(BLOCK) * u64::from(BLOCK), (at % u64::from(BLOCK)) as usize))
    }

    /// Writes an entry; resolves when it is durable.
    pub fn write(self: &Arc<Self>, slot: u64, entry: &Entry) -> Changed {
        self.change(slot, What::Write(entry.encode()), false)
    }

    /// Overwrites the object's entry with zeros; resolves when that is durable. Refuses to
    /// overwrite another object's entry.
    pub fn destroy(self: &Arc<Self>, slot: u64, object: u64) -> Changed {
        self.change(slot, What::Destroy { object }, false)
    }

    /// As `destroy`, for a slot to which nothing refers. It is free once its entry is gone.
    pub fn release(self: &Arc<Self>, slot: u64, object: u64) {
        drop(self.change(slot, What::Destroy { object }, true));
    }

    /// How many entries were overwritten since the store was opened.
    pub fn destroyed(&self) -> u64 {
        self.destroyed.load(Relaxed)
    }

    fn change(self: &Arc<Self>, slot: u64, what: What, release: bool) -> Changed {
        let (completion, changed) = Written::new();
        match self.block(slot) {
            Ok((block, inside)) => {
                let change = Change { slot, inside, what, completion, release, foreign: None };
                self.state().pending.entry(block).or_default().push(change);
                self.start_round();
            }
            Err(error) => drop(completion.durable.send(Err(error))),
        }
        changed
    }

    /// Starts a round, unless one is under way or no change is requested.
    fn start_round(self: &Arc<Self>) {
        let missing: Vec<u64> = {
            let mut state = self.state();
            if state.round.is_some() || state.pending.is_empty() {
                return;
            }
            let pending = std::mem::take(&mut state.pending);
            let blocks: BTreeMap<u64, RoundBlock> = pending
                .into_iter()
                .map(|(block, changes)| {
                    let bytes = state.remembered.get(&block);
                    (block, RoundBlock { changes, bytes, before: None, failure: None })
                })
                .collect();
            let missing: Vec<u64> =
                blocks.iter().filter(|(_, block)| block.bytes.is_none()).map(|(at, _)| *at).collect();
            let changes = blocks.values().flat_map(|block| &block.changes);
            let followed = changes.into_iter().any(|change| matches!(change.what, What::Write(_)));
            state.round = Some(Round { blocks, outstanding: missing.len(), landing: Arc::default(), followed });
            missing
        };
        if missing.is_empty() {
            self.write_round();
            return;
        }
        for block in missing {
            let table = Arc::clone(self);
            let buffer = Buffer::zeroed(BLOCK as usize);
            let done = Box::new(move |op: Op, result: Result<(), MediaError>| table.block_read(block, op, result));
            self.volume.submit(Op::Read { at: block, buffer }, Priority::Host, done);
        }
    }

    fn block_read(self: &Arc<Self>, at: u64, op: Op, result: Result<(), MediaError>) {
        let last = {
            let mut state = self.state();
            let Some(round) = &mut state.round else { return };
            if let Some(block) = round.blocks.get_mut(&at) {
                match (op, result) {
                    (Op::Read { buffer, .. }, Ok(())) => block.bytes = Some(buffer.freeze()),
                    (_, Err(error)) => block.failure = Some(error),
                    (_, Ok(())) => {}
                }
            }
            round.outstanding -= 1;
            round.outstanding == 0
        };
        if last {
            self.write_round();
        }
    }

    fn write_round(self: &Arc<Self>) {
        let (runs, way) = {
            let mut state = self.state();
            let Some(round) = &mut state.round else { return };
            let mut runs: Vec<(u64, Vec<Shared>)> = Vec::new();
            for (at, block) in &mut round.blocks {
                let Some(before) = block.bytes.take().filter(|_| block.failure.is_none()) else { continue };
                let mut bytes = Buffer::copy_of(&before);
                block.before = Some(before);
                for change in &mut block.changes {
                    let entry = &mut bytes[change.inside..change.inside + ENTRY];
                    match &change.what {
                        What::Write(new) => entry.copy_from_slice(new),
                        What::Destroy { object } => match Entry::decode(entry) {
                            Some(there) if there.object != *object => change.foreign = Some(there.object),
                            _ => entry.fill(0),
                        },
                    }
                }
                let bytes = bytes.freeze();
                block.bytes = Some(bytes.clone());
                match runs.last_mut() {
                    Some((first, run)) if *first + run.len() as u64 * u64::from(BLOCK) == *at => run.push(bytes),
                    _ => runs.push((*at, vec![bytes])),
                }
            }
            round.outstanding = runs.len();
            (runs, (Arc::clone(&round.landing), round.followed))
        };
        if runs.is_empty() {
            self.finish_round();
        }
        for (at, data) in runs {
            self.write_run(at, data, way.clone());
        }
    }

    fn write_run(self: &Arc<Self>, at: u64, data: Vec<Shared>, (landing, followed): (Arc<Landing>, bool)) {
        let again = if data.len() > 1 { data.clone() } else { Vec::new() };
        let blocks = data.len() as u64;
        landing.change(|landed| landed.writes += 1);
        let unordered = Arc::new(AtomicBool::new(true));
        let (table, theirs) = (Arc::clone(self), Arc::clone(&unordered));
        let ordered = Box::new(move || {
            theirs.store(false, Ordering::Relaxed);
            table.run_written(at, blocks, Vec::new(), Ok(()));
        });
        let table = Arc::clone(self);
        let done = Box::new(move |_, result: Result<(), MediaError>| {
            let failure = match result {
                Err(error) if unordered.load(Ordering::Relaxed) => {
                    table.run_written(at, blocks, again, Err(error));
                    None
                }
                result => result.err(),
            };
            landing.change(|landed| {
                landed.writes -= 1;
                landed.failure = landed.failure.take().or(failure);
            });
        });
        // The write is the flush behind the acknowledgement: `fua` completes when the entries are
        // durable.
        let op = Op::Write { at, data, fua: true };
        order::submit(&self.volume, &*self.catalog, followed, op, ordered, done);
    }

    /// A damaged block must not fail its neighbours: a failed run is written again block by block.
    fn run_written(self: &Arc<Self>, at: u64, blocks: u64, again: Vec<Shared>, result: Result<(), MediaError>) {
        let (last, way) = {
            let mut state = self.state();
            let Some(round) = &mut state.round else { return };
            if result.is_err() && !again.is_empty() {
                round.outstanding += again.len();
            } else if let Err(error) = &result {
                let end = at + blocks * u64::from(BLOCK);
                round.blocks.range_mut(at..end).for_each(|(_, block)| block.failure = Some(error.clone()));
            }
            round.outstanding -= 1;
            (round.outstanding == 0, (Arc::clone(&round.landing), round.followed))
        };
        if result.is_err() {
            for (inside, bytes) in again.into_iter().enumerate() {
                self.write_run(at + inside as u64 * u64::from(BLOCK), vec![bytes], way.clone());
            }
        }
        if last {
            self.finish_round();
        }
    }

    fn finish_round(self: &Arc<Self>) {
        let (mut ordered, mut durable) = (Vec::new(), Vec::new());
        let landing = {
            let mut state = self.state();
            let Some(round) = state.round.take() else { return };
            for (at, block) in round.blocks {
                match (&block.failure, block.bytes) {
                    (None, Some(bytes)) => {
                        state.remembered.insert(at, bytes, 1);
                        state.former.remove(&at);
                        state.usable.insert(at, (), 1);
                        state.bad.remove(&at);
                    }
                    (failure, _) => {
                        state.remembered.remove(&at);
                        if let Some(before) = block.before {
                            state.former.insert(at, before, 1);
                        }
                        state.usable.remove(&at);
                        if failure.as_ref().is_some_and(|error| error.fault == MediaFault::Damaged) {
                            state.bad.insert(at);
                        }
                    }
                }
                for change in block.changes {
                    let answer = match (&block.failure, change.foreign) {
                        (Some(error), _) => Err(error.clone().into()),
                        (None, Some(other)) => Err(ArchiveError::damaged(
                            format!("key slot {}", change.slot),
                            format!("it holds the key of object {other}, which stays untouched"),
                        )),
                        (None, None) => Ok(()),
                    };
                    match &answer {
                        Ok(()) if change.release => state.free.push(change.slot),
                        Err(error) if change.release => {
                            tracing::warn!("key slot {} is not used again: {error}", change.slot);
                        }
                        _ => {}
                    }
                    match answer {
                        Ok(()) => {
                            let gone = matches!(change.what, What::Destroy { .. });
                            self.destroyed.fetch_add(u64::from(gone), Relaxed);
                            ordered.push(change.completion.ordered);
                            durable.push(change.completion.durable);
                        }
                        Err(error) => drop(change.completion.durable.send(Err(error))),
                    }
                }
            }
            round.landing
        };
        self.start_round();
        for waiter in ordered {
            let _ = waiter.send(());
        }
        landing.change(|landed| landed.waiters = Some(durable));
    }

    /// Makes the table long enough for a slot.
    async fn reach(&self, slot: u64, reserve: bool) -> Result<()> {
        while slot / self.entries_per_part() >= self.state().parts.len() as u64 {
            self.extend(slot, reserve).await?;
        }
        Ok(())
    }

    /// Adds a segment to the table.
    async fn extend(&self, slot: u64, reserve: bool) -> Result<()> {
        let _extending = self.extending.lock().await;
        let ordinal = self.state().parts.len();
        if slot / self.entries_per_part() < ordinal as u64 {
            return Ok(());
        }
        let begun = self.state().begun;
        let begun = match begun {
            Some(begun) => begun,
            None => {
                // First, so that no await lies between taking the segment and remembering it.
                let incarnation = crate::space::incarnation(&self.store, self.numbers.next().await?);
                let full = || ArchiveError::NoSpace("the data volume has no free segment for the key table".into());
                let number = self.segments.take(reserve).ok_or_else(full)?;
                *self.state().begun.insert(Begun { number, incarnation, headed: false })
            }
        };
        let extended = self.prepare_part(begun, ordinal as u32).await;
        let mut state = self.state();
        // With a header, the segment stays this part for the next attempt: no second segment may
        // claim the part, and the commit of an attempt whose request went away may be under way.
        if let Some(begun) = state.begun.take_if(|begun| extended.is_ok() || !begun.headed)
            && extended.is_err()
        {
            drop(state);
            self.segments.give_back(begun.number);
        }
        extended
    }

    async fn prepare_part(&self, begun: Begun, ordinal: u32) -> Result<()> {
        let Begun { number, incarnation, .. } = begun;
        let start = self.segments.start(number);
        // Former data must not be taken for entries.
        self.volume.zero(start, self.segments.size.into()).await?;
        self.volume.flush().await?;
        let header = SegmentHeader { store: self.store, number, kind: SegmentKind::Keys, ordinal, incarnation };
        self.state().begun = Some(Begun { headed: true, ..begun });
        self.volume.write(start, vec![Buffer::copy_of(&header.encode()).freeze()], true).await?;
        let row = SegmentRow::new(SegmentUse::Keys(ordinal), incarnation, self.segments.size);
        // Durable before the first entry goes in, so that an opening finds the whole table.
        let transaction = Transaction::new().put(SEGMENTS, keys::short(number), encode(&row)).with_reserve();
        self.catalog.commit(transaction).await?;
        self.segments.put(number, row);
        self.state().parts.push(number);
        Ok(())
    }
}

/// A slot that is given back if its request goes away.
struct Taken<'a> {
    table: &'a KeyTable,
    slot: Slot,
    kept: bool,
}

impl Taken<'_> {
    fn keep(mut self) -> Slot {
        self.kept = true;
        self.slot
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.table.offer([self.slot.number]);
        }
    }
}

/// A change under way.
pub(crate) type Changed = Written<()>;
