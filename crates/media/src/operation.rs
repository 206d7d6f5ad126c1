//! Requests and completions. Buffers are owned by whoever holds the operation at the time.

use stele_ground::{Instant, VolumeId};

use crate::{Buffer, MediaError, Shared};

/// What is asked of a drive. Offsets and lengths are bytes, multiples of the drive's block.
#[derive(Debug)]
pub enum Op {
    /// Fills the whole buffer from `at`. Never-written space reads as zeros.
    Read { at: u64, buffer: Buffer },
    /// As a read, of memory that whoever answers has already: immutable pieces that are the range one after another. Volumes
    /// answer it, so that what they hold is sent uncopied, and memory drives; others refuse it as `Invalid`.
    View { at: u64, length: u64, pieces: Vec<Shared> },
    /// Writes the pieces one after another from `at`. With `fua`, it completes only when this write itself is
    /// durable; without, it is durable once a flush submitted after its completion completes.
    Write { at: u64, data: Vec<Shared>, fua: bool },
    /// As a write of `length` zeros; may free space.
    Zero { at: u64, length: u64 },
    /// Completes when every write that had completed before the flush was submitted is durable.
    /// It promises nothing about writes still in flight at that moment.
    Flush,
    /// The content is no longer wanted: later reads return zeros, or on a plain drive anything.
    Discard { at: u64, length: u64 },
    /// Lists the state of the range into `extents`, in order, without gaps, neighbours of one state joined. With `since`, the
    /// number of a snapshot of the volume, only what was written after it counts: what shows through from the snapshot is a
    /// hole. A snapshot that is none of the volume's hides nothing, and all is data. Drives without snapshots ignore it.
    Extents { at: u64, length: u64, since: Option<VolumeId>, extents: Vec<Extent> },
}

impl Op {
    /// Where and how many bytes it touches; none for a flush.
    pub fn range(&self) -> Option<(u64, u64)> {
        match self {
            Op::Read { at, buffer } => Some((*at, buffer.len() as u64)),
            Op::Write { at, data, .. } => Some((*at, data.iter().map(|piece| piece.len() as u64).sum())),
            Op::Zero { at, length }
            | Op::Discard { at, length }
            | Op::View { at, length, .. }
            | Op::Extents { at, length, .. } => Some((*at, *length)),
            Op::Flush => None,
        }
    }
}

/// A run of bytes in one state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    pub length: u64,
    pub state: ExtentState,
}

impl Extent {
    /// Adds `next` to a list, joined with the last where the states are equal.
    pub fn append(extents: &mut Vec<Extent>, next: Extent) {
        match extents.last_mut() {
            Some(last) if last.state == next.state => last.length += next.length,
            _ if next.length > 0 => extents.push(next),
            _ => {}
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtentState {
    Data,
    /// Reads as zeros and owns its space.
    Zero,
    /// Reads as zeros and owns no space.
    Hole,
}

/// Who waits for it. Lower comes first where a drive or array must choose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum Priority {
    /// An acknowledgement hangs on it: log writes and flushes.
    Urgent,
    #[default]
    Host,
    Destage,
    Rebuild,
    Scrub,
}

/// An operation on its way to a drive.
#[derive(Debug)]
pub struct Request {
    /// Chosen by the submitter, returned with the completion; unique among those in flight on this drive.
    pub tag: u64,
    pub op: Op,
    pub priority: Priority,
    /// After this a late answer is worthless; a drive may then fail it with `Retry`. It is a hint.
    pub deadline: Option<Instant>,
}

/// An operation on its way back, with its buffers.
#[derive(Debug)]
pub struct Completion {
    pub tag: u64,
    pub op: Op,
    pub result: Result<(), MediaError>,
}
