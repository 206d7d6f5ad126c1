//! The patience with a peer that delays the movement of bytes in one direction.

use stele_ground::{Duration, Instant};

/// Time without progress after which a peer that owes or is owed bytes is dropped.
pub const STALL_MAX: Duration = Duration::from_secs(120);

/// The movement of bytes in one direction. Movement in the other direction does not excuse a peer
/// that delays this one.
#[derive(Default)]
pub struct Progress {
    /// Whether bytes moved since the last look.
    pub moved: bool,
    /// Since this time we wait for the peer.
    since: Option<Instant>,
}

impl Progress {
    /// The time at which the peer has delayed us for too long, if we wait for it.
    pub fn stalls_at(&mut self, now: Instant, waits: bool) -> Option<Instant> {
        if std::mem::take(&mut self.moved) || !waits {
            self.since = None;
        }
        waits.then(|| *self.since.get_or_insert(now) + STALL_MAX)
    }
}
