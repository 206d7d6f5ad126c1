//! Two results side by side, cell by cell: the ratio of their rates with its interval.
//!
//! The interval comes from the logarithms of the rounds' rates (Welch's, with the smaller number of
//! rounds for its degrees of freedom, which errs to the wide side). Of searches for a rate it comes
//! from the rates around the two answers. Runs made one after the other may differ by what changed
//! in between; the interval says nothing of that.

use serde_json::Value;
use stele_ground::Bytes;

use crate::environment;
use crate::job::Job;
use crate::record::{CellRecord, Head, Recorded, RunRecord, SearchRecord};
use crate::report::chosen;
use crate::search::margin_of;

/// A cell that both results have.
#[derive(Clone, PartialEq, Debug)]
pub struct Compared {
    pub name: String,
    /// Accesses a second of the one and the other.
    pub rates: (f64, f64),
    /// Mean responses in nanoseconds.
    pub responses: (u64, u64),
    /// The second rate over the first.
    pub ratio: f64,
    /// Its 95 % confidence interval; none where a side has fewer than two rounds. Of searches for a
    /// rate: where the ratio lies, by the rates that kept the objective and those that missed it;
    /// none where a side has no such rate.
    pub interval: Option<(f64, f64)>,
    /// Sides that did not reach a steady state.
    pub unsteady: usize,
}

impl Compared {
    /// The interval leaves out 1.
    pub fn differs(&self) -> bool {
        self.interval.is_some_and(|(low, high)| low > 1.0 || high < 1.0)
    }
}

/// The cells that have the same name in both, in the first one's order; and the names that only one
/// has.
pub fn compare(first: &Recorded, second: &Recorded) -> (Vec<Compared>, Vec<String>) {
    let mut both = Vec::new();
    let mut alone = Vec::new();
    for cell in &first.cells {
        match second.cells.iter().find(|other| is_same(cell, other)) {
            Some(other) => both.extend(compared(cell, other)),
            None => alone.push(cell.name.clone()),
        }
    }
    let unknown = second.cells.iter().filter(|cell| !first.cells.iter().any(|other| is_same(other, cell)));
    alone.extend(unknown.map(|cell| cell.name.clone()));
    (both, alone)
}

/// Something beside the cells that is not the same in both results.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Apart {
    pub name: String,
    /// Empty where the one or the other result does not say it.
    pub values: (String, String),
}

/// It differs between any two runs. Values of one of several hosts begin with its name.
fn is_of_a_moment(name: &str) -> bool {
    name.ends_with("temperature")
}

/// In what the targets, the programs, the machines and the jobs of two results differ.
pub fn apart(first: &Head, second: &Head) -> Vec<Apart> {
    let known = |head: &Head| -> Vec<(String, String)> {
        let used = Bytes(head.target_bytes).to_string();
        let own = [("target", head.target.clone()), ("used", used), ("program", head.program.clone())];
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
        own.chain(head.environment.iter().map(|(name, value)| (name.clone(), environment::said(value)))).collect()
    };
    let mut all = unlike(&known(first), &known(second));
    let said = |value: String| if value.is_empty() { "not said".to_owned() } else { value };
    let of_jobs = unlike(&said_by(&first.job), &said_by(&second.job)).into_iter();
    all.extend(of_jobs.map(|Apart { name, values }| Apart { name, values: (said(values.0), said(values.1)) }));
    all
}

/// What the one and the other have differently; empty where one of them does not have it.
fn unlike(one: &[(String, String)], other: &[(String, String)]) -> Vec<Apart> {
    let of = |all: &[(String, String)], name: &str| {
        all.iter().find(|(known, _)| known == name).map_or(String::new(), |(_, value)| value.clone())
    };
    let alone = other.iter().filter(|(name, _)| !one.iter().any(|(known, _)| known == name));
    let names = one.iter().chain(alone).map(|(name, _)| name).filter(|name| !is_of_a_moment(name));
    let all = names.map(|name| Apart { name: name.clone(), values: (of(one, name), of(other, name)) });
    all.filter(|apart| apart.values.0 != apart.values.1).collect()
}

/// Keys of a job that the head says as well: the target, and how much of it was used.
const SAID_BY_HEAD: [&str; 2] = ["on", "size"];
/// Characters of a job's value that are shown.
const VALUE_MAX: usize = 60;

/// The keys of a job, as `load.outstanding`, with what they say.
fn said_by(job: &Job) -> Vec<(String, String)> {
    let mut all = Vec::new();
    if let Ok(Value::Object(parts)) = serde_json::to_value(job) {
        for (key, value) in parts.into_iter().filter(|(key, _)| !SAID_BY_HEAD.contains(&key.as_str())) {
            add_keys(key, value, &mut all);
        }
    }
    all
}

fn add_keys(name: String, value: Value, all: &mut Vec<(String, String)>) {
    let text = match value {
        Value::Null => return,
        Value::Object(parts) => {
            for (key, value) in parts {
                add_keys(format!("{name}.{key}"), value, all);
            }
            return;
        }
        Value::String(text) => text,
        other => other.to_string(),
    };
    let short: String = text.chars().take(VALUE_MAX).collect();
    all.push((name, if short.len() < text.len() { format!("{short}...") } else { short }));
}

/// What was done to names is not what was done to data, whatever cells are called.
pub(crate) fn is_same(one: &CellRecord, other: &CellRecord) -> bool {
    (one.name.as_str(), one.names) == (other.name.as_str(), other.names)
}

pub(crate) fn compared(first: &CellRecord, second: &CellRecord) -> Option<Compared> {
    let runs = (chosen(first)?, chosen(second)?);
    let totals = (runs.0.total(), runs.1.total());
    let rate = |cell: &CellRecord, measured: f64| cell.search.as_ref().map_or(measured, |search| search.rate);
    let rates = (rate(first, totals.0.rate), rate(second, totals.1.rate));
    let ratio = rates.1 / rates.0.max(1e-9);
    let searches = (first.search.as_ref(), second.search.as_ref());
    let interval = match [searches.0, searches.1].into_iter().flatten().any(SearchRecord::is_of_rates) {
        true => searches.0.zip(searches.1).and_then(|(first, second)| between(first, second)),
        false => of_rounds(runs).map(|margin| (ratio * (-margin).exp(), ratio * margin.exp())),
    };
    Some(Compared {
        name: first.name.clone(),
        rates,
        responses: (totals.0.response.mean().0, totals.1.response.mean().0),
        ratio,
        unsteady: [first, second].iter().filter(|cell| !cell.is_steady()).count(),
        interval,
    })
}

/// Half the width of the interval of the logarithm of the ratio, from the rounds of both.
fn of_rounds((first, second): (&RunRecord, &RunRecord)) -> Option<f64> {
    let logarithms =
        |run: &RunRecord| -> Vec<f64> { run.rounds.iter().map(|round| round.rate.max(1e-9).ln()).collect() };
    Some(margin_of(&logarithms(first))?.hypot(margin_of(&logarithms(second))?))
}

/// Of the highest rates that two searches in open loops found: each lies between the rate that kept
/// the objective and the lowest that missed it. In an open loop rounds answer what was asked for,
/// and say nothing of that.
fn between(first: &SearchRecord, second: &SearchRecord) -> Option<(f64, f64)> {
    let low = second.rate / first.beyond.filter(|beyond| *beyond > 0.0)?;
    let high = second.beyond? / Some(first.rate).filter(|rate| *rate > 0.0)?;
    Some((low, high))
}

#[cfg(test)]
mod tests;
