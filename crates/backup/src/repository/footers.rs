//! Loading the index: the footers of all segments, from a local cache or from the store.
//!
//! The cache is one file of footers behind each other, each with its segment's name. It may be lost
//! or damaged at any time: a record that is not whole ends it, and what it lacks comes from the
//! store.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::epochs::Epoch;
use super::{Indexed, Repository, StoredSegment};
use crate::codec::Decoder;
use crate::crypt::hex;
use crate::error::{BackupError, Result};
use crate::index::Index;
use crate::newer;
use crate::references::Ordinals;
use crate::segment::{self, Footer, SEGMENT_BYTES_MAX, SEGMENT_CHUNKS_MAX, SegmentId, TRAILER_BYTES};
use crate::store::{Folder, Name, Store};
use crate::walk::{CACHE_SIGNATURE, CACHE_TAG};

/// Bytes that are read from the end of a segment at once. Most footers fit.
const TAIL_BYTES: u64 = 64 << 10;
/// Bytes of a magic.
const MAGIC_BYTES: u64 = 8;
/// Threads that read footers from a store far away.
const READERS: usize = 8;
/// Footers that are read before they are indexed.
const BATCH: usize = 256;
/// Bytes of the list of a segment's damaged chunks.
const DAMAGED_BYTES_MAX: u64 = 1 << 20;

/// Reads the end of a segment that contains its footer.
pub fn read_tail(store: &dyn Store, id: &SegmentId, size: u64) -> Result<Vec<u8>> {
    let name = Name::segment(id);
    let tail = match store.get_range(&name, size.saturating_sub(TAIL_BYTES)..size) {
        // The bad sector may lie before the footer.
        Err(BackupError::Damaged(_)) => store.get_range(&name, size.saturating_sub(TRAILER_BYTES as u64)..size)?,
        tail => tail?,
    };
    let trailer = tail.len().checked_sub(TRAILER_BYTES).and_then(|from| tail.get(from..));
    let length = Footer::length(trailer.unwrap_or_default())
        .map_err(|error| BackupError::Damaged(format!("segment {id:?}: {error}")))?;
    match tail.len().checked_sub(length) {
        Some(from) => Ok(tail.get(from..).unwrap_or_default().to_vec()),
        None if length as u64 <= size => store.get_range(&name, size - length as u64..size),
        None => Err(BackupError::Damaged(format!("segment {id:?} is shorter than its footer"))),
    }
}

/// The footer of a segment, and the bytes from it on to the end of the segment.
pub fn read_footer(store: &dyn Store, id: &SegmentId, size: u64) -> Result<(Footer, Vec<u8>)> {
    judged(store, id, size, read_tail(store, id, size))
}

/// Tells a footer of a later version from a damaged one. A segment of another length than its
/// footer tells has its chunks elsewhere, and so none of them.
fn judged(store: &dyn Store, id: &SegmentId, size: u64, tail: Result<Vec<u8>>) -> Result<(Footer, Vec<u8>)> {
    let read = tail.and_then(|tail| {
        let footer = Footer::decode(&tail)?;
        match footer.segment_bytes() {
            told if told == size => Ok((footer, tail)),
            told => Err(BackupError::Damaged(format!("it has {size} bytes, and {told} by its footer"))),
        }
    });
    match read {
        Err(BackupError::Damaged(text)) => Err(newer_segment(store, id, size)?.unwrap_or(BackupError::Damaged(text))),
        read => read,
    }
}

/// Refuses a segment that a later version wrote. Reads only its beginning if this is no such one.
pub fn refuse_newer(store: &dyn Store, id: &SegmentId, size: u64) -> Result<()> {
    let head = match store.get_range(&Name::segment(id), 0..size.min(MAGIC_BYTES)) {
        Err(BackupError::Damaged(_) | BackupError::Missing(_)) => return Ok(()),
        head => head?,
    };
    match newer::refusal("", &head, &segment::MAGIC) {
        Some(_) => newer_segment(store, id, size)?.map_or(Ok(()), Err),
        None => Ok(()),
    }
}

/// The refusal of a segment, if a later version wrote it and it is whole. The place and the hash of
/// a footer are the same in all versions. Where they do not hold, the name shows it.
fn newer_segment(store: &dyn Store, id: &SegmentId, size: u64) -> Result<Option<BackupError>> {
    let trailer_bytes = TRAILER_BYTES as u64;
    if size < trailer_bytes {
        return Ok(None);
    }
    let (name, what) = (Name::segment(id), format!("segment {id:?}"));
    let read = |range| match store.get_range(&name, range) {
        // What cannot be read is damaged, whatever wrote it.
        Err(BackupError::Damaged(_)) => Ok(Vec::new()),
        read => read,
    };
    let trailer = read(size - trailer_bytes..size)?;
    let (length, hash) = Footer::place(&trailer).unwrap_or_default();
    if length > 0 && length + trailer_bytes <= size {
        let footer = read(size - trailer_bytes - length..size - trailer_bytes)?;
        let refusal = newer::refusal(&what, &footer, &segment::MAGIC);
        if refusal.is_some() && *blake3::hash(&footer).as_bytes() == hash {
            return Ok(refusal);
        }
    }
    let Some(refusal) = newer::refusal(&what, &read(0..MAGIC_BYTES)?, &segment::MAGIC) else { return Ok(None) };
    match store.get(&name, SEGMENT_BYTES_MAX) {
        Ok(bytes) => Ok((SegmentId::of(&bytes) == *id).then_some(refusal)),
        Err(BackupError::Damaged(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The chunks of a segment that a check found damaged.
pub fn damaged(store: &dyn Store) -> Result<BTreeMap<SegmentId, Ordinals>> {
    let mut names = Vec::new();
    store.list(Folder::Damaged, &mut |listed| {
        names.push(listed.name);
        Ok(())
    })?;
    let mut found = BTreeMap::new();
    for name in names {
        let Some(id) = name.id().map(SegmentId) else { continue };
        // A list that cannot be read condemns the whole segment: its chunks are only stored again.
        let ordinals = match store.get(&name, DAMAGED_BYTES_MAX) {
            Err(BackupError::Missing(_)) => continue,
            Err(BackupError::Damaged(_)) => Ordinals::all(),
            bytes => Ordinals::decode(&mut Decoder::new(&bytes?, "damaged chunks")).unwrap_or_else(|_| Ordinals::all()),
        };
        found.insert(id, ordinals);
    }
    Ok(found)
}

/// Marks chunks of a segment, so that no backup counts them as stored. Replaces earlier marks of
/// the segment.
pub fn mark(store: &dyn Store, id: &SegmentId, chunks: &Ordinals) -> Result<()> {
    let mut bytes = Vec::new();
    chunks.encode(&mut bytes);
    store.replace(&Name::of(Folder::Damaged, &id.0), &bytes)
}

/// Removes the marks of a segment that was found whole.
pub fn unmark(store: &dyn Store, id: &SegmentId) -> Result<()> {
    match store.remove(&Name::of(Folder::Damaged, &id.0)) {
        // An empty list says the same.
        Err(BackupError::Refused(_)) => mark(store, id, &Ordinals::default()),
        Err(BackupError::Missing(_)) => Ok(()),
        done => done,
    }
}

/// What was found while the index was loaded.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Loaded {
    /// Segments whose footer cannot be read, with the cause.
    pub unreadable: Vec<(SegmentId, String)>,
    /// Those of them that no check has marked yet.
    pub unmarked: Vec<SegmentId>,
    /// Segments of a later version, with the text of their refusal. Their chunks count as not
    /// stored, and nothing marks them.
    pub newer: Vec<(SegmentId, String)>,
}

impl Repository {
    /// Loads the index. Segments that `epoch` condemns are left out.
    pub fn index(&self, epoch: &Epoch, cache: Option<&Path>) -> Result<(Indexed, Loaded)> {
        let damaged = damaged(&*self.store)?;
        let segments: BTreeMap<SegmentId, StoredSegment> =
            self.segments_dated()?.into_iter().map(|kept| (kept.id, kept)).collect();
        let wanted: BTreeMap<SegmentId, u64> = segments
            .iter()
            .filter(|(id, _)| !epoch.condemned.contains_key(id))
            .map(|(id, kept)| (*id, kept.size))
            .collect();
        let cache = cache.filter(|_| !self.store.is_local()).map(|dir| Cache::new(dir, &self.header.id));
        let store = Arc::clone(&self.store);
        let sizes = Arc::new(segments);
        let there = Arc::clone(&sizes);
        let source = Box::new(move |id: &SegmentId| match sizes.get(id) {
            Some(kept) => Ok(read_footer(&*store, id, kept.size)?.0),
            None => {
                // The segment was stored since.
                let mut size = None;
                store.list(Folder::Segments, &mut |listed| {
                    size = size.or((listed.name == Name::segment(id)).then_some(listed.size));
                    Ok(())
                })?;
                let size = size.ok_or_else(|| BackupError::Missing(format!("segment {id:?} is not in the store")))?;
                Ok(read_footer(&*store, id, size)?.0)
            }
        });
        let (mut index, mut loaded) = (Index::new(source), Loaded::default());
        let mut left = wanted;
        let add = |index: &mut Index, id: SegmentId, footer: Footer| {
            let stored = there.get(&id).map_or(u64::MAX, |kept| kept.stored);
            index.add_dated(id, footer, damaged.get(&id).cloned().unwrap_or_default(), stored).map(drop)
        };
        let is_marked = |id: &SegmentId| damaged.get(id).is_some_and(|chunks| chunks.count() > 0);
        if let Some(cache) = &cache {
            // Each footer goes when it is indexed: all of them at once need more memory than the
            // index.
            cache.read(&mut |id, footer| {
                // A footer that is known says nothing about a segment that was cut short, or that a
                // check marked.
                let usable = left.get(&id) == Some(&footer.segment_bytes()) && !is_marked(&id);
                if usable && left.remove(&id).is_some() {
                    add(&mut index, id, footer)?;
                }
                Ok(there.contains_key(&id))
            })?;
        }
        let left: Vec<(SegmentId, u64)> = left.into_iter().collect();
        for batch in left.chunks(BATCH) {
            let mut fetched = Vec::new();
            for (id, tail) in self.fetch(batch)? {
                let size = there.get(&id).map_or(0, |kept| kept.size);
                match judged(&*self.store, &id, size, tail) {
                    Ok((footer, tail)) => {
                        add(&mut index, id, footer)?;
                        if !is_marked(&id) {
                            fetched.push((id, tail));
                        }
                    }
                    // It was removed meanwhile.
                    Err(BackupError::Missing(_)) => {}
                    Err(error @ BackupError::Damaged(_)) => {
                        loaded.unreadable.push((id, error.to_string()));
                        loaded.unmarked.extend(Some(id).filter(|id| !is_marked(id)));
                    }
                    Err(error @ BackupError::Newer(_)) => loaded.newer.push((id, error.to_string())),
                    Err(error) => return Err(error),
                }
            }
            if let Some(cache) = &cache {
                cache.append(&fetched);
            }
        }
        Ok((Indexed::new(self.clone(), index, loaded.newer.len()), loaded))
    }

    /// The ends of segments, read by several threads if the store is far away.
    fn fetch(&self, wanted: &[(SegmentId, u64)]) -> Result<Vec<(SegmentId, Result<Vec<u8>>)>> {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut read = Vec::new();
            while let Some((id, size)) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                read.push((*id, read_tail(&*self.store, id, *size)));
            }
            read
        };
        if self.store.is_local() || wanted.len() < 2 {
            return Ok(work());
        }
        let all = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..READERS).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<std::thread::Result<Vec<_>>>()
        });
        let all = all.map_err(|_| BackupError::Failed("a thread that read footers ended".to_owned()))?;
        Ok(all.into_iter().flatten().collect())
    }
}

/// The file of footers. It holds nothing that the store does not have, and every failure only costs
/// time.
struct Cache {
    path: PathBuf,
}

impl Cache {
    fn new(dir: &Path, repository: &[u8; 16]) -> Cache {
        Cache { path: dir.join(hex(repository)).join("footers") }
    }

    /// Calls `each` for the footer of every segment in the file. It says whether the store still
    /// has the segment; if it has few of them, the others are dropped from the file.
    fn read(&self, each: &mut dyn FnMut(SegmentId, Footer) -> Result<bool>) -> Result<()> {
        let Ok(file) = File::open(&self.path) else { return Ok(()) };
        let mut reader = BufReader::new(file);
        let (mut seen, mut wanted) = (BTreeSet::new(), BTreeSet::new());
        let (mut good, mut useful) = (0_u64, 0_u64);
        while let Some((id, bytes)) = record(&mut reader) {
            let Ok(footer) = Footer::decode(&bytes) else { break };
            let length = RECORD_HEAD + bytes.len() as u64;
            good += length;
            if seen.insert(id) && each(id, footer)? {
                wanted.insert(id);
                useful += length;
            }
        }
        if useful < good / 2 {
            // It is a cache: what another agent appends meanwhile, it fetches again.
            let _ = self.shorten(wanted);
        } else if fs::metadata(&self.path).is_ok_and(|is| is.len() > good) {
            // Records behind damage would never be read.
            let _ = OpenOptions::new().write(true).open(&self.path).and_then(|file| file.set_len(good));
        }
        Ok(())
    }

    /// Replaces the file by one with the first record of each of these segments.
    fn shorten(&self, mut wanted: BTreeSet<SegmentId>) -> std::io::Result<()> {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{}", std::process::id()));
        let temporary = PathBuf::from(name);
        let written = || -> std::io::Result<()> {
            let mut reader = BufReader::new(File::open(&self.path)?);
            let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
            let mut writer = BufWriter::new(file);
            while let Some((id, bytes)) = record(&mut reader).filter(|_| !wanted.is_empty()) {
                if wanted.remove(&id) {
                    write_record(&mut writer, &id, &bytes)?;
                }
            }
            writer.flush()?;
            fs::rename(&temporary, &self.path)
        }();
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    fn append(&self, footers: &[(SegmentId, Vec<u8>)]) {
        let written = || -> std::io::Result<()> {
            let folder = self.path.parent().unwrap_or(Path::new("."));
            fs::create_dir_all(folder)?;
            let _ = tag(folder.parent().unwrap_or(Path::new(".")));
            let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
            let mut writer = BufWriter::new(file);
            for (id, bytes) in footers {
                write_record(&mut writer, id, bytes)?;
            }
            writer.flush()
        };
        let _ = written();
    }
}

/// Marks the folder of all caches, so that backups of the home directory can leave it out.
fn tag(folder: &Path) -> std::io::Result<()> {
    let made = OpenOptions::new().write(true).create_new(true).open(folder.join(CACHE_TAG));
    match made {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        made => writeln!(made?, "{CACHE_SIGNATURE}"),
    }
}

/// Bytes before the footer of a record: the name of the segment, and the length.
const RECORD_HEAD: u64 = 36;

fn write_record(writer: &mut impl Write, id: &SegmentId, bytes: &[u8]) -> std::io::Result<()> {
    writer.write_all(&id.0)?;
    writer.write_all(&(bytes.len() as u32).to_le_bytes())?;
    writer.write_all(bytes)
}

fn record(reader: &mut impl Read) -> Option<(SegmentId, Vec<u8>)> {
    let (mut id, mut length) = ([0; 32], [0; 4]);
    reader.read_exact(&mut id).ok()?;
    reader.read_exact(&mut length).ok()?;
    let length = u32::from_le_bytes(length) as usize;
    if length > Footer::bytes_for(SEGMENT_CHUNKS_MAX) {
        return None;
    }
    let mut bytes = vec![0; length];
    reader.read_exact(&mut bytes).ok()?;
    Some((SegmentId(id), bytes))
}

#[cfg(test)]
mod tests;
