//! The shape of a volume's stripes: all the arithmetic between offsets in a volume, strips, blocks
//! and digest units.

use std::ops::Range;

use stele_codes::{Code, Coder};
use stele_ground::{BLOCK, counted};

use crate::model::{ArrayError, DigestUnit, VolumeSpec};

/// Strips are this long at least and at most, a power of two.
pub const STRIP_MIN: u64 = 16 << 10;
pub const STRIP_MAX: u64 = 1 << 20;

/// A stripe is `k` data strips and `m` parity strips of `strip` bytes; each strip is `units` digest
/// units.
#[derive(Clone, Debug)]
pub struct Shape {
    pub coder: Coder,
    pub unit: DigestUnit,
    /// Data strips, parity strips.
    pub k: usize,
    pub m: usize,
    /// Bytes of a strip.
    pub strip: usize,
    /// Digest units of a strip.
    pub units: usize,
    /// Bytes of a digest unit.
    pub unit_bytes: usize,
}

impl Shape {
    pub fn new(code: Code, strip: u64, unit: DigestUnit) -> Shape {
        let strip = strip as usize;
        let unit_bytes = match unit {
            DigestUnit::Block => BLOCK,
            DigestUnit::Strip => strip,
        };
        Shape {
            coder: Coder::new(code),
            unit,
            k: code.data(),
            m: code.tolerates(),
            strip,
            units: strip / unit_bytes,
            unit_bytes,
        }
    }

    pub fn of(spec: &VolumeSpec) -> Shape {
        Shape::new(spec.code, spec.strip.0, spec.digest)
    }

    pub fn code(&self) -> Code {
        self.coder.code()
    }

    pub fn width(&self) -> usize {
        self.k + self.m
    }

    /// Bytes of data in a stripe.
    pub fn data(&self) -> u64 {
        (self.k * self.strip) as u64
    }

    /// Data blocks of a stripe.
    pub fn blocks(&self) -> u32 {
        (self.k * self.strip / BLOCK) as u32
    }

    /// Blocks of a strip.
    pub fn strip_blocks(&self) -> usize {
        self.strip / BLOCK
    }

    /// Blocks of a digest unit.
    pub fn unit_blocks(&self) -> usize {
        self.unit_bytes / BLOCK
    }

    /// Digests of a stripe.
    pub fn digests(&self) -> usize {
        self.width() * self.units
    }

    /// Where the digest of a unit stands among the stripe's: strip by strip.
    pub fn digest_index(&self, strip: usize, unit: usize) -> usize {
        strip * self.units + unit
    }

    /// The strip and the block within it of a data block of the stripe.
    pub fn strip_of(&self, block: u32) -> (usize, usize) {
        let per_strip = self.strip_blocks();
        (block as usize / per_strip, block as usize % per_strip)
    }

    /// The strip without which nothing is known of this one: of a mirror the first, which all copy,
    /// else itself.
    pub fn source_of(&self, strip: usize) -> usize {
        if self.code().is_mirror() { 0 } else { strip }
    }

    /// The units of one strip that hold the given blocks of it.
    pub fn units_of(&self, blocks: Range<usize>) -> Range<usize> {
        blocks.start / self.unit_blocks()..blocks.end.div_ceil(self.unit_blocks())
    }

    /// The bytes of one strip that the units take.
    pub fn bytes_of(&self, units: Range<usize>) -> Range<usize> {
        units.start * self.unit_bytes..units.end * self.unit_bytes
    }
}

/// Whether a volume or snapshot may be called so.
pub fn is_name(name: &str) -> bool {
    (1..=255).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// Refuses a volume that cannot be, whatever the pool.
pub fn check_spec(spec: &VolumeSpec) -> Result<(), ArrayError> {
    let invalid = |text: String| Err(ArrayError::Invalid(format!("volume '{}': {text}", spec.name)));
    if !is_name(&spec.name) {
        return Err(ArrayError::Invalid("a volume's name has 1 to 255 bytes and no control characters".into()));
    }
    if spec.owner.as_ref().is_some_and(|owner| owner.is_empty() || owner.len() > 255) {
        return invalid("an owner's name has 1 to 255 bytes".into());
    }
    if !spec.strip.0.is_power_of_two() || !(STRIP_MIN..=STRIP_MAX).contains(&spec.strip.0) {
        return invalid(format!("a strip is a power of two from 16 KiB to 1 MiB, not {}", spec.strip));
    }
    if spec.block.0 != 512 && spec.block.0 != BLOCK as u64 {
        return invalid(format!("a block is 512 or 4096 bytes, not {}", spec.block));
    }
    if spec.size.0 == 0 || !spec.size.0.is_multiple_of(BLOCK as u64) || spec.size.0 > 1 << 56 {
        return invalid(format!(
            "a size is a multiple of 4096 bytes up to 64 PiB, not {}",
            counted(spec.size.0, "byte")
        ));
    }
    let shape = Shape::of(spec);
    if super::entry::size(&shape) > crate::model::place::PAGE {
        return invalid(format!(
            "{} with strips of {} has too many blocks for a digest each; use strips of {} or one digest per strip",
            spec.code,
            spec.strip,
            stele_ground::Bytes(spec.strip.0 / 2)
        ));
    }
    Ok(())
}
