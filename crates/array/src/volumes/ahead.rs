//! What a volume remembers of its sequential readers, and how far ahead of them it has read.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;

use stele_ground::BLOCK;

use crate::runtime::sync::Notify;
use streams::Streams;

pub mod streams;

/// Stripes read ahead at most.
pub const STRIPES_MAX: u8 = 16;
/// Stripes read ahead where nothing was set. Of volumes with an owner nothing is: the owner knows
/// what it will read.
pub const STRIPES: u8 = 4;
/// Where whole stripes of all streams do not fit, parts of stripes are fetched, of so many bytes at
/// least: smaller reads of a hard drive take as long.
const PART_MIN: u64 = 64 << 10;

/// What one volume knows of its readers.
#[derive(Default)]
pub struct Ahead {
    stripes: Cell<u8>,
    streams: RefCell<Streams>,
    fetched: Cell<u64>,
    /// Ranges on their way into the cache, none longer than a stripe, by their first byte.
    coming: RefCell<BTreeMap<u64, u64>>,
    came: Notify,
}

/// A volume's measures as reading ahead needs them, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    pub size: u64,
    pub stripe: u64,
    /// May wait in the cache for streams.
    pub room: u64,
    /// Of the room, what the streams of all volumes leave.
    pub left: u64,
}

impl Measure {
    /// What is fetched at once for a stream that may have so much of the room: a stripe, or a part
    /// that divides it; none if even the smallest part is more.
    fn grain(&self, share: u64) -> Option<u64> {
        let mut grain = self.stripe;
        while grain > share {
            let half = grain / 2;
            if half < PART_MIN || !half.is_multiple_of(BLOCK as u64) {
                return None;
            }
            grain = half;
        }
        Some(grain)
    }
}

impl Ahead {
    pub fn of(stripes: u8) -> Ahead {
        Ahead { stripes: Cell::new(stripes), ..Ahead::default() }
    }

    /// Stripes read ahead of each stream.
    pub fn stripes(&self) -> u8 {
        self.stripes.get()
    }

    pub fn set_stripes(&self, stripes: u8) {
        self.stripes.set(stripes);
    }

    /// Bytes that came into the cache before anyone asked for them.
    pub fn fetched(&self) -> u64 {
        self.fetched.get()
    }

    pub fn note_fetched(&self, bytes: u64) {
        self.fetched.set(self.fetched.get() + bytes);
    }

    /// The range is about to be fetched. False where it is on its way already.
    pub fn expect(&self, range: &Range<u64>) -> bool {
        let mut coming = self.coming.borrow_mut();
        let known = coming.get(&range.start).is_some_and(|end| *end >= range.end);
        if !known {
            coming.insert(range.start, range.end);
        }
        !known
    }

    /// The range is in the cache, or will not come.
    pub fn arrived(&self, range: &Range<u64>) {
        let mut coming = self.coming.borrow_mut();
        // A longer one with the same beginning is still on its way.
        if coming.get(&range.start) == Some(&range.end) {
            coming.remove(&range.start);
        }
        drop(coming);
        self.came.wake_all();
    }

    /// A read: whether it is part of a stream, and what to fetch ahead of it.
    pub fn note(&self, at: u64, length: u64, of: Measure) -> (bool, Option<Range<u64>>) {
        let mut streams = self.streams.borrow_mut();
        if !streams.note(at, length) {
            return (false, None);
        }
        let share = of.room / streams.count().max(1) as u64;
        let next = at + length;
        let fetch = of.grain(share).and_then(|grain| {
            let ahead = (u64::from(self.stripes.get()) * of.stripe).min(share / grain * grain);
            let fetched = streams.fetched(next)?;
            if ahead == 0 || fetched.saturating_sub(next) * 2 > ahead {
                return None;
            }
            let from = next.max(fetched).next_multiple_of(grain);
            let to = (next + ahead).next_multiple_of(grain).min(of.size).min(from + of.left / grain * grain);
            (from < to).then_some(from..to)
        });
        if let Some(fetch) = &fetch {
            streams.note_fetched(next, fetch.end);
        }
        (true, fetch)
    }

    /// Waits for what is on its way into the cache, of the range. Answers whether there was any.
    pub async fn catch_up(&self, range: Range<u64>, stripe: u64) -> bool {
        let mut waited = false;
        loop {
            let came = self.came.changed();
            let first = range.start.saturating_sub(stripe);
            if !self.coming.borrow().range(first..range.end).any(|(_, end)| *end > range.start) {
                return waited;
            }
            waited = true;
            came.await;
        }
    }
}
