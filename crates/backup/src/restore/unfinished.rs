//! The target directory that a restore made and has not finished.
//!
//! Only the user who restores may enter it, and an empty file in it marks it. The mark has the mode
//! that the directory would have had, for a restore that has no metadata for it. A restore that is
//! repeated finds the mark, and finishes the directory as if it had made it. A mark counts only if
//! it is this user's, so another user makes no directory pass for an unfinished one.
//!
//! Crash points at the end: before the mark goes, everything below the directory is on the drive.
//! Behind it, only the metadata of the directory itself are missing, for one system call each.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::place::Faults;
use crate::error::{BackupError, Result};

pub const MARK: &str = ".stele-restore-unfinished";

pub struct Unfinished {
    /// While it is open, no other file gets its inode.
    mark: OwnedFd,
    /// The mode of the directory without metadata of its own.
    mode: Mode,
}

/// Makes the directory with those above it. Gives those that were missing, the deepest first.
pub fn make(path: &Path) -> Result<Vec<PathBuf>> {
    if path.exists() && !path.is_dir() {
        return Err(BackupError::Invalid(format!("{} is no directory to restore into", path.display())));
    }
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let missing: Vec<PathBuf> = path.ancestors().take_while(is_missing).map(Path::to_owned).collect();
    fs::create_dir_all(path).map_err(|error| {
        // Those above may be there by now. One that another process uses meanwhile stays.
        missing.iter().for_each(|made| drop(fs::remove_dir(made)));
        BackupError::io("create", path, &error)
    })?;
    Ok(missing)
}

/// Removes directories that a restore made, if nothing was restored into them.
pub fn remove(made: &[PathBuf]) {
    let Some(path) = made.first() else { return };
    let Ok(mut entries) = fs::read_dir(path) else { return };
    if entries.any(|entry| !entry.is_ok_and(|entry| entry.file_name() == MARK)) {
        return;
    }
    let _ = fs::remove_file(path.join(MARK));
    // One that another process uses meanwhile stays, and those above it.
    let _ = made.iter().try_for_each(fs::remove_dir);
}

impl Unfinished {
    /// None: the directory was there before every restore.
    pub fn of(root: &OwnedFd, is_new: bool, user: u32) -> rustix::io::Result<Option<Unfinished>> {
        if is_new { Unfinished::begin(root).map(Some) } else { Unfinished::resume(root, user) }
    }

    /// Closes a directory that was just made, and marks it.
    fn begin(root: &OwnedFd) -> rustix::io::Result<Unfinished> {
        let is = rustix::fs::fstat(root)?;
        close(root, &is);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mark = rustix::fs::openat(root, MARK, flags, Mode::RUSR | Mode::WUSR)?;
        // A file system without modes keeps none.
        let _ = rustix::fs::fchmod(&mark, Mode::from_raw_mode(is.st_mode & 0o777));
        Ok(Unfinished { mark, mode: Mode::from_raw_mode(is.st_mode & 0o7777) })
    }

    /// Goes on with a directory that an earlier restore of this user did not finish.
    fn resume(root: &OwnedFd, user: u32) -> rustix::io::Result<Option<Unfinished>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mark = match rustix::fs::openat(root, MARK, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            mark => mark?,
        };
        let (is, of_mark) = (rustix::fs::fstat(root)?, rustix::fs::fstat(&mark)?);
        let is_file = FileType::from_raw_mode(of_mark.st_mode) == FileType::RegularFile;
        if !is_file || of_mark.st_size != 0 || of_mark.st_nlink != 1 || of_mark.st_uid != user {
            return Ok(None);
        }
        close(root, &is);
        let mode = is.st_mode & 0o7000 | of_mark.st_mode & 0o777;
        Ok(Some(Unfinished { mark, mode: Mode::from_raw_mode(mode) }))
    }

    /// Removes the mark, unless a file of the snapshot has its name.
    pub fn end(&self, root: &OwnedFd) -> rustix::io::Result<()> {
        let known = rustix::fs::fstat(&self.mark)?;
        match rustix::fs::statat(root, MARK, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(is) if (is.st_dev, is.st_ino) == (known.st_dev, known.st_ino) => {
                rustix::fs::unlinkat(root, MARK, AtFlags::empty())
            }
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Gives a directory without metadata of its own the mode that it would have had.
    pub fn open_up(&self, root: &OwnedFd) -> Faults {
        // A file system without modes keeps none.
        let _ = rustix::fs::fchmod(root, self.mode);
        Faults::new()
    }
}

/// Forces the directory itself to the drive.
pub fn force(root: &OwnedFd) -> rustix::io::Result<()> {
    match rustix::fs::fsync(root) {
        // The file system forces no directories by themselves.
        Err(Errno::INVAL) => Ok(()),
        forced => forced,
    }
}

/// Leaves the directory to its owner alone. A file system without modes cannot, and protects
/// nothing.
fn close(root: &OwnedFd, is: &Stat) {
    let _ = rustix::fs::fchmod(root, Mode::from_raw_mode(is.st_mode & 0o7000 | 0o700));
}

#[cfg(test)]
mod tests;
