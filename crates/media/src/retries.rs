//! The pauses of a caller that repeats a request which a port refused with `Retry`.
//!
//! A queue stays full as long as its slowest drive does not answer, which may be a second or more.
//! The limit is therefore a time. A refused request changed nothing, so it is always sound to wait.

use std::time::Duration;

use crate::Handle;

/// Number of attempts that follow at once: most queues have space again within microseconds.
const QUICK: u32 = 100;
/// The pause before each later attempt.
const PAUSE: Duration = Duration::from_millis(1);
/// Number of attempts with a pause: half a minute in all, as for the clients of block volumes.
const SLOW_MAX: u32 = 30_000;

/// The attempts of one request.
#[derive(Default)]
pub struct Retries {
    count: u32,
}

impl Retries {
    /// Waits for the next attempt; false if there is to be none. In a world that runs on the
    /// caller's own thread, each attempt is one step of that world instead of a pause.
    pub fn wait(&mut self, handle: &Handle) -> bool {
        let Some(pause) = self.pause() else { return false };
        if handle.pump() {
            return true;
        }
        match pause.is_zero() {
            true => std::thread::yield_now(),
            false => std::thread::sleep(pause),
        }
        true
    }

    /// The pause before the next attempt.
    fn pause(&mut self) -> Option<Duration> {
        self.count += 1;
        match self.count {
            ..=QUICK => Some(Duration::ZERO),
            count => (count - QUICK <= SLOW_MAX).then_some(PAUSE),
        }
    }
}

#[cfg(test)]
mod tests;
