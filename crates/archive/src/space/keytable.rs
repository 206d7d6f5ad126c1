//! The key table: a wrapped key for every object, in entries of fixed size that are overwritten in place.
//!
//! An object exists as long as its entry does; zeros over the entry are the first half of its disposal. Entries
//! change in rounds: everything asked for while one round is on its way goes with the next. A round reads the
//! blocks it lacks, changes them, and writes them, durable when its writes complete (`fua`).
//!
//! Failure model: a round that fails fails everything in it and forgets its blocks; the next reads them again. A block
//! torn by a power cut differs from its former content only in the entries being changed, and each entry has a CRC.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::lock::Mutex as AsyncMutex;
use stele_catalog::{Catalog, Transaction};
use stele_ground::digest::crc32c;
use stele_media::{Buffer, Handle, MediaError, Op, Priority, Shared};
use tokio::sync::oneshot;

use crate::cache::Cache;
use crate::error::{ArchiveError, Result};
use crate::numbers::Numbers;
use crate::record::segment::{SegmentRow, SegmentUse};
use crate::record::{SEGMENTS, encode, keys};
use crate::seal::WRAPPED;
use crate::space::BLOCK;
use crate::space::header::{SegmentHeader, SegmentKind, u32_at, u64_at};
use crate::space::segments::Segments;

pub(crate) const ENTRY: usize = 128;
/// Where entries begin in a segment of the table: behind the superblocks, or the header.
pub(crate) const FIRST: u32 = 2 * BLOCK;
/// Blocks remembered, so that a round need not read what the last one wrote.
const REMEMBERED: usize = 1024;

/// What the table holds of one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub object: u64,
    pub bucket: u32,
    /// The object's key under its bucket's key; zeros for a delete marker, which has none.
    pub wrapped: [u8; WRAPPED],
}

impl Entry {
    pub fn encode(&self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        bytes[..8].copy_from_slice(&self.object.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.bucket.to_le_bytes());
        bytes[12..16].copy_from_slice(&1u32.to_le_bytes());
        bytes[16..16 + WRAPPED].copy_from_slice(&self.wrapped);
        let check = crc32c(&bytes[..ENTRY - 4]);
        bytes[ENTRY - 4..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// None: the entry is empty, destroyed, or not sound.
    pub fn decode(bytes: &[u8]) -> Option<Entry> {
        let bytes = bytes.get(..ENTRY)?;
        if u32_at(bytes, ENTRY - 4) != crc32c(&bytes[..ENTRY - 4]) || u32_at(bytes, 12) != 1 {
            return None;
        }
        let mut wrapped = [0; WRAPPED];
        wrapped.copy_from_slice(&bytes[16..16 + WRAPPED]);
        Some(Entry { object: u64_at(bytes, 0), bucket: u32_at(bytes, 8), wrapped })
    }
}

type Answer = oneshot::Sender<Result<()>>;

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
}

struct State {
    /// The table's segments in order.
    parts: Vec<u32>,
    /// Destroyed slots, ready for use, whose rows in the table of free slots go when they are used.
    free: Vec<u64>,
    pending: BTreeMap<u64, Vec<(usize, [u8; ENTRY])>>,
    answers: Vec<Answer>,
    round: Option<Round>,
    remembered: Cache<u64, Shared>,
}

/// A round on its way.
struct Round {
    changes: BTreeMap<u64, Vec<(usize, [u8; ENTRY])>>,
    blocks: BTreeMap<u64, Shared>,
    answers: Vec<Answer>,
    outstanding: usize,
    failure: Option<MediaError>,
}

/// A slot given to a writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    pub number: u64,
    /// It was used before: the transaction that uses it deletes its row from the table of free slots.
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
            answers: Vec::new(),
            round: None,
            remembered: Cache::new(REMEMBERED),
        };
        let (state, extending) = (Mutex::new(state), AsyncMutex::new(()));
        Arc::new(KeyTable { volume, catalog, segments, store, fresh, numbers, state, extending })
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

    /// A slot for a new object. `reserve`: delete markers may take the last segments.
    pub async fn take(&self, reserve: bool) -> Result<Slot> {
        if let Some(number) = self.state().free.pop() {
            return Ok(Slot { number, used: true });
        }
        let number = self.fresh.next().await?;
        while number / self.entries_per_part() >= self.state().parts.len() as u64 {
            self.extend(number, reserve).await?;
        }
        Ok(Slot { number, used: false })
    }

    /// Where the slot lies on the volume.
    fn place(&self, slot: u64) -> Result<u64> {
        let per_part = self.entries_per_part();
        let part = usize::try_from(slot / per_part).unwrap_or(usize::MAX);
        let segment = self.state().parts.get(part).copied().ok_or_else(|| {
            ArchiveError::damaged(format!("key slot {slot}"), "it lies behind the end of the key table")
        })?;
        Ok(self.segments.start(segment) + u64::from(FIRST) + slot % per_part * ENTRY as u64)
    }

    pub async fn read(&self, slot: u64) -> Result<Option<Entry>> {
        let at = self.place(slot)?;
        let (block, inside) = (at / u64::from(BLOCK) * u64::from(BLOCK), (at % u64::from(BLOCK)) as usize);
        let bytes = self.volume.read(block, BLOCK as usize).await?;
        Ok(Entry::decode(&bytes[inside..]))
    }

    /// Writes an entry; resolves when it is durable.
    pub fn write(self: &Arc<Self>, slot: u64, entry: &Entry) -> Result<Changed> {
        self.change(slot, entry.encode())
    }

    /// Overwrites an entry with zeros; resolves when that is durable.
    pub fn destroy(self: &Arc<Self>, slot: u64) -> Result<Changed> {
        self.change(slot, [0; ENTRY])
    }

    fn change(self: &Arc<Self>, slot: u64, bytes: [u8; ENTRY]) -> Result<Changed> {
        let at = self.place(slot)?;
        let (block, inside) = (at / u64::from(BLOCK) * u64::from(BLOCK), (at % u64::from(BLOCK)) as usize);
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.state();
            state.pending.entry(block).or_default().push((inside, bytes));
            state.answers.push(sender);
        }
        self.start_round();
        Ok(Changed(receiver))
    }

    /// Starts a round, unless one is on its way or nothing is asked for.
    fn start_round(self: &Arc<Self>) {
        let missing: Vec<u64> = {
            let mut state = self.state();
            if state.round.is_some() || state.pending.is_empty() {
                return;
            }
            let changes = std::mem::take(&mut state.pending);
            let answers = std::mem::take(&mut state.answers);
            let mut blocks = BTreeMap::new();
            for block in changes.keys() {
                if let Some(bytes) = state.remembered.get(block) {
                    blocks.insert(*block, bytes);
                }
            }
            let missing: Vec<u64> = changes.keys().filter(|block| !blocks.contains_key(block)).copied().collect();
            state.round = Some(Round { changes, blocks, answers, outstanding: missing.len(), failure: None });
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

    fn block_read(self: &Arc<Self>, block: u64, op: Op, result: Result<(), MediaError>) {
        let last = {
            let mut state = self.state();
            let Some(round) = &mut state.round else { return };
            match (op, result) {
                (Op::Read { buffer, .. }, Ok(())) => {
                    round.blocks.insert(block, buffer.freeze());
                }
                (_, Err(error)) => round.failure = Some(error),
                (_, Ok(())) => {}
            }
            round.outstanding -= 1;
            round.outstanding == 0
        };
        if last {
            self.write_round();
        }
    }

    fn write_round(self: &Arc<Self>) {
        let runs: Vec<(u64, Vec<Shared>)> = {
            let mut state = self.state();
            let Some(round) = &mut state.round else { return };
            let mut runs: Vec<(u64, Vec<Shared>)> = Vec::new();
            if round.failure.is_none() {
                for (block, changes) in std::mem::take(&mut round.changes) {
                    let mut bytes = Buffer::copy_of(round.blocks.get(&block).map_or(&[], |bytes| bytes));
                    for (inside, entry) in changes {
                        bytes[inside..inside + ENTRY].copy_from_slice(&entry);
                    }
                    let bytes = bytes.freeze();
                    round.blocks.insert(block, bytes.clone());
                    match runs.last_mut() {
                        Some((at, run)) if *at + run.len() as u64 * u64::from(BLOCK) == block => run.push(bytes),
                        _ => runs.push((block, vec![bytes])),
                    }
                }
            }
            round.outstanding = runs.len();
            runs
        };
        if runs.is_empty() {
            self.finish_round();
        }
        for (at, data) in runs {
            let table = Arc::clone(self);
            // The write is the flush behind the acknowledgement: `fua` completes when the entries are durable.
            let op = Op::Write { at, data, fua: true };
            self.volume.submit(op, Priority::Host, Box::new(move |_, result| table.run_written(result)));
        }
    }

    fn run_written(self: &Arc<Self>, result: Result<(), MediaError>) {
        let last = {
            let mut state = self.state();
            let Some(round) = &mut state.round else { return };
            if let Err(error) = result {
                round.failure = Some(error);
            }
            round.outstanding -= 1;
            round.outstanding == 0
        };
        if last {
            self.finish_round();
        }
    }

    fn finish_round(self: &Arc<Self>) {
        let round = {
            let mut state = self.state();
            let round = state.round.take();
            if let Some(round) = &round {
                for (block, bytes) in &round.blocks {
                    match round.failure {
                        None => state.remembered.insert(*block, bytes.clone(), 1),
                        Some(_) => state.remembered.remove(block),
                    }
                }
            }
            round
        };
        self.start_round();
        let Some(round) = round else { return };
        for answer in round.answers {
            drop(answer.send(round.failure.clone().map_or(Ok(()), |error| Err(error.into()))));
        }
    }

    /// Adds a segment to the table.
    async fn extend(&self, slot: u64, reserve: bool) -> Result<()> {
        let _extending = self.extending.lock().await;
        let ordinal = self.state().parts.len();
        if slot / self.entries_per_part() < ordinal as u64 {
            return Ok(());
        }
        let full = || ArchiveError::NoSpace("the data volume has no free segment for the key table".into());
        let number = self.segments.take(reserve).ok_or_else(full)?;
        let extended = self.prepare_part(number, ordinal as u32).await;
        if extended.is_err() {
            self.segments.give_back(number);
        }
        extended
    }

    async fn prepare_part(&self, number: u32, ordinal: u32) -> Result<()> {
        let incarnation = crate::space::incarnation(&self.store, self.numbers.next().await?);
        let start = self.segments.start(number);
        // What data left there must not be taken for entries.
        self.volume.zero(start, self.segments.size.into()).await?;
        self.volume.flush().await?;
        let header = SegmentHeader { store: self.store, number, kind: SegmentKind::Keys, ordinal, incarnation };
        self.volume.write(start, vec![Buffer::copy_of(&header.encode()).freeze()], true).await?;
        let row = SegmentRow { usage: SegmentUse::Keys(ordinal), incarnation, used: self.segments.size, live: 0 };
        // Durable before the first entry goes in, so that an opening finds the whole table.
        let transaction = Transaction::new().put(SEGMENTS, keys::short(number), encode(&row)).with_reserve();
        self.catalog.commit(transaction).await?;
        self.segments.put(number, row);
        self.state().parts.push(number);
        Ok(())
    }
}

/// Resolves when the change is durable.
pub(crate) struct Changed(oneshot::Receiver<Result<()>>);

impl std::future::Future for Changed {
    type Output = Result<()>;

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<Result<()>> {
        std::pin::Pin::new(&mut self.0).poll(context).map(|answer| {
            answer.unwrap_or_else(|_| Err(ArchiveError::Stopped("the data volume's server has stopped".into())))
        })
    }
}
