//! `stele lab replay`: repeats the accesses of a trace.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use stele_ground::{Bytes, Duration, counted};
use stele_lab::environment;
use stele_lab::job::{Given, Job, LoadPart, TimePart};
use stele_lab::live::target::{Ready, Target};
use stele_lab::replay::{self, ReplayPart, ReplayPlan};
use stele_server::failure::{Failure, Outcome};

use super::asked::in_directory;
use super::live::Live;
use super::progress::Progress;
use super::stop::until_stopped;
use super::{Ending, admit, head_before, head_of, keep, no_target, recorder, show, stopped, verdict};
use crate::cli::lab::{LiveArgs, Replay};
use crate::commands::print_json;
use crate::output::{Align, Table};

/// Settings of the target besides the job.
pub struct Asked<'a> {
    pub destroy: bool,
    pub keep: bool,
    pub out: Option<&'a Path>,
    pub live: &'a LiveArgs,
}

pub async fn run(json: bool, asked: Replay) -> Outcome<()> {
    let target: Target = asked.on.parse()?;
    let job = job_of(&asked, &target)?;
    let plan = asked.plan;
    let out = in_directory(asked.out.clone(), false)?;
    until_stopped(move |stop| {
        let planned = replay::planned(&job)?;
        if plan {
            return said(&planned, json);
        }
        let asked = Asked { destroy: asked.destroy, keep: asked.keep, out: out.as_deref(), live: &asked.live };
        measure(json, &job, &target, &planned, &asked, stop)
    })
    .await
}

/// Runs a job file that holds a replay.
pub async fn job(json: bool, what: crate::cli::lab::What, job: Job) -> Outcome<()> {
    if what.resume {
        return Err(Failure::usage("a replay is one run: there is nothing to go on with").next("leave out --resume"));
    }
    let target: Target = job.on.as_ref().ok_or_else(no_target)?.parse()?;
    until_stopped(move |stop| {
        let planned = replay::planned(&job)?;
        if what.plan {
            return said(&planned, json);
        }
        let asked = Asked { destroy: what.destroy, keep: what.keep, out: what.out.as_deref(), live: &what.live };
        measure(json, &job, &target, &planned, &asked, stop)
    })
    .await
}

fn job_of(asked: &Replay, target: &Target) -> Outcome<Job> {
    let speed = match asked.speed.as_deref() {
        None => None,
        Some("max") => Some(0.0),
        Some(text) => {
            let speed = text.trim_end_matches('x').parse().ok().filter(|speed: &f64| *speed > 0.0 && speed.is_finite());
            let bad = || Failure::usage(format!("--speed {text}: say how many times as fast, like 2 or 0.5, or max"));
            Some(speed.ok_or_else(bad)?)
        }
    };
    Ok(Job {
        on: Some(target.to_string()),
        size: asked.size.clone(),
        buffered: Given::One(asked.buffered),
        objective: asked.objective.clone(),
        load: LoadPart {
            outstanding: asked.outstanding.map(Given::One),
            workers: asked.workers.map(Given::One),
            ..LoadPart::default()
        },
        time: TimePart { round: asked.round.clone(), patience: asked.patience.clone(), ..TimePart::default() },
        replay: Some(ReplayPart {
            trace: asked.trace.clone(),
            format: asked.format.map(Into::into),
            speed,
            map: asked.map.into(),
            fit: asked.fit.into(),
            device: asked.device.clone(),
        }),
        ..Job::default()
    })
}

/// Shows the accesses that a trace demands.
fn said(planned: &ReplayPlan, json: bool) -> Outcome<()> {
    let survey = &planned.survey;
    if json {
        let devices: Vec<_> = survey
            .devices
            .iter()
            .map(
                |device| serde_json::json!({ "name": device.name, "reach": device.reach, "accesses": device.accesses }),
            )
            .collect();
        return print_json(&serde_json::json!({
            "format": planned.format.name(), "seconds": survey.seconds(), "speed": planned.speed, "reads": survey.reads,
            "writes": survey.writes, "bytes": survey.bytes, "longest": survey.longest, "step": survey.step,
            "devices": devices, "left_out": survey.left_out, "disordered": survey.disordered,
        }));
    }
    let seconds = Duration((survey.seconds() * 1e9) as u64);
    let rate = survey.accesses() as f64 / survey.seconds().max(1e-9);
    println!("format     {}", planned.format.name());
    let (reads, writes) = (counted(survey.reads, "read"), counted(survey.writes, "write"));
    println!("accesses   {reads}, {writes}, {}", Bytes(survey.bytes));
    // One access, or several at one time, have no rate.
    match survey.seconds() > 0.0 {
        true => println!("clock      {seconds}, {rate:.0} a second in the mean"),
        false => println!("clock      all at one time"),
    }
    match planned.length() {
        Some(length) => println!("takes      {length}"),
        None => println!("takes      as long as the target needs"),
    }
    println!("longest    {}; all are multiples of {}", Bytes(survey.longest), Bytes(survey.step));
    for (what, count) in &survey.left_out {
        println!("left out   {}: {what}", counted(*count, "time"));
    }
    if survey.disordered > 0 {
        println!("disorder   {} behind later ones", counted(survey.disordered, "record"));
    }
    println!();
    let mut table = Table::new(&[("device", Align::Left), ("accesses", Align::Right), ("reaches to", Align::Right)]);
    for device in &survey.devices {
        table.row(vec![device.name.clone(), device.accesses.to_string(), Bytes(device.reach).to_string()]);
    }
    print!("{}", table.render());
    Ok(())
}

fn measure(
    json: bool,
    job: &Job,
    target: &Target,
    planned: &ReplayPlan,
    asked: &Asked<'_>,
    stop: &AtomicBool,
) -> Outcome<()> {
    admit(asked.out, false, &head_before(job, target, None))?;
    let live = Live::begin(asked.live, &target.to_string(), 1)?;
    let progress = Progress::new(json, &[]).showing(live);
    let opening = planned.opening(job, asked.destroy)?;
    let ready = target.open(opening, &mut |done, all| {
        progress.filling(done, all);
        !stop.load(Ordering::Relaxed)
    })?;
    let measured = measure_ready(json, job, target, planned, asked.out, stop, (&progress, &ready));
    match asked.keep {
        true => measured,
        false => measured.and(ready.remove().map_err(Failure::from)),
    }
}

fn measure_ready(
    json: bool,
    job: &Job,
    target: &Target,
    planned: &ReplayPlan,
    out: Option<&Path>,
    stop: &AtomicBool,
    (progress, ready): (&Progress<'_>, &Ready),
) -> Outcome<()> {
    // Check the mapping before making a file for it.
    planned.mapping(ready.size, ready.block)?;
    let head = head_of(job, target, (ready.description.clone(), ready.size.0, environment::capture(target.path())));
    let (mut recorder, _) = recorder(out, false, &head)?;
    progress.begin_replay(&head, planned);
    let found = replay::ran(job, planned, ready, stop, &mut |step| {
        progress.round(&step);
        !stop.load(Ordering::Relaxed)
    })?;
    let done: Vec<_> = found.into_iter().collect();
    let whole = done.iter().any(|cell| cell.failed.is_none()) && !stop.load(Ordering::Relaxed);
    let mut ending = if whole { Ending::Whole } else { Ending::Stopped };
    for cell in &done {
        if let Err(error) = keep(&mut recorder, cell, !whole) {
            ending = Ending::Failed(error.into());
        }
    }
    let (ending, digest) = ending.finish(recorder);
    show::outcome(&done, json, out, digest.as_deref());
    match ending {
        Ending::Failed(failure) => Err(failure),
        Ending::Whole => verdict(&done, true),
        Ending::Stopped => Err(stopped(None, &done)),
    }
}
