//! Progress on a terminal, or as lines: files, bytes, rate and the time left. Signals end the work
//! early.

use std::future::pending;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stele_backup::{BackupError, backup, prune, restore, verify};
use stele_ground::Bytes;
use stele_server::failure::Failure;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::tell::{redraw, tell};
use super::waiting;
use crate::cli::backup::Telling;

/// Between two pictures on a terminal, and between two lines elsewhere.
const DRAWN_EVERY: Duration = Duration::from_millis(500);
const TOLD_EVERY: Duration = Duration::from_secs(1);
/// An earlier one is the first: a service manager signals a scheduler and its backups, and the
/// scheduler does so too.
const SECOND_SIGNAL_AFTER: Duration = Duration::from_secs(1);

/// Files or segments and bytes that are done, and those that are expected. Zero: unknown.
pub struct WorkDone {
    /// What is counted: `files` or `segments`.
    pub unit: &'static str,
    pub count: u64,
    pub bytes: u64,
    pub bytes_expected: u64,
}

pub trait Shows {
    fn so_far(&self) -> WorkDone;
}

impl Shows for backup::BackupProgress {
    fn so_far(&self) -> WorkDone {
        WorkDone {
            unit: "files",
            count: self.files.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            bytes_expected: self.bytes_expected.load(Relaxed),
        }
    }
}

impl Shows for restore::RestoreProgress {
    fn so_far(&self) -> WorkDone {
        WorkDone {
            unit: "files",
            count: self.files.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            bytes_expected: self.bytes_expected.load(Relaxed),
        }
    }
}

impl Shows for verify::VerifyProgress {
    fn so_far(&self) -> WorkDone {
        WorkDone {
            unit: "segments",
            count: self.segments.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            bytes_expected: self.bytes_expected.load(Relaxed),
        }
    }
}

impl Shows for prune::PruneProgress {
    fn so_far(&self) -> WorkDone {
        WorkDone {
            unit: "segments",
            count: self.segments.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            bytes_expected: self.bytes_expected.load(Relaxed),
        }
    }
}

/// Bytes a second, and the seconds left if they are known.
fn pace(done: &WorkDone, elapsed: Duration) -> (u64, Option<u64>) {
    let rate = (done.bytes as f64 / elapsed.as_secs_f64().max(0.001)) as u64;
    let left = done.bytes_expected.checked_sub(done.bytes).filter(|left| *left > 0);
    (rate, left.and_then(|left| left.checked_div(rate)))
}

/// The words of one moment.
pub fn line(done: &WorkDone, elapsed: Duration) -> String {
    let (rate, left) = pace(done, elapsed);
    let unit = if done.count == 1 { done.unit.trim_end_matches('s') } else { done.unit };
    let mut text = format!("{} {unit}, {}, {}/s", done.count, Bytes(done.bytes), Bytes(rate));
    if let Some(seconds) = left {
        let percent = u128::from(done.bytes) * 100 / u128::from(done.bytes_expected);
        text += &format!(", about {percent} %, {}:{:02} left", seconds / 60, seconds % 60);
    }
    text
}

/// The same for scripts.
fn object(done: &WorkDone, elapsed: Duration, late: Option<String>) -> Value {
    let (rate, left) = pace(done, elapsed);
    let expected = (done.bytes_expected > 0).then_some(done.bytes_expected);
    json!({ "progress": {
        "unit": done.unit, "count": done.count, "bytes": done.bytes, "expected_bytes": expected,
        "bytes_per_second": rate, "left_seconds": left, "waiting": late,
    } })
}

/// How the progress is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Silent,
    Terminal,
    Lines,
    Objects,
}

/// Watches one piece of work.
pub struct Watch {
    /// Whether the outcome is for scripts.
    pub json: bool,
    form: Form,
}

impl Watch {
    pub fn begin(json: bool, telling: Telling) -> Watch {
        let form = match (json, telling.progress) {
            (true, true) => Form::Objects,
            (true, false) => Form::Silent,
            (false, _) if std::io::stderr().is_terminal() => Form::Terminal,
            (false, true) => Form::Lines,
            (false, false) => Form::Silent,
        };
        Watch { json, form }
    }

    fn tell(&self, done: &WorkDone, elapsed: Duration) {
        let late = waiting::late();
        let wait = late.as_ref().map_or(String::new(), |late| format!("; {late}"));
        match self.form {
            Form::Silent => {}
            Form::Terminal => redraw(&format!("{}{wait}", line(done, elapsed))),
            Form::Lines => tell(format_args!("{}{wait}", line(done, elapsed))),
            Form::Objects => tell(format_args!("{}", object(done, elapsed, late))),
        }
    }

    /// Does the work, while another thread draws and hears signals.
    pub fn during<T>(
        &self,
        done: impl Fn() -> WorkDone + Send,
        stop: impl Fn() + Send + 'static,
        work: impl FnOnce() -> Result<T, BackupError>,
    ) -> Result<T, Failure> {
        // The runtime hears the signal; the work looks at the flag between two files.
        let heard = tokio::runtime::Handle::current().spawn(Signals::listen().hear(move || {
            stop();
            tell(format_args!("\nstele: stopping; what is stored stays. A second signal ends the command at once."));
        }));
        let _told = (self.form != Form::Silent).then(waiting::ToldByProgress::begin);
        let (finished, ends) = channel::<()>();
        let outcome = std::thread::scope(|scope| {
            scope.spawn(move || {
                let begun = Instant::now();
                let every = if self.form == Form::Terminal { DRAWN_EVERY } else { TOLD_EVERY };
                while self.form != Form::Silent && ends.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                    self.tell(&done(), begun.elapsed());
                }
                match self.form {
                    Form::Silent => {}
                    Form::Terminal => redraw(""),
                    // Work of less than a second has a line too.
                    Form::Lines | Form::Objects => self.tell(&done(), begun.elapsed()),
                }
            });
            let outcome = work();
            drop(finished);
            outcome
        });
        heard.abort();
        Ok(outcome?)
    }
}

/// A flag that Ctrl-C, SIGTERM and the end of the terminal set. A second signal ends the command at
/// once.
pub fn heard() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    tokio::runtime::Handle::current().spawn(Signals::listen().hear(move || set.store(true, Relaxed)));
    flag
}

/// What ends a command early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndingSignal {
    /// Ctrl-C or SIGTERM.
    Asked,
    /// SIGHUP: the terminal or the connection to it is gone.
    HungUp,
}

/// The signals that end a command, from the moment on when they are listened to. One that cannot be
/// heard ends the process, as the system has it.
pub struct Signals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
}

impl Signals {
    pub fn listen() -> Signals {
        Signals {
            interrupt: signal(SignalKind::interrupt()).ok(),
            terminate: signal(SignalKind::terminate()).ok(),
            hangup: hangup(),
        }
    }

    /// Calls `stop` at the first one. A second one ends the process, but no second SIGHUP: both the
    /// kernel and the shell may tell of one end of a terminal.
    async fn hear(mut self, stop: impl FnOnce()) {
        self.next().await;
        stop();
        let first = Instant::now();
        loop {
            if self.next().await == EndingSignal::Asked && first.elapsed() >= SECOND_SIGNAL_AFTER {
                std::process::exit(130);
            }
        }
    }

    /// Returns at the next one.
    pub async fn next(&mut self) -> EndingSignal {
        tokio::select! {
            () = come(&mut self.interrupt) => EndingSignal::Asked,
            () = come(&mut self.terminate) => EndingSignal::Asked,
            () = come(&mut self.hangup) => EndingSignal::HungUp,
        }
    }
}

/// SIGHUP, unless this process is to ignore it.
pub fn hangup() -> Option<Signal> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if ignores_hangup(&status) { None } else { signal(SignalKind::hangup()).ok() }
}

/// Returns when the signal comes, and never if it cannot be heard.
pub async fn come(signal: &mut Option<Signal>) {
    let Some(signal) = signal else { return pending().await };
    if signal.recv().await.is_none() {
        pending::<()>().await;
    }
}

/// Whether the process is to outlive its terminal: its parent lets it ignore SIGHUP, as `nohup`
/// does. A process whose state cannot be read is left as it is.
fn ignores_hangup(status: &str) -> bool {
    const HANGUP: u64 = 1;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_none_or(|mask| mask & HANGUP != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_told_with_rate_and_time_left() {
        let check = |bytes, bytes_expected, expected: &str| {
            let done = WorkDone { unit: "files", count: 3, bytes, bytes_expected };
            assert_eq!(line(&done, Duration::from_secs(2)), expected);
        };
        check(0, 0, "3 files, 0 B, 0 B/s");
        check(2 << 20, 0, "3 files, 2 MiB, 1 MiB/s");
        check(2 << 20, 128 << 20, "3 files, 2 MiB, 1 MiB/s, about 1 %, 2:06 left");
        check(2 << 20, 1 << 20, "3 files, 2 MiB, 1 MiB/s");
        check(0, 1 << 20, "3 files, 0 B, 0 B/s");
        let one = WorkDone { unit: "segments", count: 1, bytes: 0, bytes_expected: 0 };
        assert_eq!(line(&one, Duration::from_secs(2)), "1 segment, 0 B, 0 B/s");
    }

    #[test]
    fn a_process_that_ignores_a_hangup_goes_on_doing_so() {
        let of = |mask: &str| ignores_hangup(&format!("Name:\tstele\nSigBlk:\tffff\nSigIgn:\t{mask}\nSigCgt:\tff\n"));
        assert!(!of("0000000000001000"), "the standard library ignores SIGPIPE");
        assert!(of("0000000000001001"));
        assert!(ignores_hangup(""));
    }

    #[test]
    fn a_moment_for_scripts_has_null_for_what_is_unknown() {
        let check = |bytes, bytes_expected, left: Value| {
            let done = WorkDone { unit: "segments", count: 3, bytes, bytes_expected };
            let is = &object(&done, Duration::from_secs(2), None)["progress"];
            assert_eq!((&is["unit"], &is["count"], &is["left_seconds"]), (&json!("segments"), &json!(3), &left));
            assert_eq!(is["expected_bytes"].is_null(), bytes_expected == 0);
        };
        check(2 << 20, 0, Value::Null);
        check(2 << 20, 4 << 20, json!(2));
        check(0, 4 << 20, Value::Null);
    }
}
