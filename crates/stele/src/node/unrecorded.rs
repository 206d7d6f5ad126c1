//! Acts on drives during a time without a writable audit log, because the catalog did not open. Each act is kept
//! durably in a file of the data directory before it is carried out. The next opening for writing records the acts.
//!
//! Failure model: a crash between the record and the removal of the file records an act twice. A user who can write to
//! the data directory can remove or add acts, as SEMANTICS/retention.md says. A full file refuses further acts.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
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
        let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(|error| failed(&error))?;
        let length = file.metadata().map_err(|error| failed(&error))?.len();
        if length > LENGTH_MAX {
            return Err(Failure::new(
                Kind::Refused,
                format!("{} is full of acts that no audit log has", path.display()),
            )
            .next("start the server: it records them"));
        }
        writeln!(file, "{line}").and_then(|()| file.sync_all()).map_err(|error| failed(&error))?;
        match path.parent().filter(|_| length == 0) {
            Some(dir) => File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| failed(&error)),
            None => Ok(()),
        }
    }

    /// Records the kept acts in an archive that is open for writing.
    pub async fn record(&self, archive: &Archive) -> Outcome<()> {
        let path = &self.0;
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            text => text.map_err(|error| io_failure("read", path, &error))?,
        };
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
