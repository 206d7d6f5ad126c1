use super::*;
use crate::report::tests::cell;

fn estimate(value: f64, margin: f64) -> Estimate {
    Estimate { value, margin: Some(margin) }
}

#[test]
fn a_figure_is_below_another_beyond_both_intervals_only() {
    for (low, high, is_below, why) in [
        (estimate(94.0, 3.0), estimate(100.0, 4.0), true, "6 apart, 5 explained"),
        (estimate(96.0, 3.0), estimate(100.0, 4.0), false, "4 apart, 5 explained"),
        (estimate(97.0, 0.5), estimate(100.0, 0.5), true, "3 % are a difference where the interval is narrow"),
        (estimate(80.0, 30.0), estimate(100.0, 4.0), false, "20 % are none where it is wide"),
        (estimate(99.5, 0.0), estimate(100.0, 0.0), false, "less than a hundredth"),
        (estimate(100.0, 0.0), estimate(90.0, 0.0), false, "it is above"),
        (Estimate { value: 96.0, margin: None }, estimate(100.0, 0.0), false, "no interval: a twentieth"),
        (Estimate { value: 94.0, margin: None }, estimate(100.0, 0.0), true, "no interval: a twentieth"),
    ] {
        assert_eq!(low.is_below(high), is_below, "{why}");
    }
    assert!(estimate(9.4, 0.3).times(10.0).is_below(estimate(100.0, 4.0)));
}

#[test]
fn an_interval_comes_from_the_rounds() {
    let mut run = cell(0, 1, 1000.0, 900).runs.remove(0);
    assert_eq!(Estimate::of_run(&run, |round| round.rate).margin, Some(0.0));
    for (at, round) in run.rounds.iter_mut().enumerate() {
        round.rate += if at % 2 == 0 { 100.0 } else { -100.0 };
    }
    let found = Estimate::of_run(&run, |round| round.rate);
    assert_eq!(found.margin, margin_of(&run.rates()));
    assert!(found.margin.unwrap() > 50.0);
    run.rounds.truncate(1);
    assert_eq!(Estimate::of_run(&run, |round| round.rate).margin, None);
}
