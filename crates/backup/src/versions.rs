//! Which snapshots are kept by the versions of their files: so many while a file exists and so many
//! after it was deleted, with days for each, by classes that rules bind to paths.
//!
//! A version of a file is a run of snapshots that have it with the same content and modification
//! time. It ends with the first snapshot that has the path otherwise, or lacks it. A snapshot stays
//! for two reasons: it is the last one of a version that a class keeps, or it is the one that shows
//! when such a version ended. Without the latter the end would move with each removal, and no
//! version would ever expire. The latest snapshot of a series always stays.
//!
//! Nothing is let go that ended less than `least_days` ago, whatever the number of versions. So a
//! client that floods a repository with versions pushes out none of the time before, until an
//! operator has had these days to notice.
//!
//! A file that a snapshot with problems lacks may only have been unreadable: that snapshot counts
//! as if it were not there. A path without a class keeps all of its versions. Directories come
//! along with what is in them, and have no versions.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::{Arc, Weak};

use crate::crypt::{ChunkId, Kind};
use crate::error::{BackupError, Result};
use crate::filter::Filter;
use crate::repository::Indexed;
use crate::snapshot::{Description, SnapshotId};
use crate::tree::{Content, Entry, TreeReader, encode_pieces, join, order};

const DAY: u64 = 86_400;
/// Classes of a policy.
pub const CLASSES_MAX: usize = 1000;
/// Snapshots of a series that are judged at once: each holds one chunk of its tree, with the paths
/// and 32 bytes for each. Older ones are left alone, and are judged when newer ones have gone.
pub const SNAPSHOTS_MAX: usize = 512;

/// How many versions are kept, and for how long after they ended. None: without a limit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VersionRetention {
    pub versions: Option<u64>,
    pub days: Option<u64>,
}

impl VersionRetention {
    /// Whether the version with this many newer ones, which ended so many seconds ago, is kept.
    fn keeps(&self, newer: u64, seconds: u64) -> bool {
        let few = self.versions.is_none_or(|versions| newer < versions);
        few && self.days.is_none_or(|days| seconds <= days.saturating_mul(DAY))
    }
}

#[derive(Clone, Debug)]
pub struct Class {
    pub name: String,
    /// What it is for; empty for everything.
    pub include: Filter,
    /// While the file exists. The present version is one of them, and always stays.
    pub exists: VersionRetention,
    /// After it was deleted; the days count from the end of each version.
    pub deleted: VersionRetention,
}

#[derive(Clone, Debug)]
pub struct VersionPolicy {
    classes: Vec<Class>,
    /// Days for which every version stays after it ended.
    least_days: u64,
}

impl VersionPolicy {
    pub fn new(classes: Vec<Class>, least_days: u64) -> Result<VersionPolicy> {
        let invalid = |text: String| Err(BackupError::Invalid(text));
        if classes.is_empty() || classes.len() > CLASSES_MAX {
            return invalid(format!("a policy has 1 to {CLASSES_MAX} classes"));
        }
        let mut names = BTreeSet::new();
        for (place, class) in classes.iter().enumerate() {
            if class.name.is_empty() || !names.insert(&class.name) {
                return invalid(format!("class '{}': each class needs a name of its own", class.name));
            }
            if class.exists.versions == Some(0) {
                return invalid(format!("class '{}': the present version is one, so at least 1 is kept", class.name));
            }
            if class.include.is_empty() && place + 1 < classes.len() {
                return invalid(format!(
                    "class '{}' is for everything, so those behind it are for nothing",
                    class.name
                ));
            }
        }
        Ok(VersionPolicy { classes, least_days })
    }

    /// The first class whose rules match the path or a directory above it.
    pub fn class_of(&self, path: &[u8]) -> Option<&Class> {
        let ends: Vec<usize> = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at).collect();
        let above = || ends.iter().copied().chain([path.len()]).filter_map(|end| path.get(..end));
        let matches = |class: &&Class| class.include.is_empty() || above().any(|path| class.include.excludes(path));
        self.classes.iter().find(matches)
    }
}

/// A snapshot of the series.
#[derive(Clone, Debug)]
pub struct SeriesSnapshot {
    pub id: SnapshotId,
    /// By the store's clock.
    pub stored: u64,
    pub description: Description,
}

/// Why snapshots stay; those that are missing here may go.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Judgement {
    pub kept: BTreeMap<SnapshotId, BTreeSet<String>>,
    /// Snapshots that were too many to be judged now. They stay.
    pub left: usize,
}

/// What a snapshot has at a path.
pub type Version = [u8; 32];

/// Judges the snapshots of one series, oldest first, at a moment of the store's clock.
pub fn judge(indexed: &Indexed, members: &[SeriesSnapshot], policy: &VersionPolicy, now: u64) -> Result<Judgement> {
    let left = members.len().saturating_sub(SNAPSHOTS_MAX);
    let (early, members) = members.split_at(left);
    let mut reasons: Vec<BTreeSet<String>> = vec![BTreeSet::new(); members.len()];
    if let Some(latest) = reasons.last_mut() {
        latest.insert("latest".to_owned());
    }
    let mut merge = Merge::new(indexed, members)?;
    while let Some((path, found)) = merge.step()? {
        keep_versions(&path, &found, members, policy, now, &mut reasons);
    }
    let mut judged = Judgement { kept: BTreeMap::new(), left };
    let stays = early.iter().map(|member| (member.id, BTreeSet::from(["not-judged".to_owned()])));
    judged.kept.extend(stays);
    let kept = members.iter().zip(reasons).filter(|(_, reasons)| !reasons.is_empty());
    judged.kept.extend(kept.map(|(member, reasons)| (member.id, reasons)));
    Ok(judged)
}

/// A version of one path: the place of the last snapshot that has it, and of the one that shows its
/// end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    last: usize,
    end: Option<usize>,
}

/// The versions of one path, oldest first. `found` has the snapshots with the path, by their
/// places.
fn runs(found: &BTreeMap<usize, Version>, members: &[SeriesSnapshot]) -> Vec<Run> {
    let (mut runs, mut version): (Vec<Run>, Option<Version>) = (Vec::new(), None);
    for (place, member) in members.iter().enumerate() {
        let here = found.get(&place).copied();
        if here.is_none() && member.description.problems > 0 {
            continue;
        }
        if here == version {
            if let (Some(run), true) = (runs.last_mut(), here.is_some()) {
                run.last = place;
            }
            continue;
        }
        if let (Some(run), true) = (runs.last_mut(), version.is_some()) {
            run.end = Some(place);
        }
        if here.is_some() {
            runs.push(Run { last: place, end: None });
        }
        version = here;
    }
    runs
}

fn keep_versions(
    path: &[u8],
    found: &BTreeMap<usize, Version>,
    members: &[SeriesSnapshot],
    policy: &VersionPolicy,
    now: u64,
    reasons: &mut [BTreeSet<String>],
) {
    let class = policy.class_of(path);
    let runs = runs(found, members);
    let exists = runs.last().is_some_and(|run| run.end.is_none());
    for (newer, run) in (0..).zip(runs.iter().rev()) {
        let ended = run.end.and_then(|end| members.get(end)).map(|member| now.saturating_sub(member.stored));
        let (keeps, name) = match (class, ended) {
            // What exists stays.
            (_, None) => (true, class.map_or("no-class", |class| class.name.as_str())),
            (None, _) => (true, "no-class"),
            (Some(class), Some(seconds)) => {
                let kept = if exists { class.exists } else { class.deleted };
                let recent = seconds < policy.least_days.saturating_mul(DAY);
                (recent || kept.keeps(newer, seconds), class.name.as_str())
            }
        };
        if !keeps {
            continue;
        }
        for place in [Some(run.last), run.end].into_iter().flatten() {
            if let Some(reasons) = reasons.get_mut(place)
                && !reasons.contains(name)
            {
                reasons.insert(name.to_owned());
            }
        }
    }
}

/// The entries of one chunk of a tree, without directories.
type Entries = Vec<(Vec<u8>, Version)>;
/// A path, with what each snapshot that has it has there.
type Found = (Vec<u8>, BTreeMap<usize, Version>);

/// Where a snapshot is in its tree.
struct Cursor {
    /// Chunks that are still to be read, the next one last.
    chunks: Vec<ChunkId>,
    entries: Arc<Entries>,
    at: usize,
}

/// All trees at once, path by path. Trees that share a chunk share it in memory too.
struct Merge<'a> {
    indexed: &'a Indexed,
    cursors: Vec<Cursor>,
    shared: BTreeMap<ChunkId, Weak<Entries>>,
    heap: BinaryHeap<Next>,
}

/// A path and the snapshot that has it there. The first path is the greatest, as the heap wants it.
#[derive(PartialEq, Eq)]
struct Next(Vec<u8>, usize);

impl Ord for Next {
    fn cmp(&self, other: &Next) -> std::cmp::Ordering {
        order(&other.0, &self.0).then(other.1.cmp(&self.1))
    }
}

impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Next) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<'a> Merge<'a> {
    fn new(indexed: &'a Indexed, members: &[SeriesSnapshot]) -> Result<Merge<'a>> {
        let cursor = |member: &SeriesSnapshot| Cursor {
            chunks: member.description.tree.iter().rev().map(|(id, _)| *id).collect(),
            entries: Arc::default(),
            at: 0,
        };
        let cursors = members.iter().map(cursor).collect();
        let mut merge = Merge { indexed, cursors, shared: BTreeMap::new(), heap: BinaryHeap::new() };
        (0..members.len()).try_for_each(|place| merge.advance(place))?;
        Ok(merge)
    }

    /// Puts the next entry of a snapshot on the heap.
    fn advance(&mut self, place: usize) -> Result<()> {
        loop {
            let Some(cursor) = self.cursors.get_mut(place) else { return Ok(()) };
            if let Some((path, _)) = cursor.entries.get(cursor.at) {
                self.heap.push(Next(path.clone(), place));
                return Ok(());
            }
            let Some(id) = cursor.chunks.pop() else { return Ok(()) };
            let entries = self.chunk(&id)?;
            if let Some(cursor) = self.cursors.get_mut(place) {
                (cursor.entries, cursor.at) = (entries, 0);
            }
        }
    }

    fn chunk(&mut self, id: &ChunkId) -> Result<Arc<Entries>> {
        if let Some(entries) = self.shared.get(id).and_then(Weak::upgrade) {
            return Ok(entries);
        }
        self.shared.retain(|_, entries| entries.strong_count() > 0);
        let bytes = self.indexed.chunk(Kind::Tree, id)?;
        let (mut reader, mut entries) = (TreeReader::new(&bytes)?, Entries::new());
        while let Some((directory, entry)) = reader.step()? {
            if entry.content != Content::Directory {
                entries.push((join(directory, &entry.name), version(&entry)));
            }
        }
        let entries = Arc::new(entries);
        self.shared.insert(*id, Arc::downgrade(&entries));
        Ok(entries)
    }

    /// The next path, with what each snapshot that has it has there.
    fn step(&mut self) -> Result<Option<Found>> {
        let Some(Next(path, _)) = self.heap.peek() else { return Ok(None) };
        let (path, mut found) = (path.clone(), BTreeMap::new());
        while let Some(Next(next, place)) = self.heap.peek()
            && *next == path
        {
            let place = *place;
            self.heap.pop();
            if let Some(cursor) = self.cursors.get_mut(place) {
                found.extend(cursor.entries.get(cursor.at).map(|(_, version)| (place, *version)));
                cursor.at += 1;
            }
            self.advance(place)?;
        }
        Ok(Some((path, found)))
    }
}

/// What tells versions apart: kind, content and modification time. Owners, modes and attributes do
/// not.
pub fn version(entry: &Entry) -> Version {
    let mut bytes = vec![entry.content.letter() as u8];
    let modified = entry.metadata.modified;
    // Each backup of a volume takes a snapshot of its own time.
    if !matches!(entry.content, Content::File { volume: Some(_), .. }) {
        bytes.extend(modified.seconds.to_le_bytes());
        bytes.extend(modified.nanos.to_le_bytes());
    }
    match &entry.content {
        Content::File { size, pieces, lists, .. } => {
            bytes.extend(size.to_le_bytes());
            lists.iter().for_each(|id| bytes.extend(id.0));
            encode_pieces(pieces, &mut bytes);
        }
        Content::Symlink(target) => bytes.extend(target),
        Content::CharacterDevice(device) | Content::BlockDevice(device) => bytes.extend(device.to_le_bytes()),
        Content::Directory | Content::Fifo | Content::Socket => {}
    }
    *blake3::hash(&bytes).as_bytes()
}

#[cfg(test)]
mod tests;
