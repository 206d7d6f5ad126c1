//! From chunks to stored segments: one open segment for content and one for trees, and threads that
//! store full ones.
//!
//! Memory is bounded: one open segment of each kind, and one in each storing thread. When all
//! threads are busy, adding a chunk waits.
//!
//! A segment says which chunks it has, and everyone who may write can store one that lies. So a
//! chunk counts as stored if a snapshot that the key opens references its place, if this packer
//! stored it, or else if it was read and compared with its id. The last happens to what an
//! interrupted backup left, once for each chunk that is needed again.
//!
//! The first failure stops the backup; segments that were stored stay, and the next backup finds
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::compress::{Compressor, Decompressor};
use crate::crypt::{ChunkId, Kind};
use crate::error::{BackupError, Result};
use crate::index::{Gathered, Location};
use crate::references::{Ordinals, References};
use crate::repository::Indexed;
use crate::repository::epochs::Session;
use crate::segment::{FullSegment, Prepared, SegmentId, SegmentWriter};
use crate::snapshot::SnapshotId;
use crate::store::Name;

#[derive(Default)]
struct Open {
    content: Option<SegmentWriter>,
    tree: Option<SegmentWriter>,
}

#[derive(Default)]
struct Shared {
    open: Mutex<Open>,
    /// Chunks that are in open segments or on their way, and so in no index. A lock of its own: a
    /// thread that stores takes it while another one waits, with the open segments locked, for a
    /// thread that stores.
    pending: Mutex<BTreeSet<ChunkId>>,
    failure: Mutex<Option<BackupError>>,
    /// Segments that a storing thread has, or that wait for one.
    under_way: Mutex<usize>,
    arrived: Condvar,
    trusted: Mutex<Trusted>,
    /// Segments that this packer stored, each with its number of chunks.
    stored: Mutex<Vec<(SegmentId, usize)>>,
    stored_bytes: AtomicU64,
    new_bytes: AtomicU64,
    /// Buffers of stored segments, to be filled again.
    buffers: Mutex<Vec<Vec<u8>>>,
}

/// Places whose chunks are what their segments say.
#[derive(Default)]
struct Trusted {
    /// By the number of the segment.
    places: BTreeMap<u32, Ordinals>,
    /// Snapshots whose references were not read yet, the first one last. None: they were not listed
    /// yet.
    unread: Option<Vec<SnapshotId>>,
}

impl Trusted {
    fn has(&self, place: Location) -> bool {
        self.places.get(&place.segment).is_some_and(|ordinals| ordinals.contains(place.ordinal as usize))
    }

    fn insert(&mut self, place: Location) {
        self.places.entry(place.segment).or_default().insert(place.ordinal as usize);
    }

    /// Reads the references of the next snapshot, the latest first. Whether there was one.
    fn read_next(&mut self, indexed: &Indexed) -> Result<bool> {
        if self.unread.is_none() {
            self.unread = Some(indexed.closed.snapshots()?.into_iter().map(|dated| dated.id).collect());
        }
        let Some(id) = self.unread.as_mut().and_then(Vec::pop) else { return Ok(false) };
        self.read(indexed, &id)?;
        Ok(true)
    }

    /// Reads the references of this snapshot. One that cannot be read, or that was forgotten
    /// meanwhile, says nothing.
    fn read(&mut self, indexed: &Indexed, id: &SnapshotId) -> Result<()> {
        let references = match indexed.authentic_references(id) {
            Err(BackupError::Damaged(_) | BackupError::Newer(_) | BackupError::Missing(_)) => return Ok(()),
            references => references?,
        };
        let index = indexed.index();
        for (segment, ordinals) in &references.0 {
            if let Some(number) = index.number(segment) {
                self.places.entry(number).or_default().merge(ordinals);
            }
        }
        Ok(())
    }
}

pub struct Packer {
    indexed: Indexed,
    shared: Arc<Shared>,
    sender: SyncSender<FullSegment>,
    threads: Vec<JoinHandle<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a packer stored.
pub struct Packed {
    pub references: References,
    /// The segments that it stored itself.
    pub stored: Vec<SegmentId>,
    /// Bytes of content that were new.
    pub bytes_new: u64,
    /// Bytes of the segments.
    pub bytes_stored: u64,
}

impl Packer {
    /// With so many threads that store segments. Each renews the session of the backup behind every
    /// segment: the last gigabytes may take longer than a session lives, when nothing else goes on.
    pub fn new(indexed: Indexed, sessions: usize, session: Option<Arc<Session>>) -> Packer {
        // Without room: a full segment waits in the packer until a thread takes it.
        let (sender, receiver) = sync_channel::<FullSegment>(0);
        let (shared, receiver) = (Arc::new(Shared::default()), Arc::new(Mutex::new(receiver)));
        let thread = |_| {
            let (indexed, shared, receiver) = (indexed.clone(), Arc::clone(&shared), Arc::clone(&receiver));
            let session = session.clone();
            std::thread::spawn(move || store_all(&indexed, &shared, &receiver, session.as_deref()))
        };
        let threads = (0..sessions.max(1)).map(thread).collect();
        Packer { indexed, shared, sender, threads }
    }

    /// Believes this snapshot before all others: mostly it has all that is needed.
    pub fn expect(&self, parent: &SnapshotId) -> Result<()> {
        lock(&self.shared.trusted).read(&self.indexed, parent)
    }

    /// Adds a chunk unless it is known. Gives its place if an earlier backup stored it. Whether it
    /// was new.
    pub fn add(
        &self,
        kind: Kind,
        id: ChunkId,
        raw: &[u8],
        compressor: &mut Compressor,
    ) -> Result<(bool, Option<Location>)> {
        self.check()?;
        if lock(&self.shared.pending).contains(&id) {
            return Ok((false, None));
        }
        if let Some(location) = self.find(kind, &id)? {
            return Ok((false, Some(location)));
        }
        let prepared = Prepared::new(id, raw, compressor)?;
        let mut open = lock(&self.shared.open);
        if !lock(&self.shared.pending).insert(id) {
            return Ok((false, None));
        }
        let slot = match kind {
            Kind::Content => &mut open.content,
            Kind::Tree => &mut open.tree,
        };
        let target = self.indexed.header.segment_bytes;
        let writer = slot.get_or_insert_with(|| {
            let buffer = if kind == Kind::Content { lock(&self.shared.buffers).pop() } else { None };
            SegmentWriter::new(&self.indexed.keys, kind, self.indexed.salt(), buffer.unwrap_or_default())
        });
        writer.add(&prepared)?;
        self.shared.new_bytes.fetch_add(raw.len() as u64, Ordering::Relaxed);
        if writer.is_full(target)
            && let Some(full) = slot.take()
        {
            // Under the lock: other threads wait as well, and memory stays bounded.
            self.send(full)?;
        }
        Ok((true, None))
    }

    /// Where the chunk is stored, for sure: see above. None: it must be stored.
    pub fn find(&self, kind: Kind, id: &ChunkId) -> Result<Option<Location>> {
        let Some(first) = self.indexed.index().find(id) else { return Ok(None) };
        let mut trusted = lock(&self.shared.trusted);
        loop {
            // Mostly the first place is one of them.
            if trusted.has(first) {
                return Ok(Some(first));
            }
            let known = self.indexed.index().find_where(id, |place, is_marked| !is_marked && trusted.has(place));
            if known.is_some() {
                return Ok(known);
            }
            if !trusted.read_next(&self.indexed)? {
                break;
            }
        }
        drop(trusted);
        self.find_whole(kind, id, first)
    }

    /// Where the chunk is whole, which reading it shows.
    fn find_whole(&self, kind: Kind, id: &ChunkId, first: Location) -> Result<Option<Location>> {
        let (mut codec, mut content, mut tried) = (Decompressor::new()?, Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(place) = next {
            match self.indexed.chunk_at(kind, id, place, &mut codec, &mut content) {
                Ok(()) => {
                    lock(&self.shared.trusted).insert(place);
                    return Ok(next);
                }
                Err(BackupError::Damaged(_) | BackupError::Missing(_)) => tried.push(place),
                Err(error) => return Err(error),
            }
            next = self.indexed.index().find_where(id, |place, is_marked| !is_marked && !tried.contains(&place));
        }
        Ok(None)
    }

    /// Stores what is open, and waits until everything that was added is durable.
    pub fn flush(&self) -> Result<()> {
        let (content, tree) = {
            let mut open = lock(&self.shared.open);
            (open.content.take(), open.tree.take())
        };
        [content, tree].into_iter().flatten().try_for_each(|writer| self.send(writer))?;
        let mut under_way = lock(&self.shared.under_way);
        while *under_way > 0 {
            under_way = self.shared.arrived.wait(under_way).unwrap_or_else(PoisonError::into_inner);
        }
        drop(under_way);
        self.check()
    }

    fn send(&self, writer: SegmentWriter) -> Result<()> {
        *lock(&self.shared.under_way) += 1;
        self.sender.send(writer.finish()).map_err(|_| {
            *lock(&self.shared.under_way) -= 1;
            BackupError::Failed("the threads that store segments ended".to_owned())
        })
    }

    /// The failure of a storing thread.
    fn check(&self) -> Result<()> {
        lock(&self.shared.failure).clone().map_or(Ok(()), Err)
    }

    /// Stores what is open, and waits until everything is durable. `gathered` are the chunks of
    /// earlier backups.
    pub fn finish(self, gathered: Gathered) -> Result<Packed> {
        let (content, tree) = {
            let mut open = lock(&self.shared.open);
            (open.content.take(), open.tree.take())
        };
        [content, tree].into_iter().flatten().try_for_each(|writer| self.send(writer))?;
        let Packer { indexed, shared, sender, threads } = self;
        drop(sender);
        for thread in threads {
            thread.join().map_err(|_| BackupError::Failed("a thread that stores segments ended".to_owned()))?;
        }
        lock(&shared.failure).clone().map_or(Ok(()), Err)?;
        let mut references = gathered.references(&indexed.index())?;
        let mut stored = Vec::new();
        for (segment, chunks) in lock(&shared.stored).drain(..) {
            stored.push(segment);
            references.0.insert(segment, Ordinals::first(chunks));
        }
        Ok(Packed {
            references,
            stored,
            bytes_new: shared.new_bytes.load(Ordering::Relaxed),
            bytes_stored: shared.stored_bytes.load(Ordering::Relaxed),
        })
    }
}

/// A segment that is no longer under way when this is dropped, however that came.
struct Arrival<'a>(&'a Shared);

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let ended = || BackupError::Failed("a thread that stores segments ended".to_owned());
            lock(&self.0.failure).get_or_insert_with(ended);
        }
        *lock(&self.0.under_way) -= 1;
        self.0.arrived.notify_all();
    }
}

/// Stores segments until no more come. After a failure it only takes them, so that no sender waits
/// for ever.
fn store_all(indexed: &Indexed, shared: &Shared, receiver: &Mutex<Receiver<FullSegment>>, session: Option<&Session>) {
    loop {
        let next = lock(receiver).recv();
        let Ok(full) = next else { return };
        let _arrival = Arrival(shared);
        if lock(&shared.failure).is_some() {
            continue;
        }
        let stored = store(indexed, shared, full);
        let renewed = stored.and_then(|()| session.map_or(Ok(()), Session::keep_alive));
        if let Err(error) = renewed {
            lock(&shared.failure).get_or_insert(error);
        }
    }
}

fn store(indexed: &Indexed, shared: &Shared, full: FullSegment) -> Result<()> {
    let FullSegment { id, footer, bytes } = full;
    let length = bytes.len() as u64;
    let buffer = match indexed.store.create_from(&Name::segment(&id), bytes) {
        // A retry of a request whose answer was lost.
        Err(BackupError::Exists(_)) => Vec::new(),
        done => done?,
    };
    shared.stored_bytes.fetch_add(length, Ordering::Relaxed);
    let content = footer.kind == Kind::Content;
    let ids: Vec<ChunkId> = footer.entries.iter().map(|entry| entry.id).collect();
    lock(&shared.stored).push((id, ids.len()));
    // First known to the index, then no longer pending: in between a chunk is known twice, never
    // not at all.
    let mut trusted = lock(&shared.trusted);
    let number = indexed.index().add(id, footer, Ordinals::default())?;
    trusted.places.insert(number, Ordinals::first(ids.len()));
    drop(trusted);
    let mut pending = lock(&shared.pending);
    for id in &ids {
        pending.remove(id);
    }
    drop(pending);
    if content {
        lock(&shared.buffers).push(buffer);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
