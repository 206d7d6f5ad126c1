//! Quantities as types, so that a byte count is never mistaken for a block number.

use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};

/// The smallest unit of input, output and digest, in bytes.
pub const BLOCK: usize = 4096;
/// 2^10 bytes.
pub const KIB: u64 = 1 << 10;
/// 2^20 bytes.
pub const MIB: u64 = 1 << 20;
/// 2^30 bytes.
pub const GIB: u64 = 1 << 30;

/// A length or size in bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Bytes(pub u64);

/// The number of a 4096-byte block within a drive or volume.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockIndex(pub u64);

impl Bytes {
    /// The number of whole blocks that fit.
    pub fn blocks(self) -> u64 {
        self.0 / BLOCK as u64
    }

    /// Parses `512`, `64K`, `64KiB`, `1.5G`, `20T`, `2PiB` (powers of 1024) and `12TB` (powers of
    /// 1000), case-insensitive.
    pub fn parse(text: &str) -> Option<Bytes> {
        let text = text.trim();
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(split);
        let scale = match suffix.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => KIB,
            "m" | "mib" => MIB,
            "g" | "gib" => GIB,
            "t" | "tib" => GIB * 1024,
            "p" | "pib" => GIB * 1024 * 1024,
            // Decimal units, as drives are sold.
            "kb" => 1000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            "pb" => 1_000_000_000_000_000,
            _ => return None,
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(scale).map(Bytes);
        }
        let fraction: f64 = number.parse().ok()?;
        let value = fraction * scale as f64;
        // The nearest fraction to the largest number of bytes is 2^64, which is one more.
        (0.0..u64::MAX as f64).contains(&value).then_some(Bytes(value as u64))
    }
}

impl BlockIndex {
    /// The byte offset at which the block starts.
    pub fn start(self) -> u64 {
        self.0 * BLOCK as u64
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0 + other.0)
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        self.0 += other.0;
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        Bytes(self.0 - other.0)
    }
}

impl Mul<u64> for Bytes {
    type Output = Bytes;
    fn mul(self, times: u64) -> Bytes {
        Bytes(self.0 * times)
    }
}

/// The form for people: `512 B`, `64 KiB`, `1.5 GiB`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
        let mut value = self.0 as f64;
        let mut name = 0;
        while value >= 1024.0 && name + 1 < NAMES.len() {
            value /= 1024.0;
            name += 1;
        }
        if value.fract() < 0.05 || name == 0 {
            write!(f, "{value:.0} {}", NAMES[name])
        } else {
            write!(f, "{value:.1} {}", NAMES[name])
        }
    }
}

#[cfg(test)]
mod tests;
