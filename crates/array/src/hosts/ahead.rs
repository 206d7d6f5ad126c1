//! Reading ahead of sequential readers.
//!
//! Each volume remembers where hundreds of streams of reads would go on. A read that goes on where
//! one of them was is the stream's next. From the third on, what lies ahead of it is read into the
//! cache, up to the volume's multiplier in stripes, in batches of half of that. Random reads make
//! no three in a row and fetch nothing. A reader that catches up waits for what is on its way
//! instead of asking the drives again. What was fetched queues like any block read once: what no
//! host reads leaves the cache first, and is counted as wasted. All of it is lost with the process,
//! but the multiplier.
//!
//! An eighth of the cache holds what waits for all streams of the pool, on its way included. It is
//! divided evenly among the streams of a volume; where not even one stripe of each fits, parts of
//! stripes are fetched, and in the end nothing.

use std::ops::Range;
use std::rc::Rc;

use stele_ground::{BLOCK, Bytes};

use crate::cache::Worth;
use crate::engine::Engine;
use crate::model::AheadCounts;
use crate::model::place::BlockKey;
use crate::stripe::runs;
use crate::volumes::Volume;
use crate::volumes::ahead::Measure;
use crate::volumes::handle::VolumeHandle;

/// Of the cache so many parts hold what waits for streams: one.
const ROOM: u64 = 8;

/// A range on its way, of one stripe.
struct Coming {
    engine: Rc<Engine>,
    handle: Rc<VolumeHandle>,
    range: Range<u64>,
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.engine.reading.end(self.range.end - self.range.start);
        self.handle.ahead.arrived(&self.range);
    }
}

impl Engine {
    /// A host reads: starts reading ahead where that is part of a stream. Answers whether it is.
    pub fn note_read(self: &Rc<Self>, volume: &Rc<Volume>, handle: &Rc<VolumeHandle>, at: u64, length: usize) -> bool {
        let room = self.options.block_cache.0 / ROOM;
        let taken = self.reading.coming() + self.look(|core| core.cache.ahead_waiting());
        let stripe = volume.shape.data();
        let of = Measure { size: volume.size(), stripe, room, left: room.saturating_sub(taken) };
        let (stream, fetch) = handle.ahead.note(at, length as u64, of);
        let mut rest = fetch.unwrap_or(0..0);
        while !rest.is_empty() {
            let range = rest.start..rest.end.min((rest.start / stripe + 1) * stripe);
            rest.start = range.end;
            if handle.ahead.expect(&range) {
                self.reading.begin(range.end - range.start);
                let coming = Coming { engine: Rc::clone(self), handle: Rc::clone(handle), range };
                let volume = Rc::clone(volume);
                self.io.spawn(async move { coming.engine.fetch_ahead(&volume, &coming.handle, &coming.range).await });
            }
        }
        stream
    }

    /// Reads what the cache lacks of a part of a stripe. A failure is the host's to meet when it
    /// comes there.
    async fn fetch_ahead(&self, volume: &Rc<Volume>, handle: &VolumeHandle, range: &Range<u64>) {
        let stripe = range.start / volume.shape.data();
        if !matches!(self.found(volume, stripe).await, Ok(found) if found.slot().is_some()) {
            return;
        }
        let first = stripe * u64::from(volume.shape.blocks());
        let blocks = range.start / BLOCK as u64..range.end.min(volume.size()).div_ceil(BLOCK as u64);
        let absent = blocks.filter(|block| self.cached_layer(volume, *block).is_none());
        for run in runs(absent.map(|block| (block - first) as usize)) {
            let read = self.view_piece(volume, stripe, run.start as u32, run.len(), Worth::Keeping).await;
            if read.is_err() {
                return;
            }
            let came: Vec<BlockKey> = run.filter_map(|block| self.cached_layer(volume, first + block as u64)).collect();
            let marked =
                self.step(|core| came.into_iter().filter(|key| core.cache.mark_ahead(*key, handle.id)).count());
            handle.ahead.note_fetched((marked * BLOCK) as u64);
        }
    }

    pub fn ahead_counts(&self, handle: &VolumeHandle) -> AheadCounts {
        let (useful, wasted) = self.look(|core| core.cache.ahead_of(handle.id));
        AheadCounts { fetched: Bytes(handle.ahead.fetched()), useful: Bytes(useful), wasted: Bytes(wasted) }
    }
}

#[cfg(test)]
mod tests;
