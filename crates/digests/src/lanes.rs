//! The streams of a store in parallel lanes. The stream that has gathered enough data hashes for
//! all.
//!
//! There are two locks. The lock on the streams is held for a step: to push a chunk, to take out
//! every backlog, to put the states back. The lock on the work is held while hashing; a thread
//! takes it before the other lock, and never within it. A state is out of its stream only while a
//! thread holds the work lock. A panic poisons neither lock, since their data is consistent between
//! steps.
//!
//! Limits: a stream gathers at most `BACKLOG_MAX` bytes and one chunk, and as much again while a
//! thread hashes those. A thread that reaches the limit while another hashes waits for it, and
//! continues at once if its own backlog was hashed too.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::kernel::{BLOCK, Kernel, State};
use crate::stream::Md5State;

const WEIGHT_MIN: usize = 4 << 10;

/// The state that all streams of a store share.
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
    /// `None` while a thread works on it.
    progress: Option<Progress>,
    chunks: VecDeque<Bytes>,
    /// The sum of the chunks' weights.
    backlog: usize,
}

/// The position of the hashing in a stream.
struct Progress {
    state: Md5State,
    /// The present chunk; its bytes from `from` to `to` are whole blocks that are not hashed yet.
    chunk: Bytes,
    from: usize,
    to: usize,
}

/// A stream taken out for work.
struct Job {
    number: u64,
    progress: Progress,
    chunks: VecDeque<Bytes>,
}

impl Lanes {
    /// Number of bytes that a stream gathers before it is hashed.
    pub const BACKLOG_MAX: usize = 256 << 10;
    /// Largest rest of a full stream after hashing: it has more than the others, and would continue
    /// alone.
    const KEPT_MAX: usize = Lanes::BACKLOG_MAX / 2;

    /// Lanes with the fastest kernel of this processor.
    pub fn fastest() -> Arc<Lanes> {
        Lanes::with_kernel(Kernel::best())
    }

    pub fn with_kernel(kernel: Kernel) -> Arc<Lanes> {
        Arc::new(Lanes { kernel, streams: Mutex::default(), work: Mutex::new(()) })
    }

    /// Number of streams that have entered and neither finished nor been dropped.
    pub fn streams(&self) -> usize {
        self.locked().entries.len()
    }

    fn locked(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn working(&self) -> MutexGuard<'_, ()> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a stream with its first chunks; returns its number.
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

    /// Hashes the rest of the stream and removes it.
    pub(crate) fn leave(&self, number: u64) -> Md5State {
        let working = self.working();
        self.work(&working, number, 0);
        let entry = self.locked().entries.remove(&number).expect("a stream leaves once");
        assert!(!entry.is_waiting(), "a stream leaves with everything hashed");
        entry.progress.expect("nobody else is at work").state
    }

    /// Removes an unfinished stream. A thread that works on it notices that it is gone.
    pub(crate) fn forget(&self, number: u64) {
        let entry = self.locked().entries.remove(&number);
        // The chunks are freed outside the lock.
        drop(entry);
    }

    /// Hashes the gathered data of all streams in parallel, at least until this stream has no more
    /// than `kept` bytes left.
    fn work(&self, _working: &MutexGuard<'_, ()>, own: u64, kept: usize) {
        let mut streams = self.locked();
        // Another thread may have done all of it meanwhile.
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

/// The weight of a chunk: a short chunk costs more than its own length, and a slow client sends
/// many of them.
pub(crate) fn weight(chunk: &Bytes) -> usize {
    chunk.len().max(WEIGHT_MIN)
}

impl Entry {
    fn is_waiting(&self) -> bool {
        !self.chunks.is_empty() || self.progress.as_ref().is_some_and(|progress| progress.from < progress.to)
    }

    /// Takes the stream out for work, if it has data to hash.
    fn taken_out(&mut self, number: u64) -> Option<Job> {
        if !self.is_waiting() {
            return None;
        }
        self.backlog = 0;
        Some(Job { number, progress: self.progress.take()?, chunks: std::mem::take(&mut self.chunks) })
    }

    /// Puts a job back; chunks that arrived meanwhile follow its rest.
    fn put_back(&mut self, job: Job) {
        self.backlog += job.chunks.iter().map(weight).sum::<usize>();
        let came = std::mem::replace(&mut self.chunks, job.chunks);
        self.chunks.extend(came);
        self.progress = Some(job.progress);
    }
}

impl Job {
    /// The weight of the whole blocks and of the chunks not begun.
    fn left(&self) -> usize {
        self.progress.to - self.progress.from + self.chunks.iter().map(weight).sum::<usize>()
    }

    /// Advances to the next chunk with whole blocks; returns false if there is none.
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

/// Hashes until the first job has no more than `kept` bytes left. The other jobs are hashed along
/// with it, and longer while they fill the lanes.
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
        // The rest would run with most lanes idle: it waits until there are more streams.
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
