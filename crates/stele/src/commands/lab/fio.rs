//! Runs fio job files.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use stele_ground::{Bytes, Duration};
use stele_lab::error::LabError;
use stele_lab::fio::{self, JobResult, Options};
use stele_lab::job::parse_duration;
use stele_lab::live::target::PATIENCE;
use stele_papers::export;
use stele_server::failure::{Failure, Kind, Outcome};

use super::stop::until_stopped_leaving;
use super::{exists, write_new};
use crate::cli::lab::Fio;
use crate::commands::print_json;
use crate::output::{Align, Table};

/// What jobs that end at once may leave: a synchronous engine hangs in its call as long as the
/// device does.
const LEFT: &str = "no figures are kept, accesses that the device has not answered may still be carried out, and the files \
                    of the jobs stay as they are now, also those of jobs with unlink=1";

pub async fn run(json: bool, asked: Fio) -> Outcome<()> {
    let jobs = jobs(&asked.file, &asked.section)?;
    if asked.plan {
        return plan(&jobs, asked.destroy, json);
    }
    until_stopped_leaving(LEFT, move |stop| measure(json, &asked, &jobs, stop)).await
}

fn jobs(file: &Path, sections: &[String]) -> Outcome<Vec<Options>> {
    let in_file = |error: LabError| Failure::usage(format!("{}: {error}", file.display()));
    let text = super::asked::text_of(file)?;
    let mut found = fio::file::sections(&text).map_err(in_file)?;
    if let Some(missing) = sections.iter().find(|name| !found.iter().any(|section| section.name == **name)) {
        let names: Vec<&str> = found.iter().map(|section| section.name.as_str()).collect();
        let text = format!("{}: has no job '{missing}'", file.display());
        return Err(Failure::new(Kind::Missing, text).next(format!("its jobs are {}", names.join(", "))));
    }
    found.retain(|section| sections.is_empty() || sections.contains(&section.name));
    found.iter().map(Options::of).collect::<Result<_, _>>().map_err(in_file)
}

fn plan(jobs: &[Options], destroy: bool, json: bool) -> Outcome<()> {
    let planned = fio::plan(jobs, destroy)?;
    if json {
        let file = |(path, offset, bytes, made): &(std::path::PathBuf, u64, u64, bool)| json!({ "path": path, "offset": offset, "bytes": bytes, "is_made": made });
        let rows: Vec<_> = planned
            .iter()
            .map(|one| {
                let files: Vec<_> = one.files.iter().map(file).collect();
                json!({ "job": one.name, "copy": one.copy, "turn": one.turn + 1, "writes": one.writes, "removes": one.removes, "refused": one.refused, "files": files })
            })
            .collect();
        return print_json(&rows);
    }
    let mut table = Table::new(&[
        ("turn", Align::Right),
        ("job", Align::Left),
        ("file", Align::Left),
        ("offset", Align::Right),
        ("bytes", Align::Right),
        ("", Align::Left),
    ]);
    for one in &planned {
        for (path, offset, bytes, made) in &one.files {
            let is_there = path.exists();
            let remark = match (made, one.writes, one.removes) {
                (true, _, true) if is_there => "is made longer, and removed",
                (true, _, false) if is_there => "is made longer",
                (true, _, true) => "is made, and removed",
                (true, _, false) => "is made",
                (false, true, true) => "is written over, and removed",
                (false, true, false) => "is written over",
                (false, false, true) => "is removed",
                (false, false, false) => "",
            };
            table.row(vec![
                (one.turn + 1).to_string(),
                one.name.clone(),
                path.display().to_string(),
                Bytes(*offset).to_string(),
                Bytes(*bytes).to_string(),
                remark.into(),
            ]);
        }
    }
    print!("{}", table.render());
    for (one, why) in planned.iter().filter_map(|one| Some((one, one.refused.as_ref()?))) {
        println!("\njob {} would be refused: {why}", one.name);
    }
    Ok(())
}

fn measure(json: bool, asked: &Fio, jobs: &[Options], stop: &AtomicBool) -> Outcome<()> {
    // Check this before measuring anything.
    if let Some(out) = asked.out.as_deref().filter(|out| out.exists()) {
        return Err(exists(out));
    }
    let says = !json && std::io::stderr().is_terminal();
    let tell = |what: &str| {
        if says {
            eprintln!("{what}");
        }
    };
    let patience = match &asked.patience {
        None => PATIENCE,
        Some(text) => parse_duration(text)
            .ok_or_else(|| Failure::usage(format!("--patience {text}: say it like 500us, 20ms, 1.5s, 2m or 1h")))?,
    };
    let (ran, failed) = fio::run_kept(jobs, asked.destroy, patience, stop, &tell)?;
    if let (true, Some(error)) = (ran.is_empty(), &failed) {
        return Err(error.clone().into());
    }
    let said = export::ran(&ran);
    match &asked.out {
        Some(out) => {
            let mut text = serde_json::to_string_pretty(&said).unwrap_or_default();
            text.push('\n');
            write_new(out, text, json)?;
        }
        None if json => print_json(&said)?,
        None => {}
    }
    if !json {
        print!("{}", table(&ran));
    }
    if let Some(error) = failed {
        return Err(error.into());
    }
    if let Some((ran, why)) = ran.iter().find_map(|ran| ran.tally.failed.as_ref().map(|why| (ran, why))) {
        return Err(Failure::failed(format!("job '{}': {why}", ran.name)));
    }
    match stop.load(Ordering::Relaxed) {
        true => Err(Failure::new(Kind::Partial, "stopped before the end")),
        false => Ok(()),
    }
}

/// A line for the reads and one for the writes of each copy, and one for its syncs.
fn table(all: &[JobResult]) -> String {
    let mut table = Table::new(&[
        ("job", Align::Left),
        ("group", Align::Right),
        ("", Align::Left),
        ("count", Align::Right),
        ("per second", Align::Right),
        ("MB/s", Align::Right),
        ("mean", Align::Right),
        ("50 %", Align::Right),
        ("99 %", Align::Right),
        ("99.9 %", Align::Right),
        ("longest", Align::Right),
    ]);
    for ran in all {
        let seconds = Duration(ran.tally.span.max(1)).as_secs_f64();
        let [read, write] = &ran.tally.ways;
        let kinds = [("read", &read.whole, Some(read.bytes)), ("write", &write.whole, Some(write.bytes))];
        for (kind, response, bytes) in kinds.into_iter().chain([("sync", &ran.tally.syncs, None)]) {
            if response.count() == 0 {
                continue;
            }
            table.row(vec![
                ran.name.clone(),
                ran.group.to_string(),
                kind.into(),
                response.count().to_string(),
                format!("{:.0}", response.count() as f64 / seconds),
                bytes.map_or("-".into(), |bytes| format!("{:.1}", bytes as f64 / seconds / 1e6)),
                response.mean().to_string(),
                response.percentile(0.5).to_string(),
                response.percentile(0.99).to_string(),
                response.percentile(0.999).to_string(),
                response.longest().to_string(),
            ]);
        }
    }
    table.render()
}
