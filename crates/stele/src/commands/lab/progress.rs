//! Progress of a run: one updated line on a terminal, JSON lines for machines, otherwise nothing.

use std::io::{IsTerminal, Write};
use std::time::Instant;

use stele_ground::shown::shown;
use stele_ground::{Bytes, Duration, counted};
use stele_lab::job::JobCell;
use stele_lab::live::run::Draining;
use stele_lab::record::{CellRecord, Head};
use stele_lab::replay::ReplayPlan;
use stele_lab::report;
use stele_lab::sweep::Step;

use super::live::Live;

pub struct Progress<'a> {
    json: bool,
    terminal: bool,
    cells: &'a [JobCell],
    begun: Instant,
    live: Option<Live>,
}

impl<'a> Progress<'a> {
    pub fn new(json: bool, cells: &'a [JobCell]) -> Progress<'a> {
        let terminal = !json && std::io::stderr().is_terminal();
        Progress { json, terminal, cells, begun: Instant::now(), live: None }
    }

    /// Adds the live view.
    pub fn showing(self, live: Option<Live>) -> Progress<'a> {
        Progress { live, ..self }
    }

    pub fn filling(&self, done: u64, all: u64) {
        self.bulk("filling the target", self.begun, done, all);
    }

    /// Shows the progress of an operation on the whole target.
    pub fn bulk(&self, what: &str, begun: Instant, done: u64, all: u64) {
        if !self.terminal {
            return;
        }
        let seconds = begun.elapsed().as_secs_f64().max(1e-3);
        let rate = done as f64 / seconds;
        let left = Duration((all.saturating_sub(done) as f64 / rate.max(1.0) * 1e9) as u64);
        self.line(&format!("{what}: {} of {}, {:.0} MB/s, {left} left", Bytes(done), Bytes(all), rate / 1e6));
    }

    pub fn begin(&self, head: &Head, done: usize) {
        self.clear();
        if self.json {
            return;
        }
        eprintln!("{}, {}", head.reached, Bytes(head.target_bytes));
        if done > 0 {
            eprintln!("measured before: {done} of {}", cells(self.cells.len()));
        }
        let (least, most) = self.left(done);
        let drains = self.cells.iter().skip(done).any(JobCell::is_open);
        let then = if drains { ", and the time in which a target that fell behind catches up" } else { "" };
        eprintln!("{} to go: {least} at least, {most} at most{then}", cells(self.cells.len() - done));
    }

    pub fn begin_replay(&self, head: &Head, planned: &ReplayPlan) {
        self.clear();
        if self.json {
            return;
        }
        eprintln!("{}, {}", head.reached, Bytes(head.target_bytes));
        let length = planned.length().map_or("as long as the target needs".into(), |length| length.to_string());
        eprintln!("{} to go: {length}", counted(planned.survey.accesses(), "access"));
    }

    /// The least and the largest time that the cells from this one on take.
    fn left(&self, from: usize) -> (Duration, Duration) {
        lasting(self.cells.get(from..).unwrap_or_default())
    }

    /// Shows how a target that fell behind catches up when the time of the run is over.
    fn draining(&self, cell: usize, draining: Draining) {
        let name = self.name_of(cell);
        let place = if self.cells.is_empty() { String::new() } else { format!("{}/{} ", cell + 1, self.cells.len()) };
        self.line(&format!("{place}{name}: {}", caught_up(draining)));
    }

    /// The name of a cell, as it may stand on a terminal: a job may be another one's.
    fn name_of(&self, cell: usize) -> String {
        self.cells.get(cell).map_or_else(|| "replay".to_owned(), |cell| shown(&cell.name()))
    }

    pub fn round(&self, step: &Step<'_>) {
        if let Some(draining) = step.draining {
            return self.draining(step.cell, draining);
        }
        if let Some(live) = &self.live {
            live.see(step, &self.name_of(step.cell));
        }
        if !self.json && self.live.as_ref().is_some_and(Live::draws) {
            return;
        }
        let response = step.round.response();
        let (read, written) = (step.round.read_bytes_rate, step.round.written_bytes_rate);
        if self.json {
            let line = serde_json::json!({
                "cell": step.cell, "load": step.load.to_string(), "round": step.number, "rate": step.round.rate,
                "preconditions": step.preconditions,
                "read_bytes": read, "written_bytes": written, "mean_ns": response.mean().0,
                "p99_ns": response.percentile(0.99).0, "longest_ns": response.longest().0,
            });
            println!("{line}");
            return;
        }
        let name = self.name_of(step.cell);
        let round = match step {
            _ if step.preconditions => "preconditioning".to_owned(),
            _ if step.number < 0 => "warming up".to_owned(),
            _ => format!("round {}", step.number + 1),
        };
        // Finished rounds of this cell no longer count.
        let length = self.cells.get(step.cell).map_or(0, |cell| cell.setup.timing.round.0);
        let warm_up = self.cells.get(step.cell).map_or(0, |cell| cell.setup.timing.warm_up.0);
        let over = (step.number + 1).max(0) as u64 * length + if step.number < 0 { 0 } else { warm_up };
        let left = Duration(self.left(step.cell).0.0.saturating_sub(if step.preconditions { 0 } else { over }));
        if self.cells.is_empty() {
            return self.line(&format!(
                "{round}: {:.0}/s, {:.1} MB/s, mean {}, 99 % {}; started behind by {}",
                step.round.rate,
                (read + written) / 1e6,
                response.mean(),
                response.percentile(0.99),
                step.round.late.mean()
            ));
        }
        self.line(&format!(
            "{}/{} {name}, {}, {round}: {:.0}/s, {:.1} MB/s, mean {}, 99 % {}; {left} left at least",
            step.cell + 1,
            self.cells.len(),
            step.load,
            step.round.rate,
            (read + written) / 1e6,
            response.mean(),
            response.percentile(0.99)
        ));
    }

    pub fn cell(&self, found: &CellRecord) {
        if !self.terminal || self.cells.len() == 1 {
            return;
        }
        self.clear();
        let said = super::row_of(found, shown(&report::called(found))).into_iter().chain([report::remark(found)]);
        let row = said.filter(|cell| !cell.is_empty()).collect::<Vec<_>>();
        eprintln!("{}", row.join("  "));
    }

    fn line(&self, text: &str) {
        if self.terminal {
            eprint!("\r\x1b[2K{text}");
            let _ = std::io::stderr().flush();
        }
    }

    fn clear(&self) {
        if let Some(live) = &self.live {
            live.clear();
        }
        if self.terminal {
            eprint!("\r\x1b[2K");
        }
    }
}

/// Clears the drawing, so that it does not stay above the results.
impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if let Some(live) = &self.live {
            live.clear();
        }
    }
}

/// What is waited for when the time of a run is over.
fn caught_up(draining: Draining) -> String {
    let accesses = counted(draining.under_way, "access");
    format!("its time is over; the target still owes the answers to {accesses}, for {} so far", draining.waited)
}

/// The least and the largest time that cells take: one after another, or tenants side by side.
pub fn lasting(cells: &[JobCell]) -> (Duration, Duration) {
    cells.iter().fold((Duration(0), Duration(0)), |(least, most), cell| {
        let (own_least, own_most) = cell.expected();
        let is_beside = cell.axes.first().is_some_and(|(axis, _)| axis == "tenant");
        let with = |all: Duration, own: Duration| match is_beside {
            true => all.max(own),
            false => Duration(all.0.saturating_add(own.0)),
        };
        (with(least, own_least), with(most, own_most))
    })
}

pub fn cells(count: usize) -> String {
    counted(count as u64, "cell")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_take_the_time_of_one_and_cells_that_of_all() {
        let time = "[time]\nwarm-up = '0s'\nleast = '10s'\nmost = '10s'\n";
        let of = |job: String| {
            let cells = stele_lab::job::Job::parse(&job).unwrap().cells().unwrap();
            (cells.len(), lasting(&cells))
        };
        let ten = Duration::from_secs(10);
        let tenants = format!("on = 'null'\n[[tenant]]\nname = 'a'\n[[tenant]]\nname = 'b'\n{time}");
        assert_eq!(of(tenants), (2, (ten, ten)));
        let sizes = format!("on = 'null'\n[workload]\naccess = ['4KiB', '8KiB']\n{time}");
        assert_eq!(of(sizes), (2, (Duration::from_secs(20), Duration::from_secs(20))));
    }

    #[test]
    fn what_a_target_owes_is_told_when_the_time_is_over() {
        for (under_way, accesses) in [(1, "1 access,"), (4096, "4096 accesses,")] {
            let said = caught_up(Draining { under_way, waited: Duration::from_millis(2500) });
            assert!(said.contains(accesses) && said.ends_with("for 2.5 s so far"), "{said}");
        }
    }
}
