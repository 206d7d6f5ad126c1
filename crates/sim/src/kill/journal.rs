//! The records in which a doomed process reports its operations, through a pipe. Each record is
//! written completely before the operation is submitted, or after it was answered. A record that
//! the reader has seen therefore did happen, and one that the kill cut off did not.

use std::io::{self, Read, Write};

const HEADER: usize = 40;
/// Limit on a record: a read of the workload and its header.
const BODY_MAX: usize = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// The pool is open.
    Opened = 1,
    /// A write is about to be submitted; value 0 for zeroing and discarding.
    WriteBegins,
    WriteEnded,
    ReadBegins,
    /// The body is the data read.
    ReadEnded,
    /// An operation or a command was refused; the body gives the reason.
    Failed,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        use Kind::{Failed, Opened, ReadBegins, ReadEnded, WriteBegins, WriteEnded};
        [Opened, WriteBegins, WriteEnded, ReadBegins, ReadEnded, Failed].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// One record: little-endian kind, volume, tag, place, length, value and the length of the body,
/// then the body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub kind: Kind,
    pub volume: u8,
    pub tag: u64,
    pub at: u64,
    pub length: u64,
    pub value: u64,
    pub body: Vec<u8>,
}

impl Entry {
    pub fn bare(kind: Kind) -> Entry {
        Entry { kind, volume: 0, tag: 0, at: 0, length: 0, value: 0, body: Vec::new() }
    }

    /// Writes all bytes with one `write`, so that a kill cannot split a record.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(HEADER + self.body.len());
        let body = (self.body.len() as u32).to_le_bytes();
        bytes.extend([self.kind as u8, self.volume, 0, 0]);
        bytes.extend(body);
        for word in [self.tag, self.at, self.length, self.value] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(&self.body);
        to.write_all(&bytes)
    }

    /// Returns `None` at the end, including an end in the middle of a record.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Entry>> {
        let mut header = [0; HEADER];
        if !filled(from, &mut header)? {
            return Ok(None);
        }
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&header[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let body = (word(0) >> 32) as usize;
        let kind = Kind::of(header[0]).filter(|_| body <= BODY_MAX);
        let kind = kind.ok_or_else(|| io::Error::other(format!("no record begins like {header:02x?}")))?;
        let mut entry = Entry {
            kind,
            volume: header[1],
            tag: word(8),
            at: word(16),
            length: word(24),
            value: word(32),
            body: vec![0; body],
        };
        Ok(filled(from, &mut entry.body)?.then_some(entry))
    }
}

fn filled(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
