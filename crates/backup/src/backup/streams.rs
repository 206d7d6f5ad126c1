//! Streams of generated content, saved and restored object by object by many sessions at once: what
//! the laboratory drives.
//!
//! [`Streams`] is one opening of a repository. Each [`Stream`] is a session with a packer of its
//! own, as if it were an agent of its own; all share one index. A stream saves whole objects. When
//! [`Stream::save`] returns, all chunks of the object are in durable segments, but a prune would
//! remove them: they belong to a snapshot from [`Streams::settle`] on.
//!
//! An object has a place: its length and a number. Restores read what the snapshots of this opening
//! say about a place, by the code that restores files: ranges of segments, opened, decompressed and
//! compared with the ids of their chunks.
//!
//! Two kinds of repositories are driven:
//!
//! - One that this code made, in a place that had none. Its one key has the label [`LABEL`].
//!   Everything in it is generated, so it is removed as a whole, and segments that no snapshot
//!   needs go at once.
//! - Any other. Only snapshots of this opening are removed, and its session. The space comes back
//!   with the next prunes, which alone know what other backups need.
//!
//! A killed process leaves its snapshots, all of host [`LABEL`], and a session that lapses after a
//! day.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::{BackupOptions, BackupProgress, Job, collect, lock};
use crate::chunker::Chunker;
use crate::compress::Compressor;
use crate::crypt::Kind;
use crate::error::{BackupError, Result};
use crate::index::Gathered;
use crate::packer::Packer;
use crate::references::References;
use crate::repository::epochs::Session;
use crate::repository::trees::Walk;
use crate::repository::{Indexed, Making, Repository, Surroundings};
use crate::restore::memory;
use crate::snapshot::{Counts, Description, Snapshot, SnapshotId};
use crate::store::{Folder, Name, Store};
use crate::tree::{Content, Entry, Metadata, Piece, Stamp};

/// The host of the snapshots, and the label of the key of a repository that this code made.
pub const LABEL: &str = "stele-lab";
/// The directory of the objects that restores read, and of the others.
const KEPT: &[u8] = b"objects";
const PASSING: &[u8] = b"streams";

/// The place of an object: its length and its number.
pub type Place = (u64, u32);

/// An opening of a repository for generated streams.
pub struct Streams {
    repository: Repository,
    session: Arc<Session>,
    made: bool,
    options: BackupOptions,
    progress: BackupProgress,
    state: Mutex<State>,
    /// Objects so far; they order those of one place.
    saved: AtomicU64,
}

struct State {
    indexed: Indexed,
    places: BTreeMap<Place, Arc<Vec<Piece>>>,
    /// Streams that ended, and whose objects have no snapshot yet.
    ended: Vec<Stream>,
    /// The snapshots of kept objects, in their order.
    kept: Vec<SnapshotId>,
}

/// What a stream saved, by the place and the order.
type Objects = BTreeMap<(Place, u64), Vec<Piece>>;

/// One session. It belongs to one thread at a time.
pub struct Stream {
    indexed: Indexed,
    packer: Packer,
    chunker: Chunker,
    compressor: Compressor,
    gathered: Gathered,
    kept: Objects,
    passing: Objects,
}

/// Whether the repository was made by this code, and for it alone.
pub fn is_made(repository: &crate::repository::Closed) -> Result<bool> {
    // A damaged key may be that of an operator.
    Ok(repository.keys_listed()?.iter().map(|key| key.label.as_str()).eq([LABEL]))
}

/// Whether the repository has a snapshot. One that this code made may have become the repository of
/// an operator's backups.
pub fn has_snapshots(repository: &crate::repository::Closed) -> Result<bool> {
    let mut any = false;
    repository.store.list(Folder::Snapshots, &mut |_| {
        any = true;
        Ok(())
    })?;
    Ok(any)
}

/// Makes a repository for generated streams alone. The place must have none.
pub fn make(store: Arc<dyn Store>, surroundings: Arc<dyn Surroundings>, password: &[u8]) -> Result<Repository> {
    Repository::make(store, surroundings, password, LABEL, Making::default())
}

/// Removes a repository that [`make`] made. Refuses any other.
///
/// Crash points: while the header is there, the place is a repository of this code, and a
/// repetition goes on. Behind its removal only a key is left, which opens nothing.
pub fn unmake(repository: &crate::repository::Closed) -> Result<()> {
    if !is_made(repository)? {
        return Err(BackupError::Refused(format!("{} was not made by the laboratory", repository.store.place())));
    }
    let remove_all = |folder: Folder| {
        let mut names = Vec::new();
        repository.store.list(folder, &mut |listed| {
            names.push(listed.name);
            Ok(())
        })?;
        names.iter().try_for_each(|name| gone(repository.store.remove(name)))
    };
    for folder in [Folder::Snapshots, Folder::Sessions, Folder::Epochs, Folder::Damaged, Folder::Segments] {
        remove_all(folder)?;
    }
    gone(repository.store.remove(&Name::repository()))?;
    remove_all(Folder::Keys)?;
    repository.store.tidy()
}

/// An object that is gone already was removed by an earlier attempt.
fn gone(removed: Result<()>) -> Result<()> {
    match removed {
        Err(BackupError::Missing(_)) => Ok(()),
        other => other,
    }
}

impl Streams {
    /// `begun` is the agent's clock, in seconds since 1970.
    pub fn open(repository: Repository, program: &str, level: i32, begun: u64) -> Result<Streams> {
        let made = is_made(&repository)?;
        let (session, epoch) = repository.begin_session()?;
        let (indexed, _) = repository.index(&epoch, None)?;
        let options = BackupOptions {
            paths: Vec::new(),
            filter: Default::default(),
            one_file_system: false,
            exclude_caches: false,
            exclude_if_present: Vec::new(),
            read_all: true,
            level,
            workers: 1,
            sessions: 1,
            cache: None,
            host: LABEL.to_owned(),
            user: String::new(),
            program: program.to_owned(),
            tags: vec![LABEL.to_owned()],
            excludes: Vec::new(),
            begun,
            locked_until: None,
        };
        let state = State { indexed, places: BTreeMap::new(), ended: Vec::new(), kept: Vec::new() };
        Ok(Streams {
            repository,
            session: Arc::new(session),
            made,
            options,
            progress: BackupProgress::default(),
            state: Mutex::new(state),
            saved: AtomicU64::new(0),
        })
    }

    /// Whether [`Streams::remove`] removes the whole repository.
    pub fn is_made(&self) -> bool {
        self.made
    }

    /// Begins a session.
    pub fn stream(&self) -> Result<Stream> {
        let indexed = lock(&self.state).indexed.clone();
        Ok(Stream {
            packer: Packer::new(indexed.clone(), self.options.sessions, Some(Arc::clone(&self.session))),
            chunker: Chunker::new(indexed.keys.boundaries(), indexed.header.lengths),
            compressor: Compressor::new(self.options.level)?,
            gathered: Gathered::default(),
            kept: Objects::new(),
            passing: Objects::new(),
            indexed,
        })
    }

    /// Saves an object. If it is kept, restores of its place read it once [`Streams::settle`] was
    /// called; for this process at once.
    pub fn save(&self, stream: &mut Stream, place: Place, is_kept: bool, content: &[u8]) -> Result<()> {
        self.session.keep_alive()?;
        let pieces = stream.pack(content)?;
        let order = self.saved.fetch_add(1, Ordering::Relaxed);
        if is_kept {
            lock(&self.state).places.insert(place, Arc::new(pieces.clone()));
            stream.kept.insert((place, order), pieces);
        } else {
            stream.passing.insert((place, order), pieces);
        }
        Ok(())
    }

    /// Restores the object of a place, which is as long as `into`.
    pub fn restore(&self, place: Place, into: &mut [u8]) -> Result<()> {
        let (indexed, pieces) = {
            let state = lock(&self.state);
            let pieces = state.places.get(&place).cloned();
            let pieces = pieces.ok_or_else(|| BackupError::Missing(format!("no object {place:?} was saved")))?;
            (state.indexed.clone(), pieces)
        };
        memory::run(&indexed, &pieces, into)
    }

    /// Ends a session. Its objects are part of a snapshot once [`Streams::settle`] was called.
    pub fn end(&self, stream: Stream) {
        lock(&self.state).ended.push(stream);
    }

    /// Commits a snapshot for each ended session. Then it opens the index anew, and reads from the
    /// snapshots where the kept objects are: from here on restores know nothing else. Snapshots of
    /// passing objects are removed again.
    pub fn settle(&self) -> Result<()> {
        let ended = std::mem::take(&mut lock(&self.state).ended);
        let mut passing = Vec::new();
        for stream in ended {
            let is_kept = stream.passing.is_empty();
            if let Some(id) = self.commit(stream)? {
                if is_kept { lock(&self.state).kept.push(id) } else { passing.push(id) }
            }
        }
        for id in &passing {
            gone(self.repository.store.remove(&Name::of(Folder::Snapshots, &id.0)))?;
        }
        let kept = lock(&self.state).kept.clone();
        if self.made {
            self.sweep(&kept)?;
        }
        let (indexed, _) = self.repository.index(&self.repository.epoch()?, None)?;
        let places = places(&indexed, &kept)?;
        let mut state = lock(&self.state);
        (state.indexed, state.places) = (indexed, places);
        Ok(())
    }

    /// None: the session saved nothing.
    fn commit(&self, stream: Stream) -> Result<Option<SnapshotId>> {
        let Stream { indexed, packer, chunker, gathered, kept, passing, .. } = stream;
        if kept.is_empty() && passing.is_empty() {
            return packer.finish(Gathered::default()).map(|_| None);
        }
        let job = Job {
            indexed: &indexed,
            options: &self.options,
            progress: &self.progress,
            packer: &packer,
            chunker,
            under_way: Mutex::default(),
            room: Condvar::new(),
            issues: Mutex::default(),
            counts: Mutex::default(),
            gathered: Mutex::new(gathered),
            failure: Mutex::default(),
        };
        let (mut counts, mut paths) = (Counts::default(), Vec::new());
        let mut tree = collect::Collector::new(&job)?;
        // In the order of their names.
        for (directory, objects) in [(KEPT, kept), (PASSING, passing)] {
            if objects.is_empty() {
                continue;
            }
            paths.push(directory.to_vec());
            let all = [entry(directory.to_vec(), Content::Directory, 0o700)];
            let objects =
                objects.into_iter().map(|(which, pieces)| entry(name_of(which), collect::file(pieces), 0o600));
            for (depth, entry) in all.into_iter().map(|entry| (0, entry)).chain(objects.map(|entry| (1, entry))) {
                collect::count(&mut counts, &self.progress, &entry, true);
                tree.add(depth, entry)?;
            }
        }
        let tree = tree.finish()?;
        let gathered = job.gathered.into_inner().unwrap_or_else(PoisonError::into_inner);
        let packed = packer.finish(gathered)?;
        (counts.bytes_new, counts.bytes_stored) = (packed.bytes_new, packed.bytes_stored);
        let BackupOptions { host, user, program, tags, begun, .. } = self.options.clone();
        let finished = self.repository.surroundings.instant();
        let description =
            Description { host, user, program, begun, finished, paths, tags, counts, tree, ..Description::default() };
        description.check()?;
        self.session.check()?;
        let snapshot = Snapshot { references: packed.references, description };
        let (id, _) = self.repository.commit(&snapshot)?;
        self.session.confirm(&id, &snapshot.references)?;
        Ok(Some(id))
    }

    /// Removes the segments that no snapshot needs, of a repository that has no other user.
    fn sweep(&self, kept: &[SnapshotId]) -> Result<()> {
        let mut needed = References::default();
        for id in kept {
            needed.0.extend(self.repository.references(id)?.0);
        }
        for (segment, _) in self.repository.segments()? {
            if !needed.0.contains_key(&segment) {
                gone(self.repository.store.remove(&Name::segment(&segment)))?;
            }
        }
        Ok(())
    }

    /// Removes the snapshots of this opening and its session; or all of the repository, if it was
    /// made for the streams.
    pub fn remove(&self) -> Result<()> {
        let ended = std::mem::take(&mut lock(&self.state).ended);
        for Stream { packer, .. } in ended {
            // What was not committed is left to prune, as of any backup that failed.
            let _ = packer.finish(Gathered::default());
        }
        if self.made {
            return unmake(&self.repository);
        }
        for id in std::mem::take(&mut lock(&self.state).kept) {
            gone(self.repository.store.remove(&Name::of(Folder::Snapshots, &id.0)))?;
        }
        gone(self.session.remove())
    }

    /// Ends the session, and leaves the snapshots.
    pub fn keep(&self) -> Result<()> {
        self.session.end()
    }
}

impl Stream {
    /// The pieces of an object, all durable.
    fn pack(&mut self, content: &[u8]) -> Result<Vec<Piece>> {
        let (mut pieces, mut from) = (Vec::new(), 0);
        while let Some(rest) = content.get(from..).filter(|rest| !rest.is_empty()) {
            let raw = rest.get(..self.chunker.cut(rest)).unwrap_or_default();
            let id = self.indexed.keys.id(Kind::Content, raw);
            let (_, location) = self.packer.add(Kind::Content, id, raw, &mut self.compressor)?;
            if let Some(location) = location {
                self.gathered.insert(location);
            }
            pieces.push(Piece::Chunk { id, length: raw.len() as u32 });
            from += raw.len();
        }
        self.packer.flush()?;
        Ok(pieces)
    }
}

fn entry(name: Vec<u8>, content: Content, mode: u32) -> Entry {
    let metadata = Metadata { mode, modified: Stamp::default(), links: 1, ..Metadata::default() };
    Entry { name, metadata, content }
}

/// The order of the names is that of the objects.
fn name_of(((length, number), order): (Place, u64)) -> Vec<u8> {
    format!("{length:012}-{number:08}-{order:012}").into_bytes()
}

fn place_of(name: &[u8]) -> Option<Place> {
    let mut parts = std::str::from_utf8(name).ok()?.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Where the kept objects are, as the snapshots say. Of several in one place the latest counts.
fn places(indexed: &Indexed, kept: &[SnapshotId]) -> Result<BTreeMap<Place, Arc<Vec<Piece>>>> {
    let mut found: BTreeMap<Place, (Vec<u8>, Arc<Vec<Piece>>)> = BTreeMap::new();
    for id in kept {
        let description = indexed.snapshot(id)?.description;
        let mut walk = Walk::new(indexed, &description, KEPT);
        while let Some(file) = walk.step()? {
            let Some(place) = place_of(&file.entry.name) else { continue };
            if found.get(&place).is_none_or(|(before, _)| *before < file.entry.name) {
                let pieces = Arc::new(indexed.pieces(&file.entry.content)?);
                found.insert(place, (file.entry.name, pieces));
            }
        }
    }
    Ok(found.into_iter().map(|(place, (_, pieces))| (place, pieces)).collect())
}

#[cfg(test)]
mod tests;
