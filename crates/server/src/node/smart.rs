//! Drives' reports on themselves (SMART), read with `smartctl` once an hour if it is installed.
//!
//! Failure model: reports are optional and block nothing. A missing program, a drive without SMART,
//! and an unreadable report are no errors; the state is then unknown, and the log says once why a
//! device gave none. One program runs at a time and is killed after [`PATIENCE`]. A program that
//! cannot be killed, because its drive hangs, is left behind to a thread that waits for it. A drive
//! that fails answers late or not at all: its last report counts for [`KEPT`]. A report belongs to
//! a drive, not to its place: another drive there is asked within a minute.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Node;
use super::surroundings::program;

const EVERY: Duration = Duration::from_secs(3600);
/// How often the server checks whether drives came.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// How long a report counts without a new one.
const KEPT: Duration = Duration::from_secs(86_400);
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

/// A drive's identity in the pool, and its path: drives that are no members have none of their own.
type Key = (String, PathBuf);

#[derive(Default)]
struct Known {
    /// Each with the time of its report.
    drives: BTreeMap<Key, (SmartView, Instant)>,
    /// Whether the program could be started.
    installed: Option<bool>,
    /// Why a device gave no report; the log has said it.
    refusal: Option<String>,
}

/// The reports of one hour.
#[derive(Default)]
struct Asked {
    drives: BTreeMap<Key, SmartView>,
    installed: bool,
    /// Why the first device without a report gave none, as the program says it.
    refusal: Option<String>,
}

#[derive(Default)]
pub struct Smart(Mutex<Known>);

impl Smart {
    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn of(&self, identity: &str, path: &str) -> Option<SmartView> {
        let key = (identity.to_owned(), PathBuf::from(path));
        self.lock().drives.get(&key).map(|(view, _)| view.clone())
    }

    /// Keeps the reports. Returns what the log is to say, which is said once.
    fn note(&self, asked: Asked, now: Instant) -> Option<String> {
        let mut known = self.lock();
        let Asked { drives, installed, refusal } = asked;
        let told = match &refusal {
            _ if !installed && known.installed.is_none() => {
                Some(format!("{PROGRAM} is not installed: what drives say of themselves (SMART) is not known"))
            }
            Some(why) if known.refusal.as_ref() != Some(why) => Some(format!(
                "{PROGRAM} gets no report (SMART) of {why}. A server that is not root needs a drop-in for that: \
                 OPERATIONS.md, SMART"
            )),
            _ => None,
        };
        let refusal = refusal.or(known.refusal.take());
        let mut kept = std::mem::take(&mut known.drives);
        kept.retain(|_, (_, at)| now.saturating_duration_since(*at) < KEPT);
        kept.extend(drives.into_iter().map(|(key, view)| (key, (view, now))));
        *known = Known { drives: kept, installed: Some(installed), refusal };
        told
    }
}

/// Runs until the task is dropped.
pub async fn keep_asking(node: Arc<Node>) {
    let mut last: Option<(Instant, Vec<Key>)> = None;
    loop {
        // A pool that gives no status now says nothing of its drives.
        if let Ok(status) = crate::api::pool::status(&node).await {
            let keys: Vec<Key> =
                status.drives.into_iter().map(|drive| (drive.identity, PathBuf::from(drive.path))).collect();
            let is_due = last.as_ref().is_none_or(|(at, before)| at.elapsed() >= EVERY || *before != keys);
            if is_due {
                last = Some((Instant::now(), keys.clone()));
                if let Ok(asked) = tokio::task::spawn_blocking(move || ask_all(&keys)).await
                    && let Some(told) = node.smart.note(asked, Instant::now())
                {
                    tracing::info!("{told}");
                }
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn ask_all(keys: &[Key]) -> Asked {
    let mut asked = Asked { installed: true, ..Asked::default() };
    for key in keys.iter().filter(|(_, path)| !path.as_os_str().is_empty()) {
        let path = &key.1;
        match ask(path) {
            Ok(Answer::Report(view)) => drop(asked.drives.insert(key.clone(), view)),
            Ok(Answer::Refusal(why)) if is_device(path) => {
                asked.refusal.get_or_insert(format!("{}: {why}", path.display()));
            }
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Asked { installed: false, ..asked },
            Err(error) => tracing::debug!("{PROGRAM} {}: {error}", path.display()),
        }
    }
    asked
}

fn is_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|about| about.file_type().is_block_device())
}

fn ask(path: &Path) -> std::io::Result<Answer> {
    let mut child = program(PROGRAM)
        .args(["--json", "--info", "--health", "--attributes", "--"])
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let output = child.stdout.take();
    let reader = std::thread::Builder::new().name("stele-smart".into()).spawn(move || {
        let mut text = Vec::new();
        let read = output.map(|output| output.take(ANSWER_MAX).read_to_end(&mut text));
        read.and_then(Result::ok).map(|_| text)
    });
    let reader = reader.inspect_err(|_| {
        // Without a reader it may wait for one for ever.
        let _ = child.kill().and_then(|()| child.wait());
    })?;
    let begun = Instant::now();
    while child.try_wait()?.is_none() {
        if begun.elapsed() > PATIENCE {
            let _ = child.kill();
            // Otherwise it would stay as a zombie.
            let _ = std::thread::Builder::new().name("stele-smart".into()).spawn(move || child.wait());
            return Ok(Answer::Nothing);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let text = reader.join().ok().flatten().unwrap_or_default();
    Ok(understand(&text))
}

/// What the program said of one drive.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Answer {
    Report(SmartView),
    /// Why there is no report.
    Refusal(String),
    Nothing,
}

/// Parses the JSON of smartctl 7 for ATA, SCSI and NVMe. Its exit code is of little use: it is not
/// 0 for old drives.
fn understand(text: &[u8]) -> Answer {
    let Ok(value) = serde_json::from_slice::<Value>(text) else { return Answer::Nothing };
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
    if view != SmartView::default() {
        return Answer::Report(view);
    }
    let messages = value.pointer("/smartctl/messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let why: Vec<&str> = messages.iter().filter_map(|message| message["string"].as_str()).collect();
    if why.is_empty() { Answer::Nothing } else { Answer::Refusal(why.join("; ")) }
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
        assert_eq!(understand(ata), Answer::Report(view));
        let nvme = br#"{"smart_status":{"passed":true},"nvme_smart_health_information_log":{"percentage_used":7}}"#;
        let view = SmartView { passed: Some(true), worn: Some(7), ..SmartView::default() };
        assert_eq!(understand(nvme), Answer::Report(view));
        let denied = br#"{"smartctl":{"messages":[{"string":"Open failed: Permission denied","severity":"error"}],
            "exit_status":2}}"#;
        assert_eq!(understand(denied), Answer::Refusal("Open failed: Permission denied".into()));
        for nothing in [&b"{\"smartctl\":{\"exit_status\":1}}"[..], b"", b"no JSON", b"[]"] {
            assert_eq!(understand(nothing), Answer::Nothing);
        }
    }

    #[test]
    fn a_report_belongs_to_a_drive_and_counts_for_a_day_without_another() {
        let (smart, now) = (Smart::default(), Instant::now());
        let failing = SmartView { passed: Some(false), ..SmartView::default() };
        let key = ("old".to_owned(), PathBuf::from("/dev/bay-4"));
        let drives = BTreeMap::from([(key, failing.clone())]);
        smart.note(Asked { drives, installed: true, ..Asked::default() }, now);
        // It answers no more, or too late.
        let nothing = || Asked { installed: true, ..Asked::default() };
        smart.note(nothing(), now + EVERY);
        assert_eq!(smart.of("old", "/dev/bay-4"), Some(failing));
        assert_eq!(smart.of("new", "/dev/bay-4"), None, "another drive has its place");
        smart.note(nothing(), now + KEPT);
        assert_eq!(smart.of("old", "/dev/bay-4"), None);
    }

    #[test]
    fn a_device_that_may_not_be_asked_is_told_once() {
        let smart = Smart::default();
        let refused =
            |why: Option<&str>| Asked { installed: true, refusal: why.map(str::to_owned), ..Asked::default() };
        let told = [None, Some("denied"), Some("denied"), None, Some("hangs")]
            .map(|why| smart.note(refused(why), Instant::now()));
        assert_eq!(told.map(|told| told.is_some()), [false, true, false, false, true]);
        let told = Smart::default().note(refused(Some("/dev/sda: denied")), Instant::now()).unwrap();
        assert!(told.contains("/dev/sda: denied") && told.contains("OPERATIONS.md"), "{told}");
        let told = Smart::default().note(Asked::default(), Instant::now()).unwrap();
        assert!(told.contains("smartctl is not installed"), "{told}");
    }
}
