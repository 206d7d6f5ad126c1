//! Cells on modelled arrays in virtual time: divided among threads, recorded in the plan's order,
//! shown as they finish.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use stele_ground::Duration;
use stele_lab::job::{Job, JobCell};
use stele_lab::modelled::run::{QueryPlan, run};
use stele_lab::modelled::sweep::{VirtualPart, cells, recorded};
use stele_lab::record::{self, CellRecord, Head};
use stele_papers::ds4500::profile::published;
use stele_papers::recipe::cost;
use stele_server::failure::Outcome;

use super::Ending;
use crate::cli::lab::What;

/// The outcome of a plan.
pub struct Came {
    pub head: Head,
    pub cells: Vec<CellRecord>,
    /// Digest of the file, if there is one and the plan finished.
    pub digest: Option<String>,
    pub ending: Ending,
}

/// A result in virtual time depends on its job alone, so the head has no date and no machine.
fn head_of(job: &Job, target: &str) -> Head {
    Head {
        version: record::VERSION,
        program: format!("stele {}", env!("CARGO_PKG_VERSION")),
        begun: 0,
        against: None,
        target: target.to_owned(),
        reached: "modelled drives in virtual time".to_owned(),
        target_bytes: 0,
        environment: Vec::new(),
        job: job.clone(),
    }
}

struct Progress {
    json: bool,
    terminal: bool,
    begun: Instant,
    /// Cost of all cells, and of the measured ones.
    all: f64,
    done: f64,
    cells: usize,
    answered: usize,
}

impl Progress {
    fn cell(&mut self, cost: f64, found: &CellRecord) {
        (self.done, self.answered) = (self.done + cost, self.answered + 1);
        let seconds = self.begun.elapsed().as_secs_f64();
        let left = seconds * (self.all - self.done) / self.done.max(1.0);
        let rate = found
            .search
            .as_ref()
            .map_or_else(|| found.runs.last().map_or(0.0, |run| run.total().rate), |search| search.rate);
        if self.json {
            let line = serde_json::json!({
                "cell": found.number, "cells": self.cells, "name": found.name, "axes": found.axes, "rate": rate,
                "search": found.search, "left_seconds": left.round(),
            });
            println!("{line}");
        } else if self.terminal {
            let left = Duration::from_secs(left.round() as u64);
            let each = self.answered as f64 / seconds.max(1e-3);
            eprint!(
                "\r\x1b[2Kcell {} of {}, {each:.1} a second, {left} left; {}: {rate:.0}/s",
                self.answered, self.cells, found.name
            );
            let _ = std::io::stderr().flush();
        }
    }
}

/// Measures the cells that `out` lacks.
pub fn measure(
    json: bool,
    job: &Job,
    target: &str,
    plan: &[(JobCell, QueryPlan)],
    out: Option<&Path>,
    resume: bool,
    stop: &AtomicBool,
) -> Outcome<Came> {
    let head = head_of(job, target);
    let (mut recorder, before) = super::recorder(out, resume, &head)?;
    let mut cells = before;
    let questions: Vec<QueryPlan> = plan.iter().skip(cells.len()).map(|(_, planned)| planned.clone()).collect();
    let costs: Vec<f64> = questions.iter().map(cost).collect();
    let mut progress = Progress {
        json,
        terminal: !json && std::io::stderr().is_terminal(),
        begun: Instant::now(),
        all: costs.iter().sum(),
        done: 0.0,
        cells: questions.len(),
        answered: 0,
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let first = cells.len();
    let ended = run(&questions, &published, threads, stop, &mut |at, answer| {
        if let Some((cell, planned)) = plan.get(first + at) {
            let found = recorded(first + at, cell, planned, &answer);
            progress.cell(costs.get(at).copied().unwrap_or(0.0), &found);
            let kept = recorder.as_mut().map_or(Ok(()), |recorder| recorder.cell(&found));
            cells.push(found);
            kept?;
        }
        Ok(())
    });
    if progress.terminal {
        eprint!("\r\x1b[2K");
    }
    let ending = match ended {
        Ok(true) if !stop.load(Ordering::Relaxed) => Ending::Whole,
        Ok(_) => Ending::Stopped,
        Err(error) => Ending::Failed(error.into()),
    };
    let (ending, digest) = ending.finish(recorder);
    Ok(Came { head, cells, digest, ending })
}

impl From<&Came> for stele_lab::record::Recorded {
    fn from(came: &Came) -> stele_lab::record::Recorded {
        stele_lab::record::Recorded { head: came.head.clone(), cells: came.cells.clone(), digest: came.digest.clone() }
    }
}

/// `run` and `search` on modelled arrays.
pub async fn job(json: bool, what: What, job: Job, part: &VirtualPart) -> Outcome<()> {
    let plan = cells(&job, part)?;
    let names: Vec<JobCell> = plan.iter().map(|(cell, _)| cell.clone()).collect();
    if what.plan {
        return super::show::plan(&job, &names, json);
    }
    let out = what.out.clone();
    let came = super::stop::until_stopped(move |stop| {
        measure(json, &job, "modelled arrays", &plan, what.out.as_deref(), what.resume, stop)
    })
    .await?;
    super::show::outcome(&came.cells, json, out.as_deref(), came.digest.as_deref());
    match came.ending {
        Ending::Whole => Ok(()),
        Ending::Stopped => Err(super::stopped(out.as_deref(), &[])),
        Ending::Failed(failure) => Err(failure),
    }
}
