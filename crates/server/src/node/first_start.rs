//! The first start, made repeatable after a kill. The file `first-start` exists in the data
//! directory from before the first drive is made until the first key has been printed.
//!
//! Until there is a configuration, the file lists the drives that this start makes. The next start
//! removes those that are still what a killed start leaves: without a label, or with that of the
//! pool that was never completed. A drive of any other pool at such a path stays. With a
//! configuration the list is empty, so that it never names a drive in use. A key that was made but
//! perhaps not printed stays. Its secret is lost, and the next start makes and prints another key.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::unfinished::Unfinished;
use super::wipe;
use crate::config::Site;
use crate::failure::{Failure, Kind, Outcome, io_failure};

const NAME: &str = "first-start";

/// An unfinished first start. One process at a time holds it.
pub struct FirstStart {
    path: PathBuf,
    file: File,
}

impl FirstStart {
    /// Whether a first start began and did not finish.
    pub fn is_unfinished(site: &Site) -> bool {
        site.dir.join(NAME).exists()
    }

    /// Begins a first start, and first removes the drives of an unfinished one. The caller then
    /// makes the missing `drives`.
    pub fn begin(site: &Site, drives: &[PathBuf]) -> Outcome<FirstStart> {
        let mut start = FirstStart::hold(site)?;
        let mut left = String::new();
        start.file.read_to_string(&mut left).map_err(|error| io_failure("read", &start.path, &error))?;
        if !site.config_path.exists() {
            let former = Unfinished::former(site)?;
            for drive in left.lines().map(|line| site.path(Path::new(line))) {
                match wipe::is_left_over(&drive, former.as_deref())? {
                    None => {}
                    Some(false) => tracing::warn!("{} is not what an unfinished start left; it stays", drive.display()),
                    Some(true) => {
                        fs::remove_file(&drive)
                            .map_err(|error| io_failure("remove what an unfinished start left at", &drive, &error))?;
                        tracing::info!("removed {}, left by a start that did not come to its end", drive.display());
                    }
                }
            }
        }
        // An existing file was not made by this start, which must not remove it.
        let new = drives.iter().filter(|drive| !site.path(drive).exists());
        let list: String = new.map(|drive| format!("{}\n", drive.display())).collect();
        start.write(&list)?;
        Ok(start)
    }

    /// The configuration is written: the drives now belong to a pool, and only the key remains to
    /// be printed.
    pub fn settle(site: &Site) -> Outcome<FirstStart> {
        let mut start = FirstStart::hold(site)?;
        start.write("")?;
        Ok(start)
    }

    /// The start failed, and what it made is taken back.
    pub fn abandon(mut self) {
        if let Err(failure) = self.write("").and_then(|()| self.finish()) {
            tracing::warn!("{}", failure.on_one_line());
        }
    }

    /// The start is complete, and its key was printed.
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
        // A crash in between leaves fewer lines: they name drives of an earlier attempt, which are
        // removed already.
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(list.as_bytes()))
            .and_then(|()| file.sync_all());
        written.map_err(|error| io_failure("write", &self.path, &error))
    }
}
