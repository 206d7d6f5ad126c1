//! Snapshots as one read-only tree of directories, for a file system that is mounted.
//!
//! ```text
//! ids/<digits>     one directory for each snapshot
//! dates/<moment>   links to them, by the store's clock
//! latest           a link to the latest of one host, if the caller names it
//! ```
//!
//! The number of a file says where its entry is: the snapshot, the chunk of its tree, and the place
//! in the chunk. So no table of files grows while they are visited. What was read is kept in three
//! caches of stated sizes. The snapshots are those of the beginning; a snapshot that is forgotten
//! meanwhile answers with errors.
//!
//! Where a chunk of a tree is lost, listings go on behind it and end with an error. The description
//! has the path of the first entry of every chunk. So a directory is shown whose own entry is lost
//! while the next chunk begins within it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::crypt::{ChunkId, Kind};
use crate::error::{BackupError, Result};
use crate::repository::trees::Found;
use crate::repository::{Dated, Indexed};
use crate::snapshot::{Description, SnapshotId, is_within};
use crate::tree::{Content, Entry, Metadata, PATH_MAX, Piece, Stamp, TreeReader, join, order};
use stele_ground::calendar::moment;

/// Descriptions of snapshots, tree chunks, lists of pieces and content chunks that are kept. A
/// content chunk has at most 4 MiB; a tree chunk has about 1 MiB, and takes several times as much
/// when it is decoded.
const DESCRIPTIONS_KEPT: usize = 8;
const TREES_KEPT: usize = 8;
const FILES_KEPT: usize = 8;
const CHUNKS_KEPT: usize = 16;

/// Bits of the numbers: the place in the chunk, the chunk, the snapshot.
const PLACE_BITS: u32 = 20;
const CHUNK_BITS: u32 = 28;
const SNAPSHOTS_MAX: usize = 0xFFFE;
/// Places of directories whose own entries were in a chunk that is lost: this, and the number of
/// slashes in the path. The first path of the next chunk begins with that path. A chunk has fewer
/// entries, and a path fewer slashes.
const LOST_PLACES: usize = 1 << (PLACE_BITS - 1);
const _: () = assert!(PATH_MAX / 2 <= LOST_PLACES);
/// The first cookie of a listing; smaller ones are `.` and `..`.
const COOKIE_MIN: u64 = 3;
/// In a cookie: a part of the directory is lost before it.
const COOKIE_LOST: u64 = 1 << 56;

/// What a number names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Node {
    Root,
    Ids,
    Dates,
    Latest,
    Date(usize),
    Snapshot(usize),
    Entry(usize, Place),
}

/// Where an entry is in the tree of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Place {
    chunk: usize,
    place: usize,
}

/// A file with its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    pub number: u64,
    pub entry: Entry,
}

/// A file in a listing; the next page begins behind its cookie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedFile {
    pub cookie: u64,
    pub seen: Seen,
}

/// The number of the top directory.
pub const ROOT: u64 = 1;

type Kept<K, V> = Mutex<VecDeque<(K, Arc<V>)>>;

pub struct Browser {
    indexed: Indexed,
    snapshots: Vec<Dated>,
    /// Where `latest` leads.
    latest: Option<Dated>,
    descriptions: Kept<usize, Description>,
    trees: Kept<ChunkId, Vec<Found>>,
    files: Kept<u64, Vec<Piece>>,
    chunks: Kept<ChunkId, Vec<u8>>,
}

impl Node {
    fn number(self) -> u64 {
        let snapshot = |number: usize| (number as u64 + 1) << (PLACE_BITS + CHUNK_BITS);
        match self {
            Node::Root => ROOT,
            Node::Ids => 2,
            Node::Dates => 3,
            Node::Latest => 4,
            Node::Date(number) => 16 + number as u64,
            Node::Snapshot(number) => snapshot(number),
            Node::Entry(number, place) => snapshot(number) | (place.packed() + 1),
        }
    }

    fn of(number: u64) -> Option<Node> {
        let (above, below) = (number >> (PLACE_BITS + CHUNK_BITS), number & ((1 << (PLACE_BITS + CHUNK_BITS)) - 1));
        match (above, below) {
            (0, ROOT) => Some(Node::Root),
            (0, 2) => Some(Node::Ids),
            (0, 3) => Some(Node::Dates),
            (0, 4) => Some(Node::Latest),
            (0, date) => usize::try_from(date.checked_sub(16)?).ok().map(Node::Date),
            (snapshot, 0) => Some(Node::Snapshot(snapshot as usize - 1)),
            (snapshot, entry) => Some(Node::Entry(snapshot as usize - 1, Place::unpacked(entry - 1))),
        }
    }
}

impl Place {
    const FIRST: Place = Place { chunk: 0, place: 0 };

    fn packed(self) -> u64 {
        (self.chunk as u64) << PLACE_BITS | self.place as u64
    }

    fn unpacked(packed: u64) -> Place {
        Place { chunk: (packed >> PLACE_BITS) as usize, place: (packed & ((1 << PLACE_BITS) - 1)) as usize }
    }

    fn next(self) -> Place {
        Place { place: self.place + 1, ..self }
    }

    /// The place of a directory whose own entry was in a chunk that is lost.
    fn lost(chunk: usize, path: &[u8]) -> Place {
        Place { chunk, place: LOST_PLACES + slashes(path) }
    }

    /// Slashes in the path of such a directory.
    fn lost_slashes(self) -> Option<usize> {
        self.place.checked_sub(LOST_PLACES)
    }
}

fn slashes(path: &[u8]) -> usize {
    path.iter().filter(|byte| **byte == b'/').count()
}

/// The beginning of a path that has so many slashes, if the path goes on behind it.
fn beginning(path: &[u8], slashes: usize) -> Option<&[u8]> {
    let mut ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    ends.nth(slashes).and_then(|end| path.get(..end))
}

fn kept<K: PartialEq + Clone, V>(
    cache: &Kept<K, V>,
    most: usize,
    key: &K,
    make: impl FnOnce() -> Result<V>,
) -> Result<Arc<V>> {
    let lock = || -> MutexGuard<'_, VecDeque<(K, Arc<V>)>> { cache.lock().unwrap_or_else(PoisonError::into_inner) };
    {
        let mut cache = lock();
        if let Some(found) = cache.iter().position(|(known, _)| known == key).and_then(|at| cache.remove(at)) {
            let value = Arc::clone(&found.1);
            cache.push_front(found);
            return Ok(value);
        }
    }
    // Not under the lock: other files are read meanwhile.
    let made = Arc::new(make()?);
    let mut cache = lock();
    cache.push_front((key.clone(), Arc::clone(&made)));
    cache.truncate(most);
    Ok(made)
}

/// A segment that has gone is damage of a file that is there.
fn lost(error: BackupError) -> BackupError {
    match error {
        BackupError::Missing(text) => BackupError::Damaged(text),
        other => other,
    }
}

fn missing() -> BackupError {
    BackupError::Missing("there is no such file in the snapshots".to_owned())
}

impl Browser {
    pub fn new(indexed: Indexed, latest: Option<SnapshotId>) -> Result<Browser> {
        let mut snapshots = indexed.snapshots()?;
        // The latest ones, if there are more than numbers.
        let extra = snapshots.len().saturating_sub(SNAPSHOTS_MAX);
        snapshots.drain(..extra);
        let latest = snapshots.iter().find(|dated| Some(dated.id) == latest).copied();
        Ok(Browser {
            latest,
            indexed,
            snapshots,
            descriptions: Kept::default(),
            trees: Kept::default(),
            files: Kept::default(),
            chunks: Kept::default(),
        })
    }

    fn dated(&self, snapshot: usize) -> Result<&Dated> {
        self.snapshots.get(snapshot).ok_or_else(missing)
    }

    fn description(&self, snapshot: usize) -> Result<Arc<Description>> {
        let id = self.dated(snapshot)?.id;
        kept(&self.descriptions, DESCRIPTIONS_KEPT, &snapshot, || Ok(self.indexed.snapshot(&id)?.description))
    }

    /// The entries of one chunk of a tree.
    fn chunk(&self, description: &Description, chunk: usize) -> Result<Arc<Vec<Found>>> {
        let (id, _) = description.tree.get(chunk).ok_or_else(missing)?;
        kept(&self.trees, TREES_KEPT, id, || {
            let bytes = self.indexed.chunk(Kind::Tree, id).map_err(lost)?;
            let (mut reader, mut found) = (TreeReader::new(&bytes)?, Vec::new());
            while let Some((directory, entry)) = reader.step()? {
                found.push(Found { path: join(directory, &entry.name), entry });
            }
            match found.len() < LOST_PLACES {
                true => Ok(found),
                false => Err(BackupError::damaged("a chunk of a tree has too many entries")),
            }
        })
    }

    fn entry(&self, snapshot: usize, place: Place) -> Result<Found> {
        let description = self.description(snapshot)?;
        let Some(slashes) = place.lost_slashes() else {
            let chunk = self.chunk(&description, place.chunk)?;
            return chunk.get(place.place).cloned().ok_or_else(missing);
        };
        let next = description.tree.get(place.chunk + 1).and_then(|(_, next)| beginning(next, slashes));
        let path = next.ok_or_else(missing)?.to_vec();
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
        let mut entry = Entry { name, ..virtual_entry("", self.dated(snapshot)?.stored, Content::Directory) };
        // As a restore makes it.
        entry.metadata.mode = 0o700;
        Ok(Found { path, entry })
    }

    /// The path of a directory in its snapshot, and the place of its first member.
    fn directory(&self, node: Node) -> Result<Option<(usize, Vec<u8>, Place)>> {
        match node {
            Node::Snapshot(snapshot) => Ok(Some((snapshot, Vec::new(), Place::FIRST))),
            Node::Entry(snapshot, place) => {
                let found = self.entry(snapshot, place)?;
                let is = found.entry.content == Content::Directory;
                // The first members of a directory that is lost are lost with it.
                let first = match place.lost_slashes() {
                    Some(_) => Place { place: 0, ..place },
                    None => place.next(),
                };
                Ok(is.then_some((snapshot, found.path, first)))
            }
            _ => Ok(None),
        }
    }

    /// The entry with this path.
    fn find(&self, snapshot: usize, path: &[u8]) -> Result<Option<Seen>> {
        if path.is_empty() {
            return self.see(Node::Snapshot(snapshot)).map(Some);
        }
        let description = self.description(snapshot)?;
        let behind = description.tree.partition_point(|(_, first)| order(first, path) != std::cmp::Ordering::Greater);
        let Some(chunk) = behind.checked_sub(1) else { return Ok(None) };
        let entries = match self.chunk(&description, chunk) {
            Err(BackupError::Damaged(text)) => {
                let next = description.tree.get(chunk + 1);
                return match next.is_some_and(|(_, next)| next != path && is_within(next, path)) {
                    true => self.see(Node::Entry(snapshot, Place::lost(chunk, path))).map(Some),
                    false => Err(BackupError::Damaged(text)),
                };
            }
            other => other?,
        };
        let place = entries.binary_search_by(|found| order(&found.path, path));
        Ok(place.ok().and_then(|place| {
            let entry = entries.get(place)?.entry.clone();
            Some(Seen { number: Node::Entry(snapshot, Place { chunk, place }).number(), entry })
        }))
    }

    fn see(&self, node: Node) -> Result<Seen> {
        let stored = |at: Option<&Dated>| at.map_or(0, |dated| dated.stored);
        let folder = |name: &str, at: u64| virtual_entry(name, at, Content::Directory);
        let link = |name: &str, at: u64, to: String| virtual_entry(name, at, Content::Symlink(to.into_bytes()));
        let newest = self.snapshots.last();
        let entry = match node {
            Node::Root => folder("", stored(newest)),
            Node::Ids => folder("ids", stored(newest)),
            Node::Dates => folder("dates", stored(newest)),
            Node::Latest => {
                let latest = self.latest.ok_or_else(missing)?;
                link("latest", latest.stored, format!("ids/{}", latest.id))
            }
            Node::Date(snapshot) => {
                let dated = self.dated(snapshot)?;
                link(&self.date(snapshot)?, dated.stored, format!("../ids/{}", dated.id))
            }
            Node::Snapshot(snapshot) => {
                let dated = self.dated(snapshot)?;
                folder(&dated.id.to_string(), dated.stored)
            }
            Node::Entry(snapshot, place) => self.entry(snapshot, place)?.entry,
        };
        Ok(Seen { number: node.number(), entry })
    }

    /// The name by the date. Of several snapshots of one second, the later ones have a number
    /// behind it.
    fn date(&self, snapshot: usize) -> Result<String> {
        let stored = self.dated(snapshot)?.stored;
        let first = self.snapshots.partition_point(|dated| dated.stored < stored);
        let text = moment(stored);
        Ok(if snapshot > first { format!("{text}.{}", snapshot - first) } else { text })
    }

    pub fn attributes(&self, number: u64) -> Result<Seen> {
        self.see(Node::of(number).ok_or_else(missing)?)
    }

    /// A member of a directory; `..` is the directory above.
    pub fn lookup(&self, directory: u64, name: &[u8]) -> Result<Option<Seen>> {
        let node = Node::of(directory).ok_or_else(missing)?;
        if name == b".." {
            return self.above(node).map(Some);
        }
        let text = || std::str::from_utf8(name).ok();
        let found = match node {
            Node::Root => match name {
                b"ids" => Some(Node::Ids),
                b"dates" => Some(Node::Dates),
                b"latest" if self.latest.is_some() => Some(Node::Latest),
                _ => None,
            },
            // Also by the first digits of the id, as everywhere.
            Node::Ids => text().filter(|text| text.len() >= 4).and_then(|text| {
                let mut fits =
                    self.snapshots.iter().enumerate().filter(|(_, dated)| dated.id.to_string().starts_with(text));
                fits.next().filter(|_| fits.next().is_none()).map(|(snapshot, _)| Node::Snapshot(snapshot))
            }),
            Node::Dates => {
                let all = 0..self.snapshots.len();
                all.map(|snapshot| self.date(snapshot).map(|date| (snapshot, date)))
                    .filter_map(Result::ok)
                    .find(|(_, date)| date.as_bytes() == name)
                    .map(|(snapshot, _)| Node::Date(snapshot))
            }
            other => {
                let Some((snapshot, path, _)) = self.directory(other)? else { return Ok(None) };
                return self.find(snapshot, &join(&path, name));
            }
        };
        found.map(|node| self.see(node)).transpose()
    }

    fn above(&self, node: Node) -> Result<Seen> {
        match node {
            Node::Entry(snapshot, place) => {
                let path = self.entry(snapshot, place)?.path;
                let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                self.find(snapshot, path.get(..end).unwrap_or_default())?.ok_or_else(missing)
            }
            Node::Snapshot(_) => self.see(Node::Ids),
            Node::Date(_) => self.see(Node::Dates),
            _ => self.see(Node::Root),
        }
    }

    /// Members of a directory behind a cookie (zero: from the beginning), at most `limit`; and
    /// whether these were all. If a part of the directory is lost, the error comes behind the last
    /// of the others.
    pub fn list(&self, directory: u64, cookie: u64, limit: usize) -> Result<(Vec<ListedFile>, bool)> {
        let node = Node::of(directory).ok_or_else(missing)?;
        let virtuals: Vec<Node> = match node {
            Node::Root if self.latest.is_none() => vec![Node::Ids, Node::Dates],
            Node::Root => vec![Node::Ids, Node::Dates, Node::Latest],
            Node::Ids => (0..self.snapshots.len()).map(Node::Snapshot).collect(),
            Node::Dates => (0..self.snapshots.len()).map(Node::Date).collect(),
            other => return self.list_entries(other, cookie, limit),
        };
        let from = usize::try_from((cookie + 1).saturating_sub(COOKIE_MIN)).unwrap_or(usize::MAX);
        let mut members = Vec::new();
        for (at, node) in virtuals.iter().enumerate().skip(from).take(limit) {
            members.push(ListedFile { cookie: at as u64 + COOKIE_MIN, seen: self.see(*node)? });
        }
        let end = from.saturating_add(members.len()) >= virtuals.len();
        Ok((members, end))
    }

    fn list_entries(&self, node: Node, cookie: u64, limit: usize) -> Result<(Vec<ListedFile>, bool)> {
        let Some((snapshot, path, first)) = self.directory(node)? else {
            return Err(BackupError::Invalid("this is no directory".to_owned()));
        };
        let description = self.description(snapshot)?;
        let (mut members, mut at) = (Vec::new(), first);
        let mut lost = cookie & COOKIE_LOST;
        let cookie = cookie & !COOKIE_LOST;
        // The subtree behind the last member, which is passed over.
        let mut skipped: Option<Vec<u8>> = None;
        if cookie >= COOKIE_MIN {
            let last = Place::unpacked(cookie - COOKIE_MIN);
            let found = self.entry(snapshot, last)?;
            at = if last.lost_slashes().is_some() { Place { place: 0, ..last } } else { last.next() };
            skipped = Some(found.path);
        }
        let push = |members: &mut Vec<ListedFile>, at: Place, entry: Entry, lost: u64| {
            let seen = Seen { number: Node::Entry(snapshot, at).number(), entry };
            members.push(ListedFile { cookie: (at.packed() + COOKIE_MIN) | lost, seen });
        };
        'tree: while at.chunk < description.tree.len() {
            if let Some(above) = &skipped {
                let inside =
                    |first: &[u8]| order(first, above) != std::cmp::Ordering::Greater || is_within(first, above);
                let behind = description.tree.partition_point(|(_, first)| inside(first));
                let last = behind.saturating_sub(1);
                if last > at.chunk {
                    at = Place { chunk: last, place: 0 };
                }
            }
            let is_behind =
                |other: &[u8]| !is_within(other, &path) && order(other, &path) == std::cmp::Ordering::Greater;
            if at.place == 0 && description.tree.get(at.chunk).is_some_and(|(_, first)| is_behind(first)) {
                break;
            }
            let entries = match self.chunk(&description, at.chunk) {
                Err(BackupError::Damaged(_)) => {
                    lost = COOKIE_LOST;
                    let next = description.tree.get(at.chunk + 1).filter(|(_, next)| is_within(next, &path));
                    let depth = if path.is_empty() { 0 } else { slashes(&path) + 1 };
                    let member = next.and_then(|(_, next)| beginning(next, depth)).map(<[u8]>::to_vec);
                    let known = |member: &Vec<u8>| skipped.as_ref().is_some_and(|above| is_within(member, above));
                    if let Some(member) = member.filter(|member| !known(member)) {
                        if members.len() == limit {
                            return Ok((members, false));
                        }
                        let place = Place::lost(at.chunk, &member);
                        push(&mut members, place, self.entry(snapshot, place)?.entry, lost);
                        skipped = Some(member);
                    }
                    at = Place { chunk: at.chunk + 1, place: 0 };
                    continue;
                }
                other => other?,
            };
            while let Some(found) = entries.get(at.place) {
                if is_behind(&found.path) {
                    break 'tree;
                }
                if found.path == path || !is_within(&found.path, &path) {
                    at = at.next();
                    continue;
                }
                if skipped.as_ref().is_some_and(|above| is_within(&found.path, above)) {
                    at = at.next();
                    continue;
                }
                if members.len() == limit {
                    return Ok((members, false));
                }
                push(&mut members, at, found.entry.clone(), lost);
                skipped = Some(found.path.clone());
                at = at.next();
                if found.entry.content == Content::Directory {
                    // Its subtree may fill many chunks.
                    break;
                }
            }
            if entries.get(at.place).is_none() {
                at = Place { chunk: at.chunk + 1, place: 0 };
            }
        }
        if lost > 0 && members.is_empty() {
            let path = String::from_utf8_lossy(&path).into_owned();
            let text = format!("a part of the tree is lost: the list of /{path} lacks what was there");
            return Err(BackupError::Damaged(text));
        }
        // With a part that is lost the next call brings the error, and not these members.
        Ok((members, lost == 0))
    }

    /// The size of a file, and its pieces.
    fn pieces(&self, number: u64) -> Result<(u64, Arc<Vec<Piece>>)> {
        let content = self.attributes(number)?.entry.content;
        let Content::File { size, .. } = content else {
            return Err(BackupError::Invalid("this is no file".to_owned()));
        };
        Ok((size, kept(&self.files, FILES_KEPT, &number, || self.indexed.pieces(&content).map_err(lost))?))
    }

    /// Where the next data of a file begin at or behind `offset`, or else the next hole. The end of
    /// a file counts as a hole. None: there is none.
    pub fn seek(&self, number: u64, offset: u64, data: bool) -> Result<Option<u64>> {
        let (size, pieces) = self.pieces(number)?;
        if offset >= size {
            return Ok(None);
        }
        let mut from = 0;
        for piece in pieces.iter() {
            let until = from + piece.length();
            if until > offset && matches!(piece, Piece::Chunk { .. }) == data {
                return Ok(Some(offset.max(from)));
            }
            from = until;
        }
        Ok((!data).then_some(size))
    }

    /// At most `length` bytes of a file from `offset` on; and whether the file ends there.
    pub fn read(&self, number: u64, offset: u64, length: usize) -> Result<(Vec<u8>, bool)> {
        let (size, pieces) = self.pieces(number)?;
        let end = offset.saturating_add(length as u64).min(size);
        let (mut bytes, mut from) = (Vec::new(), 0_u64);
        for piece in pieces.iter() {
            let until = from + piece.length();
            let (low, high) = (offset.max(from), end.min(until));
            if low < high {
                match piece {
                    Piece::Hole(_) => bytes.resize(bytes.len() + (high - low) as usize, 0),
                    Piece::Chunk { id, .. } => {
                        let read = || self.indexed.chunk(Kind::Content, id).map_err(lost);
                        let content = kept(&self.chunks, CHUNKS_KEPT, id, read)?;
                        let part = content.get((low - from) as usize..(high - from) as usize);
                        bytes.extend_from_slice(part.ok_or_else(|| BackupError::damaged("a chunk is too short"))?);
                    }
                }
            }
            from = until;
            if from >= end {
                break;
            }
        }
        Ok((bytes, end == size))
    }
}

fn virtual_entry(name: &str, at: u64, content: Content) -> Entry {
    let stamp = Stamp { seconds: at as i64, nanos: 0 };
    let mode = if content == Content::Directory { 0o555 } else { 0o777 };
    let metadata = Metadata { mode, modified: stamp, changed: stamp, links: 1, ..Metadata::default() };
    Entry { name: name.as_bytes().to_vec(), metadata, content }
}

#[cfg(test)]
mod tests;
