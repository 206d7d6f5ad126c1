//! Traces of real loads, carried out again: the accesses that some other storage was given, at the
//! times at which it was.
//!
//! A trace is read twice. First all of it is looked at ([`Survey`]): what it asks for, how far its
//! devices reach, how long it lasts. From that and the target follows where each access goes
//! ([`Mapping`]), and whether all of them have a place is known before the first one starts. Then
//! workers take one access after another from it, so that a trace of any length is in no memory.
//! What is kept are the devices' names, a window in which records are put in order, and what is
//! under way.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use stele_ground::{Instant, counted};

use crate::error::LabError;
use crate::histogram::Histogram;
use crate::record::RunRecord;
use crate::workload::Access;
pub use formats::Format;
pub use map::{Fit, Map, Mapping};
pub use order::Ordered;
pub use run::{ReplayPlan, planned, ran};
pub use survey::{Device, Survey};

pub mod formats;
mod map;
mod order;
mod run;
mod survey;

/// Bytes of one access.
pub const LENGTH_MAX: u64 = 64 << 20;
/// Devices, files or units of one trace.
pub const DEVICES_MAX: usize = 1024;
/// Offsets are below it, so that sums of them are numbers.
const OFFSET_MAX: u64 = 1 << 60;

/// One access of a trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Record {
    /// Nanoseconds, from any beginning.
    pub at: u64,
    /// Its place among the trace's devices.
    pub device: u16,
    pub offset: u64,
    pub length: u64,
    pub write: bool,
}

impl Record {
    /// None: no target can carry it out.
    fn checked(self) -> Option<Record> {
        (self.length > 0 && self.length <= LENGTH_MAX && self.offset <= OFFSET_MAX).then_some(self)
    }
}

/// What is replayed, and how.
#[derive(Clone, PartialEq, Default, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ReplayPart {
    /// Files of one trace: several are those of a machine's processors, as blktrace writes them.
    pub trace: Vec<PathBuf>,
    /// What it looks like, where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// So many times as fast (1); 0: as fast as the target answers, with `load.outstanding` under
    /// way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    /// What becomes of accesses beyond the target's end.
    #[serde(default)]
    pub map: Map,
    /// What becomes of accesses that are no whole blocks of the target.
    #[serde(default)]
    pub fit: Fit,
    /// Only this one of its devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

impl ReplayPart {
    /// None: as fast as it goes.
    pub fn speed(&self) -> Result<Option<f64>, LabError> {
        match self.speed.unwrap_or(1.0) {
            0.0 => Ok(None),
            speed if speed.is_finite() && speed > 0.0 => Ok(Some(speed)),
            speed => {
                Err(LabError::Usage(format!("replay.speed = {speed}: say how many times as fast, or 0 for no clock")))
            }
        }
    }
}

/// What is known of a replay beside its responses.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ReplayRecord {
    pub format: String,
    /// Seconds from the trace's first access to its last one, by its own clock.
    pub seconds: f64,
    /// So many times as fast; absent: as fast as the target answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    pub accesses: u64,
    /// Accesses that lay beyond the target, or were no whole blocks, and were carried out elsewhere
    /// or longer.
    pub moved: u64,
    /// What of the trace was not carried out, and how often it came.
    pub left_out: Vec<(String, u64)>,
    /// Records that came behind later ones by more than could be put in order; they took the later
    /// ones' time.
    pub disordered: u64,
    /// The trace's devices, with the bytes that each reaches to.
    pub devices: Vec<(String, u64)>,
}

impl ReplayRecord {
    /// How late the trace's accesses were, and what became of those that have no place.
    pub fn said(&self, run: &RunRecord) -> String {
        let mut late = Histogram::default();
        run.rounds.iter().filter_map(|round| round.late.as_ref()?.histogram()).for_each(|round| late.merge(&round));
        let mut said = match self.speed {
            Some(_) => format!(
                "started behind the trace's clock by {} in the mean, 99 % by {} at most, all by {}",
                late.mean(),
                late.percentile(0.99),
                late.longest()
            ),
            None => "without the trace's clock".to_owned(),
        };
        let answered = run
            .rounds
            .iter()
            .filter_map(|round| Some(round.read.histogram()?.count() + round.write.histogram()?.count()));
        let answered: u64 = answered.sum();
        if answered < self.accesses {
            said.push_str(&format!("; {answered} of {} accesses were answered", self.accesses));
        }
        if self.moved > 0 {
            let were = if self.moved == 1 { "was" } else { "were" };
            said.push_str(&format!("; {} {were} carried out elsewhere or longer", counted(self.moved, "access")));
        }
        if self.disordered > 0 {
            said.push_str(&format!("; {} came out of order", self.disordered));
        }
        said
    }
}

/// A trace that workers take accesses from.
#[derive(Debug)]
pub struct Replay {
    source: Mutex<Ordered<BufReader<File>>>,
    mapping: Mapping,
    first: u64,
    speed: Option<f64>,
}

/// Two replays are the same only where they are one.
impl PartialEq for Replay {
    fn eq(&self, other: &Replay) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Replay {
    /// From its beginning.
    pub fn of(source: Ordered<BufReader<File>>, survey: &Survey, mapping: Mapping, speed: Option<f64>) -> Replay {
        Replay { source: Mutex::new(source), mapping, first: survey.first, speed }
    }

    /// The next access, and when it is to start; none behind the last one.
    pub fn next(&self) -> Result<Option<(Instant, Access)>, String> {
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        let record = loop {
            match source.take().map_err(|error| error.to_string())? {
                None => return Ok(None),
                Some(record) if self.mapping.leaves_out(&record) => {}
                Some(record) => break record,
            }
        };
        drop(source);
        let changed = || "the trace changed since it was looked at: an access has no place on the target".to_owned();
        let access = self.mapping.place(&record).ok_or_else(changed)?;
        let since = record.at.saturating_sub(self.first);
        let due = self.speed.map_or(0, |speed| (since as f64 / speed) as u64);
        Ok(Some((Instant(due), access)))
    }
}

#[cfg(test)]
mod tests;
