//! `stele backup forget`.

use serde_json::json;
use stele_backup::BackupError;
use stele_backup::forget::{self, Candidate, Judged, Policy, judge};
use stele_backup::repository::{Dated, Repository};
use stele_backup::snapshot::SnapshotId;
use stele_ground::Shown;
use stele_ground::calendar::moment;

use super::{find_snapshot, open, shown_path};
use crate::cli::backup::Forget;
use crate::commands::print_json;
use crate::failure::Outcome;
use crate::output::{Align, Table};

const DAY: u64 = 86_400;

fn policy(command: &Forget) -> Policy {
    Policy {
        last: command.keep_last,
        hourly: command.keep_hourly,
        daily: command.keep_daily,
        weekly: command.keep_weekly,
        monthly: command.keep_monthly,
        yearly: command.keep_yearly,
        within_seconds: command.keep_within_days.saturating_mul(DAY),
        tags: command.keep_tag.clone(),
    }
}

/// What the rules see of a snapshot. None: it cannot be read, which is said.
fn candidate(repository: &Repository, dated: &Dated) -> Outcome<Option<Candidate>> {
    let is = match repository.snapshot(&dated.id) {
        Err(error @ (BackupError::Damaged(_) | BackupError::Missing(_))) => {
            eprintln!("stele: {}", Shown(&error.to_string()));
            return Ok(None);
        }
        snapshot => snapshot?.description,
    };
    Ok(Some(Candidate { id: dated.id, stored: dated.stored, series: (is.host, is.paths), tags: is.tags }))
}

/// By the rules, a snapshot that cannot be read stays.
fn candidates(repository: &Repository) -> Outcome<Vec<Candidate>> {
    let found = repository.snapshots()?.into_iter().map(|dated| candidate(repository, &dated));
    Ok(found.collect::<Outcome<Vec<_>>>()?.into_iter().flatten().collect())
}

pub fn forget(json: bool, command: &Forget) -> Outcome<()> {
    let repository = open(&command.place)?;
    let judged: Vec<Judged> = if command.snapshots.is_empty() {
        judge(candidates(&repository)?, &policy(command))?
    } else {
        let named = command.snapshots.iter().map(|name| find_snapshot(&repository, name));
        let mut named = named.collect::<Outcome<Vec<SnapshotId>>>()?;
        named.sort_unstable();
        named.dedup();
        // One that is named goes, whether it can be read or not.
        let describe = |dated: &Dated| candidate(&repository, dated).ok().flatten();
        forget::named(&repository.snapshots()?, &named, describe)?
    };
    let mut rows = Vec::new();
    let mut table = Table::new(&[
        ("SNAPSHOT", Align::Left),
        ("STORED", Align::Left),
        ("KEPT BY", Align::Left),
        ("PATHS", Align::Left),
    ]);
    for Judged { candidate, kept_by } in &judged {
        let paths: Vec<String> = candidate.series.1.iter().map(|path| shown_path(path)).collect();
        let stored = moment(candidate.stored);
        if json {
            rows.push(json!({
                "snapshot": candidate.id.to_string(), "stored": stored, "host": candidate.series.0, "paths": paths,
                "kept_by": kept_by, "removed": kept_by.is_empty() && !command.dry_run,
            }));
        }
        let rules = if kept_by.is_empty() { "removed".to_owned() } else { kept_by.join(" ") };
        table.row(vec![candidate.id.short(), stored, rules, Shown(&paths.join(" ")).to_string()]);
    }
    for Judged { candidate, .. } in judged.iter().filter(|judged| judged.kept_by.is_empty() && !command.dry_run) {
        forget::remove(&repository, &candidate.id)?;
    }
    if json {
        return print_json(&rows);
    }
    print!("{}", table.render());
    if command.dry_run {
        println!("Nothing was removed: this was a trial.");
    }
    Ok(())
}
