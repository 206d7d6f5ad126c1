//! Schedules in files: `stele backup schedule` runs them, and `stele backup report` says what was
//! missed, late, failed or incomplete.
//!
//! A schedule divides time into slots of equal length, by the store's clock alone. A slot has its
//! backup if a snapshot of the schedule began in it. The report reads this from the repository, so
//! an agent that says nothing is found out. What failed leaves no snapshot: the attempts of this
//! machine are in a file beside the schedules, for the report and so that no schedule is repeated
//! without end. An attempt is noted when it begins and when it ends.
//!
//! Some schedules run beside one another, and each has a limit of time, so one that hangs does not
//! hold up the others. One scheduler runs those of a file: it holds a lock beside it.

mod runs;
mod scheduler;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use stele_backup::BackupError;
use stele_backup::repository::{Dated, Repository};
use stele_backup::snapshot::{Description, NANOS, SnapshotId};
use stele_ground::calendar::moment;
use stele_ground::{Shown, are, counted};
use stele_server::failure::{Failure, Kind, Outcome, io_failure};

use super::open;
use super::policy::{parsed, text};
use crate::cli::backup::{BackupRun, Report};
use crate::commands::print_json;
use crate::output::{Align, Table};
pub use scheduler::run;

const DAY: u64 = 86_400;
/// 5 January 1970, a Monday: slots of a week begin on that day.
const MONDAY: u64 = 4 * DAY;
/// Attempts in one slot.
const ATTEMPTS_MAX: u32 = 3;
/// The part of a slot between two attempts. So an hour without the store does not use all of them
/// up.
const ATTEMPTS_APART: u64 = 8;
/// Seconds that a backup may take at least, unless its schedule says otherwise. A first one takes
/// long, and a volume that was interrupted begins anew.
const LONGEST_MIN: u64 = 2 * DAY;
/// Slots that a report counts at most, and schedules of a file.
const SLOTS_MAX: u64 = 1000;
const SCHEDULES_MAX: usize = 1000;
/// A backup takes no longer. A longer one is a wrong clock.
const BACKUP_MAX: u64 = 14 * DAY;
/// Seconds of the shortest slot.
const SLOT_MIN: u64 = 3600;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    schedule: Vec<Row>,
}

/// One schedule.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    /// The length of a slot: `1h` to `23h`, `1d` to `99d`, or `1w` to `52w`.
    every: String,
    /// When slots begin: HH:MM, in UTC.
    #[serde(default)]
    at: String,
    /// A backup that begins later in its slot is late: `2h`. Missing: a quarter of the slot.
    late_after: Option<String>,
    /// A backup that takes longer is ended: `6h`. Missing: a slot, and at least two days.
    longest: Option<String>,
    /// Days without a snapshot after which the client counts as silent; missing: three slots.
    silent_days: Option<u64>,
    /// Host of the snapshots; missing: this machine, which then runs the schedule.
    host: Option<String>,
    #[serde(default)]
    paths: Vec<PathBuf>,
    volume: Option<String>,
    /// Further arguments of `stele backup run`.
    #[serde(default)]
    options: Vec<String>,
}

/// A schedule that was checked.
#[derive(Clone)]
struct Planned {
    row: Row,
    every: u64,
    offset: u64,
    late_after: u64,
    silent_seconds: u64,
    longest: Duration,
    /// The series of its snapshots.
    host: String,
    series: Vec<Vec<u8>>,
    /// Whether it is for this machine.
    own: bool,
}

/// Seconds of `30m`, `6h`, `1d` or `2w`.
fn span(text: &str) -> Option<u64> {
    let at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(at);
    let seconds = match unit {
        "m" => 60,
        "h" => 3600,
        "d" => DAY,
        "w" => 7 * DAY,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(seconds).filter(|seconds| (1..=365 * DAY).contains(seconds))
}

/// Seconds since midnight of HH:MM.
fn clock(text: &str) -> Option<u64> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |text: &str, below: u64| {
        let digits = text.len() == 2 && text.chars().all(|c| c.is_ascii_digit());
        text.parse::<u64>().ok().filter(|number| digits && *number < below)
    };
    Some(number(hours, 24)? * 3600 + number(minutes, 60)? * 60)
}

impl Planned {
    fn new(row: Row) -> Outcome<Planned> {
        let wrong = |what: &str| Failure::usage(format!("schedule '{}': {what}", row.name));
        let every = span(&row.every).filter(|every| *every >= SLOT_MIN);
        let every = every.ok_or_else(|| wrong("`every` is a span of at least an hour, such as 6h, 1d or 1w"))?;
        let offset = if row.at.is_empty() { Some(0) } else { clock(&row.at) };
        let offset = offset.ok_or_else(|| wrong("`at` is a time of day in UTC, such as 03:00"))?;
        let late_after = row.late_after.as_deref().map_or(Some(every / 4), span);
        let late_after = late_after.filter(|late| *late < every);
        let late_after = late_after.ok_or_else(|| wrong("`late_after` is a span below `every`, such as 2h"))?;
        let longest = row.longest.as_deref().map_or(Some(every.max(LONGEST_MIN)), span);
        let longest = longest.ok_or_else(|| wrong("`longest` is a span, such as 6h"))?;
        let silent_seconds = row.silent_days.map_or(3 * every, |days| days.saturating_mul(DAY));
        let series = match (&row.volume, row.paths.is_empty()) {
            (Some(volume), true) => vec![stele_backup::backup::volume::path(volume)?],
            (None, false) => series(&row.paths).ok_or_else(|| wrong("every path begins with a slash"))?,
            _ => return Err(wrong("it needs either `paths` or `volume`")),
        };
        let this = super::run::host();
        let host = row.host.clone().unwrap_or_else(|| this.clone());
        let (own, longest) = (host == this, Duration::from_secs(longest));
        let mut planned = Planned { every, offset, late_after, silent_seconds, longest, own, host, series, row };
        if planned.own
            && planned.row.volume.is_none()
            && let Ok(resolved) = stele_backup::backup::tree_paths(&planned.row.paths)
        {
            // As the snapshots of this machine have them. A path that is not there now is taken as
            // it is written.
            planned.series = resolved;
        }
        if planned.own {
            // Another machine may have another version, with other options.
            planned.check_options()?;
        }
        Ok(planned)
    }

    /// What stands behind the repository on the command line of `stele backup run`.
    fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = self.row.options.iter().map(OsString::from).collect();
        arguments.extend(["--host", &self.host].map(OsString::from));
        match &self.row.volume {
            Some(volume) => arguments.extend(["--volume", volume].map(OsString::from)),
            None => {
                arguments.push(OsString::from("--"));
                arguments.extend(self.row.paths.iter().map(OsString::from));
            }
        }
        arguments
    }

    /// Refuses options that every backup would fail by, or that would save something else.
    fn check_options(&self) -> Outcome<()> {
        let wrong = |what: &str| Failure::usage(format!("schedule '{}': `options`: {what}", self.row.name));
        let place = ["--repository", "."].map(OsString::from);
        let read = BackupRun::read(place.into_iter().chain(self.arguments())).map_err(|error| {
            let text = error.render().to_string();
            wrong(text.lines().next().unwrap_or_default().trim_start_matches("error: "))
        })?;
        if read.paths != self.row.paths {
            return Err(wrong("they name a further path; it belongs into `paths`"));
        }
        super::run::check(&read).map_err(|failure| wrong(&failure.error))
    }

    /// The beginning of the slot that a moment belongs to.
    fn slot(&self, at: u64) -> u64 {
        let from = (MONDAY + self.offset) % self.every;
        at.saturating_sub(from) / self.every * self.every + from
    }
}

/// The paths as a snapshot has them: without a slash before them, sorted, none within another one.
fn series(paths: &[PathBuf]) -> Option<Vec<Vec<u8>>> {
    use std::os::unix::ffi::OsStrExt;
    let mut found = Vec::new();
    for path in paths {
        let bytes = path.as_os_str().as_bytes().strip_prefix(b"/")?;
        found.push(bytes.strip_suffix(b"/").unwrap_or(bytes).to_vec());
    }
    found.sort_by(|a, b| stele_backup::tree::order(a, b));
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for path in found {
        if !kept.last().is_some_and(|last| stele_backup::snapshot::is_within(&path, last)) {
            kept.push(path);
        }
    }
    Some(kept)
}

fn read(path: &Path) -> Outcome<Vec<Planned>> {
    let file: File = parsed(path, &text(path)?)?;
    let planned = file.schedule.into_iter().map(Planned::new).collect::<Outcome<Vec<Planned>>>()?;
    let mut names: Vec<&str> = planned.iter().map(|planned| planned.row.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if planned.is_empty() || planned.len() > SCHEDULES_MAX || names.len() != planned.len() {
        return Err(Failure::usage(format!(
            "{}: it needs 1 to {SCHEDULES_MAX} schedules with names of their own",
            path.display()
        )));
    }
    Ok(planned)
}

/// The last attempt of a schedule on this machine.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
struct Attempt {
    /// The slot, and the attempts in it.
    slot: u64,
    number: u32,
    /// When it ended, by the store's clock, and its exit code. While it runs: when it began, and
    /// none.
    ended: u64,
    exit: Option<i32>,
}

impl Attempt {
    /// Whether a further attempt in the same slot may begin.
    fn is_over(&self, planned: &Planned, now: u64) -> bool {
        let apart = self.number == 0 || now >= self.ended.saturating_add(planned.every / ATTEMPTS_APART);
        self.number < ATTEMPTS_MAX && apart
    }
}

type Attempts = BTreeMap<String, Attempt>;

/// A file beside that of the schedules.
fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

fn attempts_path(file: &Path) -> PathBuf {
    beside(file, ".state")
}

fn note(file: &Path, name: &str, attempt: Attempt) -> Outcome<()> {
    let mut known = attempts(file);
    known.insert(name.to_owned(), attempt);
    let text = serde_json::to_vec(&known).map_err(|error| Failure::failed(error.to_string()))?;
    stele_server::files::replace_private(&attempts_path(file), &text)
}

/// The lock of the only scheduler of this file, until it is dropped.
fn alone(file: &Path) -> Outcome<std::fs::File> {
    let path = beside(file, ".lock");
    let failed = |error: std::io::Error| io_failure("lock", &path, &error);
    let opened = std::fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let opened = opened.map_err(failed)?;
    match opened.try_lock() {
        Ok(()) => Ok(opened),
        Err(std::fs::TryLockError::WouldBlock) => {
            Err(Failure::new(Kind::Busy, format!("another process runs the schedules of {}", file.display())))
        }
        Err(std::fs::TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// A file that cannot be read counts as empty: it only tells more of what the repository shows.
fn attempts(file: &Path) -> Attempts {
    let text = std::fs::read(attempts_path(file)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// A snapshot, as the schedules see it.
struct Seen {
    /// When its backup began, by the store's clock.
    begun: u64,
    stored: u64,
    problems: u64,
}

/// What schedules need of a snapshot's description.
struct Known {
    host: String,
    paths: Vec<Vec<u8>>,
    /// Seconds that its backup took.
    took: u64,
    finished: u64,
    problems: u64,
}

impl Known {
    fn new(is: Description) -> Known {
        // The agent's clock measures how long it took. It dates nothing.
        let took = (is.finished / NANOS).saturating_sub(is.begun).min(BACKUP_MAX);
        Known { host: is.host, paths: is.paths, took, finished: is.finished, problems: is.problems }
    }
}

/// The snapshots of a repository, each read once, since none ever changes. None: it cannot be read.
#[derive(Default)]
struct Snapshots(BTreeMap<SnapshotId, Option<Known>>);

impl Snapshots {
    /// The snapshots of each schedule, oldest first.
    fn seen(&mut self, repository: &Repository, all: &[Planned]) -> Outcome<Vec<Vec<Seen>>> {
        let mut listed = repository.closed.snapshots()?;
        let ids: BTreeSet<SnapshotId> = listed.iter().map(|dated| dated.id).collect();
        self.0.retain(|id, _| ids.contains(id));
        for Dated { id, .. } in &listed {
            if !self.0.contains_key(id) {
                let known = match repository.snapshot(id) {
                    Err(BackupError::Damaged(_) | BackupError::Newer(_) | BackupError::Missing(_)) => None,
                    snapshot => Some(Known::new(snapshot?.description)),
                };
                self.0.insert(*id, known);
            }
        }
        let known = |id: &SnapshotId| self.0.get(id).and_then(Option::as_ref);
        listed.sort_by_key(|dated| (dated.stored, known(&dated.id).map(|is| is.finished), dated.id));
        let of = |planned: &Planned| {
            let of_series = |dated: &Dated| {
                let is = known(&dated.id).filter(|is| planned.host == is.host && planned.series == is.paths)?;
                let begun = dated.stored.saturating_sub(is.took);
                Some(Seen { begun, stored: dated.stored, problems: is.problems })
            };
            listed.iter().filter_map(of_series).collect()
        };
        Ok(all.iter().map(of).collect())
    }
}

/// How a schedule stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Good,
    /// The slot has begun, and there is time left.
    Waiting,
    Late,
    Missed,
    Failed,
    Incomplete,
    Silent,
    Never,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Good => "good",
            State::Waiting => "waiting",
            State::Late => "late",
            State::Missed => "missed",
            State::Failed => "failed",
            State::Incomplete => "incomplete",
            State::Silent => "silent",
            State::Never => "never",
        }
    }

    fn is_good(self) -> bool {
        matches!(self, State::Good | State::Waiting)
    }
}

struct Standing {
    state: State,
    last: Option<u64>,
    /// Slots since the first snapshot, the present one not counted.
    slots: u64,
    missed: u64,
    late: u64,
}

fn stand(planned: &Planned, seen: &[Seen], attempt: Option<&Attempt>, now: u64) -> Standing {
    let current = planned.slot(now);
    let in_slot = |slot: u64| seen.iter().filter(move |seen| planned.slot(seen.begun) == slot);
    let is_late = |slot: u64, seen: &Seen| seen.begun > slot + planned.late_after;
    let failed = attempt.is_some_and(|attempt| attempt.slot == current && attempt.exit.is_some_and(|exit| exit != 0));
    let last = seen.last();
    let mut standing =
        Standing { state: State::Never, last: last.map(|seen| seen.stored), slots: 0, missed: 0, late: 0 };
    let Some(first) = seen.iter().map(|seen| planned.slot(seen.begun)).min() else {
        standing.state = if failed { State::Failed } else { State::Never };
        return standing;
    };
    let mut slot = first.max(current.saturating_sub(SLOTS_MAX * planned.every));
    while slot < current {
        standing.slots += 1;
        match in_slot(slot).next() {
            None => standing.missed += 1,
            Some(seen) => standing.late += u64::from(is_late(slot, seen)),
        }
        slot += planned.every;
    }
    let previous = current.saturating_sub(planned.every);
    let problems = last.is_some_and(|last| last.problems > 0);
    let silent = standing.last.is_none_or(|last| now.saturating_sub(last) > planned.silent_seconds);
    standing.state = match in_slot(current).next() {
        Some(_) if problems => State::Incomplete,
        Some(seen) if is_late(current, seen) => State::Late,
        Some(_) => State::Good,
        None if silent => State::Silent,
        None if failed => State::Failed,
        None if first < current && in_slot(previous).next().is_none() => State::Missed,
        None if now > current + planned.late_after => State::Late,
        None if problems => State::Incomplete,
        None => State::Waiting,
    };
    standing
}

pub fn report(json: bool, command: &Report) -> Outcome<()> {
    let all = read(&command.file)?;
    let repository = open(&command.place)?;
    let (now, attempts) = (repository.store.now()?, attempts(&command.file));
    let mut table = Table::new(&[
        ("SCHEDULE", Align::Whole),
        ("STATE", Align::Left),
        ("LAST", Align::Whole),
        ("SLOTS", Align::Right),
        ("MISSED", Align::Right),
        ("LATE", Align::Right),
        ("EXIT", Align::Right),
        ("HOST", Align::Left),
    ]);
    let (mut rows, mut bad) = (Vec::new(), 0);
    for (planned, seen) in all.iter().zip(Snapshots::default().seen(&repository, &all)?) {
        let attempt = attempts.get(&planned.row.name).filter(|_| planned.own);
        let is = stand(planned, &seen, attempt, now);
        bad += usize::from(!is.state.is_good());
        rows.push(json!({
            "schedule": planned.row.name, "state": is.state.word(), "host": planned.host,
            "slot": moment(planned.slot(now)), "last": is.last.map(moment), "slots": is.slots, "missed": is.missed,
            "late": is.late, "exit_code": attempt.and_then(|attempt| attempt.exit),
        }));
        table.row(vec![
            Shown(&planned.row.name).to_string(),
            is.state.word().to_owned(),
            is.last.map(moment).unwrap_or_default(),
            is.slots.to_string(),
            is.missed.to_string(),
            is.late.to_string(),
            attempt.and_then(|attempt| attempt.exit).map(|exit| exit.to_string()).unwrap_or_default(),
            Shown(&planned.host).to_string(),
        ]);
    }
    match json {
        true => print_json(&rows)?,
        false => print!("{}", table.render()),
    }
    if bad == 0 {
        return Ok(());
    }
    let all = counted(all.len() as u64, "schedule");
    Err(Failure::new(Kind::Incomplete, format!("{bad} of {all} {} not in order", are(bad as u64))))
}

#[cfg(test)]
mod tests;
