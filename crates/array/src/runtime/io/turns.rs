//! Which of the requests that wait for a drive goes out next: the most urgent, and now and then one
//! of the others.
//!
//! With priorities alone, hosts that keep a drive's queue full with reads would stop destage, and
//! with it their own writes, rebuild and scrub, for as long as they go on.

use std::ops::Bound::{Excluded, Unbounded};

use stele_media::{Priority, Request};

use super::IoState;

/// Of the requests that a drive is handed while others wait, one in so many is the oldest of the
/// less urgent.
pub(super) const TURN: u32 = 8;

impl IoState {
    /// The most urgent of those that wait, or when it is their turn the oldest of the less urgent.
    pub(super) fn next_waiting(&mut self) -> Option<Request> {
        let (first, _) = self.waiting.first_key_value()?;
        let mut next = *first;
        // What an acknowledgement hangs on ends by itself when the log is full, and yields to
        // nothing.
        if next.0 != Priority::Urgent {
            self.turns = (self.turns + 1) % TURN;
            let mut class = next.0;
            while self.turns == 0
                && let Some((lower, _)) = self.waiting.range((Excluded((class, u64::MAX)), Unbounded)).next()
            {
                if class == first.0 || lower.1 < next.1 {
                    next = *lower;
                }
                class = lower.0;
            }
        }
        self.waiting.remove(&next)
    }
}
