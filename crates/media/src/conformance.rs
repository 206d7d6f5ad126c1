//! The suite that every drive passes: memory, files, simulated drives, volumes of the array, and
//! every other implementation of [`Drive`]. A table of checks runs each on a fresh drive under a
//! seed, against a simple twin.
//!
//! A failed check panics with its name, the drive's name and the seed that repeats it.
//!
//! ```
//! use stele_ground::{Bytes, MIB};
//! use stele_media::{MemoryDrive, conformance::{self, Subject}};
//!
//! struct Memory(MemoryDrive);
//! impl Subject for Memory {
//!     fn drive(&mut self) -> &mut dyn stele_media::Drive {
//!         &mut self.0
//!     }
//! }
//! conformance::check("memory", 1, &mut |_| Box::new(Memory(MemoryDrive::new(Bytes(8 * MIB)))));
//! ```

use stele_ground::{Dice, Instant};

use crate::Drive;

mod checks;
mod history;
mod probe;

pub use probe::Probe;

/// A drive under test, and the actions that the suite may take on it. It must be at least 4 MiB,
/// fresh and never written.
pub trait Subject {
    fn drive(&mut self) -> &mut dyn Drive;

    /// Called when operations are in flight and none is finished: makes progress, and returns the
    /// time for the next `reap`. The default suits drives that know their next event, and drives
    /// that the system serves.
    fn wait(&mut self) -> Instant {
        match self.drive().next_event() {
            Some(at) => at,
            None => {
                std::thread::yield_now();
                Instant(0)
            }
        }
    }

    /// Cuts the power at this instant and brings the drive back without the operations in flight,
    /// none of which completes. Returns false if that is impossible; the suite then skips the
    /// checks of durability.
    fn cut_power(&mut self) -> bool {
        false
    }

    /// Whether discarded space reads as zeros; otherwise it may read as anything.
    fn discard_zeroes(&self) -> bool {
        true
    }

    /// Whether a read during a write sees whole blocks. False if only the hardware below can
    /// promise that.
    fn whole_blocks(&self) -> bool {
        true
    }

    /// Number of operations that the drive takes at once without answering `Retry`.
    fn depth(&self) -> usize {
        64
    }
}

/// One check: its claim, and its procedure.
pub struct Check {
    pub claim: &'static str,
    pub run: fn(&mut Probe),
}

/// All checks in running order. The plain ones come first, since a drive that fails them fails all.
pub fn checks() -> &'static [Check] {
    checks::CHECKS
}

/// Runs the whole suite. `make` returns a fresh drive for each call, with the given seed for its
/// dice, if it has any.
pub fn check(name: &str, seed: u64, make: &mut dyn FnMut(u64) -> Box<dyn Subject>) {
    for (index, check) in checks().iter().enumerate() {
        let seed = seed.wrapping_mul(1_000).wrapping_add(index as u64);
        let mut probe = Probe::new(format!("{name}: {} (seed {seed})", check.claim), make(seed), Dice::new(seed));
        (check.run)(&mut probe);
        probe.finish();
    }
}

#[cfg(test)]
mod tests;
