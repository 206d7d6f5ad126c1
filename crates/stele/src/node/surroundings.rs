//! The system's clocks, entropy and user: everything the floors below refuse to ask for themselves.

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use stele_archive::{Reading, Surroundings, Timestamp};

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
        // A system without entropy cannot make keys; going on with guessable ones would betray every record.
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

/// The user this process runs as, from the owner of its own entry under /proc.
pub fn own_uid() -> u32 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").map_or(u32::MAX, |about| about.uid())
}
