//! A file of events: one message a line, durable before the events are deleted.
//!
//! A file that has grown to [`FILE_MAX`] becomes `NAME.1`, that one `NAME.2`, and so on; the oldest of [`KEPT`] goes.
//! A line that a crash cut off is ended, and its event comes again.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes of a file before the next one begins.
const FILE_MAX: u64 = 64 << 20;
/// Older files that are kept.
const KEPT: u32 = 8;

#[derive(Clone)]
pub struct EventFile {
    path: PathBuf,
    most: u64,
}

impl EventFile {
    pub fn new(path: PathBuf) -> EventFile {
        EventFile { path, most: FILE_MAX }
    }

    #[cfg(test)]
    pub fn with_limit(path: PathBuf, most: u64) -> EventFile {
        EventFile { path, most }
    }

    /// Appends lines, and returns when they are durable.
    pub fn append(&self, lines: &[String]) -> io::Result<()> {
        if std::fs::metadata(&self.path).is_ok_and(|data| data.len() >= self.most) {
            self.turn()?;
        }
        let new = !self.path.exists();
        let mut file = OpenOptions::new().create(true).read(true).append(true).mode(0o640).open(&self.path)?;
        let mut text = lines.join("\n");
        text.push('\n');
        if is_cut_off(&mut file)? {
            text.insert(0, '\n');
        }
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        if new { self.sync_folder() } else { Ok(()) }
    }

    fn turn(&self) -> io::Result<()> {
        for number in (1..KEPT).rev() {
            let from = self.older(number);
            if from.exists() {
                std::fs::rename(from, self.older(number + 1))?;
            }
        }
        std::fs::rename(&self.path, self.older(1))?;
        self.sync_folder()
    }

    fn older(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    fn sync_folder(&self) -> io::Result<()> {
        let folder = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    }
}

fn is_cut_off(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}
