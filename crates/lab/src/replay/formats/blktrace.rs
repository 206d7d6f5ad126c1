//! blktrace's binary records (`struct blk_io_trace`, linux/blktrace_api.h): 48 bytes in the order
//! of the machine that wrote them, and bytes of one's own behind. Times are nanoseconds, places
//! sectors of 512 bytes.

use std::io::{BufRead, Read};

use super::{Devices, Record, TraceItem};

const HEADER: usize = 48;
/// Upper bytes of the first word; the lowest one is the version.
const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
/// The lower half of an action says what happened; the upper half what it happened to.
const QUEUED: u32 = 1;
const ISSUED: u32 = 7;
const WRITES: u32 = 1 << 1;
const FLUSHES: u32 = 1 << 2;
const COMMANDS: u32 = 1 << 9;
const NOTES: u32 = 1 << 10;
const DISCARDS: u32 = 1 << 13;

#[derive(Debug)]
pub struct Blktrace<R> {
    reader: R,
    /// What went to the drive, instead of what was asked for.
    issued: bool,
    number: u64,
}

/// Whether a file begins as blktrace's do, in either order of bytes.
pub fn is_magic(bytes: &[u8]) -> bool {
    let first: Option<[u8; 4]> = bytes.get(..4).and_then(|first| first.try_into().ok());
    first.is_some_and(|first| [u32::from_le_bytes(first), u32::from_be_bytes(first)].into_iter().any(is_word))
}

fn is_word(word: u32) -> bool {
    word & 0xffff_ff00 == MAGIC
}

/// The fields of a record, in one order of bytes.
struct Fields<'a> {
    header: &'a [u8; HEADER],
    is_big: bool,
}

impl Fields<'_> {
    fn take<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.header[at..at + N]);
        if self.is_big {
            bytes.reverse();
        }
        bytes
    }

    fn short(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.take(at))
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.take(at))
    }

    fn long(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.take(at))
    }
}

impl<R: BufRead> Blktrace<R> {
    pub fn new(reader: R, issued: bool) -> Blktrace<R> {
        Blktrace { reader, issued, number: 0 }
    }

    pub fn next(&mut self, devices: &mut Devices) -> Result<TraceItem, String> {
        self.number += 1;
        let bad = |why: String| format!("record {}: {why}", self.number);
        let mut header = [0; HEADER];
        match self.reader.fill_buf() {
            Ok([]) => return Ok(TraceItem::End),
            Ok(_) => {}
            Err(error) => return Err(bad(format!("cannot be read: {error}"))),
        }
        self.reader.read_exact(&mut header).map_err(|error| bad(format!("is cut off: {error}")))?;
        let is_big = !is_word(u32::from_le_bytes([header[0], header[1], header[2], header[3]]));
        let fields = Fields { header: &header, is_big };
        let magic = fields.word(0);
        if !is_word(magic) {
            return Err(bad("does not begin as blktrace's do".to_owned()));
        }
        if magic & 0xff != VERSION {
            return Err(bad(format!("is of version {}; {VERSION} is known", magic & 0xff)));
        }
        let behind = u64::from(fields.short(46));
        let skipped = std::io::copy(&mut self.reader.by_ref().take(behind), &mut std::io::sink());
        if skipped.map_err(|error| bad(format!("cannot be read: {error}")))? != behind {
            return Err(bad("is cut off".to_owned()));
        }
        let (action, kind) = (fields.word(28) & 0xffff, fields.word(28) >> 16);
        let wanted = if self.issued { ISSUED } else { QUEUED };
        let length = u64::from(fields.word(24));
        match () {
            () if kind & NOTES != 0 => return Ok(TraceItem::LeftOut("note")),
            () if action != wanted => return Ok(TraceItem::LeftOut("event that begins no access")),
            () if kind & COMMANDS != 0 => return Ok(TraceItem::LeftOut("command of a driver")),
            () if kind & DISCARDS != 0 => return Ok(TraceItem::LeftOut("discard")),
            () if length == 0 && kind & FLUSHES != 0 => return Ok(TraceItem::LeftOut("flush")),
            () if length == 0 => return Ok(TraceItem::LeftOut("no bytes")),
            () => {}
        }
        // Majors and minors, as the kernel packs them.
        let name = fields.word(36);
        let device = devices.number(&format!("{}:{}", name >> 20, name & 0xf_ffff)).map_err(bad)?;
        let offset = fields.long(16).saturating_mul(512);
        let record = Record { at: fields.long(8), device, offset, length, write: kind & WRITES != 0 };
        let none = || format!("record {}: an access of {length} bytes at offset {offset} is none", self.number);
        record.checked().map(TraceItem::Access).ok_or_else(none)
    }
}
