//! Checks: that everything a snapshot needs is there and, on request, that every stored byte is what was written.
//!
//! A chunk that is damaged is marked in the store, so that the next backup which has its content stores it again. Then
//! old snapshots that need it are whole again too.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::compress::Decompressor;
use crate::error::{BackupError, Result};
use crate::references::Ordinals;
use crate::repository::epochs::Epoch;
use crate::repository::trees::Walk;
use crate::repository::{Closed, Dated, Indexed, Repository};
use crate::segment::{Footer, SEGMENT_BYTES_MAX, SegmentId};
use crate::snapshot::{Description, SnapshotId};
use crate::store::{Folder, Name};
use crate::tree::Piece;

/// Faults that are listed. Their number has no limit.
pub const FAULTS_MAX: usize = 1000;

#[derive(Default, Debug)]
pub struct Progress {
    pub segments: AtomicU64,
    pub segments_expected: AtomicU64,
    pub bytes: AtomicU64,
    pub stop: AtomicBool,
}

/// A file or directory of a snapshot that cannot be restored as it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    pub snapshot: SnapshotId,
    pub path: Vec<u8>,
    pub text: String,
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Verified {
    pub snapshots: u64,
    pub files: u64,
    pub segments: u64,
    pub chunks: u64,
    /// Bytes that were read and compared; zero without the data.
    pub bytes: u64,
    /// Segments with damage, with its place.
    pub damaged: Vec<(SegmentId, String)>,
    pub damaged_chunks: u64,
    /// Snapshots that cannot be read at all.
    pub unreadable: Vec<(SnapshotId, String)>,
    /// Files that are affected, and their number.
    pub lost: Vec<Lost>,
    pub lost_files: u64,
}

impl Verified {
    pub fn is_good(&self) -> bool {
        self.damaged.is_empty() && self.unreadable.is_empty() && self.lost_files == 0
    }
}

/// Checks all snapshots. With `data`, reads every segment too.
pub fn run(repository: &Repository, data: bool, workers: usize, progress: &Progress) -> Result<Verified> {
    let mut verified = Verified::default();
    let segments = repository.segments()?;
    verified.segments = segments.len() as u64;
    if data {
        progress.segments_expected.store(segments.len() as u64, Ordering::Relaxed);
        read_all(repository, &segments, workers, progress, &mut verified)?;
    }
    // Condemned segments are there until they are removed.
    let (indexed, loaded) = repository.index(&Epoch::default(), None)?;
    for (segment, text) in loaded.unreadable {
        if !verified.damaged.iter().any(|(known, _)| *known == segment) {
            verified.damaged.push((segment, text));
        }
    }
    verified.chunks = indexed.index().chunks() as u64;
    for Dated { id, .. } in repository.snapshots()? {
        verified.snapshots += 1;
        match repository.snapshot(&id) {
            Ok(snapshot) => check_snapshot(&indexed, &id, &snapshot.description, progress, &mut verified)?,
            Err(BackupError::Missing(_)) => {}
            Err(error @ BackupError::Damaged(_)) => verified.unreadable.push((id, error.to_string())),
            Err(error) => return Err(error),
        }
    }
    Ok(verified)
}

fn check_snapshot(
    indexed: &Indexed,
    id: &SnapshotId,
    description: &Description,
    progress: &Progress,
    verified: &mut Verified,
) -> Result<()> {
    let mut lose = |path: &[u8], text: String| {
        verified.lost_files += 1;
        if verified.lost.len() < FAULTS_MAX {
            verified.lost.push(Lost { snapshot: *id, path: path.to_vec(), text });
        }
    };
    let mut files = 0;
    let mut walk = Walk::new(indexed, description, b"");
    loop {
        if progress.stop.load(Ordering::Relaxed) {
            return Err(BackupError::Stopped);
        }
        let found = match walk.step() {
            Ok(Some(found)) => found,
            Ok(None) => break,
            Err(error @ BackupError::Damaged(_)) => {
                lose(b"", format!("a part of the tree is lost: {error}"));
                continue;
            }
            Err(error) => return Err(error),
        };
        files += 1;
        let pieces = match indexed.pieces(&found.entry.content) {
            Ok(pieces) => pieces,
            Err(error) => {
                lose(&found.path, error.to_string());
                continue;
            }
        };
        let mut offset = 0;
        for piece in &pieces {
            let lost = match piece {
                Piece::Chunk { id, .. } => indexed.find(id).err(),
                Piece::Hole(_) => None,
            };
            if let Some(error) = lost {
                lose(&found.path, format!("its content is lost at byte {offset}: {error}"));
                break;
            }
            offset += piece.length();
        }
    }
    verified.files += files;
    Ok(())
}

/// Reads all segments with several threads, and marks damaged chunks in the store.
fn read_all(
    repository: &Repository,
    segments: &[(SegmentId, u64)],
    workers: usize,
    progress: &Progress,
    verified: &mut Verified,
) -> Result<()> {
    let (next, faults, failure) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(None));
    std::thread::scope(|scope| {
        for _ in 0..workers.max(1).min(segments.len()) {
            scope.spawn(|| {
                while let Some((id, size)) = segments.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let checked = match progress.stop.load(Ordering::Relaxed) {
                        true => Err(BackupError::Stopped),
                        false => check_segment(repository, id),
                    };
                    match checked {
                        Ok(None) => {}
                        Ok(Some(fault)) => faults.lock().unwrap_or_else(PoisonError::into_inner).push((*id, fault)),
                        Err(error) => {
                            failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                            return;
                        }
                    }
                    progress.segments.fetch_add(1, Ordering::Relaxed);
                    progress.bytes.fetch_add(*size, Ordering::Relaxed);
                }
            });
        }
    });
    if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    verified.bytes = progress.bytes.load(Ordering::Relaxed);
    let mut faults: Vec<(SegmentId, Fault)> = faults.into_inner().unwrap_or_else(PoisonError::into_inner);
    faults.sort_by_key(|(id, _)| *id);
    for (id, fault) in faults {
        verified.damaged_chunks += fault.chunks.count() as u64;
        mark(repository, &id, &fault.chunks)?;
        verified.damaged.push((id, fault.text));
    }
    Ok(())
}

struct Fault {
    chunks: Ordinals,
    text: String,
}

/// Reads one segment: its hash, and every chunk.
fn check_segment(repository: &Repository, id: &SegmentId) -> Result<Option<Fault>> {
    let mut bytes = match repository.store.get(&Name::segment(id), SEGMENT_BYTES_MAX) {
        // It was removed meanwhile.
        Err(BackupError::Missing(_)) => return Ok(None),
        bytes => bytes?,
    };
    let whole = SegmentId::of(&bytes) == *id;
    let footer = match Footer::decode(&bytes) {
        Ok(footer) => footer,
        Err(error) => return Ok(Some(Fault { chunks: Ordinals::default(), text: error.to_string() })),
    };
    let (key, mut codec, mut content) = (footer.key(&repository.keys), Decompressor::new()?, Vec::new());
    let mut chunks = Ordinals::default();
    for (ordinal, entry) in footer.entries.iter().enumerate() {
        let range = entry.offset as usize..entry.offset as usize + entry.stored as usize;
        let stored = bytes.get_mut(range).unwrap_or_default();
        let opened = footer.open(&key, ordinal, stored, &mut codec, &mut content);
        if opened.is_err() || repository.keys.id(footer.kind, &content) != entry.id {
            chunks.insert(ordinal);
        }
    }
    Ok((!whole || chunks.count() > 0).then(|| Fault {
        text: match chunks.count() {
            0 => "its hash differs, its chunks are whole".to_owned(),
            count => format!("{count} of {} chunks are damaged", footer.entries.len()),
        },
        chunks,
    }))
}

/// Marks chunks, so that the index leaves them out.
fn mark(repository: &Closed, id: &SegmentId, chunks: &Ordinals) -> Result<()> {
    if chunks.count() == 0 {
        return Ok(());
    }
    let mut bytes = Vec::new();
    chunks.encode(&mut bytes);
    repository.store.replace(&Name::of(Folder::Damaged, &id.0), &bytes)
}

/// Compares every segment with its name, without the key. Gives those that differ.
pub fn scrub(repository: &Closed, progress: &Progress) -> Result<Vec<(SegmentId, String)>> {
    let segments = repository.segments()?;
    progress.segments_expected.store(segments.len() as u64, Ordering::Relaxed);
    let mut damaged = Vec::new();
    for (id, size) in segments {
        if progress.stop.load(Ordering::Relaxed) {
            return Err(BackupError::Stopped);
        }
        match repository.store.get(&Name::segment(&id), SEGMENT_BYTES_MAX) {
            Ok(bytes) if SegmentId::of(&bytes) != id => damaged.push((id, "its hash differs".to_owned())),
            Ok(_) | Err(BackupError::Missing(_)) => {}
            Err(error @ BackupError::Damaged(_)) => damaged.push((id, error.to_string())),
            Err(error) => return Err(error),
        }
        progress.segments.fetch_add(1, Ordering::Relaxed);
        progress.bytes.fetch_add(size, Ordering::Relaxed);
    }
    Ok(damaged)
}

#[cfg(test)]
mod tests;
