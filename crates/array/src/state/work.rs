//! Long work under way, with what is needed to tell its rate.

use std::cell::Cell;

use stele_ground::{Bytes, Instant};

use crate::model::Progress;

/// Progress of a long work, with what is needed to tell its rate.
#[derive(Clone, Copy, Debug)]
struct Work {
    done: u64,
    total: u64,
    since: Instant,
}

impl Work {
    fn progress(&self, now: Instant) -> Progress {
        let seconds = now.since(self.since).as_secs_f64().max(1e-3);
        let rate = (self.done as f64 / seconds) as u64;
        Progress { done: Bytes(self.done), total: Bytes(self.total.max(self.done)), since: self.since, rate }
    }
}

/// Long work, if any is under way.
#[derive(Default)]
pub struct Ongoing(Cell<Option<Work>>);

impl Ongoing {
    pub fn is_under_way(&self) -> bool {
        self.0.get().is_some()
    }

    pub fn begin(&self, total: u64, now: Instant) {
        self.0.set(Some(Work { done: 0, total, since: now }));
    }

    /// So many bytes are left: begins the work, or corrects its total.
    pub fn expect(&self, left: u64, now: Instant) {
        let work = self.0.get().unwrap_or(Work { done: 0, total: 0, since: now });
        self.0.set(Some(Work { total: work.done + left, ..work }));
    }

    /// So many bytes more are done, if the work is under way still.
    pub fn advance(&self, bytes: u64) {
        if let Some(work) = self.0.get() {
            self.0.set(Some(Work { done: work.done + bytes, ..work }));
        }
    }

    /// Bytes done so far.
    pub fn done(&self) -> u64 {
        self.0.get().map_or(0, |work| work.done)
    }

    /// The work is over. Answers how many bytes it did, if it was under way.
    pub fn end(&self) -> Option<u64> {
        self.0.take().map(|work| work.done)
    }

    pub fn progress(&self, now: Instant) -> Option<Progress> {
        self.0.get().map(|work| work.progress(now))
    }
}
