//! Drives' reports on themselves (SMART), read with `smartctl` once an hour if it is installed.
//!
//! Failure model: reports are optional and block nothing. A missing program, a drive without SMART, and an unreadable
//! report are no errors; the state is then unknown. One program runs at a time and is killed after [`PATIENCE`]. A
//! program that cannot be killed, because its drive hangs, is left behind and not awaited.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Node;
use super::surroundings::program;

const EVERY: Duration = Duration::from_secs(3600);
const PATIENCE: Duration = Duration::from_secs(30);
/// Larger than any drive's report.
const ANSWER_MAX: u64 = 1 << 20;
pub const PROGRAM: &str = "smartctl";

/// A drive's report; missing values are null.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SmartView {
    /// False if the drive predicts its own failure.
    pub passed: Option<bool>,
    pub celsius: Option<u64>,
    pub hours: Option<u64>,
    /// Sectors that were reallocated; below, sectors that wait for reallocation.
    pub reallocated: Option<u64>,
    pub pending: Option<u64>,
    #[serde(rename = "worn_percent")]
    pub worn: Option<u64>,
}

#[derive(Default)]
struct Known {
    drives: BTreeMap<PathBuf, SmartView>,
    /// Whether the program could be started.
    installed: Option<bool>,
}

#[derive(Default)]
pub struct Smart(Mutex<Known>);

impl Smart {
    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn of(&self, path: &str) -> Option<SmartView> {
        self.lock().drives.get(Path::new(path)).cloned()
    }
}

/// Runs until the task is dropped.
pub async fn keep_asking(node: Arc<Node>) {
    loop {
        let paths: Vec<PathBuf> = match crate::api::pool::status(&node).await {
            Ok(status) => status.drives.into_iter().map(|drive| drive.path.into()).collect(),
            Err(_) => Vec::new(),
        };
        let asked = tokio::task::spawn_blocking(move || ask_all(&paths)).await;
        if let Ok((installed, drives)) = asked {
            let mut known = node.smart.lock();
            if !installed && known.installed.is_none() {
                tracing::info!("{PROGRAM} is not installed: what drives say of themselves (SMART) is not known");
            }
            *known = Known { drives, installed: Some(installed) };
        }
        tokio::time::sleep(EVERY).await;
    }
}

fn ask_all(paths: &[PathBuf]) -> (bool, BTreeMap<PathBuf, SmartView>) {
    let mut drives = BTreeMap::new();
    for path in paths.iter().filter(|path| !path.as_os_str().is_empty()) {
        match ask(path) {
            Ok(view) => drives.extend(view.map(|view| (path.clone(), view))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return (false, drives),
            Err(error) => tracing::debug!("{PROGRAM} {}: {error}", path.display()),
        }
    }
    (true, drives)
}

fn ask(path: &Path) -> std::io::Result<Option<SmartView>> {
    let mut child = program(PROGRAM)
        .args(["--json", "--info", "--health", "--attributes", "--"])
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let output = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let read = output.map(|output| output.take(ANSWER_MAX).read_to_end(&mut text));
        read.and_then(Result::ok).map(|_| text)
    });
    let begun = Instant::now();
    while child.try_wait()?.is_none() {
        if begun.elapsed() > PATIENCE {
            let _ = child.kill();
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let text = reader.join().ok().flatten().unwrap_or_default();
    Ok(understand(&text))
}

/// Parses the JSON of smartctl 7 for ATA, SCSI and NVMe. Its exit code is of little use: it is not 0 for old drives.
fn understand(text: &[u8]) -> Option<SmartView> {
    let value: Value = serde_json::from_slice(text).ok()?;
    let number = |place: &str| value.pointer(place).and_then(Value::as_u64);
    let attribute = |id: u64| {
        let table = value.pointer("/ata_smart_attributes/table")?.as_array()?;
        table.iter().find(|row| row["id"] == id)?.pointer("/raw/value")?.as_u64()
    };
    let view = SmartView {
        passed: value.pointer("/smart_status/passed").and_then(Value::as_bool),
        celsius: number("/temperature/current"),
        hours: number("/power_on_time/hours"),
        reallocated: attribute(5).or_else(|| number("/scsi_grown_defect_list")),
        pending: attribute(197),
        worn: number("/nvme_smart_health_information_log/percentage_used"),
    };
    (view != SmartView::default()).then_some(view)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_drives_are_understood() {
        let ata = br#"{"smart_status":{"passed":false},"temperature":{"current":41},"power_on_time":{"hours":30000},
            "ata_smart_attributes":{"table":[{"id":5,"raw":{"value":12}},{"id":197,"raw":{"value":3}}]}}"#;
        let view = SmartView {
            passed: Some(false),
            celsius: Some(41),
            hours: Some(30_000),
            reallocated: Some(12),
            pending: Some(3),
            worn: None,
        };
        assert_eq!(understand(ata), Some(view));
        let nvme = br#"{"smart_status":{"passed":true},"nvme_smart_health_information_log":{"percentage_used":7}}"#;
        let view = SmartView { passed: Some(true), worn: Some(7), ..SmartView::default() };
        assert_eq!(understand(nvme), Some(view));
        for nothing in [&b"{\"smartctl\":{\"exit_status\":1}}"[..], b"", b"no JSON", b"[]"] {
            assert_eq!(understand(nothing), None);
        }
    }
}
