use super::*;
use crate::job::Job;
use crate::report::tests::cell;

fn cells() -> Vec<JobCell> {
    Job::parse("[workload]\nread = [100, 0]\n[load]\noutstanding = 4\nworkers = 1").unwrap().cells().unwrap()
}

/// A record of each run, its rate by side and by the time that has passed.
fn measured(rate: impl Fn(bool, usize) -> f64) -> Vec<CellRecord> {
    let runs = expanded(&cells(), 6, 1).unwrap();
    let of = |(number, run): (usize, &JobCell)| {
        let rate = rate(is_against(&run.axes), number);
        CellRecord { axes: run.axes.clone(), ..cell(number, 4, rate, (4e6 / rate) as u64) }
    };
    runs.iter().enumerate().map(of).collect()
}

#[test]
fn each_block_has_both_sides_twice_and_both_orders_occur() {
    let runs = expanded(&cells(), 20, 1).unwrap();
    let sides: Vec<bool> = runs.iter().map(|run| is_against(&run.axes)).collect();
    let orders: Vec<&[bool]> = sides.chunks(4).collect();
    assert_eq!(orders.len(), 40);
    let (abba, baab) = ([false, true, true, false], [true, false, false, true]);
    let count = |order: [bool; 4]| orders.iter().filter(|block| **block == order).count();
    assert_eq!(count(abba) + count(baab), 40);
    assert!(count(abba) > 8 && count(baab) > 8, "{}", count(abba));
    // The same accesses on both sides of a block, others in the next.
    assert_eq!(runs[0].setup.seed, runs[3].setup.seed);
    assert_ne!(runs[0].setup.seed, runs[4].setup.seed);
}

#[test]
fn an_even_drift_that_is_larger_than_the_difference_hides_nothing() {
    // 10 % between the sides, while all loses 2 % with each run; a little noise.
    let noise = |number: usize| 1.0 + 0.002 * ((number * 7919 % 11) as f64 - 5.0) / 5.0;
    let drift = |number: usize| 0.98f64.powi(number as i32);
    let found =
        judged(&measured(|against, number| 10_000.0 * drift(number) * noise(number) * if against { 1.1 } else { 1.0 }));
    assert_eq!(found.len(), 2);
    for cell in &found {
        let (low, high) = cell.rate.interval.unwrap();
        assert!(low < 1.1 && 1.1 < high && high - low < 0.02 && cell.rate.differs(), "{cell:?}");
        assert!(cell.response.differs() && cell.response.ratio < 1.0 && cell.blocks == 6, "{cell:?}");
    }
}

#[test]
fn where_nothing_differs_but_chance_no_difference_is_shown() {
    let noise = |number: usize| 1.0 + 0.1 * ((number * 7919 % 23) as f64 - 11.0) / 11.0;
    for cell in judged(&measured(|_, number| 10_000.0 * noise(number))) {
        assert!(!cell.rate.differs() && (cell.rate.ratio - 1.0).abs() < 0.1, "{cell:?}");
    }
}

#[test]
fn the_figures_of_both_sides_have_the_ratio_that_is_shown() {
    // B is as fast as A, and in the first block a hundred times as fast.
    let rate = |against: bool, number: usize| if against && number < 3 { 100_000.0 } else { 1000.0 };
    let cell = &judged(&measured(rate))[0];
    for ((a, b), ratio) in [(cell.rates, cell.rate.ratio), (cell.responses, cell.response.ratio)] {
        assert!((b / a / ratio - 1.0).abs() < 1e-9, "{cell:?}");
    }
    assert!(cell.rate.ratio > 1.1 && cell.rate.ratio < 3.0, "{cell:?}");
}

#[test]
fn a_block_that_is_not_whole_does_not_count() {
    let mut runs = measured(|against, _| if against { 200.0 } else { 100.0 });
    runs.truncate(4 * 3 + 2);
    let found = judged(&runs);
    assert_eq!((found.len(), found[0].blocks, found[0].rates), (1, 3, (100.0, 200.0)));
}

#[test]
fn a_block_with_a_run_that_failed_or_was_stopped_does_not_count() {
    let fail = |cell: &mut CellRecord| cell.failed = Some("the target failed".into());
    let stop = |cell: &mut CellRecord| cell.runs[0].stopped = true;
    for spoil in [&fail as &dyn Fn(&mut CellRecord), &stop] {
        let mut runs = measured(|against, _| if against { 200.0 } else { 100.0 });
        // The last one of the third block: what it counted until then is of another time.
        runs[11].runs[0].rounds.iter_mut().for_each(|round| round.rate /= 10.0);
        spoil(&mut runs[11]);
        let found = judged(&runs);
        assert_eq!((found[0].blocks, found[0].rates), (5, (100.0, 200.0)));
        assert_eq!(found[1].blocks, 6);
    }
}

#[test]
fn too_few_blocks_and_searches_are_refused() {
    assert!(expanded(&cells(), 2, 1).unwrap_err().to_string().contains("--blocks 2"));
    let search = Job::parse("[search]\nresponse = \"20ms\"").unwrap().cells().unwrap();
    assert!(expanded(&search, 5, 1).unwrap_err().to_string().contains("stele lab diff"));
}
