//! Restoring a snapshot, or a part of it.
//!
//! The tree is taken in windows of bounded size. Of each window, directories, links and special
//! files are made first. Then several threads fetch the chunks in the order of the segments, and
//! write each where it belongs. Files get their times at the end of the window, when all of it is
//! forced to the drive. So a restore that was interrupted, even by a power cut, goes on: files that
//! have their size and their modification time are complete. Directories get their metadata at the
//! end, deepest first. A target that the restore makes is its user's alone until then.
//!
//! Nothing outside of the target is touched. Every path is resolved by the kernel below the target,
//! without symbolic links, whatever the target contains.

mod fetch;
pub mod memory;
mod place;
mod unfinished;
pub mod volume;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::error::{BackupError, Result};
use crate::filter::Filter;
use crate::index::Location;
use crate::repository::Indexed;
use crate::repository::trees::{Found, Walk};
use crate::snapshot::{Description, ISSUES_MAX, Issue, is_within};
use crate::tree::{Content, Entry, Metadata, Piece};
use crate::versions::{Version, version};
use place::{Faults, Identity, Present, Target};

/// Files and pieces of a window. Both bound the memory: about 300 bytes for a file and 24 for a
/// piece. The bytes bound what a killed restore does again.
const WINDOW_FILES: usize = 32 << 10;
const WINDOW_PIECES: usize = 1 << 20;
const WINDOW_BYTES: u64 = 16 << 30;

#[derive(Clone, Debug)]
pub struct RestoreOptions {
    pub target: PathBuf,
    /// The directory or file to restore; empty for everything.
    pub within: Vec<u8>,
    /// What to leave out.
    pub exclude: Filter,
    /// What to restore; empty for everything.
    pub include: Filter,
    /// Compares the content of files that are there, and of all files afterwards.
    pub verify: bool,
    pub workers: usize,
}

#[derive(Default, Debug)]
pub struct RestoreProgress {
    pub files: AtomicU64,
    pub bytes: AtomicU64,
    /// Bytes of the snapshot. Zero: a part of it is restored, and its length is unknown.
    pub bytes_expected: AtomicU64,
    pub stop: AtomicBool,
}

impl RestoreProgress {
    fn check(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(BackupError::Stopped) } else { Ok(()) }
    }
}

/// The outcome of a restore.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Restored {
    pub files: u64,
    pub directories: u64,
    pub others: u64,
    /// Bytes of the files that were written.
    pub bytes: u64,
    /// Files that were there already.
    pub files_kept: u64,
    pub problems: u64,
    pub issues: Vec<Issue>,
}

/// A file whose content is being written.
struct File {
    path: Vec<u8>,
    metadata: Metadata,
    size: u64,
    /// Pieces that are still to be written.
    left: AtomicU32,
    /// Whether it counts as restored when its content is written.
    counts: bool,
    /// Whether the file consists of one piece.
    single: bool,
    /// Whether something is where the file belongs. It goes when there is content for the file.
    replaces: bool,
    failed: AtomicBool,
    /// Whether the file cannot be made.
    unmade: AtomicBool,
    /// Its inode, once it is made.
    identity: OnceLock<Identity>,
}

/// A chunk and where it belongs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Planned {
    location: Location,
    file: u32,
    offset: u64,
}

struct Job<'a> {
    indexed: &'a Indexed,
    options: &'a RestoreOptions,
    progress: &'a RestoreProgress,
    target: Target,
    issues: Mutex<(u64, Vec<Issue>)>,
    /// Those of the files with several names that are complete, by the first name.
    complete: Mutex<BTreeMap<Vec<u8>, Identity>>,
    /// Number and bytes of the files whose content was written whole.
    written: Mutex<(u64, u64)>,
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

    /// Takes over the gaps of the volume that the snapshot has.
    fn list_gaps(&self, description: &Description) {
        let (count, issues) = &mut *lock(&self.issues);
        *count = count.saturating_add(description.problems);
        let room = ISSUES_MAX.saturating_sub(issues.len());
        issues.extend(description.issues.iter().take(room).cloned());
    }

    /// Lists the error under the path, unless it is one that ends the restore.
    fn settle<T>(&self, path: &[u8], outcome: Result<T>) -> Result<Option<T>> {
        match outcome {
            Ok(done) => Ok(Some(done)),
            Err(error @ (BackupError::Full(_) | BackupError::Stopped | BackupError::Unreachable(_))) => Err(error),
            Err(error) => {
                self.issue(path, error.to_string());
                Ok(None)
            }
        }
    }

    /// Lists metadata that could not be set. The file is there all the same.
    fn note(&self, path: &[u8], outcome: Result<Faults>) -> Result<()> {
        let faults = self.settle(path, outcome)?.unwrap_or_default();
        faults.into_iter().try_for_each(|fault| self.settle::<()>(path, Err(fault)).map(drop))
    }
}

/// The entries that are being restored, gathered from the tree.
#[derive(Default)]
struct Window {
    files: Vec<File>,
    planned: Vec<Planned>,
    /// Of the files whose content is to be written.
    bytes: u64,
}

impl Window {
    fn is_full(&self) -> bool {
        self.files.len() >= WINDOW_FILES || self.planned.len() >= WINDOW_PIECES || self.bytes >= WINDOW_BYTES
    }
}

/// A further path of a file that has several.
struct Link {
    first: Vec<u8>,
    path: Vec<u8>,
    is_file: bool,
}

struct Restore<'a, 'b> {
    job: &'a Job<'b>,
    window: Window,
    directories: Vec<(Vec<u8>, Identity, Metadata)>,
    /// The directory of the next files, with those above it, as far as this restore made them. What
    /// is not restored into them is not there.
    made: Vec<Vec<u8>>,
    /// The first path of each file that has several, and then the others. A file is told by device,
    /// inode and content: a file system gives the inode of a removed file to another one while the
    /// backup runs.
    first: BTreeMap<(u64, u64, Version), Vec<u8>>,
    links: Vec<Link>,
    /// The metadata of the target itself, if a restore made it.
    top: Option<Metadata>,
    /// Directories that are made if something in them is restored.
    pending: Vec<Found>,
    /// Whether the next entry follows a part of the tree that is lost.
    is_torn: bool,
    /// Directories whose own entries are lost, and that are made all the same.
    bridges: Vec<Vec<u8>>,
    done: Restored,
}

pub fn run(
    indexed: &Indexed,
    description: &Description,
    options: &RestoreOptions,
    progress: &RestoreProgress,
) -> Result<Restored> {
    let (target, made) = Target::open_with(&options.target)?;
    let done = run_in(target, indexed, description, options, progress);
    done.inspect_err(|_| unfinished::remove(&made))
}

fn run_in(
    mut target: Target,
    indexed: &Indexed,
    description: &Description,
    options: &RestoreOptions,
    progress: &RestoreProgress,
) -> Result<Restored> {
    target.draw(&*indexed.surroundings);
    let (issues, complete, written) = Default::default();
    let job = Job { indexed, options, progress, target, issues, complete, written };
    let mut restore = Restore::new(&job);
    let mut found_any = options.within.is_empty();
    if found_any && options.include.is_empty() && options.exclude.is_empty() {
        progress.bytes_expected.store(description.counts.bytes, Ordering::Relaxed);
    }
    let mut walk = Walk::new(indexed, description, &options.within);
    let mut has_listed_gaps = false;
    loop {
        // Behind a damaged chunk of the tree the walk goes on with the next one.
        let found = match walk.step() {
            Ok(Some(found)) => found,
            Ok(None) => break,
            Err(error @ BackupError::Damaged(_)) => {
                job.issue(&options.within, format!("a part of the tree is lost: {error}"));
                restore.is_torn = true;
                continue;
            }
            Err(error) => return Err(error),
        };
        progress.check()?;
        found_any = true;
        if found.path == options.within && found.entry.content == Content::Directory && job.target.is_new() {
            // The selected directory is the target itself. One that was there before keeps its
            // metadata.
            restore.top = Some(found.entry.metadata);
            continue;
        }
        match choose(options, found) {
            Choice::Restored(found) => {
                let is_volume = matches!(found.entry.content, Content::File { volume: Some(_), .. });
                if is_volume && !has_listed_gaps {
                    job.list_gaps(description);
                    has_listed_gaps = true;
                }
                restore.entry(found)?;
            }
            Choice::Pending(found) => {
                restore.pending.retain(|above| is_within(&found.path, &above.path));
                restore.pending.push(found);
            }
            Choice::LeftOut => {}
        }
    }
    if !found_any {
        let path = String::from_utf8_lossy(&options.within).into_owned();
        if let Some(lost) = lock(&job.issues).1.first() {
            return Err(BackupError::Damaged(format!("the snapshot's /{path} was not found: {}", lost.text)));
        }
        return Err(BackupError::Missing(format!("the snapshot has no /{path}")));
    }
    restore.flush()?;
    let mut done = restore.finish()?;
    let anything = done.files + done.files_kept + done.directories + done.others + lock(&job.issues).0 > 0;
    if !options.include.is_empty() && !anything {
        return Err(BackupError::Missing("the snapshot has nothing that the patterns select".to_owned()));
    }
    if options.verify {
        compare(&job, description)?;
    }
    let (problems, issues) = job.issues.into_inner().unwrap_or_else(PoisonError::into_inner);
    (done.problems, done.issues) = (problems, issues);
    Ok(done)
}

/// What becomes of an entry.
enum Choice {
    /// It is restored, with its path below the target.
    Restored(Found),
    /// A directory that is only made if something in it is restored.
    Pending(Found),
    LeftOut,
}

fn choose(options: &RestoreOptions, found: Found) -> Choice {
    // A pattern that matches a directory stands for all below it.
    let ends = found.path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let above = || ends.clone().chain([found.path.len()]).filter_map(|end| found.path.get(..end));
    if above().any(|path| options.exclude.excludes(path)) {
        return Choice::LeftOut;
    }
    let included = options.include.is_empty() || above().any(|path| options.include.excludes(path));
    let is_directory = found.entry.content == Content::Directory;
    let path = match found.path.strip_prefix(options.within.as_slice()) {
        // The selected directory is the target itself; a selected file goes into it.
        Some([]) if is_directory => return Choice::LeftOut,
        Some([]) => found.entry.name.clone(),
        Some(rest) => rest.strip_prefix(b"/").unwrap_or(rest).to_vec(),
        None => return Choice::LeftOut,
    };
    let found = Found { path, entry: found.entry };
    match (included, is_directory) {
        (true, _) => Choice::Restored(found),
        (false, true) => Choice::Pending(found),
        (false, false) => Choice::LeftOut,
    }
}

impl<'a, 'b> Restore<'a, 'b> {
    fn new(job: &'a Job<'b>) -> Restore<'a, 'b> {
        Restore {
            job,
            window: Window::default(),
            directories: Vec::new(),
            made: Vec::new(),
            first: BTreeMap::new(),
            links: Vec::new(),
            top: None,
            pending: Vec::new(),
            is_torn: false,
            bridges: Vec::new(),
            done: Restored::default(),
        }
    }

    fn entry(&mut self, found: Found) -> Result<()> {
        // Those that do not lead to the entry were left behind by the walk.
        for above in std::mem::take(&mut self.pending) {
            if is_within(&found.path, &above.path) {
                self.make(above)?;
            }
        }
        self.make(found)
    }

    /// Makes the directories above an entry whose own entries are lost with a part of the tree.
    /// Only this user may enter them: their owners and modes are lost too.
    fn bridge(&mut self, path: &[u8]) -> Result<()> {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for above in ends.filter_map(|end| path.get(..end)) {
            let mut known = self.directories.iter().map(|(path, ..)| path).chain(&self.bridges);
            if known.any(|path| path == above) {
                continue;
            }
            let made = self.job.target.make_directory(above, &Metadata::default());
            if self.job.settle(above, made)?.is_some() {
                self.done.directories += 1;
                self.bridges.push(above.to_vec());
                self.job.issue(above, "its owner, mode and times are lost with a part of the tree".to_owned());
            }
        }
        Ok(())
    }

    fn make(&mut self, found: Found) -> Result<()> {
        let Found { path, entry } = found;
        let job = self.job;
        // All others behind the lost part lie in these directories, or in some that it enters.
        if std::mem::take(&mut self.is_torn) {
            self.bridge(&path)?;
        }
        let directory = entry.content == Content::Directory;
        if directory {
            let made = job.target.make_directory(&path, &entry.metadata);
            if let Some((identity, is_new)) = job.settle(&path, made)? {
                self.done.directories += 1;
                self.made.retain(|above| is_within(&path, above));
                if is_new {
                    self.made.push(path.clone());
                }
                self.directories.push((path, identity, entry.metadata));
            }
            return Ok(());
        }
        if entry.metadata.links > 1 && !self.is_first_link(&path, &entry) {
            return Ok(());
        }
        match &entry.content {
            Content::File { .. } => self.file(path, entry),
            _ => {
                if let Some((identity, faults)) = job.settle(&path, job.target.make_other(&path, &entry))? {
                    self.done.others += 1;
                    job.note(&path, Ok(faults))?;
                    if entry.metadata.links > 1 {
                        lock(&job.complete).insert(path, identity);
                    }
                }
                Ok(())
            }
        }
    }

    /// Notes a further path of a file that has several. One with another content or modification
    /// time than the paths before it is restored as a file of its own, and listed.
    fn is_first_link(&mut self, path: &[u8], entry: &Entry) -> bool {
        let Metadata { device, inode, .. } = entry.metadata;
        let file = (device, inode, version(entry));
        if let Some(first) = self.first.get(&file) {
            let is_file = matches!(entry.content, Content::File { .. });
            self.links.push(Link { first: first.clone(), path: path.to_vec(), is_file });
            return false;
        }
        let of_inode = (device, inode, Version::default())..=(device, inode, [u8::MAX; 32]);
        if let Some((_, first)) = self.first.range(of_inode).next() {
            let first = String::from_utf8_lossy(first).into_owned();
            let text =
                format!("it was a hard link of /{first} with another content or time, and is a file of its own now");
            self.job.issue(path, text);
        }
        self.first.insert(file, path.to_vec());
        true
    }

    /// Whether the path lies in a directory that this restore made.
    fn is_alone(&mut self, path: &[u8]) -> bool {
        self.made.retain(|above| is_within(path, above));
        let folder = path.iter().rposition(|byte| *byte == b'/').and_then(|end| path.get(..end));
        folder.is_some_and(|folder| self.made.last().is_some_and(|last| last == folder))
    }

    fn file(&mut self, path: Vec<u8>, entry: Entry) -> Result<()> {
        let job = self.job;
        let Some(pieces) = job.settle(&path, job.indexed.pieces(&entry.content))? else { return Ok(()) };
        let (size, metadata) = (entry.content.size(), entry.metadata);
        // A file that came into a new directory meanwhile is found when this one is made.
        let present = match self.is_alone(&path) {
            true => Some(Present::No),
            false => job.settle(&path, job.target.present(&path, size, &metadata))?,
        };
        let complete = match present {
            None => return Ok(()),
            Some(Present::Complete(is)) if !job.options.verify || place::matches(job, &path, &pieces)? => Some(is),
            Some(Present::SameSize(is)) if job.options.verify && place::matches(job, &path, &pieces)? => Some(is),
            Some(_) => None,
        };
        if let Some(identity) = complete {
            self.done.files_kept += 1;
            job.progress.files.fetch_add(1, Ordering::Relaxed);
            job.progress.bytes.fetch_add(size, Ordering::Relaxed);
            return self.without_chunks(path, size, metadata, identity);
        }
        let number = self.window.files.len() as u32;
        let (mut offset, mut chunks) = (0, 0);
        let before = self.window.planned.len();
        // All chunks are looked up before anything is removed.
        for piece in &pieces {
            if let Piece::Chunk { id, .. } = piece {
                let found = job.indexed.find_any(id);
                let Some(location) = job.settle(&path, found)? else {
                    self.window.planned.truncate(before);
                    return Ok(());
                };
                self.window.planned.push(Planned { location, file: number, offset });
                chunks += 1;
            }
            offset += piece.length();
        }
        let replaces = !matches!(present, Some(Present::No));
        let single = pieces.len() == 1 && chunks == 1;
        if chunks > 0 {
            let (left, failed, identity) = (AtomicU32::new(chunks), AtomicBool::new(false), OnceLock::new());
            return self.push(File {
                path,
                metadata,
                size,
                left,
                counts: true,
                single,
                replaces,
                failed,
                unmade: AtomicBool::default(),
                identity,
            });
        }
        if replaces && job.settle(&path, job.target.remove(&path))?.is_none() {
            return Ok(());
        }
        let Some(made) = job.settle(&path, job.target.make_file(&path, size))? else { return Ok(()) };
        self.done.files += 1;
        self.done.bytes += size;
        job.progress.files.fetch_add(1, Ordering::Relaxed);
        self.without_chunks(path, size, metadata, made)
    }

    /// A file that needs no chunk, but its metadata; the times behind the next sync, like those of
    /// all others.
    fn without_chunks(&mut self, path: Vec<u8>, size: u64, metadata: Metadata, identity: Identity) -> Result<()> {
        let set = self.job.target.set_attributes_at(&path, identity, &metadata);
        let failed = AtomicBool::new(set.is_err());
        self.job.note(&path, set)?;
        let (left, counts, unmade) = Default::default();
        let (single, replaces, identity) = (false, false, identity.into());
        self.push(File { path, metadata, size, left, counts, single, replaces, failed, unmade, identity })
    }

    fn push(&mut self, file: File) -> Result<()> {
        if file.counts {
            self.window.bytes = self.window.bytes.saturating_add(file.size);
        }
        self.window.files.push(file);
        if self.window.is_full() { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let window = std::mem::take(&mut self.window);
        if window.files.is_empty() { Ok(()) } else { fetch::run(self.job, window) }
    }

    /// Links and the metadata of directories.
    fn finish(mut self) -> Result<Restored> {
        let job = self.job;
        let complete = std::mem::take(&mut *lock(&job.complete));
        for Link { first, path, is_file } in &self.links {
            // The target may have a file of its own under the first name, or half of one.
            let Some(known) = complete.get(first) else {
                let first = String::from_utf8_lossy(first);
                job.issue(path, format!("it is a further name of /{first}, which was not restored"));
                continue;
            };
            match (is_file, job.settle(path, job.target.link(first, *known, path))?) {
                (_, None) => {}
                (true, Some(true)) => self.done.files_kept += 1,
                (true, Some(false)) => self.done.files += 1,
                (false, Some(_)) => self.done.others += 1,
            }
        }
        for (path, identity, metadata) in self.directories.iter().rev() {
            job.note(path, job.target.finish_directory(path, *identity, metadata))?;
        }
        // The restore is done when it is on the drive.
        job.target.sync()?;
        job.note(b"", job.target.finish(self.top.as_ref()))?;
        let (files, bytes) = *lock(&job.written);
        self.done.files += files;
        self.done.bytes += bytes;
        Ok(self.done)
    }
}

/// Compares all files with the snapshot.
fn compare(job: &Job<'_>, description: &Description) -> Result<()> {
    let mut walk = Walk::new(job.indexed, description, &job.options.within);
    loop {
        let found = match walk.step() {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(()),
            // The restore has listed it.
            Err(BackupError::Damaged(_)) => continue,
            Err(error) => return Err(error),
        };
        job.progress.check()?;
        let Choice::Restored(Found { path, entry }) = choose(job.options, found) else { continue };
        if matches!(entry.content, Content::File { .. }) {
            let Some(pieces) = job.settle(&path, job.indexed.pieces(&entry.content))? else { continue };
            if !place::matches(job, &path, &pieces)? {
                job.issue(&path, "its content differs from that of the snapshot".to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests;
