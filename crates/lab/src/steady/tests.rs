use super::*;

/// So many rates around 1000, with noise of that share (a bell of twelve throws), each like the one
/// before by `memory`, and from `step` on times `factor`.
fn rates(seed: u64, count: usize, noise: f64, memory: f64, (step, factor): (usize, f64)) -> Vec<f64> {
    let mut dice = Dice::new(seed);
    let mut last = 0.0;
    let of = |at: usize| {
        let throw = (0..12).map(|_| dice.fraction()).sum::<f64>() - 6.0;
        last = memory * last + (1.0 - memory * memory).sqrt() * throw;
        (1000.0 + 1000.0 * noise * last) * if at >= step { factor } else { 1.0 }
    };
    (0..count).map(of).collect()
}

const NONE: (usize, f64) = (usize::MAX, 1.0);

/// The share of seeds for which a change is found.
fn found(seeds: u64, of: impl Fn(u64) -> Vec<f64>) -> f64 {
    (0..seeds).filter(|seed| change(&of(*seed)).is_some()).count() as f64 / seeds as f64
}

#[test]
fn rounds_that_drift_are_not_steady() {
    assert!(is_steady(&[100.0, 102.0, 99.0, 101.0, 100.0]));
    for (rates, why) in [
        (&[100.0, 100.0, 100.0, 100.0][..], "4 rounds are too few"),
        (&[0.0; 3], "nothing was answered"),
        (&[0.0; 12], "nothing was answered"),
        (&[100.0, 103.0, 106.0, 109.0, 113.0], "moves by 12 %"),
        (&[899.8, 1000.0, 1000.0, 1000.0, 1100.2], "is 20.1 % of their mean"),
        (&[100.0, 90.0, 115.0, 100.0, 100.0], "range of the last 5 rounds is 25 %"),
        (&[130.0, 131.0, 129.0, 130.0, 130.0, 100.0, 101.0, 99.0, 100.0, 100.0], "from 130 to 100 after round 5"),
    ] {
        let said = shortfall(rates).unwrap_or_default();
        assert!(said.contains(why), "{rates:?}: {said}");
    }
}

#[test]
fn rounds_without_an_answer_keep_no_rule() {
    assert!(keeps_rule(&[1000.0; ROUNDS]) && !keeps_rule(&[0.0; ROUNDS]));
    assert_eq!(shortfall(&[0.0; ROUNDS]).as_deref(), Some("nothing was answered"));
}

#[test]
fn a_step_is_found_where_it_is() {
    for (count, step, factor) in [(10, 5, 0.8), (20, 8, 0.8), (20, 12, 1.25), (30, 20, 0.85), (400, 300, 0.8)] {
        let all = |seed| rates(seed, count, 0.03, 0.0, (step, factor));
        let share = found(200, all);
        assert!(share > 0.95, "a step by {factor} at {step} of {count} is found in {share} of the runs");
        let places: Vec<usize> = (0..200).filter_map(|seed| change(&all(seed))).map(|change| change.round).collect();
        let near = places.iter().filter(|place| place.abs_diff(step) <= (count / 6).max(1)).count();
        // The ranks lean towards the middle where the noise is not far below the step.
        assert!(near * 100 > places.len() * 95, "of {count}: {places:?}");
    }
}

#[test]
fn without_a_step_a_change_is_rarely_found() {
    // Noise so wide that the size alone rules nothing out.
    for count in [8, 10, 15, 30, 200] {
        let share = found(1000, |seed| rates(seed, count, 0.4, 0.0, NONE));
        println!("{count} rounds of wide noise: {share}");
        assert!(share <= CHANCE + 0.02, "{share} of the runs of {count} rounds");
    }
    // As quiet as storage is when it is steady: neighbours alike, which the shuffling does not
    // know.
    for memory in [0.0, 0.5, 0.8] {
        let share = found(1000, |seed| rates(seed, 20, 0.04, memory, NONE));
        println!("neighbours alike by {memory}: {share}");
        assert!(share <= 0.01, "{share} of the runs whose neighbours are alike by {memory}");
    }
}

#[test]
fn one_slow_round_and_equal_rounds_are_no_change() {
    let mut slow = vec![100.0; 12];
    assert_eq!(change(&slow), None);
    slow[6] = 1.0;
    assert_eq!(change(&slow), None);
    assert_eq!((change(&[]), change(&[0.0; 9]), change(&[5.0])), (None, None, None));
}

#[test]
fn few_rounds_show_no_change_however_large() {
    assert_eq!(change(&[9.0, 9.0, 9.0, 1.0, 1.0, 1.0, 1.0]), None);
    assert!(change(&[9.0, 9.0, 9.0, 9.0, 1.0, 1.0, 1.0, 1.0]).is_some());
}

#[test]
fn a_dip_of_six_rounds_is_found_where_it_is_and_one_slow_round_is_none() {
    let dips = |seed| {
        let mut rates = rates(seed, 20, 0.02, 0.0, NONE);
        rates.iter_mut().skip(7).take(6).for_each(|rate| *rate *= 0.83);
        rates
    };
    let near = |dip: &Dip| (6..=8).contains(&dip.first) && (12..=14).contains(&(dip.first + dip.rounds));
    let found: Vec<Dip> = (0..200).filter_map(|seed| dip(&dips(seed))).collect();
    let placed = found.iter().filter(|dip| near(dip)).count();
    assert!(found.len() == 200 && placed > 170, "{} found, {placed} to the round, of 200", found.len());
    let said = shortfall(&dips(1)).unwrap_or_default();
    assert!(said.contains("a dip: the rate was"), "{said}");
    let slow = |seed| {
        let mut rates = rates(seed, 20, 0.02, 0.0, NONE);
        rates[9] *= 0.5;
        rates
    };
    let share = (0..200).filter(|seed| dip(&slow(*seed)).is_some()).count();
    assert!(share < 6, "{share} of 200");
}

#[test]
fn noise_is_rarely_called_a_dip() {
    for (count, noise, memory, most) in
        [(10, 0.05, 0.0, 0.06), (30, 0.05, 0.0, 0.06), (60, 0.1, 0.0, 0.06), (30, 0.03, 0.6, 0.06)]
    {
        let share =
            (0..300).filter(|seed| dip(&rates(*seed, count, noise, memory, NONE)).is_some()).count() as f64 / 300.0;
        assert!(share <= most, "{count} rounds, noise {noise}, memory {memory}: {share}");
    }
}

#[test]
fn a_second_without_an_answer_is_a_gap_unless_answers_are_that_rare() {
    let steady = [1000.0; 10];
    let gaps = |longest: u64| (0..10).map(move |at| Duration(if at == 4 { longest } else { 0 }));
    assert_eq!(shortfall_with_gaps(&steady, gaps(900_000_000)), None);
    let said = shortfall_with_gaps(&steady, gaps(1_100_000_000)).unwrap_or_default();
    assert!(said.contains("until round 5"), "{said}");
    assert_eq!(shortfall_with_gaps(&[2.0; 10], gaps(1_100_000_000)), None);
    // Where nothing is answered at all, every gap of a second is one.
    let said = longest_gap(&[0.0; 10], gaps(1_100_000_000)).unwrap_or_default();
    assert!(said.contains("until round 5"), "{said}");
    assert!(shortfall_with_gaps(&[0.0; 10], gaps(0)).unwrap_or_default().contains("nothing was answered"));
}
