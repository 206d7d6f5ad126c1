use super::*;
use crate::job::Job;
use crate::record::{Head, HistogramRecord, RoundRecord, RunRecord, VERSION};

fn recorded(cells: &[(&str, &[f64])]) -> Recorded {
    let round = |rate: &f64| RoundRecord {
        seconds: 1.0,
        rate: *rate,
        read_bytes: 0.0,
        written_bytes: 0.0,
        read: HistogramRecord { sum_ns: 50, longest_ns: 50, counts: vec![(50, 1)] },
        write: HistogramRecord::default(),
        lag_ns: 0,
        held_back: 0,
        late: None,
        cpu_own: 0.0,
        gap_ns: 0,
        cpu_machine: 0.0,
    };
    let cell = |(number, (name, rates)): (usize, &(&str, &[f64]))| CellRecord {
        number,
        name: (*name).into(),
        axes: Vec::new(),
        workload: "w".into(),
        runs: vec![RunRecord {
            outstanding: Some(1),
            rate_asked: None,
            profile: Vec::new(),
            replay: None,
            workers: 1,
            steady: true,
            stopped: false,
            lag_share: 0.0,
            under_way: None,
            saturation: None,
            busy: Vec::new(),
            unanswered: HistogramRecord::default(),
            rounds: rates.iter().map(round).collect(),
        }],
        search: None,
        hosts: Vec::new(),
        precondition: None,
        objective: None,
        wrong_sectors: 0,
        read_back: None,
        left_behind: false,
        names: false,
        failed: None,
    };
    let head = Head {
        version: VERSION,
        program: String::new(),
        begun: 0,
        target: String::new(),
        against: None,
        reached: String::new(),
        target_bytes: 0,
        environment: Vec::new(),
        job: Job::default(),
    };
    Recorded { head, cells: cells.iter().enumerate().map(cell).collect(), digest: None }
}

#[test]
fn a_difference_is_one_only_where_the_interval_leaves_out_1() {
    let first = recorded(&[("a", &[100.0, 102.0, 98.0, 100.0]), ("b", &[100.0, 140.0, 60.0]), ("only", &[1.0])]);
    let second = recorded(&[("b", &[90.0, 150.0, 70.0]), ("a", &[200.0, 204.0, 196.0, 200.0]), ("other", &[1.0])]);
    let (both, alone) = compare(&first, &second);
    assert_eq!(alone, ["only", "other"]);
    let [a, b] = both.as_slice() else { panic!("{both:?}") };
    assert!((a.ratio - 2.0).abs() < 1e-9 && a.differs(), "{a:?}");
    assert!(a.interval.is_some_and(|(low, high)| low > 1.9 && high < 2.1), "{a:?}");
    assert!(!b.differs(), "{b:?}");
    let (both, _) = compare(&recorded(&[("a", &[5.0])]), &recorded(&[("a", &[9.0])]));
    assert!(both[0].interval.is_none() && !both[0].differs());
}

#[test]
fn what_differs_between_two_machines_is_told() {
    let head = |target: &str, environment: &[(&str, &str)]| Head {
        target: target.into(),
        target_bytes: 1 << 20,
        environment: environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        ..Head::default()
    };
    let here = head("a", &[("processor", "one"), ("memory", "1024 kB"), ("clock", "tsc"), ("temperature", "40")]);
    let there = head("a", &[("processor", "other"), ("memory", "2048 kB"), ("serial", "7"), ("h:1 temperature", "50")]);
    let found: Vec<(String, String, String)> =
        apart(&here, &there).into_iter().map(|apart| (apart.name, apart.values.0, apart.values.1)).collect();
    let told = |name: &str, one: &str, other: &str| (name.to_owned(), one.to_owned(), other.to_owned());
    assert_eq!(
        found,
        [
            told("processor", "one", "other"),
            told("memory", "1 MiB", "2 MiB"),
            told("clock", "tsc", ""),
            told("serial", "", "7"),
        ]
    );
    assert!(apart(&here, &here).is_empty());
    let larger = Head { target: "b".into(), target_bytes: 2 << 20, ..here.clone() };
    let names: Vec<String> = apart(&here, &larger).into_iter().map(|apart| apart.name).collect();
    assert_eq!(names, ["target", "used"]);
}

#[test]
fn what_two_jobs_ask_for_differently_is_told() {
    let head = |job: &str| Head { job: Job::parse(job).unwrap(), ..Head::default() };
    let one = head("on = '/a'\nsize = '1GiB'\n[load]\noutstanding = 1\n[time]\nleast = '5s'\n");
    let other = head("on = '/b'\nsize = '2GiB'\n[load]\noutstanding = [1, 32]\n[content]\nverify = true\n");
    let found: Vec<(String, String, String)> =
        apart(&one, &other).into_iter().map(|apart| (apart.name, apart.values.0, apart.values.1)).collect();
    let told = |name: &str, one: &str, other: &str| (name.to_owned(), one.to_owned(), other.to_owned());
    assert_eq!(
        found,
        [
            told("content.verify", "false", "true"),
            told("load.outstanding", "1", "[1,32]"),
            told("time.least", "5s", "not said"),
        ]
    );
    assert!(apart(&one, &one).is_empty());
}

#[test]
fn what_was_done_to_names_is_not_compared_with_what_was_done_to_data() {
    let data = recorded(&[("a", &[100.0, 102.0])]);
    let mut names = data.clone();
    names.cells[0].names = true;
    let (both, alone) = compare(&data, &names);
    assert!(both.is_empty() && alone == ["a", "a"], "{both:?} {alone:?}");
    assert_eq!(compare(&names, &names).0.len(), 1);
}

#[test]
fn searches_for_a_rate_differ_only_where_the_rates_around_their_answers_do() {
    let searched = |rate: f64, beyond: Option<f64>| {
        let mut recorded = recorded(&[("a", &[rate; 10])]);
        let run = &mut recorded.cells[0].runs[0];
        (run.outstanding, run.rate_asked) = (None, Some(rate));
        recorded.cells[0].search = Some(crate::record::SearchRecord {
            response_ns: 2_000_000,
            percentile: Some(0.99),
            rate,
            // As former versions kept it.
            margin: Some(0.1),
            outstanding: 1.0,
            steady: true,
            rate_asked: Some(rate),
            beyond,
            twice: None,
            open_end: None,
        });
        recorded
    };
    let compared = |one: &Recorded, other: &Recorded| compare(one, other).0.remove(0);
    let (first, second) = (searched(10_000.0, Some(10_180.0)), searched(9_900.0, Some(10_080.0)));
    let found = compared(&first, &second);
    assert!(!found.differs(), "{found:?}");
    assert_eq!(found.interval, Some((9_900.0 / 10_180.0, 10_080.0 / 10_000.0)));
    let slower = searched(9_000.0, Some(9_150.0));
    assert!(compared(&first, &slower).differs());
    assert_eq!(crate::baseline::check(&first, &slower, 0.05)[0].verdict, crate::baseline::Verdict::Regressed);
    assert_eq!(crate::baseline::check(&first, &second, 0.05)[0].verdict, crate::baseline::Verdict::Kept);
    let open = searched(9_000.0, None);
    assert_eq!(compared(&first, &open).interval, None);
    let checked = crate::baseline::check(&first, &open, 0.05).remove(0);
    assert_eq!(checked.verdict, crate::baseline::Verdict::Unclear);
    assert!(checked.why.contains("misses it"), "{}", checked.why);
    assert_eq!(first.cells[0].search.as_ref().unwrap().margin(), None);
}
