//! Which snapshots are kept: the last so many, and one for each of the last so many hours, days,
//! weeks, months, years.
//!
//! Snapshots of the same host and the same paths are one series, and the rules count in each series
//! alone. They count twice: by the dates of the store, and by the ends of the backups in the sealed
//! descriptions. A snapshot stays if either count keeps it. So an agent with a wrong clock pushes
//! nothing out, and neither does a writer without the key, who can store an old object again under
//! its name and so move its date.
//!
//! If both dates of a snapshot lie further apart than
//! [`DRIFT_SECONDS_MAX`](crate::snapshot::DRIFT_SECONDS_MAX), one of them is wrong. Such a snapshot
//! stays and counts for no rule, so an intruder who has the key cannot fill the place of others
//! with new snapshots of old dates. The same holds for a date that lies in the store's future.
//!
//! A snapshot of a volume that lacks what the array could not read takes the place of none without
//! such gaps: the latest of those stays, see [`keep_complete`].
//!
//! Rules by age go wrong if a clock jumps ahead by years, and nothing shows whether it did. So a
//! gap between two snapshots of the repository counts as [`GAP_SECONDS_MAX`] at most, see
//! [`Timeline`].

use std::collections::{BTreeMap, BTreeSet};

use stele_ground::calendar::date;

use crate::error::{BackupError, Result};
use crate::newer;
use crate::repository::{Closed, Dated, Repository};
use crate::snapshot::{self, NANOS, SnapshotId};
use crate::store::{Folder, Name};

/// How many to keep of each kind. All zero keeps nothing, and is refused.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ForgetPolicy {
    pub last: usize,
    pub hourly: usize,
    pub daily: usize,
    pub weekly: usize,
    pub monthly: usize,
    pub yearly: usize,
    /// Keeps all that are not older than so many seconds before the latest of the series, on a
    /// [`Timeline`].
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
    /// The end by the agent's clock, see [`crate::snapshot::Description::finished`].
    pub finished: u64,
    /// Host and paths.
    pub series: (String, Vec<Vec<u8>>),
    pub tags: Vec<String>,
    /// Whether it is of a volume of which a part could not be read.
    pub has_gaps: bool,
    /// Whether one of both dates is wrong.
    pub is_misdated: bool,
}

impl Candidate {
    /// Reads the description. `now` is the store's time.
    pub fn read(repository: &Repository, dated: &Dated, now: u64) -> Result<Candidate> {
        let is = repository.snapshot(&dated.id)?.description;
        Ok(Candidate {
            id: dated.id,
            stored: dated.stored,
            finished: is.finished,
            is_misdated: is.is_misdated(dated.stored) || dated.stored > now.saturating_add(AHEAD_SECONDS_MAX),
            has_gaps: is.has_volume && is.problems > 0,
            series: (is.host, is.paths),
            tags: is.tags,
        })
    }
}

/// A snapshot with the rules that keep it. Without any, it goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JudgedSnapshot {
    pub candidate: Candidate,
    pub kept_by: Vec<String>,
}

impl JudgedSnapshot {
    /// Kept by no rule yet. A date that is wrong keeps a snapshot whatever the rules.
    pub fn new(candidate: Candidate) -> JudgedSnapshot {
        let kept_by = if candidate.is_misdated { vec![MISDATED.to_owned()] } else { Vec::new() };
        JudgedSnapshot { candidate, kept_by }
    }

    fn keep(&mut self, rule: &str) {
        if !self.kept_by.iter().any(|by| by == rule) {
            self.kept_by.push(rule.to_owned());
        }
    }
}

const DAY: u64 = 86_400;
/// Bytes of a snapshot that are compared at once.
const PART_BYTES: u64 = 4 << 20;
/// A snapshot that is dated further ahead was stored when the store's clock was wrong, or the clock
/// is wrong now.
const AHEAD_SECONDS_MAX: u64 = DAY;
/// A longer time without any snapshot of the repository counts as so much.
pub const GAP_SECONDS_MAX: u64 = 7 * DAY;

/// Dates with the gaps between them shortened. A clock that jumps ahead by years makes everything
/// older by the longest gap and no more; after that it ages with the snapshots that are made.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Each date with its place on the line, both ascending.
    places: Vec<(u64, u64)>,
    gap_max: u64,
}

impl Timeline {
    pub fn new(dates: impl IntoIterator<Item = u64>, gap_max: u64) -> Timeline {
        let dates: BTreeSet<u64> = dates.into_iter().collect();
        let mut line = Timeline { places: Vec::with_capacity(dates.len()), gap_max };
        for date in dates {
            line.places.push((date, line.at(date)));
        }
        line
    }

    /// The place of a date in seconds. Differences of places are ages.
    pub fn at(&self, date: u64) -> u64 {
        let before = self.places.partition_point(|(before, _)| *before <= date).checked_sub(1);
        let before = before.and_then(|before| self.places.get(before));
        before.map_or(0, |(before, place)| place + (date - before).min(self.gap_max))
    }

    /// Seconds of all gaps that do not count.
    pub fn left_out(&self) -> u64 {
        let ends = self.places.first().zip(self.places.last());
        ends.map_or(0, |((first, from), (last, to))| (last - first) - (to - from))
    }
}

/// The reason of snapshots that no rule may judge.
pub const MISDATED: &str = "doubtful-date";

/// Host and paths.
type Series = (String, Vec<Vec<u8>>);
/// The order of snapshots by a clock: date, end and id.
type Ended = (u64, u64, SnapshotId);

/// The reason of the latest complete snapshot of a volume, while all later ones have gaps.
pub const COMPLETE: &str = "complete";

/// Keeps the latest snapshot without gaps of each series whose later ones have gaps: by either
/// clock, as all rules. What the gaps lack may be in no other snapshot.
pub fn keep_complete(judged: &mut [JudgedSnapshot]) {
    for clock in [agent as Clock, store] {
        let place = |is: &Candidate| (clock(is), is.finished, is.id);
        let mut latest: BTreeMap<Series, [Option<Ended>; 2]> = BTreeMap::new();
        for JudgedSnapshot { candidate: is, .. } in judged.iter().filter(|is| !is.candidate.is_misdated) {
            let found = latest.entry(is.series.clone()).or_default();
            let [complete, gaps] = found;
            let of_kind = if is.has_gaps { gaps } else { complete };
            *of_kind = (*of_kind).max(Some(place(is)));
        }
        for is in judged.iter_mut() {
            if let Some([Some(complete), Some(gaps)]) = latest.get(&is.candidate.series)
                && complete < gaps
                && *complete == place(&is.candidate)
            {
                is.keep(COMPLETE);
            }
        }
    }
}

/// Judges all snapshots: in each series, newest first.
pub fn judge(candidates: Vec<Candidate>, policy: &ForgetPolicy) -> Result<Vec<JudgedSnapshot>> {
    judge_with(candidates, policy, GAP_SECONDS_MAX)
}

/// As [`judge`], with another longest gap.
pub fn judge_with(candidates: Vec<Candidate>, policy: &ForgetPolicy, gap_max: u64) -> Result<Vec<JudgedSnapshot>> {
    if *policy == ForgetPolicy::default() {
        return Err(BackupError::Invalid("no rule keeps any snapshot; give at least one".to_owned()));
    }
    let sure = || candidates.iter().filter(|is| !is.is_misdated);
    let clocks = [agent as Clock, store].map(|clock| (clock, Timeline::new(sure().map(clock), gap_max)));
    let mut series: BTreeMap<(String, Vec<Vec<u8>>), Vec<Candidate>> = BTreeMap::new();
    for candidate in candidates {
        series.entry(candidate.series.clone()).or_default().push(candidate);
    }
    let mut judged = Vec::new();
    for members in series.into_values() {
        let mut members: Vec<JudgedSnapshot> = members.into_iter().map(JudgedSnapshot::new).collect();
        for (clock, line) in &clocks {
            members
                .sort_by_key(|JudgedSnapshot { candidate: is, .. }| std::cmp::Reverse((clock(is), is.finished, is.id)));
            judge_series(&mut members, policy, *clock, line);
        }
        judged.extend(members);
    }
    keep_complete(&mut judged);
    Ok(judged)
}

/// The snapshots that are named, to be removed whatever they are. One that `describe` cannot read
/// goes too: it may be the damaged one that stops every prune. If a name has no snapshot, or that
/// of a later version, none of them goes.
pub fn named(
    repository: &Closed,
    all: &[Dated],
    names: &[SnapshotId],
    mut describe: impl FnMut(&Dated) -> Result<Option<Candidate>>,
) -> Result<Vec<JudgedSnapshot>> {
    let missing = |id: &SnapshotId| BackupError::Missing(format!("the repository has no snapshot {id}"));
    let found = names.iter().map(|id| all.iter().find(|dated| dated.id == *id).ok_or_else(|| missing(id)));
    let found = found.collect::<Result<Vec<&Dated>>>()?;
    let judged = found.into_iter().map(|dated| {
        let described = refuse_newer(repository, dated).and_then(|()| describe(dated)).map_err(stays)?;
        let unread = Candidate {
            id: dated.id,
            stored: dated.stored,
            finished: 0,
            series: Default::default(),
            tags: Vec::new(),
            has_gaps: false,
            is_misdated: false,
        };
        Ok(JudgedSnapshot { candidate: described.unwrap_or(unread), kept_by: Vec::new() })
    });
    judged.collect()
}

fn stays(error: BackupError) -> BackupError {
    match error {
        BackupError::Newer(text) => BackupError::Newer(format!("{text} to forget it; nothing was removed")),
        other => other,
    }
}

/// Refuses a snapshot that a later version wrote, of any length: it reads part by part.
fn refuse_newer(repository: &Closed, dated: &Dated) -> Result<()> {
    let name = Name::of(Folder::Snapshots, &dated.id.0);
    let read = |from: u64| match repository.store.get_range(&name, from..dated.size.min(from + PART_BYTES)) {
        // It is damaged, or gone.
        Err(BackupError::Damaged(_) | BackupError::Missing(_)) => Ok(None),
        read => read.map(Some),
    };
    let magic = match repository.store.get_range(&name, 0..dated.size.min(snapshot::MAGIC.len() as u64)) {
        Err(BackupError::Damaged(_) | BackupError::Missing(_)) => return Ok(()),
        magic => magic?,
    };
    let Some(refusal) = newer::refusal(&format!("snapshot {}", dated.id), &magic, &snapshot::MAGIC) else {
        return Ok(());
    };
    let (mut hash, mut at) = (blake3::Hasher::new(), 0);
    while at < dated.size {
        let Some(part) = read(at)? else { return Ok(()) };
        hash.update(&part);
        at += PART_BYTES;
    }
    if *hash.finalize().as_bytes() == dated.id.0 { Err(refusal) } else { Ok(()) }
}

/// Removes a snapshot without reading it. Whether it was there: another command may have removed it
/// since it was listed.
pub fn remove(repository: &Closed, id: &SnapshotId) -> Result<bool> {
    match repository.store.remove(&Name::of(Folder::Snapshots, &id.0)) {
        Err(BackupError::Missing(_)) => Ok(false),
        removed => removed.map(|()| true),
    }
}

type Period = fn(u64) -> String;
/// The date of a snapshot by one of both clocks: seconds since 1970.
type Clock = fn(&Candidate) -> u64;

fn store(candidate: &Candidate) -> u64 {
    candidate.stored
}

fn agent(candidate: &Candidate) -> u64 {
    candidate.finished / NANOS
}

/// Judges the members of a series, newest first by the clock.
fn judge_series(members: &mut [JudgedSnapshot], policy: &ForgetPolicy, clock: Clock, line: &Timeline) {
    let periods: [(&'static str, usize, Period); 5] = [
        ("hourly", policy.hourly, |at| (at / 3600).to_string()),
        ("daily", policy.daily, |at| (at / DAY).to_string()),
        // 1 January 1970 was a Thursday; weeks begin on Monday.
        ("weekly", policy.weekly, |at| ((at / DAY + 3) / 7).to_string()),
        ("monthly", policy.monthly, |at| date(at).get(..7).unwrap_or_default().to_owned()),
        ("yearly", policy.yearly, |at| date(at).get(..4).unwrap_or_default().to_owned()),
    ];
    let mut seen: [BTreeSet<String>; 5] = Default::default();
    let mut latest = None;
    let members = members.iter_mut().filter(|is| !is.candidate.is_misdated);
    for (place, judged) in members.enumerate() {
        let at = clock(&judged.candidate);
        if place < policy.last {
            judged.keep("last");
        }
        // The latest snapshot of each period is kept.
        for ((name, most, period), seen) in periods.iter().zip(&mut seen) {
            if seen.len() < *most && seen.insert(period(at)) {
                judged.keep(name);
            }
        }
        let since = latest.get_or_insert(line.at(at)).saturating_sub(line.at(at));
        if policy.within_seconds > 0 && since <= policy.within_seconds {
            judged.keep("within");
        }
        if judged.candidate.tags.iter().any(|tag| policy.tags.contains(tag)) {
            judged.keep("tag");
        }
    }
}

#[cfg(test)]
mod tests;
