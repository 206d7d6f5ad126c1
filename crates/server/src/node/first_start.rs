//! The first start, made repeatable after a kill. The file `first-start` exists in the data
//! directory from before the first drive is made until the first key has been printed.
//!
//! Until there is a configuration, the file lists the drives that this start makes. The next start
//! removes those that are still what a killed start leaves: without a label, or with that of the
//! pool that was never completed. A drive of any other pool at such a path stays. With a
//! configuration the list is empty, so that it never names a drive in use. A key that was made but
//! perhaps not printed stays. Its secret is lost, and the next start makes and prints another key.
//!
//! Before the first key is made, the file says that a key is owed. A file that does not say so, or
//! one beside keys of another origin, is no first start's: no start makes a key because of it.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use stele_archive::{AccessKeyInfo, Owned, Rights};

use super::unfinished::Unfinished;
use super::wipe;
use crate::config::Site;
use crate::failure::{Failure, Kind, Outcome, io_failure};

const NAME: &str = "first-start";

/// The line of a start whose first key may have been made and was not printed.
const OWED: &str = "# the first key is owed";

/// The name of the key that a first start makes.
pub const KEY_NAME: &str = "made at the first start";

/// An unfinished first start. One process at a time holds it.
pub struct FirstStart {
    path: PathBuf,
    file: File,
    /// The file said that a key is owed.
    owed: bool,
}

impl FirstStart {
    /// The first start that began and did not finish, of a pool that has a configuration.
    pub fn resume(site: &Site) -> Outcome<Option<FirstStart>> {
        if !site.dir.join(NAME).exists() {
            return Ok(None);
        }
        let mut start = FirstStart::hold(site)?;
        let left = start.read()?;
        start.owed = left.lines().any(|line| line == OWED);
        // A start that fails or is killed from here on leaves what the next one has to know.
        if !start.owed {
            start.write("")?;
        }
        Ok(Some(start))
    }

    /// Whether a key is owed beside these keys: each of them was made by a first start, and none
    /// was used, narrowed or revoked.
    pub fn owes_beside(&self, keys: &[AccessKeyInfo]) -> bool {
        let unseen = |key: &AccessKeyInfo| {
            key.description == KEY_NAME
                && key.rights == Rights::all()
                && key.revoked.is_none()
                && key.owned == Owned::default()
        };
        keys.is_empty() || (self.owed && keys.iter().all(unseen))
    }

    /// Begins a first start, and first removes the drives of an unfinished one. The caller then
    /// makes the missing `drives`.
    pub fn begin(site: &Site, drives: &[PathBuf]) -> Outcome<FirstStart> {
        let mut start = FirstStart::hold(site)?;
        let left = start.read()?;
        if !site.config_path.exists() {
            let former = Unfinished::former(site)?;
            for drive in left.lines().filter(|line| *line != OWED).map(|line| site.path(Path::new(line))) {
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
    /// be made and printed.
    pub fn settle(site: &Site) -> Outcome<FirstStart> {
        FirstStart::hold(site)?.settled()
    }

    /// The same for a start that is held already.
    pub fn settled(mut self) -> Outcome<FirstStart> {
        if !self.owed {
            self.write(&format!("{OWED}\n"))?;
            self.owed = true;
        }
        Ok(self)
    }

    /// The file is no first start's: keys are there, and none is owed.
    pub fn ignore(self) -> Outcome<()> {
        tracing::warn!(
            "{} is removed: this archive has keys, and no first start owes another one",
            self.path.display()
        );
        self.finish()
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
            Ok(()) => Ok(FirstStart { path, file, owed: false }),
            Err(TryLockError::WouldBlock) => {
                Err(Failure::new(Kind::Busy, format!("another process is starting in {}", site.dir.display()))
                    .next("wait until it is ready; `stele pool status` shows it then"))
            }
            Err(TryLockError::Error(error)) => Err(io_failure("lock", &path, &error)),
        }
    }

    /// The lines. Damage to this note keeps no pool from serving: a line that is no text names no
    /// drive of a first start.
    fn read(&mut self) -> Outcome<String> {
        let mut left = Vec::new();
        self.file.read_to_end(&mut left).map_err(|error| io_failure("read", &self.path, &error))?;
        let text = String::from_utf8_lossy(&left);
        let is_text = |line: &&str| !line.contains(['\0', char::REPLACEMENT_CHARACTER]);
        Ok(text.lines().filter(is_text).map(|line| format!("{line}\n")).collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_that_is_damaged_keeps_no_pool_from_serving() {
        let dir = std::env::temp_dir().join(format!("stele-first-damaged-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let site = Site { dir: dir.clone(), config_path: dir.join("stele.toml") };
        for (note, owed) in [
            (&b"\xff\xfe\x00\x80"[..], false),
            (&b"drives/e0-0.img\n\x00\x00\n"[..], false),
            (&b"\xff\n# the first key is owed\n"[..], true),
        ] {
            fs::write(dir.join(NAME), note).unwrap();
            let start = FirstStart::resume(&site).unwrap().expect("there is a note");
            assert_eq!(start.owed, owed, "{note:?}");
            drop(start);
            // Without a configuration, what it names would be removed.
            fs::write(dir.join(NAME), note).unwrap();
            FirstStart::begin(&site, &[]).unwrap().finish().unwrap();
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
