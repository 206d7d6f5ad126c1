//! The processors of a server before a modelled array: each access waits for one, which takes it
//! for as long as was measured, and reaches the array behind it.
//!
//! The costs are those of docs/block.md ("From the drives"): all processor time of the server's
//! process for an access, with network protocol, digests, codes and destage, of a volume on drives
//! of memory. Two sizes were measured, so that a cost is a part for the access and a part for each
//! KiB. That they are the same on many drives as on twelve, and under another load, is assumed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use stele_ground::Instant;

use super::layer::{Desk, Layered, Rules};
use crate::closed::SimulatedTarget;
use crate::raid::Level;
use crate::workload::Access;

/// Nanoseconds of a processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    pub access: u64,
    pub kib: u64,
}

impl Cost {
    /// Through two measured points: microseconds of an access of 4 KiB, and of one of 256 KiB.
    const fn through(small: f64, large: f64) -> Cost {
        let kib = (large - small) / 252.0;
        Cost { access: ((small - 4.0 * kib) * 1000.0) as u64, kib: (kib * 1000.0) as u64 }
    }

    fn of(self, bytes: u64) -> u64 {
        self.access + self.kib * bytes / 1024
    }
}

/// What accesses cost, and how many processors there are for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Processors {
    pub count: u32,
    pub read: Cost,
    pub write: Cost,
}

impl Processors {
    /// As measured: of mirror-2 for RAID-10, of 8+2 for the others.
    pub fn measured(level: Level, count: u32) -> Processors {
        let (read, write) = match level {
            Level::Raid10 => (Cost::through(10.8, 210.9), Cost::through(26.0, 180.7)),
            Level::Raid5 | Level::Raid6 => (Cost::through(8.0, 197.4), Cost::through(47.1, 300.3)),
        };
        Processors { count, read, write }
    }

    pub fn nanos(&self, access: &Access) -> u64 {
        if access.write { self.write.of(access.length) } else { self.read.of(access.length) }
    }
}

pub struct Charged {
    processors: Processors,
    /// When each becomes free.
    free: BinaryHeap<Reverse<Instant>>,
    /// Nanoseconds of all processors.
    worked: u64,
}

impl Charged {
    pub fn before<T: SimulatedTarget>(target: T, processors: Processors) -> Layered<Charged, T> {
        let free = (0..processors.count.max(1)).map(|_| Reverse(Instant::default())).collect();
        Layered::new(Charged { processors, free, worked: 0 }, target)
    }
}

impl Rules for Charged {
    fn takes(&mut self, now: Instant, tag: u64, access: Access, desk: &mut Desk) -> Result<(), String> {
        let Some(Reverse(free)) = self.free.pop() else { return Err("there is no processor".into()) };
        let cost = self.processors.nanos(&access);
        let through = Instant(free.max(now).0 + cost);
        self.worked += cost;
        self.free.push(Reverse(through));
        desk.pass(through, tag, access);
        Ok(())
    }

    fn answered(&mut self, now: Instant, tag: u64, desk: &mut Desk) {
        desk.answer(now, tag);
    }

    fn processors_worked(&self) -> Option<f64> {
        Some(self.worked as f64 / 1e9 / f64::from(self.processors.count.max(1)))
    }
}

#[cfg(test)]
mod tests;
