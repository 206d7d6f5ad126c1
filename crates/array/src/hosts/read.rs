//! Reads of hosts: from the cache; else from the drives, verified; else reconstructed, and put
//! right in place.
//!
//! A reader sees only what cannot be taken back: blocks and mappings whose records are not durable
//! yet are waited for. Clean blocks are read without the stripe's lock. If they fail their digest
//! the stripe may have changed meanwhile, so the reader looks again under the lock, and only what
//! fails there is damage.

use std::ops::Range;
use std::rc::Rc;

use stele_codes::Strips;
use stele_ground::{BLOCK, VolumeId};
use stele_media::{Buffer, Priority, Shared};

use crate::cache::{Held, Worth};
use crate::engine::Engine;
use crate::formats::entry::LOST;
use crate::formats::map::{self, Home};
use crate::layers::FoundStripe;
use crate::model::ArrayError;
use crate::model::place::{BlockKey, Lsn, StripeKey};
use crate::runtime::sync::{StripeGuard, join_all};
use crate::stripe::Stripe;
use crate::volumes::Volume;

/// From this many bytes on, a read that misses enters a full cache only when it comes back.
const LONG: u64 = 64 << 10;

/// What the drives must be asked for: a run of blocks of one strip, with its place in the answer.
struct Run {
    strip: usize,
    blocks: Range<usize>,
    /// First block, counted within the piece.
    place: usize,
}

impl Run {
    /// Its bytes within the units that hold it.
    fn range_in_units(&self, of: &Stripe) -> Range<usize> {
        let units = of.shape.units_of(self.blocks.clone());
        let skip = self.blocks.start * BLOCK - units.start * of.shape.unit_bytes;
        skip..skip + self.blocks.len() * BLOCK
    }
}

/// The parts of a range of blocks, stripe by stripe: the stripe, the first block in it, how many.
fn by_stripe(volume: &Volume, first: u64, blocks: u64) -> impl Iterator<Item = (u64, u32, usize)> + use<> {
    let per_stripe = u64::from(volume.shape.blocks());
    let end = first + blocks;
    let mut here = first;
    std::iter::from_fn(move || {
        let inside = here % per_stripe;
        let count = (per_stripe - inside).min(end - here);
        let part = (here / per_stripe, inside as u32, count as usize);
        here += count;
        (count > 0).then_some(part)
    })
}

impl Engine {
    /// Answers from the cache alone, if everything is there and durable. Nothing is allocated.
    /// `stream`: as a part of a sequential reader's, which makes no block worth keeping.
    pub fn read_cached(&self, volume: &Rc<Volume>, at: u64, out: &mut [u8], stream: bool) -> bool {
        let mut rest = &mut out[..];
        let all = self.each_cached(volume, at, rest.len() as u64, stream, |data, range| {
            let (here, after) = std::mem::take(&mut rest).split_at_mut(range.len());
            here.copy_from_slice(&data[range]);
            rest = after;
        });
        if all {
            self.count.copied.add(out.len() as u64);
        }
        all
    }

    /// As `read_cached`, without a copy: what a later write or the cache's own turnover puts in a
    /// block's place leaves the pieces as they are.
    pub fn view_cached(&self, volume: &Rc<Volume>, at: u64, length: u64, stream: bool) -> Option<Vec<Shared>> {
        let mut pieces = Vec::with_capacity((length.div_ceil(BLOCK as u64) + 1) as usize);
        self.each_cached(volume, at, length, stream, |data, range| pieces.push(data.slice(range))).then_some(pieces)
    }

    /// Hands out the range block by block. False, maybe after some, if one is not there or not
    /// durable.
    fn each_cached(
        &self,
        volume: &Rc<Volume>,
        at: u64,
        length: u64,
        stream: bool,
        mut each: impl FnMut(&Shared, Range<usize>),
    ) -> bool {
        // A stripe whose mapping is not durable yet has no clean blocks here, and dirty ones carry
        // their own LSN.
        let durable = self.log.durable_lsn();
        let layered = volume.base().is_some();
        if layered && self.look(|core| !core.unsettled_layers.is_empty()) {
            return false;
        }
        let mut here = at;
        let end = at + length;
        while here < end {
            let block = here / BLOCK as u64;
            let skip = (here % BLOCK as u64) as usize;
            let take = (BLOCK - skip).min((end - here) as usize);
            let key = match layered {
                false => BlockKey { volume: volume.id, block },
                true => match self.cached_layer(volume, block) {
                    Some(key) => key,
                    None => return false,
                },
            };
            let found = self.step(|core| match core.cache.get_as(key, !stream) {
                Some(Held::Good(data, lsn)) if lsn <= durable => {
                    each(data, skip..skip + take);
                    true
                }
                _ => false,
            });
            if !found {
                return false;
            }
            here += take as u64;
        }
        self.count.cache_hits.add(1);
        true
    }

    /// As `read_host`, after what was read ahead of it has come.
    pub async fn read_here_or_there(&self, volume: &Rc<Volume>, at: u64, out: &mut [u8]) -> Result<(), ArrayError> {
        if let Some(handle) = volume.handle() {
            let range = at..at + out.len() as u64;
            if handle.ahead.catch_up(range, volume.shape.data()).await && self.read_cached(volume, at, out, true) {
                handle.note_hit();
                return Ok(());
            }
            handle.note_miss();
        }
        self.read_host(volume, at, out).await
    }

    /// As `read_here_or_there`, without a copy of what comes from the drives alone.
    pub async fn view_here_or_there(
        &self,
        volume: &Rc<Volume>,
        at: u64,
        length: u64,
    ) -> Result<Vec<Shared>, ArrayError> {
        if let Some(handle) = volume.handle() {
            if handle.ahead.catch_up(at..at + length, volume.shape.data()).await
                && let Some(pieces) = self.view_cached(volume, at, length, true)
            {
                handle.note_hit();
                return Ok(pieces);
            }
            handle.note_miss();
        }
        let block = BLOCK as u64;
        if !at.is_multiple_of(block) || !length.is_multiple_of(block) {
            let mut buffer = Buffer::stale(length as usize);
            self.read_host(volume, at, &mut buffer).await?;
            return Ok(vec![buffer.freeze()]);
        }
        self.count.cache_misses.add(1);
        let worth = if length >= LONG { Worth::IfReadBefore } else { Worth::Keeping };
        let views = by_stripe(volume, at / block, length / block)
            .map(|(stripe, inside, count)| self.view_piece(volume, stripe, inside, count, worth));
        let pieces = join_all(views.collect::<Vec<_>>()).await;
        pieces.into_iter().collect::<Result<Vec<_>, _>>().map(|pieces| pieces.concat())
    }

    /// Fills the buffer from the volume. The range was checked against the volume's size.
    pub async fn read_host(&self, volume: &Rc<Volume>, at: u64, out: &mut [u8]) -> Result<(), ArrayError> {
        self.count.cache_misses.add(1);
        let block = BLOCK as u64;
        let (first, last) = (at / block, (at + out.len() as u64).div_ceil(block));
        if at.is_multiple_of(block) && out.len().is_multiple_of(BLOCK) {
            return self.read_blocks(volume, first, out).await;
        }
        let mut whole = Buffer::zeroed(((last - first) * block) as usize);
        self.read_blocks(volume, first, &mut whole).await?;
        let skip = (at - first * block) as usize;
        out.copy_from_slice(&whole[skip..skip + out.len()]);
        Ok(())
    }

    /// Whole blocks, stripe by stripe at once.
    async fn read_blocks(&self, volume: &Rc<Volume>, first: u64, out: &mut [u8]) -> Result<(), ArrayError> {
        let blocks = (out.len() / BLOCK) as u64;
        let mut rest = out;
        let mut reads = Vec::new();
        for (stripe, inside, count) in by_stripe(volume, first, blocks) {
            let (piece, after) = std::mem::take(&mut rest).split_at_mut(count * BLOCK);
            reads.push(self.read_piece(volume, stripe, inside, piece));
            rest = after;
        }
        join_all(reads).await.into_iter().collect()
    }

    /// Blocks of one stripe.
    pub async fn read_piece(
        &self,
        volume: &Rc<Volume>,
        stripe: u64,
        block: u32,
        out: &mut [u8],
    ) -> Result<(), ArrayError> {
        let looked = self.find_blocks(volume, stripe, block, out).await?;
        // A layer that was given up may have lost stripes to others already.
        volume.check_stays()?;
        let Some((of, runs)) = looked else { return Ok(()) };
        match self.read_runs(&of, &runs).await {
            Some(done) => {
                runs.iter().zip(&done).for_each(|(run, data)| self.take_run(&of, run, block, data, out));
                Ok(())
            }
            None => self.read_damaged(volume, stripe, block, out).await,
        }
    }

    /// As `read_piece`. Where all of it comes from the drives, the answer is what was read.
    pub async fn view_piece(
        &self,
        volume: &Rc<Volume>,
        stripe: u64,
        block: u32,
        count: usize,
        worth: Worth,
    ) -> Result<Vec<Shared>, ArrayError> {
        let mut out = Buffer::stale(count * BLOCK);
        let looked = self.find_blocks(volume, stripe, block, &mut out).await?;
        volume.check_stays()?;
        let Some((of, runs)) = looked else { return Ok(vec![out.freeze()]) };
        let Some(done) = self.read_runs(&of, &runs).await else {
            self.read_damaged(volume, stripe, block, &mut out).await?;
            return Ok(vec![out.freeze()]);
        };
        let all = runs.iter().map(|run| run.blocks.len()).sum::<usize>() == count;
        // A unit much larger than what was asked of it would be kept as long as the answer.
        let lean = |(run, data): (&Run, &Buffer)| data.len() <= 2 * run.blocks.len() * BLOCK;
        if !all || !runs.iter().zip(&done).all(lean) {
            runs.iter().zip(&done).for_each(|(run, data)| self.take_run(&of, run, block, data, &mut out));
            return Ok(vec![out.freeze()]);
        }
        let pieces = runs.iter().zip(done).map(|(run, data)| {
            let range = run.range_in_units(&of);
            self.offer_run(&of, run, block, &data[range.clone()], worth);
            data.freeze().slice(range)
        });
        Ok(pieces.collect())
    }

    /// What the drives hold of each run. None: a part of it does not verify.
    async fn read_runs(&self, of: &Stripe, runs: &[Run]) -> Option<Vec<Buffer>> {
        let done = join_all(runs.iter().map(|run| self.read_run(of, run))).await;
        let whole = done.into_iter().collect::<Option<Vec<_>>>();
        if whole.is_none() {
            self.count.retries.add(1);
        }
        whole
    }

    /// One picture of the piece: copies what the cache holds and says what the drives must be asked
    /// for. None when nothing is left to ask.
    async fn find_blocks(
        &self,
        volume: &Rc<Volume>,
        stripe: u64,
        block: u32,
        out: &mut [u8],
    ) -> Result<Option<(Stripe, Vec<Run>)>, ArrayError> {
        loop {
            if volume.was_deleted() {
                return Err(ArrayError::Missing(format!("volume '{}' was deleted", volume.name())));
            }
            let found = self.find(volume, stripe).await?;
            let slot_page = match found.slot() {
                Some(slot) => Some((slot, self.slot_page(&volume.shape, slot).await?)),
                None => None,
            };
            // From here to the end of the loop nothing waits: this is one moment.
            let unsettled = self.unsettled_in(&found, stripe);
            if let Some(lsn) = unsettled.filter(|lsn| *lsn > self.log.durable_lsn()) {
                self.log.durable(lsn).await?;
                continue;
            }
            if volume.was_deleted() || !self.still(&found, stripe) {
                continue;
            }
            let picture = match &slot_page {
                None => None,
                Some((slot, (page, at))) => match self.picture(found.owner(), stripe, *slot, page, *at) {
                    Some(picture) => Some(picture),
                    None => {
                        return Err(ArrayError::Damaged(format!(
                            "the map of volume '{}' puts stripe {stripe} into {slot}, whose entry names another; \
                             restore the pool",
                            volume.name()
                        )));
                    }
                },
            };
            let (runs, newest) = match self.copy_cached(&found, stripe, block, out, picture.is_some()) {
                Ok(copied) => copied,
                Err(spoilt) => {
                    self.restore_block(spoilt).await?;
                    continue;
                }
            };
            if newest > self.log.durable_lsn() {
                self.log.durable(newest).await?;
                continue;
            }
            return Ok(picture.filter(|_| !runs.is_empty()).map(|picture| (picture, runs)));
        }
    }

    /// The newest record that is not settled, of the stripe's mapping in any of the layers or of a
    /// layer itself.
    pub fn unsettled_in(&self, found: &FoundStripe, stripe: u64) -> Option<Lsn> {
        self.look(|core| {
            if core.unsettled.is_empty() && core.unsettled_layers.is_empty() {
                return None;
            }
            let of = |layer: &Rc<Volume>| {
                let mapping = core.unsettled.get(&StripeKey { volume: layer.id, stripe });
                mapping.max(core.unsettled_layers.get(&layer.id)).copied()
            };
            found.layers().filter_map(of).max()
        })
    }

    /// Copies cached blocks; the others are zeros, or asked of the drives when the stripe owns a
    /// slot. The error: a block that must be taken from the log first.
    fn copy_cached(
        &self,
        found: &FoundStripe,
        stripe: u64,
        block: u32,
        out: &mut [u8],
        mapped: bool,
    ) -> Result<(Vec<Run>, Lsn), BlockKey> {
        let shape = &found.owner().shape;
        let mut runs: Vec<Run> = Vec::new();
        let mut newest = Lsn(0);
        let first = stripe * u64::from(shape.blocks());
        self.step(|core| {
            for (place, out) in out.chunks_mut(BLOCK).enumerate() {
                let inside = block + place as u32;
                let key = |layer: &Rc<Volume>| BlockKey { volume: layer.id, block: first + u64::from(inside) };
                let held = found.layers().map(key).find(|key| core.cache.holds(*key));
                match held.and_then(|key| core.cache.get(key)) {
                    Some(Held::Spoilt) => return Err(held.unwrap_or(key(found.owner()))),
                    Some(Held::Good(data, lsn)) => {
                        out.copy_from_slice(data);
                        newest = newest.max(lsn);
                    }
                    None if !mapped => out.fill(0),
                    None => {
                        let (strip, at) = shape.strip_of(inside);
                        match runs.last_mut() {
                            Some(run) if run.strip == strip && run.blocks.end == at => run.blocks.end += 1,
                            _ => runs.push(Run { strip, blocks: at..at + 1, place }),
                        }
                    }
                }
            }
            Ok((runs, newest))
        })
    }

    /// The units that hold a run, if every one verifies.
    async fn read_run(&self, of: &Stripe, run: &Run) -> Option<Buffer> {
        let units = of.shape.units_of(run.blocks.clone());
        let strip = self.idlest_copy(of, run.strip, &units);
        if units.clone().any(|unit| of.digest(strip, unit) == LOST) {
            return None;
        }
        let read = self.read_hedged(of, strip, units).await;
        if !read.unreadable.is_empty() {
            self.ask_repair(StripeKey { volume: of.volume, stripe: of.stripe });
        }
        read.good.iter().all(|good| *good).then_some(read.buffer)
    }

    /// Of a mirror the copy whose drive has the least to do; else the strip itself.
    fn idlest_copy(&self, of: &Stripe, strip: usize, units: &Range<usize>) -> usize {
        if !of.shape.code().is_mirror() {
            return strip;
        }
        // A blank copy says nothing that the others do not; a lost one nothing at all.
        let whole = |copy: &usize| units.clone().all(|unit| of.digest(*copy, unit) != LOST);
        let load = |copy: &usize| self.drives.index(of.places[*copy].cell.drive).map(|index| self.io.load(index));
        let copies = (0..of.shape.width()).filter(whole).filter_map(|copy| Some((load(&copy)?, copy)));
        copies.min().map_or(strip, |(_, copy)| copy)
    }

    /// Copies a verified run into the answer, and offers its blocks to the cache if they are still
    /// what the stripe holds.
    fn take_run(&self, of: &Stripe, run: &Run, block: u32, data: &[u8], out: &mut [u8]) {
        let data = &data[run.range_in_units(of)];
        out[run.place * BLOCK..][..data.len()].copy_from_slice(data);
        self.count.copied.add(data.len() as u64);
        self.offer_run(of, run, block, data, Worth::Keeping);
    }

    /// Offers a verified run to the cache if its blocks are still what the stripe holds.
    fn offer_run(&self, of: &Stripe, run: &Run, block: u32, data: &[u8], worth: Worth) {
        let shape = &of.shape;
        if !self.is_current(of, run.strip, shape.units_of(run.blocks.clone())) {
            return;
        }
        let first = of.stripe * u64::from(shape.blocks()) + u64::from(block) + run.place as u64;
        self.step(|core| {
            for (number, data) in data.chunks(BLOCK).enumerate() {
                core.cache.offer(BlockKey { volume: of.volume, block: first + number as u64 }, data, worth);
            }
        });
    }

    /// Whether the picture still stands for these units: same slot, same generation, same digests,
    /// nothing on its way.
    fn is_current(&self, of: &Stripe, strip: usize, units: Range<usize>) -> bool {
        let key = StripeKey { volume: of.volume, stripe: of.stripe };
        let (map_id, map_at) = Engine::map_page_id(of.volume, of.stripe);
        let (slot_id, slot_at) = Engine::slot_page_id(&of.shape, of.slot);
        let (Some(map_page), Some(slot_page)) = (self.table.cached(map_id), self.table.cached(slot_id)) else {
            return false;
        };
        !self.look(|core| core.unsettled.contains_key(&key))
            && map_page.read(|bytes| map::get(bytes, map_at)) == Home::Slot(of.slot)
            && slot_page.read(|bytes| {
                crate::formats::entry::head(bytes, slot_at).generation == of.generation
                    && units.into_iter().all(|unit| {
                        let index = of.shape.digest_index(strip, unit);
                        crate::formats::entry::digest(bytes, slot_at, index) == of.digest(strip, unit)
                    })
            })
    }

    /// Under the lock of the stripe in the layer that has it: reconstructs what does not verify,
    /// and has it repaired.
    async fn read_damaged(
        &self,
        volume: &Rc<Volume>,
        stripe: u64,
        block: u32,
        out: &mut [u8],
    ) -> Result<(), ArrayError> {
        let looked = self.look_locked(volume, stripe, block, out, None).await?;
        volume.check_stays()?;
        let Some((_guard, of, runs)) = looked else { return Ok(()) };
        for run in &runs {
            let units = of.shape.units_of(run.blocks.clone());
            // Any copy of a mirror may be what did not verify.
            let wanted = match of.shape.code().is_mirror() {
                true => Strips::all(of.shape.width()),
                false => Strips::of([run.strip]),
            };
            let columns = self.read_columns(&of, wanted, units.clone(), Priority::Host).await;
            if columns.wants_repair() {
                self.ask_repair(StripeKey { volume: of.volume, stripe });
            }
            self.rebuilding.promote(StripeKey { volume: of.volume, stripe });
            if let Some((strip, unit)) = columns.lost.iter().find(|(strip, _)| *strip == run.strip) {
                let offset = stripe * volume.shape.data()
                    + (strip * volume.shape.strip) as u64
                    + (unit * volume.shape.unit_bytes) as u64;
                return Err(ArrayError::Damaged(format!(
                    "volume '{}': {} bytes at offset {offset} (stripe {stripe}, strip {strip}, {}) cannot be read or \
                     reconstructed: too many of its strips are lost or damaged; bring missing drives back, or restore \
                     the range from elsewhere",
                    volume.name(),
                    volume.shape.unit_bytes,
                    of.slot
                )));
            }
            let Some(data) = columns.strips.get(run.strip).and_then(Option::as_ref) else {
                return Err(ArrayError::Damaged(format!("volume '{}': stripe {stripe} was not read", volume.name())));
            };
            self.take_run(&of, run, block, data, out);
        }
        Ok(())
    }

    /// As `find_blocks`, with a lock on the stripe in the layer whose slot it is in. `held`: the
    /// caller has that of this layer already. Locks are taken from the newest layer downwards,
    /// never the other way.
    async fn look_locked(
        &self,
        volume: &Rc<Volume>,
        stripe: u64,
        block: u32,
        out: &mut [u8],
        held: Option<VolumeId>,
    ) -> Result<Option<(Option<StripeGuard>, Stripe, Vec<Run>)>, ArrayError> {
        let mut locked: Option<(VolumeId, Option<StripeGuard>)> = held.map(|layer| (layer, None));
        loop {
            let Some((of, runs)) = self.find_blocks(volume, stripe, block, out).await? else { return Ok(None) };
            match locked {
                Some((layer, guard)) if layer == of.volume => return Ok(Some((guard, of, runs))),
                // It has another owner by now: a layer was merged meanwhile.
                _ => drop(locked.take()),
            }
            locked = Some((of.volume, Some(self.locks.shared(of.volume, stripe).await)));
        }
    }

    /// Whole blocks of one stripe with its exclusive lock held by the caller, newest content, as
    /// destage and partial writes need them.
    pub async fn read_locked(
        &self,
        volume: &Rc<Volume>,
        stripe: u64,
        block: u32,
        out: &mut [u8],
    ) -> Result<(), ArrayError> {
        let looked = self.look_locked(volume, stripe, block, out, Some(volume.id)).await?;
        let Some((_guard, of, runs)) = looked else { return Ok(()) };
        for run in &runs {
            let units = of.shape.units_of(run.blocks.clone());
            let columns = self.read_columns(&of, Strips::of([run.strip]), units, Priority::Host).await;
            match columns.strips.get(run.strip).and_then(Option::as_ref) {
                Some(data) if columns.lost.is_empty() => self.take_run(&of, run, block, data, out),
                _ => {
                    return Err(ArrayError::Damaged(format!(
                        "volume '{}': stripe {stripe} at offset {} cannot be read or reconstructed; write it whole, or \
                         bring missing drives back",
                        volume.name(),
                        stripe * volume.shape.data()
                    )));
                }
            }
        }
        Ok(())
    }
}
