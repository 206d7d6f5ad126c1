//! Streams of reads: what a volume remembers of its sequential readers, and how far ahead of them it has read.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;

use crate::runtime::sync::Notify;

/// Stripes read ahead at most.
pub const STRIPES_MAX: u8 = 16;
/// Stripes read ahead where nothing was set. Of volumes with an owner nothing is: the owner knows what it will read.
pub const STRIPES: u8 = 4;
/// Streams remembered of a volume; more take turns.
const STREAMS: usize = 8;
/// Reads in a row that make a stream.
const ROW: u32 = 3;
/// A stream is kept from reads that are none for so many reads of the volume.
const KEPT: u64 = 512;

/// Where a reader goes on.
#[derive(Clone, Copy, Default, Debug)]
struct Stream {
    /// Offset behind its last read.
    next: u64,
    /// Reads in a row.
    row: u32,
    /// What lies before is in the cache or on its way there.
    fetched: u64,
    /// The read it was used at last, counted over the volume.
    used: u64,
}

/// What one volume knows of its readers.
#[derive(Default)]
pub struct Ahead {
    stripes: Cell<u8>,
    streams: RefCell<Vec<Stream>>,
    clock: Cell<u64>,
    fetched: Cell<u64>,
    /// Stripes on their way into the cache.
    coming: RefCell<BTreeSet<u64>>,
    came: Notify,
}

/// A volume's measures as reading ahead needs them, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    pub size: u64,
    pub stripe: u64,
    /// May wait in the cache for the volume's streams.
    pub room: u64,
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

    /// The stripe is about to be fetched. False where it is on its way already.
    pub fn expect(&self, stripe: u64) -> bool {
        self.coming.borrow_mut().insert(stripe)
    }

    /// The stripe is in the cache, or will not come.
    pub fn arrived(&self, stripe: u64) {
        self.coming.borrow_mut().remove(&stripe);
        self.came.wake_all();
    }

    /// A read: whether it is part of a stream, and what to fetch ahead of it.
    pub fn note(&self, at: u64, length: u64, of: Measure) -> (bool, Option<Range<u64>>) {
        let now = self.clock.get() + 1;
        self.clock.set(now);
        let mut streams = self.streams.borrow_mut();
        let is_active = |stream: &&Stream| stream.row >= ROW && now - stream.used < KEPT;
        let active = streams.iter().filter(is_active).count().max(1) as u64;
        let Some(stream) = streams.iter_mut().find(|stream| stream.next == at) else {
            let fresh = Stream { next: at + length, row: 1, fetched: 0, used: now };
            if streams.len() < STREAMS {
                streams.push(fresh);
            } else if let Some(oldest) =
                streams.iter_mut().min_by_key(|stream| (stream.row >= ROW && now - stream.used < KEPT, stream.used))
            {
                *oldest = fresh;
            }
            return (false, None);
        };
        stream.next = at + length;
        stream.row = stream.row.saturating_add(1);
        stream.used = now;
        if stream.row < ROW {
            return (false, None);
        }
        let ahead = (u64::from(self.stripes.get()) * of.stripe).min(of.room / active / of.stripe * of.stripe);
        let waiting = stream.fetched.saturating_sub(stream.next);
        if ahead == 0 || waiting * 2 > ahead {
            return (true, None);
        }
        let from = stream.next.max(stream.fetched).next_multiple_of(of.stripe);
        let to = (stream.next + ahead).next_multiple_of(of.stripe).min(of.size);
        if from >= to {
            return (true, None);
        }
        stream.fetched = to;
        (true, Some(from..to))
    }

    /// Waits for stripes of the range that are on their way into the cache. Answers whether there were any.
    pub async fn catch_up(&self, stripes: Range<u64>) -> bool {
        let mut waited = false;
        loop {
            let came = self.came.changed();
            if self.coming.borrow().range(stripes.clone()).next().is_none() {
                return waited;
            }
            waited = true;
            came.await;
        }
    }
}
