//! When recurring work is due.

use crate::state::shared::Shared;

/// Work that recurs after an interval of elapsed time. The first run is due one interval after the
/// clock's origin.
pub(crate) struct Timer {
    /// Milliseconds between two runs.
    interval: u64,
    /// The elapsed time of the last run, in milliseconds.
    last: Shared<u64>,
    /// A run is due whatever the time.
    wanted: Shared<bool>,
}

impl Timer {
    pub fn new(interval: u64) -> Timer {
        Timer { interval, last: Shared::new(0), wanted: Shared::new(false) }
    }

    /// A run is due at once.
    pub fn want(&self) {
        self.wanted.step(|wanted| *wanted = true);
    }

    /// Whether a run is due at this elapsed time. If it is, the next one is due an interval later.
    pub fn is_due(&self, elapsed: u64) -> bool {
        let wanted = self.wanted.step(std::mem::take);
        self.last.step(|last| {
            let due = wanted || elapsed >= *last + self.interval;
            if due {
                *last = elapsed;
            }
            due
        })
    }
}
