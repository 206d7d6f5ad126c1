//! What the log says. One enum, applied by one synchronous function in the engine, live and at
//! replay.
//!
//! A record is framed as {length u32, kind u8, zero u8, zero u16} + body + padding to 8 bytes; the
//! group around it carries the CRC. Payload bytes are copied exactly once, into the group buffer;
//! decoded payloads share the bytes read from the drive. [`records!`](declare) declares every body
//! once; FORMAT/log.md lists them.

use stele_ground::{BLOCK, Bytes, VolumeId};
use stele_media::Shared;

use crate::drives::label::DriveState;
use crate::formats::codec::{Reader, Writer};
use crate::formats::entry::DigestKind;
use crate::model::place::{DriveNumber, Lsn, RowId, SlotId, StripCell};
use crate::model::{VolumeSpec, WriteMode};
use crate::space::layout::Row;

#[macro_use]
mod declare;
mod field;
pub mod layer;
pub mod patches;
pub mod spec;

pub use field::Field;
use field::{Wide, list};
pub use layer::{NewLayer, Reason};
pub use patches::PagePatch;

/// Bytes before each record's body.
const FRAME: usize = 8;

/// Larger records do not fit a group; split them.
pub const RECORD_MAX: usize = 2 << 20;

records! {
    /// Written by a checkpoint at its cut; the log from here on is never empty after a checkpoint.
    1 "checkpoint" Checkpoint { sequence: u64, }

    /// A host's bytes, not yet on their strips.
    2 "write" Write { volume: VolumeId, [length data] at: u64, data: Vec<Shared> as bytes, }

    /// A range reads as zeros from here on; `unmap` gives its space back where whole stripes allow.
    3 "zero" Zero { volume: VolumeId, unmap: bool as u32, at: u64, length: u64, }

    /// The stripe lives in `slot` from here on, and `old` is free once this record is durable.
    /// Writes to this stripe at or below `covers` are contained in the slot. One digest per digest
    /// unit, strip by strip.
    4 "map" Map {
        volume: VolumeId,
        [count digests]
        stripe: u64,
        slot: SlotId,
        generation: u64,
        old: Option<SlotId>,
        covers: Lsn,
        kind: DigestKind as u64,
        digests: Vec<u32> as list,
    }

    /// The stripe has no slot any more; `zero`: it is known to read as zeros. `slot` is free once
    /// durable.
    5 "unmap" Unmap {
        volume: VolumeId,
        zero: bool as u32,
        stripe: u64,
        slot: Option<SlotId>,
        generation: u64,
        covers: Lsn,
        ; spare 8
    }

    /// Full images of what an in-place write is about to put on the strips of a slot, and the
    /// digests it will have.
    6 "redo" Redo {
        volume: VolumeId,
        [count digests]
        stripe: u64,
        slot: SlotId,
        generation: u64,
        covers: Lsn,
        [count images]
        [zero 4]
        digests: Vec<NewDigest> as list,
        images: Vec<RedoImage> as list,
    }

    /// The strips hold every write to the stripe at or below `covers`, durably.
    7 "destaged" Destaged { volume: VolumeId, [zero 4] stripe: u64, covers: Lsn, }

    8 "row-create" RowCreate { row: Row, }

    9 "row-free" RowFree { row: RowId, }

    /// Gives a row member a second cell, or (none) takes it away again.
    10 "replacement" Replacement { row: RowId, member: u8, cell: Option<StripCell>, }

    /// One strip of a slot now lives in the replacement (or back in the original) cell.
    11 "moved" Moved { slot: SlotId, generation: u64, strip: u8, replaced: bool, }

    12 "volume-create" VolumeCreate { volume: VolumeId, spec: VolumeSpec, }

    13 "volume-delete" VolumeDelete { volume: VolumeId, }

    14 "volume-resize" VolumeResize { volume: VolumeId, [zero 4] size: Bytes, }

    15 "volume-protect" VolumeProtect { volume: VolumeId, retained: bool as u32, }

    16 "volume-mode" VolumeMode { volume: VolumeId, mode: WriteMode as u32, }

    /// These strips (a mask) of the slot are beyond repair; an empty mask takes it back, after a
    /// rewrite.
    17 "lost" Lost { volume: VolumeId, strips: u32, stripe: u64, slot: SlotId, generation: u64, ; spare 8 }

    /// Never written any more.
    18 "drive-state" DriveState { drive: DriveNumber, state: DriveState, }

    /// The member's cell itself becomes another one: all its strips have moved. Clears the
    /// replacement.
    19 "member-changed" MemberChanged { row: RowId, member: u8, [zero 1] cell: StripCell, }

    /// Says nothing: its group publishes the watermark.
    20 "seal" Seal

    /// A snapshot, a clone or a rollback.
    21 "layer" Layer { new: NewLayer, }

    /// The layer has lost its name: what it alone holds is freed, what others see through it
    /// becomes theirs.
    22 "given-up" GivenUp { volume: VolumeId, }

    /// Where a stripe of layer `from` lives is said by layer `to` from here on. No slot: it reads
    /// as zeros.
    23 "adopted" Adopted { from: VolumeId, to: VolumeId, stripe: u64, slot: Option<SlotId>, }

    24 "volume-read-ahead" VolumeReadAhead { volume: VolumeId, stripes: u8 as u32, }

    /// Pages that the checkpoint just cut has left out: their words that differ from what is stored
    /// of them.
    25 "patches" Patches { [count pages] [zero 4] pages: Vec<PagePatch> as list, }
}

/// The digest a unit of a strip will have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewDigest {
    pub strip: u8,
    /// Number of the digest unit within the strip.
    pub unit: u32,
    pub digest: u32,
}

/// Bytes to put on a strip.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedoImage {
    pub strip: u8,
    /// First 4096-byte block within the strip.
    pub block: u32,
    pub source: Image,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Image {
    /// Whole blocks, in order.
    Inline(Shared),
    /// This many blocks equal what the newest Write records at or below `covers` say.
    Logged { blocks: u32 },
}

impl Record {
    /// Bytes it takes in a group.
    pub fn encoded(&self) -> usize {
        (FRAME + self.body_size()).next_multiple_of(8)
    }

    /// Writes exactly `encoded()` bytes.
    pub fn encode(&self, out: &mut [u8]) {
        let length = self.encoded();
        let mut w = Writer::new(&mut out[..length]);
        w.u32(length as u32);
        w.u8(self.kind());
        w.put(&[0; 3]);
        self.encode_body(&mut w);
        let written = w.at();
        assert!(written <= length && written + 8 > length, "a record's length and its encoding disagree");
        w.pad(8);
    }

    /// Whether what it says of blocks is said of whole ones, within reach: the cache cuts them up
    /// without looking.
    pub fn is_of_blocks(&self) -> bool {
        let whole = |at: u64, length: u64| {
            at.is_multiple_of(BLOCK as u64) && length.is_multiple_of(BLOCK as u64) && at.checked_add(length).is_some()
        };
        match self {
            Record::Write { at, data, .. } => data.iter().all(|piece| whole(*at, piece.len() as u64)),
            Record::Zero { at, length, .. } => whole(*at, *length),
            _ => true,
        }
    }

    /// Takes one record off the front; none if the bytes are no record.
    pub fn decode(bytes: &mut Shared) -> Option<Record> {
        let length = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
        if length < FRAME || !length.is_multiple_of(8) || length > bytes.len() {
            return None;
        }
        let kind = *bytes.get(4)?;
        let record = Record::decode_body(kind, &mut Reader::new(bytes.slice(FRAME..length)))?;
        *bytes = bytes.slice(length..);
        Some(record)
    }
}

#[cfg(test)]
mod tests;
