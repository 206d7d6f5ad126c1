//! What a pool is told, and what it asks of its driver.

use stele_ground::{Bytes, VolumeId};
use stele_media::{Completion, Geometry, Request};

use crate::model::{Alarm, ArrayError, Command, Reply};

/// A drive as the driver hands it over. Its index is its place in the list given to `create` or
/// `open`, and stays: the driver addresses completions by it. (The pool's own drive numbers, in
/// labels and status, may differ.)
#[derive(Clone, Debug)]
pub struct Attached {
    pub geometry: Geometry,
    /// What an operator calls it: its path.
    pub name: String,
    /// Failure domain; used at creation and when the drive is added, afterwards the label's word
    /// counts.
    pub enclosure: u32,
}

/// What the driver tells the pool.
#[derive(Debug)]
pub enum Event {
    /// A host operation on a volume. Its tag comes back with the completion.
    Submit {
        volume: VolumeId,
        request: Request,
    },
    /// As `Submit`, for a write that another is to follow: [`Action::Ordered`] comes before its
    /// completion.
    SubmitOrdered {
        volume: VolumeId,
        request: Request,
    },
    /// As `Submit`, for a write of at most [`ATOMIC_WRITE_MAX`](crate::ATOMIC_WRITE_MAX) bytes in
    /// blocks of 4096 that is there as a whole or not at all.
    SubmitAtomic {
        volume: VolumeId,
        request: Request,
    },
    Command {
        id: u64,
        command: Command,
    },
    /// A drive finished a request that an action handed out.
    Completed {
        drive: usize,
        completion: Completion,
    },
    /// A further drive (new or returned) with the next free index.
    Attach(Attached),
    /// The driver lost the drive; requests outstanding on it complete with `Gone`.
    Detach {
        drive: usize,
    },
}

/// What the pool asks of its driver.
#[derive(Debug)]
pub enum Action {
    Drive {
        drive: usize,
        request: Request,
    },
    /// The write has its place in the log: what is submitted from now on, to any volume, is not
    /// durable without it, nor there after a crash. It is not durable itself yet.
    Ordered {
        volume: VolumeId,
        tag: u64,
    },
    Finished {
        volume: VolumeId,
        completion: Completion,
    },
    Reply {
        id: u64,
        reply: Result<Reply, ArrayError>,
    },
    /// The volume with this handle has this size from here on.
    Resized {
        volume: VolumeId,
        size: Bytes,
    },
    Alarm(Alarm),
}
