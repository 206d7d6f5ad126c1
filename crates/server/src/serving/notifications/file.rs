//! A file of events: one message a line, durable before the events are deleted.
//!
//! A file that has grown to [`FILE_MAX`] becomes `NAME.1`, that one `NAME.2`, and so on; the oldest
//! of [`KEPT`] goes. A line that a crash cut off is ended, and its event comes again. Another
//! program, such as logrotate, may take the file away: the next append makes a new one.
//!
//! The name is the operator's, but its folder may be writable for others. A symbolic link, a name
//! that is no regular file, and a file that does not begin as one of events are refused before
//! anything is written.

use std::fs::{File, OpenOptions};
use std::io::{self, Error, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::record::BEGINNINGS;
use crate::failure::READ_ONLY_NEXT;
use crate::node::alarms::is_cut_off;

/// Bytes of a file before the next one begins.
const FILE_MAX: u64 = 64 << 20;
/// Bytes that are read of a file that is there, to tell whether it is one of events.
const BEGINNING_MAX: u64 = 256;
/// Older files that are kept.
const KEPT: u32 = 8;

pub struct EventFile {
    path: PathBuf,
    most: u64,
    /// Device and number of the file whose name the folder has on disk.
    named: Option<(u64, u64)>,
}

impl EventFile {
    pub fn new(path: PathBuf) -> EventFile {
        EventFile::with_limit(path, FILE_MAX)
    }

    pub fn with_limit(path: PathBuf, most: u64) -> EventFile {
        EventFile { path, most, named: None }
    }

    /// The names of the file and of the older ones.
    pub fn paths(path: &Path) -> Vec<PathBuf> {
        std::iter::once(path.to_owned()).chain((1..=KEPT).map(|number| older(path, number))).collect()
    }

    /// Appends lines, and returns when they are durable.
    pub fn append(&mut self, lines: &[String]) -> io::Result<()> {
        let mut file = self.open()?;
        if file.metadata()?.len() >= self.most {
            self.turn()?;
            file = self.open()?;
        }
        let about = file.metadata()?;
        let is_named = about.len() > 0 && self.named == Some((about.dev(), about.ino()));
        let mut text = lines.join("\n");
        text.push('\n');
        if is_cut_off(&mut file)? {
            text.insert(0, '\n');
        }
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        if !is_named {
            self.sync_folder()?;
            self.named = Some((about.dev(), about.ino()));
        }
        Ok(())
    }

    /// Opens or makes the file. Neither a link nor a pipe without a reader is waited for or
    /// followed.
    fn open(&self) -> io::Result<File> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut options = OpenOptions::new();
        options.create(true).read(true).append(true).mode(0o640).custom_flags(flags.bits().cast_signed());
        let refused = |why: &str| Error::new(ErrorKind::InvalidInput, format!("{} {why}", self.path.display()));
        let file = options.open(&self.path).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::LOOP) => refused("is a symbolic link, and none is followed"),
            Some(Errno::ROFS) => {
                Error::new(error.kind(), format!("{}: {error}; {READ_ONLY_NEXT}", self.path.display()))
            }
            _ => Error::new(error.kind(), format!("{}: {error}", self.path.display())),
        })?;
        let about = file.metadata()?;
        if !about.is_file() {
            return Err(refused("is no regular file"));
        }
        if about.len() > 0 {
            let mut beginning = Vec::new();
            (&file).take(BEGINNING_MAX).read_to_end(&mut beginning)?;
            if !begins_with_event(&beginning) {
                return Err(refused("is there and does not begin with an event; name another file"));
            }
        }
        Ok(file)
    }

    fn turn(&mut self) -> io::Result<()> {
        self.named = None;
        for number in (1..KEPT).rev() {
            let from = older(&self.path, number);
            if from.symlink_metadata().is_ok() {
                std::fs::rename(from, older(&self.path, number + 1))?;
            }
        }
        std::fs::rename(&self.path, older(&self.path, 1))
    }

    fn sync_folder(&self) -> io::Result<()> {
        let folder = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    }
}

/// Whether a file is one of events: its first line begins as a message does. Lines that a crash cut
/// off within these few bytes may precede it.
fn begins_with_event(beginning: &[u8]) -> bool {
    for line in beginning.split(|byte| *byte == b'\n') {
        if BEGINNINGS.iter().any(|known| line.starts_with(known.as_bytes())) {
            return true;
        }
        if !BEGINNINGS.iter().any(|known| known.as_bytes().starts_with(line)) {
            return false;
        }
    }
    true
}

fn older(path: &Path, number: u32) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(format!(".{number}"));
    name.into()
}

#[cfg(test)]
mod tests;
