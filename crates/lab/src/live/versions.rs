//! Which version of each place was acknowledged last, so that a read which returns an older one is
//! found.
//!
//! Two bytes for each unit (the smallest access, at most 4 KiB) of the target: 0 where nothing is
//! known yet, otherwise the number of the last write that was answered. The number wraps around
//! behind 65,535. What is written carries the number of its own, beside one that no other run has.
//! A number is entered when the write was answered. Nothing else touches its place before that,
//! since a worker that checks draws no access that meets one under way and has a part of the target
//! of its own. So there is exactly one right version at any time. Not found: a write lost before
//! this run, and one 65,535 versions ago.

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use stele_ground::Bytes;
use stele_ground::digest::context;

use crate::error::LabError;
use crate::job::greatest_common;

/// Bytes of the table at most; what needs more is refused.
const TABLE_MAX: u64 = 1 << 30;
/// Units are no longer than parts of workers are aligned.
const UNIT_MAX: u64 = 4096;
const RUN_BITS: u32 = 48;

#[derive(Debug)]
pub struct Versions {
    run: u64,
    unit: u64,
    entries: Vec<AtomicU16>,
}

impl Versions {
    /// For so many bytes, and accesses whose offsets and lengths are multiples of `step`.
    pub fn new(size: Bytes, step: u64) -> Result<Versions, LabError> {
        let unit = greatest_common(step.max(512), UNIT_MAX);
        let entries = size.0.div_ceil(unit);
        if entries * 2 > TABLE_MAX {
            let most = Bytes(TABLE_MAX / 2 * unit);
            return Err(LabError::Usage(format!(
                "checking what was read on {size} in units of {} takes a table of {}; use {most} of it with --size, or larger accesses",
                Bytes(unit),
                Bytes(entries * 2)
            )));
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let run = context(since, u64::from(std::process::id())) >> (64 - RUN_BITS);
        Ok(Versions { run, unit, entries: (0..entries).map(|_| AtomicU16::new(0)).collect() })
    }

    fn entry(&self, at: u64) -> &AtomicU16 {
        &self.entries[(at / self.unit) as usize]
    }

    fn word(&self, number: u16) -> u64 {
        self.run << 16 | u64::from(number)
    }

    fn following(number: u16) -> u16 {
        number.wrapping_add(1).max(1)
    }

    /// What a sector carries that is written there now.
    pub fn next(&self, at: u64) -> u64 {
        self.word(Versions::following(self.entry(at).load(Ordering::Relaxed)))
    }

    /// The write there was answered.
    pub fn answered(&self, at: u64, length: u64) {
        for at in (at..at + length).step_by(self.unit as usize) {
            let entry = self.entry(at);
            entry.store(Versions::following(entry.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
    }

    /// The smallest access there was written by this run.
    pub fn is_known(&self, at: u64) -> bool {
        self.entry(at).load(Ordering::Relaxed) != 0
    }

    /// Why a sector with this word is not what was written there last.
    pub fn check(&self, at: u64, word: u64) -> Result<(), String> {
        let expected = self.entry(at).load(Ordering::Relaxed);
        if expected == 0 || word == self.word(expected) {
            return Ok(());
        }
        let came = match word >> 16 == self.run {
            true => format!("version {} of it", word & 0xffff),
            false => "what was there before this run".to_owned(),
        };
        Err(format!(
            "offset {at}: a write that was acknowledged is lost: version {expected} was answered last, and {came} was read"
        ))
    }
}

#[cfg(test)]
mod tests;
