//! A volume of an array: cells of equal length, of which only those are read that changed since the
//! base.
//!
//! The base is the snapshot of the array that an earlier backup of the same volume was made from.
//! The array knows by its map which stripes were written since. A cell without such a stripe has
//! the chunk that the earlier backup has for it. A cell that owns no space is a hole, and is not
//! read either. Everything is read if there is no base, and a cell is read if its chunk is not
//! found or its place is in doubt. So a lost base costs time, and never a wrong content.
//!
//! The lists of pieces have the cells of a fixed part of the volume each. A part that did not
//! change has its old list, and the writer holds one list at a time.
//!
//! A part that the array cannot read becomes zeros and is listed, with its bytes. No later backup
//! takes such a snapshot as its base: the zeros would pass for content that did not change.
//!
//! The caller removes the base when [`confirm`] has read the new snapshot and its segments back,
//! and if it has no such part.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::{BackupProgress, Job, Tree, collect, lock, read};
use crate::codec::Decoder;
use crate::crypt::{ChunkId, Kind};
use crate::error::{BackupError, Result};
use crate::index::Gathered;
use crate::repository::Indexed;
use crate::repository::epochs::Session;
use crate::repository::trees::Walk;
use crate::segment::{SEGMENT_BYTES_MAX, SegmentId};
use crate::snapshot::{Description, ISSUES_MAX, Snapshot, SnapshotId};
use crate::store::Name;
use crate::tree::{
    Content, Entry, LISTS_MAX, Metadata, NAME_MAX, Origin, PIECES_MAX, Piece, Stamp, decode_pieces, encode_pieces,
    is_name, join,
};

/// The directory of volumes in a tree.
pub const FOLDER: &[u8] = b"stele-volumes";
/// Bytes of a cell, unless the volume is so large that a file may not have so many.
const CELL: u64 = 256 << 10;
const CELL_MAX: u64 = crate::chunker::CHUNK_MAX as u64;
/// The shortest part of a cell that is tried alone.
const BLOCK: u64 = 4096;
/// Earlier backups that are asked for their base.
const BASES_MAX: usize = 8;
/// Threads that read segments back, each of which holds one.
const READERS: usize = 4;

/// The snapshot of the array that is saved.
pub trait VolumeReader: Sync {
    /// Bytes; a multiple of the block of 4096.
    fn size(&self) -> u64;

    /// Where the snapshot comes from, with any length of cells.
    fn origin(&self) -> Origin;

    /// Whether the array still has the snapshot of an earlier backup, of the same volume.
    fn has_base(&self, base: &Origin) -> Result<bool>;

    /// Runs of the range by length, in order and without gaps. True: it may have changed since the
    /// base, or without a base it owns space. False: its content is that of the base, or without a
    /// base zeros.
    fn runs(&self, at: u64, length: u64, since: Option<&Origin>) -> Result<Vec<(u64, bool)>>;

    /// [`BackupError::Damaged`] says that a part of the range cannot be read; every other error
    /// ends the backup.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<()>;
}

/// Bytes of a volume by what a backup did with them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Figures {
    pub read: u64,
    /// Of them: what could not be read. The snapshot has zeros there.
    pub lost: u64,
    /// Taken from the earlier backup without reading.
    pub unchanged: u64,
    /// Space that the volume does not own, and zeros.
    pub holes: u64,
}

/// An earlier backup whose snapshot the array still has.
pub struct Base {
    pub snapshot: SnapshotId,
    pub description: Description,
    origin: Origin,
    content: Content,
}

/// The path of a volume in a tree.
pub fn path(name: &str) -> Result<Vec<u8>> {
    if !is_name(name.as_bytes()) || name.len() > NAME_MAX {
        return Err(BackupError::Invalid(format!(
            "a volume with the name '{name}' cannot be saved: it is no file name"
        )));
    }
    Ok(join(FOLDER, name.as_bytes()))
}

/// Bytes of a cell of a volume of this size.
fn cell_of(size: u64) -> Result<u64> {
    let mut cell = CELL;
    while size.div_ceil(cell) > (PIECES_MAX * LISTS_MAX) as u64 {
        cell *= 2;
    }
    if cell > CELL_MAX {
        return Err(BackupError::Invalid(format!("a volume of {size} bytes is too large for one file")));
    }
    Ok(cell)
}

/// The latest backup of the volume whose snapshot the array still has.
pub fn find_base(indexed: &Indexed, paths: &[Vec<u8>], host: &str, reader: &dyn VolumeReader) -> Result<Option<Base>> {
    let mut asked = 0;
    for dated in indexed.snapshots()?.into_iter().rev() {
        let description = match indexed.snapshot(&dated.id) {
            Ok(Snapshot { description, .. }) => description,
            Err(BackupError::Damaged(_) | BackupError::Newer(_) | BackupError::Missing(_)) => continue,
            Err(error) => return Err(error),
        };
        if description.host != host || description.paths != paths || !description.has_volume || description.problems > 0
        {
            continue;
        }
        if let Some((_, Entry { content, .. })) = find(indexed, &description).ok().flatten()
            && let Content::File { volume: Some(origin), .. } = &content
            && reader.has_base(origin)?
        {
            let origin = (**origin).clone();
            return Ok(Some(Base { snapshot: dated.id, description, origin, content }));
        }
        asked += 1;
        if asked == BASES_MAX {
            break;
        }
    }
    Ok(None)
}

/// The first volume of a snapshot, with its path.
pub fn find(indexed: &Indexed, description: &Description) -> Result<Option<(Vec<u8>, Entry)>> {
    let mut walk = Walk::new(indexed, description, b"");
    while let Some(found) = walk.step()? {
        if matches!(found.entry.content, Content::File { volume: Some(_), .. }) {
            return Ok(Some((found.path, found.entry)));
        }
    }
    Ok(None)
}

/// What becomes of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cell {
    Kept(Piece),
    Hole,
    Read,
}

/// A part of the volume with one list of pieces.
struct Part {
    from: u64,
    length: u64,
    cell: u64,
}

impl Part {
    fn cells(&self) -> usize {
        self.length.div_ceil(self.cell) as usize
    }

    /// The offset in the part and the length of a cell.
    fn place(&self, number: usize) -> (u64, u64) {
        let at = number as u64 * self.cell;
        (at, self.cell.min(self.length - at))
    }

    /// Which cells are touched by runs that are true.
    fn marks(&self, runs: &[(u64, bool)]) -> Result<Vec<bool>> {
        let (mut marks, mut at) = (vec![false; self.cells()], 0_u64);
        for (length, is) in runs {
            let end = at.saturating_add(*length);
            if *is && *length > 0 {
                let touched = (at / self.cell) as usize..end.div_ceil(self.cell) as usize;
                marks.get_mut(touched).ok_or_else(too_long)?.fill(true);
            }
            at = end;
        }
        if at == self.length { Ok(marks) } else { Err(too_long()) }
    }

    /// The pieces of an earlier backup, cell by cell. None: they do not lie on the cells of this
    /// one.
    fn known(&self, pieces: &[Piece]) -> Vec<Option<Piece>> {
        let (mut known, mut at) = (vec![None; self.cells()], 0_u64);
        for piece in pieces {
            let end = at.saturating_add(piece.length());
            let mut number = at.div_ceil(self.cell) as usize;
            while number < known.len() {
                let (from, length) = self.place(number);
                if from + length > end {
                    break;
                }
                let whole = match piece {
                    Piece::Chunk { .. } => (from == at && from + length == end).then_some(*piece),
                    Piece::Hole(_) => Some(Piece::Hole(length)),
                };
                if let Some(cell) = known.get_mut(number) {
                    *cell = whole;
                }
                number += 1;
            }
            at = end;
        }
        known
    }
}

fn too_long() -> BackupError {
    BackupError::Failed("the array described another range than it was asked for".to_owned())
}

/// Saves the snapshot as the only file of a tree.
pub(super) fn save(
    job: &Job<'_>,
    name: &str,
    reader: &dyn VolumeReader,
    base: Option<&Base>,
    session: &Session,
) -> Result<(Tree, Figures)> {
    let size = reader.size();
    let cell = cell_of(size)?;
    // Cells of another length lie on other places.
    let base = base.filter(|base| base.origin.cell == cell);
    let origin = Origin { cell, ..reader.origin() };
    let stamp = Stamp { seconds: origin.made.min(i64::MAX as u64) as i64, nanos: 0 };
    let whole = Metadata { mode: 0o600, modified: stamp, changed: stamp, links: 1, ..Metadata::default() };
    let mut tree = collect::Collector::new(job)?;
    let folder = Metadata { mode: 0o700, ..whole.clone() };
    tree.add(0, Entry { name: FOLDER.to_vec(), metadata: folder, content: Content::Directory })?;
    let (mut figures, mut lists, mut pieces) = (Figures::default(), Vec::new(), Vec::new());
    let (span, path) = (cell * PIECES_MAX as u64, path(name)?);
    for number in 0..size.div_ceil(span) {
        session.keep_alive()?;
        job.progress.check()?;
        let from = number * span;
        let part = Part { from, length: span.min(size - from), cell };
        pieces = save_part(job, reader, base, &part, number as usize, &path, &mut figures)?;
        job.progress.bytes.fetch_add(part.length, Ordering::Relaxed);
        if size > span {
            let mut bytes = Vec::new();
            encode_pieces(&pieces, &mut bytes);
            lists.push(tree.store(&bytes)?);
            pieces.clear();
        }
    }
    if figures.lost > 0 && figures.lost == figures.read && figures.unchanged == 0 {
        // A snapshot of zeros is of no use. The drives may be back in an hour.
        let first = lock(&job.issues).1.first().map_or_else(String::new, |issue| format!(": {}", issue.text));
        return Err(BackupError::Damaged(format!("no part of volume '{name}' can be read{first}")));
    }
    let content = Content::File { size, pieces, lists, volume: Some(Box::new(origin)) };
    tree.add(1, Entry { name: name.as_bytes().to_vec(), metadata: whole, content })?;
    let mut counts = lock(&job.counts);
    (counts.directories, counts.files, counts.files_read, counts.bytes) = (1, 1, 1, size);
    drop(counts);
    Ok((tree.finish()?, figures))
}

/// The pieces of one part.
fn save_part(
    job: &Job<'_>,
    reader: &dyn VolumeReader,
    base: Option<&Base>,
    part: &Part,
    number: usize,
    path: &[u8],
    figures: &mut Figures,
) -> Result<Vec<Piece>> {
    let mut cells = vec![Cell::Read; part.cells()];
    if let Some(base) = base {
        let changed = part.marks(&reader.runs(part.from, part.length, Some(&base.origin))?)?;
        let known = part.known(&old_pieces(job.indexed, &base.content, number)?);
        keep_unchanged(job, &mut cells, &changed, &known)?;
    }
    if cells.contains(&Cell::Read) {
        let owned = part.marks(&reader.runs(part.from, part.length, None)?)?;
        let unowned = cells.iter_mut().zip(owned).filter(|(cell, owned)| **cell == Cell::Read && !owned);
        unowned.for_each(|(cell, _)| *cell = Cell::Hole);
    }
    for (number, cell) in cells.iter().enumerate() {
        let (_, length) = part.place(number);
        match cell {
            Cell::Kept(Piece::Chunk { .. }) => figures.unchanged += length,
            Cell::Kept(Piece::Hole(_)) | Cell::Hole => figures.holes += length,
            Cell::Read => figures.read += length,
        }
    }
    let (read, lost) = read_cells(job, reader, part, &cells, path)?;
    figures.lost += lost;
    let mut pieces: Vec<Piece> = Vec::new();
    for (number, (cell, read)) in cells.iter().zip(read).enumerate() {
        let piece = match (cell, read) {
            (Cell::Kept(piece), _) => *piece,
            (Cell::Read, Some(piece)) => piece,
            (Cell::Hole, _) => Piece::Hole(part.place(number).1),
            (Cell::Read, None) => return Err(BackupError::Failed("a part of the volume was not read".to_owned())),
        };
        match (pieces.last_mut(), piece) {
            (Some(Piece::Hole(before)), Piece::Hole(more)) => *before += more,
            _ => pieces.push(piece),
        }
    }
    Ok(pieces)
}

/// The pieces that the earlier backup has for the part. None of them if its list cannot be read:
/// then it is read anew.
fn old_pieces(indexed: &Indexed, content: &Content, number: usize) -> Result<Vec<Piece>> {
    let Content::File { lists, .. } = content else { return Ok(Vec::new()) };
    if number >= lists.len().max(1) {
        return Ok(Vec::new());
    }
    match list(indexed, content, number) {
        Err(BackupError::Damaged(_) | BackupError::Newer(_) | BackupError::Missing(_)) => Ok(Vec::new()),
        pieces => pieces,
    }
}

/// Keeps the cells that did not change, if their chunks are found.
fn keep_unchanged(job: &Job<'_>, cells: &mut [Cell], changed: &[bool], known: &[Option<Piece>]) -> Result<()> {
    let mut gathered = Gathered::default();
    for ((cell, changed), known) in cells.iter_mut().zip(changed).zip(known) {
        let Some(piece) = known.filter(|_| !changed) else { continue };
        if let Piece::Chunk { id, .. } = &piece {
            let Some(location) = job.packer.find(Kind::Content, id)? else { continue };
            gathered.insert(location);
        }
        *cell = Cell::Kept(piece);
    }
    lock(&job.gathered).merge(gathered);
    Ok(())
}

/// Reads the cells that are to be read, with several threads, and stores their chunks. Also gives
/// the bytes that could not be read; their places are listed.
fn read_cells(
    job: &Job<'_>,
    reader: &dyn VolumeReader,
    part: &Part,
    cells: &[Cell],
    path: &[u8],
) -> Result<(Vec<Option<Piece>>, u64)> {
    let wanted: Vec<usize> = (0..cells.len()).filter(|number| cells.get(*number) == Some(&Cell::Read)).collect();
    let (found, lost) = (Mutex::new(vec![None; cells.len()]), AtomicU64::new(0));
    if wanted.is_empty() {
        return Ok((found.into_inner().unwrap_or_default(), 0));
    }
    let strip = reader.origin().strip.clamp(BLOCK, part.cell.max(BLOCK));
    let next = AtomicUsize::new(0);
    let work = || -> Result<()> {
        let mut worker = read::Worker::new(job)?;
        let mut buffer = vec![0; part.cell as usize];
        while let Some(number) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
            job.progress.check()?;
            if job.failed() {
                break;
            }
            let (at, length) = part.place(*number);
            let into = buffer.get_mut(..length as usize).unwrap_or_default();
            // Of a volume that lost much, not every block is tried.
            let few = lock(&job.issues).0 < ISSUES_MAX as u64;
            let mut gaps = Vec::new();
            read_around(reader, part.from + at, into, if few { BLOCK } else { strip }, &mut gaps)?;
            for Gap { from, to, error } in gaps {
                lost.fetch_add(to - from, Ordering::Relaxed);
                job.issue(path, format!("bytes {from} to {to} cannot be read, and are zeros here: {error}"));
            }
            let piece = match into.iter().all(|byte| *byte == 0) {
                true => Piece::Hole(length),
                false => worker.chunk(into)?,
            };
            if let Some(place) = lock(&found).get_mut(*number) {
                *place = Some(piece);
            }
        }
        worker.finish();
        Ok(())
    };
    std::thread::scope(|scope| {
        for _ in 0..job.options.workers.max(1).min(wanted.len()) {
            scope.spawn(|| work().unwrap_or_else(|error| job.fail(error)));
        }
    });
    lock(&job.failure).clone().map_or(Ok(()), Err)?;
    Ok((found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner), lost.into_inner()))
}

/// A range of the volume that cannot be read: its first byte, the one behind its last, and the
/// cause.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Gap {
    from: u64,
    to: u64,
    error: String,
}

/// Reads a range around what is damaged in it: by halves, down to the length `least`. What is left
/// becomes zeros.
fn read_around(reader: &dyn VolumeReader, at: u64, into: &mut [u8], least: u64, gaps: &mut Vec<Gap>) -> Result<()> {
    let error = match reader.read(at, into) {
        Err(BackupError::Damaged(error)) => error,
        done => return done,
    };
    let length = into.len() as u64;
    let half = (length / 2).next_multiple_of(least);
    if half < length {
        let (first, second) = into.split_at_mut(half as usize);
        read_around(reader, at, first, least, gaps)?;
        return read_around(reader, at + half, second, least, gaps);
    }
    into.fill(0);
    match gaps.last_mut() {
        Some(gap) if gap.to == at => gap.to += length,
        _ => gaps.push(Gap { from: at, to: at + length, error }),
    }
    Ok(())
}

/// Reads the stored snapshot back: its description, its tree and every segment that was stored for
/// it, and finds all of its chunks. Behind this the base may go. It may take as long as the backup
/// itself, so the session has ended before: the snapshot keeps what it needs.
pub fn confirm(indexed: &Indexed, id: &SnapshotId, stored: &[SegmentId], progress: &BackupProgress) -> Result<()> {
    let doubtful = |what: String| BackupError::Damaged(format!("snapshot {} was stored, but {what}", id.short()));
    let Snapshot { description, .. } = indexed.snapshot(id)?;
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
    let read_back = |segment: &SegmentId| -> Result<()> {
        progress.check()?;
        let bytes = indexed.store.get(&Name::segment(segment), SEGMENT_BYTES_MAX)?;
        match SegmentId::of(&bytes) == *segment {
            true => Ok(()),
            false => Err(doubtful(format!("segment {segment:?} is not what was sent"))),
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..READERS.min(stored.len()) {
            scope.spawn(|| {
                while let Some(segment) = stored.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = read_back(segment) {
                        lock(&failure).get_or_insert(error);
                        // The others find no further segment.
                        next.store(stored.len(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    lock(&failure).take().map_or(Ok(()), Err)?;
    let Some((_, Entry { content, .. })) = find(indexed, &description)? else {
        return Err(doubtful("its volume is not there".to_owned()));
    };
    let all = |pieces: &[Piece]| -> Result<()> {
        let ids = pieces.iter().filter_map(|piece| match piece {
            Piece::Chunk { id, .. } => Some(id),
            Piece::Hole(_) => None,
        });
        ids.into_iter().try_for_each(|id: &ChunkId| indexed.find(id).map(drop))
    };
    let Content::File { pieces, lists, .. } = &content else { return Ok(()) };
    all(pieces)?;
    for number in 0..lists.len() {
        all(&list(indexed, &content, number)?)?;
    }
    Ok(())
}

/// The pieces of one part of a volume; that of number 0 has all pieces if there are no lists.
pub fn list(indexed: &Indexed, content: &Content, number: usize) -> Result<Vec<Piece>> {
    let Content::File { pieces, lists, .. } = content else { return Ok(Vec::new()) };
    let Some(id) = lists.get(number) else { return Ok(pieces.clone()) };
    let bytes = indexed.chunk(Kind::Tree, id)?;
    let mut decoder = Decoder::new(&bytes, "list of pieces");
    let pieces = decode_pieces(&mut decoder)?;
    decoder.end()?;
    Ok(pieces)
}

#[cfg(test)]
mod tests;
