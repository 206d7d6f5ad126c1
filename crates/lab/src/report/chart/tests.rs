use super::drawing::{LEFT, RIGHT, Shape, WIDE};
use super::scale::Scale;
use super::*;

fn chart(points: Vec<(f64, f64)>, logarithmic: bool) -> Chart {
    let across = Axis { logarithmic, ..Axis::linear("accesses a second") };
    let series = vec![Series { name: "one".into(), points, marked: true }];
    Chart::lines("a < b & c", across, Axis::linear("ms"), series).with_line(Some((20.0, "20 ms".into())))
}

fn bars(values: Vec<Vec<Option<f64>>>) -> Chart {
    let groups = (0..values.first().map_or(0, Vec::len)).map(|n| format!("a group with a long name {n}")).collect();
    let bars = values.into_iter().enumerate().map(|(n, values)| Bars { name: format!("kind {n}"), values });
    Chart::bars("side by side", Axis::linear("1/s"), groups, bars.collect())
}

#[test]
fn every_point_lies_within_the_drawing_and_text_is_escaped() {
    for logarithmic in [false, true] {
        let svg = chart(vec![(1.0, 0.1), (50.0, 3.0), (70_000.0, 41.0)], logarithmic).svg().unwrap();
        assert!(svg.contains("a &lt; b &amp; c"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 3);
        for part in svg.split("cx=\"").skip(1) {
            let x: f64 = part.split('"').next().unwrap().parse().unwrap();
            assert!((LEFT..=WIDE - RIGHT).contains(&x), "{x}");
        }
        assert_eq!(svg.matches('<').count(), svg.matches('>').count());
    }
}

#[test]
fn nothing_to_draw_draws_nothing_and_a_single_point_something() {
    assert_eq!(chart(Vec::new(), true).svg().map(|svg| svg.len()), None);
    assert!(chart(vec![(f64::NAN, 1.0)], true).svg().is_none());
    assert!(chart(vec![(5.0, 1.0)], true).svg().is_some());
    assert!(chart(vec![(0.0, 0.0)], false).svg().is_some());
    assert!(bars(vec![vec![None, None]]).svg().is_none() && bars(vec![vec![Some(0.0)]]).svg().is_some());
}

#[test]
fn bars_stand_beside_each_other_within_the_plot_and_are_as_high_as_their_values() {
    let drawing =
        bars(vec![vec![Some(10.0), Some(40.0), None], vec![Some(20.0), Some(5.0), Some(30.0)]]).drawing().unwrap();
    let mut found: Vec<(f64, f64, f64)> = Vec::new();
    for shape in &drawing.shapes {
        // Those of the legend are all of one height.
        if let Shape::Bar { at, wide, high, .. } = shape
            && *high != 10.0
        {
            assert!(at.0 >= LEFT && at.0 + wide <= WIDE - RIGHT, "{shape:?}");
            found.push((at.0, at.0 + wide, *high));
        }
    }
    assert_eq!(found.len(), 5);
    assert!((found[1].2 / found[0].2 - 2.0).abs() < 1e-9 && (found[2].2 / found[0].2 - 4.0).abs() < 1e-9, "{found:?}");
    found.sort_by(|left, right| left.0.total_cmp(&right.0));
    assert!(found.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{found:?}");
}

#[test]
fn more_series_than_can_be_told_apart_are_counted_and_not_hidden() {
    let series = |n| Series { name: format!("series {n}"), points: vec![(1.0, n as f64), (2.0, 3.0)], marked: false };
    let many = Chart::lines("many", Axis::linear("x"), Axis::linear("y"), (0..SERIES_MAX + 3).map(series).collect());
    let svg = many.svg().unwrap();
    assert!(svg.contains("3 more are not drawn") && svg.contains("s0 dashed"), "{svg}");
}

#[test]
fn marks_are_round_and_enclose_what_is_drawn() {
    for high in [0.003, 0.9, 1.0, 7.0, 41.0, 99_999.0] {
        let scale = Scale::of_steps(0.0, high);
        assert!(scale.high >= high && scale.ticks.len() <= 7, "{high}: {:?}", scale.ticks);
        assert_eq!(scale.place(scale.high), Some(1.0));
    }
    assert!(Scale::of_steps(-7.0, 12.0).place(-7.0).is_some_and(|place| place >= 0.0));
    for (low, high) in [(1.0, 1.0), (0.5, 7.0), (3.0, 80_000.0), (0.9, 1.1), (1e-4, 1e9)] {
        let scale = Scale::of_decades(low, high);
        let (low, high) = (scale.place(low).unwrap(), scale.place(high).unwrap());
        assert!(low >= 0.0 && high <= 1.0 + 1e-9 && (2..=14).contains(&scale.ticks.len()), "{scale:?}");
    }
}

#[test]
fn a_terminal_sees_the_same_points_and_no_line_is_wider_than_it() {
    let text = chart(vec![(1.0, 0.1), (50.0, 3.0), (70_000.0, 41.0)], true).characters(72, 16).unwrap();
    assert_eq!(
        text.lines().filter(|line| line.contains('|')).map(|line| line.matches('o').count()).sum::<usize>(),
        3,
        "{text}"
    );
    assert!(text.contains("----") && text.contains("20 ms"), "{text}");
    let bars = bars(vec![vec![Some(10.0), Some(40.0)]]).characters(72, 16).unwrap();
    let long = |line: &str| line.matches('=').count();
    let rows: Vec<usize> = bars.lines().map(long).filter(|long| *long > 0).collect();
    assert!(rows.len() == 2 && rows[1].abs_diff(rows[0] * 4) <= 4, "{bars}");
    for line in text.lines().chain(bars.lines()) {
        assert!(line.chars().count() <= 72 + 8, "{line}");
    }
}

#[test]
fn figures_have_the_digits_that_say_something() {
    for (value, text) in [
        (71_565.4, "71,565"),
        (1_234_567.0, "1,234,567"),
        (99.96, "100.0"),
        (4.321, "4.32"),
        (0.0521, "0.0521"),
        (0.0, "0"),
        (-1500.0, "-1,500"),
    ] {
        assert_eq!(figure(value), text);
    }
    for (value, text) in [(20_000.0, "20k"), (2500.0, "2.5k"), (0.05, "0.05"), (5.0, "5"), (2e6, "2M")] {
        assert_eq!(short(value), text);
    }
}

#[test]
fn a_file_of_a_chart_has_its_colours_without_variables() {
    let file = chart(vec![(1.0, 2.0), (2.0, 3.0)], false).svg_file().unwrap();
    assert!(!file.contains("var(") && !file.contains("--ground"), "{file}");
    assert!(file.contains("path.s0 { stroke: #1f5fa8; }") && file.contains("background: #fdfdfb"), "{file}");
}

#[test]
fn a_point_that_is_not_finite_ends_a_line_and_the_next_one_begins_another() {
    let nowhere = (f64::NAN, f64::NAN);
    let points = vec![(0.0, 1.0), (1.0, 1.0), nowhere, (8.0, 1.0), (9.0, 1.0)];
    let series = vec![Series { name: "one".into(), points, marked: true }];
    let chart = Chart::lines("lines", Axis::linear("x"), Axis::linear("y"), series);
    let svg = chart.svg().unwrap();
    assert_eq!((svg.matches("path class=\"s0\"").count(), svg.matches("circle").count()), (2, 4), "{svg}");
    let drawn = chart.characters(60, 10).unwrap();
    assert!(drawn.contains("o....o") && !drawn.contains(".........."), "{drawn}");
}
