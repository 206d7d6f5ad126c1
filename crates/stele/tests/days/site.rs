//! The operated machine: a pool on the shelf's drives, its server, and the commands of its
//! operator.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::devices::{INTERRUPTED, KEEP, PREFIX, Shelf, sweep};
use super::tally::Tally;
use crate::support::{Place, Server};

/// Largest time for a command, and for the pool to become healthy.
const PATIENCE: Duration = Duration::from_secs(900);
/// Largest time for which an alarm outlasts its cause, on a machine that is busy with other work.
const ALARM_MAX: Duration = Duration::from_secs(240);

/// Lines of the server's log shown after a failure.
const LOG_SHOWN: usize = 60;
/// Words that no answer has: a restart is never the next step.
const NEVER: [&str; 4] = ["panicked", "defect of Stele", "restart", "start the server again"];

/// The result of a command.
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    /// The last line of its output that is not an error, as JSON.
    pub fn json(&self) -> Value {
        let mut lines = self.out.lines().filter_map(|line| serde_json::from_str(line).ok());
        lines.rfind(|line: &Value| line.get("error").is_none()).unwrap_or_default()
    }
}

pub struct Site {
    // Declared before the place, which removes the directory.
    pub server: Option<Server>,
    pub shelf: Shelf,
    pub place: Place,
    keys: (String, String),
    pub tally: Tally,
    /// Drives touched today by number, and below the kinds of the pool's alarms that today's events
    /// explain.
    pub touched: BTreeSet<u64>,
    pub explained: BTreeSet<&'static str>,
    /// Paths that do not answer now.
    pub pulled: BTreeSet<String>,
    /// The alarms of today, by kind and subject.
    pub seen: BTreeSet<(String, String)>,
    /// The events of today.
    pub story: Vec<String>,
    /// Errors of each drive when the day began.
    pub errors: BTreeMap<u64, u64>,
    read_of_log: usize,
}

impl Site {
    /// A pool of 12 drives, two in each of six enclosures.
    pub fn new(parent: &Path, data: &str, files: bool) -> Site {
        sweep(parent);
        let dir = parent.join(format!("{PREFIX}{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let mut shelf = Shelf::new(&dir);
        shelf.loops &= !files;
        let mut site = Site {
            server: None,
            shelf,
            place: Place(dir),
            keys: Default::default(),
            tally: Tally::default(),
            touched: BTreeSet::new(),
            explained: BTreeSet::new(),
            pulled: BTreeSet::new(),
            seen: BTreeSet::new(),
            story: Vec::new(),
            errors: BTreeMap::new(),
            read_of_log: 0,
        };
        let drives: Vec<String> = (0..12).map(|number| format!("{}@{}", site.shelf.blank(), number / 2)).collect();
        let mut create = vec!["pool", "create", "--confirm-time", "--data", data];
        drives.iter().for_each(|drive| create.extend(["--drive", drive]));
        site.good(&create);
        site.place.edit_config(|text| text.replace("rebuild_after = 600", "rebuild_after = 4"));
        let server = site.place.serve();
        site.keys = server.keys();
        site.server = Some(server);
        site
    }

    /// The end of the server's log, for a person who looks for a failure.
    pub fn end_of_log(&self) -> String {
        let log = self.place.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_SHOWN)..].join("\n")
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("a server runs")
    }

    pub fn serve(&mut self) {
        self.server = Some(self.place.serve().with_keys(self.keys.clone()));
    }

    /// Stops the server as its service manager does.
    pub fn stop(&mut self) {
        self.server.take().expect("a server runs").stop();
        self.tally.count("server stopped");
    }

    pub fn kill(&mut self) {
        self.server.take().expect("a server runs").kill();
        self.tally.count("server killed");
    }

    pub fn tell(&mut self, what: impl Into<String>) {
        let what = what.into();
        if std::env::var_os("STELE_DAYS_TRACE").is_some() {
            println!("    {what}");
        }
        self.story.push(what);
    }

    /// Runs a command to its end.
    pub fn run(&mut self, arguments: &[&str]) -> Said {
        self.run_in(&self.place.0.clone(), arguments)
    }

    /// The same on another data directory.
    pub fn run_in(&mut self, dir: &Path, arguments: &[&str]) -> Said {
        use std::io::Read;
        self.tally.commands += 1;
        let mut command = self.place.command(arguments);
        command.arg("--json").arg("--dir").arg(dir).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let read = |from: &mut dyn Read| {
            let mut bytes = Vec::new();
            let _ = from.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let (code, out, err) = std::thread::scope(|scope| {
            // Ended before the scope waits for the readers.
            let mut child = Running(child);
            let out = scope.spawn(|| read(&mut out));
            let err = scope.spawn(|| read(&mut err));
            let begun = Instant::now();
            let status = loop {
                match child.0.try_wait().unwrap() {
                    Some(status) => break status,
                    None if begun.elapsed() > PATIENCE => {
                        panic!("stele {arguments:?} does not end within {PATIENCE:?}; today: {:?}", self.story)
                    }
                    None => pause(20),
                }
            };
            (status.code().unwrap_or(-1), out.join().unwrap(), err.join().unwrap())
        });
        let bad = NEVER.iter().find(|word| err.contains(**word) || out.contains(**word));
        assert!(bad.is_none(), "stele {arguments:?} answers {bad:?}: {err}{out}; today: {:?}", self.story);
        Said { code, out, err }
    }

    /// Runs a command that must end with one of these codes.
    #[track_caller]
    pub fn ends(&mut self, codes: &[i32], arguments: &[&str]) -> Said {
        let said = self.run(arguments);
        assert!(
            codes.contains(&said.code),
            "stele {} ended with {} and not with {codes:?}: {}{}; today: {:?}",
            arguments.join(" "),
            said.code,
            said.err,
            said.out,
            self.story
        );
        said
    }

    #[track_caller]
    pub fn good(&mut self, arguments: &[&str]) -> Value {
        self.ends(&[0], arguments).json()
    }

    #[track_caller]
    pub fn status(&mut self) -> Value {
        let status = self.good(&["pool", "status"]);
        self.consider(&status);
        status
    }

    /// Checks that today's events explain the standing alarms.
    #[track_caller]
    fn consider(&mut self, status: &Value) {
        for alarm in list(&status["standing"]) {
            let (kind, subject) = (text(&alarm["kind"]), text(&alarm["subject"]));
            if self.seen.insert((kind.to_owned(), subject.to_owned())) {
                *self.tally.alarms_seen.entry(kind.to_owned()).or_default() += 1;
            }
            if kind == "drive-slow" {
                continue;
            }
            let drive = subject.strip_prefix("drive ").and_then(|number| number.parse::<u64>().ok());
            let explained = self.explained.contains(kind)
                || match drive {
                    // A drive that joined today was not there in the morning.
                    Some(drive) => self.touched.contains(&drive) || !self.errors.contains_key(&drive),
                    None => subject == "pool" && POOL_KINDS.contains(&kind) && !self.touched.is_empty(),
                };
            assert!(explained, "a false alarm: {alarm}; today: {:?}; touched: {:?}", self.story, self.touched);
        }
    }

    /// Reads the status this many times, with pauses, and checks each.
    #[track_caller]
    pub fn watch(&mut self, times: u64) {
        for _ in 0..times {
            let status = self.status();
            consistent(&status);
            pause(150);
        }
    }

    /// Waits for a condition of the status.
    #[track_caller]
    pub fn until(&mut self, what: &str, patience: Duration, mut is_so: impl FnMut(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let status = self.status();
            if is_so(&status) {
                return status;
            }
            assert!(
                begun.elapsed() < patience,
                "not within {patience:?}: {what}; today: {:?}; {}",
                self.story,
                brief(&status)
            );
            pause(250);
        }
    }

    /// Waits until every drive answers and holds its data, and nothing moves.
    #[track_caller]
    pub fn until_whole(&mut self) -> Value {
        self.until("all to be whole", PATIENCE, is_whole)
    }

    /// Waits until no alarm stands, except for drives that are slow because the machine is.
    #[track_caller]
    pub fn until_quiet(&mut self) {
        let begun = Instant::now();
        self.until("no alarm to stand", ALARM_MAX, |status| {
            list(&status["standing"]).iter().all(|alarm| alarm["kind"] == "drive-slow")
        });
        self.tally.alarms_lasted = self.tally.alarms_lasted.max(begun.elapsed());
    }

    /// The members, with number, path, health and enclosure.
    pub fn drives(&mut self) -> Vec<DriveSaid> {
        members(&self.status())
    }

    /// Checks that the log since the last look has no forbidden line.
    pub fn read_log(&mut self) {
        let log = self.place.log();
        let new = &log[self.read_of_log.min(log.len())..];
        let word = ["panicked", "defect of Stele", "internal", "invariant"];
        let bad: Vec<&str> = new.lines().filter(|line| word.iter().any(|word| line.contains(word))).collect();
        assert!(bad.is_empty(), "the server's log says: {bad:#?}");
        self.read_of_log = log.len();
    }
}

/// A command that does not outlive the campaign.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // The place leaves its files after a panic.
        if std::env::var_os(KEEP).is_none() {
            drop(self.server.take());
            let _ = std::fs::remove_dir_all(&self.place.0);
        }
    }
}

/// Alarms of the pool that may stand while an event affects its drives.
const POOL_KINDS: &[&str] = &["log-degraded", "spare-exhausted", "enclosure-crowded", "moving-put-off"];

#[derive(Clone, Debug)]
pub struct DriveSaid {
    pub number: u64,
    pub path: String,
    pub health: String,
    pub enclosure: u64,
    /// Failed reads and writes, and units that did not verify.
    pub errors: u64,
}

/// Drives of the pool, without those that are attached and not used.
pub fn members(status: &Value) -> Vec<DriveSaid> {
    let told = list(&status["drives"]).iter().filter(|drive| drive["health"] != "rejected");
    told.map(|drive| DriveSaid {
        number: number(&drive["drive"]),
        path: text(&drive["path"]).to_owned(),
        health: text(&drive["health"]).to_owned(),
        enclosure: number(&drive["enclosure"]),
        errors: ["read_errors", "write_errors", "digest_errors"].iter().map(|kind| number(&drive[*kind])).sum(),
    })
    .collect()
}

pub fn is_whole(status: &Value) -> bool {
    let well = |drive: &Value| drive["health"] == "healthy" || drive["alarm"] == "drive-slow";
    let idle = ["rebuild", "copy_back", "moving"].iter().all(|work| status[*work].is_null());
    idle && status["unreadable_stripes"] == 0 && list(&status["drives"]).iter().all(well)
}

/// Checks that the parts of a status do not contradict each other.
#[track_caller]
pub fn consistent(status: &Value) {
    let drives = members(status);
    let numbers: BTreeSet<u64> = drives.iter().map(|drive| drive.number).collect();
    assert_eq!(numbers.len(), drives.len(), "a number twice: {}", brief(status));
    let (lost, unreadable) = (number(&status["lost_stripes"]), number(&status["unreadable_stripes"]));
    assert!(lost <= unreadable, "{lost} lost of {unreadable} that cannot be read");
    assert!(number(&status["used_bytes"]) <= number(&status["raw_bytes"]), "{}", brief(status));
    let state = text(&status["state"]);
    let unwell = drives.iter().filter(|drive| !matches!(drive.health.as_str(), "healthy" | "leaving")).count();
    let expected = match (lost, unreadable) {
        (1.., _) => "damaged",
        (_, 1..) => "unreadable",
        _ if unwell > 0 || !status["rebuild"].is_null() => "degraded",
        _ => "ok",
    };
    assert_eq!(state, expected, "{}", brief(status));
    let told = list(&status["standing"]).iter().filter(|alarm| text(&alarm["kind"]).starts_with("drive-")).count();
    assert!(told >= unwell, "{unwell} drives are unwell, and {told} alarms tell of drives: {}", brief(status));
}

/// A short form of a status.
pub fn brief(status: &Value) -> String {
    let drives: Vec<String> = list(&status["drives"])
        .iter()
        .map(|drive| format!("{}@{}:{}", drive["drive"], drive["enclosure"], text(&drive["health"])))
        .collect();
    let standing: Vec<String> = list(&status["standing"])
        .iter()
        .map(|alarm| format!("{} {}: {}", text(&alarm["kind"]), text(&alarm["subject"]), text(&alarm["message"])))
        .collect();
    let work: Vec<String> = ["rebuild", "copy_back", "moving", "scrub"]
        .iter()
        .filter(|work| !status[**work].is_null())
        .map(|work| format!("{work} {}", status[*work]))
        .collect();
    format!(
        "state {}, drives {}, unreadable {}, lost {}, standing {standing:?}, {work:?}",
        status["state"],
        drives.join(" "),
        status["unreadable_stripes"],
        status["lost_stripes"]
    )
}

pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// Yields the machine for so many milliseconds: an event on drives lasts a while. A signal ends the
/// campaign here.
#[track_caller]
pub fn pause(milliseconds: u64) {
    assert!(!INTERRUPTED.load(Ordering::Relaxed), "a signal ended the campaign");
    let end = Instant::now() + Duration::from_millis(milliseconds);
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        std::thread::park_timeout(left);
    }
}
