//! One backup: the walk, the threads that read and chunk, and the tree, in one pipeline with
//! bounded memory.
//!
//! ```text
//! walk --batches--> workers (read, chunk, hash, compress, pack) --batches--> tree, in the order of the walk
//! ```
//!
//! The walk compares every entry with the previous snapshot, which it reads in the same order. A
//! file whose size, times and inode are the same is not opened. Its chunks must still be found in
//! the index: a chunk that was lost is so replaced by the next backup that has the content. The
//! snapshot is committed when all segments are durable. A killed backup leaves segments; the next
//! one finds them and stores nothing twice.

mod collect;
mod read;
mod scan;
pub mod streams;
pub mod volume;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::Stat;

use crate::chunker::Chunker;
use crate::error::{BackupError, Result};
use crate::filter::Filter;
use crate::index::Gathered;
use crate::packer::Packer;
use crate::references::Ordinals;
use crate::repository::epochs::{Epoch, Session};
use crate::repository::footers::mark;
use crate::repository::{Indexed, Repository};
use crate::segment::SegmentId;
use crate::snapshot::{Counts, Description, ISSUES_MAX, Issue, Snapshot, SnapshotId};
use crate::store::Name;
use crate::tree::{Entry, Metadata, Piece};
use crate::walk::DirectoryHandle;

/// Batches between the walk and the tree. The walk waits when so many are under way.
const BATCHES_MAX: usize = 128;
/// Entries of a batch, and bytes of its files.
const BATCH_ENTRIES: usize = 64;
const BATCH_BYTES: u64 = 4 << 20;
/// Directories of the files of a batch that are to be read. Each stays open until then, and many
/// systems let a process have no more than 1024 open files.
const BATCH_FOLDERS: usize = 4;
const _: () = assert!(BATCHES_MAX * BATCH_FOLDERS <= 512);
/// A longer file is chunked in spans of this length, by several workers.
pub const SPAN: u64 = 64 << 20;

/// What to save, and how.
#[derive(Clone, Debug)]
pub struct BackupOptions {
    pub paths: Vec<PathBuf>,
    pub filter: Filter,
    pub one_file_system: bool,
    /// Leaves out the content of directories that have a CACHEDIR.TAG.
    pub exclude_caches: bool,
    /// Leaves out the content of directories that have a file of such a name.
    pub exclude_if_present: Vec<OsString>,
    /// Reads every file, also those that look unchanged.
    pub read_all: bool,
    pub level: i32,
    /// Threads that read and chunk.
    pub workers: usize,
    /// Threads that store segments.
    pub sessions: usize,
    /// Where footers are cached; only for a store far away.
    pub cache: Option<PathBuf>,
    pub host: String,
    pub user: String,
    pub program: String,
    pub tags: Vec<String>,
    pub excludes: Vec<String>,
    /// Beginning by the agent's clock: seconds since 1970.
    pub begun: u64,
    /// Locks the snapshot until this date by the store's clock.
    pub locked_until: Option<u64>,
}

/// What a running backup has done so far.
#[derive(Default, Debug)]
pub struct BackupProgress {
    pub files: AtomicU64,
    pub bytes: AtomicU64,
    /// Files and bytes of the previous snapshot, as an estimate. Zero: unknown.
    pub files_expected: AtomicU64,
    pub bytes_expected: AtomicU64,
    /// Set to end the backup early.
    pub stop: AtomicBool,
}

impl Item {
    /// The directory that stays open until the file is read.
    fn folder(&self) -> Option<&DirectoryHandle> {
        match self {
            Item::Ready { .. } => None,
            Item::Read { file, .. } | Item::Span { file, .. } => Some(&file.folder),
        }
    }
}

impl BackupProgress {
    fn check(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(BackupError::Stopped) } else { Ok(()) }
    }
}

/// The outcome of a backup.
#[derive(Clone, Debug)]
pub struct Saved {
    pub id: SnapshotId,
    pub parent: Option<SnapshotId>,
    pub description: Description,
    /// Segments whose footer could not be read.
    pub unreadable: usize,
    /// Of a volume.
    pub volume: Option<volume::Figures>,
}

/// One entry on its way through the pipeline.
enum Item {
    /// Needs no reading.
    Ready { depth: usize, entry: Entry, unchanged: bool },
    /// A file to be read in one go.
    Read { depth: usize, file: FileAt },
    /// A part of a file.
    Span { depth: usize, file: FileAt, from: u64, length: u64, last: bool },
}

/// A file, by its directory.
#[derive(Clone)]
struct FileAt {
    folder: DirectoryHandle,
    name: Vec<u8>,
    stat: Stat,
    path: Arc<[u8]>,
    metadata: Metadata,
    /// Whether trouble of this file is listed already. All of its spans share it.
    is_listed: Arc<AtomicBool>,
}

/// What a worker made of an item.
enum Done {
    Entry {
        depth: usize,
        entry: Entry,
    },
    /// A part of a file, unless it could not be read. With the last part, the depth and the name of
    /// the file.
    Part {
        read: Option<(Vec<Piece>, Metadata)>,
        last: Option<(usize, Vec<u8>)>,
    },
}

type Numbered<T> = (u64, Vec<T>);

/// What all threads share.
struct Job<'a> {
    indexed: &'a Indexed,
    options: &'a BackupOptions,
    progress: &'a BackupProgress,
    packer: &'a Packer,
    chunker: Chunker,
    under_way: Mutex<usize>,
    room: Condvar,
    issues: Mutex<(u64, Vec<Issue>)>,
    counts: Mutex<Counts>,
    gathered: Mutex<Gathered>,
    failure: Mutex<Option<BackupError>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Job<'_> {
    fn issue(&self, path: &[u8], text: String) {
        let (count, issues) = &mut *lock(&self.issues);
        *count += 1;
        if issues.len() < ISSUES_MAX {
            issues.push(Issue { path: path.to_vec(), text });
        }
    }

    /// Lists trouble of reading a file, once for all of its spans.
    fn trouble(&self, file: &FileAt, text: String) {
        if !file.is_listed.swap(true, Ordering::Relaxed) {
            self.issue(&file.path, text);
        }
    }

    fn fail(&self, error: BackupError) {
        lock(&self.failure).get_or_insert(error);
        self.room.notify_all();
    }

    fn failed(&self) -> bool {
        lock(&self.failure).is_some()
    }

    /// Waits until a batch may begin.
    fn begin_batch(&self) -> Result<()> {
        let mut under_way = lock(&self.under_way);
        while *under_way >= BATCHES_MAX && !self.failed() {
            under_way = self.room.wait(under_way).unwrap_or_else(PoisonError::into_inner);
        }
        *under_way += 1;
        drop(under_way);
        lock(&self.failure).clone().map_or(Ok(()), Err)?;
        self.progress.check()
    }

    fn end_batch(&self) {
        *lock(&self.under_way) -= 1;
        self.room.notify_all();
    }
}

/// Where the content of a backup comes from.
pub enum Source<'a> {
    /// The paths of the options.
    Files,
    /// One file of this name with the content of a stream.
    Stream { name: Vec<u8>, reader: &'a mut dyn std::io::Read },
    /// A snapshot of a volume of an array.
    Volume { name: String, reader: &'a dyn volume::VolumeReader },
}

/// A backup whose segments are durable, and whose snapshot is to be stored.
struct Made {
    snapshot: Snapshot,
    parent: Option<SnapshotId>,
    indexed: Indexed,
    /// The segments that it stored itself.
    stored: Vec<SegmentId>,
    unreadable: usize,
    volume: Option<volume::Figures>,
}

/// Makes a backup. Files that cannot be read are listed in its description; everything else is an
/// error.
pub fn run(
    repository: &Repository,
    source: Source<'_>,
    options: &BackupOptions,
    progress: &BackupProgress,
) -> Result<Saved> {
    let paths = match &source {
        Source::Files => scan::roots(&options.paths)?,
        Source::Stream { name, .. } => vec![name.clone()],
        Source::Volume { name, .. } => vec![volume::path(name)?],
    };
    let request = Description {
        host: options.host.clone(),
        user: options.user.clone(),
        program: options.program.clone(),
        begun: options.begun,
        paths,
        tags: options.tags.clone(),
        excludes: options.excludes.clone(),
        has_volume: matches!(source, Source::Volume { .. }),
        ..Description::default()
    };
    request.check()?;
    // Those of a later version may say how this very backup is to be kept.
    if let Err(error @ BackupError::Newer(_)) = repository.defaults() {
        return Err(error);
    }
    if let Some(until) = options.locked_until {
        // The header needs the lock in any case. A store or a key that cannot lock is found before
        // the work, and before there is a session that would hold prune back.
        repository.store.lock(&Name::repository(), until)?;
    }
    let (session, epoch) = repository.begin_session()?;
    let session = Arc::new(session);
    // Until the commit no snapshot needs what was stored. From then on the session stays if
    // something fails, unless the store refused: the snapshot may be there, although its answer was
    // lost.
    let made = make(repository, &session, &epoch, source, request, options, progress);
    let Made { snapshot, parent, indexed, stored, unreadable, volume } = made.inspect_err(|_| session.abandon())?;
    let committed = repository.commit_locked(&snapshot, options.locked_until);
    let (id, _) = committed.inspect_err(|error| match error {
        BackupError::Full(_) | BackupError::Refused(_) | BackupError::Invalid(_) => session.abandon(),
        _ => {}
    })?;
    // The segments of a locked snapshot were there when they were locked, and nothing removes them.
    if options.locked_until.is_none() {
        session.confirm(&id, &snapshot.references)?;
    }
    // The snapshot is there. A session that could not be ended only delays the removal of segments.
    let _ = session.end();
    if volume.is_some() {
        volume::confirm(&indexed, &id, &stored, progress)?;
    }
    Ok(Saved { id, parent, description: snapshot.description, unreadable, volume })
}

/// Stores all that the snapshot of `request` needs.
fn make(
    repository: &Repository,
    session: &Arc<Session>,
    epoch: &Epoch,
    source: Source<'_>,
    request: Description,
    options: &BackupOptions,
    progress: &BackupProgress,
) -> Result<Made> {
    let paths = &request.paths;
    let (indexed, loaded) = repository.index(epoch, options.cache.as_deref())?;
    for segment in &loaded.unmarked {
        // What this backup stores again in their place is needed by earlier snapshots, and prune
        // must know.
        match mark(&*repository.store, segment, &Ordinals::all()) {
            Err(BackupError::Refused(_)) => {}
            marked => marked?,
        }
    }
    let mut base = None;
    let parent = match &source {
        _ if options.read_all => None,
        Source::Volume { reader, .. } => {
            base = volume::find_base(&indexed, paths, &options.host, *reader)?;
            base.as_ref().map(|base| (base.snapshot, base.description.clone()))
        }
        _ => find_parent(&indexed, paths, &options.host)?,
    };
    if let Some((_, description)) = &parent {
        progress.files_expected.store(description.counts.files, Ordering::Relaxed);
        progress.bytes_expected.store(description.counts.bytes, Ordering::Relaxed);
    }
    let packer = Packer::new(indexed.clone(), options.sessions, Some(Arc::clone(session)));
    parent.as_ref().map_or(Ok(()), |(id, _)| packer.expect(id))?;
    let job = Job {
        indexed: &indexed,
        options,
        progress,
        packer: &packer,
        chunker: Chunker::new(indexed.keys.boundaries(), indexed.header.lengths),
        under_way: Mutex::default(),
        room: Condvar::new(),
        issues: Mutex::default(),
        counts: Mutex::default(),
        gathered: Mutex::default(),
        failure: Mutex::default(),
    };
    let mut figures = None;
    let tree = match source {
        Source::Files => {
            let before = parent.as_ref().map(|(_, description)| description);
            pipeline(&job, |send| {
                scan::walk(&job, paths, before, &mut |batch| {
                    session.keep_alive()?;
                    send(batch)
                })
            })?
        }
        Source::Stream { name, reader } => read::stream(&job, &name, reader, session)?,
        Source::Volume { name, reader } => {
            let (tree, done) = volume::save(&job, &name, reader, base.as_ref(), session)?;
            figures = Some(done);
            tree
        }
    };
    let Job { issues, counts, gathered, .. } = job;
    let packed = packer.finish(gathered.into_inner().unwrap_or_else(PoisonError::into_inner))?;
    let (problems, mut issues) = issues.into_inner().unwrap_or_else(PoisonError::into_inner);
    issues.sort_by(|a, b| a.path.cmp(&b.path));
    let mut counts = counts.into_inner().unwrap_or_else(PoisonError::into_inner);
    (counts.bytes_new, counts.bytes_stored) = (packed.bytes_new, packed.bytes_stored);
    let finished = repository.surroundings.instant();
    let description = Description { finished, counts, problems, issues, tree, ..request };
    progress.check()?;
    session.check()?;
    Ok(Made {
        snapshot: Snapshot { references: packed.references, description },
        parent: parent.map(|(id, _)| id),
        indexed,
        stored: packed.stored,
        unreadable: loaded.unreadable.len(),
        volume: figures,
    })
}

type Tree = Vec<(crate::crypt::ChunkId, Vec<u8>)>;

/// Runs the walk on this thread, the workers and the tree on others. The first failure ends all of
/// them.
fn pipeline(job: &Job<'_>, walk: impl FnOnce(&mut dyn FnMut(Vec<Item>) -> Result<()>) -> Result<()>) -> Result<Tree> {
    let (items, taken) = sync_channel::<Numbered<Item>>(BATCHES_MAX);
    let (done, collected) = channel::<Numbered<Done>>();
    let taken = Mutex::new(taken);
    let tree = std::thread::scope(|scope| {
        for _ in 0..job.options.workers.max(1) {
            let (done, taken) = (done.clone(), &taken);
            scope.spawn(move || work(job, taken, &done));
        }
        drop(done);
        let tree = scope.spawn(|| collect::tree(job, collected));
        let mut number = 0;
        let walked = walk(&mut |batch| {
            job.begin_batch()?;
            let ended = |_| BackupError::Failed("the threads of the backup ended".to_owned());
            items.send((number, batch)).map_err(ended)?;
            number += 1;
            Ok(())
        });
        if let Err(error) = walked {
            job.fail(error);
        }
        drop(items);
        tree.join().map_err(|_| BackupError::Failed("the thread of the tree ended".to_owned()))
    })?;
    lock(&job.failure).clone().map_or(Ok(()), Err)?;
    tree
}

fn work(job: &Job<'_>, taken: &Mutex<Receiver<Numbered<Item>>>, done: &std::sync::mpsc::Sender<Numbered<Done>>) {
    let mut worker = match read::Worker::new(job) {
        Ok(worker) => worker,
        Err(error) => return job.fail(error),
    };
    loop {
        let next = lock(taken).recv();
        let Ok((number, items)) = next else { break };
        // After a failure the batches are only taken, so that the walk does not wait for ever.
        let made = match job.failed() {
            true => Vec::new(),
            false => worker.batch(items).unwrap_or_else(|error| {
                job.fail(error);
                Vec::new()
            }),
        };
        if done.send((number, made)).is_err() {
            break;
        }
    }
    worker.finish();
}

/// The latest snapshot of the same paths of the same host that can be read.
fn find_parent(indexed: &Indexed, paths: &[Vec<u8>], host: &str) -> Result<Option<(SnapshotId, Description)>> {
    for dated in indexed.snapshots()?.into_iter().rev() {
        match indexed.snapshot(&dated.id) {
            Ok(Snapshot { description, .. }) if description.host == host && description.paths == paths => {
                return Ok(Some((dated.id, description)));
            }
            // One that is damaged, newer, or was forgotten meanwhile, is no parent.
            Ok(_) | Err(BackupError::Damaged(_) | BackupError::Newer(_) | BackupError::Missing(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The paths as a snapshot of them has them: with the links above them resolved, sorted, none
/// within another one.
pub fn tree_paths(paths: &[PathBuf]) -> Result<Vec<Vec<u8>>> {
    scan::roots(paths)
}

/// The absolute form of a path in a tree: without a slash before it.
pub fn tree_path(path: &Path) -> Result<Vec<u8>> {
    scan::roots(&[path.to_owned()]).map(|mut paths| paths.pop().unwrap_or_default())
}

#[cfg(test)]
mod tests;
