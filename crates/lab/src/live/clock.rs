//! The time of a run: all workers count from one origin, which is set when every worker is ready to
//! start.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration as WallDuration, Instant as WallInstant};

use stele_ground::{Duration, Instant};

/// What a worker reads the time from. Tests tell it.
#[derive(Clone, Debug)]
pub enum Clock {
    Wall(WallInstant),
    #[cfg(test)]
    Told(Arc<std::sync::atomic::AtomicU64>),
}

impl Clock {
    pub fn now(&self) -> Instant {
        match self {
            Clock::Wall(origin) => Instant(origin.elapsed().as_nanos() as u64),
            #[cfg(test)]
            Clock::Told(time) => Instant(time.load(Ordering::Relaxed)),
        }
    }

    pub fn sleep(&self, span: Duration) {
        match self {
            Clock::Wall(_) => std::thread::sleep(WallDuration::from_nanos(span.0)),
            #[cfg(test)]
            Clock::Told(time) => drop(time.fetch_add(span.0, Ordering::Relaxed)),
        }
    }
}

/// Holds workers back until all are ready: no first round contains connecting and preparing.
#[derive(Clone, Default, Debug)]
pub struct Gate(Arc<(Mutex<Option<WallInstant>>, Condvar)>);

/// Runs that begin together: each says when it is ready, and begins when all are.
#[derive(Debug)]
pub struct Meeting {
    missing: AtomicUsize,
}

impl Meeting {
    pub fn of(runs: usize) -> Meeting {
        Meeting { missing: AtomicUsize::new(runs) }
    }

    /// One more is ready, or will never be.
    pub fn arrive(&self) {
        let _ = self.missing.fetch_update(Ordering::AcqRel, Ordering::Acquire, |missing| missing.checked_sub(1));
    }

    pub fn is_whole(&self) -> bool {
        self.missing.load(Ordering::Acquire) == 0
    }
}

/// How often a worker that waits looks whether the run was given up.
const LOOK: WallDuration = WallDuration::from_millis(50);

impl Gate {
    pub fn open(&self, origin: WallInstant) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(origin);
        self.0.1.notify_all();
    }

    /// The origin; none where the run was given up before.
    pub fn wait(&self, stop: &AtomicBool) -> Option<WallInstant> {
        let mut origin = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        while origin.is_none() && !stop.load(Ordering::Relaxed) {
            origin = self.0.1.wait_timeout(origin, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        *origin
    }
}
