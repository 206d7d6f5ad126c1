use super::*;
use crate::record::Recorder;
use crate::report::html;
use crate::report::tests::{cell, recorded};

const DAY: u64 = 86_400;

/// Results of so many a second, a day apart.
fn history(rates: &[f64]) -> History {
    let mut history = History::default();
    for (day, rate) in rates.iter().enumerate() {
        let mut found = recorded(vec![cell(0, 4, *rate, 1000)]);
        found.head.begun += day as u64 * DAY;
        history.add(PathBuf::from(format!("{day}.lab")), &found);
    }
    history
}

#[test]
fn the_newest_figure_is_held_against_the_median_before_it() {
    for (rates, median, ratio) in [
        (&[1000.0][..], None, None),
        (&[1000.0, 900.0], Some(1000.0), Some(0.9)),
        (&[1000.0, 5000.0, 1100.0, 2200.0], Some(1100.0), Some(2.0)),
        (&[1000.0, 2000.0, 3000.0], Some(1500.0), Some(2.0)),
    ] {
        let history = history(rates);
        let standing = history.series[0].standing().unwrap();
        assert_eq!((standing.newest, standing.median), (*rates.last().unwrap(), median), "{rates:?}");
        assert_eq!(standing.ratio, ratio, "{rates:?}");
    }
}

#[test]
fn a_change_for_good_is_found_with_the_day_on_which_it_came() {
    let rates = |day: usize| if day < 9 { 1000.0 + day as f64 } else { 800.0 + day as f64 };
    let history = history(&(0..16).map(rates).collect::<Vec<_>>());
    let (result, change) = history.series[0].change().unwrap();
    assert_eq!((result, change.from.round(), change.to.round()), (9, 1004.0, 812.0));
    assert!(history.remark(&history.series[0]).starts_with("changed on 2026-"), "{history:?}");
    assert_eq!(self::history(&[1000.0; 16]).series[0].change(), None);
}

#[test]
fn a_result_that_does_not_count_keeps_its_place_and_changes_nothing() {
    let mut history = history(&[1000.0, 1000.0, 1000.0]);
    let mut bad = recorded(vec![cell(0, 4, 10.0, 1000)]);
    bad.cells[0].failed = Some("gone".into());
    bad.head.begun += 3 * DAY;
    history.add("bad.lab".into(), &bad);
    let series = &history.series[0];
    assert_eq!((series.points.len(), series.usable().len()), (4, 3));
    assert_eq!(series.standing().unwrap().newest, 1000.0);
    assert_eq!(history.remark(series), "the last one does not count: it is partial; 1 does not count");
    // It is drawn apart from the others; the legend has a mark of each.
    let svg = trend(&history, series).svg().unwrap();
    let marks = |start: &str| svg.matches(start).count();
    assert_eq!((marks("<circle class=\"s0\""), marks("<path class=\"mark s1\"")), (3 + 1, 1 + 1), "{svg}");
}

#[test]
fn cells_of_other_targets_or_workloads_are_other_series() {
    let mut history = history(&[1000.0]);
    let other = |change: fn(&mut Recorded)| {
        let mut found = recorded(vec![cell(0, 4, 500.0, 1000)]);
        change(&mut found);
        found
    };
    history.add("a.lab".into(), &other(|found| found.head.target = "/other".into()));
    history.add("b.lab".into(), &other(|found| found.cells[0].workload = "oltp_8k".into()));
    history.add("c.lab".into(), &other(|found| found.cells[0].names = true));
    // Blocks of a comparison are no results by themselves.
    history.add("d.lab".into(), &other(|found| found.head.against = Some("/other".into())));
    assert_eq!(history.series.iter().map(|series| series.points.len()).collect::<Vec<_>>(), [1, 1, 1, 1]);
    let called: Vec<String> = history.series.iter().map(|series| history.called(series)).collect();
    assert_eq!(called[1], "outstanding 4 (oltp_4k) on /other");
    // A load that is no axis is not in the name of a cell.
    let mut history = self::history(&[1000.0, 1000.0]);
    history.add("e.lab".into(), &other(|found| found.cells[0].runs[0].outstanding = Some(32)));
    let called: Vec<String> = history.series.iter().map(|series| history.called(series)).collect();
    assert_eq!(called, ["outstanding 4 (4 outstanding)", "outstanding 4 (32 outstanding)"]);
}

#[test]
fn a_page_has_a_chart_for_each_cell_and_agrees_with_itself() {
    let history = history(&[1000.0, 1010.0, 990.0, 800.0]);
    let page = html::page(&document(&history, "results", None)).unwrap();
    // Each for a page and for a phone.
    assert_eq!((page.matches("class=\"broad\"").count(), page.matches("<svg").count()), (2, 4), "{page}");
    assert!(page.contains("#cell-0-newest\">800/s</a>") && page.contains("0.800</a> times as good"), "{page}");
    assert!(page.contains("2026-09-21") && page.contains("What results says over time"), "{page}");
}

#[test]
fn a_directory_is_read_in_the_order_of_its_days_and_what_is_no_result_is_named() {
    let dir = std::env::temp_dir().join(format!("stele-history-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    let keep = |name: &str, day: u64, rate: f64, whole: bool| {
        let mut found = recorded(vec![cell(0, 4, rate, 1000)]);
        found.head.begun += day * DAY;
        let mut recorder = Recorder::create(&dir.join(name), found.head.clone()).unwrap();
        recorder.cell(&found.cells[0]).unwrap();
        if whole {
            recorder.finish().unwrap();
        }
        found
    };
    assert!(History::of(&dir).unwrap_err().to_string().contains("holds no whole result"));
    keep("z.lab", 1, 100.0, true);
    keep("a.lab", 2, 200.0, true);
    let cut = keep("cut.lab", 3, 300.0, false);
    std::fs::write(dir.join("bad.lab"), "nothing\n").unwrap();
    std::fs::write(dir.join("other.txt"), "nothing\n").unwrap();
    let history = History::of(&dir).unwrap();
    assert_eq!(history.series[0].usable(), [(0, 100.0), (1, 200.0)]);
    assert_eq!(history.left_out.len(), 2, "{:?}", history.left_out);
    for (path, why) in &history.left_out {
        assert!(why.starts_with(&format!("{}: ", path.display())), "{path:?} is not named: {why}");
    }
    assert_eq!(newest(&dir).unwrap().0, dir.join("a.lab"));
    assert_eq!(before(&dir, &cut).unwrap().0, dir.join("a.lab"));
    let second = record::read(&dir.join("a.lab")).unwrap();
    assert_eq!(before(&dir, &second).unwrap().0, dir.join("z.lab"));
    let elsewhere = Recorded { head: Head { target: "/other".into(), ..second.head }, ..cut };
    assert!(before(&dir, &elsewhere).unwrap_err().to_string().contains("on /other from before"));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_page_on_which_nothing_counts_does_not_say_that_all_is_well() {
    let unsteady = |day: u64| {
        let mut found = recorded(vec![cell(0, 4, 1000.0 / (day + 1) as f64, 1000)]);
        found.cells[0].failed = Some("gone".into());
        found.head.begun += day * DAY;
        found
    };
    let mut history = History::default();
    (0..3).for_each(|day| history.add(format!("{day}.lab").into(), &unsteady(day)));
    let page = html::page(&document(&history, "results", None)).unwrap();
    assert!(page.contains("No cell has two results that count"), "{page}");
    assert!(!page.contains("No cell changed for good"), "{page}");
    // Their marks are those of results that do not count, with a legend.
    let svg = trend(&history, &history.series[0]).svg().unwrap();
    assert_eq!((svg.matches("<circle").count(), svg.matches("<path class=\"mark s1\"").count()), (1, 3 + 1), "{svg}");
    // Of another cell two results count.
    let mut both = self::history(&[1000.0, 1010.0]);
    let mut other = unsteady(2);
    other.cells[0].workload = "oltp_8k".into();
    both.add("2.lab".into(), &other);
    let page = html::page(&document(&both, "results", None)).unwrap();
    assert!(page.contains("No cell changed for good") && page.contains("Of 1 cell nothing is said here"), "{page}");
}
