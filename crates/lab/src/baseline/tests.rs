use stele_ground::Duration;

use super::*;
use crate::histogram::Histogram;
use crate::live::read_back::ReadBack;
use crate::live::wrong::Wrong;
use crate::record::HistogramRecord;
use crate::report::tests::{cell, recorded};

/// A cell of ten rounds of about that rate, which wander by that share of it.
fn wandering(number: usize, rate: f64, share: f64) -> CellRecord {
    let mut cell = cell(number, 4, rate, 1000);
    let round = cell.runs[0].rounds[0].clone();
    let at = |step: usize| rate * (1.0 + share * [0.0, 1.0, -1.0, 0.5, -0.5][step % 5]);
    cell.runs[0].rounds = (0..10).map(|step| RoundRecord { rate: at(step), ..round.clone() }).collect();
    cell
}

fn one(before: CellRecord, after: CellRecord, tolerance: f64) -> Checked {
    check(&recorded(vec![before]), &recorded(vec![after]), tolerance).remove(0)
}

#[test]
fn a_cell_is_kept_regressed_or_unclear_by_where_its_whole_interval_lies() {
    for (after, share, tolerance, wanted) in [
        (1000.0, 0.01, 0.05, Verdict::Kept),
        (1200.0, 0.01, 0.05, Verdict::Kept),
        (970.0, 0.01, 0.05, Verdict::Kept),
        (900.0, 0.01, 0.05, Verdict::Regressed),
        (990.0, 0.01, 0.005, Verdict::Unclear),
        (950.0, 0.01, 0.05, Verdict::Unclear),
        (940.0, 0.05, 0.05, Verdict::Unclear),
        (500.0, 0.05, 0.05, Verdict::Regressed),
    ] {
        let found = one(wandering(0, 1000.0, share), wandering(0, after, share), tolerance);
        assert_eq!(found.verdict, wanted, "{after} within {tolerance}: {found:?}");
        assert_eq!(found.why.is_empty(), wanted == Verdict::Kept, "{found:?}");
        assert!((found.ratio.unwrap() - after / 1000.0).abs() < 1e-6, "{found:?}");
    }
}

#[test]
fn a_cell_that_says_nothing_is_unclear_and_one_that_is_not_there_is_missing() {
    let good = || wandering(0, 1000.0, 0.01);
    let change = |change: fn(&mut CellRecord)| {
        let mut cell = good();
        change(&mut cell);
        cell
    };
    for (why, bad) in [
        ("not steady", change(|cell| cell.runs[0].rounds.truncate(2))),
        ("partial", change(|cell| cell.failed = Some("gone".into()))),
        ("partial", change(|cell| cell.runs[0].stopped = true)),
        ("void", change(|cell| cell.runs[0].lag_share = 0.5)),
        ("no run", change(|cell| cell.runs.clear())),
    ] {
        for (before, after, whose) in [(bad.clone(), good(), "the baseline"), (good(), bad.clone(), "the result")] {
            let found = one(before, after, 0.9);
            assert_eq!(found.verdict, Verdict::Unclear, "{why}: {found:?}");
            assert!(found.why.starts_with(whose) && found.why.contains(why), "{why}: {found:?}");
        }
    }
    let other = change(|cell| cell.name = "other".into());
    let found = check(&recorded(vec![good(), other]), &recorded(vec![good()]), 0.05);
    assert_eq!([found[0].verdict, found[1].verdict], [Verdict::Kept, Verdict::Missing]);
    assert_eq!((found[1].result, found[1].ratio), (None, None));
}

/// A load that is no axis is not in a cell's name.
#[test]
fn a_cell_of_another_load_is_unclear_however_fast_it_was() {
    let loaded = |outstanding: u32| {
        let mut cell = wandering(0, 1000.0 * f64::from(outstanding), 0.01);
        cell.runs[0].outstanding = Some(outstanding);
        cell
    };
    let found = one(loaded(1), loaded(32), 0.05);
    assert_eq!(found.verdict, Verdict::Unclear, "{found:?}");
    assert!(found.why.contains("1 outstanding in the baseline, 32 outstanding in the result"), "{found:?}");
    assert_eq!(one(loaded(32), loaded(32), 0.05).verdict, Verdict::Kept);
    let searched = |response_ns: u64| {
        let search = SearchRecord {
            response_ns,
            percentile: None,
            rate: 1000.0,
            margin: Some(1.0),
            outstanding: 4.0,
            steady: true,
            rate_asked: None,
            beyond: None,
            twice: None,
            open_end: None,
        };
        CellRecord { search: Some(search), ..wandering(0, 1000.0, 0.0) }
    };
    assert_eq!(one(searched(2_000_000), searched(2_000_000), 0.05).verdict, Verdict::Kept);
    let found = one(searched(2_000_000), searched(20_000_000), 0.05);
    assert!(found.why.contains("within 2.0 ms in the baseline, the highest load"), "{found:?}");
    assert_eq!(found.verdict, Verdict::Unclear);
}

#[test]
fn wrong_data_is_a_regression_however_fast_it_came() {
    let wrong = Wrong { sectors: 1, places: Vec::new() };
    let damaged = CellRecord { read_back: Some(ReadBack { bytes: 512, wrong }), ..wandering(0, 9000.0, 0.01) };
    assert_eq!(one(wandering(0, 1000.0, 0.01), damaged.clone(), 0.05).verdict, Verdict::Regressed);
    assert_eq!(one(damaged, wandering(0, 1000.0, 0.01), 0.05).verdict, Verdict::Unclear);
}

#[test]
fn an_open_loop_is_judged_by_its_responses() {
    let rated = |mean: u64| {
        let mut cell = wandering(0, 1000.0, 0.0);
        (cell.runs[0].outstanding, cell.runs[0].rate_asked) = (None, Some(1000.0));
        for (number, round) in cell.runs[0].rounds.iter_mut().enumerate() {
            let mut histogram = Histogram::default();
            (0..100).for_each(|_| histogram.record(Duration(mean + number as u64 % 2)));
            round.read = HistogramRecord::of(&histogram);
            round.write = HistogramRecord::default();
        }
        cell
    };
    for (after, wanted) in [(1000, Verdict::Kept), (800, Verdict::Kept), (1300, Verdict::Regressed)] {
        let found = one(rated(1000), rated(after), 0.05);
        assert_eq!((found.metric, found.verdict), (Metric::Response, wanted), "{found:?}");
    }
}

#[test]
fn what_is_written_for_others_holds_every_cell_and_escapes_their_names() {
    let named = |name: &str, rate: f64| CellRecord { name: name.into(), ..wandering(0, rate, 0.01) };
    let before =
        recorded(vec![named("a <&> \"b\" | `c`\u{1b}", 1000.0), named("worse", 1000.0), named("gone", 1000.0)]);
    let after = recorded(vec![named("a <&> \"b\" | `c`\u{1b}", 1000.0), named("worse", 500.0)]);
    let checked = check(&before, &after, 0.05);
    let xml = junit(&checked, "r.lab");
    assert!(xml.contains("tests=\"3\" failures=\"2\" errors=\"0\""), "{xml}");
    assert!(xml.contains("name=\"a &lt;&amp;&gt; &quot;b&quot; | `c`\u{fffd}\"/>"), "{xml}");
    assert!(xml.contains("name=\"worse\"><failure message=\"worse by"), "{xml}");
    let table = markdown(&checked, "r.lab", "b.lab", 0.05);
    assert!(table.contains("| a <&> \"b\" \\| 'c'  | 1000/s | 1000/s | 1.000 |"), "{table}");
    assert!(table.contains("| gone | 1000/s | - | - | - | missing: the result has no such cell |"), "{table}");
    assert_eq!(table.lines().filter(|line| line.starts_with("| ")).count(), 5, "{table}");
}

#[test]
fn bounds_that_say_nothing_are_not_written_out() {
    for (interval, said) in [
        ((0.5, 1.25), "0.500 to 1.250"),
        ((0.003, 2951.009), "0.003 to 2951.009"),
        ((0.0, 36_620_997_934_239_705_178_884_620_156_928.0), "0.000 to 4e31"),
    ] {
        assert_eq!(bounds(interval), said);
    }
}
