//! Alarms: the most recent ones for `stele pool status`, and each as one line of JSON in the server's log.
//!
//! The server also keeps them in `alarms.jsonl` in the data directory. A start reads from it since when a drive has
//! been out of use. A file that has grown is cut to its last lines. A failure to write it stops no other work.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use stele_array::reactor::ServerOptions;
use stele_array::{Alarm, Severity};

use super::surroundings::{wall_at, wall_clock};
use crate::api::pool::AlarmView;

/// Alarms kept for `stele pool status`.
const KEPT: usize = 100;
/// Size above which the file is cut.
const FILE_MAX: u64 = 1 << 20;

#[derive(Default)]
struct Inner {
    last: VecDeque<AlarmView>,
    /// Alarms raised by this server, counted by kind.
    came: BTreeMap<String, u64>,
    /// The server's file; a command only prints its alarms.
    file: Option<PathBuf>,
}

/// The most recent alarms, shared with the reactor's callback.
#[derive(Clone, Default)]
pub struct Alarms(Arc<Mutex<Inner>>);

impl Alarms {
    /// The alarms of a server, including those that an earlier server left in the file.
    pub fn of_server(dir: &Path) -> Alarms {
        let file = dir.join("alarms.jsonl");
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(KEPT).collect();
        // Skip a line that a crash cut off.
        let read = lines.into_iter().rev().filter_map(|line| serde_json::from_str(line).ok());
        let last = read.map(|alarm| AlarmView { earlier: true, ..alarm }).collect();
        Alarms(Arc::new(Mutex::new(Inner { last, file: Some(file), came: BTreeMap::new() })))
    }

    /// Takes an alarm of the array.
    fn note(&self, alarm: &Alarm) {
        self.keep(AlarmView {
            at: wall_clock(),
            severity: severity(alarm.severity).to_owned(),
            kind: kebab(&format!("{:?}", alarm.kind)),
            drive: alarm.drive,
            since: Some(wall_at(alarm.since)),
            message: alarm.message.clone(),
            next: alarm.next.clone(),
            earlier: false,
        });
    }

    pub fn keep(&self, alarm: AlarmView) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &inner.file {
            None => tracing::warn!(kind = alarm.kind, severity = alarm.severity, "{}", alarm.message),
            Some(file) => {
                let line = crate::output::json_line(&alarm).unwrap_or_default();
                eprintln!("{line}");
                if let Err(error) = append(file, &line, &inner.last) {
                    tracing::warn!("{} cannot be written: {error}", file.display());
                }
            }
        }
        *inner.came.entry(alarm.kind.clone()).or_default() += 1;
        if inner.last.len() == KEPT {
            inner.last.pop_front();
        }
        inner.last.push_back(alarm);
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

fn append(file: &Path, line: &str, last: &VecDeque<AlarmView>) -> std::io::Result<()> {
    let long = std::fs::metadata(file).is_ok_and(|data| data.len() > FILE_MAX);
    if long {
        let kept: Vec<String> = last.iter().filter_map(|alarm| serde_json::to_string(alarm).ok()).collect();
        let cut = file.with_extension("jsonl.new");
        std::fs::write(&cut, format!("{}\n", kept.join("\n")))?;
        std::fs::rename(&cut, file)?;
    }
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(format!("{line}\n").as_bytes())
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
