//! How the laboratory reaches a repository of backups: through the code of `stele backup`, with its
//! store, keys and password.
//!
//! Where there is no repository, one is made for the laboratory alone. Without a source of a
//! password it has a fixed one: it holds only generated data, and a later run must be able to
//! remove it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use stele_backup::BackupError;
use stele_backup::backup::streams::{self, Stream, Streams};
use stele_backup::repository::{Closed, Repository};
use stele_lab::error::LabError;
use stele_lab::live::backup::{self, BackupAddress, ObjectId, Opener, Session};
use stele_server::failure::{Failure, Kind, Outcome};

use crate::cli;
use crate::commands::backup::{machine, password, store};

/// The password of a repository that the laboratory made, if none was given.
const OWN_PASSWORD: &[u8] = b"stele-lab";
/// As `stele backup run` compresses.
const LEVEL: i32 = 1;

pub fn reach() {
    backup::reach_by(Box::new(Repositories));
}

struct Repositories;

impl Opener for Repositories {
    fn open(&self, address: &BackupAddress, takes_over: bool) -> Result<Arc<dyn backup::Repository>, LabError> {
        let folders = address.path().and_then(Folders::before);
        let (repository, is_new) = repository(address, takes_over).map_err(|failure| of_failure(address, failure))?;
        let program = concat!("stele lab ", env!("CARGO_PKG_VERSION"));
        let begun = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let streams = Streams::open(repository, program, LEVEL, begun);
        let streams = streams.map_err(|error| of_failure(address, error.into()))?;
        let kind = if is_new { "a repository made for this run" } else { "a repository" };
        let description = format!("{kind} at {address}, through the code of backups");
        let folders = folders.filter(|_| is_new);
        Ok(Arc::new(Opened { streams: Arc::new(streams), address: address.clone(), description, folders }))
    }
}

/// Opens the repository, or makes one. Whether it was made.
fn repository(address: &BackupAddress, takes_over: bool) -> Outcome<(Repository, bool)> {
    let place = cli::backup::RepositoryArgs {
        repository: address.place.clone().into(),
        password_file: address.password_file.clone(),
        password_command: None,
    };
    let reached = store(&place)?;
    if let Some(locks) = reached.locks_all()? {
        let text = format!("{locks}: what is stored there could not be removed");
        return Err(Failure::new(Kind::Refused, text).next("name a bucket without a default retention"));
    }
    match Closed::open(Arc::clone(&reached), machine()) {
        Err(BackupError::NoRepository(_)) => {}
        Err(error) => return Err(error.into()),
        Ok(closed) if !streams::is_made(&closed)? => {
            return Ok((Repository::open(reached, machine(), &password(&place)?)?, false));
        }
        Ok(closed) => {
            // An earlier run was killed, or kept it; or another one goes on. Its password may also
            // have become that of real backups, which only the operator knows.
            let (live, _) = closed.sessions()?;
            let text = match (live.is_empty(), streams::has_snapshots(&closed)?) {
                (false, _) => "a run of the laboratory uses this repository, or was killed within the last day",
                (true, true) => "the laboratory made this repository, and it still has snapshots",
                (true, false) => "",
            };
            if !text.is_empty() && !takes_over {
                return Err(Failure::new(Kind::Refused, text)
                    .next("name another place, or give --destroy, which removes all snapshots in it"));
            }
            streams::unmake(&closed)?;
        }
    }
    let own = match password(&place) {
        Ok(own) => own,
        Err(failure) if failure.kind == Kind::Usage && address.password_file.is_none() => OWN_PASSWORD.to_vec(),
        Err(failure) => return Err(failure),
    };
    Ok((streams::make(reached, machine(), &own)?, true))
}

fn of_failure(address: &BackupAddress, failure: Failure) -> LabError {
    let next = if failure.next.is_empty() { String::new() } else { format!("; {}", failure.next) };
    let text = format!("{address}: {}{next}", failure.error);
    match failure.kind {
        Kind::Usage => LabError::Usage(text),
        Kind::Refused | Kind::Locked | Kind::Exists | Kind::WrongPassword => LabError::Refused(text),
        Kind::Missing | Kind::NoRepository => LabError::Missing(text),
        Kind::Full => LabError::Full(text),
        Kind::Busy => LabError::Unreachable(text),
        Kind::Damaged => LabError::Damaged(text),
        _ => LabError::Failed(text),
    }
}

/// A repository that is open for a run.
struct Opened {
    streams: Arc<Streams>,
    address: BackupAddress,
    description: String,
    /// To remove with a repository that was made in an empty place.
    folders: Option<Folders>,
}

/// A directory that was empty, or missing, before the repository was made in it.
struct Folders {
    path: PathBuf,
    was_missing: bool,
}

impl Folders {
    /// None: there is something that is not the run's.
    fn before(path: &Path) -> Option<Folders> {
        let was_missing = !path.exists();
        let is_empty = was_missing || std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        is_empty.then(|| Folders { path: path.to_owned(), was_missing })
    }

    /// Removes what is left of the repository: folders without a file.
    fn remove(&self) {
        for entry in std::fs::read_dir(&self.path).into_iter().flatten().flatten() {
            for within in std::fs::read_dir(entry.path()).into_iter().flatten().flatten() {
                let _ = std::fs::remove_dir(within.path());
            }
            let _ = std::fs::remove_dir(entry.path());
        }
        if self.was_missing {
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

impl Opened {
    fn done(&self, done: stele_backup::Result<()>) -> Result<(), LabError> {
        done.map_err(|error| of_failure(&self.address, error.into()))
    }
}

impl backup::Repository for Opened {
    fn session(&self) -> Result<Box<dyn Session>, LabError> {
        let stream = self.streams.stream().map_err(|error| of_failure(&self.address, error.into()))?;
        let address = self.address.clone();
        Ok(Box::new(Sending { streams: Arc::clone(&self.streams), stream: Some(stream), address }))
    }

    fn settle(&self) -> Result<(), LabError> {
        self.done(self.streams.settle())
    }

    fn remove(&self) -> Result<(), LabError> {
        self.done(self.streams.remove())?;
        if let Some(folders) = &self.folders {
            folders.remove();
        }
        Ok(())
    }

    fn keep(&self) -> Result<(), LabError> {
        self.done(self.streams.keep())
    }

    fn description(&self) -> String {
        self.description.clone()
    }
}

/// A session; when it is dropped, what it saved waits for a snapshot.
struct Sending {
    streams: Arc<Streams>,
    stream: Option<Stream>,
    address: BackupAddress,
}

impl Session for Sending {
    fn save(&mut self, place: ObjectId, is_kept: bool, content: &[u8]) -> Result<(), LabError> {
        let ended = || LabError::Failed(format!("{}: the session has ended", self.address));
        let stream = self.stream.as_mut().ok_or_else(ended)?;
        let saved = self.streams.save(stream, place, is_kept, content);
        saved.map_err(|error| of_failure(&self.address, error.into()))
    }

    fn restore(&mut self, place: ObjectId, into: &mut [u8]) -> Result<(), LabError> {
        self.streams.restore(place, into).map_err(|error| of_failure(&self.address, error.into()))
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take() {
            self.streams.end(stream);
        }
    }
}
