//! XDR (RFC 4506): a reader that believes no length, and a writer of answers.
//!
//! The reader walks over a record that is in memory already, so a length on the wire never decides
//! an allocation.

use bytes::Bytes;

/// The bytes are not what the procedure's arguments look like, or they end too early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// Reads the items of a record in order.
#[derive(Clone, Debug)]
pub struct Reader {
    bytes: Bytes,
    at: usize,
}

impl Reader {
    pub fn new(bytes: Bytes) -> Reader {
        Reader { bytes, at: 0 }
    }

    /// Bytes that are not read yet.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The bytes that are not read yet.
    pub fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// The whole record.
    pub fn record(&self) -> &Bytes {
        &self.bytes
    }

    /// A word that lies ahead, which is not read yet; 0 if there is none.
    pub fn peek(&self, ahead: usize) -> u32 {
        let word = self.bytes.get(self.at + ahead..).and_then(|rest| rest.first_chunk());
        word.map_or(0, |word| u32::from_be_bytes(*word))
    }

    fn take(&mut self, count: usize) -> Result<&[u8], Malformed> {
        let end = self.at.checked_add(count).ok_or(Malformed)?;
        let taken = self.bytes.get(self.at..end).ok_or(Malformed)?;
        self.at = end;
        Ok(taken)
    }

    pub fn skip(&mut self, count: usize) -> Result<(), Malformed> {
        self.take(count).map(drop)
    }

    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.fixed()?))
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.fixed()?))
    }

    pub fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    /// The range of an opaque item of at most `most` bytes; the reader stands behind its padding.
    fn range(&mut self, most: usize) -> Result<(usize, usize), Malformed> {
        let length = self.u32()? as usize;
        if length > most {
            return Err(Malformed);
        }
        let from = self.at;
        self.take(length)?;
        // Clients leave the padding of a record's last item out at times.
        let padding = length.wrapping_neg() & 3;
        self.at += padding.min(self.remaining());
        Ok((from, from + length))
    }

    /// Bytes of variable length, as a slice of the record. Nothing is copied.
    pub fn opaque(&mut self, most: usize) -> Result<Bytes, Malformed> {
        let (from, to) = self.range(most)?;
        Ok(self.bytes.slice(from..to))
    }

    /// As [`Reader::opaque`], for bytes that are looked at and not kept.
    pub fn borrowed(&mut self, most: usize) -> Result<&[u8], Malformed> {
        let (from, to) = self.range(most)?;
        self.bytes.get(from..to).ok_or(Malformed)
    }
}

/// Appends items to an answer.
pub trait Writer {
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
    fn put_bool(&mut self, value: bool);
    /// Bytes whose length both sides know, a multiple of four.
    fn put_fixed(&mut self, bytes: &[u8]);
    /// The length, the bytes and the padding.
    fn put_opaque(&mut self, bytes: &[u8]);
}

impl Writer for Vec<u8> {
    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_bool(&mut self, value: bool) {
        self.put_u32(u32::from(value));
    }

    fn put_fixed(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn put_opaque(&mut self, bytes: &[u8]) {
        self.put_u32(bytes.len() as u32);
        self.extend_from_slice(bytes);
        self.extend_from_slice(padding(bytes.len()));
    }
}

/// The zero bytes behind an opaque item of this length.
pub fn padding(length: usize) -> &'static [u8] {
    match length & 3 {
        0 => &[],
        1 => &[0; 3],
        2 => &[0; 2],
        _ => &[0],
    }
}

/// The length of an opaque item on the wire.
pub const fn opaque_length(length: usize) -> usize {
    4 + length.next_multiple_of(4)
}

#[cfg(test)]
mod tests;
