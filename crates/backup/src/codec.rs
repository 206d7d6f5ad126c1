//! Numbers and byte strings as stored: little-endian integers, variable-length integers, and
//! strings with their length before them.
//!
//! The decoder takes bytes from outside. Every read is checked, every length has a limit of its
//! caller, and nothing is allocated before its bytes are there.

use crate::error::{BackupError, Result};

/// Bytes of the longest variable-length integer.
const VARINT_MAX: usize = 10;

pub fn put_varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// A signed number: the sign becomes the lowest bit, so that small negative numbers are short too.
pub fn put_signed(into: &mut Vec<u8>, value: i64) {
    put_varint(into, ((value << 1) ^ (value >> 63)) as u64);
}

pub fn put_bytes(into: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(into, bytes.len() as u64);
    into.extend_from_slice(bytes);
}

/// Reads a stored record from its beginning.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
    /// What is read, for messages.
    what: &'static str,
}

impl<'a> Decoder<'a> {
    pub fn new(bytes: &'a [u8], what: &'static str) -> Decoder<'a> {
        Decoder { rest: bytes, what }
    }

    pub fn damaged(&self, why: &str) -> BackupError {
        BackupError::Damaged(format!("{}: {why}", self.what))
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn left(&self) -> usize {
        self.rest.len()
    }

    pub fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(length).ok_or_else(|| self.damaged("ends too early"))?;
        self.rest = tail;
        Ok(head)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or_else(|| self.damaged("ends too early"))?;
        self.rest = tail;
        Ok(*head)
    }

    pub fn byte(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn varint(&mut self) -> Result<u64> {
        let mut value = 0_u64;
        for place in 0..VARINT_MAX {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if place == VARINT_MAX - 1 && bits > 1 {
                return Err(self.damaged("a number exceeds 64 bits"));
            }
            value |= bits << (7 * place);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.damaged("a number does not end"))
    }

    /// A number of at most `max`.
    pub fn up_to(&mut self, max: u64) -> Result<u64> {
        let value = self.varint()?;
        if value > max { Err(self.damaged("a number exceeds its limit")) } else { Ok(value) }
    }

    /// A number of items that follow, each of at least `least` bytes.
    pub fn count(&mut self, least: usize) -> Result<usize> {
        let count = self.varint()?;
        let most = (self.rest.len() / least.max(1)) as u64;
        if count > most { Err(self.damaged("a count exceeds the bytes that follow")) } else { Ok(count as usize) }
    }

    pub fn signed(&mut self) -> Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub fn bytes(&mut self, max: usize) -> Result<&'a [u8]> {
        let length = self.up_to(max as u64)? as usize;
        self.take(length)
    }

    /// The record must end here.
    pub fn end(&self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.damaged("has bytes behind its end")) }
    }
}

#[cfg(test)]
mod tests;
