//! The system's clocks, entropy and user: everything that the lower crates take as values.

use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use rustix::process::DumpableBehavior;
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

/// A moment of the pool's clock, in seconds since 1970 on the machine's clock. Repeated calls give
/// the same result, unless the machine's clock was set in between.
pub fn wall_at(moment: Instant) -> u64 {
    static APART: Mutex<Option<i128>> = Mutex::new(None);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_nanos() as i128);
    let measured = wall - i128::from(stele_media::system::now().0);
    let mut kept = APART.lock().unwrap_or_else(PoisonError::into_inner);
    let apart = steady(*kept, measured);
    *kept = Some(apart);
    u64::try_from((apart + i128::from(moment.0)) / 1_000_000_000).unwrap_or(0)
}

/// The distance of the clocks in nanoseconds. It stays the same if a measurement differs by no more
/// than two readings take.
fn steady(kept: Option<i128>, measured: i128) -> i128 {
    kept.filter(|kept| (kept - measured).abs() < 2_000_000_000).unwrap_or(measured)
}

/// Variables that other programs get of this process's environment, which may hold the master key.
const INHERITED: [&str; 5] = ["PATH", "HOME", "LANG", "TZ", "LD_LIBRARY_PATH"];

/// Another program, with nothing of this process's environment but what it needs to start.
pub fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    command.env_clear().envs(INHERITED.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command
}

/// Keeps the memory of this process, which holds keys, out of core dumps and from other processes
/// of its user.
pub fn hide_memory() {
    if let Err(error) = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!("keys may reach a core dump: {error}");
    }
}

/// The user of this process.
pub fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests;
