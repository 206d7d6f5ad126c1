//! The directory of a volume's drives: claimed for a run, and left as it was found.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use stele_media::system;

use crate::error::LabError;

/// On a directory that a run has claimed. A run that was killed leaves it there, and the next one
/// may take its drives away.
const MARK: &str = "user.stele.lab";
const MADE: &str = "drives of a volume, made with them";
const FOUND: &str = "drives of a volume";

/// What lies on drives for a volume.
#[derive(Default)]
pub struct DriveFiles {
    drives: Vec<PathBuf>,
    directory: Option<Directory>,
}

struct Directory {
    path: PathBuf,
    made: bool,
    /// Held as long as it is used: another run on it is refused.
    lock: File,
}

impl DriveFiles {
    /// A directory that does not exist, is empty, or holds nothing but what a killed run left
    /// there.
    pub fn claim(path: &Path, drives: u64) -> Result<DriveFiles, LabError> {
        let cannot = |error: std::io::Error| LabError::of(&error, "cannot be used", path);
        let refused = |why: &str| Err(LabError::Refused(format!("{}: {why}", path.display())));
        let made = match std::fs::create_dir(path) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
            Err(error) => return Err(cannot(error)),
        };
        let lock = File::open(path).map_err(cannot)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return refused("is in use by another run; wait for its end, or name another directory");
            }
            Err(TryLockError::Error(error)) => return Err(cannot(error)),
        }
        let mark = system::attribute(&lock, MARK).filter(|mark| mark == MADE || mark == FOUND);
        let held: Vec<_> = std::fs::read_dir(path).and_then(Iterator::collect).map_err(cannot)?;
        let left = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("drive-");
        if !held.is_empty() && (mark.is_none() || !held.iter().all(left)) {
            return refused("holds something already; name a directory that is empty, or that does not exist yet");
        }
        for entry in held {
            std::fs::remove_file(entry.path()).map_err(cannot)?;
        }
        let made = made || mark.is_some_and(|mark| mark == MADE);
        // Where marks cannot be kept, what a killed run leaves is refused.
        let _ = system::set_attribute(&lock, MARK, if made { MADE } else { FOUND });
        let drives = (0..drives).map(|at| path.join(format!("drive-{at:03}"))).collect();
        Ok(DriveFiles { drives, directory: Some(Directory { path: path.to_owned(), made, lock }) })
    }

    pub fn drives(&self) -> &[PathBuf] {
        &self.drives
    }

    /// Leaves the drives to their next user: no run takes them away.
    pub fn keep(&self) {
        if let Some(directory) = &self.directory {
            let _ = system::clear_attribute(&directory.lock, MARK);
        }
    }

    pub fn remove(&self) -> Result<(), LabError> {
        for path in &self.drives {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(LabError::of(&error, "cannot be removed", path));
                }
                _ => {}
            }
        }
        if let Some(Directory { path, made, lock }) = &self.directory {
            self.keep();
            if *made {
                // Unless another program put something there.
                let _ = std::fs::remove_dir(path);
            }
            let _ = lock.unlock();
        }
        Ok(())
    }
}
