//! A run while it goes on, second by second: for a terminal as lines that are written over, for
//! machines in Prometheus's text.
//!
//! Both are made from the rounds that workers hand over, and cost them nothing. What is shown here
//! is not kept: the record has every round with its histograms.

use std::collections::VecDeque;
use std::fmt::Write as _;

use stele_ground::Duration;

use crate::histogram::Histogram;
use crate::live::run::Round;
use crate::sweep::Step;

/// Rounds that the curve of rates shows.
const SHOWN: usize = 120;
/// Ends of the buckets that machines are told, in microseconds.
const ENDS: [u64; 19] = [
    10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 5_000_000, 10_000_000,
];
/// Heights of the curve, in characters that every terminal has.
const HEIGHTS: [char; 6] = ['_', '.', '-', '=', '*', '#'];
const BAR: usize = 40;

/// What is going on.
#[derive(Clone, Default, Debug)]
pub struct View {
    target: String,
    cell: String,
    number: usize,
    cells: usize,
    load: String,
    round: i64,
    last: Last,
    rates: VecDeque<f64>,
    /// Since the command began, the warm-ups too: counters never go back.
    reads: Sum,
    writes: Sum,
    rounds: u64,
}

/// The last round.
#[derive(Clone, Default, Debug)]
struct Last {
    rate: f64,
    bytes: f64,
    response: Histogram,
    under_way: f64,
    cpu_own: f64,
    cpu_machine: f64,
    late: Histogram,
}

#[derive(Clone, Default, Debug)]
struct Sum {
    response: Histogram,
    bytes: f64,
}

impl View {
    pub fn of(target: String, cells: usize) -> View {
        View { target, cells, ..View::default() }
    }

    /// Another round is over.
    pub fn see(&mut self, step: &Step<'_>, name: &str) {
        let load = step.load.to_string();
        if (self.number, &self.load) != (step.cell, &load) || step.number < self.round {
            self.rates.clear();
        }
        (self.number, self.load, self.round) = (step.cell, load, step.number);
        name.clone_into(&mut self.cell);
        let round = step.round;
        self.rates.push_back(round.rate);
        while self.rates.len() > SHOWN {
            self.rates.pop_front();
        }
        self.rounds += 1;
        self.reads.response.merge(&round.read);
        self.reads.bytes += round.read_bytes_rate * round.span;
        self.writes.response.merge(&round.write);
        self.writes.bytes += round.written_bytes_rate * round.span;
        self.last = Last::of(round);
    }

    /// For a terminal of so many columns.
    pub fn lines(&self, wide: usize) -> Vec<String> {
        let wide = wide.clamp(40, 200);
        let last = &self.last;
        let round = if self.round < 0 { "warming up".to_owned() } else { format!("round {}", self.round + 1) };
        let mut lines = vec![
            format!("{} of {}: {}, {}, {round}", self.number + 1, self.cells.max(1), self.cell, self.load),
            format!(
                "rate      {:>12.0}/s {:>10.1} MB/s   {}",
                last.rate,
                last.bytes / 1e6,
                self.curve(wide.saturating_sub(46))
            ),
            format!(
                "response  mean {}, 50 % {}, 99 % {}, all {}",
                last.response.mean(),
                last.response.percentile(0.5),
                last.response.percentile(0.99),
                last.response.longest()
            ),
            format!(
                "queue     {:.1} under way   CPU  {:.2} here, {:.2} of the machine",
                last.under_way, last.cpu_own, last.cpu_machine
            ),
        ];
        if last.late.count() > 0 {
            lines.push(format!("behind    mean {}, all {}", last.late.mean(), last.late.longest()));
        }
        lines.extend(self.bars());
        lines.iter().map(|line| line.chars().take(wide - 1).collect()).collect()
    }

    /// Rates of the last rounds, from 0 to the highest of them.
    fn curve(&self, most: usize) -> String {
        let highest = self.rates.iter().copied().fold(0.0, f64::max);
        let shown = self.rates.iter().skip(self.rates.len().saturating_sub(most));
        let height = |rate: &f64| {
            let place = if highest > 0.0 { rate / highest * (HEIGHTS.len() - 1) as f64 } else { 0.0 };
            HEIGHTS.get(place.round() as usize).copied().unwrap_or('?')
        };
        shown.map(height).collect()
    }

    /// A bar for each span of the last round's responses between those that occur.
    fn bars(&self) -> Vec<String> {
        let counts = within(&self.last.response);
        let mut before = 0;
        let each: Vec<u64> = counts.iter().map(|count| count - std::mem::replace(&mut before, *count)).collect();
        let all = self.last.response.count();
        let ends = ENDS.iter().map(|micros| Duration(micros * 1000)).chain([Duration(u64::MAX)]);
        let rows: Vec<(Duration, u64)> = ends.zip(each.into_iter().chain([all - before])).collect();
        let held = |row: &(Duration, u64)| row.1 > 0;
        let (Some(first), Some(last)) = (rows.iter().position(held), rows.iter().rposition(held)) else {
            return Vec::new();
        };
        let most = rows.iter().map(|row| row.1).max().unwrap_or(1).max(1);
        let row = |(end, count): &(Duration, u64)| {
            let long = (count * BAR as u64).div_ceil(most) as usize;
            let share = *count as f64 * 100.0 / all.max(1) as f64;
            let end = if end.0 == u64::MAX { "more".to_owned() } else { end.to_string() };
            format!("  {end:>9} {share:>6.2} % {}", "=".repeat(long))
        };
        rows.get(first..=last).unwrap_or_default().iter().map(row).collect()
    }

    /// In Prometheus's text format.
    pub fn metrics(&self) -> String {
        let mut out = String::new();
        let target = label(&self.target);
        let mut family = |name: &str, kind: &str, help: &str, rows: &[(String, String)]| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in rows {
                let _ = writeln!(out, "{name}{labels} {value}");
            }
        };
        let one = |value: f64| [(String::new(), plain(value))];
        let info = format!("{{target=\"{target}\",cell=\"{}\",load=\"{}\"}}", label(&self.cell), label(&self.load));
        family("stele_lab_info", "gauge", "What is measured.", &[(info, "1".into())]);
        family("stele_lab_cell", "gauge", "Number of the cell, from 1.", &one(self.number as f64 + 1.0));
        family("stele_lab_cells", "gauge", "Cells in all.", &one(self.cells as f64));
        family("stele_lab_rounds_total", "counter", "Rounds that are over.", &one(self.rounds as f64));
        family(
            "stele_lab_warming_up",
            "gauge",
            "1 while nothing counts yet.",
            &one(f64::from(u8::from(self.round < 0))),
        );
        family("stele_lab_rate", "gauge", "Accesses a second in the last round.", &one(self.last.rate));
        family(
            "stele_lab_under_way",
            "gauge",
            "Accesses under way in the last round, by Little's law.",
            &one(self.last.under_way),
        );
        family(
            "stele_lab_processors_own",
            "gauge",
            "Processors at work for the generator in the last round.",
            &one(self.last.cpu_own),
        );
        family("stele_lab_processors", "gauge", "Processors at work in the last round.", &one(self.last.cpu_machine));
        let ways = [("read", &self.reads), ("write", &self.writes)];
        let bytes = ways.map(|(way, sum)| (format!("{{direction=\"{way}\"}}"), plain(sum.bytes.round())));
        family("stele_lab_bytes_total", "counter", "Bytes that were read and written.", &bytes);
        let _ = writeln!(
            out,
            "# HELP stele_lab_response_seconds From the intended start of an access to its answer.\n\
             # TYPE stele_lab_response_seconds histogram"
        );
        for (way, sum) in ways {
            let name = "stele_lab_response_seconds";
            for (end, count) in ENDS.iter().zip(within(&sum.response)) {
                let _ = writeln!(out, "{name}_bucket{{direction=\"{way}\",le=\"{}\"}} {count}", *end as f64 / 1e6);
            }
            let (count, seconds) = (sum.response.count(), sum.response.sum() as f64 / 1e9);
            let _ = writeln!(out, "{name}_bucket{{direction=\"{way}\",le=\"+Inf\"}} {count}");
            let _ = writeln!(
                out,
                "{name}_sum{{direction=\"{way}\"}} {seconds}\n{name}_count{{direction=\"{way}\"}} {count}"
            );
        }
        out
    }
}

impl Last {
    fn of(round: &Round) -> Last {
        let response = round.response();
        let span = round.span.max(1e-9);
        Last {
            rate: round.rate,
            bytes: round.read_bytes_rate + round.written_bytes_rate,
            under_way: round.rate * response.mean().as_secs_f64(),
            cpu_own: (round.cpu_own / span).max(0.0),
            cpu_machine: (round.cpu_machine / span).max(0.0),
            late: round.late.clone(),
            response,
        }
    }
}

/// How many were answered within each of the ends: a bucket of the histogram counts where its end
/// lies.
fn within(response: &Histogram) -> Vec<u64> {
    let spans: Vec<(Duration, u64)> = response.spans().collect();
    let up_to = |micros: &u64| spans.iter().filter(|(span, _)| span.0 <= micros * 1000).map(|(_, count)| count).sum();
    ENDS.iter().map(up_to).collect()
}

fn plain(value: f64) -> String {
    if value.is_finite() { value.to_string() } else { "0".into() }
}

/// The text of a label.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::run::Load;

    /// A round of so many reads, which all took so many microseconds.
    fn round(reads: u64, micros: u64) -> Round {
        let mut read = Histogram::default();
        (0..reads).for_each(|_| read.record(Duration(micros * 1000)));
        let rate = reads as f64;
        Round {
            rate,
            read_bytes_rate: rate * 4096.0,
            read,
            cpu_own: 0.5,
            cpu_machine: 1.5,
            span: 1.0,
            ..Round::default()
        }
    }

    fn seen(rounds: &[(i64, u64, u64)]) -> View {
        let mut view = View::of("a \"target\"".into(), 2);
        for (number, reads, micros) in rounds {
            let round = round(*reads, *micros);
            let load = Load::Outstanding(8);
            view.see(
                &Step { cell: 1, load, number: *number, preconditions: false, round: &round, draining: None },
                "the cell",
            );
        }
        view
    }

    #[test]
    fn a_terminal_is_told_rate_responses_queue_and_processors_within_its_width() {
        let view = seen(&[(-1, 50, 90), (0, 100, 150), (1, 200, 40_000)]);
        let lines = view.lines(80);
        assert!(lines[0].contains("2 of 2: the cell, 8 outstanding, round 2"), "{lines:?}");
        assert!(lines[1].contains("200/s") && lines[1].ends_with(" .=#"), "{lines:?}");
        // 200 a second of 40 ms each.
        assert!(lines[3].contains("8.0 under way") && lines[3].contains("0.50 here, 1.50 of the machine"), "{lines:?}");
        assert!(lines[4].contains("50.0 ms 100.00 %") && lines.len() == 5, "{lines:?}");
        assert!(view.lines(60).iter().all(|line| line.chars().count() < 60));
        assert!(View::of("t".into(), 1).lines(80).len() == 4, "before the first round");
    }

    #[test]
    fn machines_are_told_counters_that_never_go_back_and_whole_histograms() {
        let mut before = 0;
        for rounds in
            [&[(-1, 50, 90)][..], &[(-1, 50, 90), (0, 100, 150)], &[(-1, 50, 90), (0, 100, 150), (-1, 10, 90)]]
        {
            let text = seen(rounds).metrics();
            let value = |name: &str| -> f64 {
                let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
                line.rsplit(' ').next().unwrap().parse().unwrap()
            };
            let count = value("stele_lab_response_seconds_count{direction=\"read\"}") as u64;
            assert!(count > before, "{text}");
            before = count;
            assert_eq!(value("stele_lab_response_seconds_bucket{direction=\"read\",le=\"+Inf\"}") as u64, count);
            assert_eq!(value("stele_lab_bytes_total{direction=\"read\"}") as u64, count * 4096);
            assert_eq!(value("stele_lab_response_seconds_bucket{direction=\"read\",le=\"0.00001\"}"), 0.0);
            assert!(text.contains("target=\"a \\\"target\\\"\"") && text.ends_with('\n'));
        }
        let text = seen(&[(0, 100, 190)]).metrics();
        assert!(text.contains("{direction=\"read\",le=\"0.0002\"} 100"), "{text}");
        assert!(text.contains("{direction=\"read\",le=\"0.0001\"} 0"), "{text}");
    }
}
