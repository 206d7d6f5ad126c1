//! A repository: making and opening it, its passwords, its snapshots, and reading its chunks.

pub mod epochs;
pub mod footers;
pub mod keys;
pub mod locks;
pub mod trees;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stele_ground::counted_are;
use zeroize::Zeroizing;

use crate::chunker::{LENGTHS, Lengths};
use crate::codec::Decoder;
use crate::compress::Decompressor;
use crate::crypt::{ChunkId, Keys, Kind, Salt, Secret, check_value};
use crate::error::{BackupError, Result};
use crate::index::{Index, Location};
use crate::keyring::{Cost, is_escrow, parse_escrow};
use crate::newer;
use crate::references::References;
use crate::segment::{SEGMENT_BYTES, SEGMENT_BYTES_MAX, SegmentId};
use crate::snapshot::{SNAPSHOT_BYTES_MAX, Snapshot, SnapshotId};
use crate::store::{Folder, Name, Store};

const MAGIC: [u8; 8] = *b"STLBREP1";
const HEADER_BYTES: usize = 104;
/// That of a later version may be longer.
const HEADER_BYTES_MAX: u64 = 4096;
/// What to do about a header that is damaged.
const DAMAGED_HEADER: &str = "bring the object 'repository' back from a copy or an earlier version";
/// Passwords of one repository. Each wrong one costs an attempt at every key.
pub const KEYS_MAX: usize = 64;

/// What the library takes from its surroundings: entropy, and a clock that only measures.
pub trait Surroundings: Send + Sync {
    /// Fills the buffer with unpredictable bytes. They become keys.
    fn entropy(&self, into: &mut [u8]);

    /// Seconds since any fixed moment.
    fn elapsed(&self) -> u64;

    /// Nanoseconds since 1970 by the agent's clock. They order snapshots that the store dates by
    /// the same second, and decide nothing else.
    fn instant(&self) -> u64;
}

/// The parameters of a repository, readable by everyone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub id: [u8; 16],
    /// Tells whether an escrow belongs here.
    pub check: [u8; 32],
    pub lengths: Lengths,
    pub segment_bytes: usize,
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = [MAGIC.as_slice(), &self.id, &self.check].concat();
        for number in [self.lengths.min, self.lengths.average, self.lengths.max, self.segment_bytes] {
            bytes.extend_from_slice(&(number as u32).to_le_bytes());
        }
        let hash = blake3::hash(&bytes);
        bytes.extend_from_slice(hash.as_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Header> {
        if let Some(error) = newer::refusal_of_sealed("the object 'repository'", bytes, &MAGIC) {
            return Err(error);
        }
        let mut decoder = Decoder::new(bytes, "repository header");
        if decoder.array()? != MAGIC {
            return Err(decoder.damaged("it begins as no header does"));
        }
        let (id, check) = (decoder.array()?, decoder.array()?);
        let mut number = || decoder.u32().map(|number| number as usize);
        let lengths = Lengths { min: number()?, average: number()?, max: number()? };
        let segment_bytes = number()?;
        let hash: [u8; 32] = decoder.array()?;
        decoder.end()?;
        if bytes.get(..HEADER_BYTES - 32).map(blake3::hash) != Some(hash.into()) {
            return Err(decoder.damaged("its hash differs"));
        }
        let ordered = 0 < lengths.min && lengths.min <= lengths.average && lengths.average <= lengths.max;
        if !ordered || lengths.max > LENGTHS.max || segment_bytes > SEGMENT_BYTES {
            return Err(decoder.damaged("its lengths are impossible"));
        }
        Ok(Header { id, check, lengths, segment_bytes })
    }
}

/// Choices at the making of a repository.
#[derive(Clone, Copy, Debug)]
pub struct Making {
    pub lengths: Lengths,
    pub segment_bytes: usize,
    pub cost: Cost,
    pub defaults: locks::Defaults,
}

impl Default for Making {
    fn default() -> Making {
        Making { lengths: LENGTHS, segment_bytes: SEGMENT_BYTES, cost: Cost::STANDARD, defaults: Default::default() }
    }
}

/// A snapshot in the list of a repository.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dated {
    pub id: SnapshotId,
    /// When it was committed, by the store's clock: seconds since 1970.
    pub stored: u64,
    pub size: u64,
}

/// A segment in the list of a repository.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StoredSegment {
    pub id: SegmentId,
    pub size: u64,
    /// When it was stored, by the store's clock: seconds since 1970.
    pub stored: u64,
}

/// A repository without its key: what a server, or the holder of maintenance credentials, sees.
#[derive(Clone)]
pub struct Closed {
    pub store: Arc<dyn Store>,
    pub surroundings: Arc<dyn Surroundings>,
    pub header: Header,
}

/// A repository with its keys.
#[derive(Clone)]
pub struct Repository {
    pub closed: Closed,
    pub keys: Arc<Keys>,
}

impl std::ops::Deref for Repository {
    type Target = Closed;

    fn deref(&self) -> &Closed {
        &self.closed
    }
}

impl Closed {
    pub fn open(store: Arc<dyn Store>, surroundings: Arc<dyn Surroundings>) -> Result<Closed> {
        let header = match store.get(&Name::repository(), HEADER_BYTES_MAX) {
            Err(BackupError::Missing(_)) => {
                // A place that has backups gets no other repository.
                if let Some(text) = lost_header(&*store)? {
                    return Err(BackupError::Damaged(text));
                }
                return Err(BackupError::NoRepository(format!("there is no repository in {}", store.place())));
            }
            read => read.and_then(|bytes| Header::decode(&bytes)).map_err(|error| match error {
                BackupError::Damaged(text) => BackupError::Damaged(format!("{text}; {DAMAGED_HEADER}")),
                other => other,
            })?,
        };
        Ok(Closed { header, store, surroundings })
    }

    /// The snapshots, oldest first. Those of one second are in the order of their names; with the
    /// key, [`Repository::snapshots`] knows better.
    pub fn snapshots(&self) -> Result<Vec<Dated>> {
        let mut found = Vec::new();
        self.store.list(Folder::Snapshots, &mut |listed| {
            let id = listed.name.id().map(SnapshotId);
            found.extend(id.map(|id| Dated { id, stored: listed.stored, size: listed.size }));
            Ok(())
        })?;
        found.sort_by_key(|dated| (dated.stored, dated.id));
        Ok(found)
    }

    fn snapshot_bytes(&self, id: &SnapshotId) -> Result<Vec<u8>> {
        self.store.get(&Name::of(Folder::Snapshots, &id.0), SNAPSHOT_BYTES_MAX)
    }

    /// What a snapshot needs, read without the key.
    pub fn references(&self, id: &SnapshotId) -> Result<References> {
        Snapshot::decode_references(&self.snapshot_bytes(id)?, id, &self.header.id)
    }

    /// Segments of the store with their sizes.
    pub fn segments(&self) -> Result<Vec<(SegmentId, u64)>> {
        Ok(self.segments_dated()?.into_iter().map(|kept| (kept.id, kept.size)).collect())
    }

    /// Segments of the store with their sizes and dates.
    pub fn segments_dated(&self) -> Result<Vec<StoredSegment>> {
        let mut found = Vec::new();
        self.store.list(Folder::Segments, &mut |listed| {
            let id = listed.name.id().map(SegmentId).filter(|_| listed.size <= SEGMENT_BYTES_MAX);
            found.extend(id.map(|id| StoredSegment { id, size: listed.size, stored: listed.stored }));
            Ok(())
        })?;
        found.sort_unstable();
        Ok(found)
    }

    pub fn salt(&self) -> Salt {
        let mut salt = Salt::default();
        self.surroundings.entropy(&mut salt);
        salt
    }
}

impl Repository {
    /// Makes a repository in an empty store.
    pub fn make(
        store: Arc<dyn Store>,
        surroundings: Arc<dyn Surroundings>,
        password: &[u8],
        label: &str,
        making: Making,
    ) -> Result<Repository> {
        if store.get(&Name::repository(), HEADER_BYTES_MAX).is_ok() {
            return Err(BackupError::Exists(format!("{} has a repository already", store.place())));
        }
        let mut secret = Zeroizing::new([0; 32]);
        surroundings.entropy(secret.as_mut());
        let mut id = [0; 16];
        surroundings.entropy(&mut id);
        let header =
            Header { id, check: check_value(&secret), lengths: making.lengths, segment_bytes: making.segment_bytes };
        let closed = Closed { store, surroundings, header };
        let repository = Repository { closed, keys: Arc::new(Keys::new(secret)) };
        // A making that was interrupted may have left them. They never change.
        let before = repository.defaults()?;
        if before != making.defaults && before != locks::Defaults::default() {
            let place = repository.store.place();
            return Err(BackupError::Exists(format!(
                "{place} has other defaults of an earlier attempt; use another place"
            )));
        }
        // With another secret no backup would open any more what the place has. Keys alone are
        // those of a making that was interrupted.
        if let Some(text) = lost_header(&*repository.store)? {
            return Err(BackupError::Exists(format!("{text}, or use another place")));
        }
        // The key comes first: a crash between both leaves no repository, and a key that opens
        // nothing.
        repository.add_key(password, label, making.cost)?;
        if making.defaults != before {
            repository.store.create(&Name::defaults(), &making.defaults.encode())?;
        }
        repository.store.create(&Name::repository(), &header.encode())?;
        Ok(repository)
    }

    /// Opens with a password, or with the text of an escrow in its place.
    pub fn open(store: Arc<dyn Store>, surroundings: Arc<dyn Surroundings>, password: &[u8]) -> Result<Repository> {
        let closed = Closed::open(store, surroundings)?;
        let text = std::str::from_utf8(password).ok().filter(|text| is_escrow(text));
        let Some(text) = text else { return closed.open_by_password(password) };
        match parse_escrow(text) {
            Ok((id, secret)) if id == closed.header.id => Repository::open_with(closed, secret),
            // The text may be a password all the same. If it is none, the escrow was meant.
            Ok(_) => closed.open_by_password(password),
            Err(error) => closed.open_by_password(password).map_err(|_| error),
        }
    }

    /// Opens with the secret of an escrow.
    pub fn open_with(closed: Closed, secret: Secret) -> Result<Repository> {
        if check_value(&secret) != closed.header.check {
            return Err(BackupError::WrongPassword);
        }
        Ok(Repository { closed, keys: Arc::new(Keys::new(secret)) })
    }

    /// The snapshots, oldest first. The store dates them in whole seconds; those of one second are
    /// in the order of their ends by the agents' clocks. One that cannot be read comes first in its
    /// second, so it is never the latest of them.
    pub fn snapshots(&self) -> Result<Vec<Dated>> {
        let mut found = self.closed.snapshots()?;
        for together in found.chunk_by_mut(|a, b| a.stored == b.stored).filter(|together| together.len() > 1) {
            let ended = together.iter().map(|dated| Ok((dated.id, self.finished(&dated.id)?)));
            let ended = ended.collect::<Result<BTreeMap<SnapshotId, u64>>>()?;
            together.sort_by_key(|dated| (ended.get(&dated.id).copied(), dated.id));
        }
        Ok(found)
    }

    /// The end of a snapshot by its agent's clock. Zero: it cannot be read, or not by this version.
    fn finished(&self, id: &SnapshotId) -> Result<u64> {
        match self.snapshot(id) {
            Ok(snapshot) => Ok(snapshot.description.finished),
            Err(BackupError::Damaged(_) | BackupError::Newer(_) | BackupError::Missing(_)) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// What a snapshot needs, if the key shows that a backup made the list. Those of the first
    /// version do not show it.
    pub fn authentic_references(&self, id: &SnapshotId) -> Result<References> {
        let bytes = self.snapshot_bytes(id)?;
        let snapshot = Snapshot::decode(&bytes, id, &self.header.id, &self.keys)?;
        Ok(if Snapshot::is_bound(&bytes) { snapshot.references } else { References::default() })
    }

    pub fn snapshot(&self, id: &SnapshotId) -> Result<Snapshot> {
        Snapshot::decode(&self.snapshot_bytes(id)?, id, &self.header.id, &self.keys)
    }

    pub fn commit(&self, snapshot: &Snapshot) -> Result<(SnapshotId, u64)> {
        self.commit_locked(snapshot, None)
    }

    /// Stores a snapshot, locked if there is a date: see [`locks`].
    pub fn commit_locked(&self, snapshot: &Snapshot, until: Option<u64>) -> Result<(SnapshotId, u64)> {
        let (id, bytes) = snapshot.encode(&self.header.id, &self.keys, self.salt())?;
        // A snapshot that cannot be opened would stop every prune.
        Snapshot::decode(&bytes, &id, &self.header.id, &self.keys)?;
        let name = Name::of(Folder::Snapshots, &id.0);
        let stored = match until {
            None => self.store.create(&name, &bytes),
            Some(until) => {
                self.lock_needed(&snapshot.references, until)?;
                self.store.create_locked(&name, &bytes, until)
            }
        };
        match stored {
            // The name is the hash: a repeated request whose first answer was lost.
            Ok(()) | Err(BackupError::Exists(_)) => Ok((id, bytes.len() as u64)),
            Err(error) => Err(error),
        }
    }
}

/// Whether a place without a header has backups. What to do then.
fn lost_header(store: &dyn Store) -> Result<Option<String>> {
    for folder in [Folder::Snapshots, Folder::Segments] {
        if has_any(store, folder)? {
            let (place, folder) = (store.place(), folder.name());
            return Ok(Some(format!(
                "{place} has {folder} of a repository, whose object 'repository' is lost: bring that back from a copy \
                 or an earlier version"
            )));
        }
    }
    Ok(None)
}

fn has_any(store: &dyn Store, folder: Folder) -> Result<bool> {
    let mut found = false;
    let listed = store.list(folder, &mut |_| {
        found = true;
        // The first one is enough.
        Err(BackupError::Stopped)
    });
    if found { Ok(true) } else { listed.map(|()| false) }
}

/// A repository with an index of its chunks.
#[derive(Clone)]
pub struct Indexed {
    pub repository: Repository,
    /// Segments of a later version, which are not in the index.
    later: usize,
    index: Arc<Mutex<Index>>,
}

impl std::ops::Deref for Indexed {
    type Target = Repository;

    fn deref(&self) -> &Repository {
        &self.repository
    }
}

impl Indexed {
    /// `later` is the number of segments of a later version.
    pub fn new(repository: Repository, index: Index, later: usize) -> Indexed {
        Indexed { repository, later, index: Arc::new(Mutex::new(index)) }
    }

    pub fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error of a chunk that is in no segment of the index.
    fn nowhere(&self, id: &ChunkId) -> BackupError {
        let later = match self.later {
            0 => String::new(),
            later => format!(
                "; {} of a later version of Stele, and may have it: use that version",
                counted_are(later as u64, "segment")
            ),
        };
        BackupError::Damaged(format!("chunk {id:?} is in no readable segment{later}"))
    }

    /// Where the chunk is whole.
    pub fn find(&self, id: &ChunkId) -> Result<Location> {
        self.found(id, Index::find)
    }

    fn found(&self, id: &ChunkId, find: impl FnOnce(&mut Index, &ChunkId) -> Option<Location>) -> Result<Location> {
        let mut index = self.index();
        match find(&mut index, id) {
            Some(location) => Ok(location),
            None => Err(index.trouble().unwrap_or_else(|| self.nowhere(id))),
        }
    }

    /// Where to read the chunk, see [`Index::find_any`].
    pub fn find_any(&self, id: &ChunkId) -> Result<Location> {
        self.found(id, Index::find_any)
    }

    /// The content of one chunk, checked against its id. Where it is damaged, or not what its
    /// segment says, it is taken from another segment that has it.
    pub fn chunk(&self, kind: Kind, id: &ChunkId) -> Result<Vec<u8>> {
        let (mut codec, mut content) = (Decompressor::new()?, Vec::new());
        let location = self.find_any(id)?;
        match self.chunk_at(kind, id, location, &mut codec, &mut content) {
            Err(error @ (BackupError::Damaged(_) | BackupError::Missing(_))) => {
                match self.chunk_elsewhere(kind, id, location, &mut codec, &mut content)? {
                    true => Ok(content),
                    false => Err(error),
                }
            }
            done => done.map(|()| content),
        }
    }

    /// The content of the chunk at this place, checked against its id: what a segment says of
    /// itself is not authentic.
    pub fn chunk_at(
        &self,
        kind: Kind,
        id: &ChunkId,
        location: Location,
        codec: &mut Decompressor,
        content: &mut Vec<u8>,
    ) -> Result<()> {
        let (segment, directory) = {
            let mut index = self.index();
            (index.segment(location.segment)?, index.directory(location.segment)?)
        };
        let entry = directory.entry(location.ordinal).copied();
        let entry = entry.ok_or_else(|| BackupError::damaged("a segment has too few chunks"))?;
        let range = u64::from(entry.offset)..u64::from(entry.offset) + u64::from(entry.stored);
        let mut stored = self.store.get_range(&Name::segment(&segment), range)?;
        let key = directory.footer.key(&self.keys);
        directory.footer.open(&key, location.ordinal as usize, &mut stored, codec, content)?;
        self.check(kind, id, content)
    }

    /// Whether the content is that of the id.
    pub fn check(&self, kind: Kind, id: &ChunkId, content: &[u8]) -> Result<()> {
        match self.keys.id(kind, content) == *id {
            true => Ok(()),
            false => Err(BackupError::Damaged(format!("chunk {id:?} has another content"))),
        }
    }

    /// The content of the chunk from any place but `known`, which has it no longer. Whether there
    /// is one.
    pub fn chunk_elsewhere(
        &self,
        kind: Kind,
        id: &ChunkId,
        known: Location,
        codec: &mut Decompressor,
        content: &mut Vec<u8>,
    ) -> Result<bool> {
        let mut tried = vec![known];
        loop {
            let mut index = self.index();
            let Some(location) = index.find_other(id, &tried) else { return index.trouble().map_or(Ok(false), Err) };
            drop(index);
            match self.chunk_at(kind, id, location, codec, content) {
                Err(BackupError::Damaged(_) | BackupError::Missing(_)) => tried.push(location),
                done => return done.map(|()| true),
            }
        }
    }
}

#[cfg(test)]
mod tests;
