//! `stele backup run` and `stele backup restore`.

use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use stele_backup::BackupError;
use stele_backup::backup::{self, BackupOptions, Source};
use stele_backup::filter::Filter;
use stele_backup::repository::Repository;
use stele_backup::restore;
use stele_backup::snapshot::{Description, SnapshotId, is_within};
use stele_ground::calendar::moment;
use stele_ground::{Bytes, Shown, counted};
use stele_server::config::Site;
use stele_server::failure::{Failure, Kind, Outcome, io_failure};
use stele_server::whole::{self, TEXT_MAX};

use super::progress::{Shows, Watch, heard};
use super::tell::tell;
use super::volume::Taken;
use super::{cache, incomplete, index_for, issues_json, now, open_until, select, shown_path};
use crate::cli::backup::{BackupRun, KeepUntil, Restore};
use crate::commands::print_json;

/// How often the command of `--before` is looked at.
const HOOK_LOOK_EVERY: Duration = Duration::from_millis(20);
/// Within this time a busy process hears of a signal that its command has had.
const SIGNAL_IS_HEARD: Duration = Duration::from_secs(2);
/// Threads that read and chunk; each needs about 12 MB.
const WORKERS_MAX: usize = 8;

pub fn workers() -> usize {
    std::thread::available_parallelism().map_or(2, NonZeroUsize::get).min(WORKERS_MAX)
}

pub fn run(site: &Site, json: bool, command: BackupRun) -> Outcome<()> {
    // From here on no signal ends this process before `--after`.
    let stop = heard();
    let mut after = After { command: command.after.as_deref(), json, done: Ok(()) };
    let begun = command.before.as_ref().map_or(Ok(()), |before| before_hook(before, json, &stop));
    let done = begun.and_then(|()| save(site, json, &command, &mut after, &stop)).map_err(no_snapshot);
    let hooked = after.run(done.as_ref().map_or_else(|failure| failure.kind.exit_code(), |()| 0));
    // A failure of the backup is the one to report.
    done.and(hooked)
}

/// The command of `--after`. It runs once: behind the snapshot of a volume, and else at the end. It
/// runs if `--before` failed too, which may have frozen a part of what it should.
struct After<'a> {
    command: Option<&'a str>,
    json: bool,
    done: Outcome<()>,
}

impl After<'_> {
    fn run(&mut self, code: u8) -> Outcome<()> {
        if let Some(command) = self.command.take() {
            self.done = after_hook(command, self.json, code);
        }
        self.done.clone()
    }
}

/// Exit code 3 of a run says that the snapshot was made. A store that refuses made none: that has
/// the code of a failure.
fn no_snapshot(failure: Failure) -> Failure {
    let kind = if failure.kind == Kind::Refused { Kind::Failed } else { failure.kind };
    Failure { kind, ..failure }
}

/// A command of the operator. With `--json` it writes to standard error alone: the answer is the
/// only text on standard output.
fn shell(command: &str, json: bool) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]);
    if json {
        shell.stdout(std::io::stderr());
    }
    shell
}

/// Runs the command of `--before`. A signal ends it, and no backup begins.
fn before_hook(command: &str, json: bool, stop: &AtomicBool) -> Outcome<()> {
    let cannot = |error: std::io::Error| Failure::failed(format!("the command of --before cannot start: {error}"));
    let mut child = shell(command, json).spawn().map_err(cannot)?;
    let mut asked = false;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(cannot)? {
            break status;
        }
        if stop.load(Ordering::Relaxed) && !asked {
            asked = true;
            let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            // One that ended meanwhile needs no signal.
            let _ = process.map(|process| kill_process(process, Signal::TERM));
        }
        std::thread::sleep(HOOK_LOOK_EVERY);
    };
    // Ctrl-C, a terminal that goes and the scheduler signal the whole process group: the command
    // may end before this process hears of the signal.
    let ends = [Signal::TERM, Signal::INT, Signal::HUP].map(Signal::as_raw);
    let asked_to_end = status.signal().is_some_and(|signal| ends.contains(&signal));
    let until = Instant::now() + SIGNAL_IS_HEARD;
    while asked_to_end && !stop.load(Ordering::Relaxed) && Instant::now() < until {
        std::thread::sleep(HOOK_LOOK_EVERY);
    }
    match status.success() {
        _ if stop.load(Ordering::Relaxed) => Err(BackupError::Stopped.into()),
        true => Ok(()),
        false => Err(Failure::failed(format!("the command of --before failed: {status}"))),
    }
}

/// Runs the command of `--after`.
fn after_hook(command: &str, json: bool, code: u8) -> Outcome<()> {
    let status = shell(command, json).env("STELE_BACKUP_EXIT", code.to_string()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::failed(format!("the command of --after failed: {status}"))),
        Err(error) => Err(Failure::failed(format!("the command of --after cannot start: {error}"))),
    }
}

/// The patterns of the command line.
fn patterns(command: &BackupRun) -> Outcome<Filter> {
    let mut filter = Filter::default();
    command.exclude.iter().try_for_each(|pattern| filter.add(pattern.as_bytes(), false))?;
    command.iexclude.iter().try_for_each(|pattern| filter.add(pattern.as_bytes(), true))?;
    Ok(filter)
}

/// The same with those of files.
fn filter(command: &BackupRun) -> Outcome<Filter> {
    let mut filter = patterns(command)?;
    for path in &command.exclude_file {
        let text = whole::read(path, TEXT_MAX).map_err(|error| io_failure("read the patterns of", path, &error))?;
        filter.add_lines(&text, false)?;
    }
    Ok(filter)
}

/// Bytes that a name has at most in the file systems of Linux.
const NAME_BYTES_MAX: usize = 255;

/// Whether a file can have this name.
fn is_file_name(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    let fits = (1..=NAME_BYTES_MAX).contains(&bytes.len());
    fits && !bytes.contains(&b'/') && name != "." && name != ".."
}

fn check_name(option: &str, name: &OsStr) -> Outcome<()> {
    match is_file_name(name) {
        true => Ok(()),
        false => Err(Failure::usage(format!(
            "{option} {}: it must be the name of a file, with 1 to {NAME_BYTES_MAX} bytes and without a path",
            name.display()
        ))),
    }
}

/// Of a link the snapshot gets no content, and a person who names one may expect it.
fn tell_links(paths: &[PathBuf]) {
    for path in paths.iter().filter(|path| path.is_symlink()) {
        let next = if path.is_dir() { ": a slash behind it saves the directory" } else { "" };
        tell(format_args!("stele: {} is a symbolic link, and saved as such{next}", Shown(&path.display().to_string())));
    }
}

pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The end of the snapshot's lock, by the store's clock alone.
pub fn locked_until(repository: &Repository, asked: Option<KeepUntil>) -> Outcome<Option<u64>> {
    let seconds = match asked {
        Some(KeepUntil::Never) => return Ok(None),
        Some(KeepUntil::Period(seconds)) => seconds,
        Some(KeepUntil::Date(date)) => {
            let now = repository.store.now()?;
            if date <= now {
                let (date, now) = (moment(date), moment(now));
                return Err(Failure::usage(format!(
                    "a lock until {date} would have ended: the store's clock shows {now}"
                )));
            }
            return Ok(Some(date));
        }
        None => match repository.defaults()?.keep_seconds {
            0 => return Ok(None),
            seconds => seconds,
        },
    };
    Ok(Some(repository.store.now()?.saturating_add(seconds)))
}

/// Refuses values that no backup can have.
pub fn check(command: &BackupRun) -> Outcome<()> {
    command.stdin_name.iter().try_for_each(|name| check_name("--stdin-name", name))?;
    command.exclude_if_present.iter().try_for_each(|name| check_name("--exclude-if-present", name))?;
    patterns(command).map(drop)
}

fn save(site: &Site, json: bool, command: &BackupRun, after: &mut After<'_>, stopped: &AtomicBool) -> Outcome<()> {
    check(command)?;
    let repository = open_until(&command.place, stopped)?;
    let locked_until = locked_until(&repository, command.keep_until)?;
    tell_links(&command.paths);
    let options = BackupOptions {
        paths: command.paths.clone(),
        filter: filter(command)?,
        one_file_system: command.one_file_system,
        exclude_caches: command.exclude_caches,
        exclude_if_present: command.exclude_if_present.clone(),
        read_all: command.read_all,
        level: command.compression,
        workers: workers(),
        sessions: command.sessions,
        cache: cache(),
        host: command.host.clone().unwrap_or_else(host),
        user: std::env::var("USER").unwrap_or_default(),
        program: format!("stele {}", env!("CARGO_PKG_VERSION")),
        tags: command.tag.clone(),
        // For people: the description has texts alone.
        excludes: command.exclude.iter().map(|pattern| pattern.to_string_lossy().into_owned()).collect(),
        begun: now(),
        locked_until,
    };
    let progress = Arc::new(backup::BackupProgress::default());
    let (shown, stop) = (Arc::clone(&progress), Arc::clone(&progress));
    let mut input = std::io::stdin();
    let taken = match &command.volume {
        Some(name) => Some(Taken::snapshot(site, &repository, name)?),
        None => None,
    };
    if taken.is_some()
        && let Err(failure) = after.run(0)
    {
        // Now, not in hours: something may still be frozen.
        tell(format_args!("stele: {failure}"));
    }
    let source = match &command.stdin_name {
        Some(name) => Source::Stream { name: name.as_bytes().to_vec(), reader: &mut input },
        None => match &taken {
            Some(taken) => Source::Volume { name: taken.volume().to_owned(), reader: taken },
            None => Source::Files,
        },
    };
    let saved = Watch::begin(json, command.telling).during(
        move || shown.so_far(),
        move || stop.stop.store(true, Ordering::Relaxed),
        || match stopped.load(Ordering::Relaxed) {
            true => Err(BackupError::Stopped),
            false => backup::run(&repository, source, &options, &progress),
        },
    );
    if let (Err(_), Some(taken)) = (&saved, &taken) {
        // The base of the next backup is that of the last one that was made.
        taken.remove();
    }
    let saved = saved?;
    // A snapshot with gaps is no base: the earlier one stays that.
    let has_gaps = saved.description.problems > 0;
    let removed = match &taken {
        Some(taken) if has_gaps => {
            taken.remove();
            Vec::new()
        }
        Some(taken) => taken.keep_only()?,
        None => Vec::new(),
    };
    let is = &saved.description;
    let counts = &is.counts;
    if json {
        let volume = taken.as_ref().zip(saved.volume).map(|(taken, figures)| {
            json!({
                "name": taken.volume(), "array_snapshot": (!has_gaps).then(|| taken.name()),
                "read_bytes": figures.read, "lost_bytes": figures.lost,
                "unchanged_bytes": figures.unchanged, "hole_bytes": figures.holes, "removed_snapshots": removed,
            })
        });
        print_json(&json!({
            "snapshot": saved.id.to_string(), "volume": volume, "parent": saved.parent.map(|id| id.to_string()),
            "files": counts.files, "directories": counts.directories, "others": counts.others,
            "bytes": counts.bytes, "files_read": counts.files_read, "new_bytes": counts.bytes_new,
            "stored_bytes": counts.bytes_stored, "unreadable_segments": saved.unreadable, "problems": is.problems,
            "issues": issues_json(&is.issues),
            "locked_until": locked_until.map(moment),
        }))?;
    } else if let (Some(taken), Some(figures)) = (&taken, saved.volume) {
        println!("Snapshot {} of volume '{}', {}.", saved.id.short(), Shown(taken.volume()), Bytes(counts.bytes));
        println!(
            "{} were read; {} did not change, and {} are holes. New content takes {} in the store.",
            Bytes(figures.read),
            Bytes(figures.unchanged),
            Bytes(figures.holes),
            Bytes(counts.bytes_stored)
        );
        match has_gaps {
            true => println!("{} cannot be read. The next backup goes on from an earlier one.", Bytes(figures.lost)),
            false => println!("The array keeps '{}' for the next backup.", Shown(taken.name())),
        }
    } else {
        println!("Snapshot {} of {}, {}.", saved.id.short(), counted(counts.files, "file"), Bytes(counts.bytes));
        println!(
            "{} read; {} new content takes {} in the store.",
            counted(counts.files_read, "file"),
            Bytes(counts.bytes_new),
            Bytes(counts.bytes_stored)
        );
    }
    if !json {
        locked_until.iter().for_each(|until| println!("It is locked until {}.", moment(*until)));
    }
    tell_dates(&repository, &saved.id);
    if saved.unreadable > 0 {
        // This snapshot has all it needs; earlier ones may lack content.
        tell(format_args!(
            "stele: {} cannot be read; run `stele backup verify --data`",
            counted(saved.unreadable as u64, "segment")
        ));
    }
    incomplete(&format!("snapshot {} is incomplete", saved.id.short()), is.problems, &is.issues)
}

/// Dates of the store differ by more only if its clock was set back.
const SET_BACK_SECONDS: u64 = 86_400;

/// Says that the new snapshot is dated long before another one. Then it is not the latest, and the
/// rules that keep the last ones take it for an old one.
fn tell_dates(repository: &Repository, id: &SnapshotId) {
    // The snapshot is there. Without a list there is nothing to say.
    let all = repository.closed.snapshots().unwrap_or_default();
    let (own, last) = (all.iter().find(|dated| dated.id == *id), all.last());
    if let (Some(own), Some(last)) = (own, last)
        && last.stored > own.stored.saturating_add(SET_BACK_SECONDS)
    {
        tell(format_args!(
            "stele: the store dates this snapshot {}, and snapshot {} {}: its clock was set back, or it was ahead; \
             `latest` is another snapshot, and the rules of `stele backup forget` take this one for older",
            moment(own.stored),
            last.id.short(),
            moment(last.stored)
        ));
    }
}

/// What a restore says of files that it did not write. Those that it wrote are others.
fn there_already(files: u64) -> String {
    match files {
        0 => String::new(),
        1 => "; 1 more file was there already".to_owned(),
        _ => format!("; {} were there already", counted(files, "more file")),
    }
}

/// Says what the backup could not save of what is restored. It is no fault of the restore.
fn tell_unsaved(saved: &Description, within: &[u8]) {
    // The gaps of a volume are problems of the restore too.
    let issues = saved.issues.iter().filter(|issue| !saved.has_volume && is_within(&issue.path, within));
    for issue in issues {
        let (path, text) = (shown_path(&issue.path), &issue.text);
        tell(format_args!("stele: {}: when it was saved: {}", Shown(&path), Shown(text)));
    }
}

/// A store that is not reached any more ends a restore, and what is whole by then stays.
fn to_repeat(failure: Failure) -> Failure {
    match failure.kind {
        Kind::Busy => {
            failure.next("repeat the command when the server answers: it goes on with the files that are left")
        }
        _ => failure,
    }
}

pub fn restore(watch: Watch, repository: &Repository, command: &Restore) -> Outcome<()> {
    let Restore { snapshot: name, include, exclude, verify, .. } = command;
    let Some(to) = &command.to else { return Err(Failure::usage("--to DIRECTORY or --to-volume NAME is needed")) };
    let chosen = select::chosen(repository, name, &command.latest)?;
    let (mut included, mut excluded) = (Filter::default(), Filter::default());
    include.iter().try_for_each(|pattern| included.add(pattern.as_bytes(), false))?;
    exclude.iter().try_for_each(|pattern| excluded.add(pattern.as_bytes(), false))?;
    let options = restore::RestoreOptions {
        target: to.to_owned(),
        within: chosen.within.clone(),
        exclude: excluded,
        include: included,
        verify: *verify,
        workers: command.sessions.unwrap_or_else(workers),
    };
    let indexed = index_for(repository, &chosen.snapshot)?;
    let progress = Arc::new(restore::RestoreProgress::default());
    let (shown, stop) = (Arc::clone(&progress), Arc::clone(&progress));
    let done = watch.during(
        move || shown.so_far(),
        move || stop.stop.store(true, Ordering::Relaxed),
        || restore::run(&indexed, &chosen.snapshot.description, &options, &progress),
    );
    let done = done.map_err(to_repeat)?;
    if watch.json {
        print_json(&json!({
            "snapshot": chosen.dated.id.to_string(), "host": chosen.host(), "stored": moment(chosen.dated.stored),
            "files": done.files, "directories": done.directories, "others": done.others,
            "bytes": done.bytes, "files_kept": done.files_kept, "problems": done.problems,
            "issues": issues_json(&done.issues),
        }))?;
    } else {
        println!("{}.", chosen.line());
        println!(
            "{}, {}, restored to {}{}.",
            counted(done.files, "file"),
            Bytes(done.bytes),
            Shown(&to.display().to_string()),
            there_already(done.files_kept)
        );
    }
    tell_unsaved(&chosen.snapshot.description, &chosen.within);
    incomplete("the restore is incomplete", done.problems, &done.issues)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_snapshot_that_was_made_ends_with_exit_code_3() {
        let exit = |failure: Failure| no_snapshot(failure).kind.exit_code();
        assert_eq!(exit(BackupError::Refused("this key may not write".to_owned()).into()), 1);
        assert_eq!(exit(BackupError::Full("the quota is used up".to_owned()).into()), 6);
        assert_eq!(exit(incomplete("snapshot 1 is incomplete", 1, &[]).unwrap_err()), 3);
    }

    #[test]
    fn a_restore_without_its_server_is_to_be_repeated() {
        let told = |error: BackupError| to_repeat(error.into());
        let failure = told(BackupError::Unreachable("cannot reach the store".to_owned()));
        assert!(failure.kind.exit_code() == 7 && failure.next.contains("it goes on"), "{failure}");
        assert_eq!(told(BackupError::Failed("the disk failed".to_owned())).next, "");
    }

    #[test]
    fn files_that_were_there_are_not_among_the_restored() {
        assert_eq!(there_already(0), "");
        assert_eq!(there_already(1), "; 1 more file was there already");
        assert_eq!(there_already(4), "; 4 more files were there already");
    }

    #[test]
    fn a_signal_that_ends_the_command_first_still_interrupts() {
        let begun = std::env::temp_dir().join(format!("stele-before-{}", std::process::id()));
        let stop = AtomicBool::new(false);
        let until = Instant::now() + Duration::from_secs(60);
        let wait_until = |is_so: &dyn Fn() -> bool| {
            while !is_so() {
                assert!(Instant::now() < until);
                std::thread::yield_now();
            }
        };
        let ended = std::thread::scope(|scope| {
            let command = format!("echo $$ > {0}.new; mv {0}.new {0}; kill -TERM $$", begun.display());
            let stop = &stop;
            let hook = scope.spawn(move || before_hook(&command, false, stop));
            wait_until(&|| begun.exists());
            // The hook knows the command's end when the process is gone.
            let process = std::fs::read_to_string(&begun).unwrap();
            wait_until(&|| !std::path::Path::new("/proc").join(process.trim()).exists());
            stop.store(true, Ordering::Relaxed);
            hook.join().unwrap()
        });
        std::fs::remove_file(&begun).unwrap();
        assert_eq!(ended.unwrap_err().kind, Kind::Interrupted);
    }
}
