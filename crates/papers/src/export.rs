//! Results in the formats of other tools: fio's JSON, Iometer's results, and plain comma-separated
//! values.
//!
//! Each cell is represented by one run. Response times are those of the laboratory, from the
//! intended start; fio's submission latency has no counterpart and is 0.

use std::fmt::Write as _;

use stele_lab::histogram::Histogram;
use stele_lab::record::{CellRecord, Recorded, RunRecord};
use stele_lab::report::chosen;

mod fio;
mod iometer;

pub use fio::{fio, ran};
pub use iometer::iometer;

/// The runs that are exported, with their cells.
fn runs(recorded: &Recorded) -> impl Iterator<Item = (&CellRecord, &RunRecord)> {
    recorded.cells.iter().filter_map(|cell| Some((cell, chosen(cell)?)))
}

/// What is wrong with a cell: how many errors, at least one, and what they were. None: nothing.
fn errors(cell: &CellRecord) -> Option<(u64, String)> {
    let read_back = cell.read_back.as_ref().filter(|found| !found.wrong.is_none());
    let of_hosts = || cell.hosts.iter().find_map(|host| Some(format!("host {}: {}", host.host, host.failed.as_ref()?)));
    let why = cell.failed.clone().or_else(|| read_back.map(|found| found.wrong.to_string())).or_else(of_hosts);
    // Those that end a run are read back too.
    let sectors = cell.wrong_sectors.max(read_back.map_or(0, |found| found.wrong.sectors));
    let damaged = cell.is_damaged().then(|| format!("{sectors} sectors of 512 bytes are not as written"));
    why.or(damaged).map(|why| (sectors.max(1), why))
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

/// Bytes read and written in total.
fn bytes(run: &RunRecord) -> (f64, f64) {
    run.rounds.iter().fold((0.0, 0.0), |(read, written), round| {
        (read + round.read_bytes * round.seconds, written + round.written_bytes * round.seconds)
    })
}

/// Mean, 50, 99 and 99.9 %; empty without accesses.
fn spans(histogram: &Histogram) -> String {
    match histogram.count() {
        0 => ",,,".to_owned(),
        _ => [0.5, 0.99, 0.999]
            .iter()
            .fold(histogram.mean().0.to_string(), |line, share| format!("{line},{}", histogram.percentile(*share).0)),
    }
}

/// A value quoted for comma-separated output.
fn quoted(text: &str) -> String {
    match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// A line for each run of each cell, including all probes of a search.
pub fn csv(recorded: &Recorded) -> String {
    let mut axes: Vec<&str> = Vec::new();
    for (name, _) in recorded.cells.iter().flat_map(|cell| &cell.axes) {
        if !axes.contains(&name.as_str()) {
            axes.push(name);
        }
    }
    let mut out = String::from("cell,name,workload,of");
    for name in &axes {
        let _ = write!(out, ",{}", quoted(name));
    }
    out.push_str(
        ",run,outstanding,rate_asked,workers,steady,rate,read_rate,write_rate,read_bytes_per_s,written_bytes_per_s,mean_ns,p50_ns,\
         p90_ns,p99_ns,p999_ns,longest_ns,cpu_us,machine_cpu_us,lag_share,read_mean_ns,read_p50_ns,read_p99_ns,read_p999_ns,\
         write_mean_ns,write_p50_ns,write_p99_ns,write_p999_ns,errors,error\n",
    );
    for cell in &recorded.cells {
        let found = errors(cell);
        for (number, run) in cell.runs.iter().enumerate() {
            let (total, seconds, bytes) = (run.total(), seconds(run), bytes(run));
            let _ = write!(
                out,
                "{},{},{},{}",
                cell.number,
                quoted(&cell.name),
                quoted(&cell.workload),
                if cell.names { "names" } else { "data" }
            );
            for name in &axes {
                let value = cell.axes.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str());
                let _ = write!(out, ",{}", quoted(value));
            }
            let given = |value: Option<String>| value.unwrap_or_default();
            let at = |share: f64| total.response.percentile(share).0;
            let _ = writeln!(
                out,
                ",{number},{},{},{},{},{:.3},{:.3},{:.3},{:.0},{:.0},{},{},{},{},{},{},{:.3},{:.3},{},{},{},{},{}",
                given(run.outstanding.map(|count| count.to_string())),
                given(run.rate_asked.map(|rate| rate.to_string())),
                run.workers,
                run.is_steady(),
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
                run.lag_share,
                spans(&total.read),
                spans(&total.write),
                found.as_ref().map_or(0, |found| found.0),
                quoted(found.as_ref().map_or("", |found| found.1.as_str()))
            );
        }
    }
    out
}

/// A line for each round of each run, with its end in seconds after the warm-up.
pub fn rounds(recorded: &Recorded) -> String {
    let mut out = String::from(
        "cell,name,run,load,round,seconds,rate,read_bytes_per_s,written_bytes_per_s,mean_ns,p50_ns,p99_ns,p999_ns,longest_ns,\
         under_way,processors_own,processors,late_mean_ns,late_longest_ns,gap_ns\n",
    );
    for cell in &recorded.cells {
        for (number, run) in cell.runs.iter().enumerate() {
            let mut at = 0.0;
            for (turn, round) in run.rounds.iter().enumerate() {
                at += round.seconds;
                let response = RunRecord { rounds: vec![round.clone()], ..run.clone() }.total().response;
                let span = round.seconds.max(1e-9);
                let late = round.late.as_ref().map_or((0, 0), |late| {
                    let count: u64 = late.counts.iter().map(|(_, count)| count).sum();
                    (late.sum_ns / count.max(1), late.longest_ns)
                });
                let _ = writeln!(
                    out,
                    "{},{},{number},{},{},{at:.3},{:.3},{:.0},{:.0},{},{},{},{},{},{:.3},{:.3},{:.3},{},{},{}",
                    cell.number,
                    quoted(&cell.name),
                    quoted(&run.load()),
                    turn + 1,
                    round.rate,
                    round.read_bytes,
                    round.written_bytes,
                    response.mean().0,
                    response.percentile(0.5).0,
                    response.percentile(0.99).0,
                    response.percentile(0.999).0,
                    response.longest().0,
                    round.rate * response.mean().as_secs_f64(),
                    round.cpu_own / span,
                    round.cpu_machine / span,
                    late.0,
                    late.1,
                    round.gap_ns
                );
            }
        }
    }
    out
}

#[cfg(test)]
mod tests;
