//! A volume's description as stored bytes, in the log and in the volume table.

use stele_codes::Code;
use stele_ground::Bytes;

use crate::formats::codec::{Reader, Writer};
use crate::formats::shape::check_spec;
use crate::model::{DigestUnit, VolumeSpec, WriteMode};

/// Bytes `encode` writes.
pub fn encoded(spec: &VolumeSpec) -> usize {
    28 + spec.name.len() + spec.owner.as_ref().map_or(0, String::len)
}

pub fn encode(spec: &VolumeSpec, w: &mut Writer<'_>) {
    w.u64(spec.size.0);
    w.u32(spec.strip.0 as u32);
    w.u32(spec.block.0 as u32);
    w.u8(spec.code.data() as u8);
    w.u8(spec.code.tolerates() as u8);
    w.u8(digest_number(spec.digest));
    w.u8(mode_number(spec.mode));
    w.u8(u8::from(spec.fully_allocated));
    w.u8(u8::from(spec.owner.is_some()));
    w.u16(u16::from(spec.spread));
    w.text(&spec.name);
    w.text(spec.owner.as_deref().unwrap_or(""));
}

pub fn decode(r: &mut Reader) -> Option<VolumeSpec> {
    let (size, strip, block) = (Bytes(r.u64()?), Bytes(r.u32()?.into()), Bytes(r.u32()?.into()));
    let code = Code::from_parts(r.u8()?, r.u8()?)?;
    let (digest, mode) = (digest_of(r.u8()?)?, mode_of(r.u8()?)?);
    let (fully_allocated, owned, spread) = (r.u8()? != 0, r.u8()? != 0, r.u16()? & 1 != 0);
    let (name, owner) = (r.text()?, r.text()?);
    let owner = owned.then_some(owner);
    let spec = VolumeSpec { name, code, size, strip, block, digest, mode, fully_allocated, spread, owner };
    // Arithmetic on stripes trusts it from here on.
    check_spec(&spec).is_ok().then_some(spec)
}

pub fn digest_number(digest: DigestUnit) -> u8 {
    match digest {
        DigestUnit::Block => 0,
        DigestUnit::Strip => 1,
    }
}

pub fn digest_of(number: u8) -> Option<DigestUnit> {
    match number {
        0 => Some(DigestUnit::Block),
        1 => Some(DigestUnit::Strip),
        _ => None,
    }
}

pub fn mode_number(mode: WriteMode) -> u8 {
    match mode {
        WriteMode::WriteBack => 0,
        WriteMode::WriteThrough => 1,
        WriteMode::Volatile => 2,
    }
}

pub fn mode_of(number: u8) -> Option<WriteMode> {
    match number {
        0 => Some(WriteMode::WriteBack),
        1 => Some(WriteMode::WriteThrough),
        2 => Some(WriteMode::Volatile),
        _ => None,
    }
}
