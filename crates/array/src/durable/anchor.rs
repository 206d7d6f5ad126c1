//! The anchor: the root of a checkpoint. Two slots on every drive take turns, so that a torn anchor
//! leaves the one before.
//!
//! A checkpoint holds once its anchor is durable on m + 1 drives. The newest valid anchor, by
//! (epoch, sequence), is the one to open from. Its pages were durable before it was written
//! anywhere, and an opening writes the anchor that it goes on from anew with its own epoch.

use stele_ground::PoolId;
use stele_ground::digest::crc32c;
use stele_media::{Buffer, MediaError, Priority, Shared};

use crate::drives::label::ANCHOR_AT;
use crate::durable::log::LogPosition;
use crate::durable::table::directory::Entry;
use crate::formats::codec::{Reader, Writer};
use crate::model::place::Lsn;
use crate::runtime::io::Io;
use crate::space::layout::Row;

pub const MAGIC: &[u8; 8] = b"STELEANC";
/// Since 2 the digests of pages are XXH3.
pub const FORMAT: u32 = 2;
const OLDEST: u32 = 1;
/// Bytes of a slot.
pub const SLOT: u64 = 1 << 20;
const HEADER: usize = 24;
const FIXED: usize = 96;
const BLOCK: usize = stele_ground::BLOCK;

/// What a checkpoint's root says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Anchor {
    pub pool: PoolId,
    /// Configuration epoch in which it was written.
    pub epoch: u64,
    pub sequence: u64,
    /// Pages hold every change below this record.
    pub cut: Lsn,
    pub replay: LogPosition,
    /// The table's own rows.
    pub rows: Vec<Row>,
    /// Pages of the directory's index.
    pub index: Vec<Entry>,
    /// The engine's own.
    pub root: Vec<u8>,
}

impl Anchor {
    fn length(&self) -> usize {
        let rows: usize = self.rows.iter().map(Row::encoded).sum();
        HEADER + FIXED + rows + Entry::SIZE * self.index.len() + self.root.len()
    }

    /// None when it does not fit its slot.
    pub fn encode(&self) -> Option<Shared> {
        let length = self.length();
        if length as u64 > SLOT {
            return None;
        }
        let mut buffer = Buffer::zeroed(length.next_multiple_of(BLOCK));
        let mut w = Writer::new(&mut buffer);
        w.put(MAGIC);
        w.u32(FORMAT);
        w.u32(length as u32);
        w.u64(0);
        w.put(&self.pool.0);
        w.u64(self.epoch);
        w.u64(self.sequence);
        w.u64(self.cut.0);
        w.u64(self.replay.lsn.0);
        w.u64(self.replay.group);
        w.u64(self.replay.offset);
        w.u32(self.replay.previous);
        w.u32(self.rows.len() as u32);
        w.u32(self.index.len() as u32);
        w.u32(self.root.len() as u32);
        w.u64(0);
        w.u64(0);
        self.rows.iter().for_each(|row| row.encode(&mut w));
        self.index.iter().for_each(|entry| entry.encode(&mut w));
        w.put(&self.root);
        assert_eq!(w.at(), length, "an anchor's length and its encoding disagree");
        let crc = crc32c(&buffer[HEADER..length]);
        buffer[16..20].copy_from_slice(&crc.to_le_bytes());
        Some(buffer.freeze())
    }

    /// None when the bytes are no whole anchor.
    pub fn decode(bytes: &Shared) -> Option<Anchor> {
        if bytes.get(..8)? != MAGIC {
            return None;
        }
        let mut r = Reader::new(bytes.slice(8..));
        let (format, length, crc) = (r.u32()?, r.u32()? as usize, r.u32()?);
        if !(OLDEST..=FORMAT).contains(&format) || crc32c(bytes.get(HEADER..length)?) != crc {
            return None;
        }
        let mut r = Reader::new(bytes.slice(HEADER..length));
        let (pool, epoch, sequence, cut) = (PoolId(r.id()?), r.u64()?, r.u64()?, Lsn(r.u64()?));
        let replay = LogPosition { lsn: Lsn(r.u64()?), group: r.u64()?, offset: r.u64()?, previous: r.u32()? };
        let (rows, index, root, _) = (r.u32()? as usize, r.u32()? as usize, r.u32()? as usize, (r.u64()?, r.u64()?));
        if !r.can_hold(rows, 24) {
            return None;
        }
        let rows = (0..rows).map(|_| Row::decode(&mut r)).collect::<Option<_>>()?;
        if !r.can_hold(index, Entry::SIZE) {
            return None;
        }
        let index = (0..index).map(|_| Entry::decode(&mut r)).collect::<Option<_>>()?;
        let root = r.take(root)?.to_vec();
        Some(Anchor { pool, epoch, sequence, cut, replay, rows, index, root })
    }
}

/// What a whole anchor says of its layout, whichever version wrote it: its format, and whose pool
/// it is of. These fields and the check keep their places in every format. The check does not cover
/// the format: that of one copy alone may be damage.
pub fn stamp(bytes: &[u8]) -> Option<(u32, PoolId)> {
    let word = |at: usize| bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_le_bytes);
    let (format, length, crc) = (word(8)?, word(12)? as usize, word(16)?);
    let whole = bytes.get(..8)? == MAGIC && crc32c(bytes.get(HEADER..length)?) == crc;
    let pool = PoolId(bytes.get(HEADER..HEADER + 16)?.try_into().ok()?);
    whole.then_some((format, pool))
}

/// Anchors of a later format that make a pool one of a later version.
pub const LATER_MIN: usize = 2;

/// Where the anchor of this sequence goes.
pub fn slot_at(sequence: u64) -> u64 {
    ANCHOR_AT + (sequence % 2) * SLOT
}

/// What a drive shows in its two slots.
#[derive(Clone, Default, Debug)]
pub struct Shown {
    /// The whole anchors of this pool.
    pub anchors: Vec<Anchor>,
    /// Formats of anchors of this pool that a later version may have written.
    pub later: Vec<u32>,
    /// The error of a slot that could not be read: a newer anchor may be in it.
    pub unread: Option<String>,
}

pub async fn read(io: &Io, index: usize, pool: PoolId) -> Shown {
    let mut shown = Shown::default();
    for slot in 0..2 {
        let bytes = match read_slot(io, index, slot_at(slot), Priority::Host).await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => continue,
            Err(error) => {
                shown.unread = Some(error.to_string());
                continue;
            }
        };
        let newer = stamp(&bytes).filter(|(format, of)| *format > FORMAT && *of == pool);
        shown.later.extend(newer.map(|(format, _)| format));
        shown.anchors.extend(Anchor::decode(&bytes).filter(|anchor| anchor.pool == pool));
    }
    shown
}

/// The anchor in one slot, and its bytes; none where there is no whole one.
pub async fn read_at(io: &Io, index: usize, at: u64, priority: Priority) -> Option<(Anchor, Shared)> {
    let bytes = read_slot(io, index, at, priority).await.ok()??;
    Some((Anchor::decode(&bytes)?, bytes))
}

/// Writes zeros over what begins a slot that cannot be read, also when asked again. True when it
/// can be read now.
pub async fn clear_unreadable(io: &Io, index: usize, at: u64) -> bool {
    for _ in 0..2 {
        if read_slot(io, index, at, Priority::Scrub).await.is_ok() {
            return false;
        }
    }
    let zeros = vec![Buffer::zeroed(BLOCK).freeze()];
    let written = io.write(index, at, zeros, Priority::Scrub).await;
    written.is_ok() && io.flush(index).await.is_ok() && read_slot(io, index, at, Priority::Scrub).await.is_ok()
}

/// None where no anchor begins there.
async fn read_slot(io: &Io, index: usize, at: u64, priority: Priority) -> Result<Option<Shared>, MediaError> {
    let head = io.read(index, at, BLOCK, priority).await?;
    let length = head.get(12..16).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes) as usize;
    if head.get(..8) != Some(MAGIC) || length as u64 > SLOT {
        return Ok(None);
    }
    let whole = io.read(index, at, length.next_multiple_of(BLOCK).max(BLOCK), priority).await?;
    Ok(Some(whole.freeze()))
}
