//! Iometer's results file: a section for each access specification, its results as a table of
//! comma-separated values.

use std::fmt::Write as _;

use super::{bytes, errors, quoted, runs, seconds};
use stele_lab::record::Recorded;

/// The titles that Iometer writes above its results, as far as the laboratory has counterparts.
const TITLES: &str = "'Target Type,Target Name,Access Specification Name,# Managers,# Workers,# Disks,IOps,Read IOps,Write IOps,\
    MBps,Read MBps,Write MBps,Average Response Time,Average Read Response Time,Average Write Response Time,\
    Maximum Response Time,Maximum Read Response Time,Maximum Write Response Time,Errors,Read Errors,Write Errors,\
    Bytes Read,Bytes Written,Read I/Os,Write I/Os,% CPU Utilization,CPU Effectiveness";

/// Bytes of a megabyte in Iometer.
const MEGA: f64 = 1_048_576.0;

pub fn iometer(recorded: &Recorded) -> String {
    let head = &recorded.head;
    let mut out =
        format!("'Test Type,Test Description\n0,{}\n'Version\n{}\n", quoted(&head.target), quoted(&head.program));
    let processors = processors(recorded);
    for (cell, run) in runs(recorded) {
        let (total, seconds, bytes) = (run.total(), seconds(run), bytes(run));
        // Iometer's share is of all processors.
        let cpu: f64 = run.rounds.iter().map(|round| round.cpu_machine).sum::<f64>() / seconds / processors * 100.0;
        let errors = errors(cell).map_or(0, |found| found.0);
        // Wrong data is of reads; of other errors it is not known.
        let of_reads = if cell.is_damaged() { errors } else { 0 };
        let millis = |nanoseconds: u64| nanoseconds as f64 / 1e6;
        let rates = (total.read.count() as f64 / seconds, total.write.count() as f64 / seconds);
        let name = quoted(&cell.name);
        let _ = writeln!(out, "'Results\n{TITLES}");
        let _ = writeln!(
            out,
            "ALL,All,{name},1,{},1,{:.6},{:.6},{:.6},{:.6},{:.6},{:.6},{:.6},{:.6},{:.6},{:.6},{:.6},{:.6},{errors},{of_reads},0,{:.0},{:.0},{},{},{:.6},{:.6}",
            run.workers,
            rates.0 + rates.1,
            rates.0,
            rates.1,
            (bytes.0 + bytes.1) / seconds / MEGA,
            bytes.0 / seconds / MEGA,
            bytes.1 / seconds / MEGA,
            millis(total.response.mean().0),
            millis(total.read.mean().0),
            millis(total.write.mean().0),
            millis(total.response.longest().0),
            millis(total.read.longest().0),
            millis(total.write.longest().0),
            bytes.0,
            bytes.1,
            total.read.count(),
            total.write.count(),
            cpu,
            (rates.0 + rates.1) / cpu.max(1e-9)
        );
    }
    out
}

/// Of all machines that measured; 1 where a file does not say.
fn processors(recorded: &Recorded) -> f64 {
    let count = |(name, value): &(String, String)| {
        let is_count = name == "processors" || name.ends_with(" processors");
        value.parse::<u32>().ok().filter(|_| is_count)
    };
    f64::from(recorded.head.environment.iter().filter_map(count).fold(0, u32::saturating_add).max(1))
}
