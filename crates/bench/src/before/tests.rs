use super::*;
use crate::harness::Options;

fn options(pattern: &str) -> Options {
    Options { pattern: pattern.into(), json: true, rounds: 3, versions: None, write_docs: false }
}

fn figure(case: &str, unit: &str, value: f64) -> Figure {
    Figure { case: case.into(), unit: unit.into(), value, more_is_better: Some(true) }
}

#[test]
fn the_versions_take_turns_and_reads_keep_nine_tenths() {
    for (value, missed) in [(91.0, 0), (89.0, 2)] {
        let mut order = Vec::new();
        let mut bench = Bench::new("array", options(""));
        compare(&mut bench, "before", |side| {
            order.push(side);
            let value = if side == Side::Ours { value } else { 100.0 };
            // Only reads have a target, and their processor time has it too.
            let read = format!("{}, CPU each", READS[1]);
            Ok(vec![figure(READS[1], "reads/s", value), figure(&read, "1/us", value), figure("a write", "1/s", 1.0)])
        })
        .unwrap();
        use Side::{Before, Ours};
        assert_eq!(order, [Before, Ours, Ours, Before, Before, Ours]);
        assert_eq!(bench.finish(), Ok(missed), "{value} beside 100");
    }
}

#[test]
fn cases_that_only_one_version_has_are_left_out() {
    let both = |cases: [&'static [(&'static str, &'static str)]; 2]| {
        let mut bench = Bench::new("array", options(""));
        compare(&mut bench, "before, /older", |side| {
            let cases = if side == Side::Ours { cases[0] } else { cases[1] };
            Ok(cases.iter().map(|(case, unit)| figure(case, unit, 1.0)).collect())
        })
    };
    assert_eq!(both([&[("a", "us"), ("new", "us")], &[("old", "us"), ("a", "us")]]), Ok(()));
    let refused = both([&[("a", "us"), ("new", "us")], &[("a", "ms")]]).unwrap_err();
    assert_eq!(refused, "before, /older has none of these cases in the same unit: a; new");
}

#[test]
fn a_program_that_is_no_bench_is_refused_with_the_reason() {
    let mut bench = Bench::new("array", options("read"));
    let reason = run(&mut bench, Path::new("/nonexistent/stele-bench")).unwrap_err();
    assert!(reason.starts_with("--before /nonexistent/stele-bench: No such file"), "{reason}");
    for (program, said) in [
        ("/bin/false", "/bin/false array ended with exit status: 1; it said nothing"),
        ("/bin/true", "/bin/true array printed no figure"),
        ("/bin/echo", "/bin/echo printed 'array --json --rounds 1 --case read', which is no figure of a bench"),
        ("/", "cannot run /: Permission denied"),
    ] {
        let reason = measured(Path::new(program), "array", "read").unwrap_err();
        assert!(reason.starts_with(said), "{reason}");
    }
}

#[test]
fn figures_are_read_from_lines_of_this_and_of_older_versions() {
    let old = r#"{"bench":"b","case":"c","value":2.5,"unit":"us","ratio":null}"#;
    let new = r#"{"bench":"b","case":"d","value":3,"unit":"1/s","more_is_better":true}"#;
    let c = Figure { more_is_better: None, ..figure("c", "us", 2.5) };
    assert_eq!(older::figures(&format!("{old}\n\n{new}\n")), Ok(vec![c, figure("d", "1/s", 3.0)]));
    assert_eq!(older::figures("case    figure\n"), Err("case    figure"));
}
