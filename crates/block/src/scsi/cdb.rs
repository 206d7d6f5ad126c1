//! Parses a CDB. A bit outside the mask in the command's table entry must be zero. An initiator
//! that asks for protection information, or for another feature that is missing, thus gets an error
//! instead of a different service.

use super::command::{Blocks, Check, ScsiCommand};
use super::field::{be16, be24, be32, be64, octet};
use super::opcodes;
use super::verbs::{STRIDE, TILE};
use super::{Profile, Sense};

/// Largest transfer of one command, in bytes.
pub const TRANSFER_MAX: u64 = 8 << 20;
/// The longest parameter list.
pub const LIST_MAX: u32 = 64 << 10;
/// Largest number of blocks for COMPARE AND WRITE.
pub const COMPARE_MAX: u64 = 255;
/// Alignment of WRITE ATOMIC, in bytes.
pub const ATOMIC_UNIT: u64 = 4096;
/// Largest range of one WRITE SAME, in bytes.
pub const SAME_MAX: u64 = 16 << 20;
/// Largest range of one UNMAP descriptor list, in bytes.
pub const UNMAP_MAX: u64 = 512 << 20;
pub const UNMAP_DESCRIPTORS_MAX: u32 = 256;

/// A command with the number of bytes that it takes from the initiator and returns to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prepared {
    pub command: ScsiCommand,
    /// Bytes it wants from the initiator.
    pub out: u64,
    /// Largest number of bytes that it returns.
    pub back: u64,
    /// Largest number of further bytes that it holds while it runs.
    pub inside: u64,
}

pub fn decode(cdb: &[u8], profile: &Profile) -> Result<Prepared, Sense> {
    let opcode = octet(cdb, 0);
    let action = octet(cdb, 1) & 0x1f;
    let Some(entry) = opcodes::find(opcode, action) else {
        return Err(if opcodes::is_known(opcode) { Sense::in_cdb(1) } else { Sense::INVALID_OPCODE });
    };
    for (at, mask) in entry.usage.iter().enumerate().skip(1) {
        if octet(cdb, at) & !mask != 0 {
            return Err(Sense::in_cdb(at as u16));
        }
    }
    if opcode == opcodes::WRITE_ATOMIC && profile.whole_max == 0 {
        return Err(Sense::INVALID_OPCODE);
    }
    let command = understand(cdb, opcode, action)?;
    let (out, back) = weigh(&command, profile)?;
    let inside = inside(&command, out, profile);
    Ok(Prepared { command, out, back, inside })
}

fn understand(cdb: &[u8], opcode: u8, action: u8) -> Result<ScsiCommand, Sense> {
    let flags = octet(cdb, 1);
    let fua = flags & 0x08 != 0;
    let blocks = range(cdb, opcode);
    Ok(match opcode {
        0x00 => ScsiCommand::TestReady,
        0x03 => ScsiCommand::RequestSense { descriptors: flags & 1 != 0, allocated: u32::from(octet(cdb, 4)) },
        0x08 | 0x28 | 0x88 | 0xa8 => ScsiCommand::Read { blocks },
        0x0a => ScsiCommand::Write { blocks, fua: false },
        0x2a | 0x8a | 0xaa => ScsiCommand::Write { blocks, fua },
        0x12 => inquiry(cdb)?,
        0x15 => ScsiCommand::ModeSelect { long: false, length: u32::from(octet(cdb, 4)) },
        0x55 => ScsiCommand::ModeSelect { long: true, length: u32::from(be16(cdb, 7)) },
        0x1a | 0x5a => mode_sense(cdb, opcode == 0x5a),
        0x16 | 0x56 => ScsiCommand::Reserve,
        0x17 | 0x57 => ScsiCommand::Release,
        0x1b => {
            let byte = octet(cdb, 4);
            ScsiCommand::StartStop { start: byte & 1 != 0, eject: byte & 2 != 0, condition: byte >> 4 }
        }
        0x1e => ScsiCommand::PreventRemoval { prevent: octet(cdb, 4) & 1 != 0 },
        0x25 => ScsiCommand::ReadCapacity10,
        0x2e | 0x8e | 0xae => ScsiCommand::WriteAndVerify { blocks, compare: byte_check(flags)? },
        0x2f | 0x8f | 0xaf => {
            let check = match (flags >> 1) & 3 {
                0 => Check::Medium,
                1 => Check::Blocks,
                3 => Check::OneBlock,
                _ => return Err(Sense::in_cdb(1)),
            };
            ScsiCommand::Verify { blocks, check }
        }
        0x34 | 0x90 => ScsiCommand::Prefetch { blocks },
        0x35 | 0x91 => ScsiCommand::Synchronize { blocks, immediate: flags & 2 != 0 },
        0x37 => ScsiCommand::DefectData { long: false, formats: octet(cdb, 2), allocated: u32::from(be16(cdb, 7)) },
        0xb7 => ScsiCommand::DefectData { long: true, formats: flags, allocated: be32(cdb, 6) },
        0x41 | 0x93 => ScsiCommand::WriteSame { blocks, no_data: opcode == 0x93 && flags & 1 != 0 },
        0x42 => ScsiCommand::Unmap { length: u32::from(be16(cdb, 7)) },
        0x5e => ScsiCommand::PersistentIn { action, allocated: u32::from(be16(cdb, 7)) },
        0x5f => {
            let byte = octet(cdb, 2);
            ScsiCommand::PersistentOut { action, scope: byte >> 4, kind: byte & 0x0f, length: be32(cdb, 5) }
        }
        0x83 => ScsiCommand::ExtendedCopy { length: be32(cdb, 10) },
        0x84 => ScsiCommand::CopyStatus { action, list: octet(cdb, 2), allocated: be32(cdb, 10) },
        0x89 => ScsiCommand::CompareAndWrite { blocks, fua },
        0x8b => ScsiCommand::OrWrite { blocks, fua },
        opcodes::WRITE_ATOMIC => ScsiCommand::WriteAtomic { blocks, fua },
        0x9e if action == 0x10 => ScsiCommand::ReadCapacity16 { allocated: be32(cdb, 10) },
        0x9e => ScsiCommand::LbaStatus { at: be64(cdb, 2), allocated: be32(cdb, 10) },
        0xa0 => ScsiCommand::ReportLuns { select: octet(cdb, 2), allocated: be32(cdb, 6) },
        0xa3 => maintenance(cdb, action)?,
        _ => return Err(Sense::INVALID_OPCODE),
    })
}

fn byte_check(flags: u8) -> Result<bool, Sense> {
    match (flags >> 1) & 3 {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Sense::in_cdb(1)),
    }
}

/// Address and count, at the places for this size of CDB.
fn range(cdb: &[u8], opcode: u8) -> Blocks {
    let (at, count) = match opcode >> 5 {
        // Only READ(6) and WRITE(6) of this group address blocks; a count of zero means 256.
        0 => {
            let count = octet(cdb, 4);
            (u64::from(be24(cdb, 1) & 0x1f_ffff), if count == 0 { 256 } else { u64::from(count) })
        }
        1 | 2 => (u64::from(be32(cdb, 2)), u64::from(be16(cdb, 7))),
        5 => (u64::from(be32(cdb, 2)), u64::from(be32(cdb, 6))),
        _ if opcode == opcodes::WRITE_ATOMIC => (be64(cdb, 2), u64::from(be16(cdb, 12))),
        _ if opcode == 0x89 => (be64(cdb, 2), u64::from(octet(cdb, 13))),
        _ => (be64(cdb, 2), u64::from(be32(cdb, 10))),
    };
    Blocks { at, count }
}

fn inquiry(cdb: &[u8]) -> Result<ScsiCommand, Sense> {
    let (vital, page, allocated) = (octet(cdb, 1) & 1 != 0, octet(cdb, 2), u32::from(be16(cdb, 3)));
    match (vital, page) {
        (false, 0) => Ok(ScsiCommand::Inquiry { page: None, allocated }),
        (false, _) => Err(Sense::in_cdb(2)),
        (true, page) => Ok(ScsiCommand::Inquiry { page: Some(page), allocated }),
    }
}

fn mode_sense(cdb: &[u8], long: bool) -> ScsiCommand {
    let (flags, page) = (octet(cdb, 1), octet(cdb, 2));
    ScsiCommand::ModeSense {
        long,
        no_descriptor: flags & 0x08 != 0,
        long_lba: flags & 0x10 != 0,
        control: page >> 6,
        page: page & 0x3f,
        subpage: octet(cdb, 3),
        allocated: if long { u32::from(be16(cdb, 7)) } else { u32::from(octet(cdb, 4)) },
    }
}

fn maintenance(cdb: &[u8], action: u8) -> Result<ScsiCommand, Sense> {
    let allocated = be32(cdb, 6);
    match action {
        0x0a => match octet(cdb, 1) >> 5 {
            0 => Ok(ScsiCommand::ReportPortGroups { extended: false, allocated }),
            1 => Ok(ScsiCommand::ReportPortGroups { extended: true, allocated }),
            _ => Err(Sense::in_cdb(1)),
        },
        0x0c => Ok(ScsiCommand::ReportOpcodes {
            options: octet(cdb, 2) & 7,
            timeouts: octet(cdb, 2) & 0x80 != 0,
            opcode: octet(cdb, 3),
            action: be16(cdb, 4),
            allocated,
        }),
        _ => Ok(ScsiCommand::ReportFunctions { extended: octet(cdb, 2) & 0x80 != 0, allocated }),
    }
}

/// Bytes that a command holds besides what it takes and returns: what it reads to compare, merge or
/// copy, and patterns.
fn inside(command: &ScsiCommand, out: u64, profile: &Profile) -> u64 {
    let size = |blocks: &Blocks| blocks.count.saturating_mul(profile.block());
    match command {
        ScsiCommand::Verify { blocks, check: Check::Blocks } => size(blocks),
        ScsiCommand::Verify { blocks, .. } => size(blocks).min(STRIDE),
        // The comparison takes the data in one piece, and reads half as much.
        ScsiCommand::CompareAndWrite { .. } => out + out / 2,
        ScsiCommand::WriteAndVerify { .. } | ScsiCommand::OrWrite { .. } => out,
        ScsiCommand::WriteSame { no_data: false, .. } => TILE as u64 + profile.block(),
        ScsiCommand::ExtendedCopy { .. } => STRIDE,
        _ => 0,
    }
}

/// Bytes in both directions; checks that the addresses are on the unit and the counts within
/// limits.
fn weigh(command: &ScsiCommand, profile: &Profile) -> Result<(u64, u64), Sense> {
    let size = |blocks: &Blocks, max: u64| -> Result<u64, Sense> {
        let end = blocks.at.checked_add(blocks.count).ok_or(Sense::OUT_OF_RANGE)?;
        if end > profile.blocks {
            return Err(Sense::OUT_OF_RANGE);
        }
        let bytes = blocks.count.checked_mul(profile.block()).ok_or(Sense::OUT_OF_RANGE)?;
        if bytes > max { Err(Sense::INVALID_IN_CDB) } else { Ok(bytes) }
    };
    let block = profile.block();
    Ok(match command {
        ScsiCommand::Read { blocks } => (0, size(blocks, TRANSFER_MAX)?),
        ScsiCommand::Write { blocks, .. }
        | ScsiCommand::WriteAndVerify { blocks, .. }
        | ScsiCommand::OrWrite { blocks, .. } => (size(blocks, TRANSFER_MAX)?, 0),
        ScsiCommand::Verify { blocks, check } => match check {
            Check::Medium => {
                size(blocks, u64::MAX)?;
                (0, 0)
            }
            Check::Blocks => (size(blocks, TRANSFER_MAX)?, 0),
            Check::OneBlock => {
                size(blocks, u64::MAX)?;
                (if blocks.count == 0 { 0 } else { block }, 0)
            }
        },
        ScsiCommand::WriteAtomic { blocks, .. } => {
            let bytes = size(blocks, profile.whole_max)?;
            if !(blocks.at * block).is_multiple_of(ATOMIC_UNIT) {
                return Err(Sense::in_cdb(2));
            }
            if !bytes.is_multiple_of(ATOMIC_UNIT) {
                return Err(Sense::in_cdb(12));
            }
            (bytes, 0)
        }
        ScsiCommand::CompareAndWrite { blocks, .. } => (2 * size(blocks, COMPARE_MAX * block)?, 0),
        ScsiCommand::WriteSame { blocks, no_data, .. } => {
            // A count of zero would mean all following blocks; WSNZ announces that it is refused.
            if blocks.count == 0 {
                return Err(Sense::INVALID_IN_CDB);
            }
            size(blocks, SAME_MAX)?;
            (if *no_data { 0 } else { block }, 0)
        }
        ScsiCommand::Prefetch { blocks } | ScsiCommand::Synchronize { blocks, .. } => {
            size(blocks, u64::MAX)?;
            (0, 0)
        }
        ScsiCommand::LbaStatus { at, allocated } => {
            if *at >= profile.blocks {
                return Err(Sense::OUT_OF_RANGE);
            }
            (0, u64::from(*allocated))
        }
        ScsiCommand::ModeSelect { length, .. }
        | ScsiCommand::Unmap { length }
        | ScsiCommand::PersistentOut { length, .. }
        | ScsiCommand::ExtendedCopy { length } => {
            if *length > LIST_MAX {
                return Err(Sense::LIST_LENGTH);
            }
            (u64::from(*length), 0)
        }
        ScsiCommand::ReadCapacity10 => (0, 8),
        ScsiCommand::RequestSense { allocated, .. }
        | ScsiCommand::Inquiry { allocated, .. }
        | ScsiCommand::ModeSense { allocated, .. }
        | ScsiCommand::ReadCapacity16 { allocated }
        | ScsiCommand::DefectData { allocated, .. }
        | ScsiCommand::PersistentIn { allocated, .. }
        | ScsiCommand::CopyStatus { allocated, .. }
        | ScsiCommand::ReportLuns { allocated, .. }
        | ScsiCommand::ReportPortGroups { allocated, .. }
        | ScsiCommand::ReportOpcodes { allocated, .. }
        | ScsiCommand::ReportFunctions { allocated, .. } => (0, u64::from(*allocated)),
        ScsiCommand::TestReady
        | ScsiCommand::Reserve
        | ScsiCommand::Release
        | ScsiCommand::StartStop { .. }
        | ScsiCommand::PreventRemoval { .. } => (0, 0),
    })
}
