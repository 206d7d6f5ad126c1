//! Putting stripes right: every unit of a stripe is read and verified, bad ones are computed anew
//! from verified ones, compared with their digests, and written in place. What cannot be computed
//! is listed as lost, never filled in.

use std::rc::Rc;

use stele_codes::Strips;
use stele_ground::Duration;
use stele_media::{Buffer, Priority};

use crate::durable::records::Record;
use crate::engine::Engine;
use crate::model::place::{Lsn, StripeKey};
use crate::model::{AlarmKind, ArrayError, Severity};
use crate::state::redo::StripWrite;
use crate::stripe::{Columns, Stripe, runs};
use crate::volumes::Volume;

/// What was found in a stripe.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Healed {
    /// Bytes read.
    pub bytes: u64,
    /// Units that did not verify although their drive answered, and had missed nothing.
    pub bad: u64,
    pub repaired: u64,
    /// Units beyond repair.
    pub lost: u64,
}

impl Healed {
    pub fn add(&mut self, other: Healed) {
        self.bytes += other.bytes;
        self.bad += other.bad;
        self.repaired += other.repaired;
        self.lost += other.lost;
    }
}

/// A repair that could not be made is tried again so much later.
const AGAIN: Duration = Duration::from_secs(30);

impl Engine {
    /// Asks for a stripe to be verified and put right soon.
    pub fn ask_repair(&self, key: StripeKey) {
        self.repairing.ask(key);
    }

    /// Runs for the pool's life.
    pub async fn repair_flow(self: Rc<Self>) {
        loop {
            let wanted = self.repairing.wanted();
            let Some(key) = self.repairing.next() else {
                wanted.await;
                continue;
            };
            if self.check_writable().is_err() {
                return;
            }
            let Some(volume) = self.look(|core| core.volumes.get(key.volume)) else { continue };
            match self.heal(&volume, key.stripe, Priority::Rebuild).await {
                Ok(healed) if healed.repaired > 0 => self.alarm(
                    AlarmKind::DamageRepaired,
                    Severity::Notice,
                    None,
                    format!(
                        "volume '{}': {} damaged units of stripe {} were reconstructed and written again",
                        volume.name(),
                        healed.repaired,
                        key.stripe
                    ),
                ),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(volume = %key.volume, stripe = key.stripe, "a repair is put off: {error}");
                    let engine = Rc::clone(&self);
                    self.io.spawn(async move {
                        engine.io.sleep(AGAIN).await;
                        engine.ask_repair(key);
                    });
                }
            }
        }
    }

    /// Verifies all of a stripe and repairs what can be repaired in place.
    pub async fn heal(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        stripe: u64,
        priority: Priority,
    ) -> Result<Healed, ArrayError> {
        let key = StripeKey { volume: volume.id, stripe };
        let _guard = self.locks.exclusive(volume.id, stripe).await;
        let Some(of) = self.locate(volume, stripe).await? else { return Ok(Healed::default()) };
        let all = Strips::all(of.shape.width());
        let columns = self.read_columns(&of, all, 0..of.shape.units, priority).await;
        self.losses_seen.still_lost(key, &columns.lost);
        let mut healed = Healed { bytes: (of.shape.width() * of.shape.strip) as u64, ..Healed::default() };
        for strip in Strips::of(columns.repair.iter().map(|(strip, _)| *strip)).iter() {
            let drive = of.places[strip].cell.drive;
            // What a drive missed while it was away is no damage.
            if !self.drives.is_sound(drive) {
                continue;
            }
            let units = columns.repair.iter().filter(|(bad, _)| *bad == strip).count() as u64;
            healed.bad += units;
            // Nor is a place its fault that was left out because the stripe was lost when its strip
            // moved there.
            if !volume.has_lost(stripe) {
                self.note_digest_errors(drive, units);
            }
        }
        if self.is_wrong_parity(&of, &columns) {
            healed.bad += 1;
            healed.repaired += u64::from(self.encode_again(volume, &of, columns).await?);
            return Ok(healed);
        }
        // Units on drives that answer, and are lost: damage beyond the code. On absent drives they
        // may come back.
        let beyond = self.beyond_repair(&of, &columns);
        healed.lost = beyond.len() as u64;
        let listed = volume.has_lost(stripe);
        if listed == beyond.is_empty() {
            self.record_lost(&of, beyond).await?;
            if !listed {
                self.note_lost(volume, stripe);
            }
        }
        if !columns.wants_repair() && columns.owed.is_empty() {
            return Ok(healed);
        }
        let (repaired, failed) = self.rewrite(&of, columns, priority).await;
        // What a strip was owed is no damage that was repaired.
        healed.repaired = repaired.min(healed.bad);
        self.count.repaired.add(healed.repaired);
        if !failed.is_empty() {
            tracing::warn!(volume = %key.volume, stripe, "not all damaged units could be written again");
            self.note_missed(&of, failed).await?;
        }
        Ok(healed)
    }

    /// Invariant 14: where every unit verified, encoding the data again gives the parity.
    fn is_wrong_parity(&self, of: &Stripe, columns: &Columns) -> bool {
        let shape = &of.shape;
        if !columns.lost.is_empty() || self.io.is_disabled(crate::model::mutation::Mutation::ReadDigest) {
            return false;
        }
        let strips: Vec<&[u8]> = columns.strips.iter().flatten().map(|buffer| &buffer[..]).collect();
        if strips.len() != shape.width() {
            return false;
        }
        let mut parity: Vec<Buffer> = (0..shape.m).map(|_| Buffer::zeroed(strips[0].len())).collect();
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|buffer| &mut buffer[..]).collect();
        shape.coder.encode(&strips[..shape.k], &mut outputs);
        parity.iter().zip(&strips[shape.k..]).any(|(made, stored)| &made[..] != *stored)
    }

    /// The stripe goes to a new slot, with parity of its data: what is stored as its parity has the
    /// digests it should have, and is wrong all the same. That is no drive's fault, and nothing
    /// that a host reads is wrong; stopping the process would only stop it again where the scrub
    /// goes on after the next start. False when it could not move.
    async fn encode_again(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        of: &Stripe,
        columns: Columns,
    ) -> Result<bool, ArrayError> {
        let key = StripeKey { volume: of.volume, stripe: of.stripe };
        let place =
            format!("volume '{}': stripe {} at offset {}", volume.name(), of.stripe, of.stripe * of.shape.data());
        let shared = self.slot_head(&of.shape, of.slot).await?.references > 1;
        // In-place writes that are owed belong to the slot as it is.
        let allocation = if shared || self.look(|core| core.redo.covers(key)).is_some() {
            None
        } else {
            self.allocate(volume, of.stripe, false).await?
        };
        let done = match allocation {
            None => false,
            Some(allocation) => {
                let pieces: Vec<_> =
                    columns.strips.into_iter().take(of.shape.k).flatten().map(Buffer::freeze).collect();
                // What is dirty is not in the new slot: nothing in the log is covered by it.
                let covers = Lsn(0);
                let stored = self.fill_slot(volume, of.stripe, allocation, Some(of.slot), covers, &pieces).await;
                if stored.is_err() {
                    self.abandon(allocation);
                }
                self.settle_map(key, stored?, Some(of.slot)).await?;
                true
            }
        };
        let what = if done { "it was encoded again from its data" } else { "it could not be encoded again yet" };
        let text = format!(
            "{place}: its parity was not that of its data, although both verify; {what}. Memory was damaged when it was \
             written, or this program has a defect (invariant 14): report it"
        );
        self.alarm(AlarmKind::MemoryDamaged, Severity::Critical, None, text);
        Ok(done)
    }

    /// Strips with lost units, where waiting for drives will not help: each lost unit was given up
    /// before, or fails although every drive of the stripe that could still come back was asked.
    pub fn beyond_repair(&self, of: &Stripe, columns: &Columns) -> Strips {
        let absent = self.may_come_back(of, columns);
        let given_up = |strip: usize, unit: usize| of.digest(strip, unit) == crate::formats::entry::LOST;
        let lost = columns.lost.iter().filter(|(strip, unit)| !absent || given_up(*strip, *unit));
        Strips::of(lost.map(|(strip, _)| *strip))
    }

    /// True when a drive of the stripe that may still return was not there to be asked. It may have
    /// returned since.
    pub fn may_come_back(&self, of: &Stripe, columns: &Columns) -> bool {
        columns.unasked.iter().any(|strip| self.drive_state(of.places[strip].cell.drive).votes())
    }

    /// Lists strips of the stripe as lost, and no others. The stripe's lock is held.
    pub async fn record_lost(&self, of: &Stripe, strips: Strips) -> Result<(), ArrayError> {
        let mask = strips.iter().fold(0, |mask, strip| mask | 1 << strip);
        let record = Record::Lost {
            volume: of.volume,
            stripe: of.stripe,
            slot: of.slot,
            generation: of.generation,
            strips: mask,
        };
        let held = StripeKey { volume: of.volume, stripe: of.stripe };
        let mut room = self.room_while_held(held, self.log.cost(&record)).await?;
        let pages = self.pages_for(&record).await?;
        self.append(&record, &pages, &mut room);
        Ok(())
    }

    /// Writes reconstructed units over bad ones and reads them again. Answers how many verify now,
    /// and of which strips some do not.
    async fn rewrite(&self, of: &Stripe, columns: Columns, priority: Priority) -> (u64, Strips) {
        let size = of.shape.unit_bytes;
        let mut bad: Vec<Vec<usize>> = vec![Vec::new(); of.shape.width()];
        for (strip, unit) in columns.repair.iter().chain(&columns.owed).chain(&columns.unreadable) {
            bad[*strip].push(*unit);
        }
        // Runs of units are made of units in order.
        bad.iter_mut().for_each(|units| units.sort_unstable());
        let mut writes = Vec::new();
        for (strip, buffer) in columns.strips.into_iter().enumerate() {
            let Some(buffer) = buffer.filter(|_| !bad[strip].is_empty()) else { continue };
            let data = buffer.freeze();
            for run in runs(bad[strip].iter().copied()) {
                let from = (run.start - columns.units.start) * size;
                let piece = data.slice(from..from + run.len() * size);
                writes.push(StripWrite { strip, at: run.start * size, data: vec![piece] });
            }
        }
        let touched = Strips::of(writes.iter().map(|write| write.strip));
        let since = self.drives.labels.attachments();
        let unwritten = self.write_strips(of, writes, priority).await;
        let unflushed = self.flush_strips(of, touched.without(unwritten), since).await;
        let mut repaired = 0;
        let mut failed = Strips::of(unwritten.iter().chain(unflushed.iter()));
        for strip in touched.without(failed).iter() {
            for run in runs(bad[strip].iter().copied()) {
                // What the drive itself says: an image laid over it would tell nothing.
                let read = self.ask_units(of, strip, run, priority).await;
                let good = read.good.iter().filter(|good| **good).count() as u64;
                repaired += good;
                if read.good.contains(&false) {
                    failed = failed.with(strip);
                }
                self.drives.change(of.places[strip].cell.drive, |seen| seen.repaired += good);
            }
        }
        (repaired, failed)
    }
}

#[cfg(test)]
mod tests;
