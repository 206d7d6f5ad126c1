use super::*;
use crate::record::RoundRecord;
use crate::report::chart::Plot;
use crate::report::tests::{cell, recorded};

fn at(number: usize, axes: &[(&str, &str)], rate: f64) -> CellRecord {
    let axes: Vec<(String, String)> =
        axes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    CellRecord { axes, name: format!("cell {number}"), ..cell(number, 4, rate, 1000) }
}

fn sweep() -> Recorded {
    let mut cells = Vec::new();
    for (a, access) in ["512 B", "4.00 KiB", "64.0 KiB"].into_iter().enumerate() {
        for (w, workers) in ["1", "4"].into_iter().enumerate() {
            let rate = 1000.0 * (w + 1) as f64 / (a + 1) as f64;
            cells.push(at(cells.len(), &[("access", access), ("workers", workers)], rate));
        }
    }
    recorded(cells)
}

#[test]
fn every_kind_has_a_name_of_its_own_and_draws_a_sweep() {
    let mut sweep = sweep();
    let again = sweep.cells[0].runs[0].clone();
    sweep.cells[0].runs.push(again);
    for (name, kind, words) in KINDS {
        assert_eq!(ChartKind::named(name), Some(*kind));
        assert!(!words.is_empty() && !kind.of(&sweep).is_empty(), "{name}");
        assert!(kind.of(&sweep).characters(80, 20).is_some(), "{name}");
    }
    assert_eq!(ChartKind::named("pie"), None);
}

#[test]
fn sizes_and_threads_stand_where_their_values_are_and_lines_are_told_apart_by_the_rest() {
    let Plot::Lines { across, series } = ChartKind::RateSize.of(&sweep()).plot else { panic!("bars") };
    let names: Vec<&str> = series.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["workers 1", "workers 4"]);
    assert_eq!(series[1].points, [(512.0, 2000.0), (4096.0, 1000.0), (65536.0, 2000.0 / 3.0)]);
    assert_eq!(across.marks.len(), 3);
    let Plot::Lines { series, .. } = ChartKind::BytesThreads.of(&sweep()).plot else { panic!("bars") };
    assert_eq!(series[0].points, [(1.0, 4.096), (4.0, 8.192)]);
}

#[test]
fn bars_are_grouped_by_what_tells_more_cells_apart() {
    let Plot::Bars { groups, bars } = ChartKind::Bars.of(&sweep()).plot else { panic!("lines") };
    assert_eq!(groups.len(), 3);
    assert_eq!(bars.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["workers 1", "workers 4"]);
    assert_eq!(bars[1].values[0], Some(2000.0));
    let Plot::Bars { bars, .. } = ChartKind::Multipliers.of(&sweep()).plot else { panic!("lines") };
    assert_eq!(bars[0].values[1], Some(2.0));
}

#[test]
fn a_tail_has_the_share_that_took_longer_down_to_one_access() {
    let mut slow = recorded(vec![cell(0, 4, 100.0, 100)]);
    let run = &mut slow.cells[0].runs[0];
    let mut histogram = crate::histogram::Histogram::default();
    (0..989).for_each(|_| histogram.record(Duration::from_micros(100)));
    (0..10).for_each(|_| histogram.record(Duration::from_millis(10)));
    histogram.record(Duration::from_millis(500));
    run.rounds.truncate(1);
    run.rounds[0].read = crate::record::HistogramRecord::of(&histogram);
    let Plot::Lines { series, .. } = ChartKind::Tail.of(&slow).plot else { panic!("bars") };
    let shares: Vec<f64> = series[0].points.iter().map(|(_, share)| (share * 1000.0).round()).collect();
    assert_eq!(shares, [1000.0, 11.0, 1.0]);
    let svg = ChartKind::Tail.of(&slow).svg().unwrap();
    for mark in [">100 %<", ">10 %<", ">1 %<", ">0.1 %<"] {
        assert!(svg.contains(mark), "{mark}: {svg}");
    }
}

/// A bar has no room for a word beside its figure.
#[test]
fn a_chart_of_figures_says_how_many_cells_are_not_steady() {
    let steady = recorded(vec![cell(0, 1, 1000.0, 900), cell(1, 8, 2000.0, 900)]);
    assert_eq!(ChartKind::Bars.of(&steady).heading(), "Rates of the cells");
    let mut shaky = steady.clone();
    shaky.cells[1].runs[0].rounds.truncate(2);
    assert_eq!(ChartKind::Bars.of(&shaky).heading(), "Rates of the cells; 1 of 2 cells is not steady");
    assert_eq!(ChartKind::RateTime.of(&shaky).heading(), "Rate over time");
    let named = |name: &str, of: &Recorded| (name.to_owned(), ChartKind::Bars.of(of));
    let both = crate::report::chart::together(vec![named("one", &steady), named("two", &shaky)]).unwrap();
    assert_eq!(both.heading(), "Rates of the cells; two: 1 of 2 cells is not steady");
    let svg = both.svg().unwrap();
    assert!(svg.contains("1 of 2 cells is not steady"), "{svg}");
}

/// A cell of ten rounds, of which the fifth answered nothing for a while.
fn with_gap(number: usize) -> CellRecord {
    let mut cell = at(number, &[("access", "4.00 KiB")], 1000.0);
    let run = &mut cell.runs[0];
    let round = run.rounds[0].clone();
    run.rounds = vec![round.clone(); 10];
    run.rounds[4] = RoundRecord { gap_ns: 2_000_000_000, rate: 10.0, ..round };
    cell
}

#[test]
fn gaps_are_marked_also_beside_many_cells_and_are_not_joined() {
    for (cells, place) in [(2, 2), (SERIES_MAX - 1, SERIES_MAX - 1), (SERIES_MAX + 2, SERIES_MAX - 1)] {
        let recorded = recorded((0..cells).map(with_gap).collect());
        let Plot::Lines { series, .. } = ChartKind::RateTime.of(&recorded).plot else { panic!("bars") };
        let marks = &series[place];
        assert_eq!((series.len(), marks.name.as_str(), marks.marked), (cells + 1, "gaps and dips", true));
        // Those of the cells that are drawn, each alone.
        let found: Vec<_> = marks.points.iter().filter(|point| point.0.is_finite()).collect();
        assert!(found.len() == place && found.iter().all(|point| **point == (5.0, 10.0)), "{marks:?}");
        assert!(marks.points.windows(2).all(|pair| pair.iter().any(|point| point.0.is_nan())), "{marks:?}");
        let svg = ChartKind::RateTime.of(&recorded).svg().unwrap();
        assert!(svg.contains("gaps and dips") && !svg.contains("NaN"), "{svg}");
    }
}
