//! Big-endian fields in untrusted bytes: a missing field reads as zero, and nothing panics.

pub fn octet(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

pub fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(bytes, at))
}

pub fn be24(bytes: &[u8], at: usize) -> u32 {
    let [high, middle, low]: [u8; 3] = array(bytes, at);
    u32::from_be_bytes([0, high, middle, low])
}

pub fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(bytes, at))
}

pub fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array(bytes, at))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    at.checked_add(N).and_then(|end| bytes.get(at..end)).and_then(|piece| piece.try_into().ok()).unwrap_or([0; N])
}

/// At most `length` bytes from `from` on, as far as they exist.
pub fn part(bytes: &[u8], from: usize, length: usize) -> &[u8] {
    let rest = bytes.get(from..).unwrap_or_default();
    rest.get(..length).unwrap_or(rest)
}

/// A page or parameter list under construction.
#[derive(Default)]
pub struct Page(pub Vec<u8>);

impl Page {
    pub fn u8(mut self, value: u8) -> Page {
        self.0.push(value);
        self
    }

    pub fn u16(self, value: u16) -> Page {
        self.bytes(&value.to_be_bytes())
    }

    pub fn u32(self, value: u32) -> Page {
        self.bytes(&value.to_be_bytes())
    }

    pub fn u64(self, value: u64) -> Page {
        self.bytes(&value.to_be_bytes())
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Page {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn zeros(mut self, count: usize) -> Page {
        self.0.resize(self.0.len() + count, 0);
        self
    }

    /// Text in a field of `width`, cut or padded with spaces.
    pub fn text(mut self, text: &str, width: usize) -> Page {
        let printable = text.bytes().map(|byte| if (0x20..0x7f).contains(&byte) { byte } else { b'?' });
        self.0.extend(printable.chain(std::iter::repeat(b' ')).take(width));
        self
    }

    /// Writes the number of bytes after the two bytes at `at` into those two bytes.
    pub fn length16(mut self, at: usize) -> Page {
        let length = u16::try_from(self.0.len().saturating_sub(at + 2)).unwrap_or(u16::MAX);
        self.put(at, &length.to_be_bytes());
        self
    }

    /// Like [`Page::length16`], in four bytes.
    pub fn length32(mut self, at: usize) -> Page {
        let length = u32::try_from(self.0.len().saturating_sub(at + 4)).unwrap_or(u32::MAX);
        self.put(at, &length.to_be_bytes());
        self
    }

    /// Like [`Page::length16`], in one byte.
    pub fn length8(mut self, at: usize) -> Page {
        let length = u8::try_from(self.0.len().saturating_sub(at + 1)).unwrap_or(u8::MAX);
        self.put(at, &[length]);
        self
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.0.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
}
