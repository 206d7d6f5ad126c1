//! The backups of a scheduler, as processes that run beside one another.
//!
//! Each leads a process group of its own, so its hooks end with it. One that takes longer than its
//! schedule allows, or that runs when the scheduler is to end, is asked by SIGTERM. As after Ctrl-C
//! it stores no snapshot, takes its snapshot of an array back, and runs `--after`. A minute later
//! SIGKILL ends it. A process that stays even then, as behind a drive that does not answer, counts
//! as ended: it holds up no other schedule.
//!
//! Their output goes into files without names, and is shown as a whole when they have ended. So
//! lines of two backups never mix, and a backup goes on if the scheduler is killed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process_group};
use stele_ground::Shown;
use stele_server::failure::{Failure, Outcome};

use super::Attempt;
use crate::commands::backup::tell::tell;

/// From SIGTERM to SIGKILL, and from that until the process counts as ended.
const GRACE: Duration = Duration::from_secs(60);
/// The exit code of a process that a signal ended.
const BY_SIGNAL: i32 = -1;

/// What a process gets at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Wait,
    Ask,
    Kill,
    GiveUp,
}

/// `asked` and `killed` are the times since the signals.
fn step(over: bool, asked: Option<Duration>, killed: Option<Duration>) -> Step {
    match (asked, killed) {
        (_, Some(killed)) if killed >= GRACE => Step::GiveUp,
        (Some(asked), None) if asked >= GRACE => Step::Kill,
        (None, None) if over => Step::Ask,
        _ => Step::Wait,
    }
}

struct Run {
    child: Child,
    attempt: Attempt,
    output: Option<File>,
    begun: Instant,
    longest: Duration,
    asked: Option<Instant>,
    killed: Option<Instant>,
}

/// A backup that has ended.
pub struct Ended {
    pub name: String,
    pub attempt: Attempt,
    pub exit: i32,
}

/// The backups that run, by the names of their schedules.
#[derive(Default)]
pub struct Runs(BTreeMap<String, Run>);

impl Runs {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Those that count for how many may run at once: not the ones that SIGKILL did not end.
    pub fn count(&self) -> usize {
        self.0.values().filter(|run| run.killed.is_none()).count()
    }

    pub fn begin(&mut self, name: &str, mut command: Command, attempt: Attempt, longest: Duration) -> Outcome<()> {
        let cannot = |error: std::io::Error| Failure::failed(format!("the backup cannot start: {error}"));
        let output = unnamed();
        if let Some(file) = &output {
            command.stdout(file.try_clone().map_err(cannot)?);
        }
        let child = command.process_group(0).spawn().map_err(cannot)?;
        let run = Run { child, attempt, output, begun: Instant::now(), longest, asked: None, killed: None };
        self.0.insert(name.to_owned(), run);
        Ok(())
    }

    /// Takes those that have ended, and signals those that should: if they run for too long, or all
    /// of them.
    pub fn reap(&mut self, stop: bool) -> Vec<Ended> {
        let mut ended = Vec::new();
        self.0.retain(|name, run| {
            let Some(exit) = run.look(name, stop) else { return true };
            run.show();
            ended.push(Ended { name: name.clone(), attempt: run.attempt, exit });
            false
        });
        ended
    }
}

impl Run {
    /// The exit code, if it has ended.
    fn look(&mut self, name: &str, stop: bool) -> Option<i32> {
        match self.child.try_wait() {
            Ok(Some(status)) => return Some(status.code().unwrap_or(BY_SIGNAL)),
            Ok(None) => {}
            Err(error) => {
                tell(format_args!("stele: schedule '{}': its backup cannot be waited for: {error}", Shown(name)));
                return Some(BY_SIGNAL);
            }
        }
        let since = |moment: Option<Instant>| moment.map(|moment| moment.elapsed());
        let over = self.begun.elapsed() >= self.longest;
        match step(stop || over, since(self.asked), since(self.killed)) {
            Step::Wait => {}
            Step::Ask => {
                if over {
                    let minutes = self.longest.as_secs() / 60;
                    tell(format_args!(
                        "stele: schedule '{}': its backup runs for {minutes} minutes, and is ended",
                        Shown(name)
                    ));
                }
                self.asked = Some(Instant::now());
                self.signal(Signal::TERM);
            }
            Step::Kill => {
                self.killed = Some(Instant::now());
                self.signal(Signal::KILL);
            }
            Step::GiveUp => {
                tell(format_args!("stele: schedule '{}': process {} does not end", Shown(name), self.child.id()));
                return Some(BY_SIGNAL);
            }
        }
        None
    }

    /// To the process and its hooks. The process was not waited for, so the number is still its
    /// own.
    fn signal(&self, signal: Signal) {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // One that ended meanwhile needs no signal.
        let _ = group.map(|group| kill_process_group(group, signal));
    }

    fn show(&mut self) {
        let Some(mut file) = self.output.take() else { return };
        let mut text = Vec::new();
        let read = file.rewind().and_then(|()| file.read_to_end(&mut text));
        match read {
            Ok(_) => {
                let mut out = std::io::stdout().lock();
                // Output that cannot be written ends no backup that runs.
                let _ = out.write_all(&text).and_then(|()| out.flush());
            }
            Err(error) => tell(format_args!("stele: the output of a backup cannot be read: {error}")),
        }
    }
}

/// A file without a name. None: this file system has no such files, and the output goes where that
/// of the scheduler goes.
fn unnamed() -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open(std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR).ok().map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(runs: &mut Runs, stop: bool) -> Vec<(String, i32)> {
        loop {
            let ended = runs.reap(stop);
            if !ended.is_empty() {
                return ended.into_iter().map(|ended| (ended.name, ended.exit)).collect();
            }
            std::thread::yield_now();
        }
    }

    fn shell(text: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", text]);
        command
    }

    #[test]
    fn a_process_is_asked_and_then_killed_and_then_given_up() {
        let seconds = |seconds: u64| Some(Duration::from_secs(seconds));
        assert_eq!(step(false, None, None), Step::Wait);
        assert_eq!(step(true, None, None), Step::Ask);
        assert_eq!((step(true, seconds(59), None), step(true, seconds(60), None)), (Step::Wait, Step::Kill));
        assert_eq!(step(true, seconds(119), seconds(59)), Step::Wait);
        assert_eq!(step(true, seconds(120), seconds(60)), Step::GiveUp);
    }

    #[test]
    fn one_that_hangs_ends_at_its_limit_and_holds_no_other() {
        let mut runs = Runs::default();
        let hour = Duration::from_secs(3600);
        runs.begin("hung", shell("sleep 1000; true"), Attempt::default(), hour).unwrap();
        runs.begin("good", shell("exit 3"), Attempt::default(), hour).unwrap();
        assert_eq!((runs.count(), runs.has("hung")), (2, true));
        assert_eq!(ended(&mut runs, false), [("good".to_owned(), 3)]);
        // At its limit, with what it started.
        runs.0.get_mut("hung").unwrap().longest = Duration::ZERO;
        assert_eq!(ended(&mut runs, false), [("hung".to_owned(), BY_SIGNAL)]);
        assert!(runs.is_empty());
        // And when the scheduler is to end.
        runs.begin("hung", shell("sleep 1000"), Attempt::default(), hour).unwrap();
        assert_eq!(ended(&mut runs, true), [("hung".to_owned(), BY_SIGNAL)]);
    }

    #[test]
    fn one_that_ignores_the_signal_is_killed() {
        let mut runs = Runs::default();
        let stubborn = shell("trap '' TERM; while true; do sleep 1; done");
        runs.begin("stubborn", stubborn, Attempt::default(), Duration::ZERO).unwrap();
        assert!(runs.reap(false).is_empty());
        let run = runs.0.get_mut("stubborn").unwrap();
        assert!(run.asked.is_some() && run.killed.is_none());
        run.asked = Instant::now().checked_sub(GRACE);
        assert_eq!(ended(&mut runs, false), [("stubborn".to_owned(), BY_SIGNAL)]);
    }
}
