//! The first start, so that one that is killed can be begun again: `first-start` in the data directory is there from before
//! the first drive is made until the first key has been printed.
//!
//! Until there is a configuration the file lists the drives this start makes, which hold nothing anybody was promised: the
//! next start removes them. Once there is one the list is empty, so that no drive in use is ever on it. A key that was made
//! but perhaps not printed stays, and nobody knows its secret; the next start makes and prints another.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::config::Site;
use crate::failure::{Failure, Kind, Outcome, io_failure};

const NAME: &str = "first-start";

/// A first start that has not come to its end. Held by one process at a time.
pub struct FirstStart {
    path: PathBuf,
    file: File,
}

impl FirstStart {
    /// Whether one was begun and did not come to its end.
    pub fn is_unfinished(site: &Site) -> bool {
        site.dir.join(NAME).exists()
    }

    /// Begins one, after removing what an unfinished one left; those of `drives` that are not there are about to be made.
    pub fn begin(site: &Site, drives: &[PathBuf]) -> Outcome<FirstStart> {
        let mut start = FirstStart::hold(site)?;
        let mut left = String::new();
        start.file.read_to_string(&mut left).map_err(|error| io_failure("read", &start.path, &error))?;
        if !site.config_path.exists() {
            for drive in left.lines().map(|line| site.path(Path::new(line))) {
                match fs::remove_file(&drive) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(io_failure("remove what an unfinished start left at", &drive, &error));
                    }
                    _ => tracing::info!("removed {}, left by a start that did not come to its end", drive.display()),
                }
            }
        }
        // What is there already was not made by this start, and is not its to remove.
        let new = drives.iter().filter(|drive| !site.path(drive).exists());
        let list: String = new.map(|drive| format!("{}\n", drive.display())).collect();
        start.write(&list)?;
        Ok(start)
    }

    /// The configuration is written: from now on its drives are a pool's, and only the key is owed.
    pub fn settle(site: &Site) -> Outcome<FirstStart> {
        let mut start = FirstStart::hold(site)?;
        start.write("")?;
        Ok(start)
    }

    /// Everything was made and said.
    pub fn finish(self) -> Outcome<()> {
        fs::remove_file(&self.path).map_err(|error| io_failure("remove", &self.path, &error))
    }

    fn hold(site: &Site) -> Outcome<FirstStart> {
        let path = site.dir.join(NAME);
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = opened.map_err(|error| io_failure("write", &path, &error))?;
        match file.try_lock() {
            Ok(()) => Ok(FirstStart { path, file }),
            Err(TryLockError::WouldBlock) => {
                Err(Failure::new(Kind::Busy, format!("another process is starting in {}", site.dir.display()))
                    .next("wait until it is ready; `stele pool status` shows it then"))
            }
            Err(TryLockError::Error(error)) => Err(io_failure("lock", &path, &error)),
        }
    }

    fn write(&mut self, list: &str) -> Outcome<()> {
        let file = &mut self.file;
        // A crash in between leaves fewer lines: drives of an earlier try, which are gone by now.
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(list.as_bytes()))
            .and_then(|()| file.sync_all());
        written.map_err(|error| io_failure("write", &self.path, &error))
    }
}
