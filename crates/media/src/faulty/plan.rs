//! The fault plan: from a seed or a script it decides which operation of which drive fails, and
//! how.
//!
//! The plan decides and records every fault, so that a run can be read afterwards and repeated. A
//! [`Permit`] has the last word: its owner knows the redundancy above the drives, and keeps the
//! damage within its limits.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use stele_ground::{Dice, Instant};

/// The faults of a drive. The plan decides the first group for each operation. The owner of a drive
/// causes the second group, which affects the whole drive; the same trace records it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FaultKind {
    /// One to eight bits of stored data are inverted, until rewritten.
    BitFlip,
    /// A run of stored bytes turns to noise, until rewritten.
    ByteFlip,
    /// A read fails once; the same read may then succeed.
    TransientError,
    /// A cluster of sectors cannot be read until rewritten.
    LatentError,
    /// A write fails, and some of it may have reached the medium.
    WriteError,
    /// A write is acknowledged and never carried out.
    LostWrite,
    /// A write is acknowledged, but only its beginning or its end is carried out.
    TornWrite,
    /// A write is acknowledged, but goes to another place on the same drive.
    MisdirectedWrite,
    /// A read returns the content of another place on the same drive.
    MisdirectedRead,
    /// A flush is acknowledged and does nothing.
    LyingFlush,
    /// An operation takes a hundred times as long.
    Slow,
    /// An operation gets no answer until the owner loses patience.
    Stuck,
    /// A flush fails, and what was in the drive's cache is lost; a later flush goes well.
    FailedFlush,

    PowerCut,
    /// A drive leaves in order, with a notice of its driver.
    Leave,
    /// A drive is pulled out: operations under way and later ones fail before the driver reports
    /// it.
    Pull,
    Return,
    /// Answers every write with an error.
    RefuseWrites,
    Limp,
    Rollback,
    /// Two drives exchange their places.
    Swap,
    Clone,
    Replace,
    EnclosureLoss,
    EnclosureReturn,
    LogDriveLoss,
}

impl FaultKind {
    /// The faults decided for each operation.
    pub const BY_OPERATION: [FaultKind; 13] = [
        FaultKind::BitFlip,
        FaultKind::ByteFlip,
        FaultKind::TransientError,
        FaultKind::LatentError,
        FaultKind::WriteError,
        FaultKind::LostWrite,
        FaultKind::TornWrite,
        FaultKind::MisdirectedWrite,
        FaultKind::MisdirectedRead,
        FaultKind::LyingFlush,
        FaultKind::Slow,
        FaultKind::Stuck,
        FaultKind::FailedFlush,
    ];

    /// The faults of a whole drive.
    pub const BY_DRIVE: [FaultKind; 13] = [
        FaultKind::PowerCut,
        FaultKind::Leave,
        FaultKind::Pull,
        FaultKind::Return,
        FaultKind::RefuseWrites,
        FaultKind::Limp,
        FaultKind::Rollback,
        FaultKind::Swap,
        FaultKind::Clone,
        FaultKind::Replace,
        FaultKind::EnclosureLoss,
        FaultKind::EnclosureReturn,
        FaultKind::LogDriveLoss,
    ];

    /// Whether stored data is silently wrong afterwards, or silently missing.
    pub fn is_silent(self) -> bool {
        use FaultKind::*;
        matches!(
            self,
            BitFlip | ByteFlip | LatentError | LostWrite | TornWrite | MisdirectedWrite | LyingFlush | Rollback | Clone
        )
    }

    /// Whether the fault can happen to this class of operation.
    pub fn suits(self, class: Class) -> bool {
        use FaultKind::*;
        match self {
            BitFlip | ByteFlip | TransientError | LatentError | MisdirectedRead => class == Class::Read,
            WriteError | LostWrite | TornWrite | MisdirectedWrite => class == Class::Write,
            LyingFlush | FailedFlush => class == Class::Flush,
            Slow | Stuck => true,
            _ => false,
        }
    }
}

/// The classes of operations that the plan distinguishes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    Read,
    Write,
    Flush,
}

/// A fault that the plan proposes to a permit. For a flush the range is empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proposal {
    pub drive: usize,
    pub kind: FaultKind,
    /// The range whose stored content would become wrong or unreadable.
    pub at: u64,
    pub length: u64,
}

/// Decides whether a fault may happen, and records the faults that it allows.
pub type Permit = Arc<dyn Fn(&Proposal) -> bool + Send + Sync>;

/// A fault that happened, for the trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultRecord {
    pub time: Instant,
    pub drive: usize,
    pub kind: FaultKind,
    /// The number of the operation on this drive, counted from 0.
    pub operation: u64,
    pub at: u64,
    pub length: u64,
    /// The place that a misdirected operation went to; otherwise 0.
    pub other: u64,
}

impl fmt::Display for FaultRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "drive {} operation {}: {:?} at {} length {}",
            self.drive, self.operation, self.kind, self.at, self.length
        )?;
        if self.other == 0 { Ok(()) } else { write!(f, " (other place {})", self.other) }
    }
}

/// A fault at a chosen place of a run, for named regressions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Scripted {
    drive: usize,
    /// It happens to the first suitable operation whose number is at least this.
    from: u64,
    kind: FaultKind,
}

/// The rates of the faults on all drives.
#[derive(Clone, Default)]
pub struct FaultPlan {
    seed: u64,
    /// For each fault: one in this many suitable operations.
    rates: BTreeMap<FaultKind, u64>,
    script: Vec<Scripted>,
    permit: Option<Permit>,
}

impl FaultPlan {
    /// A plan without faults, until rates or a script add some.
    pub fn new(seed: u64) -> FaultPlan {
        FaultPlan { seed, ..FaultPlan::default() }
    }

    /// Sets a rate of one in `one_in` suitable operations; 0 for never.
    pub fn rate(mut self, kind: FaultKind, one_in: u64) -> FaultPlan {
        self.rates.insert(kind, one_in);
        self
    }

    /// Adds a fault for the first suitable operation of `drive`, from operation `from` on.
    pub fn scripted(mut self, drive: usize, from: u64, kind: FaultKind) -> FaultPlan {
        self.script.push(Scripted { drive, from, kind });
        self
    }

    pub fn permitted_by(mut self, permit: Permit) -> FaultPlan {
        self.permit = Some(permit);
        self
    }

    /// The part of the plan for one drive, with dice of its own.
    pub fn for_drive(&self, drive: usize) -> Decider {
        Decider {
            drive,
            dice: Dice::new(self.seed ^ (drive as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            rates: self.rates.clone(),
            script: self.script.iter().filter(|scripted| scripted.drive == drive).copied().collect(),
            permit: self.permit.clone(),
            armed: true,
            operations: 0,
            records: Vec::new(),
        }
    }
}

impl fmt::Debug for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultPlan(seed {}, {:?}, {:?})", self.seed, self.rates, self.script)
    }
}

/// Decides the faults of one drive, operation by operation.
pub struct Decider {
    drive: usize,
    dice: Dice,
    rates: BTreeMap<FaultKind, u64>,
    script: Vec<Scripted>,
    permit: Option<Permit>,
    armed: bool,
    operations: u64,
    records: Vec<FaultRecord>,
}

impl Decider {
    /// Turns faults on or off. The dice are thrown in both cases, so that disarming does not shift
    /// later faults.
    pub fn arm(&mut self, armed: bool) {
        self.armed = armed;
    }

    pub fn is_armed(&self) -> bool {
        self.armed
    }

    /// Changes the rate of a fault from here on.
    pub fn set_rate(&mut self, kind: FaultKind, one_in: u64) {
        self.rates.insert(kind, one_in);
    }

    pub fn drive(&self) -> usize {
        self.drive
    }

    pub fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }

    /// Counts the operation and returns the planned fault, before the permit decides.
    pub(super) fn wanted(&mut self, class: Class) -> Option<FaultKind> {
        let operation = self.operations;
        self.operations += 1;
        let mut wanted = None;
        for kind in FaultKind::BY_OPERATION.into_iter().filter(|kind| kind.suits(class)) {
            if let Some(&one_in) = self.rates.get(&kind)
                && self.dice.one_in(one_in)
            {
                wanted = Some(kind);
            }
        }
        if let Some(at) = self.script.iter().position(|line| line.from <= operation && line.kind.suits(class)) {
            wanted = Some(self.script.remove(at).kind);
        }
        wanted.filter(|_| self.armed)
    }

    /// Asks the permit.
    pub fn permits(&mut self, kind: FaultKind, at: u64, length: u64) -> bool {
        let proposal = Proposal { drive: self.drive, kind, at, length };
        self.permit.as_ref().is_none_or(|permit| permit(&proposal))
    }

    pub(super) fn record(&mut self, time: Instant, kind: FaultKind, at: u64, length: u64, other: u64) {
        let operation = self.operations.saturating_sub(1);
        self.records.push(FaultRecord { time, drive: self.drive, kind, operation, at, length, other });
    }

    /// The faults since the last call.
    pub fn take_records(&mut self) -> Vec<FaultRecord> {
        std::mem::take(&mut self.records)
    }
}

impl fmt::Debug for Decider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decider(drive {}, {} operations, armed: {})", self.drive, self.operations, self.armed)
    }
}
