use super::drawing::{Anchor, Frame, Ink, Shape, dash_of, form_of};
use super::scale::Scale;
use super::*;
use crate::report::metrics::{Face, width};

const BROAD: Frame = Frame::BROAD;

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
            assert!((BROAD.left..=BROAD.wide - BROAD.right).contains(&x), "{x}");
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
    // A file may hold any number, also one that no step divides, and two that are too far apart.
    for logarithmic in [false, true] {
        assert!(chart(vec![(5e-324, 5e-324)], logarithmic).svg().is_some());
        assert!(chart(vec![(1e308, -1.7e308), (1e308, 1.7e308)], logarithmic).svg().is_some());
    }
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
            assert!(at.0 >= BROAD.left && at.0 + wide <= BROAD.wide - BROAD.right, "{shape:?}");
            found.push((at.0, at.0 + wide, *high));
        }
    }
    assert_eq!(found.len(), 5);
    assert!((found[1].2 / found[0].2 - 2.0).abs() < 1e-9 && (found[2].2 / found[0].2 - 4.0).abs() < 1e-9, "{found:?}");
    found.sort_by(|left, right| left.0.total_cmp(&right.0));
    assert!(found.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{found:?}");
}

#[test]
fn bars_lie_where_names_have_no_room_below_them() {
    let groups: Vec<String> = (0..12).map(|n| format!("read 100 %, access 4 KiB, outstanding {n}")).collect();
    let bars = vec![Bars { name: "rate".into(), values: vec![Some(5.0); 12] }];
    let chart = Chart::bars("rates", Axis::linear("1/s"), groups.clone(), bars).with_line(Some((4.0, "limit".into())));
    for frame in [Frame::BROAD, Frame::LOW, Frame::SLIM] {
        let drawing = chart.drawing_in(frame).unwrap();
        let is_there = |name: &String| {
            drawing.shapes.iter().any(|shape| matches!(shape, Shape::Text { text, .. } if text == name))
        };
        assert!(groups.iter().all(is_there), "{drawing:?}");
        for shape in &drawing.shapes {
            if let Shape::Text { at, .. } | Shape::Bar { at, .. } = shape {
                assert!(at.0 >= 0.0 && at.0 <= drawing.wide && at.1 <= drawing.high, "{shape:?}");
            }
        }
    }
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
fn a_mark_is_named_by_the_value_at_which_it_stands() {
    // In steps of 250.
    let names: Vec<String> = Scale::of_steps(0.0, 1246.0).ticks.into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["0", "250", "500", "750", "1k", "1.25k"]);
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
fn long_names_of_bars_are_told_apart_in_a_terminal() {
    let groups: Vec<String> = [1, 8, 64].iter().map(|n| format!("direction backup, workers {n}")).collect();
    let bars = vec![Bars { name: String::new(), values: vec![Some(1.0), Some(3.0), Some(2.0)] }];
    let text = Chart::bars("rates", Axis::linear("1/s"), groups.clone(), bars).characters(60, 16).unwrap();
    for group in &groups {
        assert!(text.lines().any(|line| line.trim() == group), "{group}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    let short = bars_of_names(&["a", "b"]).characters(60, 16).unwrap();
    assert!(short.lines().any(|line| line.starts_with("  a ") && line.contains('=')), "{short}");
}

fn bars_of_names(names: &[&str]) -> Chart {
    let bars = vec![Bars { name: String::new(), values: vec![Some(1.0); names.len()] }];
    Chart::bars("rates", Axis::linear("1/s"), names.iter().map(|name| (*name).to_owned()).collect(), bars)
}

#[test]
fn series_that_a_terminal_has_no_letter_for_are_counted() {
    let series = |n| Series { name: format!("series {n}"), points: vec![(1.0, n as f64), (2.0, 3.0)], marked: false };
    let chart = |count| Chart::lines("many", Axis::linear("x"), Axis::linear("y"), (0..count).map(series).collect());
    assert!(chart(SERIES_MAX + 3).characters(60, 16).unwrap().contains("3 more are not drawn"));
    assert!(!chart(SERIES_MAX).characters(60, 16).unwrap().contains("not drawn"));
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
    for (value, text) in [
        (1250.0, "1.25k"),
        (-12_500.0, "-12.5k"),
        (20_000.0, "20k"),
        (1024.0, "1.024k"),
        (2.5e6, "2.5M"),
        (0.25, "0.25"),
    ] {
        assert_eq!(exact(value), text);
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

#[test]
fn series_are_told_apart_without_colours() {
    let looks: Vec<_> = (0..SERIES_MAX).map(|number| (form_of(number), dash_of(number), number % COLOURS)).collect();
    for (number, look) in looks.iter().enumerate() {
        let same = |other: &&(_, &[f64], usize)| (other.0, other.1) == (look.0, look.1);
        assert!(looks.iter().take(COLOURS).filter(same).count() == 1, "series {number} looks like another");
        assert!(looks.iter().filter(|other| *other == look).count() == 1, "series {number}, in colour");
    }
    let hatched = bars(vec![vec![Some(10.0)]; 3]).drawing().unwrap();
    let all: Vec<&Vec<[(f64, f64); 2]>> = hatched
        .shapes
        .iter()
        .filter_map(|shape| if let Shape::Hatch { lines } = shape { Some(lines) } else { None })
        .collect();
    assert_eq!(all.len(), 4, "all bars but the first of each group, and those of the legend");
    let slope = |line: &[(f64, f64); 2]| (line[1].1 - line[0].1) * (line[1].0 - line[0].0);
    assert!(all[0].iter().all(|line| slope(line) < 0.0) && all[1].iter().all(|line| slope(line) > 0.0), "{all:?}");
}

#[test]
fn hatchings_stay_within_their_bars() {
    let values: Vec<_> = (1..=8).map(|kind| vec![Some(f64::from(kind)), Some(40.0)]).collect();
    for frame in [Frame::BROAD, Frame::SLIM] {
        let drawing = bars(Vec::clone(&values)).drawing_in(frame).unwrap();
        let mut bar = None;
        for shape in &drawing.shapes {
            match shape {
                Shape::Bar { at, wide, high, .. } => bar = Some((*at, *wide, *high)),
                Shape::Hatch { lines } => {
                    let ((x, y), wide, high) = bar.unwrap();
                    for (a, b) in lines.iter().flatten() {
                        let inside = *a >= x - 1e-6 && *a <= x + wide + 1e-6 && *b >= y - 1e-6 && *b <= y + high + 1e-6;
                        assert!(inside, "({a}, {b}) beside {bar:?}");
                    }
                }
                _ => {}
            }
        }
    }
}

/// A page of a phone shows a drawing 368 pixels wide: a unit of the slim one is about a pixel.
#[test]
fn text_of_the_slim_drawing_is_as_large_and_fits() {
    let marks = (0..9).map(|at| (f64::from(1 << at), format!("{} KiB", 1 << at)));
    let series = |n: usize| Series {
        name: format!("a series with a name that is far too long for a phone {n}"),
        points: (0..9).map(|at| (f64::from(1 << at), 100.0 * n as f64)).collect(),
        marked: true,
    };
    let title = "Chart 12. RAID-10, random reads of 8 KiB, 140 drives: mean response over the rate";
    let across = Axis::logarithmic("bytes").marked(marks);
    let lines = Chart::lines(title, across, Axis::linear("ms"), (1..6).map(series).collect());
    let bars = bars(vec![vec![Some(12_345.0); 12], vec![Some(5.0); 12]]);
    for chart in [lines, bars] {
        let drawing = chart.drawing_in(Frame::SLIM).unwrap();
        assert!(drawing.wide < 380.0);
        let mut below: Vec<(f64, f64, f64)> = Vec::new();
        for shape in &drawing.shapes {
            let Shape::Text { at, text, anchor, upright: false, ink } = shape else { continue };
            let (face, size) = if *ink == Ink::Title { (Face::Bold, 14.0) } else { (Face::Plain, 12.0) };
            let wide = width(face, size, text);
            let left = match anchor {
                Anchor::Start => at.0,
                Anchor::Middle => at.0 - wide / 2.0,
                Anchor::End => at.0 - wide,
            };
            assert!(left >= 0.0 && left + wide <= drawing.wide, "'{text}' from {left} to {}", left + wide);
            assert!(at.1 <= drawing.high, "'{text}' at {} of {}", at.1, drawing.high);
            let apart = below.iter().all(|(y, from, to)| (y - at.1).abs() > 1.0 || left >= *to || left + wide <= *from);
            assert!(apart, "'{text}' runs into another");
            below.push((at.1, left, left + wide));
        }
    }
}

#[test]
fn two_results_stand_in_one_chart_under_their_names() {
    let both = together(vec![
        ("before".into(), chart(vec![(1.0, 2.0)], false)),
        ("after".into(), chart(vec![(1.0, 3.0), (2.0, 4.0)], false)),
    ]);
    let both = both.unwrap();
    assert_eq!((both.names(), both.line.is_some()), (vec!["before: one", "after: one"], true));
    let of = |groups: &[&str], value: f64| {
        let bars = vec![Bars { name: String::new(), values: groups.iter().map(|_| Some(value)).collect() }];
        Chart::bars("bars", Axis::linear("1/s"), groups.iter().map(|name| (*name).to_owned()).collect(), bars)
    };
    let both = together(vec![("a".into(), of(&["x", "y"], 1.0)), ("b".into(), of(&["z", "x"], 2.0))]).unwrap();
    let Plot::Bars { groups, bars } = both.plot else { panic!("lines") };
    assert_eq!(groups, ["x", "y", "z"]);
    assert_eq!(bars[0], Bars { name: "a".into(), values: vec![Some(1.0), Some(1.0), None] });
    assert_eq!(bars[1], Bars { name: "b".into(), values: vec![Some(2.0), None, Some(2.0)] });
    assert_eq!(together(Vec::new()), None);
}
