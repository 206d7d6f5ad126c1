//! Segments: files of up to 64 MiB that hold sealed chunks, and a footer that says which.
//!
//! ```text
//! magic 8 | kind 1 | zero 7 | salt 32 | chunk, tag | chunk, tag | ... | footer | trailer
//! ```
//!
//! A segment's name is the BLAKE3 hash of its bytes, so the server and every copy can check it
//! without a key. The footer names each chunk by its keyed id, which the server can read and which
//! says nothing about the content. A chunk is sealed with its id, its length and its coding as
//! additional data: a footer that was changed gives an error.

use std::ops::Range;

use crate::chunker::CHUNK_MAX;
use crate::codec::Decoder;
use crate::compress::{Compressor, Decompressor};
use crate::crypt::{ChunkId, Keys, Kind, SALT_BYTES, Salt, SealingKey, TAG_BYTES};
use crate::error::{BackupError, Result};

pub const MAGIC: [u8; 8] = *b"STLBSEG1";
pub const TRAILER_MAGIC: [u8; 8] = *b"STLBEND1";
pub const HEADER_BYTES: usize = 16 + SALT_BYTES;
pub const TRAILER_BYTES: usize = 48;
const ENTRY_BYTES: usize = 40;

/// A segment that is this long is complete. The last chunk may exceed it.
pub const SEGMENT_BYTES: usize = 64 << 20;
/// Chunks of one segment. The footer then has at most 2.5 MiB.
pub const SEGMENT_CHUNKS_MAX: usize = 65_536;
/// No segment is longer: the target, one chunk beyond it, and the footer.
pub const SEGMENT_BYTES_MAX: u64 = 80 << 20;

const PURPOSE: &str = "segment";
/// The bit of the raw length that says that the chunk is compressed.
const COMPRESSED: u32 = 1 << 31;

/// One chunk of a footer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkEntry {
    pub id: ChunkId,
    /// Where the sealed chunk begins in the segment.
    pub offset: u32,
    /// Stored bytes, with the tag.
    pub stored: u32,
    /// Bytes of the content.
    pub length: u32,
    pub compressed: bool,
}

impl ChunkEntry {
    fn bound(&self) -> [u8; 37] {
        let mut bound = [0; 37];
        let (id, rest) = bound.split_at_mut(32);
        id.copy_from_slice(&self.id.0);
        let (length, coding) = rest.split_at_mut(4);
        length.copy_from_slice(&self.length.to_le_bytes());
        coding.copy_from_slice(&[u8::from(self.compressed)]);
        bound
    }
}

/// A part of a segment, and the chunks that lie in it.
pub struct Part {
    pub bytes: Range<u64>,
    pub chunks: Range<usize>,
}

/// The list of a segment's chunks, in their order in the segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Footer {
    pub kind: Kind,
    pub salt: Salt,
    pub entries: Vec<ChunkEntry>,
}

impl Footer {
    /// Bytes at the end of a segment that contain a footer of this many chunks.
    pub fn bytes_for(chunks: usize) -> usize {
        16 + SALT_BYTES + chunks * ENTRY_BYTES + TRAILER_BYTES
    }

    /// Bytes of the whole segment.
    pub fn segment_bytes(&self) -> u64 {
        let end =
            self.entries.last().map_or(HEADER_BYTES as u64, |last| u64::from(last.offset) + u64::from(last.stored));
        end + Footer::bytes_for(self.entries.len()) as u64
    }

    /// The segment in parts of at least `length` bytes that end with a chunk.
    pub fn parts(&self, length: u64) -> Vec<Part> {
        let (mut parts, mut from, mut first) = (Vec::new(), 0, 0);
        for (ordinal, entry) in self.entries.iter().enumerate() {
            let end = u64::from(entry.offset) + u64::from(entry.stored);
            if end - from >= length {
                parts.push(Part { bytes: from..end, chunks: first..ordinal + 1 });
                (from, first) = (end, ordinal + 1);
            }
        }
        // The footer, with the last chunks.
        parts.push(Part { bytes: from..self.segment_bytes(), chunks: first..self.entries.len() });
        parts
    }

    fn encode(&self, into: &mut Vec<u8>) {
        let start = into.len();
        into.extend_from_slice(&header(self.kind, &self.salt));
        for entry in &self.entries {
            into.extend_from_slice(&entry.id.0);
            into.extend_from_slice(&entry.stored.to_le_bytes());
            let coding = if entry.compressed { COMPRESSED } else { 0 };
            into.extend_from_slice(&(entry.length | coding).to_le_bytes());
        }
        let body = into.get(start..).unwrap_or_default();
        let (length, hash) = (body.len() as u32, *blake3::hash(body).as_bytes());
        into.extend_from_slice(&length.to_le_bytes());
        into.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        into.extend_from_slice(&hash);
        into.extend_from_slice(&TRAILER_MAGIC);
    }

    /// The length of the footer with its trailer, from the last [`TRAILER_BYTES`] bytes of a
    /// segment.
    pub fn length(trailer: &[u8]) -> Result<usize> {
        let mut decoder = Decoder::new(trailer, "segment trailer");
        let (length, count, _) = (decoder.u32()? as usize, decoder.u32()? as usize, decoder.take(32)?);
        if decoder.array()? != TRAILER_MAGIC {
            return Err(decoder.damaged("it is no trailer of a segment"));
        }
        decoder.end()?;
        if count > SEGMENT_CHUNKS_MAX || length + TRAILER_BYTES != Footer::bytes_for(count) {
            return Err(decoder.damaged("its length does not fit its number of chunks"));
        }
        Ok(length + TRAILER_BYTES)
    }

    /// The length and the hash of the footer without its trailer, as the trailer of any version has
    /// them. None: it is no trailer.
    pub fn place(trailer: &[u8]) -> Option<(u64, [u8; 32])> {
        let mut decoder = Decoder::new(trailer, "segment trailer");
        let (length, _, hash) = (decoder.u32().ok()?, decoder.u32().ok()?, decoder.array().ok()?);
        let kind = TRAILER_MAGIC.split_last()?.1;
        decoder.take(kind.len()).is_ok_and(|magic| magic == kind).then_some((u64::from(length), hash))
    }

    /// The footer from the end of a segment. `tail` may begin before the footer.
    pub fn decode(tail: &[u8]) -> Result<Footer> {
        let short = || BackupError::damaged("segment footer: ends too early");
        let trailer = tail.len().checked_sub(TRAILER_BYTES).and_then(|from| tail.get(from..)).ok_or_else(short)?;
        let length = Footer::length(trailer)?;
        let whole = tail.len().checked_sub(length).and_then(|from| tail.get(from..)).ok_or_else(short)?;
        let body = whole.get(..length - TRAILER_BYTES).ok_or_else(short)?;
        if trailer.get(8..40) != Some(blake3::hash(body).as_bytes().as_slice()) {
            return Err(BackupError::damaged("segment footer: its hash differs"));
        }
        let mut decoder = Decoder::new(body, "segment footer");
        let (kind, salt) = parse_header(&mut decoder)?;
        let mut entries = Vec::with_capacity(decoder.left() / ENTRY_BYTES);
        let mut offset = HEADER_BYTES as u64;
        while !decoder.is_empty() {
            let (id, stored, word) = (ChunkId(decoder.array()?), decoder.u32()?, decoder.u32()?);
            let (length, compressed) = (word & !COMPRESSED, word & COMPRESSED != 0);
            let raw_fits = compressed || stored == length.saturating_add(TAG_BYTES as u32);
            if length as usize > CHUNK_MAX || stored as usize > CHUNK_MAX + TAG_BYTES || !raw_fits {
                return Err(decoder.damaged("a chunk has an impossible length"));
            }
            entries.push(ChunkEntry { id, offset: offset as u32, stored, length, compressed });
            offset += u64::from(stored);
            if offset > SEGMENT_BYTES_MAX {
                return Err(decoder.damaged("its chunks exceed the longest segment"));
            }
        }
        Ok(Footer { kind, salt, entries })
    }

    /// Opens the chunk `ordinal` from its stored bytes, which it overwrites.
    pub fn open(
        &self,
        key: &SealingKey,
        ordinal: usize,
        stored: &mut [u8],
        codec: &mut Decompressor,
        output: &mut Vec<u8>,
    ) -> Result<()> {
        let entry = self.entries.get(ordinal).ok_or_else(|| BackupError::damaged("a segment has too few chunks"))?;
        let plain = key
            .open(ordinal as u64, &entry.bound(), stored)
            .ok_or_else(|| BackupError::damaged(format!("chunk {:?} is not authentic", entry.id)))?;
        if entry.compressed {
            return codec.decompress(plain, entry.length as usize, output);
        }
        output.clear();
        output.extend_from_slice(plain);
        Ok(())
    }

    pub fn key(&self, keys: &Keys) -> SealingKey {
        keys.sealing(PURPOSE, &self.salt)
    }
}

fn header(kind: Kind, salt: &Salt) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let (magic, rest) = header.split_at_mut(8);
    magic.copy_from_slice(&MAGIC);
    let (fields, end) = rest.split_at_mut(8);
    if let Some(first) = fields.first_mut() {
        *first = u8::from(kind == Kind::Tree);
    }
    end.copy_from_slice(salt);
    header
}

fn parse_header(decoder: &mut Decoder<'_>) -> Result<(Kind, Salt)> {
    if decoder.array()? != MAGIC {
        return Err(decoder.damaged("it begins as no segment does"));
    }
    let kind = match decoder.array()? {
        [0, 0, 0, 0, 0, 0, 0, 0] => Kind::Content,
        [1, 0, 0, 0, 0, 0, 0, 0] => Kind::Tree,
        _ => return Err(decoder.damaged("its kind is unknown")),
    };
    Ok((kind, decoder.array()?))
}

/// A chunk that is ready to be sealed.
pub struct Prepared<'a> {
    pub id: ChunkId,
    pub length: u32,
    pub stored: &'a [u8],
    pub compressed: bool,
}

impl<'a> Prepared<'a> {
    pub fn new(id: ChunkId, raw: &'a [u8], compressor: &'a mut Compressor) -> Result<Prepared<'a>> {
        let length = u32::try_from(raw.len()).ok().filter(|_| raw.len() <= CHUNK_MAX);
        let length = length.ok_or_else(|| BackupError::Invalid("a chunk is too long".to_owned()))?;
        Ok(match compressor.compress(raw)? {
            Some(stored) => Prepared { id, length, stored, compressed: true },
            None => Prepared { id, length, stored: raw, compressed: false },
        })
    }
}

/// A segment that is being filled, in memory.
pub struct SegmentWriter {
    key: SealingKey,
    footer: Footer,
    bytes: Vec<u8>,
    /// Of the first `hashed` bytes.
    hash: blake3::Hasher,
    hashed: usize,
}

/// A complete segment in memory.
pub struct FullSegment {
    pub id: SegmentId,
    pub footer: Footer,
    pub bytes: Vec<u8>,
}

/// The hash of a segment takes so many bytes at once: they are still in the processor's cache, and
/// enough for all lanes of its vectors.
const HASHED_AT_ONCE: usize = 256 << 10;

impl SegmentWriter {
    /// `buffer` is one that an earlier segment used, or a new one.
    pub fn new(keys: &Keys, kind: Kind, salt: Salt, mut buffer: Vec<u8>) -> SegmentWriter {
        let footer = Footer { kind, salt, entries: Vec::new() };
        buffer.clear();
        buffer.extend_from_slice(&header(kind, &salt));
        SegmentWriter { key: footer.key(keys), footer, bytes: buffer, hash: blake3::Hasher::new(), hashed: 0 }
    }

    /// Appends a chunk and returns its ordinal.
    pub fn add(&mut self, chunk: &Prepared<'_>) -> Result<usize> {
        let ordinal = self.footer.entries.len();
        let entry = ChunkEntry {
            id: chunk.id,
            offset: self.bytes.len() as u32,
            stored: (chunk.stored.len() + TAG_BYTES) as u32,
            length: chunk.length,
            compressed: chunk.compressed,
        };
        let from = self.bytes.len();
        self.bytes.extend_from_slice(chunk.stored);
        let place = self.bytes.get_mut(from..).unwrap_or_default();
        let tag = self.key.seal(ordinal as u64, &entry.bound(), place)?;
        self.bytes.extend_from_slice(&tag);
        self.footer.entries.push(entry);
        if self.bytes.len() - self.hashed >= HASHED_AT_ONCE {
            self.hash();
        }
        Ok(ordinal)
    }

    fn hash(&mut self) {
        self.hash.update(self.bytes.get(self.hashed..).unwrap_or_default());
        self.hashed = self.bytes.len();
    }

    pub fn is_full(&self, target: usize) -> bool {
        self.bytes.len() >= target || self.footer.entries.len() >= SEGMENT_CHUNKS_MAX
    }

    /// The complete segment, with its footer.
    pub fn finish(mut self) -> FullSegment {
        self.footer.encode(&mut self.bytes);
        self.hash();
        FullSegment { id: SegmentId(*self.hash.finalize().as_bytes()), footer: self.footer, bytes: self.bytes }
    }
}

/// The name of a segment: the hash of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub [u8; 32]);

impl SegmentId {
    pub fn of(bytes: &[u8]) -> SegmentId {
        SegmentId(*blake3::hash(bytes).as_bytes())
    }
}

impl std::fmt::Debug for SegmentId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&crate::crypt::hex(&self.0))
    }
}

#[cfg(test)]
mod tests;
