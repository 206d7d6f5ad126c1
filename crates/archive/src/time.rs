//! Time and chance as the caller gives them. Nothing in the archive reads a clock or asks the system for entropy.

use std::fmt;

use stele_ground::Instant;

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, minicbor::Encode, minicbor::Decode)]
#[cbor(transparent)]
pub struct Timestamp(#[n(0)] pub u64);

pub(crate) const SECOND: u64 = 1_000;
pub(crate) const DAY: u64 = 86_400 * SECOND;

impl Timestamp {
    /// The last moment that faces can write as a date of four-digit years: 9999-12-31T23:59:59.999Z. No retention ends later.
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

    /// Year, month, day, hour, minute, second, millisecond in UTC (proleptic Gregorian).
    pub fn civil(self) -> (u64, u64, u64, u64, u64, u64, u64) {
        let (days, in_day) = (self.0 / DAY, self.0 % DAY);
        // Days since 0000-03-01, in eras of 400 years; the year starts in March, so that the leap day is its last.
        let shifted = days + 719_468;
        let era = shifted / 146_097;
        let day_of_era = shifted % 146_097;
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        (year, month, day, in_day / 3_600_000, in_day / 60_000 % 60, in_day / 1_000 % 60, in_day % 1_000)
    }
}

/// RFC 3339 in UTC, with milliseconds.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day, hour, minute, second, millisecond) = self.civil();
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
    }
}

/// Both clocks at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// Counts real elapsed time since an origin of this process; never set.
    pub monotonic: Instant,
    /// What the system believes the time of day is; may be set by anyone with the right to.
    pub wall: Timestamp,
}

/// What the archive needs from outside: the system's in production, the world's under simulation.
pub trait Surroundings: Send + Sync + 'static {
    fn now(&self) -> Reading;

    /// Fills with bytes that nobody can guess: they become keys.
    fn entropy(&self, into: &mut [u8]);
}

#[cfg(test)]
mod tests;
