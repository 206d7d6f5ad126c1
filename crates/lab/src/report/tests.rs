use super::*;
use crate::histogram::Histogram;
use crate::hosts::HostRecord;
use crate::job::Job;
use crate::live::read_back::ReadBack;
use crate::live::wrong::Wrong;
use crate::record::{Head, HistogramRecord, RoundRecord, SearchRecord, VERSION};

/// A run whose accesses all took so many microseconds.
pub fn run(outstanding: u32, rate: f64, micros: u64, steady: bool) -> RunRecord {
    let mut histogram = Histogram::default();
    (0..100).for_each(|_| histogram.record(Duration::from_micros(micros)));
    let read = HistogramRecord {
        sum_ns: histogram.sum() as u64,
        longest_ns: histogram.longest().0,
        counts: histogram.counts().collect(),
    };
    let round = RoundRecord {
        seconds: 1.0,
        rate,
        read_bytes: rate * 4096.0,
        read,
        cpu_own: 0.1,
        cpu_machine: 0.2,
        ..RoundRecord::default()
    };
    let slow = RoundRecord { rate: rate * 0.6, ..round.clone() };
    RunRecord {
        outstanding: Some(outstanding),
        workers: 1,
        steady,
        rounds: match steady {
            true => vec![round; 5],
            // A fifth as much more, and as much less: the same mean.
            false => vec![RoundRecord { rate: rate * 1.4, ..round.clone() }, slow, round.clone(), round.clone(), round],
        },
        ..RunRecord::default()
    }
}

pub fn cell(number: usize, outstanding: u32, rate: f64, micros: u64) -> CellRecord {
    CellRecord {
        number,
        name: format!("outstanding {outstanding}"),
        axes: vec![("outstanding".into(), outstanding.to_string())],
        workload: "oltp_4k".into(),
        runs: vec![run(outstanding, rate, micros, true)],
        ..CellRecord::default()
    }
}

#[test]
fn wrong_data_is_told_beside_the_cell_and_a_target_read_back_whole_is_nothing_odd() {
    let good =
        CellRecord { read_back: Some(ReadBack { bytes: 1 << 20, wrong: Wrong::default() }), ..cell(0, 4, 100.0, 9) };
    assert_eq!((remark(&good), good.is_damaged()), (remark(&cell(0, 4, 100.0, 9)), false));
    let mut wrong = Wrong::default();
    (0..20).for_each(|number| wrong.note(format!("offset {}: why", number * 512)));
    let back = ReadBack { bytes: 1 << 20, wrong };
    let bad =
        CellRecord { wrong_sectors: 1, failed: Some("1 is".into()), read_back: Some(back), ..cell(0, 4, 100.0, 9) };
    let said = remark(&bad);
    assert!(
        bad.is_damaged() && said.contains("damaged: 1 is; damaged: of 1 MiB that were read back, 20 sectors"),
        "{said}"
    );
    assert!(said.contains("offset 7680: why; and 4 more") && !said.contains("offset 8192"), "{said}");
    let kept = serde_json::to_string(&bad).unwrap();
    assert_eq!(serde_json::from_str::<CellRecord>(&kept).unwrap(), bad, "{kept}");
}

pub fn recorded(cells: Vec<CellRecord>) -> Recorded {
    let head = Head {
        version: VERSION,
        program: "stele 0".into(),
        begun: 1_790_000_000,
        target: "/data/<target>".into(),
        against: None,
        reached: "a file".into(),
        target_bytes: 1 << 30,
        environment: vec![("kernel".into(), "6 & more".into())],
        job: Job { on: Some("/data/target".into()), ..Job::default() },
    };
    Recorded { head, cells, digest: Some("abc".into()) }
}

#[test]
fn sentences_say_what_the_cells_hold_and_lead_to_them() {
    let page = html(&recorded(vec![cell(0, 1, 1000.0, 900), cell(1, 8, 5432.1, 1500)]), None).unwrap();
    assert!(page.contains("<a class=\"bound\" href=\"#cell-1-rate\">5,432 accesses a second</a>"), "{page}");
    assert!(page.contains("<a class=\"bound\" href=\"#cell-0-mean\">900.0 us</a>"), "{page}");
    assert!(page.contains("<td id=\"cell-1-rate\"") && page.contains("BLAKE3 of the raw data: <code>abc"));
    assert!(page.contains("What /data/&lt;target&gt; sustains") && page.contains("6 &amp; more"));
    // Nothing is fetched from anywhere.
    for word in ["http://", "https://", "<script", "url(", "@import"] {
        assert!(!page.contains(word), "the page has {word}");
    }
}

/// Beside ten columns of figures a sentence has no room.
#[test]
fn a_remark_stands_below_its_row_as_wide_as_the_table() {
    let unsteady = CellRecord { runs: vec![run(8, 100.0, 900, false)], ..cell(1, 8, 100.0, 900) };
    let page = html(&recorded(vec![cell(0, 1, 1000.0, 900), unsteady]), None).unwrap();
    let below = "<td id=\"cell-1-remark\" class=\"left faint\" colspan=\"10\"><div>steady state not reached";
    assert!(page.contains(below), "{page}");
    assert!(!page.contains("id=\"cell-0-remark\"") && !page.contains("class=\"left\"></th>"), "{page}");
}

#[test]
fn a_file_with_rates_next_to_nothing_makes_a_page() {
    let page = html(&recorded(vec![cell(0, 1, 5e-324, 900), cell(1, 8, 5e-324, 1500)]), None).unwrap();
    assert!(page.contains("<svg"));
}

#[test]
fn a_search_is_told_with_its_interval_and_its_threshold_is_drawn() {
    let mut found = cell(0, 8, 500.0, 19_000);
    found.runs.push(run(9, 510.0, 21_000, true));
    found.search = Some(SearchRecord {
        response_ns: 20_000_000,
        percentile: None,
        rate: 505.0,
        margin: Some(4.0),
        outstanding: 8.5,
        steady: true,
        twice: None,
        rate_asked: None,
        beyond: None,
        open_end: None,
    });
    let page = html(&recorded(vec![found]), Some("Ours")).unwrap();
    assert!(page.contains("505 ± 4.00 accesses a second") && page.contains("a mean response of 20.0 ms"), "{page}");
    assert!(page.contains("class=\"limit\"") && page.contains("<h1>Ours</h1>"));
    // 505 times 4 KiB, and not the 500 of the nearer probe.
    assert!(page.contains("id=\"cell-0-bytes\" class=\"right\">2.07<"), "{page}");
}

#[test]
fn what_is_odd_is_found() {
    let odd = |cells: Vec<CellRecord>| found_odd(&recorded(cells));
    // Rounds that differ by so much from their mean, which stays the same.
    let spread = |mut cell: CellRecord, by: f64| {
        for (round, sign) in cell.runs[0].rounds.iter_mut().zip([1.0, -1.0, 0.0, -1.0, 1.0]) {
            round.rate += sign * by;
        }
        cell
    };
    let both = |by: f64| vec![spread(cell(0, 1, 1000.0, 900), by), spread(cell(1, 8, 960.0, 900), by)];
    let falling = ["oltp_4k: the rate falls from 1,000 to 960 a second between 1 and 8 outstanding."];
    assert_eq!(odd(both(0.0)), falling);
    assert_eq!(odd(both(10.0)), falling);
    assert_eq!(odd(both(30.0)), Vec::<String>::new(), "the intervals explain it");
    let mut shaky = cell(0, 1, 1000.0, 900);
    shaky.runs[0].rounds.truncate(2);
    shaky.runs[0].lag_share = 0.02;
    let said = odd(vec![shaky]).join(" ");
    assert!(
        said.contains("steady state not reached: 2 rounds are too few to tell")
            && said.contains("the generator itself was late by 2.0 %"),
        "{said}"
    );
    // The rate is no bare number, and no sentence of the summary is about it.
    let mut shaky = cell(0, 8, 5432.1, 900);
    shaky.runs[0].rounds.truncate(2);
    let page = html(&recorded(vec![shaky, cell(1, 1, 1000.0, 900)]), None).unwrap();
    assert!(
        page.contains(">not reached (5,432)</td>") && page.contains("1 of 2 cells is void, partial or not steady"),
        "{page}"
    );
    assert!(page.contains(">1,000 accesses a second</a>") && !page.contains("5,432 accesses"), "{page}");
    let unfinished = Recorded { digest: None, ..recorded(Vec::new()) };
    assert!(found_odd(&unfinished).join("").contains("did not come to its end"));
}

#[test]
fn the_summary_quotes_no_cell_that_is_void_partial_or_unanswered() {
    let good = cell(1, 1, 1000.0, 900);
    let mut void = cell(0, 8, 5432.1, 100);
    void.runs[0].lag_share = 0.02;
    let partial = CellRecord { failed: Some("the target failed".into()), ..cell(0, 8, 5432.1, 100) };
    let damaged = CellRecord { wrong_sectors: 1, ..cell(0, 8, 5432.1, 100) };
    let mut host = cell(0, 8, 5432.1, 100);
    host.hosts.push(HostRecord {
        host: "two".into(),
        rate: 0.0,
        lag_share: 0.0,
        cpu_own: 0.0,
        cpu_machine: 0.0,
        failed: Some("gone".into()),
        wrong_sectors: 0,
    });
    let mut unanswered = cell(0, 8, 0.0, 0);
    unanswered.runs[0].rounds.iter_mut().for_each(|round| round.read = HistogramRecord::default());
    for unsound in [void, partial, damaged, host, unanswered] {
        let page = html(&recorded(vec![unsound.clone(), good.clone()]), None).unwrap();
        assert!(page.contains("1 of 2 cells is void, partial or not steady. "), "{page}");
        assert!(page.contains(">1,000 accesses a second</a>, in the cell"), "{page}");
        assert!(page.contains("shortest mean response was <a class=\"bound\" href=\"#cell-1-mean\">"), "{page}");
        assert!(page.contains("The figures of 1 of 2 cells stand."), "{page}");
        assert_eq!((is_sound(&unsound), is_sound(&good)), (false, true));
    }
}

#[test]
fn the_working_set_is_set_beside_memory_cache_and_device_and_what_was_written_before_is_said() {
    let mut recorded = recorded(vec![cell(0, 1, 1000.0, 900)]);
    let page = html(&recorded, None).unwrap();
    assert!(page.contains("nothing before each cell") && page.contains("not known"), "{page}");
    recorded.head.reached = "file /data/target past the page cache".into();
    recorded.head.environment =
        vec![("memory".into(), "4194304 kB".into()), ("device size".into(), Bytes(1 << 40).to_string())];
    recorded.head.job.precondition = Some("2x".into());
    recorded.cells[0].precondition =
        Some(PreconditionRecord { ordered_bytes: 2 << 30, random_bytes: 1 << 30, seconds: 3.0, steady: Some(false) });
    let page = html(&recorded, None).unwrap();
    for words in
        ["passed by (O_DIRECT)", "the working set fits into it", "1 TiB", "all of it 2x in order", "at random places"]
    {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert!(found_odd(&recorded).join("").contains("random writes before it did not become steady"));
    recorded.head.reached = "file /data/target through the page cache".into();
    assert!(html(&recorded, None).unwrap().contains("the figures are those of memory"));
}

#[test]
fn reads_and_writes_of_a_mixed_load_have_responses_of_their_own_and_names_no_bytes() {
    let mut mixed = cell(0, 8, 1000.0, 900);
    let slow = cell(0, 8, 1000.0, 9_000);
    for (round, other) in mixed.runs[0].rounds.iter_mut().zip(&slow.runs[0].rounds) {
        round.write = other.read.clone();
    }
    let [reads, writes] = <[Side; 2]>::try_from(sides(&mixed, &mixed.runs[0])).ok().unwrap();
    assert_eq!((reads.name, writes.name, reads.rate, writes.rate), ("reads", "writes", 500.0, 500.0));
    assert!(reads.response.percentile(0.99).0.abs_diff(900_000) < 20_000);
    assert!(writes.response.percentile(0.99).0.abs_diff(9_000_000) < 200_000);
    let page = html(&recorded(vec![mixed.clone()]), None).unwrap();
    assert!(page.contains("outstanding 8, reads") && page.contains("outstanding 8, writes"), "{page}");
    assert!(sides(&slow, &slow.runs[0]).is_empty(), "reads alone are told already");
    mixed.names = true;
    assert_eq!(sides(&mixed, &mixed.runs[0])[1].name, "makes and removals");
    let page = html(&recorded(vec![mixed]), None).unwrap();
    assert!(page.contains("names, no data"), "{page}");
}

fn searched(rate_asked: Option<f64>, beyond: Option<f64>) -> CellRecord {
    let mut found = cell(0, 8, 1990.0, 900);
    for run in &mut found.runs {
        (run.outstanding, run.rate_asked) = (None, Some(2000.0));
    }
    found.search = Some(SearchRecord {
        response_ns: 2_000_000,
        percentile: Some(0.9999),
        rate: if rate_asked.is_some() { 1990.0 } else { 0.0 },
        margin: None,
        outstanding: 0.4,
        steady: rate_asked.is_some(),
        rate_asked,
        beyond,
        twice: None,
        open_end: None,
    });
    found
}

/// A rate was searched for, and no number of outstanding accesses.
#[test]
fn the_answer_of_a_search_for_a_rate_is_told_as_a_rate() {
    let page = html(&recorded(vec![searched(Some(2000.0), Some(2040.0))]), None).unwrap();
    assert!(page.contains("accesses a second</a> with 99.99 % of the responses within 2.0 ms, with "), "{page}");
    assert!(page.contains(">2,000 a second</a> asked for."), "{page}");
    assert!(page.contains("<td id=\"cell-0-load\" class=\"right\">2,000 a second</td>"), "{page}");
    assert!(!page.contains("0.400 outstanding"), "{page}");
    let page = html(&recorded(vec![searched(None, Some(10.0))]), None).unwrap();
    assert!(page.contains("no rate has 99.99 % of the responses within 2.0 ms"), "{page}");
    assert!(!page.contains(" outstanding</td>") && !page.contains("a second</a>"), "{page}");
}

#[test]
fn a_search_that_is_not_steady_is_not_quoted() {
    let mut shaky = searched(Some(2000.0), Some(2040.0));
    shaky.runs[0].rounds.truncate(2);
    let page = html(&recorded(vec![shaky]), None).unwrap();
    assert!(
        page.contains("1 of 1 cell is void, partial or not steady") && page.contains("are not quoted here"),
        "{page}"
    );
    assert!(!page.contains("of the responses within"), "{page}");
}

/// They have no day, no bytes and no processor of the laboratory's.
#[test]
fn a_page_of_modelled_arrays_says_nothing_that_they_do_not_have() {
    let mut recorded = recorded(vec![cell(0, 8, 500.0, 900)]);
    recorded.cells[0].runs[0].rounds.iter_mut().for_each(|round| round.cpu_own = 0.0);
    (recorded.head.begun, recorded.head.target_bytes) = (0, 0);
    recorded.head.target = "modelled arrays".into();
    recorded.head.job = Job::parse("[virtual]\ndrives = 12\n").unwrap();
    let page = html(&recorded, None).unwrap();
    for words in ["What modelled arrays sustain<", "in virtual time, by stele", "It holds for these targets"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    for words in ["1970", "0 B", "--size"] {
        assert!(!page.contains(words), "{words}: {page}");
    }
    assert!(page.contains("id=\"cell-0-cpu\" class=\"right faint\">–<"), "{page}");
}

#[test]
fn a_page_names_the_command_of_a_comparison_or_of_hosts() {
    let plain = recorded(vec![cell(0, 1, 1000.0, 900)]);
    assert_eq!(command(&plain), "stele lab run job.toml --out again.lab");
    let mut compared = plain.clone();
    compared.head.against = Some("/other".into());
    compared.cells = ["1", "1", "2", "3"]
        .map(|block| CellRecord { axes: vec![("block".into(), block.into())], ..cell(0, 1, 1.0, 9) })
        .into();
    assert_eq!(command(&compared), "stele lab compare job.toml --against '/other' --blocks 3 --out again.lab");
    let mut hosts = plain;
    hosts.cells[0].hosts = ["a:1", "b:1"].map(|name| HostRecord::failed(name, "gone".into())).into();
    assert_eq!(command(&hosts), "stele lab run job.toml --hosts a:1,b:1 --token-file FILE --out again.lab");
}
