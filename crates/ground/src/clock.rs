//! The clock as a value. Core code receives the time as an argument; only the drivers read a clock.

use std::fmt;
use std::ops::{Add, Sub};

/// Nanoseconds since an origin that the driver chose; monotonic, unrelated to the calendar.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Instant(pub u64);

/// A span of nanoseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Duration(pub u64);

/// What has no room in a span is the longest span.
impl Duration {
    pub const fn from_micros(micros: u64) -> Duration {
        Duration(micros.saturating_mul(1_000))
    }

    pub const fn from_millis(millis: u64) -> Duration {
        Duration(millis.saturating_mul(1_000_000))
    }

    pub const fn from_secs(seconds: u64) -> Duration {
        Duration(seconds.saturating_mul(1_000_000_000))
    }

    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Instant {
    /// The span since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, span: Duration) -> Instant {
        Instant(self.0.saturating_add(span.0))
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, span: Duration) -> Instant {
        Instant(self.0.saturating_sub(span.0))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            nanos if nanos < 1_000 => write!(f, "{nanos} ns"),
            nanos if nanos < 1_000_000 => write!(f, "{:.1} us", nanos as f64 / 1e3),
            nanos if nanos < 1_000_000_000 => write!(f, "{:.1} ms", nanos as f64 / 1e6),
            nanos => write!(f, "{:.1} s", nanos as f64 / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_that_is_too_long_is_the_longest() {
        let day = Duration::from_secs(86400);
        for long in [
            Duration::from_secs(18_446_744_074),
            Duration::from_secs(u64::MAX),
            Duration::from_millis(u64::MAX),
            Duration::from_micros(u64::MAX / 2),
        ] {
            assert!(long > day, "{long}");
        }
    }
}
