//! Workloads side by side: all tenants of a job at once, each on its target.

use std::sync::atomic::{AtomicBool, Ordering};

use stele_lab::error::LabError;
use stele_lab::job::{Job, JobCell};
use stele_lab::live::target::{Ready, Target};
use stele_lab::record::CellRecord;
use stele_lab::{environment, sweep};
use stele_server::failure::{Failure, Outcome};

use super::live::Live;
use super::progress::Progress;
use super::stop::until_stopped;
use super::{Ending, admit, head_before, head_of, no_target, recorder, show, stopped, verdict};
use crate::cli::lab::What;

pub async fn run(json: bool, what: What, job: Job, cells: Vec<JobCell>) -> Outcome<()> {
    if what.resume {
        return Err(Failure::usage("tenants are measured all at once: there is no half of them to go on with")
            .next("leave out --resume"));
    }
    let of_cell = |number: usize| -> Outcome<Target> {
        let on = job.target_of(number).ok_or_else(no_target)?;
        Ok(on.parse()?)
    };
    let targets = (0..cells.len()).map(of_cell).collect::<Outcome<Vec<Target>>>()?;
    if what.plan {
        return show::plan(&job, &cells, json);
    }
    until_stopped(move |stop| measure(json, &what, &job, &targets, &cells, stop)).await
}

/// Tenants of the same target share one opening of it.
struct Opened<'a> {
    target: &'a Target,
    ready: Ready,
}

fn measure(
    json: bool,
    what: &What,
    job: &Job,
    targets: &[Target],
    cells: &[JobCell],
    stop: &AtomicBool,
) -> Outcome<()> {
    if let Some(first) = targets.first() {
        admit(what.out.as_deref(), false, &head_before(job, first, None))?;
    }
    let shown = targets.first().map_or_else(String::new, Target::to_string);
    let progress = Progress::new(json, cells).showing(Live::begin(&what.live, &shown, cells.len())?);
    let mut opened: Vec<Opened<'_>> = Vec::new();
    let mut measured = open(what, job, targets, cells, (&progress, stop), &mut opened)
        .and_then(|()| measure_opened(json, what, job, targets, cells, stop, (&progress, &opened)));
    for one in opened.iter().filter(|_| !what.keep) {
        measured = measured.and(one.ready.remove().map_err(Failure::from));
    }
    measured
}

fn open<'a>(
    what: &What,
    job: &Job,
    targets: &'a [Target],
    cells: &[JobCell],
    (progress, stop): (&Progress<'_>, &AtomicBool),
    opened: &mut Vec<Opened<'a>>,
) -> Outcome<()> {
    for target in targets {
        if opened.iter().any(|one| one.target == target) {
            continue;
        }
        let own = |(_, other): &(&JobCell, &Target)| *other == target;
        let on_it: Vec<JobCell> = cells.iter().zip(targets).filter(own).map(|(cell, _)| cell.clone()).collect();
        let ready = target.open(job.opening(&on_it, what.destroy)?, &mut |done, all| {
            progress.filling(done, all);
            !stop.load(Ordering::Relaxed)
        })?;
        opened.push(Opened { target, ready });
    }
    Ok(())
}

fn measure_opened(
    json: bool,
    what: &What,
    job: &Job,
    targets: &[Target],
    cells: &[JobCell],
    stop: &AtomicBool,
    (progress, opened): (&Progress<'_>, &[Opened<'_>]),
) -> Outcome<()> {
    let Some(first) = targets.first() else { return Err(no_target()) };
    let mut reached: Vec<String> = opened.iter().map(|one| one.ready.description.clone()).collect();
    reached.dedup();
    let bytes = opened.iter().map(|one| one.ready.size.0).sum();
    let head = head_of(job, first, (reached.join("; "), bytes, environment::capture(first.path())));
    let (mut recorder, _) = recorder(what.out.as_deref(), false, &head)?;
    progress.begin(&head, 0);
    let find = |(cell, target): (&'_ JobCell, &Target)| {
        let found = opened.iter().find(|one| one.target == target);
        found.map(|one| (one.ready.clone(), cell.clone()))
    };
    let pairs: Vec<(Ready, JobCell)> = cells.iter().zip(targets).filter_map(find).collect();
    let pairs: Vec<(&Ready, &JobCell)> = pairs.iter().map(|(ready, cell)| (ready, cell)).collect();
    let found = sweep::together(&pairs, stop, &mut |step| {
        progress.round(&step);
        !stop.load(Ordering::Relaxed)
    });
    let (mut done, mut failed): (Vec<CellRecord>, Option<LabError>) = (Vec::new(), None);
    for one in found {
        match one {
            Ok(Some(cell)) => done.push(cell),
            Ok(None) => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    let whole = done.len() == cells.len() && done.iter().all(|cell| cell.failed.is_none());
    let ended = whole && !stop.load(Ordering::Relaxed);
    for cell in &done {
        progress.cell(cell);
        let kept = recorder.as_mut().map_or(Ok(()), |file| file.cell(cell));
        failed = failed.or(kept.err());
    }
    let ending = match (failed, ended) {
        (Some(error), _) => Ending::Failed(error.into()),
        (None, true) => Ending::Whole,
        (None, false) => Ending::Stopped,
    };
    let (ending, digest) = ending.finish(recorder);
    show::outcome(&done, json, what.out.as_deref(), digest.as_deref());
    match ending {
        Ending::Failed(failure) => Err(failure),
        Ending::Whole => verdict(&done, true),
        Ending::Stopped => Err(stopped(None, &done)),
    }
}
