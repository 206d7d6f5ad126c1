//! The reports: capacity, port groups, commands and task management functions, copies.

use super::cdb::LIST_MAX;
use super::copy::{SEGMENT_BYTES_MAX, SEGMENTS_MAX, TARGETS_MAX};
use super::field::Page;
use super::inquiry::{PORT_GROUP, TARGET_PORT};
use super::{Profile, Sense, opcodes as table};

pub fn capacity(profile: &Profile) -> Vec<u8> {
    // Logical blocks in a physical block, as a power of two: digests cover 4096 bytes.
    let physical = if profile.native_blocks { profile.block() } else { 4096 };
    let exponent = (physical / profile.block().max(1)).max(1).trailing_zeros() as u8;
    Page::default()
        .u64(profile.blocks.saturating_sub(1))
        .u32(profile.block_bytes)
        .u8(0)
        .u8(exponent)
        // LBPME and LBPRZ: thin, and unmapped blocks read as zeros.
        .u16(0xc000)
        .zeros(16)
        .0
}

/// One group, active and optimised, with one port: every path leads to the same process.
pub fn port_groups(extended: bool) -> Vec<u8> {
    let page = Page::default().u32(0);
    let page = if extended { page.u8(0x10).u8(0).u16(0) } else { page };
    // AO, AN, S and U states are supported; the status was never changed.
    page.u8(0).u8(0x0f).u16(PORT_GROUP).u8(0).u8(0).u8(0).u8(1).u16(0).u16(TARGET_PORT).length32(0).0
}

pub fn opcodes(profile: &Profile, options: u8, timeouts: bool, opcode: u8, action: u16) -> Result<Vec<u8>, Sense> {
    let atomic = profile.whole_max > 0;
    if options != 0 && opcode == table::WRITE_ATOMIC && !atomic {
        return Ok(table::report_one(None, timeouts));
    }
    let actions = table::has_actions(opcode);
    let narrow = u8::try_from(action).ok();
    match options {
        0 => Ok(table::report_all(timeouts, atomic)),
        1 if actions => Err(Sense::in_cdb(2)),
        1 => Ok(table::report_one(table::find(opcode, 0), timeouts)),
        2 if !actions => Err(Sense::in_cdb(2)),
        2 => Ok(table::report_one(narrow.and_then(|action| table::find(opcode, action)), timeouts)),
        3 if actions => Ok(table::report_one(narrow.and_then(|action| table::find(opcode, action)), timeouts)),
        3 if action == 0 => Ok(table::report_one(table::find(opcode, 0), timeouts)),
        3 => Ok(table::report_one(None, timeouts)),
        _ => Err(Sense::in_cdb(2)),
    }
}

/// ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET and TARGET RESET.
pub fn functions(extended: bool) -> Vec<u8> {
    let page = Page::default().u8(0x80 | 0x40 | 0x10 | 0x08 | 0x02).u8(0).u8(0);
    if extended { page.u8(0x0c).zeros(12).0 } else { page.u8(0).0 }
}

/// The limits of EXTENDED COPY.
pub fn copy_parameters() -> Vec<u8> {
    let page = Page::default()
        .u32(0)
        // SNLID: list identifiers are optional.
        .u8(1)
        .zeros(3)
        .u16(TARGETS_MAX as u16)
        .u16(SEGMENTS_MAX as u16)
        .u32(LIST_MAX.min(DESCRIPTORS_MAX))
        .u32(SEGMENT_BYTES_MAX)
        .u32(0)
        .u32(0)
        .u32(0)
        .u32(0)
        // One list at a time for a nexus, and granularities of 512 bytes.
        .u16(0)
        .u8(1)
        .u8(9)
        .u8(9)
        .u8(9)
        .u8(2)
        // Block to block; identification descriptors.
        .u8(0x02)
        .u8(0xe4);
    page.length32(0).0
}

/// Largest number of descriptor bytes in one list: the limits of both kinds together.
pub const DESCRIPTORS_MAX: u32 = (TARGETS_MAX * 32 + SEGMENTS_MAX * 28) as u32;

/// One unit, at LUN 0; no well-known units.
pub fn luns(select: u8) -> Result<Vec<u8>, Sense> {
    match select {
        0 | 2 | 0x10 | 0x11 => Ok(Page::default().u32(8).u32(0).u64(0).0),
        1 | 0x12 => Ok(Page::default().u32(0).u32(0).0),
        _ => Err(Sense::in_cdb(2)),
    }
}
