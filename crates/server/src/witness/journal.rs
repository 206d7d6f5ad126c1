//! What a witness keeps of one store: a line of JSON for each countersigned head, and one for each
//! contradiction.
//!
//! A line is durable before it counts. A process that is killed while it writes leaves a line
//! without an end: it was not answered, and the next start cuts it off. Any other line that cannot
//! be read, or that this witness did not sign, stops the start: the file was changed.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use stele_archive::SignedHead;

use super::Countersigned;
use crate::failure::{Failure, Kind, Outcome, io_failure};

/// Contradictions that are kept of a store. The first ones prove the fork; more of them prove
/// nothing more.
const FORKS_MAX: usize = 1000;

pub struct Journal {
    path: PathBuf,
    file: File,
    last: Option<Countersigned>,
    forks: File,
    forks_path: PathBuf,
    fork_lines: usize,
    /// The last contradiction: the same head sent again is not kept again.
    last_fork: Option<SignedHead>,
}

/// A contradiction: two heads that the same store signed.
#[derive(Serialize)]
struct Fork<'a> {
    found: &'a str,
    why: &'a str,
    countersigned: Option<&'a Countersigned>,
    head: &'a SignedHead,
}

fn open(path: &Path) -> Outcome<File> {
    let options = OpenOptions::new().read(true).append(true).create(true).mode(0o644).open(path);
    options.map_err(|error| io_failure("open", path, &error))
}

/// Calls `each` with every whole line, and cuts off what follows the last one.
fn lines(file: &File, path: &Path, mut each: impl FnMut(usize, &str) -> Outcome<()>) -> Outcome<()> {
    let failed = |error: std::io::Error| io_failure("read", path, &error);
    let mut reader = BufReader::new(file);
    let (mut whole, mut number, mut line) = (0_u64, 0, String::new());
    loop {
        line.clear();
        let read = reader.read_line(&mut line).map_err(failed)?;
        if !line.ends_with('\n') {
            break;
        }
        number += 1;
        each(number, line.trim_end())?;
        whole += read as u64;
    }
    file.set_len(whole).and_then(|()| file.sync_all()).map_err(|error| io_failure("shorten", path, &error))
}

impl Journal {
    /// Opens what is kept of a store, and checks it with the key of this witness.
    pub fn open(dir: &Path, store: &str, witness: &[u8; 32]) -> Outcome<Journal> {
        let (path, forks_path) = (dir.join(format!("{store}.heads")), dir.join(format!("{store}.forks")));
        let (file, forks) = (open(&path)?, open(&forks_path)?);
        let mut last: Option<Countersigned> = None;
        lines(&file, &path, |number, line| {
            let read: Result<Countersigned, String> = serde_json::from_str(line).map_err(|error| error.to_string());
            let read = read.and_then(|read| read.verify(witness).map(|()| read)).map_err(|finding| {
                Failure::new(Kind::Damaged, format!("{}, line {number}: {finding}", path.display())).next(
                    "keep this directory as it is; begin with a new directory and a new key, and look who changed it",
                )
            })?;
            last = Some(read);
            Ok(())
        })?;
        let mut fork_lines = 0;
        lines(&forks, &forks_path, |number, _| {
            fork_lines = number;
            Ok(())
        })?;
        let folder = File::open(dir).and_then(|dir| dir.sync_all());
        folder.map_err(|error| io_failure("make durable", dir, &error))?;
        Ok(Journal { path, file, last, forks, forks_path, fork_lines, last_fork: None })
    }

    pub fn last(&self) -> Option<&Countersigned> {
        self.last.as_ref()
    }

    pub fn forks(&self) -> usize {
        self.fork_lines
    }

    /// Keeps a countersigned head. It may leave once this returns. After a failure the line is
    /// taken back.
    pub fn keep(&mut self, made: &Countersigned) -> Outcome<()> {
        append(&mut self.file, &self.path, made)?;
        self.last = Some(made.clone());
        Ok(())
    }

    /// Keeps a head that contradicts the last one.
    pub fn keep_fork(&mut self, found: &str, why: &str, head: &SignedHead) -> Outcome<()> {
        if self.fork_lines >= FORKS_MAX || self.last_fork.as_ref() == Some(head) {
            return Ok(());
        }
        let fork = Fork { found, why, countersigned: self.last.as_ref(), head };
        append(&mut self.forks, &self.forks_path, &fork)?;
        self.fork_lines += 1;
        self.last_fork = Some(head.clone());
        Ok(())
    }
}

fn append(file: &mut File, path: &Path, value: &impl Serialize) -> Outcome<()> {
    let text = serde_json::to_string(value).map_err(|error| Failure::failed(format!("cannot write JSON: {error}")))?;
    let end = file.seek(SeekFrom::End(0)).map_err(|error| io_failure("write", path, &error))?;
    let written = file.write_all(format!("{text}\n").as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|error| {
        // A half line would join the next one.
        let _ = file.set_len(end);
        io_failure("write", path, &error)
    })
}
