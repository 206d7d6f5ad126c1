//! The lines of access logs that wait in memory, in batches by bucket.
//!
//! Each bucket has limits of its own, so that neither a bucket whose log cannot be stored nor a
//! flood of requests takes the log from the others. A batch that is being stored is lent: a task
//! that drops it midway gives it back.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of all lines that wait.
pub(super) const WAITING_MAX: usize = 16 << 20;
/// Bytes of one bucket's lines that wait.
pub(super) const OF_BUCKET_MAX: usize = 2 << 20;
/// Bytes of one bucket's lines that are stored before their time.
pub(super) const BATCH_MAX: usize = 1 << 20;
/// Attempts to store a batch.
pub(super) const ATTEMPTS_MAX: u32 = 10;
/// Lines of one bucket in a second about refused requests of senders without a key.
pub(super) const STRANGERS_PER_SECOND: u32 = 20;

/// The lines that wait, by the bucket that they are about.
#[derive(Default)]
pub(in crate::frontend) struct AccessLogs(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    buckets: BTreeMap<String, OfBucket>,
    bytes: usize,
    dropped: u64,
    round: u64,
    /// The present second, and the lines about strangers in it by bucket.
    strangers: (u64, BTreeMap<String, u32>),
}

#[derive(Default)]
struct OfBucket {
    /// The last one takes lines, if no attempt to store it was made.
    batches: VecDeque<Batch>,
    /// Bytes of these, and of those that are lent.
    bytes: usize,
}

/// Lines that are stored together.
pub(super) struct Batch {
    pub lines: String,
    since: Instant,
    /// Attempts that have begun.
    pub attempts: u32,
    /// The round of the last one.
    round: u64,
    /// The end of its object's name, from the first attempt on. An attempt that was broken off may
    /// have stored it.
    pub name: Option<String>,
}

/// A batch that is being stored.
pub(super) struct Lent<'a> {
    logs: &'a AccessLogs,
    pub bucket: String,
    batch: Option<Batch>,
}

impl AccessLogs {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a line wait, or drops it at a limit.
    pub(super) fn add(&self, bucket: &str, line: &str) {
        let mut waiting = self.lock();
        let of_bucket = waiting.buckets.get(bucket).map_or(0, |of| of.bytes);
        if waiting.bytes + line.len() > WAITING_MAX || of_bucket + line.len() > OF_BUCKET_MAX {
            waiting.dropped += 1;
            return;
        }
        waiting.bytes += line.len();
        let of = waiting.buckets.entry(bucket.to_owned()).or_default();
        of.bytes += line.len();
        match of.batches.back_mut().filter(|batch| batch.attempts == 0) {
            Some(batch) => batch.lines.push_str(line),
            None => of.batches.push_back(Batch {
                lines: line.to_owned(),
                since: Instant::now(),
                attempts: 0,
                round: 0,
                name: None,
            }),
        }
    }

    /// Whether one more line about a refused sender without a key may wait in this second.
    /// Otherwise it is dropped.
    pub(super) fn admit_stranger(&self, bucket: &str, second: u64) -> bool {
        let mut waiting = self.lock();
        if waiting.strangers.0 != second {
            waiting.strangers = (second, BTreeMap::new());
        }
        let lines = waiting.strangers.1.entry(bucket.to_owned()).or_default();
        *lines += 1;
        let admitted = *lines <= STRANGERS_PER_SECOND;
        waiting.dropped += u64::from(!admitted);
        admitted
    }

    /// The number of lines that were dropped since the last call.
    pub(super) fn take_dropped(&self) -> u64 {
        std::mem::take(&mut self.lock().dropped)
    }

    /// Begins a round of attempts. A round tries no batch twice.
    pub(super) fn begin_round(&self) -> u64 {
        let mut waiting = self.lock();
        waiting.round += 1;
        waiting.round
    }

    /// Lends the next batch that is due in this round. `all`: whatever its age.
    pub(super) fn next_due(&self, round: u64, every: Duration, all: bool) -> Option<Lent<'_>> {
        let mut waiting = self.lock();
        let is_due = |batch: &Batch| {
            batch.round < round
                && (all || batch.since.elapsed() >= every || (batch.attempts == 0 && batch.lines.len() >= BATCH_MAX))
        };
        let (bucket, batch) = waiting.buckets.iter_mut().find_map(|(bucket, of)| {
            let at = of.batches.iter().position(is_due)?;
            Some((bucket.clone(), of.batches.remove(at)?))
        })?;
        let batch = Batch { round, attempts: batch.attempts + 1, ..batch };
        Some(Lent { logs: self, bucket, batch: Some(batch) })
    }
}

impl Lent<'_> {
    /// The lines, and the name of their object: `new` at the first attempt.
    pub(super) fn content(&mut self, new: impl FnOnce() -> String) -> (&str, String) {
        match &mut self.batch {
            Some(batch) => (&batch.lines, batch.name.get_or_insert_with(new).clone()),
            None => ("", String::new()),
        }
    }

    /// Whether an earlier attempt may have stored it.
    pub(super) fn is_repeated(&self) -> bool {
        self.batch.as_ref().is_some_and(|batch| batch.attempts > 1)
    }

    pub(super) fn stored(mut self) {
        self.forget();
    }

    /// Keeps the batch for another attempt, unless it was the last one or `for_good`. False: its
    /// lines are dropped.
    pub(super) fn failed(mut self, for_good: bool) -> bool {
        let last = self.batch.as_ref().is_none_or(|batch| batch.attempts >= ATTEMPTS_MAX);
        if last || for_good {
            let lines = self.forget();
            self.logs.lock().dropped += lines;
            return false;
        }
        true
    }

    /// Takes the batch off the counts. Returns the number of its lines.
    fn forget(&mut self) -> u64 {
        let Some(batch) = self.batch.take() else { return 0 };
        let mut waiting = self.logs.lock();
        waiting.bytes = waiting.bytes.saturating_sub(batch.lines.len());
        if let Some(of) = waiting.buckets.get_mut(&self.bucket) {
            of.bytes = of.bytes.saturating_sub(batch.lines.len());
            if of.batches.is_empty() && of.bytes == 0 {
                waiting.buckets.remove(&self.bucket);
            }
        }
        batch.lines.lines().count() as u64
    }
}

impl Drop for Lent<'_> {
    /// Gives the batch back: it failed, or the attempt was broken off.
    fn drop(&mut self) {
        let Some(mut batch) = self.batch.take() else { return };
        batch.since = Instant::now();
        let mut waiting = self.logs.lock();
        waiting.buckets.entry(std::mem::take(&mut self.bucket)).or_default().batches.push_front(batch);
    }
}

#[cfg(test)]
mod tests;
