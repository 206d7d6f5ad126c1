//! The rate of long work between its beginning and its end, which take as long for any content.

use stele_array::Progress;
use stele_ground::Instant;

const BEGIN: f64 = 0.15;
const END: f64 = 0.85;

#[derive(Default)]
pub struct Sustained {
    /// When the window began, and bytes done until then.
    begun: Option<(Instant, u64)>,
}

impl Sustained {
    pub fn is_within(&self) -> bool {
        self.begun.is_some()
    }

    /// Bytes a second, once the window has ended.
    pub fn look(&mut self, progress: Option<&Progress>, now: Instant) -> Option<f64> {
        let progress = progress?;
        let share = progress.done.0 as f64 / progress.total.0.max(1) as f64;
        match self.begun {
            None if share >= BEGIN => {
                self.begun = Some((now, progress.done.0));
                None
            }
            Some((since, before)) if share >= END => {
                Some((progress.done.0 - before) as f64 / now.since(since).as_secs_f64())
            }
            _ => None,
        }
    }
}
