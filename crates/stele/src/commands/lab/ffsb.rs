//! Runs FFSB profiles.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use stele_ground::shown::shown;
use stele_lab::error::LabError;
use stele_lab::ffsb::{self, FfsbProfile, FfsbProgress, GroupResult};
use stele_lab::job::parse_duration;
use stele_server::failure::{Failure, Kind, Outcome};

use super::stop::until_stopped;
use crate::cli::lab::Ffsb;
use crate::commands::print_json;
use crate::output::{Align, Table};

pub async fn run(json: bool, asked: Ffsb) -> Outcome<()> {
    let file = &asked.file;
    let text = super::asked::text_of(file)?;
    let mut profile =
        ffsb::profile::parse(&text).map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
    if let Some(time) = &asked.time {
        profile.time = parse_duration(time)
            .ok_or_else(|| Failure::usage(format!("--time {time}: say it like 500us, 20ms, 1.5s, 2m or 1h")))?;
    }
    if profile.time.0 == 0 {
        return Err(Failure::usage(format!("{}: says no time", file.display())).next("give --time, like 30s"));
    }
    let name = file.display().to_string();
    until_stopped(move |stop| measure(json, (&profile, &name), stop)).await
}

fn measure(json: bool, (profile, name): (&FfsbProfile, &str), stop: &AtomicBool) -> Outcome<()> {
    let terminal = !json && std::io::stderr().is_terminal();
    let line = |text: &str| {
        if terminal {
            eprint!("\r\x1b[2K{text}");
            let _ = std::io::stderr().flush();
        }
    };
    let ran = ffsb::run(profile, stop, &|step| match step {
        FfsbProgress::Filling { done, all } => line(&format!("making files: {done} of {all}")),
        FfsbProgress::Running { seconds, operations } => {
            line(&format!("{seconds:.0} s, {operations} operations, {:.0}/s", operations as f64 / seconds.max(1e-3)));
        }
    });
    line("");
    let in_profile = |error: LabError| Failure::from(error.of_place(&name));
    let (ran, failed) = ran.map_err(in_profile)?;
    match json {
        true => print_json(&ran.iter().map(row).collect::<Vec<_>>())?,
        false => print!("{}", table(&ran)),
    }
    match failed {
        Some(error) => Err(in_profile(error)),
        None if stop.load(Ordering::Relaxed) => Err(Failure::new(Kind::Partial, "stopped before the end")),
        None => Ok(()),
    }
}

fn row(ran: &GroupResult) -> serde_json::Value {
    let seconds = ran.span.as_secs_f64().max(1e-9);
    let kinds: Vec<_> = ran
        .kinds
        .iter()
        .map(|(kind, weight, done)| {
            let whole = &done.whole;
            json!({
                "operation": kind.name(), "weight": weight, "count": whole.count(),
                "rate": whole.count() as f64 / seconds,
                "read_bytes": done.read as f64 / seconds, "written_bytes": done.written as f64 / seconds,
                "mean_ns": whole.mean().0, "p50_ns": whole.percentile(0.5).0, "p99_ns": whole.percentile(0.99).0,
                "p999_ns": whole.percentile(0.999).0, "longest_ns": whole.longest().0,
            })
        })
        .collect();
    json!({ "group": ran.group, "seconds": seconds, "operations": kinds })
}

fn table(all: &[GroupResult]) -> String {
    let mut table = Table::new(&[
        ("group", Align::Left),
        ("operation", Align::Left),
        ("weight", Align::Right),
        ("count", Align::Right),
        ("share", Align::Right),
        ("per second", Align::Right),
        ("read MB/s", Align::Right),
        ("written MB/s", Align::Right),
        ("mean", Align::Right),
        ("50 %", Align::Right),
        ("99 %", Align::Right),
        ("longest", Align::Right),
    ]);
    for ran in all {
        let seconds = ran.span.as_secs_f64().max(1e-9);
        let count: u64 = ran.kinds.iter().map(|(_, _, done)| done.whole.count()).sum();
        for (kind, weight, done) in &ran.kinds {
            let whole = &done.whole;
            let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / seconds / 1e6);
            table.row(vec![
                shown(&ran.group),
                kind.name().into(),
                weight.to_string(),
                whole.count().to_string(),
                format!("{:.1} %", whole.count() as f64 * 100.0 / count.max(1) as f64),
                format!("{:.0}", whole.count() as f64 / seconds),
                megabytes(done.read),
                megabytes(done.written),
                whole.mean().to_string(),
                whole.percentile(0.5).to_string(),
                whole.percentile(0.99).to_string(),
                whole.longest().to_string(),
            ]);
        }
    }
    table.render()
}
