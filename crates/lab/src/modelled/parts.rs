//! One target as several logical drives of the same size, so that each stream has a part of its own to go through.

use stele_ground::Instant;

use crate::closed::Target;
use crate::workload::Access;

/// Parts begin at multiples of it, so that streams fill whole stripes.
const GRAIN: u64 = 1 << 20;

pub struct Parts<T> {
    target: T,
    count: usize,
    /// Bytes of each.
    each: u64,
}

impl<T: Target> Parts<T> {
    /// One part is all there is.
    pub fn new(target: T, count: u64) -> Parts<T> {
        let whole: u64 = target.sizes().iter().sum();
        let each = if count <= 1 { whole } else { whole / count / GRAIN * GRAIN };
        Parts { target, count: count.max(1) as usize, each }
    }
}

impl<T: Target> Target for Parts<T> {
    fn sizes(&self) -> Vec<u64> {
        vec![self.each; self.count]
    }

    fn submit(&mut self, now: Instant, tag: u64, access: Access) -> Result<(), String> {
        let at = access.target as u64 * self.each + access.at;
        self.target.submit(now, tag, Access { target: 0, at, ..access })
    }

    fn next_event(&self) -> Option<Instant> {
        self.target.next_event()
    }

    fn advance(&mut self, now: Instant, finished: &mut Vec<u64>) -> Result<(), String> {
        self.target.advance(now, finished)
    }

    fn drives_worked(&self) -> Vec<f64> {
        self.target.drives_worked()
    }

    fn controllers_worked(&self) -> Option<f64> {
        self.target.controllers_worked()
    }

    fn processors_worked(&self) -> Option<f64> {
        self.target.processors_worked()
    }
}
