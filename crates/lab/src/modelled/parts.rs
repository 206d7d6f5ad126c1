//! One target as several logical drives of the same size, so that each stream has a part of its own
//! to go through.

use stele_ground::Instant;

use super::layer::{Desk, Layered, Rules};
use crate::closed::SimulatedTarget;
use crate::workload::Access;

/// Parts begin at multiples of it, so that streams fill whole stripes.
const GRAIN: u64 = 1 << 20;

pub struct Parts {
    count: usize,
    /// Bytes of each.
    each: u64,
}

impl Parts {
    /// One part is all there is.
    pub fn before<T: SimulatedTarget>(target: T, count: u64) -> Layered<Parts, T> {
        let whole: u64 = target.sizes().iter().sum();
        let each = if count <= 1 { whole } else { whole / count / GRAIN * GRAIN };
        Layered::new(Parts { count: count.max(1) as usize, each }, target)
    }
}

impl Rules for Parts {
    fn sizes(&self, _: Vec<u64>) -> Vec<u64> {
        vec![self.each; self.count]
    }

    fn takes(&mut self, now: Instant, tag: u64, access: Access, desk: &mut Desk) -> Result<(), String> {
        let at = access.target as u64 * self.each + access.at;
        desk.pass(now, tag, Access { target: 0, at, ..access });
        Ok(())
    }

    fn answered(&mut self, now: Instant, tag: u64, desk: &mut Desk) {
        desk.answer(now, tag);
    }
}

#[cfg(test)]
mod tests;
