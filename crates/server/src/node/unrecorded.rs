//! Acts on drives during a time without a writable audit log, because the catalog did not open.
//! Each act is kept durably in a file of the data directory before it is carried out. The next
//! opening for writing records the acts.
//!
//! Failure model: a line that a crash cut off takes no later act with it, since the next one begins
//! a line of its own. An act that cannot be kept whole is refused, and its line taken back. One
//! process records each act once, also where the file cannot be removed; a restart between the
//! record and the removal records an act twice. A user who can write to the data directory can
//! remove or add acts, as SEMANTICS/retention.md says. A full file refuses further acts.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};
use stele_archive::Archive;

use crate::api::Actor;
use crate::failure::{Failure, Kind, Outcome, io_failure};

const NAME: &str = "unrecorded-acts";
/// Enough for some thousand acts.
const LENGTH_MAX: u64 = 1 << 20;

/// The file of one data directory.
pub struct Unrecorded {
    path: PathBuf,
    /// Bytes of the file whose acts this process has recorded.
    recorded: AtomicUsize,
}

#[derive(Serialize, Deserialize)]
struct Act {
    /// Seconds since 1970 on the system's clock.
    at: u64,
    uid: u32,
    detail: String,
    refused: Option<String>,
}

impl Unrecorded {
    pub fn of(dir: &Path) -> Unrecorded {
        Unrecorded { path: dir.join(NAME), recorded: AtomicUsize::new(0) }
    }

    /// Keeps an act. The act is durable when this returns.
    pub fn keep(&self, actor: &Actor, detail: &str, refused: Option<String>) -> Outcome<()> {
        let path = &self.path;
        let failed = |error: &std::io::Error| io_failure("keep a record in", path, error);
        let act = Act { at: super::wall_clock(), uid: actor.uid, detail: detail.to_owned(), refused };
        let line = serde_json::to_string(&act)
            .map_err(|error| Failure::failed(format!("cannot write an act as JSON: {error}")))?;
        let opened = OpenOptions::new().create(true).read(true).append(true).open(path);
        let mut file = opened.map_err(|error| failed(&error))?;
        let length = file.metadata().map_err(|error| failed(&error))?.len();
        if length == 0 {
            self.recorded.store(0, Ordering::Relaxed);
        }
        if length > LENGTH_MAX {
            return Err(Failure::new(
                Kind::Refused,
                format!("{} is full of acts that no audit log has", path.display()),
            )
            .next("start the server: it records them"));
        }
        let start = if ends_a_line(&file, length).map_err(|error| failed(&error))? { "" } else { "\n" };
        let written = file.write_all(format!("{start}{line}\n").as_bytes()).and_then(|()| file.sync_all());
        if let Err(error) = written {
            // The act is refused: what there is of its line must not be recorded.
            let _ = file.set_len(length).and_then(|()| file.sync_all());
            return Err(failed(&error));
        }
        match path.parent().filter(|_| length == 0) {
            Some(dir) => File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| failed(&error)),
            None => Ok(()),
        }
    }

    /// Records the kept acts in an archive that is open for writing. One call at a time.
    pub async fn record(&self, archive: &Archive) -> Outcome<()> {
        for left in self.left()? {
            let caller = Actor { uid: left.uid }.caller();
            archive.audit_administration(&caller, &left.detail, left.refused.as_deref()).await?;
            self.recorded.fetch_add(left.length, Ordering::Relaxed);
        }
        self.settle(fs::remove_file(&self.path));
        Ok(())
    }

    /// The kept acts that this process has not recorded yet.
    fn left(&self) -> Outcome<Vec<Left>> {
        let bytes = match fs::read(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            bytes => bytes.map_err(|error| io_failure("read", &self.path, &error))?,
        };
        // A shorter file is another one.
        let left = bytes.get(self.recorded.load(Ordering::Relaxed)..).unwrap_or(&bytes);
        Ok(left.split_inclusive(|byte| *byte == b'\n').map(Left::of).collect())
    }

    /// Everything is in the log: forgets the file, if it could be removed.
    fn settle(&self, removed: std::io::Result<()>) {
        match removed {
            Ok(()) => self.recorded.store(0, Ordering::Relaxed),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => self.recorded.store(0, Ordering::Relaxed),
            Err(error) => tracing::warn!(
                "the acts in {} are recorded, but it cannot be removed ({error}); remove it, or the next start records them \
                 again",
                self.path.display()
            ),
        }
    }
}

/// A line of the file, as the audit log is to have it.
struct Left {
    length: usize,
    uid: u32,
    detail: String,
    refused: Option<String>,
}

impl Left {
    /// A line that a crash cut off, perhaps within a character, belongs to an act that never began.
    fn of(line: &[u8]) -> Left {
        let length = line.len();
        match serde_json::from_str::<Act>(String::from_utf8_lossy(line).trim_end()) {
            Ok(Act { at, uid, detail, refused }) => {
                Left { length, uid, detail: format!("while no log was open, at {at}: {detail}"), refused }
            }
            Err(_) => {
                let detail = format!("while no log was open: an unreadable line of {NAME}");
                Left { length, uid: super::own_uid(), detail, refused: None }
            }
        }
    }
}

fn ends_a_line(file: &File, length: u64) -> std::io::Result<bool> {
    let mut last = *b"\n";
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_a_crash_cut_off_takes_no_later_act_with_it() {
        let dir = std::env::temp_dir().join(format!("stele-unrecorded-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join(NAME);
        fs::write(&path, b"{\"at\":1,\"detail\":\"cut \xc3").unwrap();
        let acts = Unrecorded::of(&dir);
        for detail in ["pool/replace drive 3", "pool/add"] {
            acts.keep(&Actor { uid: 1000 }, detail, None).unwrap();
        }
        let text = fs::read(&path).unwrap();
        let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
        let read = |line: &[u8]| serde_json::from_slice::<Act>(line).ok().map(|act| (act.uid, act.detail));
        assert_eq!(lines.len(), 4);
        assert_eq!(read(lines[0]), None);
        assert_eq!(read(lines[1]), Some((1000, "pool/replace drive 3".to_owned())));
        assert_eq!(read(lines[2]), Some((1000, "pool/add".to_owned())));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn an_act_is_recorded_once_although_its_file_cannot_be_removed() {
        let dir = std::env::temp_dir().join(format!("stele-unrecorded-once-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let acts = Unrecorded::of(&dir);
        let mut told = Vec::new();
        let mut record = |remove: &dyn Fn() -> std::io::Result<()>| {
            for left in acts.left().unwrap() {
                told.push(left.detail.rsplit(": ").next().unwrap_or_default().to_owned());
                acts.recorded.fetch_add(left.length, Ordering::Relaxed);
            }
            acts.settle(remove());
        };
        let stuck = || Err(std::io::ErrorKind::ReadOnlyFilesystem.into());
        acts.keep(&Actor { uid: 1000 }, "first", None).unwrap();
        record(&stuck);
        acts.keep(&Actor { uid: 1000 }, "second", None).unwrap();
        record(&stuck);
        record(&stuck);
        // An operator removes it. What comes then may be longer than what was recorded.
        fs::remove_file(dir.join(NAME)).unwrap();
        let third = "third".repeat(100);
        acts.keep(&Actor { uid: 1000 }, &third, None).unwrap();
        record(&|| fs::remove_file(dir.join(NAME)));
        record(&stuck);
        assert_eq!(told, ["first", "second", &third]);
        fs::remove_dir_all(&dir).unwrap();
    }
}
