//! Which of many alike lines the log shows.
//!
//! Peers can repeat without end what a line is written for. Of each minute the log shows the first
//! lines, and the next minute says how many it did not show.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time in which lines are counted together.
pub const TOLD_WITHIN: Duration = Duration::from_secs(60);

/// Lines of one kind, up to `most` within [`TOLD_WITHIN`].
pub struct Seldom {
    most: u32,
    /// When the present minute began, and its lines so far.
    kept: Mutex<Option<(Instant, u32)>>,
}

impl Seldom {
    pub const fn new(most: u32) -> Seldom {
        Seldom { most, kept: Mutex::new(None) }
    }

    /// Whether to show this line, and the number of lines that the previous interval did not show.
    pub fn count(&self, now: Instant) -> (bool, u32) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *kept {
            Some((since, count)) if now.duration_since(*since) < TOLD_WITHIN => {
                *count = count.saturating_add(1);
                (*count <= self.most, 0)
            }
            former => {
                let untold = former.map_or(0, |(_, count)| count.saturating_sub(self.most));
                *former = Some((now, 1));
                (true, untold)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_shown_until_there_are_too_many() {
        let lines = Seldom::new(20);
        let begun = Instant::now();
        let told = (0..100).filter(|_| lines.count(begun).0).count();
        assert_eq!(told, 20);
        assert_eq!(lines.count(begun + TOLD_WITHIN), (true, 80), "the next minute says how many were not told");
        assert_eq!(lines.count(begun + TOLD_WITHIN * 2), (true, 0));
    }
}
