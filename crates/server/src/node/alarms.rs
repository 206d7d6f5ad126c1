//! Alarms: the most recent ones for `stele pool status`, and each as one line of JSON in the
//! server's log.
//!
//! The server also keeps them in `alarms.jsonl` in the data directory. A start reads from it since
//! when a drive has been out of use. A file that has grown is cut to its last lines. A thread of
//! its own writes the log and the file, so that neither a full disk nor a file system that hangs
//! stops other work. It drops what comes while [`WAITING_MAX`] alarms wait.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stele_array::server::ServerOptions;
use stele_array::{Alarm, Severity};

use super::surroundings::{wall_at, wall_clock};
use crate::api::pool::AlarmView;
use crate::api::pool::drives::given_up;

/// Alarms kept for `stele pool status`.
const KEPT: usize = 100;
/// Size above which the file is cut.
const FILE_MAX: u64 = 1 << 20;
/// Alarms that wait to be written.
const WAITING_MAX: usize = 1024;
/// Time for the last alarms to be written at the end of a server.
const PATIENCE: Duration = Duration::from_secs(2);

/// All kinds, so that each has a counter from the start: a rule then sees the first alarm of a kind
/// as a step.
pub const KINDS: &[&str] = &[
    "drive-missing",
    "drive-failed",
    "drive-suspect",
    "drive-slow",
    "drive-smart",
    "drive-path",
    "drive-needed",
    "drive-recovered",
    "drive-rejected",
    "drive-stale",
    "damage-repaired",
    "memory-damaged",
    "stripe-lost",
    "data-unreadable",
    "log-degraded",
    "log-repaired",
    "spare-exhausted",
    "moving-put-off",
    "enclosure-crowded",
    "space-low",
    "file-system-low",
    "data-directory",
    "certificate",
    "clock",
    "damage",
    "disposal",
    "export",
    "officers",
    "self-test",
    "notifications",
    "inventory",
    "refusals",
    "audit",
    "volume-names",
    "volume-incomplete",
    "pairing",
    "catalog",
    "catalog-stopped",
    "rolled-back",
    "heads",
    "rebuild",
    "read-only",
    "expiration",
    "expiration-paused",
    "space",
    "share",
    "share-archiving",
    "smb",
    "table-degraded",
    "pool-silent",
    "drive-removed",
    "growth-finished",
    "rebuild-finished",
    "scrub-finished",
];

#[derive(Default)]
struct Inner {
    last: VecDeque<AlarmView>,
    /// Alarms raised by this server, counted by kind.
    came: BTreeMap<String, u64>,
    /// Writes a server's alarms; a command only prints its own.
    writer: Option<Writer>,
}

enum Entry {
    Line(String),
    /// Answered once all lines before it are written.
    Flush(SyncSender<()>),
}

/// The thread that writes the log and the file.
struct Writer(SyncSender<Entry>);

impl Writer {
    fn start(file: PathBuf, last: VecDeque<String>) -> Option<Writer> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let writing = move || write(&receiver, &file, last);
        std::thread::Builder::new().name("stele-alarms".into()).spawn(writing).ok()?;
        Some(Writer(sender))
    }
}

impl Drop for Writer {
    /// A file system that hangs keeps no server from its end.
    fn drop(&mut self) {
        let (done, written) = sync_channel(1);
        if self.0.try_send(Entry::Flush(done)).is_ok() {
            let _ = written.recv_timeout(PATIENCE);
        }
    }
}

fn write(entries: &Receiver<Entry>, file: &Path, mut last: VecDeque<String>) {
    while let Ok(entry) = entries.recv() {
        match entry {
            Entry::Line(line) => {
                crate::log::write(format!("{line}\n").into_bytes());
                if last.len() == KEPT {
                    last.pop_front();
                }
                last.push_back(line);
                if let Err(error) = append(file, &last) {
                    tracing::warn!("{} cannot be written: {error}", file.display());
                }
            }
            Entry::Flush(done) => {
                let _ = done.try_send(());
            }
        }
    }
}

/// The most recent alarms, shared with the reactor's callback.
#[derive(Clone, Default)]
pub struct Alarms(Arc<Mutex<Inner>>);

impl Alarms {
    /// The alarms of a server, including those that an earlier server left in the file.
    pub fn of_server(dir: &Path) -> Alarms {
        let file = dir.join("alarms.jsonl");
        // A crash may have cut the last line off within a character.
        let text = String::from_utf8_lossy(&std::fs::read(&file).unwrap_or_default()).into_owned();
        let lines: Vec<&str> = text.lines().rev().take(KEPT).collect();
        // Skip a line that a crash cut off.
        let read = |line: &&str| serde_json::from_str::<AlarmView>(line).ok().map(|alarm| ((*line).to_owned(), alarm));
        let read: Vec<(String, AlarmView)> = lines.iter().rev().filter_map(read).collect();
        let (lines, last): (VecDeque<String>, VecDeque<AlarmView>) = read.into_iter().unzip();
        let writer = Writer::start(file, lines);
        if writer.is_none() {
            tracing::warn!("no thread writes alarms.jsonl; alarms are in the log only");
        }
        Alarms(Arc::new(Mutex::new(Inner { last, writer, came: BTreeMap::new() })))
    }

    /// Takes an alarm of the array.
    fn note(&self, alarm: &Alarm) {
        let given_up = given_up(&alarm.message);
        self.keep(AlarmView {
            at: wall_clock(),
            severity: severity(alarm.severity).to_owned(),
            kind: kebab(&format!("{:?}", alarm.kind)),
            drive: alarm.drive.or(given_up.as_ref().map(|(drive, _)| *drive)),
            since: Some(wall_at(alarm.since)),
            message: alarm.message.clone(),
            next: given_up.map_or_else(|| alarm.next.clone(), |(_, next)| next),
        });
    }

    /// Only pushes into lists: the array calls it on the thread that serves hosts.
    pub fn keep(&self, alarm: AlarmView) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &inner.writer {
            None => tracing::warn!(kind = alarm.kind, severity = alarm.severity, "{}", alarm.message),
            Some(writer) => {
                let line = crate::said::json_line(&alarm).unwrap_or_default();
                if writer.0.try_send(Entry::Line(line)).is_err() {
                    tracing::warn!(kind = alarm.kind, "alarms.jsonl lacks an alarm: {}", alarm.message);
                }
            }
        }
        *inner.came.entry(alarm.kind.clone()).or_default() += 1;
        if inner.last.len() == KEPT {
            inner.last.pop_front();
        }
        inner.last.push_back(alarm);
    }

    /// An alarm that is no drive's.
    pub fn warn(&self, kind: &str, message: &str, next: &str) {
        self.keep(AlarmView {
            at: wall_clock(),
            severity: "warning".to_owned(),
            kind: kind.to_owned(),
            drive: None,
            since: None,
            message: message.to_owned(),
            next: next.to_owned(),
        });
    }

    pub fn list(&self) -> Vec<AlarmView> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).last.iter().cloned().collect()
    }

    /// The number of alarms raised by this server, by kind.
    pub fn came(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).came.clone()
    }

    /// The number of all alarms and the most recent ones, read together.
    pub fn latest(&self) -> (u64, Vec<AlarmView>) {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (inner.came.values().sum(), inner.last.iter().cloned().collect())
    }

    /// Options for the reactor.
    pub fn server_options(&self) -> ServerOptions {
        let alarms = self.clone();
        ServerOptions { alarms: Some(Box::new(move |alarm| alarms.note(&alarm))), ..ServerOptions::default() }
    }
}

/// Appends the last line, after it has cut a file that has grown.
fn append(file: &Path, last: &VecDeque<String>) -> std::io::Result<()> {
    let Some(line) = last.back() else { return Ok(()) };
    let long = std::fs::metadata(file).is_ok_and(|data| data.len() > FILE_MAX);
    if long {
        let kept: String = last.iter().map(|line| format!("{line}\n")).collect();
        let cut = file.with_extension("jsonl.new");
        std::fs::write(&cut, kept)?;
        return std::fs::rename(&cut, file);
    }
    let mut file = std::fs::OpenOptions::new().create(true).read(true).append(true).open(file)?;
    let end = if is_cut_off(&mut file)? { "\n" } else { "" };
    file.write_all(format!("{end}{line}\n").as_bytes())
}

/// Whether a crash or a full disk cut the last line off.
pub fn is_cut_off(file: &mut File) -> std::io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

pub fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Notice => "notice",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}

/// A name in the spelling of alarms and metrics.
pub fn kebab(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests;
