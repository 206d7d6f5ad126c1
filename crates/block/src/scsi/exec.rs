//! A command in progress: its data so far, and its reaction to a finished operation of the drive.
//! Each command has one operation in flight at a time.

use std::sync::Arc;

use stele_media::{Extent, MediaError, MediaFault, Op, Shared};

use super::cdb::Prepared;
use super::copy::Copying;
use super::persistent::Change;
use super::{NexusId, Port, Reply, Sense, Unit, UnitId};

/// A request of a command that must be answered before it continues.
#[derive(Debug)]
pub enum Ask {
    /// An operation of a unit's drive.
    Drive(UnitId, Op),
    /// An atomic write: after a crash it is there completely or not at all.
    Whole(UnitId, Op),
    /// Reservations that must be durable before the command is answered; `None`: nothing is to
    /// survive a power loss.
    Keep(UnitId, Option<Vec<u8>>),
    /// Other units that a copy names.
    Find(Search),
}

/// Units that a copy of this initiator port should reach.
#[derive(Debug)]
pub struct Search {
    pub port: Port,
    /// Designators of units, each with its type.
    pub names: Vec<(u8, Vec<u8>)>,
}

/// A unit that a copy reaches.
#[derive(Clone, Debug)]
pub struct Reached {
    /// The number for its operations, valid as long as `hold` is held.
    pub unit: UnitId,
    pub blocks: u64,
    pub block_bytes: u32,
    /// Accesses that its reservations and its protection allow this initiator.
    pub readable: bool,
    pub writable: bool,
    pub hold: Arc<()>,
}

#[derive(Debug)]
pub enum Answer {
    Drive(Op, Result<(), MediaError>),
    Kept(Result<(), MediaError>),
    /// The units in the order of the names. `None`: this initiator has no such unit.
    Found(Vec<Option<Reached>>),
}

pub enum ExecStep {
    Ask(Ask),
    Done(Reply),
}

impl ExecStep {
    pub fn done(sense: Sense) -> ExecStep {
        ExecStep::Done(Reply::failed(sense))
    }

    pub fn good() -> ExecStep {
        ExecStep::Done(Reply::good())
    }
}

pub struct Exec {
    pub nexus: NexusId,
    pub prepared: Result<Prepared, Sense>,
    /// The initiator's data, at most as long as wanted.
    pub data: Vec<Shared>,
    /// Bytes that the initiator offered, wanted or not.
    pub offered: u64,
    pub(super) stage: Stage,
}

/// The purpose of the operation in flight.
pub(super) enum Stage {
    Fresh,
    /// The data goes to the initiator.
    Reading,
    /// Only the answer remains.
    Last,
    /// The written blocks are read back and must equal the data.
    Reread {
        at: u64,
        check: bool,
    },
    /// The blocks are compared with the data, or each block with one block of data.
    Verifying {
        at: u64,
        left: u64,
        check: super::command::Check,
    },
    /// The next part of a pattern.
    Same {
        at: u64,
        left: u64,
        tile: Shared,
    },
    /// The ranges still to zero, last first.
    Zeroing(Vec<(u64, u64)>),
    /// The blocks are compared with the first half of the data; if equal, the second half is
    /// written.
    Comparing {
        fua: bool,
    },
    Merging {
        at: u64,
        fua: bool,
    },
    /// Extents found up to `at`.
    Mapping {
        from: u64,
        at: u64,
        windows: u32,
        allocated: u32,
        found: Vec<Extent>,
    },
    Copying(Box<Copying>),
    /// The transport looks for the units of a copy.
    Finding,
    /// The reservations are being kept; they take effect when they have been.
    Keeping(Box<Change>),
}

impl Exec {
    pub fn new(nexus: NexusId, prepared: Result<Prepared, Sense>) -> Exec {
        Exec { nexus, prepared, data: Vec::new(), offered: 0, stage: Stage::Fresh }
    }

    pub fn length(&self) -> u64 {
        self.data.iter().map(|piece| piece.len() as u64).sum()
    }

    /// The data in one piece, for parameter lists and comparisons.
    pub(super) fn whole(&self) -> Shared {
        match self.data.as_slice() {
            [] => Shared::new(),
            [only] => only.clone(),
            pieces => Shared::from(pieces.concat()),
        }
    }
}

impl Unit {
    /// Continues a command after its request was answered.
    pub fn advance(&mut self, exec: &mut Exec, answer: Answer) -> ExecStep {
        let stage = std::mem::replace(&mut exec.stage, Stage::Fresh);
        match answer {
            Answer::Kept(result) => self.reservations_kept(stage, result),
            Answer::Found(reached) => self.copy_begins(exec, reached),
            Answer::Drive(op, Err(error)) => {
                let writing = !matches!(op, Op::Read { .. } | Op::View { .. } | Op::Extents { .. });
                if let Stage::Copying(copying) = stage {
                    self.copy_ended(*copying, false);
                    return ExecStep::done(Sense::COPY_FAILED);
                }
                ExecStep::done(sense_of(&error, writing))
            }
            Answer::Drive(op, Ok(())) => self.came_back(exec, stage, op),
        }
    }
}

/// The sense for a failed operation.
pub fn sense_of(error: &MediaError, writing: bool) -> Sense {
    match error.fault {
        MediaFault::Retry => Sense::BUSY_INSIDE,
        MediaFault::Damaged if writing => Sense::WRITE_ERROR,
        MediaFault::Damaged => Sense::READ_ERROR,
        MediaFault::Full => Sense::NO_SPACE,
        // The unit itself refuses writes to a protected medium. The volume refuses them while
        // drives are away.
        MediaFault::Refused if writing => Sense::BUSY_INSIDE,
        MediaFault::Refused => Sense::UNREACHABLE,
        MediaFault::Invalid => Sense::INTERNAL,
        MediaFault::Gone => Sense::UNREACHABLE,
    }
}
