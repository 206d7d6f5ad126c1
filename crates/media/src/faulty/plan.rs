//! The fault plan: from a seed (or a script) it decides which operation of which drive goes wrong, and how.
//!
//! Everything that goes wrong is decided here and recorded, so that a run can be read afterwards and repeated. A
//! [`Permit`] has the last word: whoever knows the redundancy above keeps the damage within what is tolerated.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use stele_ground::{Dice, Instant};

/// Everything that can happen to a drive. The first group is decided for each operation; the second befalls a whole
/// drive and is brought about by its owner, recorded in the same trace.
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
    /// A write is acknowledged and never happens.
    LostWrite,
    /// A write is acknowledged, but only its beginning or its end happens.
    TornWrite,
    /// A write is acknowledged, but lands elsewhere on the same drive.
    MisdirectedWrite,
    /// A read returns what lies elsewhere on the same drive.
    MisdirectedRead,
    /// A flush is acknowledged and does nothing.
    LyingFlush,
    /// An operation takes a hundred times as long.
    Slow,
    /// An operation is not answered until the owner loses patience.
    Stuck,

    PowerCut,
    /// A drive leaves in order: its driver says so.
    Leave,
    /// A drive is pulled out: whatever is under way fails, and whatever comes after, before the driver says so.
    Pull,
    Return,
    /// Answers nothing to writes but errors.
    RefuseWrites,
    Limp,
    Rollback,
    /// Two drives change places.
    Swap,
    Clone,
    Replace,
    EnclosureLoss,
    EnclosureReturn,
    LogDriveLoss,
}

impl FaultKind {
    /// Those decided operation by operation.
    pub const BY_OPERATION: [FaultKind; 12] = [
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
    ];

    /// Those that befall a whole drive.
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

    /// Whether what is stored is wrong afterwards, or is not what was said to be stored, without a word.
    pub fn is_silent(self) -> bool {
        use FaultKind::*;
        matches!(
            self,
            BitFlip | ByteFlip | LatentError | LostWrite | TornWrite | MisdirectedWrite | LyingFlush | Rollback | Clone
        )
    }

    /// Whether it can befall this class of operation.
    pub fn suits(self, class: Class) -> bool {
        use FaultKind::*;
        match self {
            BitFlip | ByteFlip | TransientError | LatentError | MisdirectedRead => class == Class::Read,
            WriteError | LostWrite | TornWrite | MisdirectedWrite => class == Class::Write,
            LyingFlush => class == Class::Flush,
            Slow | Stuck => true,
            _ => false,
        }
    }
}

/// Operations as the plan sees them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    Read,
    Write,
    Flush,
}

/// What the plan would like to do, for a permit to judge. For a flush the range is empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proposal {
    pub drive: usize,
    pub kind: FaultKind,
    /// The bytes whose stored content would be wrong or unreadable.
    pub at: u64,
    pub length: u64,
}

/// Says whether a fault may happen; it notes those it allows.
pub type Permit = Arc<dyn Fn(&Proposal) -> bool + Send + Sync>;

/// Something that went wrong, for the trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultRecord {
    pub time: Instant,
    pub drive: usize,
    pub kind: FaultKind,
    /// The operation of this drive, counted from 0, that it befell.
    pub operation: u64,
    pub at: u64,
    pub length: u64,
    /// Where a misdirected operation went; else 0.
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

/// A fault wanted at a certain place of a run, for named regressions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Scripted {
    drive: usize,
    /// It befalls the first operation it suits whose number is at least this.
    from: u64,
    kind: FaultKind,
}

/// Which faults happen how often, on all drives.
#[derive(Clone, Default)]
pub struct FaultPlan {
    seed: u64,
    /// One in so many operations that the fault suits.
    rates: BTreeMap<FaultKind, u64>,
    script: Vec<Scripted>,
    permit: Option<Permit>,
}

impl FaultPlan {
    /// Nothing happens until rates or a script say so.
    pub fn new(seed: u64) -> FaultPlan {
        FaultPlan { seed, ..FaultPlan::default() }
    }

    /// One in `one_in` suitable operations; 0 for never.
    pub fn rate(mut self, kind: FaultKind, one_in: u64) -> FaultPlan {
        self.rates.insert(kind, one_in);
        self
    }

    /// Befalls the first operation of `drive` that it suits, counted from operation `from`.
    pub fn scripted(mut self, drive: usize, from: u64, kind: FaultKind) -> FaultPlan {
        self.script.push(Scripted { drive, from, kind });
        self
    }

    pub fn permitted_by(mut self, permit: Permit) -> FaultPlan {
        self.permit = Some(permit);
        self
    }

    /// The part of the plan that concerns one drive, with dice of its own.
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

/// Decides for one drive, operation by operation.
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
    /// Whether faults happen at all. Dice are thrown either way, so that disarming does not shift later ones.
    pub fn arm(&mut self, armed: bool) {
        self.armed = armed;
    }

    pub fn is_armed(&self) -> bool {
        self.armed
    }

    /// Changes how often a fault happens from here on.
    pub fn set_rate(&mut self, kind: FaultKind, one_in: u64) {
        self.rates.insert(kind, one_in);
    }

    pub fn drive(&self) -> usize {
        self.drive
    }

    pub fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }

    /// Counts the operation, and names what the plan wants to befall it, not yet permitted.
    pub(super) fn wish(&mut self, class: Class) -> Option<FaultKind> {
        let operation = self.operations;
        self.operations += 1;
        let mut wish = None;
        for kind in FaultKind::BY_OPERATION.into_iter().filter(|kind| kind.suits(class)) {
            if let Some(&one_in) = self.rates.get(&kind)
                && self.dice.one_in(one_in)
            {
                wish = Some(kind);
            }
        }
        if let Some(at) = self.script.iter().position(|line| line.from <= operation && line.kind.suits(class)) {
            wish = Some(self.script.remove(at).kind);
        }
        wish.filter(|_| self.armed)
    }

    /// Asks whether it may happen.
    pub fn permits(&mut self, kind: FaultKind, at: u64, length: u64) -> bool {
        let proposal = Proposal { drive: self.drive, kind, at, length };
        self.permit.as_ref().is_none_or(|permit| permit(&proposal))
    }

    pub(super) fn record(&mut self, time: Instant, kind: FaultKind, at: u64, length: u64, other: u64) {
        let operation = self.operations.saturating_sub(1);
        self.records.push(FaultRecord { time, drive: self.drive, kind, operation, at, length, other });
    }

    /// What happened since the last call.
    pub fn take_records(&mut self) -> Vec<FaultRecord> {
        std::mem::take(&mut self.records)
    }
}

impl fmt::Debug for Decider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decider(drive {}, {} operations, armed: {})", self.drive, self.operations, self.armed)
    }
}
