use super::*;

fn options(pattern: &str) -> Options {
    Options { pattern: pattern.into(), json: true, rounds: 3, versions: None, write_docs: false }
}

fn row(value: f64, unit: Unit, theirs: f64, target: f64) -> Row {
    let ratio = if unit.more_is_better { value / theirs } else { theirs / value };
    let reference = Some(("peer".to_owned(), theirs));
    Row {
        bench: "b",
        case: "c".into(),
        value,
        unit: unit.name,
        more_is_better: unit.more_is_better,
        reference,
        ratio: Some(ratio),
        target: Some(target),
        spread: 0.1,
    }
}

#[test]
fn medians_and_spreads() {
    for (values, median, spread) in [(&[3.0, 1.0, 2.0][..], 2.0, 1.0), (&[4.0, 2.0], 3.0, 2.0 / 3.0), (&[], 0.0, 0.0)] {
        assert_eq!(median_and_spread(values), (median, spread));
    }
}

#[test]
fn rounds_alternate_and_the_first_of_each_is_thrown_away() {
    let order = std::cell::RefCell::new(String::new());
    let mut bench = Bench::new("b", options(""));
    bench
        .case("c", Unit::more("GB/s"))
        .beside("peer", || {
            order.borrow_mut().push('B');
            Ok(1.0)
        })
        .target(3.0)
        .run(|| {
            order.borrow_mut().push('A');
            Ok(2.0)
        })
        .unwrap();
    assert_eq!(order.into_inner(), "ABABABAB");
    assert_eq!(bench.finish(), Ok(1), "2 beside 1 misses 3");
}

#[test]
fn a_case_left_out_is_not_run() {
    let mut bench = Bench::new("b", options("8+2 encode"));
    assert!(bench.wants("encode 8+2 64 KiB") && !bench.wants("encode 4+2 64 KiB"));
    bench.case("encode 4+2", Unit::more("GB/s")).run(|| Err("must not run".into())).unwrap();
    assert!(bench.case("encode 8+2", Unit::more("GB/s")).run(|| Err("broken".into())).is_err());
}

#[test]
fn less_can_be_better() {
    let mut bench = Bench::new("b", options(""));
    bench.figure("time", Unit::less("ms"), 5.0, Some(("peer", 10.0)), Some(1.5));
    bench.figure("time", Unit::less("ms"), 5.0, Some(("peer", 10.0)), Some(2.5));
    assert_eq!(bench.finish(), Ok(1));
}

#[test]
fn a_pattern_that_fits_no_case_is_an_error_that_names_the_cases() {
    let mut bench = Bench::new("b", options("nonsense"));
    for name in ["put 4 KiB", "get 4 KiB", "put 4 KiB"] {
        bench.case(name, Unit::more("1/s")).run(|| Err("must not run".into())).unwrap();
    }
    let said = bench.finish().unwrap_err();
    assert_eq!(said, "no case of b has all the words 'nonsense'; there are:\n  put 4 KiB\n  get 4 KiB");
    // A case that fits and cannot be measured on this machine is no wrong pattern.
    let bench = Bench::new("b", options("loop"));
    assert!(bench.wants("on loop devices"));
    assert!(bench.finish().unwrap_err().contains("could be measured"));
}

#[test]
fn a_pattern_fits_in_either_case_and_any_of_several_ends() {
    let bench = Bench::new("b", options("put CPU"));
    assert!(bench.wants("PUT 4 KiB server cpu") && !bench.wants("GET 4 KiB server CPU"));
    assert!(bench.wants_any("PUT 4 KiB", ["", ": server CPU"]) && !bench.wants_any("GET 4 KiB", ["", ": server CPU"]));
}

#[test]
fn a_page_is_written_by_a_whole_run_that_was_told_to() {
    let path = std::env::temp_dir().join(format!("stele-bench-page-{}", std::process::id()));
    let path = path.to_str().unwrap();
    for (pattern, write_docs, is_written) in [("", false, false), ("read", true, false), ("", true, true)] {
        let bench = Bench::new("b", Options { write_docs, ..options(pattern) });
        bench.write_page(path, "text").unwrap();
        assert_eq!(std::path::Path::new(path).exists(), is_written, "'{pattern}', {write_docs}");
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_row_reads_the_same_in_both_forms() {
    let row = row(120.0, Unit::more("GB/s"), 60.0, 1.0);
    let parsed: serde_json::Value = serde_json::from_str(&row.json()).unwrap();
    assert_eq!((parsed["ratio"].as_f64(), parsed["reference"].as_str()), (Some(2.0), Some("peer")));
    assert_eq!(parsed["more_is_better"], true);
    for part in ["120", "GB/s", "2.00", "met", "60.0 peer"] {
        assert!(row.line().contains(part), "{} lacks {part}", row.line());
    }
    assert!(super::report::Row { target: Some(2.5), ..row }.line().contains("MISSED"));
}
