//! The streams of a store side by side, hashed by whichever of them has gathered enough.
//!
//! Two locks. The one on the streams is held for a step: to push a chunk, to take every backlog out, to put the states
//! back. The one on the work is held while hashing, is taken before the other and never within it. A state is out
//! of its stream only while somebody has the work lock. Neither lock is poisoned by a panic: what is behind them is whole
//! between steps.
//!
//! Limits: a stream gathers at most `BACKLOG_MAX` bytes and one chunk, and as much again while somebody hashes those. Whoever
//! reaches that while others are at work waits for them, and goes on at once if they hashed its backlog too.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::kernel::{BLOCK, Kernel, State};
use crate::stream::Md5State;

const WEIGHT_MIN: usize = 4 << 10;

/// What all streams of a store share.
pub struct Lanes {
    kernel: Kernel,
    streams: Mutex<Streams>,
    work: Mutex<()>,
}

#[derive(Default)]
struct Streams {
    next: u64,
    entries: BTreeMap<u64, Entry>,
}

struct Entry {
    /// None while somebody works on it.
    progress: Option<Progress>,
    chunks: VecDeque<Bytes>,
    /// What the chunks weigh.
    backlog: usize,
}

/// How far a stream has been hashed.
struct Progress {
    state: Md5State,
    /// The chunk in work; its bytes from `from` to `to` are whole blocks that are not folded in yet.
    chunk: Bytes,
    from: usize,
    to: usize,
}

/// A stream taken out to be worked on.
struct Job {
    number: u64,
    progress: Progress,
    chunks: VecDeque<Bytes>,
}

impl Lanes {
    /// Bytes that a stream gathers before it is hashed.
    pub const BACKLOG_MAX: usize = 256 << 10;
    /// Bytes that may stay gathered when a full stream was hashed: it has more than the others, and would go on alone.
    const KEPT_MAX: usize = Lanes::BACKLOG_MAX / 2;

    /// In the fastest way that this processor knows.
    pub fn fastest() -> Arc<Lanes> {
        Lanes::with_kernel(Kernel::best())
    }

    pub fn with_kernel(kernel: Kernel) -> Arc<Lanes> {
        Arc::new(Lanes { kernel, streams: Mutex::default(), work: Mutex::new(()) })
    }

    /// Streams that have entered and neither finished nor been dropped.
    pub fn streams(&self) -> usize {
        self.locked().entries.len()
    }

    fn locked(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn working(&self) -> MutexGuard<'_, ()> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a stream in with its first chunks; answers its number.
    pub(crate) fn enter(&self, chunks: VecDeque<Bytes>) -> u64 {
        let backlog = chunks.iter().map(weight).sum();
        let progress = Some(Progress { state: Md5State::new(), chunk: Bytes::new(), from: 0, to: 0 });
        let mut streams = self.locked();
        let number = streams.next;
        streams.next += 1;
        streams.entries.insert(number, Entry { progress, chunks, backlog });
        drop(streams);
        if backlog >= Lanes::BACKLOG_MAX {
            self.work(&self.working(), number, Lanes::KEPT_MAX);
        }
        number
    }

    pub(crate) fn push(&self, number: u64, chunk: Bytes) {
        let mut streams = self.locked();
        let entry = streams.entries.get_mut(&number).expect("a stream pushes between entering and leaving");
        entry.backlog += weight(&chunk);
        entry.chunks.push_back(chunk);
        let full = entry.backlog >= Lanes::BACKLOG_MAX;
        drop(streams);
        if full {
            self.work(&self.working(), number, Lanes::KEPT_MAX);
        }
    }

    /// Hashes what is left of the stream and lets it go.
    pub(crate) fn leave(&self, number: u64) -> Md5State {
        let working = self.working();
        self.work(&working, number, 0);
        let entry = self.locked().entries.remove(&number).expect("a stream leaves once");
        assert!(!entry.is_waiting(), "a stream leaves with everything hashed");
        entry.progress.expect("nobody else is at work").state
    }

    /// Dropped unfinished. Whoever works on it finds it gone.
    pub(crate) fn forget(&self, number: u64) {
        let entry = self.locked().entries.remove(&number);
        // Its chunks are freed outside the lock.
        drop(entry);
    }

    /// Hashes what has been gathered, side by side, at least until no more than `kept` bytes of this stream's are left.
    fn work(&self, _working: &MutexGuard<'_, ()>, own: u64, kept: usize) {
        let mut streams = self.locked();
        // Whoever worked meanwhile may have done all of it.
        let Some(first) = streams.entries.get_mut(&own).and_then(|entry| entry.taken_out(own)) else { return };
        let mut jobs = vec![first];
        if self.kernel.lanes() > 1 {
            jobs.extend(streams.entries.iter_mut().filter_map(|(number, entry)| entry.taken_out(*number)));
        }
        drop(streams);
        hash(self.kernel, &mut jobs, kept);
        let mut streams = self.locked();
        let mut gone = Vec::new();
        for job in jobs {
            match streams.entries.get_mut(&job.number) {
                Some(entry) => entry.put_back(job),
                None => gone.push(job),
            }
        }
        drop(streams);
    }
}

/// What a chunk counts for: its own length is the lesser part of a short one, of which a slow client sends many.
pub(crate) fn weight(chunk: &Bytes) -> usize {
    chunk.len().max(WEIGHT_MIN)
}

impl Entry {
    fn is_waiting(&self) -> bool {
        !self.chunks.is_empty() || self.progress.as_ref().is_some_and(|progress| progress.from < progress.to)
    }

    /// If there is something to hash.
    fn taken_out(&mut self, number: u64) -> Option<Job> {
        if !self.is_waiting() {
            return None;
        }
        self.backlog = 0;
        Some(Job { number, progress: self.progress.take()?, chunks: std::mem::take(&mut self.chunks) })
    }

    /// What came meanwhile goes behind what is left.
    fn put_back(&mut self, job: Job) {
        self.backlog += job.chunks.iter().map(weight).sum::<usize>();
        let came = std::mem::replace(&mut self.chunks, job.chunks);
        self.chunks.extend(came);
        self.progress = Some(job.progress);
    }
}

impl Job {
    /// What whole blocks and chunks not begun weigh.
    fn left(&self) -> usize {
        self.progress.to - self.progress.from + self.chunks.iter().map(weight).sum::<usize>()
    }

    /// Goes on to the next chunk that has whole blocks, as long as there are any.
    fn goes_on(&mut self) -> bool {
        let progress = &mut self.progress;
        while progress.from == progress.to {
            let Some(chunk) = self.chunks.pop_front() else {
                progress.chunk = Bytes::new();
                return false;
            };
            let blocks = progress.state.begin(&chunk);
            (progress.from, progress.to, progress.chunk) = (blocks.start, blocks.end, chunk);
        }
        true
    }
}

/// Hashes until the first job has no more than `kept` bytes left; the others as far as they come along, and longer while
/// they fill the lanes.
fn hash(kernel: Kernel, jobs: &mut [Job], kept: usize) {
    let mut active: Vec<usize> = Vec::with_capacity(kernel.lanes());
    let mut next = 0;
    let mut most = 0;
    loop {
        active.retain(|job| jobs[*job].goes_on());
        while active.len() < kernel.lanes() && next < jobs.len() {
            if jobs[next].goes_on() {
                active.push(next);
            }
            next += 1;
        }
        most = most.max(active.len());
        // What is left would run with most lanes idle: it waits until there is more beside it.
        let own = jobs[0].left() > kept;
        if !own && (active.len() < 2 || 2 * active.len() <= most) {
            return;
        }
        let count = active.iter().map(|job| jobs[*job].progress.to - jobs[*job].progress.from).min();
        let count = count.unwrap_or(0) / BLOCK;
        let mut states: Vec<State> = active.iter().map(|job| jobs[*job].progress.state.state).collect();
        let blocks: Vec<&[u8]> = active
            .iter()
            .map(|job| &jobs[*job].progress)
            .map(|progress| &progress.chunk[progress.from..progress.to])
            .collect();
        kernel.compress(&mut states, &blocks, count);
        for (job, state) in active.iter().zip(states) {
            let progress = &mut jobs[*job].progress;
            progress.state.state = state;
            progress.from += count * BLOCK;
        }
    }
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lanes({:?}, {} streams)", self.kernel, self.streams())
    }
}

#[cfg(test)]
mod tests;
