//! Walks a segment record by record, over gaps and damage: for opening, reclamation, scrub and
//! rebuild.

use std::ops::Range;

use stele_media::{Buffer, Handle};

use crate::model::error::Result;
use crate::space::header::{RECORD_HEADER, RecordHeader, SegmentFooter};
use crate::space::{BLOCK, align_up};

/// Bytes read at once.
const WINDOW: u32 = 1 << 20;

/// Whether a part of this payload of the record at `at`, which fails its checksum, was never
/// written. A segment is all zeros before it is used, and a block of it is written whole or not at
/// all. So a kill or a power cut leaves zeros from one border of a block to the next. Sealed bytes
/// are not all zeros, and damage does not look like that.
pub(crate) fn is_torn(at: u32, payload: &[u8]) -> bool {
    let first = (BLOCK - (at + RECORD_HEADER) % BLOCK) as usize;
    let (head, rest) = payload.split_at(first.min(payload.len()));
    let unwritten = |part: &[u8]| !part.is_empty() && part.iter().all(|byte| *byte == 0);
    unwritten(head) || rest.chunks(BLOCK as usize).any(unwritten)
}

/// A walk through one segment.
pub(crate) struct Walk {
    volume: Handle,
    start: u64,
    size: u32,
    incarnation: u64,
    at: u32,
    window: Option<(u32, Buffer)>,
    /// Where the blocks without a record before the next one begin, and whether the first is
    /// unwritten.
    gap: Option<(u32, bool)>,
    /// What lies before a record and begins with an unwritten block: a kill or a power cut came
    /// before the record that was to be there was written.
    pub holes: Vec<Range<u32>>,
    /// Blocks that could not be read, from the segment's start.
    pub unreadable: Vec<u32>,
    /// Bytes at a possible start of a record are no record: the rest of a write that a power cut
    /// tore, or damage.
    pub doubtful: bool,
}

impl Walk {
    pub fn new(volume: Handle, start: u64, size: u32, incarnation: u64) -> Walk {
        Walk {
            volume,
            start,
            size,
            incarnation,
            at: BLOCK,
            window: None,
            gap: None,
            holes: Vec::new(),
            unreadable: Vec::new(),
            doubtful: false,
        }
    }

    /// The next record's offset in the segment, and its header. Where no record begins, the walk
    /// tries the next block, since every group starts on one.
    pub async fn next(&mut self) -> Result<Option<(u32, RecordHeader)>> {
        while self.at + RECORD_HEADER <= self.size {
            let at = self.at;
            let (incarnation, size) = (self.incarnation, self.size);
            let Some(bytes) = self.bytes(at, RECORD_HEADER).await? else {
                self.at = align_up(at + 1, BLOCK);
                continue;
            };
            match RecordHeader::decode(bytes, incarnation) {
                Some(header) if at + header.length() <= size => {
                    self.at = at + header.length();
                    if let Some((from, true)) = self.gap.take() {
                        self.holes.push(from..at);
                    }
                    return Ok(Some((at, header)));
                }
                _ => {
                    // The next block is looked at by itself: where padding is shorter than a
                    // header, a record begins there.
                    let next = align_up(at + 1, BLOCK);
                    let mut here = bytes.iter().take((next - at) as usize);
                    let is_unwritten = bytes.iter().all(|byte| *byte == 0);
                    self.doubtful |= here.any(|byte| *byte != 0) && !SegmentFooter::begins(bytes);
                    if at.is_multiple_of(BLOCK) && self.gap.is_none() {
                        self.gap = Some((at, is_unwritten));
                    }
                    self.at = next;
                }
            }
        }
        Ok(None)
    }

    /// A record's payload. None: it cannot be read.
    pub async fn payload(&mut self, at: u32, header: &RecordHeader) -> Result<Option<Buffer>> {
        read_exact(&self.volume, self.start + u64::from(at + RECORD_HEADER), header.payload as usize).await
    }

    /// Bytes of the segment through the window. None: unreadable.
    async fn bytes(&mut self, at: u32, length: u32) -> Result<Option<&[u8]>> {
        let inside = |window: &Option<(u32, Buffer)>| {
            window.as_ref().is_some_and(|(from, bytes)| *from <= at && at + length <= from + bytes.len() as u32)
        };
        if !inside(&self.window) {
            let from = at / BLOCK * BLOCK;
            let long = WINDOW.min(self.size - from);
            let short = align_up(at + length, BLOCK) - from;
            let mut read = self.volume.read(self.start + u64::from(from), long as usize).await;
            if read.as_ref().is_err_and(is_damage) {
                // A damaged block must not hide its neighbours.
                read = self.volume.read(self.start + u64::from(from), short as usize).await;
            }
            match read {
                Ok(bytes) => self.window = Some((from, bytes)),
                Err(error) if is_damage(&error) => {
                    self.window = None;
                    self.unreadable.push(from);
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self
            .window
            .as_ref()
            .and_then(|(from, bytes)| bytes.get((at - from) as usize..(at - from + length) as usize)))
    }
}

pub(crate) fn is_damage(error: &stele_media::MediaError) -> bool {
    error.fault == stele_media::MediaFault::Damaged
}

/// Reads bytes at any offset. None: that place is damaged.
pub(crate) async fn read_exact(volume: &Handle, at: u64, length: usize) -> Result<Option<Buffer>> {
    let block = u64::from(BLOCK);
    let from = at / block * block;
    let span = (at + length as u64).next_multiple_of(block) - from;
    match volume.read(from, span as usize).await {
        Ok(bytes) => {
            let skip = (at - from) as usize;
            Ok(Some(Buffer::copy_of(&bytes[skip..skip + length])))
        }
        Err(error) if is_damage(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
