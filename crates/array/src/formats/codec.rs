//! Little-endian fields in and out of byte ranges. Readers never trust a length: running out is
//! `None`, not a panic.

use stele_media::Shared;

/// Appends fields to a range that is known to be long enough; writing past it is a mistake of ours
/// and panics.
pub struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    pub fn new(bytes: &'a mut [u8]) -> Writer<'a> {
        Writer { bytes, at: 0 }
    }

    /// Bytes written so far.
    pub fn at(&self) -> usize {
        self.at
    }

    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    pub fn u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    pub fn u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }

    pub fn u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }

    /// A length of two bytes, then the bytes; longer texts are cut at 65,535 bytes.
    pub fn text(&mut self, text: &str) {
        let length = text.len().min(usize::from(u16::MAX));
        self.u16(length as u16);
        self.put(&text.as_bytes()[..length]);
    }

    /// Zeros up to the next multiple of `to`.
    pub fn pad(&mut self, to: usize) {
        let end = self.at.next_multiple_of(to);
        self.bytes[self.at..end].fill(0);
        self.at = end;
    }
}

/// Takes fields off shared bytes, without copying.
#[derive(Clone, Debug)]
pub struct Reader {
    bytes: Shared,
    at: usize,
}

impl Reader {
    pub fn new(bytes: Shared) -> Reader {
        Reader { bytes, at: 0 }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.bytes.get(self.at..self.at.checked_add(N)?)?;
        self.at += N;
        bytes.try_into().ok()
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.fixed::<1>().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.fixed().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.fixed().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.fixed().map(u64::from_le_bytes)
    }

    pub fn id(&mut self) -> Option<[u8; 16]> {
        self.fixed()
    }

    /// A slice that shares the bytes.
    pub fn take(&mut self, length: usize) -> Option<Shared> {
        let end = self.at.checked_add(length)?;
        if end > self.bytes.len() {
            return None;
        }
        let slice = self.bytes.slice(self.at..end);
        self.at = end;
        Some(slice)
    }

    pub fn text(&mut self) -> Option<String> {
        let length = self.u16()?;
        let bytes = self.take(usize::from(length))?;
        String::from_utf8(bytes.to_vec()).ok()
    }

    pub fn pad(&mut self, to: usize) -> Option<()> {
        let end = self.at.next_multiple_of(to);
        (end <= self.bytes.len()).then(|| self.at = end)
    }

    /// True when as many items of at least `size` bytes can still follow: refuses absurd counts
    /// before memory is taken.
    pub fn can_hold(&self, count: usize, size: usize) -> bool {
        count.checked_mul(size).is_some_and(|bytes| bytes <= self.left())
    }
}
