use super::*;

fn chart(points: Vec<(f64, f64)>, logarithmic: bool) -> Chart {
    Chart {
        title: "a < b & c".into(),
        across: Axis { name: "accesses a second".into(), logarithmic },
        up: Axis::linear("ms"),
        series: vec![Series { name: "one".into(), points, marked: true }],
        line: Some((20.0, "20 ms".into())),
    }
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
}

#[test]
fn marks_are_round_and_enclose_what_is_drawn() {
    for high in [0.003, 0.9, 1.0, 7.0, 41.0, 99_999.0] {
        let scale = Scale::of_steps(high);
        assert!(scale.high >= high && scale.ticks.len() <= 7, "{high}: {:?}", scale.ticks);
        assert_eq!(scale.place(scale.high), 1.0);
    }
    for (low, high) in [(1.0, 1.0), (0.5, 7.0), (3.0, 80_000.0)] {
        let scale = Scale::of_decades(low, high);
        assert!(scale.place(low) >= 0.0 && scale.place(high) <= 1.0, "{low} to {high}");
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
