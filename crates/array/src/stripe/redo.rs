//! Redo images: what an in-place write is about to put onto strips, kept until the log says that it
//! is done.
//!
//! From the moment a redo record is appended its digests count, while the strips may still hold
//! what was there before. Until all but m strips have taken the images they are owed: kept here and
//! pinned in the log. Reads lay them over what the drives give, and verify the result like anything
//! else. Where more than m strips are absent the destage does not wait for them: it fails and is
//! tried again when drives return, and a crash in between leaves the images to replay. An image is
//! only ever put onto the slot and generation it was made for.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use stele_codes::Strips;
use stele_ground::{BLOCK, Duration};
use stele_media::{Priority, Shared};

use crate::durable::log::{FlushUrgency, Purpose};
use crate::durable::records::{Image, Record, RedoImage};
use crate::engine::Engine;
use crate::engine::apply::Pages;
use crate::model::ArrayError;
use crate::model::mutation::Mutation;
use crate::model::place::{Lsn, StripeKey};
use crate::state::redo::{Redo, StripWrite};
use crate::stripe::{Stripe, Units};
use crate::volumes::Volume;

/// Bytes of images in a record that repeats them, about.
const RELOG_MAX: usize = 256 << 10;

impl Engine {
    /// Keeps the images, and in the log what their replay needs.
    pub fn keep_redo(&self, key: StripeKey, redo: Redo) {
        self.step(|core| core.keep_redo(key, redo));
    }

    /// Puts the stripe's owed images onto its strips. The stripe's lock is held. `Degraded` where
    /// too many are absent.
    pub async fn place_redo(self: &Rc<Self>, volume: &Volume, stripe: u64) -> Result<(), ArrayError> {
        let key = StripeKey { volume: volume.id, stripe };
        let mut at = 0;
        while self.look(|core| core.redo.owes(key)) {
            let Some(of) = self.locate(volume, stripe).await? else { return Ok(()) };
            let next = self.look(|core| {
                let redo = core.redo.of(key).get(at)?;
                let writes = if redo.placed { Vec::new() } else { redo.writes.clone() };
                Some((redo.placed, redo.slot, redo.generation, writes))
            });
            let Some((placed, slot, generation, writes)) = next else { return Ok(()) };
            if !placed {
                // Invariant 15: the task that maps the stripe anew forgets what it was owed.
                assert!(
                    of.slot == slot && of.generation == generation,
                    "invariant 15: a redo image for {slot}, while stripe {stripe} is in {}",
                    of.slot
                );
                self.put_in_place(volume, &of, writes).await?;
                self.step(|core| core.redo.note_placed(key, at));
            }
            at += 1;
        }
        Ok(())
    }

    /// Records that the stripe's images are on its strips, if nothing else of it is dirty: no flow
    /// would destage it.
    pub async fn record_placed(self: Rc<Self>, key: StripeKey) {
        while self.check_writable().is_ok() {
            let _guard = self.locks.exclusive(key.volume, key.stripe).await;
            let Some(covers) = self.look(|core| core.redo.covers(key)) else { return };
            if self.look(|core| core.redo.owes(key) || core.cache.is_dirty(key)) {
                return;
            }
            // The strips were flushed by `place_redo`.
            let done = Record::Destaged { volume: key.volume, stripe: key.stripe, covers };
            match self.log.try_reserve(self.log.cost(&done), Purpose::Inside) {
                Some(mut reservation) => {
                    self.append_with(&done, &Pages::default(), &mut reservation, FlushUrgency::Whenever);
                    return;
                }
                None => self.io.sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Refuses where more than m strips of the stripe are on drives that are absent.
    pub fn check_strips(&self, volume: &Volume, of: &Stripe) -> Result<(), ArrayError> {
        self.few_absent(volume, of, Strips::NONE).map(drop)
    }

    /// The strips that are absent, or failed now; an error where they are more than m.
    fn few_absent(&self, volume: &Volume, of: &Stripe, failed: Strips) -> Result<Strips, ArrayError> {
        let width = of.shape.width();
        let gone = |strip: &usize| failed.contains(*strip) || self.drives.index(of.places[*strip].cell.drive).is_none();
        let absent = Strips::of((0..width).filter(gone));
        if absent.len() <= of.shape.m {
            return Ok(absent);
        }
        Err(ArrayError::Degraded(format!(
            "volume '{}': stripe {} at offset {} cannot be changed: {} of its {width} strips are absent; the writes wait in \
             the log, bring missing drives back",
            volume.name(),
            of.stripe,
            of.stripe * of.shape.data(),
            absent.len()
        )))
    }

    /// Writes redone or new images onto a slot's strips and flushes them: all but m strips have
    /// taken them when this answers well.
    pub async fn put_in_place(
        self: &Rc<Self>,
        volume: &Volume,
        of: &Stripe,
        writes: Vec<StripWrite>,
    ) -> Result<(), ArrayError> {
        self.check_strips(volume, of)?;
        let touched = Strips::of(writes.iter().map(|write| write.strip));
        let since = self.drives.labels.attachments();
        let unwritten = self.write_strips(of, writes, Priority::Destage).await;
        let unflushed = match self.io.is_disabled(Mutation::StripFlush) {
            true => Strips::NONE,
            false => self.flush_strips(of, touched.without(unwritten), since).await,
        };
        let failed = Strips::of(unwritten.iter().chain(unflushed.iter()));
        if failed.is_empty() {
            return Ok(());
        }
        self.few_absent(volume, of, failed)?;
        Box::pin(self.note_missed(of, failed)).await
    }

    /// Lays owed images over units that do not verify as their drive has them, and verifies again.
    pub fn overlay_redo(&self, of: &Stripe, strip: usize, units: Range<usize>, read: &mut Units) {
        let key = StripeKey { volume: of.volume, stripe: of.stripe };
        if !self.look(|core| lay_over(core.redo.of(key), of, strip, units.clone(), read)) {
            return;
        }
        let size = of.shape.unit_bytes;
        for (place, unit) in units.enumerate().filter(|(place, _)| !read.good[*place]).collect::<Vec<_>>() {
            read.good[place] = of.check(self, strip, unit, &read.buffer[place * size..][..size]);
            if read.good[place] {
                read.owed.push(place);
            }
        }
    }

    /// Appends the stripe's images that need records below this one anew, complete in themselves,
    /// so that the records they came from may go. The stripe's lock is held. False where the log
    /// has no room for it.
    pub async fn relog_redo(&self, key: StripeKey, below: Lsn, purpose: Purpose) -> Result<bool, ArrayError> {
        let (old, all) = self.look(|core| {
            let list = core.redo.of(key);
            let old: Vec<usize> = (0..list.len()).filter(|at| list[*at].oldest < below).collect();
            (old, list.len())
        });
        let Some(first) = old.first() else { return Ok(true) };
        // Newer images go along, so that the log has them in order. Recovery looks at what each
        // covers, so that with little room the old ones may stand behind.
        let behind = if self.io.is_disabled(Mutation::RedoAge) { old.clone() } else { (*first..all).collect() };
        for numbers in [behind, old] {
            if self.repeat_redo(key, numbers, purpose).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Appends these of the stripe's images anew. False where the log has no room for them.
    async fn repeat_redo(&self, key: StripeKey, numbers: Vec<usize>, purpose: Purpose) -> Result<bool, ArrayError> {
        let records: Vec<(usize, Record)> = self.look(|core| {
            let list = numbers.iter().filter_map(|at| Some((*at, core.redo.of(key).get(*at)?)));
            list.flat_map(|(at, redo)| repeated(key, redo).into_iter().map(move |record| (at, record))).collect()
        });
        let cost = records.iter().map(|(_, record)| self.log.cost(record)).sum();
        let Some((_, record)) = records.first() else { return Ok(true) };
        let Some(mut reservation) = self.log.try_reserve(cost, purpose) else { return Ok(false) };
        let pages: Pages = self.pages_for(record).await?;
        // One moment: with the last of them in the log, none of the earlier records is needed.
        let mut first: BTreeMap<usize, Lsn> = BTreeMap::new();
        for (at, record) in &records {
            let lsn = self.append(record, &pages, &mut reservation);
            first.entry(*at).or_insert(lsn);
        }
        self.step(|core| {
            for (old, new) in core.redo.renew(key, &first) {
                core.pins.pin(new);
                core.pins.unpin(old);
            }
        });
        Ok(true)
    }
}

/// Lays the images over units that do not verify. False where the stripe is owed none.
fn lay_over(list: &[Redo], of: &Stripe, strip: usize, units: Range<usize>, read: &mut Units) -> bool {
    let size = of.shape.unit_bytes;
    let bytes = of.shape.bytes_of(units);
    let current = list.iter().filter(|redo| redo.slot == of.slot && redo.generation == of.generation);
    for write in current.flat_map(|redo| &redo.writes).filter(|write| write.strip == strip) {
        let mut at = write.at;
        for block in write.data.iter().flat_map(|piece| piece.chunks(BLOCK)) {
            if bytes.contains(&at) && !read.good[(at - bytes.start) / size] {
                read.buffer[at - bytes.start..][..BLOCK].copy_from_slice(block);
            }
            at += BLOCK;
        }
    }
    !list.is_empty()
}

/// Records that hold the images themselves. Their digests are in the tables since the first record
/// of them.
fn repeated(key: StripeKey, redo: &Redo) -> Vec<Record> {
    let mut groups: Vec<(usize, Vec<RedoImage>)> = Vec::new();
    for write in &redo.writes {
        let mut at = write.at;
        for piece in &write.data {
            for from in (0..piece.len()).step_by(RELOG_MAX) {
                let data: Shared = piece.slice(from..piece.len().min(from + RELOG_MAX));
                let length = data.len();
                let image =
                    RedoImage { strip: write.strip as u8, block: (at / BLOCK) as u32, source: Image::Inline(data) };
                at += length;
                match groups.last_mut() {
                    Some((bytes, images)) if *bytes + length <= RELOG_MAX => {
                        *bytes += length;
                        images.push(image);
                    }
                    _ => groups.push((length, vec![image])),
                }
            }
        }
    }
    let record = |(_, images)| Record::Redo {
        volume: key.volume,
        stripe: key.stripe,
        slot: redo.slot,
        generation: redo.generation,
        covers: redo.covers,
        digests: Vec::new(),
        images,
    };
    groups.into_iter().map(record).collect()
}

#[cfg(test)]
mod tests;
