//! The use of each segment, the share of it that is still needed, and the readers that must end
//! before it is used again.
//!
//! Writers pin only the segments that have their records. A sealed segment is reclaimed only when
//! every writer with records in it has committed or gone, because their records are not in the
//! catalog yet. Readers register in an epoch. A segment is freed only when every reader that began
//! before it was emptied has gone. Readers at a client's pace delay that for at most
//! [`CLIENT_READ_MAX`], and then look up the places again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stele_ground::{Duration, Instant};

use crate::record::content::Place;
use crate::record::segment::{SegmentRow, SegmentUse};

/// Free segments for deletions, holds and reclamation alone. Without them a full store could not
/// shrink.
pub(crate) const RESERVE: usize = 2;
/// How long an emptied segment waits for readers at a client's pace.
pub(crate) const CLIENT_READ_MAX: Duration = Duration::from_secs(600);

pub(crate) struct Segments {
    /// Bytes of a segment.
    pub size: u32,
    /// Segments on the volume; rises when the volume grows.
    count: AtomicU32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    rows: BTreeMap<u32, SegmentRow>,
    /// Rows whose counts changed since they were last written.
    dirty: BTreeSet<u32>,
    /// Being prepared for use.
    taken: BTreeSet<u32>,
    epoch: u64,
    readers: BTreeMap<u64, u64>,
    client_readers: BTreeMap<u64, u64>,
    /// How many writers have records in a segment that are not committed yet.
    pinned: BTreeMap<u32, u64>,
    /// Emptied segments, the epoch that must be over before they are freed, and when they were
    /// emptied.
    retired: BTreeMap<u32, (u64, Instant)>,
    /// The start of the next search for a free segment. Use is spread, so that no segment wears
    /// first.
    next: u32,
}

/// A writer, and the segments with its records. However long it takes, it delays only the reuse of
/// those.
pub(crate) struct Writing {
    segments: Arc<Segments>,
    pins: Mutex<BTreeSet<u32>>,
}

/// A reader's registration.
pub(crate) struct Reading {
    segments: Arc<Segments>,
    epoch: u64,
    /// When a read at a client's pace began.
    client_since: Option<Instant>,
}

impl Segments {
    pub fn new(size: u32, count: u32, rows: BTreeMap<u32, SegmentRow>) -> Segments {
        Segments { size, count: AtomicU32::new(count), state: Mutex::new(State { rows, next: 1, ..State::default() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Segments on the volume.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// Records that the volume has grown.
    pub fn grow_to(&self, count: u32) {
        self.count.fetch_max(count, Ordering::AcqRel);
    }

    pub fn start(&self, segment: u32) -> u64 {
        u64::from(segment) * u64::from(self.size)
    }

    /// Takes a free segment. It stays taken until `put` or `give_back`.
    pub fn take(&self, reserve: bool) -> Option<u32> {
        let mut state = self.state();
        let in_use = state.rows.len() + state.taken.iter().filter(|number| !state.rows.contains_key(number)).count();
        // Segment 0 is never free and has no row.
        let free = (self.count() as usize - 1).saturating_sub(in_use);
        if free <= if reserve { 0 } else { RESERVE } {
            return None;
        }
        let (from, count) = (state.next, self.count());
        let found = (from..count)
            .chain(1..from)
            .find(|number| !state.rows.contains_key(number) && !state.taken.contains(number))?;
        state.next = if found + 1 < count { found + 1 } else { 1 };
        state.taken.insert(found);
        Some(found)
    }

    pub fn give_back(&self, segment: u32) {
        self.state().taken.remove(&segment);
    }

    /// Whether an ordinary writer could take a segment.
    pub fn has_room(&self) -> bool {
        self.free() > RESERVE
    }

    pub fn free(&self) -> usize {
        let state = self.state();
        let in_use = state.rows.len() + state.taken.iter().filter(|number| !state.rows.contains_key(number)).count();
        (self.count() as usize - 1).saturating_sub(in_use)
    }

    pub fn put(&self, segment: u32, row: SegmentRow) {
        let mut state = self.state();
        state.taken.remove(&segment);
        state.rows.insert(segment, row);
    }

    pub fn row(&self, segment: u32) -> Option<SegmentRow> {
        self.state().rows.get(&segment).copied()
    }

    /// The row of a segment that a reader registered before may walk. None: it is free, or emptied
    /// and about to be overwritten.
    pub fn row_to_read(&self, segment: u32) -> Option<SegmentRow> {
        let state = self.state();
        state.rows.get(&segment).copied().filter(|_| !state.retired.contains_key(&segment))
    }

    pub fn rows(&self) -> BTreeMap<u32, SegmentRow> {
        self.state().rows.clone()
    }

    pub fn change(&self, segment: u32, change: impl FnOnce(&mut SegmentRow)) {
        let mut state = self.state();
        if let Some(row) = state.rows.get_mut(&segment) {
            change(row);
            state.dirty.insert(segment);
        }
    }

    /// Nothing more is appended to the segment.
    pub fn seal(&self, segment: u32, used: u32) {
        self.change(segment, |row| {
            row.usage = SegmentUse::Sealed;
            row.used = used;
        });
    }

    pub fn add_live(&self, place: Place) {
        self.change(place.segment, |row| row.live += i64::from(place.length));
    }

    /// As `add_live`, for a record that is needed although no row refers to it.
    pub fn add_kept(&self, place: Place) {
        self.change(place.segment, |row| {
            row.live += i64::from(place.length);
            row.kept = row.kept.saturating_add(place.length);
        });
    }

    pub fn drop_live(&self, place: Place) {
        self.change(place.segment, |row| row.live -= i64::from(place.length));
    }

    /// The rows to write because their counts changed.
    pub fn take_dirty(&self) -> Vec<(u32, SegmentRow)> {
        let mut state = self.state();
        let dirty = std::mem::take(&mut state.dirty);
        dirty.into_iter().filter_map(|number| Some((number, *state.rows.get(&number)?))).collect()
    }

    /// The sealed segment with the least needed share, if that is at most `percent`. Retired ones
    /// and those in `except` are left out.
    pub fn emptiest(&self, percent: u32, except: &BTreeSet<u32>) -> Option<u32> {
        let state = self.state();
        let share = |row: &SegmentRow| row.live.max(0) as u64 * 100 / u64::from(self.size);
        state
            .rows
            .iter()
            .filter(|(number, _)| !state.pinned.contains_key(number))
            .filter(|(number, row)| {
                row.usage == SegmentUse::Sealed && !state.retired.contains_key(number) && !except.contains(number)
            })
            .map(|(number, row)| (share(row), *number))
            .min()
            .filter(|(share, _)| *share <= u64::from(percent))
            .map(|(_, number)| number)
    }

    /// Retires an emptied segment: no reader that begins from now on needs it.
    pub fn retire(&self, segment: u32, now: Instant) {
        let mut state = self.state();
        let epoch = state.epoch;
        state.retired.insert(segment, (epoch, now));
        state.epoch += 1;
    }

    /// Takes back a retirement, since the segment cannot be freed.
    pub fn unretire(&self, segment: u32) {
        self.state().retired.remove(&segment);
    }

    /// Retired segments without readers, apart from readers at a client's pace that have overrun
    /// their time.
    pub fn freeable(&self, now: Instant) -> Vec<u32> {
        let state = self.state();
        let oldest = |readers: &BTreeMap<u64, u64>| readers.keys().next().copied().unwrap_or(u64::MAX);
        let (reader, client) = (oldest(&state.readers), oldest(&state.client_readers));
        let free = |epoch: u64, at: Instant| epoch < reader && (epoch < client || now.since(at) > CLIENT_READ_MAX);
        state.retired.iter().filter(|(_, (epoch, at))| free(*epoch, *at)).map(|(number, _)| *number).collect()
    }

    /// Records that the catalog no longer names the segment. It may be taken.
    pub fn freed(&self, segment: u32) {
        let mut state = self.state();
        state.retired.remove(&segment);
        state.rows.remove(&segment);
        state.dirty.remove(&segment);
    }

    /// Registers a writer. The caller keeps it until its commit has answered.
    pub fn begin(self: &Arc<Segments>) -> Arc<Writing> {
        Arc::new(Writing { segments: Arc::clone(self), pins: Mutex::default() })
    }

    /// Registers a reader. To be called before a lookup of places.
    pub fn reading(self: &Arc<Segments>) -> Reading {
        let mut state = self.state();
        let epoch = state.epoch;
        *state.readers.entry(epoch).or_insert(0) += 1;
        Reading { segments: Arc::clone(self), epoch, client_since: None }
    }

    /// As `reading`, for a reader whose pace a client sets.
    pub fn reading_for_client(self: &Arc<Segments>, now: Instant) -> Reading {
        let mut state = self.state();
        let epoch = state.epoch;
        *state.client_readers.entry(epoch).or_insert(0) += 1;
        Reading { segments: Arc::clone(self), epoch, client_since: Some(now) }
    }
}

impl Reading {
    /// Whether the places that were looked up may be out of date.
    pub fn is_overtaken(&self, now: Instant) -> bool {
        self.client_since.is_some_and(|began| now.since(began) > CLIENT_READ_MAX)
    }
}

impl Writing {
    /// A record of this writer goes into the segment.
    pub fn pin(&self, segment: u32) {
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        if pins.insert(segment) {
            *self.segments.state().pinned.entry(segment).or_insert(0) += 1;
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let pins = std::mem::take(&mut *self.pins.lock().unwrap_or_else(PoisonError::into_inner));
        let mut state = self.segments.state();
        for segment in pins {
            if let Some(count) = state.pinned.get_mut(&segment) {
                *count -= 1;
                if *count == 0 {
                    state.pinned.remove(&segment);
                }
            }
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut state = self.segments.state();
        let readers = if self.client_since.is_some() { &mut state.client_readers } else { &mut state.readers };
        if let Some(count) = readers.get_mut(&self.epoch) {
            *count -= 1;
            if *count == 0 {
                readers.remove(&self.epoch);
            }
        }
    }
}

#[cfg(test)]
mod tests;
