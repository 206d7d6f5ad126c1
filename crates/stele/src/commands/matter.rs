//! `stele matter`: opens, puts, releases, shows and closes named matters.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use stele_archive::{Counted, MatterInfo, MatterState};
use stele_ground::{Bytes, are, counted, counted_are};
use stele_server::api::approval::Officer;
use stele_server::api::matters as calls;
use stele_server::config::Site;
use stele_server::connection::{Connection, read_officer};
use stele_server::failure::{Failure, Outcome, io_failure};

use crate::cli::matter::{Change, Matter};
use crate::commands::approve::asked;
use crate::commands::archive::ask;
use crate::commands::names::{NameList, written};
use crate::commands::{confirm, print_json};
use crate::output::{Align, Table};

/// Versions of a list that one call names. Its body stays below the limit of the socket for keys of
/// 1 KiB.
const LIST_PAGE: usize = 500;
/// Failures of a list that are named.
const FAILURES: usize = 10;
/// Between two looks at a job.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub async fn run(site: &Site, json: bool, command: Matter) -> Outcome<()> {
    match command {
        Matter::Open { name, reason, officer } => {
            let officer = officer.officer.as_deref().map(read_officer).transpose()?;
            show(json, &ask(site, calls::MatterOpen { name, reason, officer }).await?)
        }
        Matter::List => list(site, json).await,
        Matter::Show { name, versions: false } => show(json, &ask(site, calls::MatterShow { name }).await?),
        Matter::Show { name, versions: true } => versions(site, json, &name).await,
        Matter::Put(change) => apply(site, json, change, true, true).await,
        Matter::Release { change, yes } => apply(site, json, change, false, yes).await,
        Matter::Close { name, officer } => {
            let officer = read_officer(&officer)?;
            asked(json, &ask(site, calls::MatterClose { name, officer }).await?)
        }
    }
}

async fn list(site: &Site, json: bool) -> Outcome<()> {
    let matters = ask(site, calls::MatterList {}).await?;
    if json {
        return print_json(&matters);
    }
    let mut table = Table::new(&[
        ("matter", Align::Whole),
        ("state", Align::Left),
        ("opened", Align::Whole),
        ("by", Align::Left),
        ("reason", Align::Left),
    ]);
    for matter in matters {
        table.row(vec![matter.name, state(matter.state).into(), matter.opened, matter.opened_by, matter.reason]);
    }
    print!("{}", table.render());
    Ok(())
}

fn state(state: MatterState) -> &'static str {
    match state {
        MatterState::Open => "open",
        MatterState::Closing => "closing",
        MatterState::Closed => "closed",
    }
}

fn show(json: bool, matter: &MatterInfo) -> Outcome<()> {
    if json {
        return print_json(matter);
    }
    println!("{}: {}", matter.name, state(matter.state));
    println!("  opened {} by {}: {}", matter.opened, matter.opened_by, matter.reason);
    if let (Some(by), Some(approved)) = (&matter.closed_by, &matter.approved_by) {
        let when = matter.closed.as_deref().unwrap_or("its versions are being released");
        println!("  closed by {by}, approved by {approved}: {when}");
    }
    if let Some(versions) = matter.versions {
        println!("  {}{}", counted(versions, "version"), if matter.more { " or more" } else { "" });
    }
    if let Some(job) = &matter.job {
        let ended = job.ended.as_deref().map_or("under way".into(), |ended| format!("ended {ended}"));
        println!(
            "  last job: {} of {}, asked for by {} {}, {ended}",
            job.kind, job.selection, job.asked_by, job.started
        );
        println!("  {} seen, {} changed, {} failed", counted(job.seen, "version"), job.changed, job.failed);
        if job.held_since > 0 {
            let stay = if job.held_since == 1 { "stays" } else { "stay" };
            println!("  {} {stay} held: put after the release began", counted(job.held_since, "version"));
        }
        if let Some(failure) = &job.failure {
            println!("  the first failure: {failure}");
        }
    }
    Ok(())
}

/// Prints names exactly, as `--list` reads them back.
async fn versions(site: &Site, json: bool, name: &str) -> Outcome<()> {
    let connection = Connection::find(site).await?;
    let mut after = None;
    loop {
        let page = connection.exact(calls::MatterVersions { name: name.to_owned(), after }).await?;
        for version in &page.versions {
            match json {
                true => print_json(&serde_json::json!({ "object": version }))?,
                false => println!("{}", written(version)),
            }
        }
        after = page.next;
        if after.is_none() {
            return connection.leave().await;
        }
    }
}

async fn apply(site: &Site, json: bool, change: Change, put: bool, yes: bool) -> Outcome<()> {
    let officer = change.officer.officer.as_deref().map(read_officer).transpose()?;
    let verb = if put { "put under" } else { "released from" };
    if let Some(path) = &change.list {
        if !yes {
            confirm(&format!("The listed versions are released from the matter {}.", change.name), "--yes")?;
        }
        return listed(site, json, &change.name, path, put, officer).await;
    }
    let selection = calls::Selected {
        bucket: change.bucket.unwrap_or_default(),
        prefix: change.prefix,
        tags: change.tag.into_iter().collect(),
        stored_after: change.stored_after,
        stored_before: change.stored_before,
    };
    let connection = Connection::find(site).await?;
    if change.dry_run || !yes {
        let found = count(&connection, &change.name, &selection).await?;
        let touched = if put { found.selected.saturating_sub(found.under) } else { found.under };
        if change.dry_run {
            connection.leave().await?;
            return preview(json, &found, touched, verb);
        }
        let versions = counted_are(touched, "version");
        confirm(&format!("{versions} released from the matter {}.", change.name), "--yes")?;
    }
    let begun = connection.call(calls::MatterSelect { name: change.name, selection, put, officer }).await;
    let ended = match begun {
        Ok(begun) if change.no_wait => Ok(begun),
        Ok(begun) => wait(&connection, begun).await,
        Err(failure) => Err(failure),
    };
    connection.leave().await?;
    let matter = ended?;
    show(json, &matter)?;
    match matter.job.as_ref().filter(|job| job.failed > 0) {
        Some(job) => Err(Failure::failed(format!("{} could not be {verb} the matter", counted(job.failed, "version")))
            .next("mend the cause and give the command again; versions that are done stay as they are")),
        None => Ok(()),
    }
}

async fn count(connection: &Connection, name: &str, selection: &calls::Selected) -> Outcome<Counted> {
    let mut all = Counted::default();
    loop {
        let after = all.next.take();
        let call = calls::MatterCount { name: name.to_owned(), selection: selection.clone(), after };
        let page = connection.call(call).await?;
        all.seen += page.seen;
        all.selected += page.selected;
        all.bytes += page.bytes;
        all.under += page.under;
        if all.examples.is_empty() {
            all.examples = page.examples;
        }
        all.next = page.next;
        if all.next.is_none() {
            return Ok(all);
        }
    }
}

fn preview(json: bool, found: &Counted, touched: u64, verb: &str) -> Outcome<()> {
    if json {
        return print_json(found);
    }
    println!(
        "{} {} selected, {}; {touched} would be {verb} the matter.",
        counted(found.selected, "version"),
        are(found.selected),
        Bytes(found.bytes)
    );
    for example in &found.examples {
        println!("  {example}");
    }
    println!("Looked at: {}. Nothing was changed.", counted(found.seen, "version"));
    Ok(())
}

/// Waits for the end of the matter's job. A terminal shows its progress.
async fn wait(connection: &Connection, begun: MatterInfo) -> Outcome<MatterInfo> {
    let mut matter = begun;
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    while let Some(job) = matter.job.as_ref().filter(|job| job.ended.is_none()) {
        if terminal {
            eprint!("\r{} seen, {} changed", counted(job.seen, "version"), job.changed);
        }
        tokio::time::sleep(LOOK_EVERY).await;
        let all = connection.call(calls::MatterList {}).await?;
        let found = all.into_iter().find(|known| known.name == matter.name);
        matter = found.ok_or_else(|| Failure::missing(format!("the matter {} is gone", matter.name)))?;
    }
    if terminal {
        eprintln!();
    }
    Ok(matter)
}

/// The result for a list.
#[derive(Default, Serialize)]
struct Done {
    listed: u64,
    changed: u64,
    unchanged: u64,
    failed: u64,
    /// The first few.
    failures: Vec<String>,
}

async fn listed(site: &Site, json: bool, name: &str, path: &Path, put: bool, officer: Option<Officer>) -> Outcome<()> {
    let unread = |error: std::io::Error| io_failure("read", path, &error);
    let file: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(std::io::stdin()),
        false => Box::new(File::open(path).map_err(unread)?),
    };
    let connection = Connection::find(site).await?;
    let done = each_page(&connection, NameList::new(path, BufReader::new(file)), name, put, officer).await;
    connection.leave().await?;
    let done = done?;
    if json {
        print_json(&done)?;
    } else {
        println!("{} listed: {} changed, {} unchanged", counted(done.listed, "version"), done.changed, done.unchanged);
    }
    match done.failed {
        0 => Ok(()),
        failed => Err(Failure::failed(in_words(failed, &done.failures))
            .next("correct the list and give the command again; versions that are done stay as they are")),
    }
}

/// The failures, of which the first few are told.
fn in_words(failed: u64, first: &[String]) -> String {
    let more = match failed.saturating_sub(first.len() as u64) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    format!("{} failed: {}{more}", counted(failed, "version"), first.join("; "))
}

async fn each_page(
    connection: &Connection,
    mut list: NameList<'_>,
    name: &str,
    put: bool,
    officer: Option<Officer>,
) -> Outcome<Done> {
    let mut done = Done::default();
    loop {
        let page = list.page(LIST_PAGE).map_err(|failure| match done.listed {
            0 => failure,
            listed => {
                let next = format!("{}; the first {} of the list are done", failure.next, counted(listed, "version"));
                Failure { next, ..failure }
            }
        })?;
        if page.is_empty() {
            return Ok(done);
        }
        let versions = page.iter().map(|(_, version)| version.clone()).collect();
        let call = calls::MatterHold { name: name.to_owned(), versions, put, officer: officer.clone() };
        for ((line, version), result) in page.iter().zip(connection.call(call).await?) {
            done.listed += 1;
            match result.failure {
                None if result.unchanged => done.unchanged += 1,
                None => done.changed += 1,
                Some(failure) => {
                    done.failed += 1;
                    if done.failures.len() < FAILURES {
                        done.failures.push(format!("line {line}, {}/{}: {failure}", version.bucket, version.key));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_that_are_not_told_are_counted() {
        let first = ["line 1".to_owned(), "line 4".to_owned()];
        assert_eq!(in_words(2, &first), "2 versions failed: line 1; line 4");
        assert_eq!(in_words(31, &first), "31 versions failed: line 1; line 4; and 29 more");
    }
}
