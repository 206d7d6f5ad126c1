//! What records consist of, as stored bytes.

use stele_ground::{BLOCK, Bytes, VolumeId};
use stele_media::Shared;

use super::{Image, NewDigest, RedoImage, spec};
use crate::drives::label::DriveState;
use crate::formats::codec::{Reader, Writer};
use crate::formats::entry::DigestKind;
use crate::model::place::{DriveNumber, Lsn, RowId, SlotId, StripCell};
use crate::model::{VolumeSpec, WriteMode};
use crate::space::layout::Row;

/// A value with a form of its own.
pub trait Field: Sized {
    /// Sizes of its parts in bytes; of those before the first whose size varies.
    const SIZES: &'static [usize];

    /// Bytes that `encode` writes.
    fn size(&self) -> usize {
        Self::least()
    }

    /// Bytes that every value takes at least.
    fn least() -> usize {
        Self::SIZES.iter().sum()
    }

    fn encode(&self, w: &mut Writer<'_>);

    /// None if the bytes run out, or say what no value says.
    fn decode(r: &mut Reader) -> Option<Self>;
}

/// A small value that a record stores in more bytes than it needs.
pub trait Wide: Sized {
    fn number(&self) -> u32;
    fn of(number: u64) -> Option<Self>;
}

/// A list whose number of items was read before it. Absurd numbers are refused before memory is
/// taken.
pub fn list<T: Field>(r: &mut Reader, count: usize) -> Option<Vec<T>> {
    r.can_hold(count, T::least()).then(|| (0..count).map(|_| T::decode(r)).collect::<Option<_>>())?
}

impl Wide for bool {
    fn number(&self) -> u32 {
        u32::from(*self)
    }

    fn of(number: u64) -> Option<bool> {
        Some(number != 0)
    }
}

impl Wide for u8 {
    fn number(&self) -> u32 {
        u32::from(*self)
    }

    fn of(number: u64) -> Option<u8> {
        u8::try_from(number).ok()
    }
}

impl Wide for WriteMode {
    fn number(&self) -> u32 {
        u32::from(spec::mode_number(*self))
    }

    fn of(number: u64) -> Option<WriteMode> {
        spec::mode_of(u8::try_from(number).ok()?)
    }
}

impl Wide for DigestKind {
    fn number(&self) -> u32 {
        u32::from(self.bit())
    }

    fn of(number: u64) -> Option<DigestKind> {
        Some(DigestKind::of_bit(number as u8))
    }
}

/// Numbers, little-endian.
macro_rules! numbers {
    ($($number:ident),*) => {
        $(impl Field for $number {
            const SIZES: &'static [usize] = &[size_of::<$number>()];

            fn encode(&self, w: &mut Writer<'_>) {
                w.$number(*self);
            }

            fn decode(r: &mut Reader) -> Option<$number> {
                r.$number()
            }
        })*
    };
}

/// Types around a number.
macro_rules! named_numbers {
    ($($name:ident: $number:ident),*) => {
        $(impl Field for $name {
            const SIZES: &'static [usize] = $number::SIZES;

            fn encode(&self, w: &mut Writer<'_>) {
                self.0.encode(w);
            }

            fn decode(r: &mut Reader) -> Option<$name> {
                Field::decode(r).map($name)
            }
        })*
    };
}

numbers!(u8, u16, u32, u64);
named_numbers!(VolumeId: u32, RowId: u32, DriveNumber: u16, Bytes: u64, Lsn: u64);

impl Field for bool {
    const SIZES: &'static [usize] = &[1];

    fn encode(&self, w: &mut Writer<'_>) {
        w.u8(u8::from(*self));
    }

    fn decode(r: &mut Reader) -> Option<bool> {
        Some(r.u8()? != 0)
    }
}

impl Field for SlotId {
    const SIZES: &'static [usize] = &[8];

    fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.packed());
    }

    fn decode(r: &mut Reader) -> Option<SlotId> {
        r.u64().map(SlotId::unpack)
    }
}

/// All ones where there is none.
impl Field for Option<SlotId> {
    const SIZES: &'static [usize] = &[8];

    fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.map_or(u64::MAX, SlotId::packed));
    }

    fn decode(r: &mut Reader) -> Option<Option<SlotId>> {
        r.u64().map(|packed| (packed != u64::MAX).then(|| SlotId::unpack(packed)))
    }
}

impl Field for StripCell {
    const SIZES: &'static [usize] = &[2, 4];

    fn encode(&self, w: &mut Writer<'_>) {
        self.drive.encode(w);
        self.unit.encode(w);
    }

    fn decode(r: &mut Reader) -> Option<StripCell> {
        Some(StripCell { drive: Field::decode(r)?, unit: Field::decode(r)? })
    }
}

/// Whether there is one stands before it.
impl Field for Option<StripCell> {
    const SIZES: &'static [usize] = &[1, 2, 4];

    fn encode(&self, w: &mut Writer<'_>) {
        w.u8(u8::from(self.is_some()));
        self.unwrap_or_default().encode(w);
    }

    fn decode(r: &mut Reader) -> Option<Option<StripCell>> {
        let is_present = r.u8()? != 0;
        StripCell::decode(r).map(|cell| is_present.then_some(cell))
    }
}

impl Field for DriveState {
    const SIZES: &'static [usize] = &[1];

    fn encode(&self, w: &mut Writer<'_>) {
        w.u8(self.number());
    }

    fn decode(r: &mut Reader) -> Option<DriveState> {
        DriveState::from_number(r.u8()?)
    }
}

impl Field for Row {
    const SIZES: &'static [usize] = &[];

    fn size(&self) -> usize {
        self.encoded()
    }

    fn encode(&self, w: &mut Writer<'_>) {
        Row::encode(self, w);
    }

    fn decode(r: &mut Reader) -> Option<Row> {
        Row::decode(r)
    }
}

impl Field for VolumeSpec {
    const SIZES: &'static [usize] = &[];

    fn size(&self) -> usize {
        spec::encoded(self)
    }

    fn encode(&self, w: &mut Writer<'_>) {
        spec::encode(self, w);
    }

    fn decode(r: &mut Reader) -> Option<VolumeSpec> {
        spec::decode(r)
    }
}

impl Field for NewDigest {
    const SIZES: &'static [usize] = &[4, 4, 4];

    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(u32::from(self.strip));
        w.u32(self.unit);
        w.u32(self.digest);
    }

    fn decode(r: &mut Reader) -> Option<NewDigest> {
        Some(NewDigest { strip: u8::try_from(r.u32()?).ok()?, unit: r.u32()?, digest: r.u32()? })
    }
}

impl Field for RedoImage {
    const SIZES: &'static [usize] = &[1, 1, 2, 4, 4];

    fn size(&self) -> usize {
        let inline = match &self.source {
            Image::Inline(data) => data.len(),
            Image::Logged { .. } => 0,
        };
        RedoImage::least() + inline
    }

    fn encode(&self, w: &mut Writer<'_>) {
        let (logged, blocks, data) = match &self.source {
            Image::Inline(data) => (0, (data.len() / BLOCK) as u32, Some(data)),
            Image::Logged { blocks } => (1, *blocks, None),
        };
        w.u8(self.strip);
        w.u8(logged);
        w.u16(0);
        w.u32(self.block);
        w.u32(blocks);
        data.into_iter().for_each(|data: &Shared| w.put(data));
    }

    fn decode(r: &mut Reader) -> Option<RedoImage> {
        let (strip, logged, _, block, blocks) = (r.u8()?, r.u8()?, r.u16()?, r.u32()?, r.u32()?);
        let source = match logged {
            0 => Image::Inline(r.take((blocks as usize).checked_mul(BLOCK)?)?),
            1 => Image::Logged { blocks },
            _ => return None,
        };
        Some(RedoImage { strip, block, source })
    }
}
