//! `stele backup schedule`: begins what is due, waits for what runs, and notes both.

use std::collections::VecDeque;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use stele_backup::BackupError;
use stele_backup::repository::Repository;
use stele_backup::store::Store;
use stele_ground::{Shown, are, counted};
use stele_server::failure::{Failure, Kind, Outcome, io_failure};

use super::runs::{Ended, Runs};
use super::{Attempt, Planned, Seen, Snapshots, alone, attempts, note, read};
use crate::cli::backup::Schedule;
use crate::commands::backup::progress::heard;
use crate::commands::backup::tell::tell;
use crate::commands::backup::{closed, open};

/// Between two looks at the schedules, and at the backups that run.
const LOOK_EVERY: Duration = Duration::from_secs(30);
const REAP_EVERY: Duration = Duration::from_millis(100);

/// What a scheduler keeps between its looks: the keys of the repository, and what it knows of the
/// snapshots.
#[derive(Default)]
pub struct Looks {
    repository: Option<Repository>,
    snapshots: Snapshots,
}

impl Looks {
    /// Opens the repository. Stretching the password costs memory and time, so the keys are those
    /// of the look before if the repository is the same. The store is a new one: the credentials of
    /// a bucket may have changed.
    pub fn open(&mut self, command: &Schedule) -> Outcome<Repository> {
        let closed = closed(&command.place)?;
        if let Some(known) = self.repository.as_ref().filter(|known| known.header == closed.header) {
            return Ok(Repository { closed, keys: Arc::clone(&known.keys) });
        }
        let opened = open(&command.place)?;
        *self = Looks { repository: Some(opened.clone()), snapshots: Snapshots::default() };
        Ok(opened)
    }
}

/// A schedule of this machine, with its snapshots.
type Due = (Planned, Vec<Seen>);

/// The backups of one call of the scheduler.
struct Scheduler<'a> {
    json: bool,
    command: &'a Schedule,
    /// The schedules, as the file last had them without a mistake.
    planned: Vec<Planned>,
    /// What went wrong last, which is said once until it is over or something else goes wrong.
    told: Option<String>,
    looks: Looks,
    /// The store of the last look. The credentials of a bucket may change from one look to the
    /// next.
    store: Option<Arc<dyn Store>>,
    runs: Runs,
    ran: usize,
    failed: usize,
    /// What went wrong in the scheduler itself.
    trouble: Outcome<()>,
}

/// Runs what is due, once or until a signal.
pub fn run(json: bool, command: &Schedule) -> Outcome<()> {
    let _alone = alone(&command.file)?;
    // At the beginning an operator reads the answer. Later a mistake in the file stops no schedule.
    let planned = read(&command.file)?;
    let (looks, runs, stop) = (Looks::default(), Runs::default(), heard());
    let mut scheduler =
        Scheduler { json, command, planned, told: None, looks, store: None, runs, ran: 0, failed: 0, trouble: Ok(()) };
    loop {
        let due = scheduler.look();
        let due = scheduler.noted(due).unwrap_or_default();
        if scheduler.run_until_the_next_look(due, &stop) {
            return scheduler.outcome(&stop);
        }
    }
}

impl Scheduler<'_> {
    /// What may be due: the schedules of this machine that do not run.
    fn look(&mut self) -> Outcome<VecDeque<Due>> {
        let wrong = read_again(&self.command.file, &mut self.planned);
        let repository = self.looks.open(self.command)?;
        self.store = Some(Arc::clone(&repository.store));
        let seen = self.looks.snapshots.seen(&repository, &self.planned)?;
        match wrong {
            Some(text) => self.say(text),
            None => self.told = None,
        }
        let runs = |planned: &Planned| self.runs.has(&planned.row.name);
        let all = self.planned.iter().cloned().zip(seen);
        Ok(all.filter(|(planned, _)| planned.own && !runs(planned)).collect())
    }

    /// Says a trouble that lasts, and not again at each look.
    fn say(&mut self, text: String) {
        if self.told.as_ref() != Some(&text) {
            tell(format_args!("stele: {text}"));
            self.told = Some(text);
        }
    }

    /// A failure of the scheduler ends no backup that runs. With `--once` it is the outcome.
    fn noted<T>(&mut self, done: Outcome<T>) -> Option<T> {
        match done {
            Ok(done) => Some(done),
            Err(failure) => {
                if !self.command.once {
                    self.say(failure.to_string());
                } else if self.trouble.is_ok() {
                    self.trouble = Err(failure);
                }
                None
            }
        }
    }

    /// Begins what is due as soon as there is a place, and notes what has ended. True: all is done.
    fn run_until_the_next_look(&mut self, mut due: VecDeque<Due>, stop: &AtomicBool) -> bool {
        let looked = Instant::now();
        loop {
            let stopping = stop.load(Ordering::Relaxed);
            if stopping {
                due.clear();
            }
            while self.runs.count() < self.command.at_once
                && let Some((planned, seen)) = due.pop_front()
            {
                let begun = self.begin(&planned, &seen);
                if self.noted(begun).is_none() {
                    // The store or the file of the attempts fails: the others wait for the next
                    // look.
                    due.clear();
                }
            }
            for ended in self.runs.reap(stopping) {
                let noted = self.end(&ended);
                self.noted(noted);
            }
            if due.is_empty() && self.runs.is_empty() && (stopping || self.command.once) {
                return true;
            }
            if !stopping && !self.command.once && looked.elapsed() >= LOOK_EVERY {
                return false;
            }
            std::thread::sleep(REAP_EVERY);
        }
    }

    /// Begins the backup of a schedule, unless its slot has one or the time for another attempt has
    /// not come.
    fn begin(&mut self, planned: &Planned, seen: &[Seen]) -> Outcome<()> {
        let (name, file) = (&planned.row.name, &self.command.file);
        let no_store = || Failure::failed("the repository was not opened");
        let now = self.store.as_ref().ok_or_else(no_store)?.now()?;
        let slot = planned.slot(now);
        let before = attempts(file).get(name).copied().filter(|attempt| attempt.slot == slot).unwrap_or_default();
        let is_done = seen.iter().any(|seen| planned.slot(seen.begun) == slot);
        if is_done || !before.is_over(planned, now) {
            return Ok(());
        }
        // One that never ends, or is killed with the scheduler, is an attempt too.
        let attempt = Attempt { slot, number: before.number + 1, ended: now, exit: None };
        note(file, name, attempt)?;
        self.runs.begin(name, backup_of(self.json, self.command, planned)?, attempt, planned.longest)
    }

    fn end(&mut self, ended: &Ended) -> Outcome<()> {
        self.ran += 1;
        self.failed += usize::from(ended.exit != 0);
        if ended.exit != 0 {
            tell(format_args!("stele: schedule '{}': exit code {}", Shown(&ended.name), ended.exit));
        }
        // Where the store gives no time, the attempt counts from its beginning.
        let now = self.store.as_ref().and_then(|store| store.now().ok()).unwrap_or(ended.attempt.ended);
        note(&self.command.file, &ended.name, Attempt { ended: now, exit: Some(ended.exit), ..ended.attempt })
    }

    fn outcome(self, stop: &AtomicBool) -> Outcome<()> {
        self.trouble?;
        match self.failed {
            // A scheduler that runs until a signal has done its work then.
            _ if !self.command.once => Ok(()),
            _ if stop.load(Ordering::Relaxed) => Err(BackupError::Stopped.into()),
            0 => Ok(()),
            failed => {
                let ran = counted(self.ran as u64, "backup");
                Err(Failure::new(
                    Kind::Incomplete,
                    format!("{failed} of {ran} failed or {} incomplete", are(failed as u64)),
                ))
            }
        }
    }
}

/// Reads the schedules anew. Beside a mistake in the file those of before stay, and the mistake is
/// returned.
pub fn read_again(file: &Path, planned: &mut Vec<Planned>) -> Option<String> {
    match read(file) {
        Ok(now) => {
            *planned = now;
            None
        }
        Err(failure) => Some(format!("{failure}\nstele: until that is repaired, the schedules of before go on")),
    }
}

/// The backup of a schedule, as a process of its own.
fn backup_of(json: bool, command: &Schedule, planned: &Planned) -> Outcome<Command> {
    let program = std::env::current_exe().map_err(|error| io_failure("find", Path::new("/proc/self/exe"), &error))?;
    let mut child = Command::new(program);
    child.args(["backup", "run"]).stdin(Stdio::null());
    child.arg("--repository").arg(&command.place.repository);
    if let Some(file) = &command.place.password_file {
        child.arg("--password-file").arg(file);
    }
    if let Some(text) = &command.place.password_command {
        child.arg("--password-command").arg(text);
    }
    if json {
        child.arg("--json");
    }
    child.args(planned.arguments());
    Ok(child)
}
