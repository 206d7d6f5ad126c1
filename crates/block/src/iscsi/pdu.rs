//! The header of a PDU (RFC 7143, 11.2): 48 bytes with fields at fixed places.

use stele_media::Shared;

use crate::scsi::{be16, be24, be32, be64, octet};

pub const HEADER: usize = 48;
/// The reserved tag, which names no task.
pub const NO_TAG: u32 = 0xffff_ffff;

pub mod opcode {
    pub const NOP_OUT: u8 = 0x00;
    pub const COMMAND: u8 = 0x01;
    pub const MANAGEMENT: u8 = 0x02;
    pub const LOGIN: u8 = 0x03;
    pub const TEXT: u8 = 0x04;
    pub const DATA_OUT: u8 = 0x05;
    pub const LOGOUT: u8 = 0x06;
    pub const SNACK: u8 = 0x10;
    pub const NOP_IN: u8 = 0x20;
    pub const RESPONSE: u8 = 0x21;
    pub const MANAGED: u8 = 0x22;
    pub const LOGGED_IN: u8 = 0x23;
    pub const TEXT_IN: u8 = 0x24;
    pub const DATA_IN: u8 = 0x25;
    pub const LOGGED_OUT: u8 = 0x26;
    pub const READY: u8 = 0x31;
    pub const ASYNC: u8 = 0x32;
    pub const REJECT: u8 = 0x3f;
}

/// The header as received or sent.
#[derive(Clone, Copy)]
pub struct Header(pub [u8; HEADER]);

impl Header {
    pub fn new(opcode: u8, flags: u8) -> Header {
        let mut header = Header([0; HEADER]);
        header.put(0, &[opcode, flags]);
        header
    }

    pub fn opcode(&self) -> u8 {
        octet(&self.0, 0) & 0x3f
    }

    pub fn is_immediate(&self) -> bool {
        octet(&self.0, 0) & 0x40 != 0
    }

    pub fn flags(&self) -> u8 {
        octet(&self.0, 1)
    }

    pub fn is_final(&self) -> bool {
        self.flags() & 0x80 != 0
    }

    /// Bytes of additional header segments.
    pub fn additional_length(&self) -> usize {
        usize::from(octet(&self.0, 4)) * 4
    }

    pub fn data_length(&self) -> usize {
        be24(&self.0, 5) as usize
    }

    pub fn lun(&self) -> u64 {
        be64(&self.0, 8)
    }

    pub fn tag(&self) -> u32 {
        be32(&self.0, 16)
    }

    pub fn u8(&self, at: usize) -> u8 {
        octet(&self.0, at)
    }

    pub fn u16(&self, at: usize) -> u16 {
        be16(&self.0, at)
    }

    pub fn u32(&self, at: usize) -> u32 {
        be32(&self.0, at)
    }

    pub fn command_number(&self) -> u32 {
        be32(&self.0, 24)
    }

    pub fn bytes(&self, from: usize, to: usize) -> &[u8] {
        self.0.get(from..to).unwrap_or_default()
    }

    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.0.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    pub fn set_tag(&mut self, tag: u32) {
        self.put32(16, tag);
    }

    pub fn put32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_be_bytes());
    }

    pub fn set_data_length(&mut self, length: usize) {
        let [_, high, middle, low] = (length as u32).to_be_bytes();
        self.put(5, &[high, middle, low]);
    }
}

/// A complete PDU with verified digests.
pub struct Frame {
    pub header: Header,
    pub additional: Vec<u8>,
    pub data: Shared,
}

/// Bytes of padding up to a whole word.
pub fn padding(length: usize) -> usize {
    length.wrapping_neg() & 3
}

/// Whether a serial number comes before another (RFC 1982).
pub fn is_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}
