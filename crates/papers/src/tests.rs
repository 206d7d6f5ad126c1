//! A result without a run.

use stele_ground::Duration;
use stele_lab::histogram::Histogram;
use stele_lab::record::{CellRecord, Head, HistogramRecord, Recorded, RoundRecord, RunRecord, VERSION};

/// A cell whose reads of 4 KiB all took this many microseconds.
pub fn cell(number: usize, outstanding: u32, rate: f64, micros: u64) -> CellRecord {
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
    let run = RunRecord {
        outstanding: Some(outstanding),
        workers: 1,
        steady: true,
        rounds: vec![round; 5],
        ..RunRecord::default()
    };
    CellRecord {
        number,
        name: format!("outstanding {outstanding}"),
        axes: vec![("outstanding".into(), outstanding.to_string())],
        workload: "oltp_4k".into(),
        runs: vec![run],
        ..CellRecord::default()
    }
}

pub fn recorded(cells: Vec<CellRecord>) -> Recorded {
    let head = Head { version: VERSION, target: "/data/target".into(), ..Head::default() };
    Recorded { head, cells, digest: Some("abc".into()) }
}
