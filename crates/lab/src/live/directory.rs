//! Many files in a directory, by plain system calls: the workload of file servers.
//!
//! The files are made in a directory that carries the mark of the laboratory: the one that was
//! named where it did not exist, else `stele-lab` within it. Nothing outside is touched, and within
//! only the files whose names follow from the mark. The mark is locked while it is in use. To
//! accesses the files are one space, one behind another; none goes beyond the end of its file.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stele_ground::{Bytes, Dice, MIB, counted};
use stele_media::{Buffer, system};

use super::content::Content;
use super::inline::Direct;
use super::local;
use super::system_place;
use super::target::{AccessMethod, Filling, Opening, Ready};
use super::versions::Versions;
use crate::error::LabError;
use crate::workload::Access;

const MARK: &str = "stele-lab.json";
const WITHIN: &str = "stele-lab";
/// All stay open; more would meet the limit of a process.
pub const FILES_MAX: u32 = 900;
/// Of each file where nothing is said, as in the published measurements.
const FILE_SIZE: Bytes = Bytes(40 << 20);

/// What the laboratory knows of a directory that it made.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Mark {
    files: u32,
    file_bytes: u64,
    /// All of them were written to their end.
    filled: bool,
    /// All that is there can be checked with this seed.
    checked: Option<u64>,
    /// The directory was made too, and not only what is in it.
    made: bool,
    /// See [`Content::ratios`]; none in the mark of a former version.
    #[serde(default)]
    ratios: Option<(u32, u32)>,
}

#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    // Holds the lock.
    mark: File,
    files: Vec<File>,
    file_bytes: u64,
}

fn name(number: u32) -> String {
    format!("data-{number:06}")
}

/// What names are made and removed by a worker.
fn passing_name(worker: u32) -> String {
    format!("name-{worker:06}")
}

pub(super) fn open(path: &Path, opening: Opening, progress: Filling<'_>) -> Result<Ready, LabError> {
    let (files, file_bytes) = shape(opening)?;
    system_place::refuse_directory(path)?;
    let (path, made) = place(path)?;
    let held = hold(&path, made)?;
    let found = read(&path, &held)?;
    let wanted = Mark {
        files,
        file_bytes,
        filled: true,
        checked: opening.content.verify.then_some(opening.content.seed),
        made: found.as_ref().map_or(made, |found| found.made),
        ratios: Some(opening.content.ratios()),
    };
    let total = Bytes(u64::from(files) * file_bytes);
    let versions = opening.versions(total)?;
    let serves = |found: &Mark| {
        let same = (found.files, found.file_bytes, found.filled) == (files, file_bytes, true);
        same && found.ratios == wanted.ratios && (!opening.content.verify || found.checked == wanted.checked)
    };
    // What a run that was killed left behind; the mark is locked, so no other run is at work here.
    clear_names(&path)?;
    if !found.as_ref().is_some_and(serves) {
        clear(&path, found.as_ref())?;
        write(&path, &held, &Mark { filled: false, checked: None, ..wanted.clone() })?;
        if let Err(error) = fill_all(&path, &wanted, (opening.content, versions.as_ref()), progress) {
            // Half a set of files is of no use, and may be what has filled the file system.
            let _ = clear(&path, Some(&wanted));
            if wanted.made {
                let _ = std::fs::remove_file(path.join(MARK));
                let _ = std::fs::remove_dir(&path);
            }
            return Err(error);
        }
    }
    // What is written from now on can be checked only where it is written so.
    let checked = match (opening.content.verify, opening.writes) {
        (true, _) => wanted.checked,
        (false, true) => None,
        (false, false) => found.as_ref().filter(|found| serves(found)).and_then(|found| found.checked),
    };
    write(&path, &held, &Mark { checked, ..wanted })?;
    let in_memory = system::in_memory(&held);
    let direct = !(opening.buffered || in_memory);
    let files = open_files(&path, files, opening.writes, direct)?;
    let block = files.first().filter(|_| direct).and_then(system::direct_alignment).map_or(512, |(_, at)| at.max(512));
    let how = match (in_memory, direct) {
        (true, _) => "in memory",
        (false, true) => "past the page cache",
        (false, false) => "through the page cache",
    };
    let description =
        format!("{} of {} in {}, {how}", counted(files.len() as u64, "file"), Bytes(file_bytes), path.display());
    Ok(Ready {
        name: path.display().to_string(),
        way: AccessMethod::Directory(Arc::new(Directory { path, mark: held, files, file_bytes })),
        size: total,
        block: Bytes(block),
        file: Some(Bytes(file_bytes)),
        versions,
        patience: opening.patience,
        description,
    })
}

/// Makes all files, and writes them to their ends.
fn fill_all(
    path: &Path,
    mark: &Mark,
    (content, versions): (Content, Option<&Arc<Versions>>),
    progress: Filling<'_>,
) -> Result<(), LabError> {
    let total = u64::from(mark.files) * mark.file_bytes;
    local::refuse_without_room(path, Bytes(total), content)?;
    let mut source = content.source(Dice::new(content.seed), versions.cloned());
    let mut buffer = Buffer::zeroed(MIB as usize);
    for number in 0..mark.files {
        let base = u64::from(number) * mark.file_bytes;
        let path = path.join(name(number));
        let cannot = |error: io::Error| LabError::of(&error, "cannot be made", &path);
        let file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(cannot)?;
        for at in (0..mark.file_bytes).step_by(MIB as usize) {
            let length = MIB.min(mark.file_bytes - at);
            source.make(&mut buffer[..length as usize], base + at);
            file.write_all_at(&buffer[..length as usize], at).map_err(cannot)?;
            if let Some(versions) = versions {
                versions.answered(base + at, length);
            }
            if !progress(base + at + length, total) {
                return Err(LabError::Stopped(format!("{}: stopped while it was filled", path.display())));
            }
        }
        file.sync_all().map_err(cannot)?;
    }
    Ok(())
}

fn shape(opening: Opening) -> Result<(u32, u64), LabError> {
    if opening.files == 0 || opening.files > FILES_MAX {
        return Err(LabError::Usage(format!("--files: from 1 to {FILES_MAX}, which stay open")));
    }
    let each = opening.size.map_or(FILE_SIZE.0, |size| size.0 / u64::from(opening.files));
    match each - each % 4096 {
        0 => Err(LabError::Usage(format!("--size: at least 4 KiB for each file of {}", opening.files))),
        each => Ok((opening.files, each)),
    }
}

/// Where the files go, and whether the directory was made just now.
fn place(path: &Path) -> Result<(PathBuf, bool), LabError> {
    let cannot = |error: io::Error| LabError::of(&error, "cannot be made", path);
    match std::fs::create_dir(path) {
        Ok(()) => return Ok((path.to_owned(), true)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(cannot(error)),
    }
    if !path.is_dir() {
        return Err(LabError::Usage(format!("{}: is not a directory", path.display())));
    }
    if path.join(MARK).exists() {
        return Ok((path.to_owned(), false));
    }
    let within = path.join(WITHIN);
    match std::fs::create_dir(&within) {
        Ok(()) => Ok((within, true)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && within.join(MARK).exists() => Ok((within, false)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(LabError::Refused(format!(
            "{}: was not made by the laboratory; name another directory",
            within.display()
        ))),
        Err(error) => Err(cannot(error)),
    }
}

/// How often a lock is tried. A process that starts has every open file of its parent until its
/// program runs, and so may have the lock of a run that has just ended.
const LOCK_TRIES: u32 = 20;

/// Opens the mark, and keeps others out.
fn hold(path: &Path, made: bool) -> Result<File, LabError> {
    let mark = path.join(MARK);
    let file = OpenOptions::new().read(true).write(true).create_new(made).open(&mark);
    let file = file.map_err(|error| LabError::of(&error, "cannot be opened", &mark))?;
    match local::try_lock(&file, LOCK_TRIES) {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(LabError::Refused(format!(
            "{}: is being measured by another run; wait for its end, or name another directory",
            path.display()
        ))),
        Err(TryLockError::Error(error)) => Err(LabError::of(&error, "cannot be locked", &mark)),
    }
}

/// None: just made, or by a run that did not come as far as to say anything.
fn read(path: &Path, mark: &File) -> Result<Option<Mark>, LabError> {
    let text = io::read_to_string(mark).map_err(|error| LabError::of(&error, "cannot be read", path))?;
    if text.is_empty() {
        return Ok(None);
    }
    serde_json::from_str(&text).map(Some).map_err(|error| {
        LabError::Refused(format!(
            "{}: is not the laboratory's ({error}); name another directory",
            path.join(MARK).display()
        ))
    })
}

fn write(path: &Path, file: &File, mark: &Mark) -> Result<(), LabError> {
    let text = serde_json::to_string(mark).unwrap_or_default();
    let written = file.set_len(0).and_then(|()| file.write_all_at(text.as_bytes(), 0)).and_then(|()| file.sync_all());
    written.map_err(|error| LabError::of(&error, "cannot be written", &path.join(MARK)))
}

/// Removes what the mark says was made.
fn clear(path: &Path, mark: Option<&Mark>) -> Result<(), LabError> {
    let Some(mark) = mark else { return Ok(()) };
    clear_names(path)?;
    remove_all(path, (0..mark.files.min(FILES_MAX)).map(name))
}

/// Removes the names that workers make and remove in turn.
fn clear_names(path: &Path) -> Result<(), LabError> {
    remove_all(path, (0..super::run::WORKERS_MAX).map(passing_name))
}

fn remove_all(path: &Path, names: impl Iterator<Item = String>) -> Result<(), LabError> {
    for name in names {
        let path = path.join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(LabError::of(&error, "cannot be removed", &path));
            }
            _ => {}
        }
    }
    Ok(())
}

fn open_files(path: &Path, count: u32, writes: bool, direct: bool) -> Result<Vec<File>, LabError> {
    let flags = if direct { libc::O_DIRECT } else { 0 };
    let open = |number: u32| {
        let path = path.join(name(number));
        let file = OpenOptions::new().read(true).write(writes).custom_flags(flags).open(&path);
        file.map_err(|error| match direct && error.raw_os_error() == Some(libc::EINVAL) {
            true => LabError::Failed(format!(
                "{}: the file system does not let the page cache be passed by ({error}); measure with --buffered, or on a file system that has O_DIRECT",
                path.display()
            )),
            false => LabError::of(&error, "cannot be opened", &path),
        })
    };
    (0..count).map(open).collect()
}

impl Directory {
    /// Removes what was made; also the directory itself, if it was made and holds nothing else.
    pub fn remove(&self) -> Result<(), LabError> {
        let mut text = vec![0; self.mark.metadata().map_or(0, |found| found.len() as usize)];
        let read = self.mark.read_exact_at(&mut text, 0);
        read.map_err(|error| LabError::of(&error, "cannot be read", &self.path.join(MARK)))?;
        let mark: Option<Mark> = serde_json::from_slice(&text).ok();
        clear(&self.path, mark.as_ref())?;
        let removed = std::fs::remove_file(self.path.join(MARK));
        removed.map_err(|error| LabError::of(&error, "cannot be removed", &self.path.join(MARK)))?;
        if mark.is_some_and(|mark| mark.made) {
            let _ = std::fs::remove_dir(&self.path);
        }
        Ok(())
    }
}

/// A worker's way to the files, or to their names.
pub struct DirectoryEngine {
    directory: Arc<Directory>,
    /// Looks at, makes and removes names instead of reading and writing.
    names: Option<Names>,
}

struct Names {
    own: PathBuf,
    there: bool,
}

impl DirectoryEngine {
    /// `worker` tells it from those beside it.
    pub fn new(directory: Arc<Directory>, names: bool, worker: u32) -> DirectoryEngine {
        let names = names.then(|| Names { own: directory.path.join(passing_name(worker)), there: false });
        DirectoryEngine { directory, names }
    }
}

impl Directory {
    fn data(&self, access: &Access, buffer: &mut [u8]) -> io::Result<()> {
        let file = &self.files[(access.at / self.file_bytes) as usize];
        match access.write {
            true => file.write_all_at(buffer, access.at % self.file_bytes),
            false => file.read_exact_at(buffer, access.at % self.file_bytes),
        }
    }

    fn name(&self, access: &Access, names: &mut Names) -> io::Result<()> {
        if !access.write {
            let number = (access.at / self.file_bytes) as u32;
            return std::fs::metadata(self.path.join(name(number))).map(drop);
        }
        names.there = !names.there;
        match names.there {
            true => OpenOptions::new().write(true).create_new(true).open(&names.own).map(drop),
            false => std::fs::remove_file(&names.own),
        }
    }
}

impl Direct for DirectoryEngine {
    fn carry_out(&mut self, access: &Access, buffer: &mut [u8]) -> Result<(), String> {
        let done = match &mut self.names {
            Some(names) => self.directory.name(access, names),
            None => self.directory.data(access, buffer),
        };
        done.map_err(|error| error.to_string())
    }
}

impl Drop for DirectoryEngine {
    fn drop(&mut self) {
        if let Some(Names { own, there: true }) = &self.names {
            let _ = std::fs::remove_file(own);
        }
    }
}

#[cfg(test)]
mod tests;
