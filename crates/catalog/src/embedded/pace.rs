//! How threads wait for the catalog's drives.
//!
//! A thread that serves many tasks keeps all of them waiting while it waits for a drive. Where that
//! takes long, the catalog lets its user hand those tasks to another thread first. On drives in
//! memory and on flash, handing on would cost more than the wait.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Runs work that waits for a drive, once, on this thread.
pub type Wait = fn(&mut dyn FnMut());

/// Reads that usually take longer are long, in nanoseconds. Handing tasks on takes some ten
/// microseconds.
const LONG: u64 = 300_000;
/// The weight of the latest read in what is usual: one part in so many.
const PART: u64 = 8;

thread_local! {
    /// Reads of any volume that this thread has waited for.
    static WAITS: Cell<u64> = const { Cell::new(0) };
}

/// See [`crate::Snapshot::waits`].
pub fn waits() -> u64 {
    WAITS.get()
}

pub struct Pace {
    wait: Wait,
    /// How long a read usually takes, in nanoseconds.
    usual: AtomicU64,
}

impl Pace {
    pub fn new(wait: Wait) -> Pace {
        Pace { wait, usual: AtomicU64::new(0) }
    }

    /// Reads from the volume.
    pub fn read<T>(&self, mut read: impl FnMut() -> T) -> T {
        WAITS.set(WAITS.get() + 1);
        let begun = Instant::now();
        let mut result = None;
        if self.is_long() {
            (self.wait)(&mut || result = Some(read()));
        }
        let result = result.unwrap_or_else(read);
        self.note(begun.elapsed().as_nanos() as u64);
        result
    }

    fn is_long(&self) -> bool {
        self.usual.load(Ordering::Relaxed) > LONG
    }

    /// Of two reads at once the later one counts: this is no more than a guess.
    fn note(&self, took: u64) {
        let usual = self.usual.load(Ordering::Relaxed);
        self.usual.store(usual - usual / PART + took / PART, Ordering::Relaxed);
    }
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace").field("usual", &self.usual).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static HANDED_ON: Cell<u32> = const { Cell::new(0) };
    }

    fn count(work: &mut dyn FnMut()) {
        HANDED_ON.set(HANDED_ON.get() + 1);
        work();
    }

    #[test]
    fn tasks_are_handed_on_where_reads_take_long_and_no_longer_when_they_do_not() {
        let pace = Pace::new(count);
        assert_eq!((pace.read(|| 1), HANDED_ON.get()), (1, 0));
        (0..20).for_each(|_| pace.note(8_000_000));
        let before = waits();
        assert_eq!((pace.read(|| 2), HANDED_ON.get()), (2, 1));
        assert_eq!(waits(), before + 1);
        (0..100).for_each(|_| pace.note(20_000));
        assert_eq!((pace.read(|| 3), HANDED_ON.get()), (3, 1));
    }
}
