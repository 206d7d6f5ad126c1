//! Stored results of format 1, read to their last count by the present reader.
//!
//! `formats/*.lab` are results of short runs, one for each thing that a result can hold. Their
//! heads name no machine. They are never made anew: a changed format gets further ones.

use std::path::Path;

use stele_lab::record::{self, Recorded};

/// The name of a result; its cells; rate, answers, mean and 99th percentile of its first run.
type Figures = (&'static str, usize, f64, u64, u64, u64);

/// As the program that wrote them showed them.
const RESULTS: &[Figures] = &[
    ("compare", 12, 12_791_710.0, 2_558_342, 79, 51),
    ("hosts", 1, 12_492_480.0, 2_498_496, 159, 51),
    ("names", 1, 102_550.0, 20_510, 9_751, 13_695),
    ("objective", 1, 523.333, 157, 2_811_800, 24_903_679),
    ("partial", 1, 7_622_872.0, 22_868_616, 131, 60),
    ("profile", 1, 500.0, 150, 211_006, 3_702_783),
    ("rate", 1, 400.0, 80, 792, 2_628),
    ("replay", 1, 100.0, 3, 3_517_815, 9_299_896),
    ("run", 2, 24_350.0, 7_305, 82_269, 475_135),
    ("search", 1, 18_960_600.0, 3_792_120, 210, 81),
    ("tenants", 2, 2_185.0, 437, 942_257, 17_039_359),
    ("virtual", 1, 1_393.26, 4_000, 5_740_355, 49_807_359),
];

fn stored(name: &str) -> Recorded {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/formats/{name}.lab"));
    record::read(&path).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn stored_results_are_read_to_their_last_count() {
    for (name, cells, rate, answers, mean, longest) in RESULTS {
        let found = stored(name);
        assert_eq!((found.head.version, found.head.program.as_str()), (1, "stele 0.1.0"), "{name}");
        assert_eq!((found.cells.len(), found.digest.is_some()), (*cells, *name != "partial"), "{name}");
        let total = found.cells[0].runs[0].total();
        assert!((total.rate - rate).abs() < 0.01, "{name}: {}", total.rate);
        let response = (total.response.count(), total.response.mean().0, total.response.percentile(0.99).0);
        assert_eq!(response, (*answers, *mean, *longest), "{name}");
    }
}

#[test]
fn stored_results_keep_what_is_beside_their_rounds() {
    let run = stored("run");
    let before = run.cells[0].precondition.as_ref().unwrap();
    assert_eq!((before.ordered_bytes, before.random_bytes, before.steady), (437_911_552, 496_156_672, Some(false)));
    let read = run.cells[1].read_back.as_ref().unwrap();
    assert_eq!((read.bytes, read.wrong.is_none(), run.cells[0].read_back.is_none()), (4 << 20, true, true));
    assert_eq!(run.cells[0].runs[0].unanswered.sum_ns, 108_822);
    let objective = stored("objective").cells.remove(0).objective.unwrap();
    assert_eq!((objective.response_ns, objective.percentile, objective.found_ns), (2_000_000, Some(0.99), 24_903_679));
    assert_eq!(stored("profile").cells[0].runs[0].profile, [(0.0, 100.0), (0.3, 900.0)]);
    let replay = stored("replay").cells.remove(0).runs.remove(0).replay.unwrap();
    assert_eq!((replay.format.as_str(), replay.accesses, replay.devices), ("spc", 3, vec![("ASU 0".into(), 40_960)]));
    let search = stored("search").cells.remove(0).search.unwrap();
    assert_eq!((search.response_ns, search.rate, search.outstanding), (1000, 18_960_600.0, 4.0));
    let rate = stored("rate").cells.remove(0).search.unwrap();
    assert_eq!((rate.rate_asked, rate.beyond, rate.percentile), (Some(400.0), None, Some(0.99)));
    let modelled = stored("virtual");
    assert_eq!((modelled.head.begun, modelled.cells[0].search.as_ref().map(|found| found.rate)), (0, Some(2490.181)));
    assert_eq!(modelled.cells[0].runs[0].busy, [("drives".to_owned(), 0.694), ("busiest drive".to_owned(), 0.79)]);
    let hosts: Vec<f64> = stored("hosts").cells[0].hosts.iter().map(|host| host.rate).collect();
    assert_eq!(hosts, [6_370_260.0, 6_122_220.0]);
    let compared = stored("compare");
    assert_eq!((compared.head.against.as_deref(), compared.cells[0].axes.len()), (Some("null"), 3));
    assert!(stored("names").cells[0].names);
    assert!(stored("partial").cells[0].runs[0].stopped);
    assert_eq!(stored("tenants").cells[1].name, "tenant backup");
}
