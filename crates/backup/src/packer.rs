//! From chunks to stored segments: one open segment for content and one for trees, and threads that store full ones.
//!
//! Memory is bounded: one open segment of each kind, and one in each storing thread. When all threads are busy, adding a
//! chunk waits. The first failure stops the backup; segments that were stored stay, and the next backup finds them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::compress::Compressor;
use crate::crypt::{ChunkId, Kind};
use crate::error::{BackupError, Result};
use crate::index::{Gathered, Location};
use crate::references::{Ordinals, References};
use crate::repository::Indexed;
use crate::repository::epochs::Session;
use crate::segment::{Footer, Prepared, SegmentId, Writer};
use crate::store::Name;

/// A full segment on its way to the store.
type Full = (Footer, Vec<u8>);

#[derive(Default)]
struct Open {
    content: Option<Writer>,
    tree: Option<Writer>,
}

#[derive(Default)]
struct Shared {
    open: Mutex<Open>,
    /// Chunks that are in open segments or on their way, and so in no index. A lock of its own: a thread that stores
    /// takes it while another one waits, with the open segments locked, for a thread that stores.
    pending: Mutex<BTreeSet<ChunkId>>,
    failure: Mutex<Option<BackupError>>,
    /// Segments that this packer stored, each with its number of chunks.
    stored: Mutex<Vec<(SegmentId, usize)>>,
    stored_bytes: AtomicU64,
    new_bytes: AtomicU64,
    /// Buffers of stored segments, to be filled again.
    buffers: Mutex<Vec<Vec<u8>>>,
}

pub struct Packer {
    indexed: Indexed,
    shared: Arc<Shared>,
    sender: SyncSender<Full>,
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
    /// With so many threads that store segments. Each renews the session of the backup behind every segment: the last
    /// gigabytes may take longer than a session lives, when nothing else goes on.
    pub fn new(indexed: Indexed, sessions: usize, session: Option<Arc<Session>>) -> Packer {
        // Without room: a full segment waits in the packer until a thread takes it.
        let (sender, receiver) = sync_channel::<Full>(0);
        let (shared, receiver) = (Arc::new(Shared::default()), Arc::new(Mutex::new(receiver)));
        let thread = |_| {
            let (indexed, shared, receiver) = (indexed.clone(), Arc::clone(&shared), Arc::clone(&receiver));
            let session = session.clone();
            std::thread::spawn(move || store_all(&indexed, &shared, &receiver, session.as_deref()))
        };
        let threads = (0..sessions.max(1)).map(thread).collect();
        Packer { indexed, shared, sender, threads }
    }

    /// Adds a chunk unless it is known. Gives its place if an earlier backup stored it. Whether it was new.
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
        if let Some(location) = self.indexed.index().find(&id) {
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
            Writer::new(&self.indexed.keys, kind, self.indexed.salt(), buffer.unwrap_or_default())
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

    fn send(&self, writer: Writer) -> Result<()> {
        let ended = |_| BackupError::Failed("the threads that store segments ended".to_owned());
        self.sender.send(writer.finish()).map_err(ended)
    }

    /// The failure of a storing thread.
    fn check(&self) -> Result<()> {
        lock(&self.shared.failure).clone().map_or(Ok(()), Err)
    }

    /// Stores what is open, and waits until everything is durable. `gathered` are the chunks of earlier backups.
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
            let mut all = Ordinals::default();
            (0..chunks).for_each(|ordinal| all.insert(ordinal));
            references.0.insert(segment, all);
        }
        Ok(Packed {
            references,
            stored,
            bytes_new: shared.new_bytes.load(Ordering::Relaxed),
            bytes_stored: shared.stored_bytes.load(Ordering::Relaxed),
        })
    }
}

/// Stores segments until no more come. After a failure it only takes them, so that no sender waits for ever.
fn store_all(indexed: &Indexed, shared: &Shared, receiver: &Mutex<Receiver<Full>>, session: Option<&Session>) {
    loop {
        let next = lock(receiver).recv();
        let Ok((footer, bytes)) = next else { return };
        if lock(&shared.failure).is_some() {
            continue;
        }
        let stored = store(indexed, shared, footer, bytes);
        let renewed = stored.and_then(|()| session.map_or(Ok(()), Session::keep_alive));
        if let Err(error) = renewed {
            lock(&shared.failure).get_or_insert(error);
        }
    }
}

fn store(indexed: &Indexed, shared: &Shared, footer: Footer, bytes: Vec<u8>) -> Result<()> {
    let id = SegmentId::of(&bytes);
    match indexed.store.create(&Name::segment(&id), &bytes) {
        // A retry of a request whose answer was lost.
        Err(BackupError::Exists(_)) => {}
        done => done?,
    }
    shared.stored_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    let content = footer.kind == Kind::Content;
    let ids: Vec<ChunkId> = footer.entries.iter().map(|entry| entry.id).collect();
    lock(&shared.stored).push((id, ids.len()));
    // First known to the index, then no longer pending: in between a chunk is known twice, never not at all.
    indexed.index().add(id, footer, Ordinals::default())?;
    let mut pending = lock(&shared.pending);
    for id in &ids {
        pending.remove(id);
    }
    drop(pending);
    if content {
        lock(&shared.buffers).push(bytes);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
