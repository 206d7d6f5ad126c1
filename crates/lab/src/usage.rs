//! Processor time used, from /proc. 0 where it does not tell.

use std::fs;
use std::time::Instant;

/// Ticks a second of /proc/stat: USER_HZ, which is 100 on every architecture that Linux runs on
/// today.
const TICKS: f64 = 100.0;

#[derive(Clone, Copy, Debug)]
pub struct Usage {
    pub at: Instant,
    /// Seconds of all threads of this process that are alive, user and kernel.
    pub own: f64,
    /// Seconds that they could have run and had no processor.
    pub waited: f64,
    /// Seconds that the machine's processors were busy, its kernel's own threads and interrupts
    /// included.
    pub machine: f64,
}

impl Usage {
    pub fn now() -> Usage {
        let (own, waited) = own().unwrap_or((0.0, 0.0));
        Usage { at: Instant::now(), own, waited, machine: machine().unwrap_or(0.0) }
    }
}

fn own() -> Option<(f64, f64)> {
    let (mut ran, mut waited) = (0u64, 0u64);
    for thread in fs::read_dir("/proc/self/task").ok()?.flatten() {
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        let mut words = text.split_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
        ran += words.next().unwrap_or(0);
        waited += words.next().unwrap_or(0);
    }
    Some((ran as f64 / 1e9, waited as f64 / 1e9))
}

fn machine() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let words: Vec<u64> =
        text.lines().next()?.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal
    let busy: u64 =
        words.iter().enumerate().filter(|(at, _)| matches!(at, 0..=2 | 5 | 6)).map(|(_, ticks)| ticks).sum();
    Some(busy as f64 / TICKS)
}
