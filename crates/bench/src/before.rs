//! `--before PROGRAM`: every case beside what an older version of this program measures.
//!
//! Each round of each version is a process of its own, so that both begin alike: memory that has
//! been in use for minutes is faster. The two take turns in beginning.

mod older;

use std::path::Path;

use crate::array::{READS, READS_KEPT};
use crate::harness::{Bench, Unit, median_and_spread};
use older::{Figure, measured};

/// A version of this program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Ours,
    Before,
}

/// A case of both versions, with the figures of all rounds.
struct Pair {
    name: String,
    unit: Unit,
    ours: Vec<f64>,
    before: Vec<f64>,
}

pub fn run(bench: &mut Bench, program: &Path) -> Result<(), String> {
    let shown = program.display();
    let older = program.canonicalize().map_err(|error| {
        format!("--before {shown}: {error}; give the stele-bench of the older version, as cargo built it")
    })?;
    let own = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let (name, pattern) = (bench.name, bench.pattern().to_owned());
    bench.note(&format!("before: {shown}; each round of each version is a process of its own"));
    compare(bench, &format!("before, {shown}"), |side| {
        let program = if side == Side::Ours { &own } else { &older };
        measured(program, name, &pattern)
    })
}

/// Takes the rounds in turns, and reports the cases that both have.
fn compare(
    bench: &mut Bench,
    reference: &str,
    mut measure: impl FnMut(Side) -> Result<Vec<Figure>, String>,
) -> Result<(), String> {
    let (mut pairs, mut alone): (Vec<Pair>, Vec<String>) = Default::default();
    for round in 0..bench.rounds() {
        // The older one first: where it cannot be run, nothing else has taken time.
        let (ours, before) = if round % 2 == 0 {
            let before = measure(Side::Before)?;
            (measure(Side::Ours)?, before)
        } else {
            (measure(Side::Ours)?, measure(Side::Before)?)
        };
        for our in ours {
            let same = |their: &&Figure| (&their.case, &their.unit) == (&our.case, &our.unit);
            let Some(their) = before.iter().find(same) else {
                if !alone.contains(&our.case) {
                    alone.push(our.case);
                }
                continue;
            };
            match pairs.iter_mut().find(|pair| pair.name == our.case) {
                Some(pair) => {
                    pair.ours.push(our.value);
                    pair.before.push(their.value);
                }
                None => pairs.push(Pair {
                    unit: unit_of(&our)?,
                    name: our.case,
                    ours: vec![our.value],
                    before: vec![their.value],
                }),
            }
        }
    }
    if pairs.is_empty() {
        return Err(format!("{reference} has none of these cases in the same unit: {}", alone.join("; ")));
    }
    for name in alone {
        bench.note(&format!("left out, {name}: the older version has no such case in the same unit"));
    }
    for Pair { name, unit, ours, before } in pairs {
        let is_read = bench.name == "array" && READS.iter().any(|read| name.starts_with(read));
        let before = median_and_spread(&before).0;
        bench.figures(&name, unit, &ours, Some((reference, before)), is_read.then_some(READS_KEPT));
    }
    Ok(())
}

fn unit_of(figure: &Figure) -> Result<Unit, String> {
    // A few short names, for the rest of the run.
    let name: &'static str = figure.unit.clone().leak();
    match figure.more_is_better {
        Some(true) => Ok(Unit::more(name)),
        Some(false) => Ok(Unit::less(name)),
        None => Err(format!("{}: this program did not say which direction is better", figure.case)),
    }
}

#[cfg(test)]
mod tests;
