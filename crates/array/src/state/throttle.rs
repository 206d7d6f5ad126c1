//! The token bucket of background work.

use std::cell::Cell;

use stele_ground::{Duration, Instant};

/// Bytes that background work may move.
pub struct TokenBucket {
    filled: Cell<Instant>,
}

impl TokenBucket {
    pub fn new(now: Instant) -> TokenBucket {
        TokenBucket { filled: Cell::new(now) }
    }

    /// When so many bytes may be moved at the rate, at the earliest. Bursts of a tenth of a second
    /// pass.
    pub fn take(&self, bytes: u64, rate: u64, now: Instant) -> Instant {
        let burst = Duration::from_millis(100);
        let from = self.filled.get().max(Instant(now.0.saturating_sub(burst.0)));
        let cost = (u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1))) as u64;
        self.filled.set(from + Duration(cost));
        from
    }
}
