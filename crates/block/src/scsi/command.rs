//! A parsed command.

use super::persistent::CHANGES;

/// More blocks than any medium has.
const MEDIUM_MAX: u64 = u64::MAX - 1;

/// A run of logical blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocks {
    pub at: u64,
    pub count: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScsiCommand {
    TestReady,
    RequestSense {
        descriptors: bool,
        allocated: u32,
    },
    Inquiry {
        page: Option<u8>,
        allocated: u32,
    },
    ModeSense {
        long: bool,
        no_descriptor: bool,
        long_lba: bool,
        control: u8,
        page: u8,
        subpage: u8,
        allocated: u32,
    },
    ModeSelect {
        long: bool,
        length: u32,
    },
    Reserve,
    Release,
    StartStop {
        start: bool,
        eject: bool,
        condition: u8,
    },
    PreventRemoval {
        prevent: bool,
    },
    ReadCapacity10,
    ReadCapacity16 {
        allocated: u32,
    },
    Read {
        blocks: Blocks,
    },
    Write {
        blocks: Blocks,
        fua: bool,
    },
    /// An atomic write: after a crash it is there completely or not at all.
    WriteAtomic {
        blocks: Blocks,
        fua: bool,
    },
    WriteAndVerify {
        blocks: Blocks,
        compare: bool,
    },
    Verify {
        blocks: Blocks,
        check: Check,
    },
    Prefetch {
        blocks: Blocks,
    },
    Synchronize {
        blocks: Blocks,
        immediate: bool,
    },
    DefectData {
        long: bool,
        formats: u8,
        allocated: u32,
    },
    /// With UNMAP or without: zeros free as much as they can, other patterns are written.
    WriteSame {
        blocks: Blocks,
        no_data: bool,
    },
    Unmap {
        length: u32,
    },
    CompareAndWrite {
        blocks: Blocks,
        fua: bool,
    },
    OrWrite {
        blocks: Blocks,
        fua: bool,
    },
    PersistentIn {
        action: u8,
        allocated: u32,
    },
    PersistentOut {
        action: u8,
        scope: u8,
        kind: u8,
        length: u32,
    },
    ExtendedCopy {
        length: u32,
    },
    CopyStatus {
        action: u8,
        list: u8,
        allocated: u32,
    },
    LbaStatus {
        at: u64,
        allocated: u32,
    },
    ReportLuns {
        select: u8,
        allocated: u32,
    },
    ReportPortGroups {
        extended: bool,
        allocated: u32,
    },
    ReportOpcodes {
        options: u8,
        timeouts: bool,
        opcode: u8,
        action: u16,
        allocated: u32,
    },
    ReportFunctions {
        extended: bool,
        allocated: u32,
    },
}

/// The data for VERIFY: none (the unit reads and checks digests), the sent blocks, or one sent
/// block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Check {
    Medium,
    Blocks,
    OneBlock,
}

/// The effect of another nexus's reservation on a command (SPC-5 table 66, SBC-4 table 14).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReservationAccess {
    /// Passes every reservation.
    Free,
    /// Passes persistent reservations, but not RESERVE(6).
    Shared,
    Reads,
    Writes,
    /// The command decides by itself.
    Own,
}

impl ScsiCommand {
    pub fn access(&self) -> ReservationAccess {
        match self {
            ScsiCommand::Inquiry { .. } | ScsiCommand::RequestSense { .. } | ScsiCommand::ReportLuns { .. } => {
                ReservationAccess::Free
            }
            ScsiCommand::Release => ReservationAccess::Free,
            ScsiCommand::Reserve | ScsiCommand::PersistentOut { .. } => ReservationAccess::Own,
            ScsiCommand::TestReady
            | ScsiCommand::ReadCapacity10
            | ScsiCommand::ReadCapacity16 { .. }
            | ScsiCommand::PersistentIn { .. }
            | ScsiCommand::ReportPortGroups { .. }
            | ScsiCommand::ReportOpcodes { .. }
            | ScsiCommand::ReportFunctions { .. }
            | ScsiCommand::CopyStatus { .. }
            | ScsiCommand::StartStop { start: true, eject: false, condition: 0 }
            | ScsiCommand::PreventRemoval { prevent: false } => ReservationAccess::Shared,
            ScsiCommand::Read { .. }
            | ScsiCommand::Verify { .. }
            | ScsiCommand::Prefetch { .. }
            | ScsiCommand::DefectData { .. }
            | ScsiCommand::LbaStatus { .. } => ReservationAccess::Reads,
            _ => ReservationAccess::Writes,
        }
    }

    /// The blocks that it touches, and whether it needs them exclusively.
    pub fn lane(&self) -> Option<(Blocks, bool)> {
        match *self {
            ScsiCommand::Read { blocks } | ScsiCommand::Write { blocks, .. } | ScsiCommand::Verify { blocks, .. } => {
                Some((blocks, false))
            }
            ScsiCommand::WriteSame { blocks, .. } => Some((blocks, false)),
            ScsiCommand::WriteAndVerify { blocks, .. }
            | ScsiCommand::WriteAtomic { blocks, .. }
            | ScsiCommand::CompareAndWrite { blocks, .. }
            | ScsiCommand::OrWrite { blocks, .. } => Some((blocks, true)),
            ScsiCommand::Unmap { .. } | ScsiCommand::ExtendedCopy { .. } => {
                Some((Blocks { at: 0, count: MEDIUM_MAX }, false))
            }
            ScsiCommand::PersistentOut { .. } => Some((CHANGES, true)),
            _ => None,
        }
    }

    /// Whether the medium must be there.
    pub fn needs_medium(&self) -> bool {
        matches!(
            self,
            ScsiCommand::TestReady
                | ScsiCommand::ReadCapacity10
                | ScsiCommand::ReadCapacity16 { .. }
                | ScsiCommand::Read { .. }
                | ScsiCommand::Verify { .. }
                | ScsiCommand::Prefetch { .. }
                | ScsiCommand::Synchronize { .. }
                | ScsiCommand::LbaStatus { .. }
                | ScsiCommand::ExtendedCopy { .. }
                | ScsiCommand::DefectData { .. }
        ) || self.writes_medium()
    }

    pub fn writes_medium(&self) -> bool {
        matches!(
            self,
            ScsiCommand::Write { .. }
                | ScsiCommand::WriteAtomic { .. }
                | ScsiCommand::WriteAndVerify { .. }
                | ScsiCommand::WriteSame { .. }
                | ScsiCommand::Unmap { .. }
                | ScsiCommand::CompareAndWrite { .. }
                | ScsiCommand::OrWrite { .. }
        )
    }
}
