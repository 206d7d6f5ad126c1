//! A round as it is kept, with its histograms.

use serde::{Deserialize, Serialize};
use stele_ground::Duration;

use super::{BILLIONTHS, THOUSANDTHS, rounded};
use crate::histogram::Histogram;
use crate::live::run::Round;

#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct RoundRecord {
    pub seconds: f64,
    /// Accesses, and bytes, a second.
    pub rate: f64,
    pub read_bytes: f64,
    pub written_bytes: f64,
    pub read: HistogramRecord,
    pub write: HistogramRecord,
    pub lag_ns: u64,
    pub held_back: u64,
    /// Of a trace with a clock: how long after the times that it asks for accesses started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<HistogramRecord>,
    /// Seconds of processor time.
    pub cpu_own: f64,
    pub cpu_machine: f64,
    /// The longest time in which nothing was answered that ended in this round, or at its end had
    /// not; kept from 250 ms on.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub gap_ns: u64,
}

impl RoundRecord {
    pub(super) fn of(round: &Round) -> RoundRecord {
        RoundRecord {
            seconds: rounded(round.span, BILLIONTHS),
            rate: rounded(round.rate, THOUSANDTHS),
            read_bytes: round.read_bytes_rate.round(),
            written_bytes: round.written_bytes_rate.round(),
            read: HistogramRecord::of(&round.read),
            write: HistogramRecord::of(&round.write),
            lag_ns: round.lag.0,
            held_back: round.held_back,
            late: (round.late.count() > 0).then(|| HistogramRecord::of(&round.late)),
            cpu_own: rounded(round.cpu_own, BILLIONTHS),
            cpu_machine: rounded(round.cpu_machine, BILLIONTHS),
            gap_ns: round.gap.0,
        }
    }
}

/// Buckets that hold something, with their counts. Bucket n below 64 is n nanoseconds; above, each
/// power of two has 64.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct HistogramRecord {
    pub sum_ns: u64,
    pub longest_ns: u64,
    pub counts: Vec<(usize, u64)>,
}

impl HistogramRecord {
    pub fn of(histogram: &Histogram) -> HistogramRecord {
        HistogramRecord {
            sum_ns: u64::try_from(histogram.sum()).unwrap_or(u64::MAX),
            longest_ns: histogram.longest().0,
            counts: histogram.counts().collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    pub(crate) fn histogram(&self) -> Option<Histogram> {
        Histogram::from_counts(&self.counts, u128::from(self.sum_ns), Duration(self.longest_ns))
    }
}
