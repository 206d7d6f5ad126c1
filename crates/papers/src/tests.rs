//! A result without a run.

use stele_ground::Duration;
use stele_lab::histogram::Histogram;
use stele_lab::job::Job;
use stele_lab::record::{CellRecord, Head, HistogramRecord, Recorded, RoundRecord, RunRecord, VERSION};

/// A run whose accesses all took this many microseconds.
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
        written_bytes: 0.0,
        read,
        write: HistogramRecord::default(),
        lag_ns: 0,
        held_back: 0,
        late: None,
        cpu_own: 0.1,
        cpu_machine: 0.2,
        gap_ns: 0,
    };
    let slow = RoundRecord { rate: rate * 0.6, ..round.clone() };
    RunRecord {
        outstanding: Some(outstanding),
        rate_asked: None,
        profile: Vec::new(),
        replay: None,
        workers: 1,
        steady,
        stopped: false,
        lag_share: 0.0,
        under_way: None,
        saturation: None,
        busy: Vec::new(),
        unanswered: HistogramRecord::default(),
        rounds: match steady {
            true => vec![round; 5],
            // A fifth as much more, and as much less: the same mean.
            false => vec![RoundRecord { rate: rate * 1.4, ..round.clone() }, slow, round.clone(), round.clone(), round],
        },
    }
}

pub fn cell(number: usize, outstanding: u32, rate: f64, micros: u64) -> CellRecord {
    CellRecord {
        number,
        name: format!("outstanding {outstanding}"),
        axes: vec![("outstanding".into(), outstanding.to_string())],
        workload: "oltp_4k".into(),
        runs: vec![run(outstanding, rate, micros, true)],
        search: None,
        hosts: Vec::new(),
        precondition: None,
        objective: None,
        wrong_sectors: 0,
        read_back: None,
        left_behind: false,
        names: false,
        failed: None,
    }
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
