//! A repository of backups: a write saves an object in a session of its own, through the code of
//! backups, and a read restores one. An object is as long as the access, and is answered when all
//! of its chunks are in durable segments: with accesses of 64 MiB each is a segment. So the
//! sessions are the accesses outstanding, and a response is that of a segment.
//!
//! The laboratory knows no format of backups. The program around it says once how repositories are
//! reached ([`reach_by`]); the laboratory generates the content in memory, counts, and checks what
//! comes back.
//!
//! A repository that is there loses nothing: objects go into snapshots of the laboratory's own,
//! which are removed at the end. Where there is none, one is made, and removed as a whole.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use stele_ground::{Bytes, Dice, counted};

use super::content::Content;
use super::inline::Direct;
use super::stream::with_port;
use super::system_place;
use super::target::{AccessMethod, Opening, Ready};
use super::versions::Versions;
use crate::error::LabError;
use crate::workload::{Access, AccessSpec};

/// Objects of one length.
const OBJECTS_MAX: u32 = 1_000_000;
/// Sessions that save objects before a run.
const HELPERS: u32 = 4;
/// Bytes of the longest object, and of its buffers in each session.
const LENGTH_MAX: u64 = 1 << 30;

/// Where a repository is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackupAddress {
    /// As other commands for backups take it: a directory, or the URL of a place in a bucket.
    pub place: String,
    /// Without it the program's usual sources of a password are asked.
    pub password_file: Option<PathBuf>,
    /// It is a directory of this machine.
    is_directory: bool,
}

const SHAPE: &str = "backup://HOST[:PORT]/BUCKET[/PREFIX], backup+http:// without TLS, or backup:DIRECTORY; each may end in \
                     ?password-file=FILE";

impl std::str::FromStr for BackupAddress {
    type Err = LabError;
    fn from_str(text: &str) -> Result<BackupAddress, LabError> {
        let bad = || LabError::Usage(format!("target '{text}': say {SHAPE}"));
        let (rest, password_file) = match text.split_once("?password-file=") {
            Some((_, "")) => return Err(bad()),
            Some((rest, path)) => (rest, Some(PathBuf::from(path))),
            None => (text, None),
        };
        let Some((scheme, rest)) = rest.split_once("://") else {
            let directory = rest.strip_prefix("backup:").filter(|path| !path.is_empty() && !path.contains('?'));
            let place = directory.ok_or_else(bad)?.to_owned();
            return Ok(BackupAddress { place, password_file, is_directory: true });
        };
        let (scheme, port) = match scheme {
            "backup" | "backup+https" => ("s3", 443),
            "backup+http" => ("s3+http", 80),
            _ => return Err(bad()),
        };
        let (host, path) = rest.split_once('/').ok_or_else(bad)?;
        let path = path.trim_end_matches('/');
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._/".contains(c);
        if path.is_empty() || path.starts_with('/') || !path.chars().all(plain) {
            return Err(bad());
        }
        let host = with_port(host, port).ok_or_else(bad)?;
        Ok(BackupAddress { place: format!("{scheme}://{host}/{path}"), password_file, is_directory: false })
    }
}

impl fmt::Display for BackupAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.strip_prefix("s3").filter(|_| !self.is_directory) {
            Some(rest) => write!(f, "backup{rest}")?,
            None => write!(f, "backup:{}", self.place)?,
        }
        self.password_file.as_ref().map_or(Ok(()), |path| write!(f, "?password-file={}", path.display()))
    }
}

impl BackupAddress {
    /// Where it lies on this machine.
    pub fn path(&self) -> Option<&Path> {
        self.is_directory.then(|| Path::new(&self.place))
    }
}

/// The length of an object, and its number.
pub type ObjectId = (u64, u32);

/// A repository that is open. All of its calls may block.
pub trait Repository: Send + Sync {
    /// Begins a session.
    fn session(&self) -> Result<Box<dyn Session>, LabError>;

    /// Behind a run: makes what the ended sessions saved a part of snapshots, and reads from those
    /// where the kept objects are.
    fn settle(&self) -> Result<(), LabError>;

    /// Removes what was made, and nothing else.
    fn remove(&self) -> Result<(), LabError>;

    /// Closes it, and leaves what was made.
    fn keep(&self) -> Result<(), LabError>;

    /// What it is, for a report.
    fn description(&self) -> String;
}

/// One session, in the thread of a worker. It ends when it is dropped.
pub trait Session {
    /// Saves an object; all of it is durable when the call returns. One that is kept is what its
    /// place has from now on.
    fn save(&mut self, place: ObjectId, is_kept: bool, content: &[u8]) -> Result<(), LabError>;

    /// Restores the object of a place.
    fn restore(&mut self, place: ObjectId, into: &mut [u8]) -> Result<(), LabError>;
}

/// Opens repositories. `takes_over`: what a killed run left may be removed.
pub trait Opener: Send + Sync {
    fn open(&self, address: &BackupAddress, takes_over: bool) -> Result<Arc<dyn Repository>, LabError>;
}

static OPENER: OnceLock<Box<dyn Opener>> = OnceLock::new();

/// Says how repositories are reached, once in a process. Later calls change nothing.
pub fn reach_by(opener: Box<dyn Opener>) {
    let _ = OPENER.set(opener);
}

/// A repository as a target.
pub struct Vault {
    address: BackupAddress,
    repository: Arc<dyn Repository>,
    objects: u32,
    content: Content,
    /// Lengths of which all objects were saved.
    lengths: Mutex<BTreeSet<u64>>,
    /// What checks of all objects together need.
    versions: Option<Arc<Versions>>,
    /// The first error of a worker's session, for its kind: the workers say texts.
    first: Mutex<Option<LabError>>,
    is_removed: AtomicBool,
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vault").field("address", &self.address).field("objects", &self.objects).finish_non_exhaustive()
    }
}

pub(super) fn open(address: &BackupAddress, opening: Opening) -> Result<Ready, LabError> {
    let opener = OPENER.get().ok_or_else(|| {
        LabError::Usage(format!("{address}: this program has no code for backups; measure with `stele lab`"))
    })?;
    let length = checked(address, opening)?;
    if let Some(directory) = address.path() {
        system_place::refuse_directory(directory)?;
    }
    open_with(address, opener.open(address, opening.destroy)?, opening, length)
}

/// The length of the objects.
fn checked(address: &BackupAddress, opening: Opening) -> Result<u64, LabError> {
    let length = opening.longest;
    let even = length >= 512 && (length.is_multiple_of(4096) || 4096_u64.is_multiple_of(length));
    if opening.content.verify && !(even && opening.step == length) {
        return Err(LabError::Usage(format!(
            "{address}: objects are checked where all are of one length, 512, 1024, 2048 or a multiple of 4096; give one \
             --access, or leave --verify out"
        )));
    }
    if opening.files == 0 || opening.files > OBJECTS_MAX {
        return Err(LabError::Usage(format!("--files: from 1 to {OBJECTS_MAX} objects")));
    }
    if length > LENGTH_MAX {
        return Err(LabError::Usage(format!(
            "{address}: an object is in memory as a whole; give --access up to {}",
            Bytes(LENGTH_MAX)
        )));
    }
    Ok(length)
}

fn open_with(
    address: &BackupAddress,
    repository: Arc<dyn Repository>,
    opening: Opening,
    length: u64,
) -> Result<Ready, LabError> {
    let size = Bytes(u64::from(opening.files) * length);
    let vault = Vault {
        address: address.clone(),
        objects: opening.files,
        content: opening.content,
        lengths: Mutex::default(),
        versions: opening.versions(size)?,
        first: Mutex::default(),
        is_removed: AtomicBool::new(false),
        repository,
    };
    Ok(Ready {
        size,
        // An object is saved and restored as a whole.
        block: Bytes(if opening.content.verify { length } else { 1 }),
        file: None,
        versions: vault.versions.clone(),
        patience: opening.patience,
        name: address.to_string(),
        description: format!(
            "{}, {} of each length, each saved and restored by a session",
            vault.repository.description(),
            counted(opening.files.into(), "object")
        ),
        way: AccessMethod::Backup(Arc::new(vault)),
    })
}

impl Vault {
    /// The end of a run that its workers told so: of the kind of what a session met first.
    pub fn failed(&self, told: String) -> LabError {
        match self.first.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(LabError::Full(text)) if told.contains(&text) => LabError::Full(told),
            Some(LabError::Refused(text)) if told.contains(&text) => LabError::Refused(told),
            Some(LabError::Unreachable(text)) if told.contains(&text) => LabError::Unreachable(told),
            Some(LabError::Damaged(text)) if told.contains(&text) => LabError::Damaged(told),
            _ => LabError::Failed(told),
        }
    }

    /// What a worker says of an error of its session.
    fn noted(&self, error: LabError) -> String {
        let told = error.to_string();
        self.first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        told
    }

    /// Saves what the accesses of a run restore, where that was not done before.
    pub fn prepare(&self, spec: &AccessSpec, end: &AtomicBool) -> Result<(), LabError> {
        if spec.read == Some(0) {
            return Ok(());
        }
        for (length, _) in &spec.sizes {
            let known = |length| self.lengths.lock().unwrap_or_else(PoisonError::into_inner).contains(length);
            if known(length) {
                continue;
            }
            self.save_all(*length, end)?;
            self.repository.settle()?;
            if !end.load(Ordering::Relaxed) {
                self.lengths.lock().unwrap_or_else(PoisonError::into_inner).insert(*length);
            }
        }
        Ok(())
    }

    /// Saves all objects of a length, in several sessions.
    fn save_all(&self, length: u64, end: &AtomicBool) -> Result<(), LabError> {
        let next = AtomicU32::new(0);
        let work = |helper: u32| -> Result<(), LabError> {
            let mut session = self.repository.session()?;
            let dice = Dice::new(self.content.seed ^ u64::from(helper) << 32);
            let mut source = self.content.source(dice, self.versions.clone()).alike_in(length);
            let mut data = vec![0; length as usize];
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= self.objects || end.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let at = u64::from(number) * length;
                source.make(&mut data, at);
                session.save((length, number), true, &data)?;
                if let Some(versions) = &self.versions {
                    versions.answered(at, length);
                }
            }
        };
        std::thread::scope(|scope| {
            let helpers: Vec<_> =
                (0..HELPERS.min(self.objects)).map(|helper| scope.spawn(move || work(helper))).collect();
            let panicked = || LabError::Failed(format!("{}: a helper panicked", self.address));
            helpers.into_iter().try_for_each(|helper| helper.join().unwrap_or_else(|_| Err(panicked())))
        })
    }

    /// Behind each run.
    pub fn settle(&self) -> Result<(), LabError> {
        self.repository.settle()
    }

    pub fn remove(&self) -> Result<(), LabError> {
        self.is_removed.store(true, Ordering::Relaxed);
        self.repository.remove()
    }
}

impl Drop for Vault {
    fn drop(&mut self) {
        // What was made is to stay. A session that cannot be ended lapses.
        if !self.is_removed.load(Ordering::Relaxed) {
            let _ = self.repository.keep();
        }
    }
}

/// A worker's session.
pub struct BackupEngine {
    vault: Arc<Vault>,
    session: Box<dyn Session>,
}

impl BackupEngine {
    pub fn new(vault: &Arc<Vault>) -> Result<BackupEngine, String> {
        let session = vault.repository.session().map_err(|error| vault.noted(error))?;
        Ok(BackupEngine { session, vault: Arc::clone(vault) })
    }
}

impl Direct for BackupEngine {
    fn carry_out(&mut self, access: &Access, buffer: &mut [u8]) -> Result<(), String> {
        let number = (access.at / access.length) % u64::from(self.vault.objects);
        let place = (access.length, number as u32);
        let done = match access.write {
            // Where nothing is checked, restores go on reading what was prepared: what a run saved
            // goes behind it.
            true => self.session.save(place, self.vault.content.verify, buffer),
            false => self.session.restore(place, buffer),
        };
        done.map_err(|error| self.vault.noted(error))
    }
}

#[cfg(test)]
mod tests;
