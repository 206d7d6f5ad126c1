use super::*;

/// A queue that sustains so many a second; its response grows without end beyond, and as 1 / (1 -
/// load) before.
fn queue(sustained: f64, asked: u64) -> RateProbe {
    let load = asked as f64 / sustained;
    let millis = if load < 1.0 { 1.0 / (1.0 - load) } else { 1000.0 };
    let answered = (asked as f64).min(sustained);
    RateProbe { asked, answered, response: Duration((millis * 1e6) as u64), noise: 0.0 }
}

fn goal(start: u64) -> RateGoal {
    RateGoal { response: Duration::from_millis(5), start, rate_min: 1, rate_max: 1_000_000, probes_max: 24 }
}

#[test]
fn the_highest_rate_is_one_that_was_measured_twice_and_kept_the_objective() {
    // 5 ms are reached at 80 % of what is sustained.
    for (sustained, start) in [(10_000.0, 100), (10_000.0, 1_000_000), (50.0, 100), (500_000.0, 100), (10_000.0, 8_000)]
    {
        let mut tried = Vec::new();
        let found = highest_rate(goal(start), |rate| {
            tried.push(rate);
            Ok(queue(sustained, rate))
        });
        let found = found.unwrap();
        let (within, beyond) = (found.within.unwrap(), found.beyond.unwrap());
        let limit = sustained * 0.8;
        assert!(within as f64 <= limit && beyond as f64 > limit, "{sustained} from {start}: {found:?}");
        assert!(beyond as f64 <= (within as f64 * CLOSE).max(within as f64 + 1.0), "{found:?}");
        assert_eq!(tried.iter().filter(|rate| **rate == within).count(), 2, "{tried:?}");
        assert!(tried.len() <= 18, "{} probes: {tried:?}", tried.len());
    }
}

#[test]
fn a_rate_that_kept_the_objective_by_chance_is_not_the_answer() {
    let mut lucky = true;
    let found = highest_rate(goal(100), |rate| {
        let good = queue(10_000.0, 100).response;
        let by_chance = rate == 9_700 && std::mem::take(&mut lucky);
        let probe = queue(10_000.0, rate);
        Ok(if by_chance { RateProbe { response: good, answered: rate as f64, ..probe } } else { probe })
    });
    let found = found.unwrap();
    assert!(!lucky && found.within.unwrap() <= 8_000, "{found:?}");
}

#[test]
fn a_target_that_answers_less_than_is_asked_misses_the_objective_however_fast() {
    let shedding = |asked: u64| RateProbe { response: Duration(1000), ..queue(10_000.0, asked) };
    let found = highest_rate(goal(100), |rate| Ok(shedding(rate))).unwrap();
    assert!((9_900..=10_210).contains(&found.within.unwrap()), "{found:?}");
}

#[test]
fn an_objective_that_is_always_or_never_kept_ends_the_search() {
    let at = |response| move |asked| Ok(RateProbe { response, ..queue(1e9, asked) });
    let slow = highest_rate(goal(100), at(Duration::from_millis(6))).unwrap();
    assert_eq!((slow.within, slow.beyond, slow.ending), (None, Some(1), Ending::AlwaysExceeded));
    let few = highest_rate(RateGoal { rate_min: 30, ..goal(100) }, at(Duration::from_millis(6))).unwrap();
    assert_eq!((few.beyond, few.ending), (Some(30), Ending::AlwaysExceeded));
    let second = Duration::from_secs(1);
    assert_eq!((rate_min(None, second), rate_min(Some(0.99), second)), (5, 500));
    let fast = highest_rate(goal(100), at(Duration::from_millis(1))).unwrap();
    assert_eq!((fast.within, fast.ending), (Some(1_000_000), Ending::NeverExceeded));
    let few = highest_rate(RateGoal { probes_max: 2, ..goal(100) }, at(Duration::from_millis(1))).unwrap();
    assert_eq!((few.within, few.ending), (Some(400), Ending::OutOfProbes));
    assert_eq!(highest_rate(goal(1), |_| Err("the target is gone".into())).unwrap_err(), "the target is gone");
}
