//! Every command that a unit supports, with the bits of its CDB that it uses. This single table
//! decides which commands are accepted, and REPORT SUPPORTED OPERATION CODES reports it, so the two
//! cannot differ.

use super::field::Page;

pub struct Opcode {
    pub opcode: u8,
    pub action: Option<u8>,
    /// The CDB usage data: the opcode, then a mask of the used bits. Its length is the CDB's.
    pub usage: &'static [u8],
}

const fn plain(usage: &'static [u8]) -> Opcode {
    Opcode { opcode: first(usage), action: None, usage }
}

const fn action(action: u8, usage: &'static [u8]) -> Opcode {
    Opcode { opcode: first(usage), action: Some(action), usage }
}

const fn first(usage: &'static [u8]) -> u8 {
    match usage {
        [opcode, ..] => *opcode,
        [] => 0,
    }
}

const F: u8 = 0xff;

/// Supported if the drive promises atomic writes.
pub const WRITE_ATOMIC: u8 = 0x9c;

#[rustfmt::skip]
pub const OPCODES: &[Opcode] = &[
    plain(&[0x00, 0, 0, 0, 0, 0]),                                     // TEST UNIT READY
    plain(&[0x03, 0x01, 0, 0, F, 0]),                                  // REQUEST SENSE
    plain(&[0x08, 0x1f, F, F, F, 0]),                                  // READ(6)
    plain(&[0x0a, 0x1f, F, F, F, 0]),                                  // WRITE(6)
    plain(&[0x12, 0x01, F, F, F, 0]),                                  // INQUIRY
    plain(&[0x15, 0x10, 0, 0, F, 0]),                                  // MODE SELECT(6)
    plain(&[0x16, 0, 0, 0, 0, 0]),                                     // RESERVE(6)
    plain(&[0x17, 0, 0, 0, 0, 0]),                                     // RELEASE(6)
    plain(&[0x1a, 0x08, F, F, F, 0]),                                  // MODE SENSE(6)
    plain(&[0x1b, 0x01, 0, 0x0f, 0xf7, 0]),                            // START STOP UNIT
    plain(&[0x1e, 0, 0, 0, 0x03, 0]),                                  // PREVENT ALLOW MEDIUM REMOVAL
    plain(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]),                         // READ CAPACITY(10)
    plain(&[0x28, 0x18, F, F, F, F, 0x3f, F, F, 0]),                   // READ(10)
    plain(&[0x2a, 0x18, F, F, F, F, 0x3f, F, F, 0]),                   // WRITE(10)
    plain(&[0x2e, 0x16, F, F, F, F, 0x3f, F, F, 0]),                   // WRITE AND VERIFY(10)
    plain(&[0x2f, 0x16, F, F, F, F, 0x3f, F, F, 0]),                   // VERIFY(10)
    plain(&[0x34, 0x02, F, F, F, F, 0x3f, F, F, 0]),                   // PRE-FETCH(10)
    plain(&[0x35, 0x06, F, F, F, F, 0x3f, F, F, 0]),                   // SYNCHRONIZE CACHE(10)
    plain(&[0x37, 0, 0x1f, 0, 0, 0, 0, F, F, 0]),                      // READ DEFECT DATA(10)
    plain(&[0x41, 0x08, F, F, F, F, 0x3f, F, F, 0]),                   // WRITE SAME(10)
    plain(&[0x42, 0, 0, 0, 0, 0, 0x3f, F, F, 0]),                      // UNMAP
    plain(&[0x55, 0x10, 0, 0, 0, 0, 0, F, F, 0]),                      // MODE SELECT(10)
    plain(&[0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0]),                         // RESERVE(10)
    plain(&[0x57, 0, 0, 0, 0, 0, 0, 0, 0, 0]),                         // RELEASE(10)
    plain(&[0x5a, 0x18, F, F, 0, 0, 0, F, F, 0]),                      // MODE SENSE(10)
    action(0x00, &[0x5e, 0x1f, 0, 0, 0, 0, 0, F, F, 0]),               // PERSISTENT RESERVE IN: READ KEYS
    action(0x01, &[0x5e, 0x1f, 0, 0, 0, 0, 0, F, F, 0]),               //   READ RESERVATION
    action(0x02, &[0x5e, 0x1f, 0, 0, 0, 0, 0, F, F, 0]),               //   REPORT CAPABILITIES
    action(0x03, &[0x5e, 0x1f, 0, 0, 0, 0, 0, F, F, 0]),               //   READ FULL STATUS
    action(0x00, &[0x5f, 0x1f, F, 0, 0, F, F, F, F, 0]),               // PERSISTENT RESERVE OUT: REGISTER
    action(0x01, &[0x5f, 0x1f, F, 0, 0, F, F, F, F, 0]),               //   RESERVE
    action(0x02, &[0x5f, 0x1f, F, 0, 0, F, F, F, F, 0]),               //   RELEASE
    action(0x03, &[0x5f, 0x1f, F, 0, 0, F, F, F, F, 0]),               //   CLEAR
    action(0x04, &[0x5f, 0x1f, F, 0, 0, F, F, F, F, 0]),               //   PREEMPT
    action(0x05, &[0x5f, 0x1f, F, 0, 0, F, F, F, F, 0]),               //   PREEMPT AND ABORT
    action(0x06, &[0x5f, 0x1f, F, 0, 0, F, F, F, F, 0]),               //   REGISTER AND IGNORE EXISTING KEY
    action(0x07, &[0x5f, 0x1f, F, 0, 0, F, F, F, F, 0]),               //   REGISTER AND MOVE
    action(0x00, &[0x83, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 0]), // EXTENDED COPY(LID1)
    action(0x00, &[0x84, 0x1f, F, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 0]), // RECEIVE COPY STATUS(LID1)
    action(0x03, &[0x84, 0x1f, F, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 0]), //   OPERATING PARAMETERS
    action(0x04, &[0x84, 0x1f, F, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 0]), //   FAILURE DETAILS(LID1)
    plain(&[0x88, 0x18, F, F, F, F, F, F, F, F, F, F, F, F, 0x3f, 0]), // READ(16)
    plain(&[0x89, 0x18, F, F, F, F, F, F, F, F, 0, 0, 0, F, 0x3f, 0]), // COMPARE AND WRITE
    plain(&[0x8a, 0x18, F, F, F, F, F, F, F, F, F, F, F, F, 0x3f, 0]), // WRITE(16)
    plain(&[0x8b, 0x18, F, F, F, F, F, F, F, F, F, F, F, F, 0x3f, 0]), // ORWRITE(16)
    plain(&[0x8e, 0x16, F, F, F, F, F, F, F, F, F, F, F, F, 0x3f, 0]), // WRITE AND VERIFY(16)
    plain(&[0x8f, 0x16, F, F, F, F, F, F, F, F, F, F, F, F, 0x3f, 0]), // VERIFY(16)
    plain(&[0x90, 0x02, F, F, F, F, F, F, F, F, F, F, F, F, 0x3f, 0]), // PRE-FETCH(16)
    plain(&[0x91, 0x06, F, F, F, F, F, F, F, F, F, F, F, F, 0x3f, 0]), // SYNCHRONIZE CACHE(16)
    plain(&[0x93, 0x09, F, F, F, F, F, F, F, F, F, F, F, F, 0x3f, 0]), // WRITE SAME(16)
    plain(&[WRITE_ATOMIC, 0x18, F, F, F, F, F, F, F, F, 0, 0, F, F, 0x3f, 0]), // WRITE ATOMIC(16)
    action(0x10, &[0x9e, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 0]), // READ CAPACITY(16)
    action(0x12, &[0x9e, 0x1f, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]), // GET LBA STATUS
    plain(&[0xa0, 0, F, 0, 0, 0, F, F, F, F, 0, 0]),                   // REPORT LUNS
    action(0x0a, &[0xa3, F, 0, 0, 0, 0, F, F, F, F, 0, 0]),            // REPORT TARGET PORT GROUPS
    action(0x0c, &[0xa3, 0x1f, 0x87, F, F, F, F, F, F, F, 0, 0]),      // REPORT SUPPORTED OPERATION CODES
    action(0x0d, &[0xa3, 0x1f, 0x80, 0, 0, 0, F, F, F, F, 0, 0]),      // REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS
    plain(&[0xa8, 0x18, F, F, F, F, F, F, F, F, 0x3f, 0]),             // READ(12)
    plain(&[0xaa, 0x18, F, F, F, F, F, F, F, F, 0x3f, 0]),             // WRITE(12)
    plain(&[0xae, 0x16, F, F, F, F, F, F, F, F, 0x3f, 0]),             // WRITE AND VERIFY(12)
    plain(&[0xaf, 0x16, F, F, F, F, F, F, F, F, 0x3f, 0]),             // VERIFY(12)
    plain(&[0xb7, 0x1f, F, F, F, F, F, F, F, F, 0, 0]),                // READ DEFECT DATA(12)
];

/// Finds the entry; for an opcode with service actions, the action must match.
pub fn find(opcode: u8, action: u8) -> Option<&'static Opcode> {
    OPCODES.iter().find(|entry| entry.opcode == opcode && entry.action.is_none_or(|listed| listed == action))
}

pub fn has_actions(opcode: u8) -> bool {
    OPCODES.iter().any(|entry| entry.opcode == opcode && entry.action.is_some())
}

pub fn is_known(opcode: u8) -> bool {
    OPCODES.iter().any(|entry| entry.opcode == opcode)
}

/// The command timeouts descriptor: it promises no nominal or recommended time.
const TIMEOUTS: [u8; 12] = [0, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// The all-commands format of REPORT SUPPORTED OPERATION CODES.
pub fn report_all(timeouts: bool, atomic: bool) -> Vec<u8> {
    let mut page = Page::default().u32(0);
    for entry in OPCODES.iter().filter(|entry| atomic || entry.opcode != WRITE_ATOMIC) {
        let flags = if entry.action.is_some() { 0x01 } else { 0 } | if timeouts { 0x02 } else { 0 };
        page = page.u8(entry.opcode).u8(0).u16(u16::from(entry.action.unwrap_or(0))).u8(0).u8(flags);
        page = page.u16(entry.usage.len() as u16);
        if timeouts {
            page = page.bytes(&TIMEOUTS);
        }
    }
    page.length32(0).0
}

/// The one-command format; an unsupported command gives support 1 without usage data.
pub fn report_one(entry: Option<&Opcode>, timeouts: bool) -> Vec<u8> {
    let Some(entry) = entry else { return vec![0, 0x01, 0, 0] };
    let mut usage = entry.usage.to_vec();
    if let (Some(action), Some(byte)) = (entry.action, usage.get_mut(1)) {
        *byte = (*byte & 0xe0) | action;
    }
    let page = Page::default().u8(0).u8(0x03 | if timeouts { 0x80 } else { 0 });
    let page = page.u16(usage.len() as u16).bytes(&usage);
    if timeouts { page.bytes(&TIMEOUTS).0 } else { page.0 }
}
