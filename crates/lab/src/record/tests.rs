use std::sync::atomic::{AtomicU32, Ordering};

use std::path::PathBuf;

use super::file::Line;
use super::*;
use crate::error::LabError;
use crate::live::run::{Setup, Timing};
use crate::live::target::{Opening, Target};
use crate::sweep;
use stele_ground::{Bytes, MIB};

struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("stele-lab-record-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn head() -> Head {
    Head {
        version: VERSION,
        program: "stele".into(),
        begun: 5,
        target: "null".into(),
        against: None,
        reached: "null".into(),
        target_bytes: MIB,
        environment: vec![("processors".into(), "2".into())],
        job: Job::default(),
    }
}

/// Cells of a short run on the null target.
fn cells() -> Vec<CellRecord> {
    let job = Job::parse("[load]\noutstanding = [1, 2]").unwrap();
    let opening = Opening { size: Some(Bytes(MIB)), ..Opening::default() };
    let ready = Target::Null.open(opening, &mut |_, _| true).unwrap();
    let timing = Timing {
        warm_up: Duration(0),
        round: Duration::from_millis(20),
        least: Duration::from_millis(40),
        most: Duration::from_millis(40),
    };
    let short = |cell: &JobCell| JobCell { setup: Setup { timing, ..cell.setup.clone() }, ..cell.clone() };
    let cells = job.cells().unwrap();
    let run =
        |(number, cell)| sweep::cell(&ready, number, &short(cell), &false.into(), &mut |_| true).unwrap().unwrap();
    cells.iter().enumerate().map(run).collect()
}

#[test]
fn what_was_recorded_is_read_again_to_the_last_count() {
    let place = Place::new();
    let path = place.0.join("a.lab");
    let cells = cells();
    assert!(cells[0].runs[0].total().response.count() > 0);
    let mut recorder = Recorder::create(&path, head()).unwrap();
    cells.iter().for_each(|cell| recorder.cell(cell).unwrap());
    let digest = recorder.finish().unwrap();
    let read = read(&path).unwrap();
    assert_eq!((read.head, read.cells, read.digest), (head(), cells, Some(digest)));
    assert!(matches!(Recorder::create(&path, head()), Err(LabError::Refused(_))), "never over another file");
}

#[test]
fn a_changed_byte_anywhere_is_found() {
    let place = Place::new();
    let path = place.0.join("a.lab");
    let mut recorder = Recorder::create(&path, head()).unwrap();
    recorder.cell(&cells()[0]).unwrap();
    recorder.finish().unwrap();
    let good = std::fs::read(&path).unwrap();
    for at in (0..good.len() - 1).step_by(1 + good.len() / 300) {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&path, &bad).unwrap();
        // A line break more or less may leave an unfinished file, which says so.
        assert!(read(&path).is_err() || read(&path).unwrap().digest.is_none(), "byte {at} was changed unnoticed");
    }
}

#[test]
fn a_run_goes_on_behind_what_is_whole() {
    let place = Place::new();
    let path = place.0.join("a.lab");
    let cells = cells();
    let mut recorder = Recorder::create(&path, head()).unwrap();
    recorder.cell(&cells[0]).unwrap();
    drop(recorder);
    // Killed in the middle of a line.
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend_from_slice(b"{\"line\":\"cell\",\"numb");
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(read(&path).unwrap().digest, None);
    let (mut recorder, recorded) = Recorder::resume(&path).unwrap();
    assert_eq!(recorded.cells, cells[..1]);
    recorder.cell(&cells[1]).unwrap();
    let digest = recorder.finish().unwrap();
    let read = read(&path).unwrap();
    assert_eq!((read.cells, read.digest), (cells, Some(digest)));
    assert!(matches!(Recorder::resume(&path), Err(LabError::Refused(_))), "it came to its end");
}

#[test]
fn a_file_that_a_run_writes_takes_no_other() {
    let place = Place::new();
    let path = place.0.join("a.lab");
    let cells = cells();
    let mut recorder = Recorder::create(&path, head()).unwrap();
    recorder.cell(&cells[0]).unwrap();
    let refused = |found: Result<(), LabError>| {
        let why = found.unwrap_err();
        assert!(matches!(&why, LabError::Refused(text) if text.contains("another measurement writes")), "{why:?}");
    };
    refused(Recorder::resume(&path).map(drop));
    refused(Recorder::admit(&path));
    // What another run may have begun is whole, and can be read meanwhile.
    assert_eq!(read(&path).unwrap().cells, cells[..1]);
    drop(recorder);
    Recorder::admit(&path).unwrap();
    let (mut recorder, _) = Recorder::resume(&path).unwrap();
    refused(Recorder::resume(&path).map(drop));
    recorder.cell(&cells[1]).unwrap();
    recorder.finish().unwrap();
    assert_eq!(read(&path).unwrap().cells, cells);
}

#[test]
fn a_rate_that_was_asked_for_has_the_digits_that_say_something() {
    for (rate, said) in [(2000.0, "2000 a second"), (5_120.0 / 17.0, "301.176 a second"), (0.0001, "0.0001 a second")] {
        assert_eq!(RunRecord { rate_asked: Some(rate), ..RunRecord::default() }.load(), said);
    }
}

#[test]
fn a_round_below_0_or_beyond_all_measure_is_an_error() {
    let place = Place::new();
    let path = place.0.join("a.lab");
    let cells = cells();
    let changes: [fn(&mut RoundRecord); 4] = [
        |round| round.seconds = -1.0,
        |round| round.seconds = 1e308,
        |round| round.rate = -5.0,
        |round| round.written_bytes = 1e300,
    ];
    for change in changes {
        let mut cell = cells[0].clone();
        change(&mut cell.runs[0].rounds[0]);
        drop(std::fs::remove_file(&path));
        Recorder::create(&path, head()).unwrap().cell(&cell).unwrap();
        let error = read(&path).unwrap_err();
        let said = error.to_string();
        assert!(said.ends_with("a.lab: line 2: a histogram or a round contradicts itself"), "{said}");
        assert!(matches!(error, LabError::Damaged(_)), "{error:?}");
    }
}

/// A drive or an image of one has no line break for as long as it is.
#[test]
fn of_what_is_no_lab_file_only_the_beginning_is_read() {
    struct Endless(u64);
    impl std::io::Read for Endless {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            self.0 += into.len() as u64;
            assert!(self.0 < MIB, "it is read on and on");
            into.fill(0);
            Ok(into.len())
        }
    }
    let said = super::read_from(std::io::BufReader::new(Endless(0))).unwrap_err().to_string();
    assert!(said.contains("line 1: is not of a .lab file"), "{said}");
}

#[test]
fn what_is_no_lab_file_is_an_error_that_says_so() {
    let place = Place::new();
    let path = place.0.join("a.lab");
    for text in ["", "{}\n", "measured: 5\n"] {
        std::fs::write(&path, text).unwrap();
        assert!(matches!(read(&path), Err(LabError::Failed(_))), "{text:?}");
    }
    std::fs::write(&path, "{\"line\":\"end\",\"blake3\":\"\"}\n").unwrap();
    assert!(matches!(read(&path), Err(LabError::Damaged(_))), "the end of a result alone");
    std::fs::write(&path, "{\"line\":\"other\"}\n").unwrap();
    let said = read(&path).unwrap_err().to_string();
    assert!(said.contains("a.lab: line 1: is not of a .lab file: column 15: unknown variant `other`"), "{said}");
    let later = serde_json::to_string(&Line::Head(Box::new(Head { version: VERSION + 1, ..head() }))).unwrap();
    std::fs::write(&path, later + "\n").unwrap();
    let refused = |error: LabError| matches!(&error, LabError::Refused(text) if text.contains("format 2 is not known"));
    assert!(refused(read(&path).unwrap_err()));
    // A later format may have a head of other fields.
    std::fs::write(&path, "{\"line\":\"head\",\"version\":2,\"job\":{\"later\":1}}\n{\"line\":\"later\"}\n").unwrap();
    assert!(refused(read(&path).unwrap_err()));
    assert!(matches!(read(&place.0.join("none")), Err(LabError::Missing(_))));
}

#[test]
fn what_is_steady_follows_from_the_rounds_and_not_from_what_is_stored() {
    let run = |rates: &[f64], seconds: &[f64]| {
        let round = |(rate, seconds): (&f64, &f64)| RoundRecord {
            seconds: *seconds,
            rate: *rate,
            read_bytes: 0.0,
            written_bytes: 0.0,
            read: HistogramRecord::default(),
            write: HistogramRecord::default(),
            lag_ns: 0,
            held_back: 0,
            late: None,
            cpu_own: 0.0,
            cpu_machine: 0.0,
            gap_ns: 0,
        };
        let rounds = rates.iter().zip(seconds).map(round).collect();
        RunRecord {
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
            rounds,
        }
    };
    let mut dipped = [1000.0; 20];
    dipped.iter_mut().skip(7).take(6).for_each(|rate| *rate = 830.0);
    assert!(run(&[1000.0; 20], &[1.0; 20]).is_steady());
    assert!(!run(&dipped, &[1.0; 20]).is_steady());
    // A file of a former version: the round of an outage is longer, and its rate was taken over its
    // own length.
    let mut lengths = [1.0; 18];
    lengths[9] = 4.0;
    let mut rates = [1000.0; 18];
    rates[9] = 250.0;
    let stalled = run(&rates, &lengths);
    assert!(stalled.shortfall().unwrap_or_default().contains("round 10 took 4.0 s"));
    assert!((stalled.total().rate - 18_000.0 / 21.0).abs() < 1.0, "{}", stalled.total().rate);
}

#[test]
fn a_cell_that_ended_before_its_time_is_kept_and_measured_again() {
    let place = Place::new();
    let path = place.0.join("a.lab");
    let cells = cells();
    let mut recorder = Recorder::create(&path, head()).unwrap();
    recorder.cell(&cells[0]).unwrap();
    let cut = CellRecord { failed: Some("the server ended the connection".into()), ..cells[1].clone() };
    recorder.partial(&cut).unwrap();
    let shown = read(&path).unwrap();
    assert_eq!((shown.cells, shown.digest), (vec![cells[0].clone(), cut], None));
    let (mut recorder, before) = Recorder::resume(&path).unwrap();
    assert_eq!(before.cells, cells[..1]);
    recorder.cell(&cells[1]).unwrap();
    recorder.finish().unwrap();
    assert_eq!(read(&path).unwrap().cells, cells);
}

#[test]
fn a_cell_is_in_the_file_before_its_target_is_read_back() {
    let place = Place::new();
    let (path, cells) = (place.0.join("a.lab"), cells());
    let mut recorder = Recorder::create(&path, head()).unwrap();
    recorder.cell(&cells[0]).unwrap();
    recorder.draft(&cells[1]).unwrap();
    // Killed while it is read back.
    let killed = std::fs::read(&path).unwrap();
    let found = read(&path).unwrap();
    assert_eq!((found.cells.len(), &found.cells[1], found.digest), (2, &cells[1], None));
    let read_back = Some(crate::live::read_back::ReadBack { bytes: MIB, ..Default::default() });
    let whole = CellRecord { read_back, ..cells[1].clone() };
    recorder.cell(&whole).unwrap();
    let digest = recorder.finish().unwrap();
    let found = read(&path).unwrap();
    assert_eq!((&found.cells[1], found.cells.len(), found.digest), (&whole, 2, Some(digest)));
    // A run that goes on after the kill measures the cell again.
    std::fs::write(&path, killed).unwrap();
    let (mut recorder, recorded) = Recorder::resume(&path).unwrap();
    assert_eq!(recorded.cells, cells[..1]);
    recorder.draft(&cells[1]).unwrap();
    recorder.partial(&cells[1]).unwrap();
    assert_eq!(read(&path).unwrap().cells, cells);
}

#[test]
fn a_file_whose_head_was_never_written_is_made_anew_and_no_other() {
    let place = Place::new();
    let path = place.0.join("a.lab");
    for (text, never) in [("", true), ("{\"line\":\"he", true), ("{\"line\":\"head\",\"vers", true), ("mine", false)] {
        std::fs::write(&path, text).unwrap();
        assert_eq!(Recorder::never_began(&path), never, "{text}");
    }
    drop(std::fs::remove_file(&path));
    drop(Recorder::create(&path, head()).unwrap());
    assert!(!Recorder::never_began(&path));
    assert!(!Recorder::never_began(&place.0.join("none")));
}

#[test]
fn a_run_that_ended_before_its_first_round_did_nothing_and_is_blamed_for_nothing() {
    let mut run = cells().remove(0).runs.remove(0);
    run.rounds.clear();
    (run.outstanding, run.under_way, run.saturation) = (Some(4), Some(0.0), Some(1.0));
    assert_eq!(format!("{:.0} {:.0}", run.total().rate, run.total().bytes), "0 0");
    assert!(run.shortcomings().is_empty(), "{:?}", run.shortcomings());
}

#[test]
fn a_rate_that_changes_is_judged_by_what_was_asked_of_each_round() {
    let rounds = |rates: &[f64]| RunRecord {
        rate_asked: Some(550.0),
        outstanding: None,
        profile: vec![(0.0, 100.0), (10.0, 1000.0)],
        rounds: rates
            .iter()
            .map(|rate| RoundRecord { rate: *rate, ..crate::report::tests::run(1, 1.0, 9, true).rounds[0].clone() })
            .collect(),
        ..crate::report::tests::run(1, 1.0, 9, true)
    };
    // Round n is asked for 100 + 90 (n + 1/2) a second.
    let asked: Vec<f64> = (0..10).map(|n| 145.0 + 90.0 * f64::from(n)).collect();
    let good = rounds(&asked);
    assert!(good.asked().iter().zip(&asked).all(|(one, other)| (one - other).abs() < 1e-6), "{:?}", good.asked());
    assert_eq!(good.shortfall(), None);
    let mut late = asked.clone();
    (late[8], late[9]) = (600.0, 600.0);
    let why = rounds(&late).shortfall().unwrap();
    assert!(why.contains("in 2 of 10 rounds, first in round 9: 600 a second were answered, 865 asked for"), "{why}");
    // What is answered late is more than was asked for then, and nothing fell behind.
    late[8] = asked[8] * 1.3;
    late[9] = asked[9];
    assert_eq!(rounds(&late).shortfall(), None);
}

#[test]
fn a_rate_that_is_not_kept_is_no_steady_state() {
    let rated = |asked: f64, rates: &[f64]| RunRecord {
        rate_asked: Some(asked),
        outstanding: None,
        rounds: rates
            .iter()
            .map(|rate| RoundRecord { rate: *rate, ..crate::report::tests::run(1, 1.0, 9, true).rounds[0].clone() })
            .collect(),
        ..crate::report::tests::run(1, 1.0, 9, true)
    };
    let why = rated(10_000.0, &[5_000.0; 20]).shortfall().unwrap();
    assert_eq!(why, "the rate was not kept: 5000 a second were answered, 10000 asked for");
    assert_eq!(rated(10_000.0, &[9_800.0; 20]).shortfall(), None);
    assert_eq!(rated(10.0, &[9.0; 5]).shortfall(), None, "chance");
    let replay = RunRecord {
        replay: Some(crate::replay::ReplayRecord {
            format: "fio".into(),
            seconds: 1.0,
            speed: Some(1.0),
            accesses: 1,
            moved: 0,
            left_out: Vec::new(),
            disordered: 0,
            devices: Vec::new(),
        }),
        ..rated(10_000.0, &[5_000.0; 20])
    };
    assert_eq!(replay.shortfall(), None, "a trace has the rates that it has");
}
