//! `stele backup forget`.

use std::collections::BTreeMap;

use serde_json::json;
use stele_backup::BackupError;
use stele_backup::forget::{self, Candidate, ForgetPolicy, GAP_SECONDS_MAX, JudgedSnapshot, Timeline, judge_with};
use stele_backup::repository::{Dated, Repository};
use stele_backup::snapshot::SnapshotId;
use stele_backup::store::{Folder, Name};
use stele_backup::versions::{self, SeriesSnapshot};
use stele_ground::calendar::moment;
use stele_ground::{Shown, are, counted, counted_are};
use stele_server::failure::{Failure, Kind, Outcome};

use super::tell::tell;
use super::{open, select, shown_path};
use crate::cli::backup::BackupForget;
use crate::commands::print_json;
use crate::output::{Align, Table};

const DAY: u64 = 86_400;
/// A longer snapshot that is named goes without being read: it may be a planted one that takes all
/// memory.
const DESCRIBED_BYTES_MAX: u64 = 64 << 20;

fn policy(command: &BackupForget) -> ForgetPolicy {
    ForgetPolicy {
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

fn told(error: &BackupError) -> Option<Candidate> {
    tell(format_args!("stele: {}", Shown(&error.to_string())));
    None
}

/// By the rules, a snapshot that cannot be read stays, and so does one of a later version. Both are
/// said.
fn candidates(repository: &Repository, now: u64) -> Outcome<Vec<Candidate>> {
    let found = repository.snapshots()?.into_iter().map(|dated| match Candidate::read(repository, &dated, now) {
        Err(error @ (BackupError::Damaged(_) | BackupError::Newer(_) | BackupError::Missing(_))) => Ok(told(&error)),
        candidate => Ok(Some(candidate?)),
    });
    Ok(found.collect::<Outcome<Vec<_>>>()?.into_iter().flatten().collect())
}

/// What is known of a snapshot that is named. One that cannot be read goes all the same; one of a
/// later version does not.
fn described(repository: &Repository, dated: &Dated, now: u64) -> Result<Option<Candidate>, BackupError> {
    if dated.size > DESCRIBED_BYTES_MAX {
        return Ok(None);
    }
    match Candidate::read(repository, dated, now) {
        Err(error @ BackupError::Newer(_)) => Err(error),
        Err(error) => Ok(told(&error)),
        candidate => candidate.map(Some),
    }
}

/// What the rules keep, and what the classes of a policy keep.
fn by_rules(repository: &Repository, command: &BackupForget) -> Outcome<Vec<JudgedSnapshot>> {
    let now = repository.store.now()?;
    let (candidates, rules) = (candidates(repository, now)?, policy(command));
    let misdated = candidates.iter().filter(|is| is.is_misdated).count();
    if misdated > 0 {
        tell(format_args!(
            "stele: {} kept: the store's date lies days before or behind the end of the backup, as in a copy without its \
             times, or ahead of the store's clock; name a snapshot to remove it",
            counted_are(misdated as u64, "snapshot")
        ));
    }
    let gap_max = if command.accept_gaps { u64::MAX } else { GAP_SECONDS_MAX };
    let sure = candidates.iter().filter(|is| !is.is_misdated);
    let line = Timeline::new(sure.map(|is| is.stored).chain([now]), gap_max);
    let counts_time = command.policy.is_some() || rules.within_seconds > 0;
    if counts_time && line.left_out() >= DAY {
        tell(format_args!(
            "stele: {} without a snapshot {} not counted, since a clock may have jumped ahead; --accept-gaps counts them",
            counted(line.left_out() / DAY, "day"),
            are(line.left_out() / DAY)
        ));
    }
    let Some(file) = &command.policy else { return Ok(judge_with(candidates, &rules, gap_max)?) };
    let classes = super::policy::policy(file)?;
    let mut judged: Vec<JudgedSnapshot> = match rules == ForgetPolicy::default() {
        false => judge_with(candidates, &rules, gap_max)?,
        true => candidates.into_iter().map(JudgedSnapshot::new).collect(),
    };
    judged.sort_by(|a, b| {
        let newest =
            |is: &JudgedSnapshot| std::cmp::Reverse((is.candidate.stored, is.candidate.finished, is.candidate.id));
        a.candidate.series.cmp(&b.candidate.series).then_with(|| newest(a).cmp(&newest(b)))
    });
    let indexed = super::index(repository)?;
    for series in judged.chunk_by_mut(|a, b| a.candidate.series == b.candidate.series) {
        // A date that is wrong dates no version, and such a snapshot stays in any case.
        let dated = series.iter().rev().filter(|is| !is.candidate.is_misdated);
        let members = dated.map(|is| {
            let Candidate { id, stored, .. } = is.candidate;
            Ok(SeriesSnapshot { id, stored: line.at(stored), description: repository.snapshot(&id)?.description })
        });
        let members = members.collect::<Outcome<Vec<SeriesSnapshot>>>()?;
        let kept = versions::judge(&indexed, &members, &classes, line.at(now))?;
        if kept.left > 0 {
            tell(format_args!(
                "stele: {} left for later: one call judges no more; repeat it",
                counted_are(kept.left as u64, "snapshot")
            ));
        }
        for is in series {
            is.kept_by.extend(kept.kept.get(&is.candidate.id).into_iter().flatten().cloned());
        }
    }
    forget::keep_complete(&mut judged);
    Ok(judged)
}

/// Until when a snapshot stays whatever the rules. One that another command removed meanwhile does
/// not.
fn kept_until(repository: &Repository, id: &SnapshotId) -> Outcome<Option<u64>> {
    match repository.store.kept_until(&Name::of(Folder::Snapshots, &id.0)) {
        Err(BackupError::Missing(_)) => Ok(None),
        kept => Ok(kept?),
    }
}

/// Refuses to remove all snapshots of a series by rules: they may be mistyped.
fn refuse_whole_series(judged: &[JudgedSnapshot]) -> Outcome<()> {
    let mut kept: BTreeMap<&(String, Vec<Vec<u8>>), bool> = BTreeMap::new();
    for is in judged {
        *kept.entry(&is.candidate.series).or_default() |= !is.kept_by.is_empty();
    }
    match kept.into_iter().find(|(_, is_kept)| !is_kept) {
        Some(((host, paths), _)) => {
            let paths: Vec<String> = paths.iter().map(|path| shown_path(path)).collect();
            let message =
                format!("the rules keep no snapshot of {} on {}; nothing was removed", paths.join(", "), Shown(host));
            Err(Failure::new(Kind::Refused, message)
                .next("`--dry-run` shows what they keep; add a rule such as --keep-last 1, or give --remove-series"))
        }
        None => Ok(()),
    }
}

pub fn forget(json: bool, command: &BackupForget) -> Outcome<()> {
    let repository = open(&command.place)?;
    let judged: Vec<JudgedSnapshot> = if command.snapshots.is_empty() {
        let judged = by_rules(&repository, command)?;
        if !command.remove_series {
            match refuse_whole_series(&judged) {
                Err(failure) if command.dry_run => {
                    tell(format_args!("stele: without --dry-run this is refused: {}", Shown(&failure.error)));
                }
                allowed => allowed?,
            }
        }
        judged
    } else {
        let named = command.snapshots.iter().map(|name| select::to_remove(&repository, name).map(|dated| dated.id));
        let mut named = named.collect::<Outcome<Vec<SnapshotId>>>()?;
        named.sort_unstable();
        named.dedup();
        let now = repository.store.now()?;
        let describe = |dated: &Dated| described(&repository, dated, now);
        forget::named(&repository, &repository.snapshots()?, &named, describe)?
    };
    let locks = judged.iter().map(|JudgedSnapshot { candidate, kept_by }| match kept_by.is_empty() {
        true => kept_until(&repository, &candidate.id),
        false => Ok(None),
    });
    let locks = locks.collect::<Outcome<Vec<Option<u64>>>>()?;
    let mut rows = Vec::new();
    let mut table = Table::new(&[
        ("SNAPSHOT", Align::Whole),
        ("STORED", Align::Whole),
        ("KEPT BY", Align::Left),
        ("PATHS", Align::Left),
    ]);
    for (JudgedSnapshot { candidate, kept_by }, lock) in judged.iter().zip(&locks) {
        let goes = kept_by.is_empty() && lock.is_none();
        let paths: Vec<String> = candidate.series.1.iter().map(|path| shown_path(path)).collect();
        let stored = moment(candidate.stored);
        if json {
            rows.push(json!({
                "snapshot": candidate.id.to_string(), "stored": stored, "host": candidate.series.0, "paths": paths,
                "kept_by": kept_by, "locked_until": lock.map(moment), "removed": goes && !command.dry_run,
            }));
        }
        let rules = match lock {
            Some(until) => format!("locked until {}", moment(*until)),
            None if goes => "removed".to_owned(),
            None => kept_by.join(" "),
        };
        table.row(vec![candidate.id.short(), stored, rules, Shown(&paths.join(" ")).to_string()]);
    }
    for (JudgedSnapshot { candidate, kept_by }, lock) in judged.iter().zip(&locks) {
        if kept_by.is_empty() && lock.is_none() && !command.dry_run {
            // What another command removed meanwhile is gone, as it was to be.
            forget::remove(&repository, &candidate.id)?;
        }
    }
    if json {
        print_json(&rows)?;
        return refused(command, &locks);
    }
    print!("{}", table.render());
    if command.dry_run {
        println!("Nothing was removed: this was a trial.");
    }
    refused(command, &locks)
}

/// A locked snapshot that was named is refused. One that the rules let go stays, and goes after its
/// date.
fn refused(command: &BackupForget, locks: &[Option<u64>]) -> Outcome<()> {
    let locked = locks.iter().flatten().count();
    if command.snapshots.is_empty() || locked == 0 {
        return Ok(());
    }
    Err(Failure::new(Kind::Refused, format!("{} locked until a later date", counted_are(locked as u64, "snapshot"))))
}
