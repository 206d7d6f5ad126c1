use stele_ground::Dice;

use super::*;

#[test]
fn percentiles_are_within_a_bucket_of_the_sorted_truth() {
    let mut dice = Dice::new(1);
    let mut spans: Vec<u64> = (0..5_000).map(|_| dice.roll() >> dice.below(64)).collect();
    let mut histogram = Histogram::default();
    spans.iter().for_each(|span| histogram.record(Duration(*span)));
    spans.sort_unstable();
    let sum: u128 = spans.iter().map(|span| u128::from(*span)).sum();
    assert_eq!(u128::from(histogram.mean().0), sum / 5_000);
    for share in [0.001, 0.5, 0.9, 0.99, 0.999, 1.0] {
        let truth = spans[((spans.len() as f64 * share).ceil() as usize).max(1) - 1];
        let ours = histogram.percentile(share).0;
        assert!(ours >= truth && (ours - truth) as f64 <= truth as f64 / 60.0, "{share}: {ours} against {truth}");
    }
    assert_eq!(histogram.longest().0, spans[spans.len() - 1]);
}

#[test]
fn buckets_follow_each_other_without_a_gap() {
    let mut last = None;
    for power in 0..64 {
        for span in [(1u64 << power) - 1, 1 << power, (1 << power) + (1 << power) / 3] {
            let bucket = bucket_of(span);
            assert!(upper_of(bucket) >= span && last.is_none_or(|last| bucket >= last), "{span}");
            assert!(bucket == 0 || upper_of(bucket - 1) < span, "{span}");
            last = Some(bucket);
        }
    }
    assert_eq!(upper_of(bucket_of(u64::MAX)), u64::MAX);
}

#[test]
fn a_merged_histogram_is_that_of_all() {
    let (mut left, mut right, mut all) = (Histogram::default(), Histogram::default(), Histogram::default());
    for span in 1..100u64 {
        let part = if span % 3 == 0 { &mut left } else { &mut right };
        part.record(Duration(span * span * 1000));
        all.record(Duration(span * span * 1000));
    }
    left.merge(&right);
    assert_eq!((left.count(), left.mean(), left.percentile(0.9)), (all.count(), all.mean(), all.percentile(0.9)));
}

#[test]
fn a_histogram_from_its_counts_is_the_same_and_nonsense_is_refused() {
    let mut histogram = Histogram::default();
    (1..500u64).for_each(|span| histogram.record(Duration(span * span * 37)));
    let counts: Vec<(usize, u64)> = histogram.counts().collect();
    let again = Histogram::from_counts(&counts, histogram.sum(), histogram.longest()).unwrap();
    for share in [0.1, 0.5, 0.99, 1.0] {
        assert_eq!(again.percentile(share), histogram.percentile(share));
    }
    assert_eq!((again.count(), again.mean()), (histogram.count(), histogram.mean()));
    assert_eq!(histogram.distribution().last().unwrap().1, 1.0);
    let longest = histogram.longest();
    for (counts, sum, longest) in [
        (vec![(usize::MAX, 1)], 1, longest),
        (vec![(1, u64::MAX), (2, 2)], 1, longest),
        (counts.clone(), u128::MAX, longest),
        (counts, 1, Duration(1)),
    ] {
        assert!(Histogram::from_counts(&counts, sum, longest).is_none());
    }
}

/// 99.9 / 100 is 0.9990000000000001, and a thousandth of so many spans is a whole number.
#[test]
fn a_percentage_made_a_share_asks_for_no_span_more() {
    for count in [1_000u64, 20_000, 1_000_000] {
        let mut histogram = Histogram::default();
        histogram.record_many(Duration(50), count - count / 1000);
        histogram.record_many(Duration(1_000_000), count / 1000);
        for percent in [50.0, 99.0, 99.9] {
            assert_eq!(histogram.percentile(percent / 100.0), Duration(50), "{percent} of {count}");
        }
        assert!(histogram.percentile(99.91 / 100.0) > Duration(50), "{count}");
    }
}
