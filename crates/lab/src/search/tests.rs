use super::*;
use crate::histogram::Histogram;

/// A queue with a known law: the response to a load.
fn probe(load: u64, response_millis: impl Fn(f64) -> f64) -> Probe {
    let millis = response_millis(load as f64);
    let mut response = Histogram::default();
    response.record(Duration((millis * 1e6) as u64));
    Probe { outstanding: load, rate: load as f64 / millis * 1000.0, response, rates: Vec::new(), steady: true }
}

fn goal(start: u64) -> Goal {
    Goal {
        response: Duration::from_millis(20),
        statistic: Statistic::Mean,
        start,
        load_max: 10_000,
        probes_max: 12,
        of_rates: false,
    }
}

#[test]
fn the_highest_load_is_found_from_anywhere() {
    // 1 ms when idle, 500 a second at most: 20 ms are reached where the load is 500 * 0.019.
    let law = |load: f64| 1.0 + load * 2.0;
    for start in [1, 9, 10, 300, 10_000] {
        let found = highest(goal(start), |load| Ok(probe(load, law))).unwrap();
        assert!((found.load - 9.5).abs() < 0.1, "from {start}: {found:?}");
        assert!((found.rate - 475.0).abs() < 1.5, "from {start}: {}", found.rate);
        assert!(found.probes <= 9, "{} probes from {start}", found.probes);
    }
}

#[test]
fn a_knee_is_found_between_the_probes_around_it() {
    let law = |load: f64| if load < 800.0 { 5.0 } else { 5.0 + (load - 800.0) * 0.3 };
    let found = highest(goal(100), |load| Ok(probe(load, law))).unwrap();
    assert!((found.load - 850.0).abs() < 5.0, "{found:?}");
}

#[test]
fn storage_that_is_always_too_slow_or_always_fast_enough_ends_the_search() {
    let slow = highest(goal(100), |load| Ok(probe(load, |_| 50.0))).unwrap();
    assert!(slow.within.is_none() && slow.load == 1.0, "{slow:?}");
    let fast = highest(goal(100), |load| Ok(probe(load, |_| 1.0))).unwrap();
    assert!(fast.beyond.is_none() && fast.load == 10_000.0, "{fast:?}");
}

#[test]
fn a_probe_that_fails_ends_the_search_with_its_reason() {
    assert_eq!(highest(goal(1), |_| Err("the target is gone".into())).unwrap_err(), "the target is gone");
}

#[test]
fn the_margin_is_students_for_few_values_and_none_for_one() {
    // Mean 10, deviation 1.5811, five values: 2.776 * 1.5811 / sqrt(5).
    let margin = margin_of(&[8.0, 9.0, 10.0, 11.0, 12.0]).unwrap();
    assert!((margin - 1.963).abs() < 0.001, "{margin}");
    assert_eq!(margin_of(&[5.0]), None);
    assert_eq!(margin_of(&[5.0, 5.0]), Some(0.0));
    // Deviation 1.00844, sixty values: 2.0010 * 1.00844 / sqrt(60). The normal quantile gives
    // 0.2552.
    let many: Vec<f64> = (0..60).map(|at| if at % 2 == 0 { 9.0 } else { 11.0 }).collect();
    let margin = margin_of(&many).unwrap();
    assert!((margin / 0.2605 - 1.0).abs() < 0.002, "{margin}");
}

#[test]
fn a_target_that_answers_nothing_is_always_too_slow() {
    let silent = |load: u64| Probe { response: Histogram::default(), rate: 0.0, ..probe(load, |_| 1.0) };
    let found = highest(goal(100), |load| Ok(silent(load))).unwrap();
    assert_eq!((found.ending, found.rate), (Ending::AlwaysExceeded, 0.0), "{found:?}");
    // It hangs beyond a load.
    let found = highest(goal(100), |load| Ok(if load > 40 { silent(load) } else { probe(load, |_| 1.0) })).unwrap();
    assert!(found.within.is_some_and(|within| within.outstanding <= 40) && found.rate.is_finite(), "{}", found.rate);
}
