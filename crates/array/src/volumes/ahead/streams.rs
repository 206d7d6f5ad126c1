//! Which reads of a volume are parts of streams, for hundreds of readers in turn.
//!
//! A read that ended where another begins makes that one its next. Some such reads in a row make a
//! stream. Reads that are no streams yet wait in a table in which each has one of two places, given
//! by its end. A random read costs one look and one store there, and nothing is searched. Its entry
//! is lost when others take the place, and then the reader is recognised some reads later. Known
//! streams are never displaced by reads that are none: they lie in a map of their own, with a
//! limit, and leave it when the volume was read so many times without them.
//!
//! The longer ends are remembered, the likelier a random read begins at one of them by chance. So
//! of reads that are far apart more in a row make a stream.
//!
//! All of it is in memory and lost with the process. Nothing depends on it but time.

use std::collections::HashMap;
use std::hash::BuildHasher;

use crate::cache::FixedState;

/// Streams of a volume known at once. Further readers are read from the drives as they ask, until
/// one of these has ended.
pub const STREAMS_MAX: usize = 512;
/// Pairs of places for reads that may become streams: enough that the readers of one turn seldom
/// take each other's.
const PAIRS: usize = 1024;
/// Reads in a row that make a stream, if at most so many reads of the volume lie between two of
/// them; and else.
const ROW: u32 = 3;
const NEAR: u64 = 16;
const ROW_FAR: u32 = 6;
/// A stream that was not read for so many reads of the volume has ended: with all streams in turn,
/// every fourth read is enough.
pub const KEPT: u64 = 4 * STREAMS_MAX as u64;
/// Ended streams are looked for once in so many reads, so that a read costs a few looks on average.
const SWEEP: u64 = 256;

/// A reader that was recognised.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// What lies before this offset is in the cache or on its way there.
    fetched: u64,
    /// The read it was used at last, counted over the volume.
    used: u64,
}

/// Reads in a row that are no stream yet.
#[derive(Clone, Copy, Default, Debug)]
struct Candidate {
    /// Offset behind the last of them.
    next: u64,
    /// Zero: the place is empty.
    row: u32,
    /// More than `NEAR` reads lay between two of them.
    far: bool,
    /// When the last of them came, counted in reads of the volume.
    used: u64,
}

impl Candidate {
    fn is_stream(&self) -> bool {
        self.row >= if self.far { ROW_FAR } else { ROW }
    }
}

/// What one volume knows of its readers.
#[derive(Default)]
pub struct Streams {
    /// By the offset at which each goes on.
    known: HashMap<u64, Stream, FixedState>,
    candidates: Vec<[Candidate; 2]>,
    clock: u64,
    swept: u64,
}

impl Streams {
    /// A read. True where it is part of a stream, which goes on behind it from now on.
    pub fn note(&mut self, at: u64, length: u64) -> bool {
        self.clock += 1;
        if self.clock - self.swept >= SWEEP {
            self.sweep();
        }
        let next = at + length;
        if !self.known.is_empty()
            && let Some(stream) = self.known.remove(&at)
        {
            self.put(next, stream.fetched);
            return true;
        }
        let candidate = self.take_candidate(at);
        let far = candidate.far || candidate.row > 0 && self.clock - candidate.used > NEAR;
        let candidate = Candidate { next, row: candidate.row.saturating_add(1), far, used: self.clock };
        let occupied = !self.known.is_empty() && self.known.contains_key(&next);
        if candidate.is_stream() && (self.known.len() < STREAMS_MAX || occupied) {
            self.put(next, 0);
            return true;
        }
        // A read that happens to end where a stream goes on does not take it over.
        if !occupied {
            self.keep_candidate(candidate);
        }
        candidate.is_stream()
    }

    /// Streams that were read lately: they share what may be read ahead.
    pub fn count(&self) -> usize {
        self.known.len()
    }

    /// Offset before which all is in the cache or on its way, of the stream that goes on at `next`.
    /// None of what has no place among the streams: nothing is fetched for it.
    pub fn fetched(&self, next: u64) -> Option<u64> {
        self.known.get(&next).map(|stream| stream.fetched)
    }

    pub fn note_fetched(&mut self, next: u64, fetched: u64) {
        if let Some(stream) = self.known.get_mut(&next) {
            stream.fetched = fetched;
        }
    }

    /// Two readers that meet go on as one.
    fn put(&mut self, next: u64, fetched: u64) {
        let used = self.clock;
        let stream = self.known.entry(next).or_insert(Stream { fetched, used });
        stream.fetched = stream.fetched.max(fetched);
        stream.used = used;
    }

    /// Reads in a row that ended at this offset; they are no candidate any more.
    fn take_candidate(&mut self, at: u64) -> Candidate {
        let pair = self.candidates.get_mut(place_of(at)).map(|pair| pair.iter_mut());
        let found = pair.into_iter().flatten().find(|candidate| candidate.row > 0 && candidate.next == at);
        found.map(std::mem::take).unwrap_or_default()
    }

    /// Takes the place of the same end, or that of the older one.
    fn keep_candidate(&mut self, candidate: Candidate) {
        if self.candidates.is_empty() {
            self.candidates = vec![Default::default(); PAIRS];
        }
        let Some([first, second]) = self.candidates.get_mut(place_of(candidate.next)) else { return };
        let is_first = first.next == candidate.next || second.next != candidate.next && first.used <= second.used;
        *if is_first { first } else { second } = candidate;
    }

    fn sweep(&mut self) {
        let clock = self.clock;
        self.swept = clock;
        self.known.retain(|_, stream| clock - stream.used < KEPT);
    }
}

fn place_of(next: u64) -> usize {
    FixedState.hash_one(next) as usize % PAIRS
}

#[cfg(test)]
mod tests;
