//! What the log says. One enum, applied by one synchronous function in the engine, live and at replay.
//!
//! A record is framed as {length u32, kind u8, zero u8, zero u16} + body + padding to 8 bytes; the group around it carries
//! the CRC. Payload bytes are copied exactly once, into the group buffer; decoded payloads share the bytes read from
//! the drive. FORMAT/log.md lists every body.

use stele_ground::{BLOCK, Bytes, VolumeId};
use stele_media::Shared;

use crate::drives::label::DriveState;
use crate::formats::codec::{Reader, Writer};
use crate::formats::entry::DigestKind;
use crate::model::place::{DriveNumber, Lsn, RowId, SlotId, StripCell};
use crate::model::{VolumeSpec, WriteMode};
use crate::space::layout::Row;

pub mod layer;
pub mod patches;
pub mod spec;

pub use layer::{NewLayer, Reason};
pub use patches::PagePatch;

/// Bytes before each record's body.
const FRAME: usize = 8;

/// Larger records do not fit a group; split them.
pub const RECORD_MAX: usize = 2 << 20;

/// One change of the pool's state, or one write of a host.
#[derive(Clone, PartialEq, Debug)]
pub enum Record {
    /// Written by a checkpoint at its cut; the log from here on is never empty after a checkpoint.
    Checkpoint {
        sequence: u64,
    },
    /// Says nothing: its group publishes the watermark.
    Seal,
    /// A host's bytes, not yet on their strips.
    Write {
        volume: VolumeId,
        at: u64,
        data: Vec<Shared>,
    },
    /// A range reads as zeros from here on; `unmap` gives its space back where whole stripes allow.
    Zero {
        volume: VolumeId,
        at: u64,
        length: u64,
        unmap: bool,
    },
    /// The stripe lives in `slot` from here on, and `old` is free once this record is durable. Writes to this
    /// stripe at or below `covers` are contained in the slot.
    Map {
        volume: VolumeId,
        stripe: u64,
        slot: SlotId,
        generation: u64,
        old: Option<SlotId>,
        covers: Lsn,
        kind: DigestKind,
        /// One per digest unit, strip by strip.
        digests: Vec<u32>,
    },
    /// The stripe has no slot any more; `zero`: it is known to read as zeros. `slot` is free once durable.
    Unmap {
        volume: VolumeId,
        stripe: u64,
        slot: Option<SlotId>,
        generation: u64,
        zero: bool,
        covers: Lsn,
    },
    /// Full images of what an in-place write is about to put on the strips of a slot, and the digests it will have.
    Redo {
        volume: VolumeId,
        stripe: u64,
        slot: SlotId,
        generation: u64,
        covers: Lsn,
        digests: Vec<NewDigest>,
        images: Vec<RedoImage>,
    },
    /// The strips hold every write to the stripe at or below `covers`, durably.
    Destaged {
        volume: VolumeId,
        stripe: u64,
        covers: Lsn,
    },
    RowCreate {
        row: Row,
    },
    RowFree {
        row: RowId,
    },
    /// Gives a row member a second cell, or (none) takes it away again.
    Replacement {
        row: RowId,
        member: u8,
        cell: Option<StripCell>,
    },
    /// The member's cell itself becomes another one: all its strips have moved. Clears the replacement.
    MemberChanged {
        row: RowId,
        member: u8,
        cell: StripCell,
    },
    /// One strip of a slot now lives in the replacement (or back in the original) cell.
    Moved {
        slot: SlotId,
        generation: u64,
        strip: u8,
        replaced: bool,
    },
    VolumeCreate {
        volume: VolumeId,
        spec: VolumeSpec,
    },
    VolumeDelete {
        volume: VolumeId,
    },
    VolumeResize {
        volume: VolumeId,
        size: Bytes,
    },
    VolumeProtect {
        volume: VolumeId,
        retained: bool,
    },
    VolumeMode {
        volume: VolumeId,
        mode: WriteMode,
    },
    /// These strips (a mask) of the slot are beyond repair; an empty mask takes it back, after a rewrite.
    Lost {
        volume: VolumeId,
        stripe: u64,
        slot: SlotId,
        generation: u64,
        strips: u32,
    },
    DriveState {
        drive: DriveNumber,
        state: DriveState,
    },
    /// A snapshot, a clone or a rollback.
    Layer(NewLayer),
    /// The layer has lost its name: what it alone holds is freed, what others see through it becomes theirs.
    GivenUp {
        volume: VolumeId,
    },
    /// Where a stripe of layer `from` lives is said by layer `to` from here on. No slot: it reads as zeros.
    Adopted {
        from: VolumeId,
        to: VolumeId,
        stripe: u64,
        slot: Option<SlotId>,
    },
    VolumeReadAhead {
        volume: VolumeId,
        stripes: u8,
    },
    /// Pages that the checkpoint just cut has left out: their words that differ from what is stored of them.
    Patches {
        pages: Vec<PagePatch>,
    },
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
        let body = match self {
            Record::Checkpoint { .. } => 8,
            Record::Seal => 0,
            Record::Write { data, .. } => 16 + data.iter().map(|piece| piece.len()).sum::<usize>(),
            Record::Zero { .. } => 24,
            Record::Map { digests, .. } => 56 + 4 * digests.len(),
            Record::Unmap { .. } => 48,
            Record::Redo { digests, images, .. } => {
                48 + 12 * digests.len() + images.iter().map(|image| 12 + image.source.inline()).sum::<usize>()
            }
            Record::Destaged { .. } => 24,
            Record::RowCreate { row } => row.encoded(),
            Record::RowFree { .. } => 4,
            Record::Replacement { .. } => 16,
            Record::MemberChanged { .. } => 16,
            Record::Moved { .. } => 24,
            Record::VolumeCreate { spec, .. } => 4 + spec::encoded(spec),
            Record::VolumeDelete { .. } => 4,
            Record::VolumeResize { .. } => 16,
            Record::VolumeProtect { .. } | Record::VolumeMode { .. } => 8,
            Record::Lost { .. } => 40,
            Record::DriveState { .. } => 4,
            Record::Layer(new) => new.encoded(),
            Record::GivenUp { .. } => 4,
            Record::Adopted { .. } => 24,
            Record::VolumeReadAhead { .. } => 8,
            Record::Patches { pages } => 8 + pages.iter().map(PagePatch::encoded).sum::<usize>(),
        };
        (FRAME + body).next_multiple_of(8)
    }

    fn kind(&self) -> u8 {
        match self {
            Record::Checkpoint { .. } => 1,
            Record::Write { .. } => 2,
            Record::Zero { .. } => 3,
            Record::Map { .. } => 4,
            Record::Unmap { .. } => 5,
            Record::Redo { .. } => 6,
            Record::Destaged { .. } => 7,
            Record::RowCreate { .. } => 8,
            Record::RowFree { .. } => 9,
            Record::Replacement { .. } => 10,
            Record::Moved { .. } => 11,
            Record::VolumeCreate { .. } => 12,
            Record::VolumeDelete { .. } => 13,
            Record::VolumeResize { .. } => 14,
            Record::VolumeProtect { .. } => 15,
            Record::VolumeMode { .. } => 16,
            Record::Lost { .. } => 17,
            Record::DriveState { .. } => 18,
            Record::MemberChanged { .. } => 19,
            Record::Seal => 20,
            Record::Layer(_) => 21,
            Record::GivenUp { .. } => 22,
            Record::Adopted { .. } => 23,
            Record::VolumeReadAhead { .. } => 24,
            Record::Patches { .. } => 25,
        }
    }

    /// Writes exactly `encoded()` bytes.
    pub fn encode(&self, out: &mut [u8]) {
        let length = self.encoded();
        let mut w = Writer::new(&mut out[..length]);
        w.u32(length as u32);
        w.u8(self.kind());
        w.put(&[0; 3]);
        match self {
            Record::Checkpoint { sequence } => w.u64(*sequence),
            Record::Seal => {}
            Record::Write { volume, at, data } => {
                w.u32(volume.0);
                w.u32(data.iter().map(|piece| piece.len() as u32).sum());
                w.u64(*at);
                data.iter().for_each(|piece| w.put(piece));
            }
            Record::Zero { volume, at, length, unmap } => {
                w.u32(volume.0);
                w.u32(u32::from(*unmap));
                w.u64(*at);
                w.u64(*length);
            }
            Record::Map { volume, stripe, slot, generation, old, covers, kind, digests } => {
                w.u32(volume.0);
                w.u32(digests.len() as u32);
                w.u64(*stripe);
                w.u64(slot.packed());
                w.u64(*generation);
                slot_or_none(&mut w, *old);
                w.u64(covers.0);
                w.u64(u64::from(kind.bit()));
                digests.iter().for_each(|digest| w.u32(*digest));
            }
            Record::Unmap { volume, stripe, slot, generation, zero, covers } => {
                w.u32(volume.0);
                w.u32(u32::from(*zero));
                w.u64(*stripe);
                slot_or_none(&mut w, *slot);
                w.u64(*generation);
                w.u64(covers.0);
            }
            Record::Redo { volume, stripe, slot, generation, covers, digests, images } => {
                w.u32(volume.0);
                w.u32(digests.len() as u32);
                w.u64(*stripe);
                w.u64(slot.packed());
                w.u64(*generation);
                w.u64(covers.0);
                w.u32(images.len() as u32);
                w.u32(0);
                for new in digests {
                    w.u32(u32::from(new.strip));
                    w.u32(new.unit);
                    w.u32(new.digest);
                }
                for image in images {
                    w.u8(image.strip);
                    w.u8(u8::from(matches!(image.source, Image::Logged { .. })));
                    w.u16(0);
                    w.u32(image.block);
                    match &image.source {
                        Image::Inline(data) => {
                            w.u32((data.len() / BLOCK) as u32);
                            w.put(data);
                        }
                        Image::Logged { blocks } => w.u32(*blocks),
                    }
                }
            }
            Record::Destaged { volume, stripe, covers } => {
                w.u32(volume.0);
                w.u32(0);
                w.u64(*stripe);
                w.u64(covers.0);
            }
            Record::RowCreate { row } => row.encode(&mut w),
            Record::RowFree { row } => w.u32(row.0),
            Record::Replacement { row, member, cell } => {
                w.u32(row.0);
                w.u8(*member);
                w.u8(u8::from(cell.is_some()));
                let cell = cell.unwrap_or_default();
                w.u16(cell.drive.0);
                w.u32(cell.unit);
            }
            Record::MemberChanged { row, member, cell } => {
                w.u32(row.0);
                w.u8(*member);
                w.u8(0);
                w.u16(cell.drive.0);
                w.u32(cell.unit);
            }
            Record::Moved { slot, generation, strip, replaced } => {
                w.u64(slot.packed());
                w.u64(*generation);
                w.u8(*strip);
                w.u8(u8::from(*replaced));
            }
            Record::VolumeCreate { volume, spec } => {
                w.u32(volume.0);
                spec::encode(spec, &mut w);
            }
            Record::VolumeDelete { volume } => w.u32(volume.0),
            Record::VolumeResize { volume, size } => {
                w.u32(volume.0);
                w.u32(0);
                w.u64(size.0);
            }
            Record::VolumeProtect { volume, retained } => {
                w.u32(volume.0);
                w.u32(u32::from(*retained));
            }
            Record::VolumeMode { volume, mode } => {
                w.u32(volume.0);
                w.u32(u32::from(spec::mode_number(*mode)));
            }
            Record::Lost { volume, stripe, slot, generation, strips } => {
                w.u32(volume.0);
                w.u32(*strips);
                w.u64(*stripe);
                w.u64(slot.packed());
                w.u64(*generation);
            }
            Record::DriveState { drive, state } => {
                w.u16(drive.0);
                w.u8(state.number());
            }
            Record::Layer(new) => new.encode(&mut w),
            Record::GivenUp { volume } => w.u32(volume.0),
            Record::Adopted { from, to, stripe, slot } => {
                w.u32(from.0);
                w.u32(to.0);
                w.u64(*stripe);
                slot_or_none(&mut w, *slot);
            }
            Record::VolumeReadAhead { volume, stripes } => {
                w.u32(volume.0);
                w.u32(u32::from(*stripes));
            }
            Record::Patches { pages } => {
                w.u32(pages.len() as u32);
                w.u32(0);
                pages.iter().for_each(|page| page.encode(&mut w));
            }
        }
        let written = w.at();
        assert!(written <= length && written + 24 > length, "a record's length and its encoding disagree");
        w.put(&[0; 24][..length - written]);
    }

    /// Whether what it says of blocks is said of whole ones, within reach: the cache cuts them up without looking.
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
        let record = Record::decode_body(kind, Reader::new(bytes.slice(FRAME..length)))?;
        *bytes = bytes.slice(length..);
        Some(record)
    }

    fn decode_body(kind: u8, mut r: Reader) -> Option<Record> {
        Some(match kind {
            1 => Record::Checkpoint { sequence: r.u64()? },
            2 => {
                let (volume, length, at) = (VolumeId(r.u32()?), r.u32()? as usize, r.u64()?);
                Record::Write { volume, at, data: vec![r.take(length)?] }
            }
            3 => {
                let (volume, unmap) = (VolumeId(r.u32()?), r.u32()? != 0);
                Record::Zero { volume, at: r.u64()?, length: r.u64()?, unmap }
            }
            4 => {
                let (volume, count) = (VolumeId(r.u32()?), r.u32()? as usize);
                let (stripe, slot, generation) = (r.u64()?, SlotId::unpack(r.u64()?), r.u64()?);
                let (old, covers) = (some_slot(r.u64()?), Lsn(r.u64()?));
                let kind = DigestKind::of_bit(r.u64()? as u8);
                if !r.can_hold(count, 4) {
                    return None;
                }
                let digests = (0..count).map(|_| r.u32()).collect::<Option<_>>()?;
                Record::Map { volume, stripe, slot, generation, old, covers, kind, digests }
            }
            5 => {
                let (volume, zero) = (VolumeId(r.u32()?), r.u32()? != 0);
                let (stripe, slot) = (r.u64()?, some_slot(r.u64()?));
                Record::Unmap { volume, stripe, slot, generation: r.u64()?, zero, covers: Lsn(r.u64()?) }
            }
            6 => {
                let (volume, new_digests) = (VolumeId(r.u32()?), r.u32()? as usize);
                let (stripe, slot, generation) = (r.u64()?, SlotId::unpack(r.u64()?), r.u64()?);
                let (covers, count, _) = (Lsn(r.u64()?), r.u32()? as usize, r.u32()?);
                if !r.can_hold(new_digests, 12) || !r.can_hold(count, 12) {
                    return None;
                }
                let digests = (0..new_digests).map(|_| decode_digest(&mut r)).collect::<Option<_>>()?;
                let images = (0..count).map(|_| decode_image(&mut r)).collect::<Option<_>>()?;
                Record::Redo { volume, stripe, slot, generation, covers, digests, images }
            }
            7 => {
                let (volume, _) = (VolumeId(r.u32()?), r.u32()?);
                Record::Destaged { volume, stripe: r.u64()?, covers: Lsn(r.u64()?) }
            }
            8 => Record::RowCreate { row: Row::decode(&mut r)? },
            9 => Record::RowFree { row: RowId(r.u32()?) },
            10 => {
                let (row, member, some) = (RowId(r.u32()?), r.u8()?, r.u8()? != 0);
                let cell = StripCell { drive: DriveNumber(r.u16()?), unit: r.u32()? };
                Record::Replacement { row, member, cell: some.then_some(cell) }
            }
            11 => Record::Moved {
                slot: SlotId::unpack(r.u64()?),
                generation: r.u64()?,
                strip: r.u8()?,
                replaced: r.u8()? != 0,
            },
            12 => Record::VolumeCreate { volume: VolumeId(r.u32()?), spec: spec::decode(&mut r)? },
            13 => Record::VolumeDelete { volume: VolumeId(r.u32()?) },
            14 => {
                let (volume, _) = (VolumeId(r.u32()?), r.u32()?);
                Record::VolumeResize { volume, size: Bytes(r.u64()?) }
            }
            15 => Record::VolumeProtect { volume: VolumeId(r.u32()?), retained: r.u32()? != 0 },
            16 => Record::VolumeMode { volume: VolumeId(r.u32()?), mode: spec::mode_of(u8::try_from(r.u32()?).ok()?)? },
            17 => {
                let (volume, strips) = (VolumeId(r.u32()?), r.u32()?);
                let (stripe, slot) = (r.u64()?, SlotId::unpack(r.u64()?));
                Record::Lost { volume, stripe, slot, generation: r.u64()?, strips }
            }
            18 => Record::DriveState { drive: DriveNumber(r.u16()?), state: DriveState::from_number(r.u8()?)? },
            19 => {
                let (row, member, _) = (RowId(r.u32()?), r.u8()?, r.u8()?);
                Record::MemberChanged { row, member, cell: StripCell { drive: DriveNumber(r.u16()?), unit: r.u32()? } }
            }
            20 => Record::Seal,
            21 => Record::Layer(NewLayer::decode(&mut r)?),
            22 => Record::GivenUp { volume: VolumeId(r.u32()?) },
            23 => {
                let (from, to) = (VolumeId(r.u32()?), VolumeId(r.u32()?));
                Record::Adopted { from, to, stripe: r.u64()?, slot: some_slot(r.u64()?) }
            }
            24 => {
                let volume = VolumeId(r.u32()?);
                Record::VolumeReadAhead { volume, stripes: u8::try_from(r.u32()?).ok()? }
            }
            25 => {
                let (count, _) = (r.u32()? as usize, r.u32()?);
                if !r.can_hold(count, PagePatch::encoded_of(0)) {
                    return None;
                }
                Record::Patches { pages: (0..count).map(|_| PagePatch::decode(&mut r)).collect::<Option<_>>()? }
            }
            _ => return None,
        })
    }
}

impl Image {
    fn inline(&self) -> usize {
        match self {
            Image::Inline(data) => data.len(),
            Image::Logged { .. } => 0,
        }
    }
}

fn slot_or_none(w: &mut Writer<'_>, slot: Option<SlotId>) {
    w.u64(slot.map_or(u64::MAX, SlotId::packed));
}

fn some_slot(packed: u64) -> Option<SlotId> {
    (packed != u64::MAX).then(|| SlotId::unpack(packed))
}

fn decode_digest(r: &mut Reader) -> Option<NewDigest> {
    Some(NewDigest { strip: u8::try_from(r.u32()?).ok()?, unit: r.u32()?, digest: r.u32()? })
}

fn decode_image(r: &mut Reader) -> Option<RedoImage> {
    let (strip, logged, _, block, blocks) = (r.u8()?, r.u8()?, r.u16()?, r.u32()?, r.u32()?);
    let source = match logged {
        0 => Image::Inline(r.take((blocks as usize).checked_mul(BLOCK)?)?),
        1 => Image::Logged { blocks },
        _ => return None,
    };
    Some(RedoImage { strip, block, source })
}

#[cfg(test)]
mod tests;
