//! What was measured in the formats of other tools: fio's JSON, Iometer's results, and plain comma-separated values.
//!
//! Each cell is given by the run that stands for it. Their responses are those of the laboratory, from the intended start; fio's
//! submission latency has no counterpart and is 0.

use std::fmt::Write as _;

use crate::histogram::Histogram;
use crate::paper::chosen;
use crate::record::{CellRecord, Recorded, RunRecord};

mod fio;
mod iometer;

pub use fio::fio;
pub use iometer::iometer;

/// The runs that are exported, with their cells.
fn runs(recorded: &Recorded) -> impl Iterator<Item = (&CellRecord, &RunRecord)> {
    recorded.cells.iter().filter_map(|cell| Some((cell, chosen(cell)?)))
}

/// One direction of a run.
struct Side<'a> {
    histogram: &'a Histogram,
    bytes: f64,
    seconds: f64,
}

impl Side<'_> {
    fn rate(&self) -> f64 {
        self.histogram.count() as f64 / self.seconds
    }
}

fn seconds(run: &RunRecord) -> f64 {
    run.rounds.iter().map(|round| round.seconds).sum::<f64>().max(1e-9)
}

/// Bytes read and written in all.
fn bytes(run: &RunRecord) -> (f64, f64) {
    run.rounds.iter().fold((0.0, 0.0), |(read, written), round| {
        (read + round.read_bytes * round.seconds, written + round.written_bytes * round.seconds)
    })
}

/// A value that may stand between commas.
fn quoted(text: &str) -> String {
    match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// A line for each run of each cell, all probes of a search too.
pub fn csv(recorded: &Recorded) -> String {
    let mut axes: Vec<&str> = Vec::new();
    for (name, _) in recorded.cells.iter().flat_map(|cell| &cell.axes) {
        if !axes.contains(&name.as_str()) {
            axes.push(name);
        }
    }
    let mut out = String::from("cell,name,workload");
    for name in &axes {
        let _ = write!(out, ",{}", quoted(name));
    }
    out.push_str(
        ",run,outstanding,rate_asked,workers,steady,rate,read_rate,write_rate,read_bytes_per_s,written_bytes_per_s,mean_ns,p50_ns,\
         p90_ns,p99_ns,p999_ns,longest_ns,cpu_us,machine_cpu_us,lag_share\n",
    );
    for cell in &recorded.cells {
        for (number, run) in cell.runs.iter().enumerate() {
            let (total, seconds, bytes) = (run.total(), seconds(run), bytes(run));
            let _ = write!(out, "{},{},{}", cell.number, quoted(&cell.name), quoted(&cell.workload));
            for name in &axes {
                let value = cell.axes.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str());
                let _ = write!(out, ",{}", quoted(value));
            }
            let given = |value: Option<String>| value.unwrap_or_default();
            let at = |share: f64| total.response.percentile(share).0;
            let _ = writeln!(
                out,
                ",{number},{},{},{},{},{:.3},{:.3},{:.3},{:.0},{:.0},{},{},{},{},{},{},{:.3},{:.3},{}",
                given(run.outstanding.map(|count| count.to_string())),
                given(run.rate_asked.map(|rate| rate.to_string())),
                run.workers,
                run.steady,
                total.rate,
                total.read.count() as f64 / seconds,
                total.write.count() as f64 / seconds,
                bytes.0 / seconds,
                bytes.1 / seconds,
                total.response.mean().0,
                at(0.5),
                at(0.9),
                at(0.99),
                at(0.999),
                total.response.longest().0,
                total.cpu_own,
                total.cpu_machine,
                run.lag_share
            );
        }
    }
    out
}

#[cfg(test)]
mod tests;
