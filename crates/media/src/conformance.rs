//! The suite that every drive passes: memory, files, simulated drives, volumes of the array, whatever is put
//! behind the [`Drive`] trait. A table of checks, each on a fresh drive and under a seed, against a dull twin.
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

/// A drive under test, and what the suite may do around it. It must be at least 4 MiB, fresh and never written.
pub trait Subject {
    fn drive(&mut self) -> &mut dyn Drive;

    /// Called when operations are in flight and nothing is there to reap: lets something happen and says the time
    /// for the next `reap`. The default suits drives that know their next event and drives served by the system.
    fn wait(&mut self) -> Instant {
        match self.drive().next_event() {
            Some(at) => at,
            None => {
                std::thread::yield_now();
                Instant(0)
            }
        }
    }

    /// Takes power away at this instant and brings the drive back, without the operations in flight (none of them
    /// completes any more). False where that cannot be done: then the checks of durability are left out.
    fn cut_power(&mut self) -> bool {
        false
    }

    /// True where discarded space reads as zeros; else it may read as anything.
    fn discard_zeroes(&self) -> bool {
        true
    }

    /// False where only the hardware below can promise that a read beside a write sees whole blocks.
    fn whole_blocks(&self) -> bool {
        true
    }

    /// Operations the drive takes at once without answering `Retry`.
    fn depth(&self) -> usize {
        64
    }
}

/// One check: what it claims, and how it is tried.
pub struct Check {
    pub claim: &'static str,
    pub run: fn(&mut Probe),
}

/// Every check, in the order they run: the plain ones first, since a drive that fails them fails all.
pub fn checks() -> &'static [Check] {
    checks::CHECKS
}

/// Runs the whole suite. `make` gives a fresh drive, seeded if it has dice of its own, as often as it is asked.
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
