//! What `stele backup` does and shows. The work is in the crate `stele-backup`; here are the clock,
//! the entropy, the password and the words.

mod bucket;
mod check;
mod dump;
mod forget;
mod key;
mod mount;
mod password;
mod policy;
pub mod progress;
mod run;
mod schedule;
mod select;
mod show;
mod tell;
mod volume;
mod waiting;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use stele_backup::prune;
use stele_backup::repository::epochs::Epoch;
use stele_backup::repository::locks::Defaults;
use stele_backup::repository::{Closed, Indexed, Making, Repository, Surroundings};
use stele_backup::snapshot::{Issue, Snapshot};
use stele_backup::store::Store;
use stele_backup::store::directory::Directory;
use stele_ground::calendar::moment;
use stele_ground::{Bytes, Shown, counted, counted_are};
use stele_server::config::Site;
use stele_server::failure::{Failure, Kind, Outcome};

use crate::cli::backup::{Backup, KeepUntil, LatestArgs, RepositoryArgs};
use crate::commands::print_json;
pub(in crate::commands) use password::password;
use password::{password_file, password_until};
use progress::{Shows, Watch};
use tell::tell;

pub async fn run(site: &Site, json: bool, command: Backup) -> Outcome<()> {
    let site = site.clone();
    // The agent reads files and waits for drives: it has a thread of its own beside those that hear
    // signals.
    let done = tokio::task::spawn_blocking(move || on(&site, json, command));
    done.await.map_err(|error| Failure::failed(format!("the command ended early: {error}")))?
}

fn on(site: &Site, json: bool, command: Backup) -> Outcome<()> {
    match command {
        Backup::Init { place, label, keep_for } => init(json, &place, &label, keep_for),
        Backup::Run(command) => run::run(site, json, *command),
        Backup::Snapshots { place, host } => show::snapshots(json, &open(&place)?, host),
        Backup::Ls { place, snapshot, latest } => show::ls(json, &open(&place)?, &snapshot, &latest),
        Backup::Find { place, pattern, snapshot, latest } => {
            show::find(json, &open(&place)?, &pattern, snapshot.as_deref(), &latest)
        }
        Backup::Diff { place, first, second, path, latest } => {
            let repository = open(&place)?;
            let (first, second) = select::pair(&repository, &first, &second, &latest)?;
            show::diff(json, &repository, &first.snapshot, &second.snapshot, path.as_deref())
        }
        Backup::Restore(command) => match &command.to_volume {
            Some(name) => volume::restore(site, json, &command, name),
            None => run::restore(Watch::begin(json, command.telling), &open(&command.place)?, &command),
        },
        Backup::Dump { .. } if json => Err(Failure::usage("standard output is the content of the file")
            .next("leave --json out; the exit code says how it ended")),
        Backup::Dump { place, file, latest } => dump::run(&open(&place)?, &file, &latest),
        Backup::Mount { place, directory, latest } => mount::run(json, &open(&place)?, &directory, &latest),
        Backup::Verify { place, without_password: true, telling, .. } => {
            check::scrub(Watch::begin(json, telling), &place)
        }
        Backup::Verify { place, data, telling, .. } => check::verify(Watch::begin(json, telling), &open(&place)?, data),
        Backup::Lock { place, snapshot, latest, until } => lock(json, &open(&place)?, &snapshot, &latest, until),
        Backup::Forget(command) => forget::forget(json, &command),
        Backup::Prune { place, dry_run, telling } => prune(Watch::begin(json, telling), &place, dry_run),
        Backup::Policy { file, paths } => policy::show(json, &file, &paths),
        Backup::Schedule(command) => schedule::run(json, &command),
        Backup::Report(command) => schedule::report(json, &command),
        Backup::Key(command) => key::run(json, command),
    }
}

/// Seconds since the machine started. They go on while it is suspended; those of `Instant` do not,
/// and a backup that slept for a day would take its session for fresh.
const UPTIME: &str = "/proc/uptime";

/// The clock that only measures, and the system's entropy.
struct Machine {
    /// Where the kernel tells the time since its start. It is opened once: later the process may
    /// have no further file to open.
    uptime: Option<File>,
    begun: Instant,
}

impl Surroundings for Machine {
    fn entropy(&self, into: &mut [u8]) {
        // Without entropy no key is safe, and nothing may go on.
        assert!(aws_lc_rs::rand::fill(into).is_ok(), "the system gives no entropy");
    }

    fn elapsed(&self) -> u64 {
        // A clock that fails later shows the longest time: a session then counts as ended, which
        // only costs a repetition.
        self.uptime.as_ref().map_or_else(|| self.begun.elapsed().as_secs(), |file| uptime(file).unwrap_or(u64::MAX))
    }

    fn instant(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

fn uptime(file: &File) -> Option<u64> {
    let mut text = [0; 64];
    let length = file.read_at(&mut text, 0).ok()?;
    uptime_seconds(std::str::from_utf8(text.get(..length)?).ok()?)
}

/// The text has the seconds since the start with two decimals, and after a space those without
/// work.
fn uptime_seconds(text: &str) -> Option<u64> {
    text.split(['.', ' ']).next()?.parse().ok()
}

pub(in crate::commands) fn machine() -> Arc<dyn Surroundings> {
    Arc::new(Machine { uptime: File::open(UPTIME).ok().filter(|file| uptime(file).is_some()), begun: Instant::now() })
}

pub(in crate::commands) fn store(place: &RepositoryArgs) -> Outcome<Arc<dyn Store>> {
    match place.repository.to_str() {
        Some(address) if bucket::is_address(address) => Ok(Arc::new(bucket::Repository::open(address)?)),
        Some(other) if other.contains("://") => Err(Failure::usage(format!("{other} is no place of a repository"))
            .next("name a directory, or s3://HOST/BUCKET/PREFIX; see `stele backup init --help`")),
        _ if place.repository.exists() && !place.repository.is_dir() => {
            Err(Failure::usage(format!("{} is no directory", place.repository.display()))
                .next("a repository is a directory, or a bucket as s3://HOST/BUCKET/PREFIX"))
        }
        _ => Ok(Arc::new(Directory::new(&place.repository, machine()))),
    }
}

/// Where footers are cached.
fn cache() -> Option<std::path::PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(std::path::PathBuf::from);
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")))?;
    Some(cache.join("stele-backup"))
}

fn closed(place: &RepositoryArgs) -> Outcome<Closed> {
    Ok(Closed::open(store(place)?, machine())?)
}

fn open(place: &RepositoryArgs) -> Outcome<Repository> {
    open_until(place, &AtomicBool::new(false))
}

/// As [`open`], and ends as stopped when the flag is set while a command is to print the password.
fn open_until(place: &RepositoryArgs, stop: &AtomicBool) -> Outcome<Repository> {
    // A wrong place is said before a password is asked for.
    closed(place)?;
    Ok(Repository::open(store(place)?, machine(), &password_until(place, stop)?)?)
}

fn index(repository: &Repository) -> Outcome<Indexed> {
    let (indexed, loaded) = repository.index(&Epoch::default(), cache().as_deref())?;
    for (segment, text) in &loaded.unreadable {
        tell(format_args!("stele: segment {segment:?} cannot be used: {}", Shown(text)));
    }
    if let Some((_, text)) = loaded.newer.first() {
        let newer = counted_are(loaded.newer.len() as u64, "segment");
        tell(format_args!("stele: {newer} of a later version and not used; the first: {}", Shown(text)));
    }
    Ok(indexed)
}

/// The index for reading one snapshot: of several segments with a chunk, those come first that it
/// references.
fn index_for(repository: &Repository, snapshot: &Snapshot) -> Outcome<Indexed> {
    let indexed = index(repository)?;
    indexed.index().prefer(&snapshot.references);
    Ok(indexed)
}

/// Seconds since 1970 by this machine's clock. It dates nothing that is decided by.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The laboratory removes repositories whose one key has its own label.
fn check_label(label: &str) -> Outcome<()> {
    match label == stele_backup::backup::streams::LABEL {
        true => Err(Failure::usage(format!("the label '{label}' is that of the laboratory; choose another label"))),
        false => Ok(()),
    }
}

fn init(json: bool, place: &RepositoryArgs, label: &str, keep_for: Option<u64>) -> Outcome<()> {
    check_label(label)?;
    let store = store(place)?;
    let defaults = Defaults { keep_seconds: keep_for.unwrap_or(0) };
    if keep_for.is_some() && !store.has_locks()? {
        return Err(store.lockless().into());
    }
    let making = Making { defaults, ..Making::default() };
    let advice = store.advice();
    let made = Repository::make(store, machine(), &password(place)?, label, making)?;
    if let Some(advice) = advice {
        tell(format_args!("stele: {}", Shown(&advice)));
    }
    let id = stele_backup::crypt::hex(&made.header.id);
    if json {
        return print_json(&json!({ "repository": id, "place": place.repository.display().to_string() }));
    }
    println!("Repository {id} made in {}.", Shown(&place.repository.display().to_string()));
    println!("Losing the password loses every backup: write the key with `stele backup key export --to FILE`.");
    Ok(())
}

/// Locks a stored snapshot, and says until when it is locked then.
fn lock(json: bool, repository: &Repository, name: &str, latest: &LatestArgs, until: KeepUntil) -> Outcome<()> {
    let chosen = select::whole(repository, name, latest, "a snapshot is locked as a whole")?;
    let asked = run::locked_until(repository, Some(until))?;
    let asked = asked.ok_or_else(|| Failure::usage("--until needs a date or a period"))?;
    let locked = repository.lock_stored(&chosen.dated.id, asked)?;
    if json {
        return print_json(&json!({
            "snapshot": chosen.dated.id.to_string(), "host": chosen.host(), "stored": moment(chosen.dated.stored),
            "locked_until": moment(locked),
        }));
    }
    let longer = if locked > asked { ", by an earlier lock" } else { "" };
    println!("{}, is locked until {}{longer}.", chosen.line(), moment(locked));
    Ok(())
}

fn shown_path(path: &[u8]) -> String {
    format!("/{}", String::from_utf8_lossy(path))
}

fn issues_json(issues: &[Issue]) -> Vec<serde_json::Value> {
    issues.iter().map(|issue| json!({ "path": shown_path(&issue.path), "error": issue.text })).collect()
}

/// Lists problems on standard error, and gives the failure that they are.
fn incomplete(what: &str, problems: u64, issues: &[Issue]) -> Outcome<()> {
    if problems == 0 {
        return Ok(());
    }
    for issue in issues {
        tell(format_args!("stele: {}: {}", Shown(&shown_path(&issue.path)), Shown(&issue.text)));
    }
    let listed = match issues.len() as u64 {
        all if all >= problems => counted_are(problems, "problem"),
        some => format!("{some} of {} are", counted(problems, "problem")),
    };
    Err(Failure::new(Kind::Incomplete, format!("{what}; {listed} listed above")))
}

fn prune(watch: Watch, place: &RepositoryArgs, dry_run: bool) -> Outcome<()> {
    let repository = closed(place)?;
    let progress = Arc::new(prune::PruneProgress::default());
    let (shown, stop) = (Arc::clone(&progress), Arc::clone(&progress));
    let done = watch.during(
        move || shown.so_far(),
        move || stop.stop.store(true, Ordering::Relaxed),
        || prune::run_with(&repository, dry_run, &progress),
    )?;
    if watch.json {
        print_json(&json!({
            "epoch": done.epoch, "snapshots": done.snapshots, "segments": done.segments, "needed_bytes": done.bytes,
            "condemned": done.condemned, "condemned_bytes": done.condemned_bytes, "pardoned": done.pardoned,
            "removed": done.removed, "removed_bytes": done.removed_bytes, "waiting": done.waiting,
            "locked": done.locked,
            "refused": done.refused, "lost_segments": done.lost, "dry_run": dry_run,
        }))?;
        return pruned(&done);
    }
    let would = if dry_run { "would be " } else { "" };
    let segment = |number| counted(number, "segment");
    let needed = done.segments - done.condemned;
    println!("Needed by {}: {needed} of {}.", counted(done.snapshots, "snapshot"), segment(done.segments));
    println!("{} ({}) {would}condemned.", counted(done.condemned, "unneeded segment"), Bytes(done.condemned_bytes));
    println!("{} ({}) {would}removed.", segment(done.removed), Bytes(done.removed_bytes));
    if done.waiting > 0 {
        println!("{} kept until an earlier backup has ended.", counted_are(done.waiting, "segment"));
    }
    if done.locked > 0 {
        println!("{} locked until a later date.", counted_are(done.locked, "segment"));
    }
    pruned(&done)
}

/// The failure of a prune that ran to its end. A job that prunes every night has no other word that
/// space is freed no more.
fn pruned(done: &prune::Pruned) -> Outcome<()> {
    if done.lost > 0 {
        let lost = counted_are(done.lost, "needed segment");
        let text = format!("{lost} gone or unreadable, and any other may repair that: none is condemned");
        return Err(Failure::new(Kind::Damaged, text)
            .next("restore what is left, and forget the snapshots that `stele backup verify` names"));
    }
    if done.refused > 0 {
        let text = format!("the store did not let {} go", counted(done.refused, "segment"));
        return Err(Failure::new(Kind::Refused, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_beyond_those_listed_are_told_as_such() {
        let issues = [Issue { path: b"a".to_vec(), text: "it is gone".to_owned() }];
        let told = |problems| incomplete("the restore is incomplete", problems, &issues).unwrap_err().error;
        assert_eq!(told(1), "the restore is incomplete; 1 problem is listed above");
        assert_eq!(told(1360), "the restore is incomplete; 1 of 1360 problems are listed above");
    }

    #[test]
    fn the_clock_of_sessions_is_the_time_since_the_start() {
        assert_eq!(uptime_seconds("350735.47 234388.90\n"), Some(350_735));
        assert_eq!(uptime_seconds("nothing"), None);
        let told = uptime_seconds(&std::fs::read_to_string(UPTIME).unwrap()).unwrap();
        let machine = Machine { uptime: Some(File::open(UPTIME).unwrap()), begun: Instant::now() };
        // Each look at the same open file tells the time of that look.
        assert!((told..told + 60).contains(&machine.elapsed()) && machine.elapsed() >= told);
    }
}
