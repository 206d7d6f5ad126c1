//! One stripe in its slot: where its strips lie, and reading, verifying, reconstructing and writing
//! their units.
//!
//! A [`Stripe`] is a picture of the slot's entry at one moment. A task that reads through it
//! without holding the stripe's lock must be ready for a mismatch that is no damage, and look again
//! under the lock. Nothing leaves this file unverified: bytes that fail their digest are treated as
//! absent, and what is reconstructed is compared with its digest too.

use std::ops::Range;
use std::rc::Rc;

use stele_codes::Strips;
use stele_ground::VolumeId;
use stele_media::{Buffer, MediaError, MediaFault, Priority, Shared};

use crate::engine::Engine;
use crate::formats::entry::{Binding, LOST, ZERO};
use crate::formats::shape::Shape;
use crate::model::mutation::Mutation;
use crate::model::place::{DriveNumber, SlotId, StripCell};
use crate::runtime::sync::join_all;
use crate::state::redo::StripWrite;

pub mod allocation;
mod find;
mod hedge;
pub mod losses;
mod missed;
pub mod redo;
pub mod repair;
pub mod run;

/// A strip's cell, and the byte offset on its drive where the strip begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StripPlace {
    pub cell: StripCell,
    pub at: u64,
}

/// A slot as its entry describes it.
#[derive(Clone, Debug)]
pub struct Stripe {
    pub volume: VolumeId,
    pub stripe: u64,
    pub slot: SlotId,
    pub generation: u64,
    pub shape: Rc<Shape>,
    pub places: Vec<StripPlace>,
    pub digests: Vec<u32>,
    pub binding: Binding,
}

/// Units of one strip as a drive gave them: which of them verify.
pub struct Units {
    pub buffer: Buffer,
    pub good: Vec<bool>,
    /// Units that verify only under the images they are owed: the drive holds something older.
    /// Empty where there are none.
    pub owed: Vec<usize>,
    /// Units without content, zero or never written, whose places the drive cannot read. A read of
    /// a longer range fails with them each time: they are to be written.
    pub unreadable: Vec<usize>,
    /// The drive could be asked, so that what is bad can be put right in place.
    pub reachable: bool,
    /// The drive answered with an error.
    pub failed: bool,
}

impl Units {
    /// As a drive gave them, without an error.
    fn of(buffer: Buffer, good: Vec<bool>) -> Units {
        Units { buffer, good, owed: Vec::new(), unreadable: Vec::new(), reachable: true, failed: false }
    }
}

/// Verified units of several strips over one range of units.
pub struct Columns {
    pub units: Range<usize>,
    /// One per strip; none where it was not wanted.
    pub strips: Vec<Option<Buffer>>,
    /// Units that were bad although their drive answered, with strip and unit: to be repaired.
    pub repair: Vec<(usize, usize)>,
    /// Units that their drives hold as they were before an in-place write that missed them: no
    /// damage, and to be written.
    pub owed: Vec<(usize, usize)>,
    /// Units without content whose places cannot be read: no damage, and to be written, so that
    /// reads over them succeed.
    pub unreadable: Vec<(usize, usize)>,
    /// Units of wanted strips that cannot be had: too few others verify, or they were lost before.
    pub lost: Vec<(usize, usize)>,
    /// Strips that were to be read, and whose drives were not there to be asked.
    pub unasked: Strips,
    /// Strips that were to be read, and whose drives answered with errors.
    pub failed: Strips,
}

impl Columns {
    /// Whether units are to be written in place.
    pub fn wants_repair(&self) -> bool {
        !self.repair.is_empty() || !self.unreadable.is_empty()
    }
}

impl Stripe {
    pub fn digest(&self, strip: usize, unit: usize) -> u32 {
        self.digests[self.shape.digest_index(strip, unit)]
    }

    pub fn check(&self, engine: &Engine, strip: usize, unit: usize, data: &[u8]) -> bool {
        engine.io.is_disabled(Mutation::ReadDigest)
            || self.binding.digest(strip, unit, data) == self.digest(strip, unit)
    }

    /// Whether units are lost that were not given up before.
    pub fn hopes_for(&self, columns: &Columns) -> bool {
        columns.lost.iter().any(|(strip, unit)| self.digest(*strip, *unit) != LOST)
    }

    /// Whether every unit in the range reads as zeros without asking a drive (never written, or
    /// lost).
    fn is_blank(&self, strip: usize, units: Range<usize>) -> bool {
        units.into_iter().all(|unit| self.digest(strip, unit) <= ZERO)
    }
}

impl Engine {
    /// Reads units of one strip and says which verify, under the images it is owed.
    pub async fn read_units(&self, of: &Stripe, strip: usize, units: Range<usize>, priority: Priority) -> Units {
        let mut read = self.ask_units(of, strip, units.clone(), priority).await;
        if read.good.contains(&false) {
            self.overlay_redo(of, strip, units, &mut read);
        }
        read
    }

    /// As `read_units`, and only what the drive itself holds.
    pub async fn ask_units(&self, of: &Stripe, strip: usize, units: Range<usize>, priority: Priority) -> Units {
        let shape = &of.shape;
        let bytes = shape.bytes_of(units.clone());
        let drive = of.places[strip].cell.drive;
        let index = self.drives.index(drive);
        if of.is_blank(strip, units.clone()) {
            let blank = Units::of(Buffer::zeroed(bytes.len()), vec![true; units.len()]);
            return Units { reachable: index.is_some(), ..blank };
        }
        let Some(index) = index else {
            let good = units.map(|unit| of.digest(strip, unit) <= ZERO).collect();
            let buffer = Buffer::zeroed(bytes.len());
            return Units { reachable: false, ..Units::of(buffer, good) };
        };
        let at = of.places[strip].at + bytes.start as u64;
        let read = match self.io.read(index, at, bytes.len(), priority).await {
            // Passing failures are asked once more.
            Err(MediaError { fault: MediaFault::Retry, .. }) => self.io.read(index, at, bytes.len(), priority).await,
            other => other,
        };
        let mut buffer = match read {
            Ok(buffer) => buffer,
            Err(error) => {
                self.note_read_error(drive, &error);
                // What a drive does not answer says nothing about what lies on it.
                let reachable = error.fault != MediaFault::Gone && !self.hospital.is_silent(drive);
                if error.fault == MediaFault::Gone {
                    self.drive_gone(index);
                }
                // A unit of a long range may still be readable by itself.
                if reachable && units.len() > 1 {
                    return self.read_units_singly(of, strip, units, priority).await;
                }
                let good = units.map(|unit| of.digest(strip, unit) <= ZERO).collect();
                let buffer = Buffer::zeroed(bytes.len());
                return Units { reachable, failed: reachable, ..Units::of(buffer, good) };
            }
        };
        let good = self.verify(of, strip, units, &mut buffer);
        Units::of(buffer, good)
    }

    fn verify(&self, of: &Stripe, strip: usize, units: Range<usize>, buffer: &mut [u8]) -> Vec<bool> {
        let size = of.shape.unit_bytes;
        units
            .zip(buffer.chunks_mut(size))
            .map(|(unit, data)| {
                if of.digest(strip, unit) <= ZERO {
                    data.fill(0);
                    return true;
                }
                of.check(self, strip, unit, data)
            })
            .collect()
    }

    async fn read_units_singly(&self, of: &Stripe, strip: usize, units: Range<usize>, priority: Priority) -> Units {
        let size = of.shape.unit_bytes;
        let buffer = Buffer::zeroed(units.len() * size);
        let mut whole = Units { failed: true, ..Units::of(buffer, Vec::new()) };
        for (place, unit) in units.enumerate() {
            let Some(index) = self.drives.index(of.places[strip].cell.drive) else {
                whole.reachable = false;
                whole.good.push(of.digest(strip, unit) <= ZERO);
                continue;
            };
            let at = of.places[strip].at + (unit * size) as u64;
            let good = match self.io.read(index, at, size, priority).await {
                result if of.digest(strip, unit) <= ZERO => {
                    if result.is_err_and(|error| error.fault == MediaFault::Damaged) {
                        whole.unreadable.push(place);
                    }
                    true
                }
                Ok(data) => {
                    whole.buffer[place * size..][..size].copy_from_slice(&data);
                    of.check(self, strip, unit, &data)
                }
                Err(error) => {
                    let silent = self.hospital.is_silent(of.places[strip].cell.drive);
                    whole.reachable &= error.fault != MediaFault::Gone && !silent;
                    false
                }
            };
            whole.good.push(good);
        }
        whole
    }

    /// Verified units of the `wanted` strips over one range, reconstructing what is absent or bad.
    /// The stripe's lock must be held (shared will do), or a destage under way would look like
    /// damage.
    pub async fn read_columns(&self, of: &Stripe, wanted: Strips, units: Range<usize>, priority: Priority) -> Columns {
        // A caller that verifies all of a stripe, or rebuilds it, wants to hear from every drive.
        match priority <= Priority::Destage && wanted != Strips::all(of.shape.width()) {
            true => self.read_columns_hedged(of, wanted, units, priority).await,
            false => self.read_columns_whole(of, wanted, units, priority).await,
        }
    }

    async fn read_columns_whole(
        &self,
        of: &Stripe,
        wanted: Strips,
        units: Range<usize>,
        priority: Priority,
    ) -> Columns {
        let width = of.shape.width();
        let mut read: Vec<Option<Units>> = (0..width).map(|_| None).collect();
        let first: Vec<usize> = wanted.iter().collect();
        self.read_strips(of, &first, units.clone(), priority, &mut read).await;
        if !all_good(&read, wanted) {
            let mut others: Vec<usize> = (0..width).filter(|&strip| !wanted.contains(strip)).collect();
            if priority == Priority::Rebuild {
                // As many as it takes, of drives that are not slow where there are enough; another
                // one is spared in each stripe.
                let spared = of.slot.index as usize % others.len().max(1);
                others.rotate_left(spared);
                others.sort_by_key(|&strip| !self.is_prompt(of.places[strip].cell.drive));
                let good = wanted.iter().filter(|&strip| all_good(&read, Strips::of([strip]))).count();
                let rest = others.split_off(of.shape.k.saturating_sub(good).min(others.len()));
                self.read_strips(of, &others, units.clone(), priority, &mut read).await;
                if all_good(&read, Strips::of(others)) {
                    return self.complete_columns(of, wanted, units, read);
                }
                others = rest;
            }
            self.read_strips(of, &others, units.clone(), priority, &mut read).await;
        }
        self.complete_columns(of, wanted, units, read)
    }

    async fn read_strips(
        &self,
        of: &Stripe,
        strips: &[usize],
        units: Range<usize>,
        priority: Priority,
        read: &mut [Option<Units>],
    ) {
        let results = join_all(strips.iter().map(|&strip| self.read_units(of, strip, units.clone(), priority))).await;
        for (&strip, result) in strips.iter().zip(results) {
            read[strip] = Some(result);
        }
    }

    /// Reconstructs, unit by unit, what of the wanted strips does not verify.
    fn complete_columns(
        &self,
        of: &Stripe,
        wanted: Strips,
        units: Range<usize>,
        mut read: Vec<Option<Units>>,
    ) -> Columns {
        let shape = &of.shape;
        let size = shape.unit_bytes;
        let unreached = |strip: &usize| read[*strip].as_ref().is_some_and(|units| !units.reachable);
        let failed = |strip: &usize| read[*strip].as_ref().is_some_and(|units| units.failed);
        let mut columns = Columns {
            units: units.clone(),
            strips: Vec::new(),
            repair: Vec::new(),
            owed: Vec::new(),
            unreadable: Vec::new(),
            lost: Vec::new(),
            unasked: Strips::of((0..shape.width()).filter(unreached)),
            failed: Strips::of((0..shape.width()).filter(failed)),
        };
        for (place, unit) in units.enumerate() {
            let good =
                |read: &[Option<Units>], strip: usize| read[strip].as_ref().is_some_and(|units| units.good[place]);
            for (strip, units) in read.iter().enumerate() {
                if units.as_ref().is_some_and(|units| units.reachable && !units.good[place]) {
                    columns.repair.push((strip, unit));
                }
                if units.as_ref().is_some_and(|units| units.reachable && units.unreadable.contains(&place)) {
                    columns.unreadable.push((strip, unit));
                }
                if units.as_ref().is_some_and(|units| units.reachable && units.owed.contains(&place)) {
                    columns.owed.push((strip, unit));
                }
            }
            for strip in wanted.iter().filter(|&strip| of.digest(strip, unit) == LOST) {
                columns.lost.push((strip, unit));
            }
            let absent = Strips::of(wanted.iter().filter(|&strip| !good(&read, strip)));
            if absent.is_empty() {
                continue;
            }
            let mut made: Vec<Vec<u8>> = absent.iter().map(|_| vec![0; size]).collect();
            let given: Vec<Option<&[u8]>> = (0..shape.width())
                .map(|strip| {
                    let units = read[strip].as_ref().filter(|units| units.good[place])?;
                    Some(&units.buffer[place * size..][..size])
                })
                .collect();
            let mut outputs: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
            let possible = shape.coder.reconstruct(&given, absent, &mut outputs);
            for (strip, data) in absent.iter().zip(&made) {
                // Invariant 3: what was computed counts only if it is what was stored.
                if !possible || !of.check(self, strip, unit, data) {
                    columns.lost.push((strip, unit));
                } else if let Some(units) = &mut read[strip] {
                    units.buffer[place * size..][..size].copy_from_slice(data);
                    self.count.reconstructed.add(1);
                }
            }
        }
        columns.strips = read
            .into_iter()
            .enumerate()
            .map(|(strip, units)| units.filter(|_| wanted.contains(strip)).map(|units| units.buffer))
            .collect();
        columns.repair.retain(|(strip, unit)| !columns.lost.contains(&(*strip, *unit)));
        columns
    }

    /// Writes pieces of strips, all at once. Answers which strips did not take them; nothing is
    /// durable yet.
    pub async fn write_strips(&self, of: &Stripe, pieces: Vec<StripWrite>, priority: Priority) -> Strips {
        let mut failed = Strips::NONE;
        let mut pieces = pieces;
        // Passing failures are asked once more.
        for is_last in [false, true] {
            let mut asked = Vec::with_capacity(pieces.len());
            for piece in pieces {
                match self.drives.index(of.places[piece.strip].cell.drive) {
                    Some(index) => asked.push((index, piece)),
                    None => failed = failed.with(piece.strip),
                }
            }
            let writes = asked
                .iter()
                .map(|(index, piece)| (*index, of.places[piece.strip].at + piece.at as u64, piece.data.clone()));
            let results = self.io.write_all(writes, priority).await;
            pieces = Vec::new();
            for ((index, piece), result) in asked.into_iter().zip(results) {
                match result {
                    Ok(()) => {}
                    Err(error) if error.fault == MediaFault::Retry && !is_last => pieces.push(piece),
                    Err(error) => {
                        self.note_write_error(index, &error);
                        failed = failed.with(piece.strip);
                    }
                }
            }
            if pieces.is_empty() {
                break;
            }
        }
        failed
    }

    /// Makes what was written to the strips durable. Answers which strips' drives did not confirm.
    ///
    /// A drive that was pulled since the strips were written, and is back, has lost what was in its
    /// cache: `since` is [`attachments`](crate::drives::label::Labels::attachments) as it was
    /// before the writes.
    pub async fn flush_strips(&self, of: &Stripe, strips: Strips, since: u64) -> Strips {
        let stayed = |drive| self.drives.labels.has_stayed(drive, since);
        let asked = strips.iter().filter_map(|strip| {
            let drive = of.places[strip].cell.drive;
            Some((strip, drive, self.drives.index(drive).filter(|_| stayed(drive))?))
        });
        let asked: Vec<(usize, DriveNumber, usize)> = asked.collect();
        let results = self.io.flush_all(asked.iter().map(|(_, _, index)| *index)).await;
        let mut failed = strips;
        for ((strip, drive, index), result) in asked.into_iter().zip(results) {
            match result {
                _ if !stayed(drive) => {}
                Ok(()) => failed = failed.without(Strips::of([strip])),
                Err(error) => self.note_write_error(index, &error),
            }
        }
        failed
    }
}

fn all_good(read: &[Option<Units>], wanted: Strips) -> bool {
    wanted.iter().all(|strip| read[strip].as_ref().is_some_and(|units| units.good.iter().all(|good| *good)))
}

/// The digests of all units of a stripe, strip by strip.
pub fn digests_of(binding: Binding, shape: &Shape, strips: &[Shared]) -> Vec<u32> {
    if shape.code().is_mirror() {
        return binding.digests_of_copies(shape.width(), strips[0].chunks(shape.unit_bytes));
    }
    let of_strip = |(strip, data): (usize, &Shared)| {
        let units = data.chunks(shape.unit_bytes).enumerate();
        units.map(|(unit, data)| binding.digest(strip, unit, data)).collect::<Vec<_>>()
    };
    strips.iter().enumerate().flat_map(of_strip).collect()
}

/// Neighbouring numbers joined into ranges.
pub fn runs(numbers: impl IntoIterator<Item = usize>) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(run) if run.end == number => run.end += 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}
