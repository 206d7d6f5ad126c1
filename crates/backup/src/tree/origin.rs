//! Where the content of a volume comes from: the snapshot of the array, which is the base of the
//! next backup, and the shape that a restore gives to a new volume.

use crate::chunker::CHUNK_MAX;
use crate::codec::{Decoder, put_bytes, put_varint};
use crate::error::Result;
use crate::tree::NAME_MAX;

/// Bytes of the shortest cell: the largest logical block of a volume.
const CELL_MIN: u64 = 4096;
/// Bytes of a strip, from the least to the most.
pub const STRIPS: std::ops::RangeInclusive<u64> = 16 << 10..=1 << 20;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// Bytes of a cell. Each chunk of the volume is the content of one cell, and only the last cell
    /// may be shorter.
    pub cell: u64,
    /// The logical block of the volume: 512 or 4096.
    pub block: u32,
    /// Bytes of a strip.
    pub strip: u64,
    /// Whether a digest covers a whole strip instead of a block.
    pub digests_strips: bool,
    /// The code of the volume, as the array writes it.
    pub code: String,
    /// The snapshot of the array: name, number and the time it was taken, in seconds since 1970.
    /// All three must agree.
    pub snapshot: String,
    pub number: u32,
    pub made: u64,
}

impl Origin {
    pub fn encode(&self, into: &mut Vec<u8>) {
        for number in [self.cell, self.block.into(), self.strip, self.digests_strips.into()] {
            put_varint(into, number);
        }
        put_bytes(into, self.code.as_bytes());
        put_bytes(into, self.snapshot.as_bytes());
        put_varint(into, self.number.into());
        put_varint(into, self.made);
    }

    pub fn decode(decoder: &mut Decoder<'_>) -> Result<Origin> {
        let cell = decoder.up_to(CHUNK_MAX as u64)?;
        if cell < CELL_MIN || !cell.is_power_of_two() {
            return Err(decoder.damaged("a volume has cells of a wrong length"));
        }
        let block = decoder.up_to(CELL_MIN)? as u32;
        let strip = decoder.up_to(*STRIPS.end())?;
        if ![512, 4096].contains(&block) || !STRIPS.contains(&strip) || !strip.is_power_of_two() {
            return Err(decoder.damaged("a volume has no possible shape"));
        }
        let digests_strips = decoder.up_to(1)? == 1;
        let mut text = || {
            let bytes = decoder.bytes(NAME_MAX)?.to_vec();
            String::from_utf8(bytes).map_err(|_| decoder.damaged("a word about a volume is no UTF-8"))
        };
        let (code, snapshot) = (text()?, text()?);
        let number = decoder.up_to(u32::MAX.into())? as u32;
        let made = decoder.varint()?;
        Ok(Origin { cell, block, strip, digests_strips, code, snapshot, number, made })
    }
}
