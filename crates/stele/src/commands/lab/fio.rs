//! Runs fio job files.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use stele_ground::shown::{Shown, shown};
use stele_ground::{Bytes, Duration};
use stele_lab::error::LabError;
use stele_lab::fio::{self, JobResult, Options, Tally};
use stele_lab::histogram::Histogram;
use stele_lab::job::parse_duration;
use stele_lab::live::target::PATIENCE;
use stele_papers::export;
use stele_server::failure::{Failure, Kind, Outcome};

use super::show::a_second;
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
        return plan(&asked.file, &jobs, asked.destroy, json);
    }
    until_stopped_leaving(LEFT, move |stop| measure(json, &asked, &jobs, stop)).await
}

/// An error with the job file that it comes from.
fn in_file(file: &Path, error: LabError) -> Failure {
    error.of_place(&file.display()).into()
}

fn jobs(file: &Path, sections: &[String]) -> Outcome<Vec<Options>> {
    let in_file = |error: LabError| in_file(file, error);
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

fn plan(job_file: &Path, jobs: &[Options], destroy: bool, json: bool) -> Outcome<()> {
    let planned = fio::plan(jobs, destroy).map_err(|error| in_file(job_file, error))?;
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
                shown(&one.name),
                shown(&path.display().to_string()),
                Bytes(*offset).to_string(),
                Bytes(*bytes).to_string(),
                remark.into(),
            ]);
        }
    }
    print!("{}", table.render());
    for (one, why) in planned.iter().filter_map(|one| Some((one, one.refused.as_ref()?))) {
        println!("\njob {} would be refused: {}", Shown(&one.name), Shown(why));
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
            eprintln!("{}", Shown(what));
        }
    };
    let patience = match &asked.patience {
        None => PATIENCE,
        Some(text) => parse_duration(text)
            .ok_or_else(|| Failure::usage(format!("--patience {text}: say it like 500us, 20ms, 1.5s, 2m or 1h")))?,
    };
    let in_file = |error: LabError| in_file(&asked.file, error);
    let (ran, failed) = fio::run_kept(jobs, asked.destroy, patience, stop, &tell).map_err(in_file)?;
    if let (true, Some(error)) = (ran.is_empty(), &failed) {
        return Err(in_file(error.clone()));
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
        return Err(in_file(error));
    }
    if let Some((ran, why)) = ran.iter().find_map(|ran| ran.tally.failed.as_ref().map(|why| (ran, why))) {
        return Err(in_file(LabError::of_access(format!("job '{}', line {}: {why}", ran.name, ran.line))));
    }
    match stop.load(Ordering::Relaxed) {
        true => Err(Failure::new(Kind::Partial, "stopped before the end")),
        false => Ok(()),
    }
}

/// What is reported as one: a copy, or all copies of a group with `group_reporting`.
struct Reported {
    name: String,
    group: u32,
    /// Of the copy that took longest, as in fio.
    span: Duration,
    /// Bytes and responses of reads and of writes.
    ways: [(u64, Histogram); 2],
    syncs: Histogram,
}

impl Reported {
    fn of(copy: &JobResult) -> Reported {
        let Tally { ways: [read, write], syncs, span, .. } = &copy.tally;
        Reported {
            name: copy.name.clone(),
            group: copy.group,
            span: Duration(*span),
            ways: [(read.bytes, read.whole.clone()), (write.bytes, write.whole.clone())],
            syncs: syncs.clone(),
        }
    }

    fn add(&mut self, copy: &JobResult) {
        self.span = self.span.max(Duration(copy.tally.span));
        for (own, theirs) in self.ways.iter_mut().zip(&copy.tally.ways) {
            own.0 += theirs.bytes;
            own.1.merge(&theirs.whole);
        }
        self.syncs.merge(&copy.tally.syncs);
    }
}

fn reported(all: &[JobResult]) -> Vec<Reported> {
    let mut rows: Vec<Reported> = Vec::new();
    let mut before: Option<&JobResult> = None;
    for copy in all {
        let joins = before.is_some_and(|one| one.with_group && copy.with_group && one.group == copy.group);
        match rows.last_mut().filter(|_| joins) {
            Some(row) => row.add(copy),
            None => rows.push(Reported::of(copy)),
        }
        before = Some(copy);
    }
    rows
}

/// A line for the reads and one for the writes of what is reported as one, and one for its syncs.
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
    for one in reported(all) {
        let seconds = one.span.as_secs_f64().max(1e-9);
        let [read, write] = one.ways;
        let kinds = [("read", Some(read.0), read.1), ("write", Some(write.0), write.1)];
        for (kind, bytes, response) in kinds.into_iter().chain([("sync", None, one.syncs)]) {
            if response.count() == 0 {
                continue;
            }
            table.row(vec![
                shown(&one.name),
                one.group.to_string(),
                kind.into(),
                response.count().to_string(),
                a_second(response.count() as f64 / seconds),
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

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use stele_lab::fio::DirectionStats;

    use super::*;

    /// Each of a second.
    fn copy(name: &str, group: u32, with_group: bool, reads: u64) -> JobResult {
        let mut whole = Histogram::default();
        (0..reads).for_each(|_| whole.record(Duration(1000)));
        let way = DirectionStats { bytes: reads * 4096, whole, ..DirectionStats::default() };
        let tally = Tally { ways: [way, DirectionStats::default()], span: 1_000_000_000, ..Tally::default() };
        let (name, options, begun) = (name.to_owned(), Vec::new(), SystemTime::UNIX_EPOCH);
        JobResult { name, line: 1, group, with_group, options, depth: 1, begun, tally }
    }

    #[test]
    fn copies_of_a_group_are_one_line() {
        let all = [copy("a", 0, true, 3), copy("a", 0, true, 4), copy("b", 1, true, 5), copy("b", 1, false, 6)];
        let row = |one: Reported| (one.name, one.ways[0].0, one.ways[0].1.count());
        let rows: Vec<(String, u64, u64)> = reported(&all).into_iter().map(row).collect();
        assert_eq!(rows, [("a".into(), 7 * 4096, 7), ("b".into(), 5 * 4096, 5), ("b".into(), 6 * 4096, 6)]);
        // As rows, or where these are too wide as a block for each.
        let lines = table(&all);
        let of_a = lines.lines().filter(|line| line.split_whitespace().any(|word| word == "a"));
        assert_eq!(of_a.count(), 1, "{lines}");
    }
}
