//! Checks: that everything a snapshot needs is there, that the keys are whole and, on request, that
//! every stored byte is what was written.
//!
//! A chunk that is damaged is marked in the store, so that the next backup which has its content
//! stores it again. Then old snapshots that need it are whole again too. A mark goes when its
//! segment is found whole. Of a segment whose footer is lost, all chunks are marked.
//!
//! Objects of a later version are told apart and are no damage. Their marks stay as they are.

mod places;
mod scrub;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use stele_ground::{are, counted, counted_are};

use crate::compress::Decompressor;
use crate::error::{BackupError, Result};
use crate::references::Ordinals;
use crate::repository::epochs::Epoch;
use crate::repository::footers::{damaged, mark, read_footer, unmark};
use crate::repository::trees::Walk;
use crate::repository::{Closed, Dated, Indexed, Repository};
use crate::segment::{SEGMENT_BYTES_MAX, SegmentId};
use crate::snapshot::{Snapshot, SnapshotId};
use crate::store::{Folder, Name};
use crate::tree::{Content, Piece};
use places::{ChunkStanding, Places};
pub use scrub::{SurveyedSnapshots, scrub, survey};

/// Bytes of a segment that are in memory at once, and as much as a chunk more.
const PART_BYTES: u64 = 4 << 20;

/// Faults that are listed. Their number has no limit.
pub const FAULTS_MAX: usize = 1000;

#[derive(Default, Debug)]
pub struct VerifyProgress {
    pub segments: AtomicU64,
    pub segments_expected: AtomicU64,
    pub bytes: AtomicU64,
    /// Bytes of all segments. Zero: they are not read.
    pub bytes_expected: AtomicU64,
    /// Segments with damage that were found so far, with its place. They are marked, also if the
    /// check fails later.
    pub damaged: Mutex<Vec<(SegmentId, String)>>,
    pub stop: AtomicBool,
}

impl VerifyProgress {
    fn note(&self, id: SegmentId, text: &str) {
        lock(&self.damaged).push((id, text.to_owned()));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file or directory of a snapshot that cannot be restored as it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    pub snapshot: SnapshotId,
    pub path: Vec<u8>,
    pub text: String,
}

/// A key that no password opens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedKey {
    pub name: String,
    pub text: String,
}

/// A whole object that a later version wrote, or a snapshot that needs such a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewerObject {
    pub name: String,
    pub text: String,
}

impl NewerObject {
    fn new(name: &Name, text: impl ToString) -> NewerObject {
        NewerObject { name: name.text().to_owned(), text: text.to_string() }
    }

    fn snapshot(id: &SnapshotId, text: impl ToString) -> NewerObject {
        NewerObject::new(&Name::of(Folder::Snapshots, &id.0), text)
    }
}

/// The keys, the defaults and the latest epoch, as far as a later version wrote them. Needs no
/// password.
pub fn newer_objects(repository: &Closed) -> Result<Vec<NewerObject>> {
    let mut found = Vec::new();
    for key in repository.keys_listed()? {
        let name = format!("{}/{}", Folder::Keys.name(), key.name);
        found.extend(key.newer.map(|text| NewerObject { name, text }));
    }
    if let Err(BackupError::Newer(text)) = repository.defaults() {
        found.push(NewerObject::new(&Name::defaults(), text));
    }
    if let Some(latest) = repository.latest_epoch()?
        && let Err(BackupError::Newer(text)) = repository.epoch()
    {
        found.push(NewerObject::new(&latest, text));
    }
    Ok(found)
}

/// Reads every key, and gives the damaged ones. Needs no password.
pub fn damaged_keys(repository: &Closed) -> Result<Vec<DamagedKey>> {
    let keys = repository.keys_listed()?.into_iter();
    Ok(keys.filter_map(|key| Some(DamagedKey { name: key.name, text: key.damage? })).collect())
}

/// An object that holds no content of a snapshot, and that backups or prunes need.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedObject {
    pub name: String,
    pub text: String,
}

/// Without a key only the exported text opens the repository.
const NO_KEY: &str = "the repository has no key, and no password opens it: bring a key back from a copy, or give \
    the exported key as the password of `stele backup key add`";

/// Reads the defaults and the latest epoch, without which backups fail, and looks whether there is
/// any key. Needs no password.
pub fn damaged_objects(repository: &Closed) -> Result<Vec<DamagedObject>> {
    let mut found = Vec::new();
    if repository.keys_listed()?.is_empty() {
        found.push(DamagedObject { name: Folder::Keys.name().to_owned(), text: NO_KEY.to_owned() });
    }
    let mut judge = |name: Name, read: Result<()>| match read {
        Err(BackupError::Damaged(text)) => {
            found.push(DamagedObject { name: name.text().to_owned(), text });
            Ok(())
        }
        // It is no damage, see `newer_objects`.
        Err(BackupError::Newer(_)) => Ok(()),
        read => read,
    };
    judge(Name::defaults(), repository.defaults().map(drop))?;
    if let Some(latest) = repository.latest_epoch()? {
        judge(latest, repository.epoch().map(drop))?;
    }
    Ok(found)
}

/// Snapshots that cannot be read, and why.
pub type Unreadable = Vec<(SnapshotId, String)>;

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
    /// Keys that are damaged, as far as that shows without their passwords.
    pub damaged_keys: Vec<DamagedKey>,
    pub damaged_objects: Vec<DamagedObject>,
    /// Objects of a later version, which are no damage and were not checked.
    pub newer: Vec<NewerObject>,
    /// Snapshots that cannot be read at all.
    pub unreadable: Unreadable,
    /// Files that are affected, and their number.
    pub lost: Vec<Lost>,
    pub lost_files: u64,
    /// Files that live from chunks in segments that their snapshot does not reference, because the
    /// referenced place is damaged. Prune keeps these segments.
    pub repaired_files: u64,
    /// Snapshots of which a file, or a part of the tree, lives from such chunks.
    pub repaired_snapshots: u64,
    /// Why the store took no mark of what was found. None: it took all of them.
    pub unmarked: Option<String>,
}

impl Verified {
    pub fn is_good(&self) -> bool {
        self.damaged.is_empty() && self.damaged_keys.is_empty() && self.damaged_objects.is_empty() && self.is_whole()
    }

    /// Whether every snapshot has all that it needs: damage is in content that is stored again, or
    /// that no snapshot needs.
    pub fn is_whole(&self) -> bool {
        self.unreadable.is_empty() && self.lost_files == 0
    }
}

/// Checks all snapshots. With `data`, reads every segment too.
pub fn run(repository: &Repository, data: bool, workers: usize, progress: &VerifyProgress) -> Result<Verified> {
    let (mut verified, mut faults) = (Verified::default(), BTreeMap::new());
    verified.damaged_keys = damaged_keys(repository)?;
    verified.damaged_objects = damaged_objects(repository)?;
    verified.newer = newer_objects(repository)?;
    let segments = repository.segments()?;
    verified.segments = segments.len() as u64;
    if data {
        expect(progress, &segments);
        faults = read_all(repository, &segments, workers, progress, &mut verified)?;
    }
    // Condemned segments are there until they are removed.
    let (indexed, loaded) = repository.index(&Epoch::default(), None)?;
    for (segment, text) in loaded.unreadable {
        if !verified.damaged.iter().any(|(known, _)| *known == segment) {
            verified.damaged.push((segment, text));
        }
    }
    let later: BTreeSet<SegmentId> = loaded.newer.iter().map(|(id, _)| *id).collect();
    for (id, text) in loaded.newer {
        verified.newer.push(NewerObject::new(&Name::segment(&id), text));
    }
    if verified.unmarked.is_some() {
        // The files that are lost are those that they would be with the marks.
        faults.iter().for_each(|(id, chunks)| indexed.index().mark(id, chunks));
    }
    verified.chunks = indexed.index().chunks() as u64;
    for Dated { id, .. } in repository.snapshots()? {
        verified.snapshots += 1;
        match repository.snapshot(&id) {
            Ok(snapshot) => check_snapshot(&indexed, &id, &snapshot, &later, progress, &mut verified)?,
            Err(BackupError::Missing(_)) => {}
            Err(error @ BackupError::Damaged(_)) => verified.unreadable.push((id, error.to_string())),
            Err(error @ BackupError::Newer(_)) => verified.newer.push(NewerObject::snapshot(&id, error)),
            Err(error) => return Err(error),
        }
    }
    Ok(verified)
}

fn expect(progress: &VerifyProgress, segments: &[(SegmentId, u64)]) {
    progress.segments_expected.store(segments.len() as u64, Ordering::Relaxed);
    progress.bytes_expected.store(segments.iter().map(|(_, size)| size).sum(), Ordering::Relaxed);
}

/// `later` are the segments of a later version. What a snapshot that needs one lacks may be there.
fn check_snapshot(
    indexed: &Indexed,
    id: &SnapshotId,
    snapshot: &Snapshot,
    later: &BTreeSet<SegmentId>,
    progress: &VerifyProgress,
    verified: &mut Verified,
) -> Result<()> {
    let (places, description) = (Places::of(indexed, &snapshot.references), &snapshot.description);
    let (mut repaired, mut is_repaired) = (0, false);
    let needs_later = snapshot.references.0.keys().any(|segment| later.contains(segment));
    let mut unknown = 0;
    let mut lose = |path: &[u8], text: String, is_nowhere: bool| {
        if is_nowhere && needs_later {
            unknown += 1;
            return;
        }
        verified.lost_files += 1;
        if verified.lost.len() < FAULTS_MAX {
            verified.lost.push(Lost { snapshot: *id, path: path.to_vec(), text });
        }
    };
    for (chunk, first) in &description.tree {
        match places.find(indexed, chunk)? {
            ChunkStanding::Unreferenced => lose(first, format!("a part of the tree {UNREFERENCED}"), false),
            found => is_repaired |= found == ChunkStanding::Repaired,
            // A chunk that is nowhere is found by the walk.
        }
    }
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
                lose(walk.part(), format!("a part of the tree is lost: {error}"), true);
                continue;
            }
            Err(error) => return Err(error),
        };
        files += 1;
        let pieces = match indexed.pieces(&found.entry.content) {
            Ok(pieces) => pieces,
            Err(error @ (BackupError::Damaged(_) | BackupError::Missing(_))) => {
                lose(&found.path, error.to_string(), true);
                continue;
            }
            Err(error) => return Err(error),
        };
        let (mut offset, mut elsewhere) = (0, false);
        let lists = match &found.entry.content {
            Content::File { lists, .. } => lists.as_slice(),
            _ => &[],
        };
        let lists = lists.iter().map(|list| places.find(indexed, list)).collect::<Result<Vec<ChunkStanding>>>()?;
        is_repaired |= lists.contains(&ChunkStanding::Repaired);
        if lists.contains(&ChunkStanding::Unreferenced) {
            lose(&found.path, format!("the list of its content {UNREFERENCED}"), false);
            continue;
        }
        for piece in &pieces {
            let place = match piece {
                Piece::Chunk { id, .. } => places.find(indexed, id)?,
                Piece::Hole(_) => ChunkStanding::Referenced,
            };
            elsewhere |= place == ChunkStanding::Repaired;
            let lost = match place {
                ChunkStanding::Referenced | ChunkStanding::Repaired => None,
                ChunkStanding::Unreferenced => Some((format!("its content at byte {offset} {UNREFERENCED}"), false)),
                ChunkStanding::Lost(text) => Some((format!("its content is lost at byte {offset}: {text}"), true)),
            };
            if let Some((text, is_nowhere)) = lost {
                lose(&found.path, text, is_nowhere);
                break;
            }
            offset += piece.length();
        }
        repaired += u64::from(elsewhere);
    }
    if unknown > 0 {
        let text = format!(
            "{} not found, and may be in segments of a later version of Stele that the snapshot needs; check it by \
             that version",
            counted_are(unknown, "part")
        );
        verified.newer.push(NewerObject::snapshot(id, text));
    }
    if !needs_later {
        verified.repaired_files += repaired;
        verified.repaired_snapshots += u64::from(is_repaired || repaired > 0);
    }
    verified.files += files;
    Ok(())
}

const UNREFERENCED: &str = "is in a segment that the snapshot does not reference, and that prune may remove";

/// Reads all segments with several threads, and marks damaged chunks in the store, each segment
/// when it is found: a check of many hours may fail near its end. The first failure to read ends
/// the threads. A store that takes no marks ends nothing. Gives the damaged chunks.
fn read_all(
    repository: &Repository,
    segments: &[(SegmentId, u64)],
    workers: usize,
    progress: &VerifyProgress,
    verified: &mut Verified,
) -> Result<BTreeMap<SegmentId, Ordinals>> {
    let (next, faults, failure) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()), Mutex::new(None));
    // Segments of a later version: this one changes none of their marks.
    let later = Mutex::new(BTreeSet::new());
    let unmarked = Mutex::new(None);
    let note = |noted: Result<()>| match noted {
        Err(BackupError::Stopped) => Err(BackupError::Stopped),
        Err(error) => {
            lock(&unmarked).get_or_insert(error.to_string());
            Ok(())
        }
        Ok(()) => Ok(()),
    };
    let check = |id: &SegmentId, size: u64| -> Result<()> {
        if progress.stop.load(Ordering::Relaxed) {
            return Err(BackupError::Stopped);
        }
        let checked = match check_segment(repository, id, size) {
            Err(BackupError::Newer(_)) => {
                lock(&later).insert(*id);
                None
            }
            checked => checked?,
        };
        if let Some(fault) = checked {
            progress.note(*id, &fault.text);
            if fault.chunks.count() > 0 {
                note(mark(&*repository.store, id, &fault.chunks))?;
            }
            lock(&faults).insert(*id, fault);
        }
        progress.segments.fetch_add(1, Ordering::Relaxed);
        progress.bytes.fetch_add(size, Ordering::Relaxed);
        Ok(())
    };
    std::thread::scope(|scope| {
        for _ in 0..workers.max(1).min(segments.len()) {
            scope.spawn(|| {
                while let Some((id, size)) = segments.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = check(id, *size) {
                        lock(&failure).get_or_insert(error);
                        // The others find no further segment.
                        next.store(segments.len(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    lock(&failure).take().map_or(Ok(()), Err)?;
    verified.bytes = progress.bytes.load(Ordering::Relaxed);
    let (faults, later) = (std::mem::take(&mut *lock(&faults)), std::mem::take(&mut *lock(&later)));
    // Marks that an earlier check left at segments or chunks that are whole go, or restores would
    // shun them for ever.
    let marked = damaged(&*repository.store)?;
    for (id, _) in segments {
        let stays = later.contains(id) || faults.get(id).is_some_and(|fault| fault.stays());
        if !stays && marked.get(id).is_some_and(|chunks| chunks.count() > 0) {
            note(unmark(&*repository.store, id))?;
        }
    }
    verified.unmarked = lock(&unmarked).take();
    let mut chunks = BTreeMap::new();
    for (id, fault) in faults {
        verified.damaged_chunks += fault.count;
        verified.damaged.push((id, fault.text));
        chunks.insert(id, fault.chunks);
    }
    Ok(chunks)
}

struct Fault {
    /// The chunks to mark.
    chunks: Ordinals,
    /// Those of them that are known to be damaged.
    count: u64,
    text: String,
    /// Whether a later version wrote the segment.
    is_newer: bool,
}

impl Fault {
    fn new(chunks: Ordinals, count: u64, text: String) -> Fault {
        Fault { chunks, count, text, is_newer: false }
    }

    /// Whether the marks of the segment stay as they are.
    fn stays(&self) -> bool {
        self.is_newer || self.chunks.count() > 0
    }
}

/// Compares a segment of a later version with its name. Which chunks it has, this one cannot tell.
fn check_newer(repository: &Repository, id: &SegmentId, refusal: BackupError) -> Result<Option<Fault>> {
    match repository.store.get(&Name::segment(id), SEGMENT_BYTES_MAX) {
        Ok(bytes) if SegmentId::of(&bytes) == *id => Err(refusal),
        Err(BackupError::Missing(_)) => Ok(None),
        Ok(_) | Err(BackupError::Damaged(_)) => {
            let text = format!("its hash differs, or a part of it cannot be read; {refusal}");
            Ok(Some(Fault { is_newer: true, ..Fault::new(Ordinals::default(), 0, text) }))
        }
        Err(error) => Err(error),
    }
}

/// Reads one segment, part by part: its hash, and every chunk. One of a later version is an error
/// if it is whole.
fn check_segment(repository: &Repository, id: &SegmentId, size: u64) -> Result<Option<Fault>> {
    let (store, name) = (&*repository.store, Name::segment(id));
    let footer = match read_footer(store, id, size) {
        Ok((footer, _)) => footer,
        // It was removed meanwhile.
        Err(BackupError::Missing(_)) => return Ok(None),
        // Which chunks it has is lost, and so are all of them.
        Err(BackupError::Damaged(text)) => return Ok(Some(Fault::new(Ordinals::all(), 0, text))),
        Err(error @ BackupError::Newer(_)) => return check_newer(repository, id, error),
        Err(error) => return Err(error),
    };
    let (key, mut codec, mut content) = (footer.key(&repository.keys), Decompressor::new()?, Vec::new());
    let (mut chunks, mut count) = (Ordinals::default(), 0);
    let (mut hash, mut is_read, mut buffer) = (blake3::Hasher::new(), true, Vec::new());
    for part in footer.parts(PART_BYTES) {
        let mut bytes = match store.get_range_into(&name, part.bytes.clone(), &mut buffer) {
            Ok(()) => Some(&mut buffer),
            Err(BackupError::Missing(_)) => return Ok(None),
            // The drive cannot read all of it. Its chunks are read one by one.
            Err(BackupError::Damaged(_)) => None,
            Err(error) => return Err(error),
        };
        match &bytes {
            Some(bytes) => drop(hash.update(bytes)),
            None => is_read = false,
        }
        for ordinal in part.chunks {
            let Some(entry) = footer.entries.get(ordinal) else { continue };
            let (from, to) = (u64::from(entry.offset), u64::from(entry.offset) + u64::from(entry.stored));
            let mut alone;
            let stored = match &mut bytes {
                Some(bytes) => {
                    let place = (from - part.bytes.start) as usize..(to - part.bytes.start) as usize;
                    bytes.get_mut(place).unwrap_or_default()
                }
                None => {
                    alone = match store.get_range(&name, from..to) {
                        Err(BackupError::Missing(_)) => return Ok(None),
                        // What cannot be read is not authentic.
                        Err(BackupError::Damaged(_)) => Vec::new(),
                        read => read?,
                    };
                    alone.as_mut_slice()
                }
            };
            let opened = footer.open(&key, ordinal, stored, &mut codec, &mut content);
            if opened.is_err() || repository.keys.id(footer.kind, &content) != entry.id {
                chunks.insert(ordinal);
                count += 1;
            }
        }
    }
    let text = match count {
        0 if is_read && *hash.finalize().as_bytes() == id.0 => return Ok(None),
        0 if is_read => "its hash differs, its chunks are whole".to_owned(),
        0 => "a part of it cannot be read, its chunks are whole".to_owned(),
        count => {
            let all = counted(footer.entries.len() as u64, "chunk");
            format!("{count} of {all} {} damaged", are(count))
        }
    };
    Ok(Some(Fault::new(chunks, count, text)))
}

#[cfg(test)]
mod tests;
