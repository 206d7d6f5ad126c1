//! Sense data: the reason for a command's status, in the two formats of SPC-5 4.4.

use super::field::Page;

/// A sense key with its additional sense code and qualifier (`0xAABB`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sense {
    pub key: u8,
    pub code: u16,
    /// The INFORMATION field: the first block that differs or is unreadable.
    pub information: Option<u64>,
    /// The place of the refused field in the CDB (true) or in the parameter list (false).
    pub pointer: Option<(bool, u16)>,
}

const NOT_READY: u8 = 0x2;
const MEDIUM_ERROR: u8 = 0x3;
const HARDWARE_ERROR: u8 = 0x4;
const ILLEGAL_REQUEST: u8 = 0x5;
pub const UNIT_ATTENTION: u8 = 0x6;
const DATA_PROTECT: u8 = 0x7;
const COPY_ABORTED: u8 = 0xa;
const ABORTED_COMMAND: u8 = 0xb;
const MISCOMPARE: u8 = 0xe;

const fn sense(key: u8, code: u16) -> Sense {
    Sense { key, code, information: None, pointer: None }
}

impl Sense {
    pub const NONE: Sense = sense(0, 0);
    pub const NO_MEDIUM: Sense = sense(NOT_READY, 0x3a00);
    pub const UNREACHABLE: Sense = sense(NOT_READY, 0x0400);
    pub const READ_ERROR: Sense = sense(MEDIUM_ERROR, 0x1100);
    pub const WRITE_ERROR: Sense = sense(MEDIUM_ERROR, 0x0c00);
    pub const INTERNAL: Sense = sense(HARDWARE_ERROR, 0x4400);
    pub const INVALID_OPCODE: Sense = sense(ILLEGAL_REQUEST, 0x2000);
    pub const OUT_OF_RANGE: Sense = sense(ILLEGAL_REQUEST, 0x2100);
    pub const INVALID_IN_CDB: Sense = sense(ILLEGAL_REQUEST, 0x2400);
    pub const NO_SUCH_UNIT: Sense = sense(ILLEGAL_REQUEST, 0x2500);
    pub const INVALID_IN_LIST: Sense = sense(ILLEGAL_REQUEST, 0x2600);
    pub const INVALID_RELEASE: Sense = sense(ILLEGAL_REQUEST, 0x2604);
    pub const TOO_MANY_TARGETS: Sense = sense(ILLEGAL_REQUEST, 0x2606);
    pub const UNSUPPORTED_TARGET: Sense = sense(ILLEGAL_REQUEST, 0x2607);
    pub const TOO_MANY_SEGMENTS: Sense = sense(ILLEGAL_REQUEST, 0x2608);
    pub const UNSUPPORTED_SEGMENT: Sense = sense(ILLEGAL_REQUEST, 0x2609);
    pub const INLINE_DATA_TOO_LONG: Sense = sense(ILLEGAL_REQUEST, 0x260b);
    pub const LIST_LENGTH: Sense = sense(ILLEGAL_REQUEST, 0x1a00);
    pub const NOT_SAVED: Sense = sense(ILLEGAL_REQUEST, 0x3900);
    pub const REMOVAL_PREVENTED: Sense = sense(ILLEGAL_REQUEST, 0x5302);
    pub const NO_ROOM_TO_REGISTER: Sense = sense(ILLEGAL_REQUEST, 0x5504);
    pub const TRUNCATED_DATA: Sense = sense(ILLEGAL_REQUEST, 0x0e03);
    pub const WRITE_PROTECTED: Sense = sense(DATA_PROTECT, 0x2701);
    pub const SOFTWARE_PROTECTED: Sense = sense(DATA_PROTECT, 0x2702);
    pub const NO_SPACE: Sense = sense(DATA_PROTECT, 0x2707);
    pub const MISCOMPARED: Sense = sense(MISCOMPARE, 0x1d00);
    pub const COPY_UNREACHABLE: Sense = sense(COPY_ABORTED, 0x0d02);
    pub const COPY_FAILED: Sense = sense(COPY_ABORTED, 0x0000);
    pub const BUSY_INSIDE: Sense = sense(ABORTED_COMMAND, 0x0800);
    pub const TOO_MUCH_DATA: Sense = sense(ABORTED_COMMAND, 0x0c0d);
    pub const DIGEST_FAILED: Sense = sense(ABORTED_COMMAND, 0x4705);

    pub const POWER_ON: Sense = sense(UNIT_ATTENTION, 0x2900);
    pub const WAS_RESET: Sense = sense(UNIT_ATTENTION, 0x2903);
    pub const NEXUS_LOST: Sense = sense(UNIT_ATTENTION, 0x2907);
    pub const MODE_CHANGED: Sense = sense(UNIT_ATTENTION, 0x2a01);
    pub const RESERVATIONS_PREEMPTED: Sense = sense(UNIT_ATTENTION, 0x2a03);
    pub const RESERVATIONS_RELEASED: Sense = sense(UNIT_ATTENTION, 0x2a04);
    pub const REGISTRATIONS_PREEMPTED: Sense = sense(UNIT_ATTENTION, 0x2a05);
    pub const CAPACITY_CHANGED: Sense = sense(UNIT_ATTENTION, 0x2a09);
    pub const MEDIUM_CHANGED: Sense = sense(UNIT_ATTENTION, 0x2800);
    pub const COMMANDS_CLEARED: Sense = sense(UNIT_ATTENTION, 0x2f00);
    pub const THRESHOLD_REACHED: Sense = sense(UNIT_ATTENTION, 0x3807);

    pub fn at_block(self, block: u64) -> Sense {
        Sense { information: Some(block), ..self }
    }

    pub fn in_cdb(byte: u16) -> Sense {
        Sense { pointer: Some((true, byte)), ..Sense::INVALID_IN_CDB }
    }

    pub fn in_list(byte: u16) -> Sense {
        Sense { pointer: Some((false, byte)), ..Sense::INVALID_IN_LIST }
    }

    pub fn is_attention(&self) -> bool {
        self.key == UNIT_ATTENTION
    }

    pub fn encode(&self, descriptors: bool) -> Vec<u8> {
        if descriptors { self.encode_descriptors() } else { self.encode_fixed() }
    }

    fn specific(&self) -> [u8; 3] {
        let Some((in_cdb, byte)) = self.pointer else { return [0; 3] };
        let [high, low] = byte.to_be_bytes();
        [0x80 | if in_cdb { 0x40 } else { 0 }, high, low]
    }

    fn encode_fixed(&self) -> Vec<u8> {
        // The fixed format has 32 bits; a larger value is left out, as the standard asks.
        let information = self.information.and_then(|block| u32::try_from(block).ok());
        let valid = if information.is_some() { 0x80 } else { 0 };
        Page::default()
            .u8(0x70 | valid)
            .u8(0)
            .u8(self.key)
            .u32(information.unwrap_or(0))
            .u8(10)
            .u32(0)
            .u16(self.code)
            .u8(0)
            .bytes(&self.specific())
            .0
    }

    fn encode_descriptors(&self) -> Vec<u8> {
        let mut page = Page::default().u8(0x72).u8(self.key).u16(self.code).u32(0);
        if let Some(block) = self.information {
            page = page.u8(0).u8(0x0a).u8(0x80).u8(0).u64(block);
        }
        if self.pointer.is_some() {
            page = page.u8(2).u8(6).u16(0).bytes(&self.specific()).u8(0);
        }
        page.length8(7).0
    }
}
