//! Requests and completions. The present holder of an operation owns its buffers.

use stele_ground::{Instant, VolumeId};

use crate::{Buffer, MediaError, Shared};

/// A request to a drive. Offsets and lengths are bytes, multiples of the drive's block.
#[derive(Debug)]
pub enum Op {
    /// Fills the whole buffer from `at`. Space that was never written reads as zeros.
    Read { at: u64, buffer: Buffer },
    /// Reads without a copy: returns immutable pieces of the drive's own memory, which form the
    /// range one after another. Volumes and memory drives answer it; other drives refuse it as
    /// `Invalid`.
    View { at: u64, length: u64, pieces: Vec<Shared> },
    /// Writes the pieces one after another from `at`. With `fua`, it completes only when this write
    /// is durable. Without, it is durable once a flush completes that was submitted after the
    /// write's completion.
    Write { at: u64, data: Vec<Shared>, fua: bool },
    /// Like a write of `length` zeros; may free space.
    Zero { at: u64, length: u64 },
    /// Completes when every write is durable that had completed before the flush was submitted. It
    /// promises nothing about writes in flight at that moment.
    Flush,
    /// Discards the content: later reads return zeros, or on a plain drive anything.
    Discard { at: u64, length: u64 },
    /// Lists the state of the range into `extents`, in order, without gaps, with equal neighbours
    /// joined. `since` names a snapshot of the volume: only data written after it counts, and older
    /// data is listed as a hole. A snapshot of another volume hides nothing, and the whole range is
    /// data. Drives without snapshots ignore `since`.
    Extents { at: u64, length: u64, since: Option<VolumeId>, extents: Vec<Extent> },
}

impl Op {
    /// The offset and length that it touches; `None` for a flush.
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
    /// Adds `next` to a list; joins it with the last extent if their states are equal.
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
    /// Reads as zeros and occupies space.
    Zero,
    /// Reads as zeros and occupies no space.
    Hole,
}

/// The urgency of a request. Lower comes first if a drive or array must choose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum Priority {
    /// An acknowledgement depends on it: log writes and flushes.
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
    /// Chosen by the submitter, returned with the completion; unique among those in flight on this
    /// drive.
    pub tag: u64,
    pub op: Op,
    pub priority: Priority,
    /// A later answer is worthless; a drive may then fail the request with `Retry`. It is a hint.
    pub deadline: Option<Instant>,
}

/// An operation on its way back, with its buffers.
#[derive(Debug)]
pub struct Completion {
    pub tag: u64,
    pub op: Op,
    pub result: Result<(), MediaError>,
}
