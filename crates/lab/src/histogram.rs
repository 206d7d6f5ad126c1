//! Response times without clipping: the exact mean, and percentiles to within 1.6 %.

use stele_ground::Duration;

/// Each power of two is cut into so many buckets.
const CUTS: u64 = 64;

/// Counts by logarithmic bucket, each cut linearly (the HDR scheme). Any 64-bit span has a bucket.
#[derive(Clone, Default, Debug)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    longest: Duration,
}

/// Spans of one that is read: those of 65,536 together can still be counted.
const COUNT_MAX: u64 = 1 << 48;

/// By which a share may be wrong because it was a percentage.
const SHARE_ERROR: f64 = 1e-12;

fn bucket_of(span: u64) -> usize {
    if span < CUTS {
        return span as usize;
    }
    let power = u64::from(span.ilog2() - CUTS.ilog2());
    ((power + 1) * CUTS + ((span >> power) - CUTS)) as usize
}

/// The largest span of the bucket.
fn upper_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < CUTS {
        return bucket;
    }
    let (power, place) = (bucket / CUTS - 1, bucket % CUTS);
    (((CUTS + place + 1) as u128) << power).saturating_sub(1).min(u128::from(u64::MAX)) as u64
}

impl Histogram {
    pub fn record(&mut self, span: Duration) {
        self.record_many(span, 1);
    }

    fn record_many(&mut self, span: Duration, count: u64) {
        let bucket = bucket_of(span.0);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += count;
        self.count += count;
        self.sum += u128::from(span.0) * u128::from(count);
        self.longest = self.longest.max(span);
    }

    pub fn merge(&mut self, other: &Histogram) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.longest = self.longest.max(other.longest);
    }

    /// Those that are longer: buckets of which any span is, each taken at its end.
    pub fn beyond(&self, limit: Duration) -> Histogram {
        let mut beyond = Histogram::default();
        for (span, count) in self.spans().filter(|(span, _)| *span > limit) {
            beyond.record_many(span, count);
        }
        beyond
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// Zero when nothing was recorded.
    pub fn mean(&self) -> Duration {
        Duration((self.sum / u128::from(self.count.max(1))) as u64)
    }

    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The buckets that hold something, by number, with their counts.
    pub fn counts(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.buckets.iter().copied().enumerate().filter(|(_, count)| *count > 0)
    }

    /// The largest spans of the buckets that hold something, with their counts.
    pub fn spans(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.counts().map(|(bucket, count)| (Duration(upper_of(bucket)).min(self.longest), count))
    }

    /// The histogram that `counts`, `sum` and `longest` describe; none where they cannot belong
    /// together.
    pub fn from_counts(counts: &[(usize, u64)], sum: u128, longest: Duration) -> Option<Histogram> {
        let mut histogram = Histogram { sum, longest, ..Histogram::default() };
        for (bucket, count) in counts {
            if *bucket > bucket_of(u64::MAX) {
                return None;
            }
            if histogram.buckets.len() <= *bucket {
                histogram.buckets.resize(bucket + 1, 0);
            }
            histogram.buckets[*bucket] = histogram.buckets[*bucket].checked_add(*count)?;
            histogram.count = histogram.count.checked_add(*count).filter(|count| *count <= COUNT_MAX)?;
        }
        let spans = sum <= u128::from(histogram.count) * u128::from(longest.0);
        let last = counts.iter().map(|(bucket, _)| *bucket).max();
        let fits = last.is_none_or(|last| bucket_of(longest.0) == last);
        (spans && fits).then_some(histogram)
    }

    /// Each bucket's largest span, with the share of all that do not exceed it: a cumulative
    /// distribution.
    pub fn distribution(&self) -> Vec<(Duration, f64)> {
        let mut seen = 0;
        let mut shares = Vec::new();
        for (bucket, count) in self.counts() {
            seen += count;
            shares.push((Duration(upper_of(bucket)).min(self.longest), seen as f64 / self.count as f64));
        }
        shares
    }

    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// The span that `share` (0 to 1) of all do not exceed, rounded up to its bucket's end.
    pub fn percentile(&self, share: f64) -> Duration {
        // 99.9 / 100 is a little more than 0.999: of 1,000 spans that would be the longest one.
        let wanted = ((self.count as f64 * share * (1.0 - SHARE_ERROR)).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration(upper_of(bucket)).min(self.longest);
            }
        }
        self.longest
    }
}

#[cfg(test)]
mod tests;
