//! Reading ahead of sequential readers.
//!
//! Each volume remembers where a few streams of reads would go on. A read that goes on where one of them was is the stream's
//! next; from the third on, whole stripes ahead of it are read into the cache, up to the volume's multiplier in stripes, in
//! batches of half of that. Random reads make no three in a row and fetch nothing. A reader that catches up waits for what is
//! on its way instead of asking the drives again. What was fetched queues like any block read once: what nobody reads leaves
//! the cache first, and is counted as wasted. All of it is lost with the process, but the multiplier.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use stele_ground::{BLOCK, Bytes};
use stele_media::Buffer;

use crate::AheadCounts;
use crate::cache::BlockKey;
use crate::destage::runs;
use crate::engine::{Engine, add};
use crate::sync::Notify;
use crate::volumes::Volume;
use crate::volumes::face::Face;

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
    pub stripes: Cell<u8>,
    streams: RefCell<Vec<Stream>>,
    clock: Cell<u64>,
    fetched: Cell<u64>,
    /// Stripes on their way into the cache.
    coming: RefCell<BTreeSet<u64>>,
    came: Notify,
}

/// A volume's measures as reading ahead needs them, in bytes.
#[derive(Clone, Copy, Debug)]
struct Measure {
    size: u64,
    stripe: u64,
    /// May wait in the cache for the volume's streams.
    room: u64,
}

impl Ahead {
    pub fn of(stripes: u8) -> Ahead {
        Ahead { stripes: Cell::new(stripes), ..Ahead::default() }
    }

    /// A read: whether it is part of a stream, and what to fetch ahead of it.
    fn note(&self, at: u64, length: u64, of: Measure) -> (bool, Option<Range<u64>>) {
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

/// A stripe on its way.
struct Coming<'a> {
    ahead: &'a Ahead,
    stripe: u64,
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.ahead.coming.borrow_mut().remove(&self.stripe);
        self.ahead.came.wake_all();
    }
}

impl Engine {
    /// A host reads: starts reading ahead where that is part of a stream. Answers whether it is.
    pub fn note_read(self: &Rc<Self>, volume: &Rc<Volume>, face: &Rc<Face>, at: u64, length: usize) -> bool {
        // New blocks queue in a tenth of the cache; the other half of that is for those read without a stream.
        let of = Measure { size: volume.size(), stripe: volume.shape.data(), room: self.options.block_cache.0 / 20 };
        let (stream, fetch) = face.ahead.note(at, length as u64, of);
        for stripe in fetch.map_or(0..0, |bytes| bytes.start / of.stripe..bytes.end.div_ceil(of.stripe)) {
            if face.ahead.coming.borrow_mut().insert(stripe) {
                let (engine, volume, face) = (Rc::clone(self), Rc::clone(volume), Rc::clone(face));
                self.io.spawn(async move {
                    let coming = Coming { ahead: &face.ahead, stripe };
                    engine.fetch_ahead(&volume, &face, stripe).await;
                    drop(coming);
                });
            }
        }
        stream
    }

    /// Reads what the cache lacks of a stripe. A failure is the host's to meet when it comes there.
    async fn fetch_ahead(&self, volume: &Rc<Volume>, face: &Face, stripe: u64) {
        if !matches!(self.found(volume, stripe).await, Ok(found) if found.slot().is_some()) {
            return;
        }
        let blocks = u64::from(volume.shape.blocks());
        let first = stripe * blocks;
        let last = (first + blocks).min(volume.size().div_ceil(BLOCK as u64));
        let absent = (first..last).filter(|block| self.cached_layer(volume, *block).is_none());
        for run in runs(absent.map(|block| (block - first) as usize)) {
            let mut data = Buffer::zeroed(run.len() * BLOCK);
            if self.read_piece(volume, stripe, run.start as u32, &mut data).await.is_err() {
                return;
            }
            let came: Vec<BlockKey> = run.filter_map(|block| self.cached_layer(volume, first + block as u64)).collect();
            let mut cache = self.cache.borrow_mut();
            let marked = came.into_iter().filter(|key| cache.mark_ahead(*key, face.id)).count();
            add(&face.ahead.fetched, (marked * BLOCK) as u64);
        }
    }

    pub fn ahead_counts(&self, face: &Face) -> AheadCounts {
        let (useful, wasted) = self.cache.borrow().ahead_of(face.id);
        AheadCounts { fetched: Bytes(face.ahead.fetched.get()), useful: Bytes(useful), wasted: Bytes(wasted) }
    }
}

#[cfg(test)]
mod tests;
