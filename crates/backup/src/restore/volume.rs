//! Restoring a volume into a volume that is empty: chunks are written where they belong, and zeros
//! are not written, so what owned no space owns none again.
//!
//! The parts of the volume are restored one after another, and within a part in the order of the
//! segments. What is lost stays zeros, and is listed, and so is what the backup could not read.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::fetch::{self, Sink};
use super::{Planned, RestoreProgress, lock};
use crate::backup::volume::{find, list};
use crate::crypt::Kind;
use crate::error::{BackupError, Result};
use crate::repository::Indexed;
use crate::repository::trees::Walk;
use crate::snapshot::{Description, ISSUES_MAX, Issue};
use crate::tree::{Content, Origin, Piece};

/// Zeros are left out in units of this length.
const BLOCK: usize = 4096;

/// A volume to restore into; all of it reads as zeros.
pub trait VolumeWriter: Sync {
    fn write(&self, at: u64, content: &[u8]) -> Result<()>;

    fn read(&self, at: u64, into: &mut [u8]) -> Result<()>;
}

/// The volume of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedVolume {
    pub path: Vec<u8>,
    pub size: u64,
    pub origin: Origin,
    /// What the backup could not read: zeros in the snapshot.
    pub problems: u64,
    pub issues: Vec<Issue>,
    content: Content,
}

/// The outcome.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RestoredVolume {
    /// Bytes that were written; the others are zeros.
    pub written: u64,
    pub problems: u64,
    pub issues: Vec<Issue>,
}

/// The volume at this path, or with an empty path the only one of the snapshot.
pub fn select(indexed: &Indexed, description: &Description, within: &[u8]) -> Result<SavedVolume> {
    let found = match within.is_empty() {
        true => find(indexed, description)?,
        false => Walk::new(indexed, description, within).seek(within)?.map(|entry| (within.to_vec(), entry)),
    };
    let (path, entry) = found.ok_or_else(|| BackupError::Missing("the snapshot has no such volume".to_owned()))?;
    match &entry.content {
        Content::File { size, volume: Some(origin), .. } => {
            let (problems, issues) = (description.problems, description.issues.clone());
            Ok(SavedVolume {
                path,
                size: *size,
                origin: (**origin).clone(),
                problems,
                issues,
                content: entry.content.clone(),
            })
        }
        _ => Err(BackupError::Invalid(format!("/{} is no volume", String::from_utf8_lossy(&path)))),
    }
}

struct Target<'a> {
    saved: &'a SavedVolume,
    writer: &'a dyn VolumeWriter,
    progress: &'a RestoreProgress,
    written: AtomicU64,
    issues: Mutex<(u64, Vec<Issue>)>,
}

impl Sink for Target<'_> {
    fn write(&self, planned: &Planned, content: &[u8]) -> Result<()> {
        if planned.offset.saturating_add(content.len() as u64) > self.saved.size {
            return Err(BackupError::damaged("a chunk lies behind the end of the volume"));
        }
        let mut at = 0;
        for (is_data, run) in runs(content) {
            if is_data {
                self.writer.write(planned.offset + at, run)?;
                self.written.fetch_add(run.len() as u64, Ordering::Relaxed);
            }
            at += run.len() as u64;
        }
        self.progress.bytes.fetch_add(content.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn lose(&self, group: &[Planned], error: &BackupError) -> Result<()> {
        group.iter().for_each(|planned| self.issue(fetch::lost(planned.offset, error)));
        Ok(())
    }

    fn check(&self) -> Result<()> {
        self.progress.check()
    }
}

impl Target<'_> {
    fn issue(&self, text: String) {
        let (count, issues) = &mut *lock(&self.issues);
        *count += 1;
        if issues.len() < ISSUES_MAX {
            issues.push(Issue { path: self.saved.path.clone(), text });
        }
    }
}

/// Runs of blocks that are all zeros or not, the latter marked.
fn runs(content: &[u8]) -> Vec<(bool, &[u8])> {
    let is_data = |block: &[u8]| block.iter().any(|byte| *byte != 0);
    let (mut runs, mut from) = (Vec::new(), 0);
    let states: Vec<bool> = content.chunks(BLOCK).map(is_data).collect();
    for same in states.chunk_by(|a, b| a == b) {
        let to = content.len().min(from + same.len() * BLOCK);
        if let (Some(state), Some(run)) = (same.first(), content.get(from..to)) {
            runs.push((*state, run));
        }
        from = to;
    }
    runs
}

/// Writes the volume. With `verify`, all of it is read again and compared with the chunks.
pub fn run(
    indexed: &Indexed,
    saved: &SavedVolume,
    writer: &dyn VolumeWriter,
    workers: usize,
    verify: bool,
    progress: &RestoreProgress,
) -> Result<RestoredVolume> {
    progress.bytes_expected.store(saved.size, Ordering::Relaxed);
    let (written, issues) = (AtomicU64::new(0), Mutex::new((saved.problems, saved.issues.clone())));
    let target = Target { saved, writer, progress, written, issues };
    let lists = if let Content::File { lists, .. } = &saved.content { lists.len().max(1) } else { 1 };
    let mut from = 0;
    for number in 0..lists {
        progress.check()?;
        let pieces = list(indexed, &saved.content, number)?;
        let (mut planned, mut offset) = (Vec::new(), from);
        for piece in &pieces {
            match piece {
                Piece::Chunk { id, .. } => match indexed.find_any(id) {
                    Ok(location) => planned.push(Planned { location, file: 0, offset }),
                    Err(error @ BackupError::Damaged(_)) => {
                        target.issue(fetch::lost(offset, &error));
                    }
                    Err(error) => return Err(error),
                },
                Piece::Hole(length) => {
                    progress.bytes.fetch_add(*length, Ordering::Relaxed);
                }
            }
            offset = offset.saturating_add(piece.length());
        }
        fetch::all(indexed, planned, workers, &target)?;
        if verify {
            compare(indexed, &target, &pieces, from)?;
        }
        from = offset;
    }
    if from != saved.size {
        return Err(BackupError::damaged("the pieces of a volume do not add up to its size"));
    }
    let Target { written, issues, .. } = target;
    let (problems, issues) = issues.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok(RestoredVolume { written: written.into_inner(), problems, issues })
}

/// Reads what was written, and compares it with the ids of the chunks.
fn compare(indexed: &Indexed, target: &Target<'_>, pieces: &[Piece], from: u64) -> Result<()> {
    let (mut at, mut buffer) = (from, Vec::new());
    for piece in pieces {
        target.progress.check()?;
        if let Piece::Chunk { id, length } = piece {
            buffer.resize(*length as usize, 0);
            target.writer.read(at, &mut buffer)?;
            if indexed.keys.id(Kind::Content, &buffer) != *id {
                target.issue(format!("its content at byte {at} differs from that of the snapshot"));
            }
        }
        at = at.saturating_add(piece.length());
    }
    Ok(())
}
