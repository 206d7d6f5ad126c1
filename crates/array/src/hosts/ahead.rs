//! Reading ahead of sequential readers.
//!
//! Each volume remembers where a few streams of reads would go on. A read that goes on where one of them was is the stream's
//! next; from the third on, whole stripes ahead of it are read into the cache, up to the volume's multiplier in stripes, in
//! batches of half of that. Random reads make no three in a row and fetch nothing. A reader that catches up waits for what is
//! on its way instead of asking the drives again. What was fetched queues like any block read once: what nobody reads leaves
//! the cache first, and is counted as wasted. All of it is lost with the process, but the multiplier.

use std::rc::Rc;

use stele_ground::{BLOCK, Bytes};
use stele_media::Buffer;

use crate::engine::Engine;
use crate::model::AheadCounts;
use crate::model::place::BlockKey;
use crate::stripe::runs;
use crate::volumes::Volume;
use crate::volumes::ahead::{Ahead, Measure};
use crate::volumes::face::Face;

/// A stripe on its way.
struct Coming<'a> {
    ahead: &'a Ahead,
    stripe: u64,
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.ahead.arrived(self.stripe);
    }
}

impl Engine {
    /// A host reads: starts reading ahead where that is part of a stream. Answers whether it is.
    pub fn note_read(self: &Rc<Self>, volume: &Rc<Volume>, face: &Rc<Face>, at: u64, length: usize) -> bool {
        // New blocks queue in a tenth of the cache; the other half of that is for those read without a stream.
        let of = Measure { size: volume.size(), stripe: volume.shape.data(), room: self.options.block_cache.0 / 20 };
        let (stream, fetch) = face.ahead.note(at, length as u64, of);
        for stripe in fetch.map_or(0..0, |bytes| bytes.start / of.stripe..bytes.end.div_ceil(of.stripe)) {
            if face.ahead.expect(stripe) {
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
            let marked = self.step(|core| came.into_iter().filter(|key| core.cache.mark_ahead(*key, face.id)).count());
            face.ahead.note_fetched((marked * BLOCK) as u64);
        }
    }

    pub fn ahead_counts(&self, face: &Face) -> AheadCounts {
        let (useful, wasted) = self.look(|core| core.cache.ahead_of(face.id));
        AheadCounts { fetched: Bytes(face.ahead.fetched()), useful: Bytes(useful), wasted: Bytes(wasted) }
    }
}

#[cfg(test)]
mod tests;
