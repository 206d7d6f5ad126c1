//! A log group as bytes: header, records, zeros up to a multiple of 4096. See FORMAT/log.md.
//!
//! The header's CRC covers the payload's fingerprint and the CRC of the group before, so that
//! groups form a chain which no stale lap and no abandoned branch of an earlier opening can
//! continue.

use std::sync::{Arc, Mutex, PoisonError};

use stele_ground::digest::{bind_fingerprint, crc32c, fingerprint};
use stele_ground::{BLOCK, Instant, PoolId};
use stele_media::{Buffer, Shared};

use super::linger::FlushUrgency;
use crate::durable::records::{RECORD_MAX, Record};
use crate::model::place::Lsn;

pub const MAGIC: &[u8; 8] = b"STELEGRP";
/// Bytes of the header; records follow at once.
pub const HEADER: usize = 96;
/// Where the tag is in the header.
const TAG_AT: usize = 92;
/// A group is closed when the next record would take it past this.
pub const TARGET: usize = 256 << 10;

/// How a group's records are told from whatever else may lie there. They hold what hosts wrote, of
/// which a CRC may not tell two versions apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload {
    /// CRC-32C, of groups that version 0.1.0 wrote.
    Crc(u32),
    /// XXH3-64, and 1 in place of 0.
    Fingerprint(u64),
}

impl Payload {
    pub fn of(records: &[u8]) -> Payload {
        Payload::Fingerprint(fingerprint(records).max(1))
    }

    fn is_of(self, records: &[u8]) -> bool {
        match self {
            Payload::Crc(crc) => crc32c(records) == crc,
            Payload::Fingerprint(_) => Payload::of(records) == self,
        }
    }
}

/// What stands before a group's records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub pool: PoolId,
    pub epoch: u64,
    pub sequence: u64,
    pub first: Lsn,
    pub count: u32,
    /// Bytes of records.
    pub length: u32,
    /// Highest group known durable on all members when this one was written.
    pub watermark: u64,
    /// First record that was still needed.
    pub trim: Lsn,
    /// `crc` of the group before.
    pub previous: u32,
    /// What the records must be.
    pub payload: Payload,
    /// What only drives of the pool can have in it: see [`tag_of`]. Zero in groups of versions up
    /// to 0.1.0.
    pub tag: u32,
    /// CRC of the header.
    pub crc: u32,
}

impl Header {
    /// Bytes of the ring that the group takes.
    pub fn total(&self) -> u64 {
        total(self.length as usize)
    }

    /// `secret`: makes its tag.
    fn encode(&mut self, out: &mut [u8], secret: Option<u64>) {
        out[..HEADER].fill(0);
        out[..8].copy_from_slice(MAGIC);
        match self.payload {
            Payload::Crc(crc) => out[12..16].copy_from_slice(&crc.to_le_bytes()),
            Payload::Fingerprint(print) => out[84..92].copy_from_slice(&print.to_le_bytes()),
        }
        out[16..32].copy_from_slice(&self.pool.0);
        let words = [self.epoch, self.sequence, self.first.0];
        for (word, place) in words.iter().zip(out[32..56].chunks_exact_mut(8)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        out[56..60].copy_from_slice(&self.count.to_le_bytes());
        out[60..64].copy_from_slice(&self.length.to_le_bytes());
        out[64..72].copy_from_slice(&self.watermark.to_le_bytes());
        out[72..80].copy_from_slice(&self.trim.0.to_le_bytes());
        out[80..84].copy_from_slice(&self.previous.to_le_bytes());
        if let Some(secret) = secret {
            self.tag = tag_of(out, secret);
        }
        out[TAG_AT..HEADER].copy_from_slice(&self.tag.to_le_bytes());
        self.crc = crc32c(&out[12..HEADER]);
        out[8..12].copy_from_slice(&self.crc.to_le_bytes());
    }

    /// A header whose own CRC holds; the payload is not looked at.
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        let bytes = bytes.get(..HEADER)?;
        if bytes.get(..8)? != MAGIC {
            return None;
        }
        let word = |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
        let half = |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
        let header = Header {
            pool: PoolId(bytes.get(16..32)?.try_into().ok()?),
            epoch: word(32)?,
            sequence: word(40)?,
            first: Lsn(word(48)?),
            count: half(56)?,
            length: half(60)?,
            watermark: word(64)?,
            trim: Lsn(word(72)?),
            previous: half(80)?,
            payload: match word(84)? {
                0 => Payload::Crc(half(12)?),
                print => Payload::Fingerprint(print),
            },
            tag: half(TAG_AT)?,
            crc: half(8)?,
        };
        (crc32c(bytes.get(12..)?) == header.crc).then_some(header)
    }
}

/// The tag of the header at the start of `bytes`, by a secret of the pool; never 0. Hosts' bytes
/// lie in the ring as they came, and may look like a header in all else: pool identity and CRC are
/// no secrets.
pub fn tag_of(bytes: &[u8], secret: u64) -> u32 {
    bind_fingerprint(fingerprint(&bytes[12..TAG_AT]), secret).max(1)
}

/// Ring bytes of a group with so many bytes of records.
pub fn total(length: usize) -> u64 {
    (HEADER + length).next_multiple_of(BLOCK) as u64
}

/// Bytes of the largest record that a ring of so many bytes takes.
pub fn record_max(ring: u64) -> usize {
    RECORD_MAX.min((ring / 4) as usize - HEADER) / 8 * 8
}

/// Ring bytes of the largest group.
pub fn total_max(ring: u64) -> u64 {
    total(record_max(ring).max(TARGET - HEADER))
}

/// The records of a whole group, if they are what its header says and each of them holds.
pub fn records(header: &Header, group: &Shared) -> Option<Vec<Record>> {
    let end = HEADER.checked_add(header.length as usize)?;
    if end > group.len() {
        return None;
    }
    let mut payload = group.slice(HEADER..end);
    if !header.payload.is_of(&payload) {
        return None;
    }
    let mut records = Vec::new();
    for _ in 0..header.count {
        records.push(Record::decode(&mut payload)?);
    }
    payload.is_empty().then_some(records)
}

/// True when the group's payload is what its header says.
pub fn is_whole(header: &Header, group: &Shared) -> bool {
    let end = HEADER + header.length as usize;
    group.get(HEADER..end).is_some_and(|payload| header.payload.is_of(payload))
}

/// A group being filled: each record is copied once, to here, and from here goes to every member.
pub struct Filling {
    buffer: Buffer,
    at: usize,
    pub first: Lsn,
    pub count: u32,
    /// Ring bytes set aside for it.
    pub cost: u64,
    /// It departs as soon as it can; else it waits for a record that follows.
    pub urgent: bool,
    /// It departs some time after `since`, if nothing follows.
    pub lingers: bool,
    pub since: Instant,
}

/// Buffers that came back from the drives; kept to spare zeroing fresh ones.
#[derive(Clone, Default)]
pub struct Buffers(Arc<Mutex<Vec<Buffer>>>);

/// Buffers kept at most.
const KEPT: usize = 16;

struct Lent {
    buffer: Buffer,
    home: Buffers,
}

impl Buffers {
    fn take(&self, length: usize) -> Buffer {
        if length > TARGET {
            return Buffer::zeroed(length.next_multiple_of(BLOCK));
        }
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_else(|| Buffer::zeroed(TARGET))
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.buffer.len() == TARGET {
            let mut kept = self.home.0.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() < KEPT {
                kept.push(std::mem::replace(&mut self.buffer, Buffer::zeroed(0)));
            }
        }
    }
}

impl Filling {
    /// Room for at least `bytes` of records.
    pub fn new(buffers: &Buffers, bytes: usize, first: Lsn, since: Instant) -> Filling {
        let buffer = buffers.take(HEADER + bytes);
        Filling { buffer, at: HEADER, first, count: 0, cost: 0, urgent: false, lingers: false, since }
    }

    pub fn fits(&self, bytes: usize) -> bool {
        self.at + bytes <= self.buffer.len()
    }

    pub fn push(&mut self, record: &Record, bytes: usize) {
        record.encode(&mut self.buffer[self.at..self.at + bytes]);
        self.at += bytes;
        self.count += 1;
    }

    /// Notes how long a record just pushed may wait.
    pub fn hurry(&mut self, urgency: FlushUrgency, now: Instant) {
        match urgency {
            FlushUrgency::Now => self.urgent = true,
            FlushUrgency::Linger if !self.lingers => (self.lingers, self.since) = (true, now),
            FlushUrgency::Linger | FlushUrgency::Whenever => {}
        }
    }

    pub fn length(&self) -> usize {
        self.at - HEADER
    }

    /// Fills in the header and the padding; the bytes are shared by all members from here on.
    /// `secret`: that of the pool, for the tag.
    pub fn finish(mut self, buffers: &Buffers, mut header: Header, secret: u64) -> (Header, Shared) {
        header.first = self.first;
        header.count = self.count;
        header.length = self.length() as u32;
        header.payload = Payload::of(&self.buffer[HEADER..self.at]);
        let end = header.total() as usize;
        self.buffer[self.at..end].fill(0);
        header.encode(&mut self.buffer, Some(secret));
        let lent = Lent { buffer: self.buffer, home: buffers.clone() };
        (header, Shared::from_owner(lent).slice(..end))
    }
}

/// A group with another header over the same records.
#[cfg(test)]
pub fn resealed(mut header: Header, group: &[u8]) -> Vec<u8> {
    let mut bytes = group.to_vec();
    header.encode(&mut bytes, None);
    bytes
}

#[cfg(test)]
mod tests;
