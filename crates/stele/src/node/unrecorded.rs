//! Acts on drives during a time without a writable audit log, because the catalog did not open. Each act is kept
//! durably in a file of the data directory before it is carried out. The next opening for writing records the acts.
//!
//! Failure model: a line that a crash cut off takes no later act with it, since the next one begins a line of its own. An
//! act that cannot be kept whole is refused, and its line taken back. A crash between the record and the removal of the file records an act twice. A user who can write to
//! the data directory can remove or add acts, as SEMANTICS/retention.md says. A full file refuses further acts.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stele_archive::Archive;

use crate::api::Actor;
use crate::failure::{Failure, Kind, Outcome, io_failure};

const NAME: &str = "unrecorded-acts";
/// Enough for some thousand acts.
const LENGTH_MAX: u64 = 1 << 20;

/// The file of one data directory.
pub struct Unrecorded(PathBuf);

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
        Unrecorded(dir.join(NAME))
    }

    /// Keeps an act. The act is durable when this returns.
    pub fn keep(&self, actor: &Actor, detail: &str, refused: Option<String>) -> Outcome<()> {
        let path = &self.0;
        let failed = |error: &std::io::Error| io_failure("keep a record in", path, error);
        let act = Act { at: super::wall_clock(), uid: actor.uid, detail: detail.to_owned(), refused };
        let line = serde_json::to_string(&act)
            .map_err(|error| Failure::failed(format!("cannot write an act as JSON: {error}")))?;
        let opened = OpenOptions::new().create(true).read(true).append(true).open(path);
        let mut file = opened.map_err(|error| failed(&error))?;
        let length = file.metadata().map_err(|error| failed(&error))?.len();
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

    /// Records the kept acts in an archive that is open for writing.
    pub async fn record(&self, archive: &Archive) -> Outcome<()> {
        let path = &self.0;
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            bytes => bytes.map_err(|error| io_failure("read", path, &error))?,
        };
        // A crash may have cut a character too.
        let text = String::from_utf8_lossy(&bytes);
        for line in text.lines() {
            // A line that a crash cut off belongs to an act that never began.
            let (uid, detail, refused) = match serde_json::from_str::<Act>(line) {
                Ok(act) => (act.uid, format!("while no log was open, at {}: {}", act.at, act.detail), act.refused),
                Err(_) => (super::own_uid(), format!("while no log was open: an unreadable line of {NAME}"), None),
            };
            archive.audit_administration(&Actor { uid }.caller(), &detail, refused.as_deref()).await?;
        }
        fs::remove_file(path).map_err(|error| io_failure("remove", path, &error))
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
}
