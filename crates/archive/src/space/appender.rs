//! Appends the records of all writers to the open segment, in groups, of which several can be under
//! way.
//!
//! There is no task: a call that submits a record or ends a group starts the next group. A group is
//! one contiguous write of whole blocks, durable when it completes (`fua`). Small records are
//! packed densely. When no group is under way, the next one begins in the last, partly filled block
//! and writes that block again with its content. Otherwise it begins at the next block, so that no
//! block is written twice at once. A group counts as under way until it is ordered (see `order`);
//! from then on the block's next content cannot overtake it. Long records start on block boundaries
//! and are not copied.
//!
//! Failure model: a failed group fails all its records. If its place cannot be written, the segment
//! takes nothing more and the next records go to another one. Any other failure leaves a gap, and
//! later groups begin behind it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::lock::Mutex as AsyncMutex;
use stele_catalog::{Catalog, Transaction};
use stele_ground::digest::crc32c;
use stele_media::{Buffer, Handle, MediaError, MediaFault, Op, Priority, Shared};
use tokio::sync::oneshot;

use crate::model::error::{ArchiveError, Result};
use crate::record::content::Place;
use crate::record::segment::{SegmentRow, SegmentUse};
use crate::record::{SEGMENTS, encode, keys};
use crate::space::compensations::Compensations;
use crate::space::header::{RECORD_HEADER, RecordHeader, SegmentFooter, SegmentHeader, SegmentKind, record_length};
use crate::space::numbers::Numbers;
use crate::space::order::{self, Completion, Written};
use crate::space::segments::{Segments, Writing};
use crate::space::{BLOCK, align_up};

/// Groups under way at most: small ones, and those of at least `LARGE` bytes.
const SMALL_DEPTH: usize = 2;
const LARGE_DEPTH: usize = 6;
const LARGE: u32 = 1 << 20;
/// Bytes at which a group takes no further record.
const GROUP_MAX: u32 = 8 << 20;
/// Records of at least this length are not copied, and start on block boundaries.
const UNCOPIED: u32 = 128 << 10;

/// A record to be appended. The buffer has space for the header, then the payload.
pub(crate) struct Record {
    pub header: RecordHeader,
    pub buffer: Buffer,
    /// The writer, until its commit. None: reclamation does not wait for this record.
    pub writing: Option<Arc<Writing>>,
    /// A commit waits until the record is ordered.
    pub followed: bool,
}

/// A record under way.
pub(crate) type Appended = Written<Place>;

pub(crate) struct Appender {
    volume: Handle,
    catalog: Arc<dyn Catalog>,
    segments: Arc<Segments>,
    numbers: Arc<Numbers>,
    compensations: Arc<Compensations>,
    store: [u8; 16],
    state: Mutex<State>,
    /// Held while a caller prepares the next segment.
    preparing: AsyncMutex<()>,
}

#[derive(Default)]
struct State {
    open: Option<Open>,
    spare: Option<Open>,
    waiting: VecDeque<Group>,
    on_their_way: usize,
    /// How many groups of each segment are under way.
    writing: BTreeMap<u32, usize>,
    /// Full segments whose rows are still to be written.
    filled: Vec<Filled>,
    /// Full segments whose footers are still to be written: once their last groups have ended.
    unmarked: Vec<Filled>,
    /// Of each segment that is open or unmarked: the end of its last group that was written.
    written: BTreeMap<u32, u32>,
    /// The next segment, whose preparation has begun. If its caller has gone away, the next caller
    /// continues.
    begun: Option<Begun>,
    closed: bool,
}

#[derive(Clone, Copy)]
struct Begun {
    number: u32,
    incarnation: u64,
    reserve: bool,
}

/// A segment that takes nothing more.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Filled {
    number: u32,
    incarnation: u64,
    tail: u32,
}

/// The segment being appended to.
struct Open {
    number: u32,
    incarnation: u64,
    /// The earliest place for the next record.
    tail: u32,
    /// The content of the partly filled last block, if it is durable and may be written again.
    last_block: Vec<u8>,
    /// Taken from the reserve: only for deletions, holds and reclamation.
    reserve: bool,
}

struct Group {
    segment: u32,
    /// Block-aligned, from the segment's start.
    start: u32,
    end: u32,
    /// The content of the first block before the first record.
    before: Vec<u8>,
    records: Vec<(u32, Buffer, Completion<Place>)>,
    /// A commit waits for one of its records.
    followed: bool,
}

/// The work that follows the ordering of a group.
struct Ordering {
    segment: u32,
    end: u32,
    last_block: Vec<u8>,
    waiters: Vec<(Place, oneshot::Sender<Place>)>,
}

enum Placement {
    Done(Appended),
    /// No segment has room. The record is returned.
    NoRoom(Record),
}

impl Record {
    /// A record that consists of a note.
    pub fn note(header: RecordHeader, sealed: &[u8]) -> Record {
        let mut buffer = Buffer::zeroed(RECORD_HEADER as usize + sealed.len());
        buffer[RECORD_HEADER as usize..].copy_from_slice(sealed);
        Record { header, buffer, writing: None, followed: false }
    }

    pub fn pinned(self, writing: &Arc<Writing>) -> Record {
        Record { writing: Some(Arc::clone(writing)), ..self }
    }

    /// Marks that a commit follows as soon as the record is ordered.
    pub fn followed(self) -> Record {
        Record { followed: true, ..self }
    }
}

impl Appender {
    pub fn new(
        volume: Handle,
        catalog: Arc<dyn Catalog>,
        segments: Arc<Segments>,
        numbers: Arc<Numbers>,
        compensations: Arc<Compensations>,
        store: [u8; 16],
    ) -> Arc<Appender> {
        let (state, preparing) = (Mutex::default(), AsyncMutex::new(()));
        Arc::new(Appender { volume, catalog, segments, numbers, compensations, store, state, preparing })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Continues in an open segment. Its last record ends at `written`. Nothing at or behind `tail`
    /// is needed.
    pub fn resume(&self, number: u32, incarnation: u64, written: u32, tail: u32) {
        let tail = align_up(tail, BLOCK);
        let mut state = self.state();
        state.written.insert(number, written);
        state.open = Some(Open { number, incarnation, tail, last_block: Vec::new(), reserve: false });
    }

    #[cfg(test)]
    pub fn tail(&self) -> Option<(u32, u32)> {
        self.state().open.as_ref().map(|open| (open.number, open.tail))
    }

    /// Ends appending. Returns the segments whose rows do not say their ends yet, with these: the
    /// open segment, and full ones that no other segment has followed.
    pub fn close(&self) -> Vec<(u32, u32)> {
        let mut state = self.state();
        state.closed = true;
        let filled = state.filled.iter().map(|filled| (filled.number, filled.tail));
        filled.chain(state.open.iter().map(|open| (open.number, open.tail))).collect()
    }

    /// Segments with groups that wait or are under way. Sealed ones may be among them, since a
    /// segment is sealed as soon as it is full.
    pub fn writing(&self) -> BTreeSet<u32> {
        let state = self.state();
        let waiting = state.waiting.iter().map(|group| group.segment);
        waiting.chain(state.writing.keys().copied()).collect()
    }

    /// Queues the record. `reserve`: deletions, holds and reclamation may use the last segments.
    pub async fn append(self: &Arc<Self>, mut record: Record, reserve: bool) -> Result<Appended> {
        record.header.payload = record.buffer.len() as u32 - RECORD_HEADER;
        record.header.check = crc32c(&record.buffer[RECORD_HEADER as usize..]);
        let longest = self.segments.size - 2 * BLOCK;
        assert!(record_length(record.header.payload) <= longest, "a record longer than a segment was built");
        loop {
            match self.place(record, reserve)? {
                Placement::Done(appended) => {
                    self.start_groups();
                    return Ok(appended);
                }
                Placement::NoRoom(back) => {
                    record = back;
                    self.prepare(reserve).await?;
                }
            }
        }
    }

    /// Places the record in the last waiting group, or in a new one.
    fn place(&self, mut record: Record, reserve: bool) -> Result<Placement> {
        let mut state = self.state();
        let state = &mut *state;
        if state.closed {
            return Err(ArchiveError::Stopped("the store has been closed".into()));
        }
        let length = record_length(record.header.payload);
        let uncopied = length >= UNCOPIED;
        loop {
            let Some(open) = &mut state.open else {
                match state.spare.take() {
                    Some(spare) => state.open = Some(spare),
                    None => return Ok(Placement::NoRoom(record)),
                }
                continue;
            };
            if open.reserve && !reserve {
                if !self.segments.has_room() {
                    return Err(full());
                }
                open.reserve = false;
            }
            let idle = state.on_their_way == 0 && state.waiting.is_empty();
            let joins = state
                .waiting
                .back()
                .is_some_and(|group| group.segment == open.number && group.end - group.start < GROUP_MAX);
            let at = if uncopied || !(joins || idle) || (idle && open.last_block.is_empty()) {
                align_up(open.tail, BLOCK)
            } else {
                open.tail
            };
            if at + length > self.segments.size - BLOCK {
                let open = Filled { number: open.number, incarnation: open.incarnation, tail: open.tail };
                state.fill(open);
                continue;
            }
            if let Some(writing) = &record.writing {
                writing.pin(open.number);
            }
            record.header.incarnation = open.incarnation;
            record.header.encode(&mut record.buffer[..RECORD_HEADER as usize]);
            let end = if uncopied { align_up(at + length, BLOCK) } else { at + length };
            let (completion, appended) = Written::new();
            if !joins {
                let start = at / BLOCK * BLOCK;
                let before = std::mem::take(&mut open.last_block);
                assert!(at == start || before.len() as u32 == at - start, "a block would lose what it holds");
                let before = if at == start { Vec::new() } else { before };
                let (segment, records) = (open.number, Vec::new());
                state.waiting.push_back(Group { segment, start, end, before, records, followed: true });
            }
            open.tail = end;
            open.last_block.clear();
            if let Some(group) = state.waiting.back_mut() {
                group.end = end;
                group.followed &= record.followed;
                group.records.push((at, record.buffer, completion));
            }
            return Ok(Placement::Done(appended));
        }
    }

    /// Starts as many waiting groups as may be under way.
    fn start_groups(self: &Arc<Self>) {
        loop {
            let group = {
                let mut state = self.state();
                let depth = match state.waiting.front() {
                    Some(group) if group.end - group.start >= LARGE => LARGE_DEPTH,
                    Some(_) => SMALL_DEPTH,
                    None => return,
                };
                if state.on_their_way >= depth {
                    return;
                }
                state.on_their_way += 1;
                let group = state.waiting.pop_front();
                if let Some(group) = &group {
                    *state.writing.entry(group.segment).or_insert(0) += 1;
                }
                group
            };
            let Some(group) = group else { return };
            self.start_group(group);
        }
    }

    fn start_group(self: &Arc<Self>, mut group: Group) {
        let records = std::mem::take(&mut group.records);
        let mut data: Vec<Shared> = Vec::new();
        let (mut ordered, mut durable) = (Vec::with_capacity(records.len()), Vec::with_capacity(records.len()));
        // Bytes gathered since the last uncopied record, from a block boundary on.
        let mut gathered: Vec<u8> = std::mem::take(&mut group.before);
        let mut from = group.start;
        for (at, mut buffer, waiter) in records {
            let length = record_length(buffer.len() as u32 - RECORD_HEADER);
            let place = Place { segment: group.segment, at, length };
            ordered.push((place, waiter.ordered));
            durable.push((place, waiter.durable));
            gathered.resize((at - from) as usize, 0);
            if length >= UNCOPIED {
                if !gathered.is_empty() {
                    data.push(Buffer::copy_of(&gathered).freeze());
                    gathered.clear();
                }
                let padded = align_up(length, BLOCK);
                // The bytes behind the record are stale and must not reach the volume.
                let used = buffer.len();
                buffer.set_length(padded as usize);
                buffer[used..].fill(0);
                data.push(buffer.freeze());
                from = at + padded;
            } else {
                gathered.extend_from_slice(&buffer);
            }
        }
        gathered.resize((group.end - from) as usize, 0);
        let last_block = gathered[gathered.len() / BLOCK as usize * BLOCK as usize..].to_vec();
        if !gathered.is_empty() {
            let mut padded = Buffer::zeroed(align_up(gathered.len() as u32, BLOCK) as usize);
            padded[..gathered.len()].copy_from_slice(&gathered);
            data.push(padded.freeze());
        }
        let at = self.segments.start(group.segment) + u64::from(group.start);
        let Group { segment, end, followed, .. } = group;
        let ordering = Arc::new(Mutex::new(Some(Ordering { segment, end, last_block, waiters: ordered })));
        let (appender, theirs) = (Arc::clone(self), Arc::clone(&ordering));
        let ordered = Box::new(move || {
            if let Some(ordering) = locked(&theirs).take() {
                appender.ordered(ordering);
            }
        });
        let appender = Arc::clone(self);
        let done = Box::new(move |_, result| {
            let unordered = locked(&ordering).take();
            appender.finished(segment, end, unordered.is_some(), durable, result);
        });
        // The write is the flush behind every acknowledgement of these records: `fua` completes
        // when they are durable.
        order::submit(&self.volume, &*self.catalog, followed, Op::Write { at, data, fua: true }, ordered, done);
    }

    /// Any later write comes behind the group.
    fn ordered(self: &Arc<Self>, ordering: Ordering) {
        let Ordering { segment, end, last_block, waiters } = ordering;
        {
            let mut state = self.state();
            state.on_their_way -= 1;
            if let Some(open) = &mut state.open
                && open.number == segment
                && open.tail == end
            {
                open.last_block = last_block;
            }
        }
        self.start_groups();
        for (place, waiter) in waiters {
            // The record of a writer that has gone away is an orphan. Reclamation drops it.
            let _ = waiter.send(place);
        }
    }

    fn finished(
        self: &Arc<Self>,
        segment: u32,
        end: u32,
        unordered: bool,
        waiters: Vec<(Place, oneshot::Sender<Result<Place>>)>,
        result: Result<(), MediaError>,
    ) {
        let mut state = self.state();
        if let Some(count) = state.writing.get_mut(&segment) {
            *count -= 1;
        }
        state.writing.retain(|_, count| *count > 0);
        if result.is_ok() {
            let written = state.written.entry(segment).or_insert(end);
            *written = (*written).max(end);
        }
        drop(state);
        if let Err(error) = &result {
            let mut state = self.state();
            state.on_their_way -= usize::from(unordered);
            // The next place of a damaged segment may fail too: it takes nothing more.
            if error.fault == MediaFault::Damaged
                && let Some(open) = &state.open
                && open.number == segment
            {
                let open = Filled { number: open.number, incarnation: open.incarnation, tail: open.tail };
                state.fill(open);
            }
            drop(state);
            self.start_groups();
        }
        for (place, waiter) in waiters {
            drop(waiter.send(match &result {
                Ok(()) => Ok(place),
                Err(error) => Err(ArchiveError::from(error.clone())),
            }));
        }
    }

    /// Prepares the next segment, unless another caller just did.
    async fn prepare(&self, reserve: bool) -> Result<()> {
        let _preparing = self.preparing.lock().await;
        {
            let state = self.state();
            if state.open.is_some() || state.spare.is_some() {
                return Ok(());
            }
        }
        let begun = self.state().begun;
        let begun = match begun {
            Some(begun) => begun,
            None => {
                // First, so that no await lies between taking the segment and remembering it.
                let incarnation = crate::space::incarnation(&self.store, self.numbers.next().await?);
                let (number, reserve) = match self.segments.take(false) {
                    Some(number) => (number, false),
                    None if reserve => (self.segments.take(true).ok_or_else(full)?, true),
                    None => return Err(full()),
                };
                *self.state().begun.insert(Begun { number, incarnation, reserve })
            }
        };
        if begun.reserve && !reserve && !self.segments.has_room() {
            return Err(full());
        }
        let prepared = self.prepare_segment(begun).await;
        let mut state = self.state();
        state.begun = None;
        match prepared {
            Ok(()) => {
                state.spare = Some(Open {
                    number: begun.number,
                    incarnation: begun.incarnation,
                    tail: BLOCK,
                    last_block: Vec::new(),
                    reserve: begun.reserve,
                });
                Ok(())
            }
            Err(ArchiveError::Damaged { place, message }) => {
                // It stays taken until the store is opened again. The caller tries the next
                // segment.
                tracing::warn!("segment {} is left out: {place}: {message}", begun.number);
                Ok(())
            }
            Err(error) => {
                drop(state);
                self.segments.give_back(begun.number);
                Err(error)
            }
        }
    }

    async fn prepare_segment(&self, begun: Begun) -> Result<()> {
        let Begun { number, incarnation, .. } = begun;
        let header = SegmentHeader { store: self.store, number, kind: SegmentKind::Data, ordinal: 0, incarnation };
        let block = Buffer::copy_of(&header.encode()).freeze();
        self.volume.write(self.segments.start(number), vec![block], true).await?;
        let row = SegmentRow::new(SegmentUse::Open, incarnation, BLOCK);
        let transaction = Transaction::new().put(SEGMENTS, keys::short(number), encode(&row)).with_reserve();
        let filled = self.state().filled.clone();
        // The full segments are sealed with it, and an opening looks for unsettled notes in open
        // ones only.
        let due = self.compensations.rows().await;
        let transaction = due.apply(transaction);
        // Durable before the first record: an opening looks for records only in segments that the
        // catalog names.
        self.catalog.commit(self.seal_filled(transaction, &filled)).await?;
        self.compensations.wrote(due);
        self.state().filled.retain(|segment| !filled.contains(segment));
        self.segments.put(number, row);
        self.write_footers();
        Ok(())
    }

    /// Adds the rows of full segments to a transaction.
    fn seal_filled(&self, mut transaction: Transaction, filled: &[Filled]) -> Transaction {
        for Filled { number, incarnation, tail } in filled.iter().copied() {
            // An attempt before may have sealed it, and reclamation freed it since.
            if self.segments.row(number).is_none_or(|row| row.incarnation != incarnation) {
                continue;
            }
            self.segments.seal(number, tail);
            if let Some(row) = self.segments.row(number) {
                transaction = transaction.put(SEGMENTS, keys::short(number), encode(&row));
            }
        }
        transaction
    }

    /// Writes the footers of full segments whose groups have ended. A rebuild compares the footers
    /// with its findings; nothing else uses them. What a failed group left out does not count:
    /// nothing is missing there.
    fn write_footers(&self) {
        let mut state = self.state();
        let state = &mut *state;
        let (written, writing, waiting) = (&mut state.written, &state.writing, &state.waiting);
        state.unmarked.retain(|filled| {
            let Filled { number, incarnation, .. } = *filled;
            if writing.contains_key(&number) || waiting.iter().any(|group| group.segment == number) {
                return true;
            }
            let used = written.remove(&number).unwrap_or(BLOCK);
            if self.segments.row(number).is_none_or(|row| row.incarnation != incarnation) {
                return false;
            }
            let footer = Buffer::copy_of(&SegmentFooter { incarnation, used }.encode()).freeze();
            let at = self.segments.start(number) + u64::from(self.segments.size - BLOCK);
            self.volume.submit(Op::Write { at, data: vec![footer], fua: false }, Priority::Host, Box::new(|_, _| ()));
            false
        });
    }
}

impl State {
    /// The open segment takes nothing more.
    fn fill(&mut self, open: Filled) {
        self.filled.push(open);
        self.unmarked.push(open);
        self.open = None;
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn full() -> ArchiveError {
    ArchiveError::NoSpace(
        "the data volume has no free segment; delete versions, and background work reclaims their room".into(),
    )
}
