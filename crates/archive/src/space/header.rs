//! Headers on the data volume: of segments, and of the records in them. Little-endian, each with a
//! CRC-32C.
//!
//! A record's header repeats its segment's incarnation, so that records of an earlier use of the
//! segment are not taken for present ones.

use stele_ground::digest::crc32c;

use crate::seal::Salt;
use crate::space::{BLOCK, align_up};

pub(crate) const RECORD_HEADER: u32 = 80;
/// Far more than a segment has room for. The length of such a record is still a number.
const PAYLOAD_MAX: u32 = 1 << 30;
/// Records start at multiples of this.
pub(crate) const RECORD_ALIGN: u32 = 16;
const RECORD_MAGIC: [u8; 4] = *b"STRC";
const SEGMENT_MAGIC: [u8; 8] = *b"STELESEG";
const FOOTER_MAGIC: [u8; 8] = *b"STELEEND";

/// The kind of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Frames of a stream.
    Piece = 1,
    /// All frames of a stream, and the note of its version.
    Whole = 2,
    /// The note of a version.
    Version = 3,
    /// The note of a part.
    Part = 4,
    /// The note of a bucket.
    Bucket = 5,
    /// The note of an access key.
    AccessKey = 6,
    /// The note of a tombstone.
    Tombstone = 7,
    /// The note of the store's identity and clock.
    Identity = 8,
    /// A run of audit records.
    Audit = 9,
    /// The note of a matter.
    Matter = 10,
    /// The note of a management class.
    Class = 11,
}

impl Kind {
    fn parse(byte: u8) -> Option<Kind> {
        use Kind::*;
        [Piece, Whole, Version, Part, Bucket, AccessKey, Tombstone, Identity, Audit, Matter, Class]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }

    /// Whether a record counts only if the catalog refers to it. Other notes may take back what an
    /// earlier one states.
    pub fn needs_reference(self) -> bool {
        matches!(self, Kind::Piece | Kind::Whole | Kind::Part)
    }

    /// Whether a record is always needed. No row of the catalog refers to one.
    pub fn is_kept(self) -> bool {
        matches!(self, Kind::Tombstone | Kind::Identity | Kind::Audit)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RecordHeader {
    pub kind: Kind,
    /// Bytes behind the header: sealed frames, then the sealed note.
    pub payload: u32,
    /// Bytes of the sealed note at the payload's end.
    pub note: u32,
    /// The bucket whose key seals the note; 0: a key derived from the master key.
    pub scope: u32,
    /// The number of the first frame within its stream.
    pub first_frame: u32,
    pub object: u64,
    pub stream: u64,
    pub salt: Salt,
    pub incarnation: u64,
    /// Rises through the life of the store. Of two notes of one thing, the higher one counts.
    pub sequence: u64,
    /// CRC-32C of the payload.
    pub check: u32,
}

impl RecordHeader {
    pub fn encode(&self, into: &mut [u8]) {
        into[..4].copy_from_slice(&RECORD_MAGIC);
        into[4] = self.kind as u8;
        into[5..8].fill(0);
        into[8..12].copy_from_slice(&self.payload.to_le_bytes());
        into[12..16].copy_from_slice(&self.note.to_le_bytes());
        into[16..20].copy_from_slice(&self.scope.to_le_bytes());
        into[20..24].copy_from_slice(&self.first_frame.to_le_bytes());
        into[24..32].copy_from_slice(&self.object.to_le_bytes());
        into[32..40].copy_from_slice(&self.stream.to_le_bytes());
        into[40..56].copy_from_slice(&self.salt);
        into[56..64].copy_from_slice(&self.incarnation.to_le_bytes());
        into[64..72].copy_from_slice(&self.sequence.to_le_bytes());
        into[72..76].copy_from_slice(&self.check.to_le_bytes());
        let check = crc32c(&into[..76]);
        into[76..80].copy_from_slice(&check.to_le_bytes());
    }

    /// None: no record of this incarnation starts here.
    pub fn decode(bytes: &[u8], incarnation: u64) -> Option<RecordHeader> {
        let bytes = bytes.get(..RECORD_HEADER as usize)?;
        if bytes[..4] != RECORD_MAGIC || u32_at(bytes, 76) != crc32c(&bytes[..76]) {
            return None;
        }
        let mut salt = Salt::default();
        salt.copy_from_slice(&bytes[40..56]);
        let header = RecordHeader {
            kind: Kind::parse(bytes[4])?,
            payload: u32_at(bytes, 8),
            note: u32_at(bytes, 12),
            scope: u32_at(bytes, 16),
            first_frame: u32_at(bytes, 20),
            object: u64_at(bytes, 24),
            stream: u64_at(bytes, 32),
            salt,
            incarnation: u64_at(bytes, 56),
            sequence: u64_at(bytes, 64),
            check: u32_at(bytes, 72),
        };
        let fits = header.note <= header.payload && header.payload <= PAYLOAD_MAX;
        (header.incarnation == incarnation && fits).then_some(header)
    }

    /// Header and payload, as far as the next record.
    pub fn length(&self) -> u32 {
        record_length(self.payload)
    }
}

/// Bytes a record with this payload takes.
pub(crate) fn record_length(payload: u32) -> u32 {
    align_up(RECORD_HEADER + payload, RECORD_ALIGN)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SegmentKind {
    Data = 1,
    Keys = 2,
}

/// The first block of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHeader {
    pub store: [u8; 16],
    pub number: u32,
    pub kind: SegmentKind,
    /// Which part of the key table.
    pub ordinal: u32,
    pub incarnation: u64,
}

impl SegmentHeader {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK as usize];
        bytes[..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.store);
        bytes[32..36].copy_from_slice(&(self.kind as u32).to_le_bytes());
        bytes[36..40].copy_from_slice(&self.ordinal.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.incarnation.to_le_bytes());
        let check = crc32c(&bytes[..48]);
        bytes[48..52].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// The format of a complete header, of any version.
    pub fn format(bytes: &[u8]) -> Option<u32> {
        let bytes = bytes.get(..52)?;
        (bytes[..8] == SEGMENT_MAGIC && u32_at(bytes, 48) == crc32c(&bytes[..48])).then(|| u32_at(bytes, 8))
    }

    /// None: no segment of this store starts here.
    pub fn decode(bytes: &[u8], store: &[u8; 16], number: u32) -> Option<SegmentHeader> {
        let bytes = bytes.get(..52)?;
        let sound = bytes[..8] == SEGMENT_MAGIC
            && u32_at(bytes, 48) == crc32c(&bytes[..48])
            && u32_at(bytes, 8) == 1
            && u32_at(bytes, 12) == number
            && bytes[16..32] == store[..];
        let kind = match u32_at(bytes, 32) {
            1 => SegmentKind::Data,
            2 => SegmentKind::Keys,
            _ => return None,
        };
        let header =
            SegmentHeader { store: *store, number, kind, ordinal: u32_at(bytes, 36), incarnation: u64_at(bytes, 40) };
        sound.then_some(header)
    }

    /// Whether this is a sound header of another store.
    pub fn is_foreign(bytes: &[u8], store: &[u8; 16], number: u32) -> bool {
        let other = bytes.get(16..32).and_then(|other| <[u8; 16]>::try_from(other).ok());
        other.is_some_and(|other| other != *store && SegmentHeader::decode(bytes, &other, number).is_some())
    }
}

/// The last block of a sealed segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentFooter {
    pub incarnation: u64,
    /// Bytes from the segment's start to the end of its last record.
    pub used: u32,
}

impl SegmentFooter {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK as usize];
        bytes[..8].copy_from_slice(&FOOTER_MAGIC);
        bytes[8..16].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.used.to_le_bytes());
        let check = crc32c(&bytes[..20]);
        bytes[20..24].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Whether a footer of any incarnation begins here.
    pub fn begins(bytes: &[u8]) -> bool {
        bytes.starts_with(&FOOTER_MAGIC)
    }

    pub fn decode(bytes: &[u8], incarnation: u64) -> Option<SegmentFooter> {
        let bytes = bytes.get(..24)?;
        let footer = SegmentFooter { incarnation, used: u32_at(bytes, 16) };
        (bytes[..8] == FOOTER_MAGIC && u32_at(bytes, 20) == crc32c(&bytes[..20]) && u64_at(bytes, 8) == incarnation)
            .then_some(footer)
    }
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests;
