//! What is counted for status.

use std::cell::Cell;

/// A number that only its own methods change.
#[derive(Default, Debug)]
pub struct Counter(Cell<u64>);

impl Counter {
    pub fn add(&self, amount: u64) {
        self.0.set(self.0.get() + amount);
    }

    /// It says something of the last time only.
    pub fn set(&self, amount: u64) {
        self.0.set(amount);
    }

    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

/// Monotonic counts, for status.
#[derive(Default)]
pub struct Counters {
    pub reads: Counter,
    pub writes: Counter,
    pub read_bytes: Counter,
    pub written_bytes: Counter,
    pub cache_hits: Counter,
    pub cache_misses: Counter,
    pub full_stripes: Counter,
    pub destages: Counter,
    /// Of those, together with others as one task.
    pub batched: Counter,
    pub destaged_blocks: Counter,
    /// Bytes moved from one place in memory to another on behalf of hosts.
    pub copied: Counter,
    pub reconstructed: Counter,
    pub repaired: Counter,
    pub rebuilt: Counter,
    pub retries: Counter,
    pub scrubs: Counter,
    pub scrub_found: Counter,
    pub scrub_repaired: Counter,
}
