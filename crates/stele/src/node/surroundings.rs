//! The system's clocks, entropy and user: everything that the lower crates take as values.

use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use stele_archive::{Reading, Surroundings, Timestamp};
use stele_ground::Instant;

/// The machine's clocks and random numbers.
#[derive(Debug)]
pub struct System {
    random: SystemRandom,
}

impl Default for System {
    fn default() -> System {
        System { random: SystemRandom::new() }
    }
}

impl Surroundings for System {
    fn now(&self) -> Reading {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Reading {
            monotonic: stele_media::system::now(),
            wall: Timestamp(u64::try_from(wall.as_millis()).unwrap_or(u64::MAX)),
        }
    }

    fn entropy(&self, into: &mut [u8]) {
        // Without entropy the system cannot make keys. Guessable keys would expose every record.
        assert!(self.random.fill(into).is_ok(), "the system gave no random numbers; keys cannot be made");
    }
}

/// Random bytes for identities.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    System::default().entropy(&mut bytes);
    bytes
}

/// Seconds since 1970 on the machine's clock.
pub fn wall_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_secs())
}

/// A moment of the pool's clock, in seconds since 1970 on the machine's clock. Repeated calls give the same result,
/// unless the machine's clock was set in between.
pub fn wall_at(moment: Instant) -> u64 {
    static APART: Mutex<Option<i128>> = Mutex::new(None);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_nanos() as i128);
    let measured = wall - i128::from(stele_media::system::now().0);
    let mut kept = APART.lock().unwrap_or_else(PoisonError::into_inner);
    let apart = steady(*kept, measured);
    *kept = Some(apart);
    u64::try_from((apart + i128::from(moment.0)) / 1_000_000_000).unwrap_or(0)
}

/// The distance of the clocks in nanoseconds. It stays the same if a measurement differs by no more than two readings
/// take.
fn steady(kept: Option<i128>, measured: i128) -> i128 {
    kept.filter(|kept| (kept - measured).abs() < 2_000_000_000).unwrap_or(measured)
}

/// The user of this process, taken from the owner of its own entry under /proc.
pub fn own_uid() -> u32 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").map_or(u32::MAX, |about| about.uid())
}

#[cfg(test)]
mod tests;
