//! Checks: that everything a snapshot needs is there and, on request, that every stored byte is what was written.
//!
//! A chunk that is damaged is marked in the store, so that the next backup which has its content stores it again. Then
//! old snapshots that need it are whole again too. A mark goes when its segment is found whole. Of a segment whose
//! footer is lost, all chunks are marked.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::compress::Decompressor;
use crate::error::{BackupError, Result};
use crate::references::Ordinals;
use crate::repository::epochs::Epoch;
use crate::repository::footers::{damaged, mark, read_tail, unmark};
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
                        false => check_segment(repository, id, *size),
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
    let faults: BTreeMap<SegmentId, Fault> =
        faults.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect();
    // Marks that an earlier check left at segments or chunks that are whole go, or restores would shun them for ever.
    let marked = damaged(&*repository.store)?;
    for (id, _) in segments {
        let found = faults.get(id).map(|fault| &fault.chunks);
        match found.filter(|chunks| chunks.count() > 0) {
            Some(chunks) => mark(&*repository.store, id, chunks)?,
            None if marked.get(id).is_some_and(|chunks| chunks.count() > 0) => unmark(&*repository.store, id)?,
            None => {}
        }
    }
    for (id, fault) in faults {
        verified.damaged_chunks += fault.count;
        verified.damaged.push((id, fault.text));
    }
    Ok(())
}

struct Fault {
    /// The chunks to mark.
    chunks: Ordinals,
    /// Those of them that are known to be damaged.
    count: u64,
    text: String,
}

/// Reads one segment: its hash, and every chunk.
fn check_segment(repository: &Repository, id: &SegmentId, size: u64) -> Result<Option<Fault>> {
    let (store, name) = (&*repository.store, Name::segment(id));
    let whole = match store.get(&name, SEGMENT_BYTES_MAX) {
        // It was removed meanwhile.
        Err(BackupError::Missing(_)) => return Ok(None),
        // The drive cannot read all of it. Its chunks are read one by one.
        Err(BackupError::Damaged(_)) => None,
        bytes => Some(bytes?),
    };
    let footer = match &whole {
        Some(bytes) => Footer::decode(bytes),
        None => read_tail(store, id, size).and_then(|tail| Footer::decode(&tail)),
    };
    let footer = match footer {
        Ok(footer) => footer,
        Err(BackupError::Missing(_)) => return Ok(None),
        // Which chunks it has is lost, and so are all of them.
        Err(BackupError::Damaged(text)) => return Ok(Some(Fault { chunks: Ordinals::all(), count: 0, text })),
        Err(error) => return Err(error),
    };
    let (key, mut codec, mut content) = (footer.key(&repository.keys), Decompressor::new()?, Vec::new());
    let (mut chunks, mut count) = (Ordinals::default(), 0);
    for (ordinal, entry) in footer.entries.iter().enumerate() {
        let (from, to) = (u64::from(entry.offset), u64::from(entry.offset) + u64::from(entry.stored));
        let stored = match &whole {
            Some(bytes) => Ok(bytes.get(from as usize..to as usize).unwrap_or_default().to_vec()),
            None => store.get_range(&name, from..to),
        };
        let opened = match stored {
            Ok(mut stored) => footer.open(&key, ordinal, &mut stored, &mut codec, &mut content),
            Err(BackupError::Missing(_)) => return Ok(None),
            Err(error @ BackupError::Damaged(_)) => Err(error),
            Err(error) => return Err(error),
        };
        if opened.is_err() || repository.keys.id(footer.kind, &content) != entry.id {
            chunks.insert(ordinal);
            count += 1;
        }
    }
    let text = match (&whole, count) {
        (Some(bytes), 0) if SegmentId::of(bytes) == *id => return Ok(None),
        (Some(_), 0) => "its hash differs, its chunks are whole".to_owned(),
        (None, 0) => "a part of it cannot be read, its chunks are whole".to_owned(),
        (_, count) => format!("{count} of {} chunks are damaged", footer.entries.len()),
    };
    Ok(Some(Fault { chunks, count, text }))
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
