//! How a volume lies on its shards: unit by unit in turn, like rows of a table.

use stele_ground::{Bytes, MIB};

use crate::model::VolumeSpec;

/// Unit `u` of the volume is unit `u / shards` of its part on shard `u % shards`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Striping {
    /// Bytes.
    unit: u64,
    shards: usize,
}

/// A run of bytes on one shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    pub shard: usize,
    /// Place in the shard's part of the volume.
    pub at: u64,
    pub length: u64,
}

impl Striping {
    pub fn new(unit: u64, shards: usize) -> Striping {
        assert!(unit > 0 && shards > 0, "a volume lies on at least one shard, in units of some bytes");
        Striping { unit, shards }
    }

    /// Units of whole stripes, at least 1 MiB: a long write then still fills stripes, and few
    /// requests lie in two units.
    pub fn of(spec: &VolumeSpec, shards: usize) -> Striping {
        let stripe = spec.strip.0 * spec.code.data() as u64;
        Striping::new(stripe * MIB.div_ceil(stripe), shards)
    }

    pub fn unit(&self) -> u64 {
        self.unit
    }

    /// Bytes of a volume of `size` on each shard.
    pub fn parts(&self, size: Bytes) -> Vec<Bytes> {
        let (units, rest) = (size.0 / self.unit, size.0 % self.unit);
        let shards = self.shards as u64;
        let part = |shard: u64| {
            let whole = units / shards + u64::from(shard < units % shards);
            Bytes(whole * self.unit + if shard == units % shards { rest } else { 0 })
        };
        (0..shards).map(part).collect()
    }

    /// The largest volume that these parts hold. Parts may be larger than it needs: a change of
    /// size that was cut off leaves some behind.
    pub fn size(&self, parts: &[Bytes]) -> Bytes {
        assert_eq!(parts.len(), self.shards, "one part on each shard");
        let rows = parts.iter().map(|part| part.0 / self.unit).min().unwrap_or(0);
        let mut size = rows * self.unit * self.shards as u64;
        for part in parts {
            let more = (part.0 - rows * self.unit).min(self.unit);
            size += more;
            if more < self.unit {
                break;
            }
        }
        Bytes(size)
    }

    /// The smallest volume that has a place for every byte of these parts.
    pub fn covering(&self, parts: &[Bytes]) -> Bytes {
        let ends = parts.iter().enumerate().filter(|(_, part)| part.0 > 0);
        let last = ends.filter_map(|(shard, part)| self.shown(shard, part.0 - 1, 1).next());
        Bytes(last.map(|(at, length)| at + length).max().unwrap_or(0))
    }

    /// The runs of a range, in the volume's order. Runs of one shard follow each other there
    /// without a gap.
    pub fn runs(&self, at: u64, length: u64) -> impl Iterator<Item = Run> + use<> {
        let Striping { unit, shards } = *self;
        let (mut here, end) = (at, at + length);
        std::iter::from_fn(move || {
            if here >= end {
                return None;
            }
            let (number, within) = (here / unit, here % unit);
            let run = Run {
                shard: (number % shards as u64) as usize,
                at: number / shards as u64 * unit + within,
                length: (unit - within).min(end - here),
            };
            here += run.length;
            Some(run)
        })
    }

    /// The range of the volume that a range of a shard's part shows, in pieces: place and length.
    pub fn shown(&self, shard: usize, at: u64, length: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let Striping { unit, shards } = *self;
        let (mut here, end) = (at, at + length);
        std::iter::from_fn(move || {
            if here >= end {
                return None;
            }
            let (row, within) = (here / unit, here % unit);
            let length = (unit - within).min(end - here);
            here += length;
            Some(((row * shards as u64 + shard as u64) * unit + within, length))
        })
    }
}

#[cfg(test)]
mod tests;
