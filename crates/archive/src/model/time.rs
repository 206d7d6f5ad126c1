//! Time and entropy as the caller gives them. The archive reads no clock and asks the system for no
//! entropy.

use std::fmt;

use stele_ground::{Instant, calendar};

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, minicbor::Encode, minicbor::Decode)]
#[cbor(transparent)]
pub struct Timestamp(#[n(0)] pub u64);

pub(crate) const SECOND: u64 = 1_000;
pub(crate) const DAY: u64 = 86_400 * SECOND;

impl Timestamp {
    /// The last moment that a date of four-digit years can state: 9999-12-31T23:59:59.999Z. No
    /// retention ends later.
    pub const LATEST: Timestamp = Timestamp(253_402_300_799_999);

    pub const fn from_secs(seconds: u64) -> Timestamp {
        Timestamp(seconds.saturating_mul(SECOND))
    }

    pub const fn seconds(self) -> u64 {
        self.0 / SECOND
    }

    pub const fn plus_days(self, days: u64) -> Timestamp {
        Timestamp(self.0.saturating_add(days.saturating_mul(DAY)))
    }
}

/// RFC 3339 in UTC, with milliseconds; no later than [`Timestamp::LATEST`].
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = (*self).min(Timestamp::LATEST);
        let moment = calendar::moment(at.seconds());
        write!(f, "{}.{:03}Z", moment.trim_end_matches('Z'), at.0 % SECOND)
    }
}

/// Both clocks at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// Real elapsed time since an origin of this process. It cannot be set.
    pub monotonic: Instant,
    /// The time of day according to the system. An administrator can set it.
    pub wall: Timestamp,
}

/// The source of time and entropy: the system in production, the simulated world in tests.
pub trait Surroundings: Send + Sync + 'static {
    fn now(&self) -> Reading;

    /// Fills the buffer with unpredictable bytes. They become keys.
    fn entropy(&self, into: &mut [u8]);
}

#[cfg(test)]
mod tests;
