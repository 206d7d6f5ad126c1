//! The file itself: its lines, written one after another and read with their digest.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{CellRecord, Head, VERSION};
use crate::error::LabError;
use crate::job::OfPart;

/// What tells a file of a later format from a damaged one: these fields keep their names.
#[derive(Deserialize)]
struct Stamp {
    line: String,
    version: u32,
}

impl Stamp {
    /// The format of a head that a later version wrote.
    fn later(text: &[u8]) -> Option<u32> {
        let stamp: Stamp = serde_json::from_slice(text).ok()?;
        (stamp.line == "head" && stamp.version > VERSION).then_some(stamp.version)
    }
}

/// Above all times and rates of a round.
const FIGURE_MAX: f64 = 1e18;

/// What each file begins with.
const HEAD_BEGINS: &[u8] = b"{\"line\":\"head\"";

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
pub(super) enum Line {
    Head(Box<Head>),
    Cell(Box<CellRecord>),
    /// A cell that ended before its time: the last one of a run, which measures it again when it
    /// goes on.
    Partial(Box<CellRecord>),
    End {
        blake3: String,
    },
}

/// A file that was read.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub head: Head,
    pub cells: Vec<CellRecord>,
    /// Of all lines; none where the run did not come to its end.
    pub digest: Option<String>,
}

/// A file that is being written: each cell is on the drive before the next one runs. It is locked
/// meanwhile, since lines of two runs in one file are the results of neither.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    file: File,
    hasher: blake3::Hasher,
    /// Bytes of the whole lines so far, where a draft stands behind them.
    before_draft: Option<u64>,
}

impl Recorder {
    pub fn create(path: &Path, head: Head) -> Result<Recorder, LabError> {
        let file = OpenOptions::new().write(true).create_new(true).open(path);
        let file = file.map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => exists(path),
            _ => LabError::of(&error, "cannot be created", path),
        })?;
        hold(&file, path)?;
        let mut recorder = Recorder { path: path.to_owned(), file, hasher: blake3::Hasher::new(), before_draft: None };
        if let Err(error) = recorder.line(&Line::Head(Box::new(head))) {
            // Half a head is of no use, and would be in the way.
            let _ = std::fs::remove_file(path);
            return Err(error);
        }
        Ok(recorder)
    }

    /// There is a file whose head was never written whole: nothing of it is lost when it is made
    /// anew.
    pub fn never_began(path: &Path) -> bool {
        let mut begin = Vec::new();
        let read = File::open(path).and_then(|file| file.take(HEAD_BEGINS.len() as u64).read_to_end(&mut begin));
        // Of another file, which may be as large as a drive, no more is read.
        read.is_ok()
            && HEAD_BEGINS.starts_with(&begin)
            && std::fs::read(path).is_ok_and(|bytes| !bytes.contains(&b'\n'))
    }

    /// Refuses a file that another run writes.
    pub fn admit(path: &Path) -> Result<(), LabError> {
        let file = File::open(path).map_err(|error| LabError::of(&error, "cannot be read", path))?;
        hold(&file, path)?;
        let _ = file.unlock();
        Ok(())
    }

    /// Goes on behind what an unfinished file holds; a last line that was cut off is taken away.
    pub fn resume(path: &Path) -> Result<(Recorder, Recorded), LabError> {
        let cannot = |error: std::io::Error| LabError::of(&error, "cannot be continued", path);
        let file = OpenOptions::new().append(true).open(path).map_err(cannot)?;
        // Before it is read: another run may write it.
        hold(&file, path)?;
        let (recorded, _, good) = scan(path)?;
        if recorded.digest.is_some() {
            return Err(ended(path));
        }
        let bytes = std::fs::read(path).map_err(cannot)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(bytes.get(..good as usize).unwrap_or_default());
        file.set_len(good).map_err(cannot)?;
        Ok((Recorder { path: path.to_owned(), file, hasher, before_draft: None }, recorded))
    }

    pub fn cell(&mut self, cell: &CellRecord) -> Result<(), LabError> {
        self.line(&Line::Cell(Box::new(cell.clone())))
    }

    /// Keeps what was measured of a cell while more of it is still found out, as when its target is
    /// read back. The file holds a partial cell until the next line takes its place. Crash points:
    ///
    /// 1. While the draft stands: the file has the measurement, and a run that goes on measures the
    ///    cell again.
    /// 2. Between the cut and the line that follows: the file ends behind the cell before.
    pub fn draft(&mut self, cell: &CellRecord) -> Result<(), LabError> {
        self.cut_draft()?;
        let length = self.file.metadata().map_err(|error| LabError::of(&error, "cannot be written", &self.path))?.len();
        self.before_draft = Some(length);
        let text = self.text(&Line::Partial(Box::new(cell.clone())))?;
        self.write(&text)
    }

    fn cut_draft(&mut self) -> Result<(), LabError> {
        let Some(length) = self.before_draft.take() else { return Ok(()) };
        let cut = self.file.set_len(length).and_then(|()| self.file.seek(SeekFrom::Start(length)));
        cut.map(drop).map_err(|error| LabError::of(&error, "cannot be written", &self.path))
    }

    /// What was counted of a cell that was stopped, or whose target failed. Nothing follows it.
    pub fn partial(mut self, cell: &CellRecord) -> Result<(), LabError> {
        self.line(&Line::Partial(Box::new(cell.clone())))
    }

    pub fn finish(mut self) -> Result<String, LabError> {
        let blake3 = self.hasher.finalize().to_hex().to_string();
        self.line(&Line::End { blake3: blake3.clone() })?;
        Ok(blake3)
    }

    fn line(&mut self, line: &Line) -> Result<(), LabError> {
        self.cut_draft()?;
        let text = self.text(line)?;
        self.hasher.update(text.as_bytes());
        self.write(&text)
    }

    fn text(&self, line: &Line) -> Result<String, LabError> {
        let text = serde_json::to_string(line)
            .map_err(|error| LabError::Failed(format!("{}: cannot be written: {error}", self.path.display())))?;
        Ok(text + "\n")
    }

    fn write(&mut self, text: &str) -> Result<(), LabError> {
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| LabError::of(&error, "cannot be written", &self.path))
    }
}

/// A process that starts has the open files of its parent until its program runs, so closing alone
/// may let go of the lock later.
impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// Locks the file until it is closed. Where the file system has no locks it is used without.
fn hold(file: &File, path: &Path) -> Result<(), LabError> {
    match file.try_lock() {
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(LabError::Refused(format!(
            "{}: another measurement writes into it; wait for its end, or name another file",
            path.display()
        ))),
    }
}

/// A new file is not written over one that is there.
pub fn exists(path: &Path) -> LabError {
    LabError::Refused(format!("{}: exists already; name another file, or go on with it with --resume", path.display()))
}

/// Nothing goes on behind the end of a file.
pub fn ended(path: &Path) -> LabError {
    LabError::Refused(format!("{}: came to its end already", path.display()))
}

/// Reads a file, and compares its digest.
pub fn read(path: &Path) -> Result<Recorded, LabError> {
    scan(path).map(whole)
}

/// What was read, a cell that ended before its time, and how many bytes belong to whole lines
/// before that.
type Scanned = (Recorded, Option<CellRecord>, u64);

/// With the cell that ended before its time behind the others.
fn whole((mut recorded, partial, _): Scanned) -> Recorded {
    recorded.cells.extend(partial);
    recorded
}

fn scan(path: &Path) -> Result<Scanned, LabError> {
    let cannot = |error: std::io::Error| LabError::of(&error, "cannot be read", path);
    scan_from(BufReader::new(File::open(path).map_err(cannot)?), path)
}

/// From bytes that stand in for a file.
pub fn read_from(reader: impl BufRead) -> Result<Recorded, LabError> {
    scan_from(reader, Path::new("the bytes given")).map(whole)
}

/// From the first line of a file, which errors name.
pub fn head_from(line: &[u8], path: &Path) -> Result<Head, LabError> {
    scan_from(line, path).map(|(recorded, ..)| recorded.head)
}

fn scan_from(mut reader: impl BufRead, path: &Path) -> Result<Scanned, LabError> {
    let cannot = |error: std::io::Error| LabError::of(&error, "cannot be read", path);
    let said = |number: usize, why: &str| format!("{}: line {number}: {why}", path.display());
    let bad = |number: usize, why: &str| LabError::Failed(said(number, why));
    let damaged = |number: usize, why: &str| LabError::Damaged(said(number, why));
    let (mut head, mut cells, mut partial, mut digest) = (None, Vec::new(), None, None);
    let mut hasher = blake3::Hasher::new();
    let (mut text, mut good) = (Vec::new(), 0);
    // Something else may have no line break for as long as a drive is.
    if reader.fill_buf().map_err(cannot)?.first().is_some_and(|first| *first != b'{') {
        return Err(bad(1, "is not of a .lab file, whose lines begin with {"));
    }
    for number in 1.. {
        text.clear();
        let length = reader.read_until(b'\n', &mut text).map_err(cannot)?;
        if length == 0 || text.last() != Some(&b'\n') {
            break;
        }
        if digest.is_some() || partial.is_some() {
            return Err(damaged(number, "there is something behind the end"));
        }
        // Before its other fields are read: a later format may have others.
        if number == 1
            && let Some(later) = Stamp::later(&text)
        {
            return Err(LabError::Refused(format!(
                "{}: line 1: format {later} is not known; {VERSION} is: read it with the version of Stele that wrote it",
                path.display()
            )));
        }
        let line = serde_json::from_slice(&text)
            .map_err(|error| bad(number, &format!("is not of a .lab file: {}", json_cause(&error))))?;
        match line {
            Line::Head(found) if number == 1 && found.version == VERSION => head = Some(*found),
            Line::Head(found) if number == 1 => {
                return Err(bad(number, &format!("format {} is not known; {VERSION} is", found.version)));
            }
            Line::Head(_) => return Err(damaged(number, "a second head")),
            Line::Cell(cell) if is_sound(&cell) => cells.push(*cell),
            Line::Partial(cell) if is_sound(&cell) => {
                partial = Some(*cell);
                continue;
            }
            Line::Cell(_) | Line::Partial(_) => {
                return Err(damaged(number, "a histogram or a round contradicts itself"));
            }
            Line::End { blake3 } => {
                if blake3 != hasher.finalize().to_hex().as_str() {
                    return Err(damaged(
                        number,
                        "the digest is not that of the lines before: the file was changed, or is damaged",
                    ));
                }
                digest = Some(blake3);
            }
        }
        hasher.update(&text);
        good += length as u64;
    }
    let head: Head = head.ok_or_else(|| bad(1, "is not the head of a .lab file"))?;
    // Files of a former version say it of the whole job, and count bytes that no name has.
    if matches!(head.job.workload.of, Some(OfPart::Names)) {
        cells.iter_mut().for_each(CellRecord::moved_nothing);
    }
    Ok((Recorded { head, cells, digest }, partial, good))
}

/// The cause without a line of its own: each line of the file is parsed alone.
fn json_cause(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.strip_suffix(&format!(" at line {} column {}", error.line(), error.column())) {
        Some(cause) => format!("column {}: {cause}", error.column()),
        None => text,
    }
}

/// Each histogram by itself, and all counts of a cell together, which reports add up. Times and
/// rates are none below 0, and none that cannot be added up.
fn is_sound(cell: &CellRecord) -> bool {
    let rounds = cell.runs.iter().flat_map(|run| &run.rounds);
    let mut figures =
        rounds.clone().flat_map(|round| [round.seconds, round.rate, round.read_bytes, round.written_bytes]);
    if !figures.all(|figure| (0.0..=FIGURE_MAX).contains(&figure)) {
        return false;
    }
    let mut count = 0u64;
    let of_rounds = rounds.flat_map(|round| [Some(&round.read), Some(&round.write), round.late.as_ref()]).flatten();
    for histogram in of_rounds.chain(cell.runs.iter().map(|run| &run.unanswered)) {
        let Some(found) = histogram.histogram() else { return false };
        match count.checked_add(found.count()) {
            Some(sum) => count = sum,
            None => return false,
        }
    }
    true
}
