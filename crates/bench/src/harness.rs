//! Cases, rounds in turns, medians, and the two forms of output. The crate's opening comment shows
//! how to add a case.

mod report;

use std::cell::RefCell;
use std::time::{Duration, Instant};

pub use report::Row;

/// The options of the command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// Words that a case's name must contain, in either case.
    pub pattern: String,
    pub json: bool,
    pub rounds: u32,
    /// Versions in the bench of the archive.
    pub versions: Option<u64>,
    /// Whether a whole run writes its page of the documents.
    pub write_docs: bool,
}

/// The name of a reference that is no peer and no limit, but the figure to reach.
pub const TARGET: &str = "the target";
/// Names that are shown if the pattern fits none; the rest is counted.
const NAMES_MAX: usize = 60;

/// A bench in progress.
#[derive(Debug)]
pub struct Bench {
    pub name: &'static str,
    options: Options,
    rows: usize,
    missed: usize,
    names: RefCell<Names>,
}

/// What the pattern was compared with.
#[derive(Debug, Default)]
struct Names {
    fits: bool,
    /// Those that it does not fit.
    others: Vec<String>,
}

/// The unit of a figure, and its better direction.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    pub name: &'static str,
    more_is_better: bool,
}

/// The description of a case; [`Case::run`] measures it.
pub struct Case<'a> {
    bench: &'a mut Bench,
    name: String,
    unit: Unit,
    target: Option<f64>,
    peer: Peer<'a>,
}

type Round<'a> = Box<dyn FnMut() -> Result<f64, String> + 'a>;

enum Peer<'a> {
    None,
    Known(String, f64),
    Measured(String, Round<'a>),
}

impl Unit {
    /// A unit in which more is better: rates.
    pub const fn more(name: &'static str) -> Unit {
        Unit { name, more_is_better: true }
    }

    /// A unit in which less is better: times, CPU, memory.
    pub const fn less(name: &'static str) -> Unit {
        Unit { name, more_is_better: false }
    }
}

impl Bench {
    pub fn new(name: &'static str, options: Options) -> Bench {
        Bench { name, options, rows: 0, missed: 0, names: RefCell::default() }
    }

    /// Whether `--case` selects this case; ask before a costly set-up.
    pub fn wants(&self, case: &str) -> bool {
        let lower = case.to_lowercase();
        let fits = self.options.pattern.split_whitespace().all(|word| lower.contains(&word.to_lowercase()));
        let mut names = self.names.borrow_mut();
        names.fits |= fits;
        if !fits && !names.others.iter().any(|other| other == case) {
            names.others.push(case.to_owned());
        }
        fits
    }

    /// Whether `--case` selects a case whose name is one of these, each behind the same beginning.
    pub fn wants_any<'n>(&self, begin: &str, ends: impl IntoIterator<Item = &'n str>) -> bool {
        ends.into_iter().fold(false, |any, end| any | self.wants(&format!("{begin}{end}")))
    }

    /// Whether no case is left out.
    pub fn is_whole(&self) -> bool {
        self.options.pattern.trim().is_empty()
    }

    pub fn case<'a>(&'a mut self, name: impl Into<String>, unit: Unit) -> Case<'a> {
        Case { bench: self, name: name.into(), unit, target: None, peer: Peer::None }
    }

    /// Reports a figure that another case produced: without rounds and spread.
    pub fn figure(&mut self, name: &str, unit: Unit, value: f64, reference: Option<(&str, f64)>, target: Option<f64>) {
        if self.wants(name) {
            let reference = reference.map(|(name, value)| (name.to_owned(), value));
            self.report(name.to_owned(), unit, &[value], reference, target);
        }
    }

    /// Like `figure`, for several rounds.
    pub fn figures(
        &mut self,
        name: &str,
        unit: Unit,
        values: &[f64],
        reference: Option<(&str, f64)>,
        target: Option<f64>,
    ) {
        if self.wants(name) {
            let reference = reference.map(|(name, value)| (name.to_owned(), value));
            self.report(name.to_owned(), unit, values, reference, target);
        }
    }

    /// What `--case` gave.
    pub fn pattern(&self) -> &str {
        &self.options.pattern
    }

    /// Number of rounds of each case.
    pub fn rounds(&self) -> u32 {
        self.options.rounds
    }

    /// Number of versions in the bench of the archive, if it was given.
    pub fn versions(&self) -> Option<u64> {
        self.options.versions
    }

    /// A line for people, not shown with `--json`: the conditions that an honest table must name
    /// (durability, cache, signing).
    pub fn note(&self, text: &str) {
        if !self.options.json {
            println!("  {text}");
        }
    }

    /// Writes a page of the documents from a whole run, if the command line asks for it: a page is
    /// tracked, and a bench changes nothing that is tracked by itself.
    pub fn write_page(&self, path: &str, text: &str) -> Result<(), String> {
        if !self.is_whole() {
            return Ok(());
        }
        if !self.options.write_docs {
            self.note(&format!("--write-docs writes these figures to {path}"));
            return Ok(());
        }
        std::fs::write(path, text).map_err(|error| format!("{path}: {error}"))?;
        self.note(&format!("the tables are in {path}"));
        Ok(())
    }

    /// Number of missed targets. An error if nothing was measured.
    pub fn finish(self) -> Result<usize, String> {
        let Names { fits, others } = self.names.into_inner();
        match self.rows {
            0 if fits => Err(format!("no case of {} could be measured; the notes above say why", self.name)),
            0 => {
                let shown = others.iter().take(NAMES_MAX).map(|name| format!("\n  {name}")).collect::<String>();
                let more = others.len().saturating_sub(NAMES_MAX);
                let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
                let (name, pattern) = (self.name, &self.options.pattern);
                Err(format!("no case of {name} has all the words '{pattern}'; there are:{shown}{more}"))
            }
            _ => Ok(self.missed),
        }
    }

    fn report(
        &mut self,
        case: String,
        unit: Unit,
        ours: &[f64],
        reference: Option<(String, f64)>,
        target: Option<f64>,
    ) {
        let (value, spread) = median_and_spread(ours);
        let ratio = reference.as_ref().map(|(_, theirs)| match unit.more_is_better {
            true => value / theirs,
            false => theirs / value,
        });
        let Unit { name: unit, more_is_better } = unit;
        let row = Row { bench: self.name, case, value, unit, more_is_better, reference, ratio, target, spread };
        self.missed += usize::from(row.missed());
        if self.options.json {
            println!("{}", row.json());
        } else {
            if self.rows == 0 {
                println!("{}", Row::heading());
            }
            println!("{}", row.line());
        }
        self.rows += 1;
    }
}

impl<'a> Case<'a> {
    /// Sets the ratio to reach.
    pub fn target(mut self, ratio: f64) -> Case<'a> {
        self.target = Some(ratio);
        self
    }

    /// Adds a peer or limit measured in this run; its rounds alternate with ours.
    pub fn beside(mut self, name: impl Into<String>, round: impl FnMut() -> Result<f64, String> + 'a) -> Case<'a> {
        self.peer = Peer::Measured(name.into(), Box::new(round));
        self
    }

    /// Adds a figure from another place, which the name must give.
    pub fn against(mut self, name: impl Into<String>, value: f64) -> Case<'a> {
        self.peer = Peer::Known(name.into(), value);
        self
    }

    /// Measures and reports the case, unless `--case` leaves it out.
    pub fn run(mut self, mut round: impl FnMut() -> Result<f64, String>) -> Result<(), String> {
        if !self.bench.wants(&self.name) {
            return Ok(());
        }
        let rounds = self.bench.options.rounds as usize;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        // The first round of each fills caches and tables, and is not counted.
        for count in 0..=rounds {
            let value = round().map_err(|reason| format!("{}: {reason}", self.name))?;
            let peer = match &mut self.peer {
                Peer::Measured(name, round) => Some(round().map_err(|reason| format!("{name}: {reason}"))?),
                _ => None,
            };
            if count > 0 {
                ours.push(value);
                theirs.extend(peer);
            }
        }
        let reference = match self.peer {
            Peer::None => None,
            Peer::Known(name, value) => Some((name, value)),
            Peer::Measured(name, _) => Some((name, median_and_spread(&theirs).0)),
        };
        self.bench.report(self.name, self.unit, &ours, reference, self.target);
        Ok(())
    }
}

/// Calls `work` for about the time `wanted`; returns calls a second. The clock is read once a
/// batch.
pub fn rate(wanted: Duration, mut work: impl FnMut()) -> f64 {
    let (start, mut calls, mut batch) = (Instant::now(), 0u64, 1u64);
    loop {
        (0..batch).for_each(|_| work());
        calls += batch;
        let elapsed = start.elapsed();
        if elapsed >= wanted {
            return calls as f64 / elapsed.as_secs_f64();
        }
        // Batches stay below a tenth of the wanted time.
        if elapsed * 20 < wanted {
            batch *= 2;
        }
    }
}

/// The median, and (max - min) / median.
pub fn median_and_spread(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (sorted.first(), sorted.last()) else { return (0.0, 0.0) };
    let median = (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0;
    (median, if median == 0.0 { 0.0 } else { (most - least) / median })
}

#[cfg(test)]
mod tests;
