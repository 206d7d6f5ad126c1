//! Which snapshots are kept: the last so many, and one for each of the last so many hours, days, weeks, months, years.
//!
//! The store dates snapshots. So an agent with a wrong clock cannot push good snapshots out of the rules. Snapshots of
//! the same host and the same paths are one series, and the rules count in each series alone.

use std::collections::{BTreeMap, BTreeSet};

use stele_ground::calendar::date;

use crate::error::{BackupError, Result};
use crate::repository::{Closed, Dated};
use crate::snapshot::SnapshotId;
use crate::store::{Folder, Name};

/// How many to keep of each kind. All zero keeps nothing, and is refused.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Policy {
    pub last: usize,
    pub hourly: usize,
    pub daily: usize,
    pub weekly: usize,
    pub monthly: usize,
    pub yearly: usize,
    /// Keeps all that are not older than so many seconds before the latest of the series.
    pub within_seconds: u64,
    /// Keeps all with one of these tags.
    pub tags: Vec<String>,
}

/// A snapshot as the rules see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    pub id: SnapshotId,
    /// By the store's clock.
    pub stored: u64,
    /// The end by the agent's clock, see [`crate::snapshot::Description::finished`]. It orders those of one second.
    pub finished: u64,
    /// Host and paths.
    pub series: (String, Vec<Vec<u8>>),
    pub tags: Vec<String>,
}

/// A snapshot with the rules that keep it. Without any, it goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Judged {
    pub candidate: Candidate,
    pub kept_by: Vec<String>,
}

const DAY: u64 = 86_400;

/// Judges all snapshots: in each series, newest first.
pub fn judge(candidates: Vec<Candidate>, policy: &Policy) -> Result<Vec<Judged>> {
    if *policy == Policy::default() {
        return Err(BackupError::Invalid("no rule keeps any snapshot; give at least one".to_owned()));
    }
    let mut series: BTreeMap<(String, Vec<Vec<u8>>), Vec<Candidate>> = BTreeMap::new();
    for candidate in candidates {
        series.entry(candidate.series.clone()).or_default().push(candidate);
    }
    let mut judged = Vec::new();
    for mut members in series.into_values() {
        members.sort_by_key(|candidate| std::cmp::Reverse((candidate.stored, candidate.finished, candidate.id)));
        judged.extend(judge_series(members, policy));
    }
    Ok(judged)
}

/// The snapshots that are named, to be removed whatever they are. One that `describe` cannot read goes too: it may be the
/// damaged one that stops every prune. If a name has no snapshot, none of them goes.
pub fn named(
    all: &[Dated],
    names: &[SnapshotId],
    mut describe: impl FnMut(&Dated) -> Option<Candidate>,
) -> Result<Vec<Judged>> {
    let missing = |id: &SnapshotId| BackupError::Missing(format!("the repository has no snapshot {id}"));
    let found = names.iter().map(|id| all.iter().find(|dated| dated.id == *id).ok_or_else(|| missing(id)));
    let found = found.collect::<Result<Vec<&Dated>>>()?;
    let judged = found.into_iter().map(|dated| {
        let unread =
            Candidate { id: dated.id, stored: dated.stored, finished: 0, series: Default::default(), tags: Vec::new() };
        Judged { candidate: describe(dated).unwrap_or(unread), kept_by: Vec::new() }
    });
    Ok(judged.collect())
}

/// Removes a snapshot without reading it.
pub fn remove(repository: &Closed, id: &SnapshotId) -> Result<()> {
    repository.store.remove(&Name::of(Folder::Snapshots, &id.0))
}

type Period = fn(u64) -> String;

fn judge_series(members: Vec<Candidate>, policy: &Policy) -> Vec<Judged> {
    let periods: [(&'static str, usize, Period); 5] = [
        ("hourly", policy.hourly, |at| (at / 3600).to_string()),
        ("daily", policy.daily, |at| (at / DAY).to_string()),
        // 1 January 1970 was a Thursday; weeks begin on Monday.
        ("weekly", policy.weekly, |at| ((at / DAY + 3) / 7).to_string()),
        ("monthly", policy.monthly, |at| date(at).get(..7).unwrap_or_default().to_owned()),
        ("yearly", policy.yearly, |at| date(at).get(..4).unwrap_or_default().to_owned()),
    ];
    let mut seen: [BTreeSet<String>; 5] = Default::default();
    let latest = members.first().map_or(0, |candidate| candidate.stored);
    let judge = |(place, candidate): (usize, Candidate)| {
        let mut kept_by = Vec::new();
        if place < policy.last {
            kept_by.push("last".to_owned());
        }
        // The latest snapshot of each period is kept.
        for ((name, most, period), seen) in periods.iter().zip(&mut seen) {
            if seen.len() < *most && seen.insert(period(candidate.stored)) {
                kept_by.push((*name).to_owned());
            }
        }
        if policy.within_seconds > 0 && latest - candidate.stored <= policy.within_seconds {
            kept_by.push("within".to_owned());
        }
        if candidate.tags.iter().any(|tag| policy.tags.contains(tag)) {
            kept_by.push("tag".to_owned());
        }
        Judged { candidate, kept_by }
    };
    members.into_iter().enumerate().map(judge).collect()
}

#[cfg(test)]
mod tests;
