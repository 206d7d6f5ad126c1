//! Which refusals of the archive the log shows.
//!
//! An archive without room refuses every file, and each is tried again. The log shows a cause when
//! it first comes up, and again after a while, with the number of refusals that it did not show.

use stele_ground::{Duration, Instant};

use crate::FileError;

/// After so long a cause that goes on is shown again.
const SHOWN_AGAIN: Duration = Duration::from_secs(600);
/// Causes that are shown in that time: the texts of some name a place, and are as many as these.
const CAUSES_MAX: usize = 16;

/// The refusals of one share.
#[derive(Default)]
pub struct Refusals {
    since: Option<Instant>,
    shown: Vec<FileError>,
    untold: u64,
}

impl Refusals {
    /// Counts a refusal. Where the log is to show it: how many were not shown before it.
    pub fn note(&mut self, now: Instant, error: &FileError) -> Option<u64> {
        if self.since.is_none_or(|since| now.since(since) >= SHOWN_AGAIN) {
            self.since = Some(now);
            self.shown.clear();
        }
        if self.shown.contains(error) || self.shown.len() == CAUSES_MAX {
            self.untold += 1;
            return None;
        }
        self.shown.push(error.clone());
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000)
    }

    #[test]
    fn a_cause_is_shown_once_in_ten_minutes_with_a_count() {
        let mut refusals = Refusals::default();
        let mut shown = Vec::new();
        for second in 0..1_300 {
            if let Some(untold) = refusals.note(at(second), &FileError::NoSpace) {
                shown.push((second, untold));
            }
        }
        assert_eq!(shown, [(0, 0), (600, 599), (1_200, 599)]);
    }

    #[test]
    fn a_new_cause_is_shown_at_once() {
        let mut refusals = Refusals::default();
        assert_eq!(refusals.note(at(0), &FileError::NoSpace), Some(0));
        assert_eq!(refusals.note(at(1), &FileError::NoSpace), None);
        assert_eq!(refusals.note(at(2), &FileError::OverQuota), Some(1));
        assert_eq!(refusals.note(at(3), &FileError::NoSpace), None, "causes that take turns are no news");
    }

    #[test]
    fn causes_that_name_places_are_bounded() {
        let mut refusals = Refusals::default();
        let damaged = |number: u64| FileError::Damaged(format!("place {number}"));
        let shown = (0..1_000).filter(|number| refusals.note(at(0), &damaged(*number)).is_some()).count();
        assert_eq!(shown, CAUSES_MAX);
    }
}
