//! The walk: which entries there are, and which of them the previous snapshot has unchanged.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::Stat;
use rustix::io::Errno;

use super::{BATCH_BYTES, BATCH_ENTRIES, BATCH_FOLDERS, FileAt, Item, Job, SPAN, lock};
use crate::crypt::Kind;
use crate::error::{BackupError, Result};
use crate::index::Location;
use crate::repository::trees::Walk;
use crate::snapshot::{Description, is_within};
use crate::tree::{Content, Entry, Metadata, NAME_MAX, PATH_MAX, Piece, join};
use crate::walk::{self, CACHE_SIGNATURE, CACHE_TAG, DirectoryHandle};

/// The paths as a tree has them: absolute, without a slash before them, sorted, none within another
/// one. Symbolic links above the last component are followed, and that component too where a slash
/// is behind it.
pub fn roots(paths: &[PathBuf]) -> Result<Vec<Vec<u8>>> {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for path in named(paths)? {
        if !kept.last().is_some_and(|last| is_within(&path, last)) {
            kept.push(path);
        }
    }
    if kept.is_empty() {
        return Err(BackupError::Invalid("there is no path to save".to_owned()));
    }
    Ok(kept)
}

/// The same with those that are within others.
fn named(paths: &[PathBuf]) -> Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    for path in paths {
        let failed = |error: std::io::Error| BackupError::io("save", path, &error);
        let bytes = path.as_os_str().as_bytes();
        let is_directory = bytes.ends_with(b"/") || bytes.ends_with(b"/.");
        let whole = match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) if !is_directory => {
                let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
                parent.canonicalize().map_err(failed)?.join(name)
            }
            // `/`, `.`, or a path that ends in `..` or a slash.
            _ => path.canonicalize().map_err(failed)?,
        };
        whole.symlink_metadata().map_err(failed)?;
        found.push(whole.as_os_str().as_bytes().strip_prefix(b"/").unwrap_or_default().to_vec());
    }
    found.sort_by(|a, b| crate::tree::order(a, b));
    Ok(found)
}

/// A directory that is being walked.
struct Level {
    folder: DirectoryHandle,
    /// The names that are left, the next one last.
    names: Vec<Vec<u8>>,
    path: Vec<u8>,
    /// The device of the path to save that it belongs to. None: it only leads to one.
    device: Option<u64>,
}

struct Scan<'a, 'b> {
    job: &'a Job<'b>,
    roots: &'a [Vec<u8>],
    /// With `one_file_system` the roots and the paths within them, which may be on other devices.
    paths: Vec<Vec<u8>>,
    before: Option<Walk>,
    batch: Vec<Item>,
    batch_bytes: u64,
    /// Directories that the batch keeps open.
    batch_folders: usize,
    send: &'a mut dyn FnMut(Vec<Item>) -> Result<()>,
}

/// Walks all roots and sends batches.
pub fn walk(
    job: &Job<'_>,
    roots: &[Vec<u8>],
    before: Option<&Description>,
    send: &mut dyn FnMut(Vec<Item>) -> Result<()>,
) -> Result<()> {
    let before = before.map(|description| Walk::new(job.indexed, description, b""));
    let paths = if job.options.one_file_system { named(&job.options.paths)? } else { roots.to_vec() };
    let (batch, batch_bytes, batch_folders) = Default::default();
    let mut scan = Scan { job, roots, paths, before, batch, batch_bytes, batch_folders, send };
    let failed = |error: Errno| BackupError::io("open", Path::new("/"), &error.into());
    let top = walk::open_top().map_err(failed)?;
    // The walk visits all but the top itself.
    let device = match roots.iter().any(Vec::is_empty) {
        true => Some(rustix::fs::fstat(&top).map_err(failed)?.st_dev as u64),
        false => None,
    };
    let names = scan.names(&top, b"", device).map_err(failed)?;
    let mut levels = vec![Level { folder: top, names, path: Vec::new(), device }];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.names.pop() else {
            levels.pop();
            continue;
        };
        let (path, folder, device) = (join(&level.path, &name), Arc::clone(&level.folder), level.device);
        let depth = levels.len() - 1;
        if let Some((folder, device)) = scan.visit(&folder, name, &path, depth, device)? {
            match scan.names(&folder, &path, device) {
                Ok(names) => levels.push(Level { folder, names, path, device }),
                Err(error) => scan.job.issue(&path, format!("cannot list the directory: {error}")),
            }
        }
    }
    scan.flush()
}

impl Scan<'_, '_> {
    /// The names to visit in a directory, the first one last. Of a directory without a device only
    /// those that lead to a path to save.
    fn names(&self, folder: &DirectoryHandle, path: &[u8], device: Option<u64>) -> rustix::io::Result<Vec<Vec<u8>>> {
        let mut names = match device {
            Some(_) => walk::names(folder)?,
            None => {
                let below = self.paths.iter().filter(|root| is_within(root, path));
                let skip = if path.is_empty() { 0 } else { path.len() + 1 };
                let rest = below.filter_map(|root| root.get(skip..)?.split(|byte| *byte == b'/').next());
                let mut names: Vec<Vec<u8>> = rest.map(<[u8]>::to_vec).collect();
                names.sort_unstable();
                names.dedup();
                names
            }
        };
        names.reverse();
        Ok(names)
    }

    /// Sends an entry on its way. Gives the directory to enter, with the device of the path to save
    /// that it belongs to.
    fn visit(
        &mut self,
        folder: &DirectoryHandle,
        name: Vec<u8>,
        path: &[u8],
        depth: usize,
        device: Option<u64>,
    ) -> Result<Option<(DirectoryHandle, Option<u64>)>> {
        let is_root = self.roots.iter().any(|root| root == path);
        let inside = is_root || self.roots.iter().any(|root| is_within(path, root));
        if inside && !is_root && self.job.options.filter.excludes(path) {
            return Ok(None);
        }
        if name.len() > NAME_MAX || path.len() > PATH_MAX {
            self.job.issue(path, format!("the path exceeds {PATH_MAX} bytes"));
            return Ok(None);
        }
        let stat = match walk::stat(folder, &name) {
            Ok(stat) => stat,
            Err(error) => {
                self.job.issue(path, format!("cannot read the metadata: {error}"));
                return Ok(None);
            }
        };
        let mut metadata = walk::metadata(&stat);
        if walk::is_file(&stat) {
            self.file(folder, name, path, depth, stat, metadata)?;
            return Ok(None);
        }
        let content = match walk::content(folder, &name, &stat) {
            Ok(Some(content)) => content,
            Ok(None) => {
                self.job.issue(path, "it is of an unknown kind".to_owned());
                return Ok(None);
            }
            Err(error) => {
                self.job.issue(path, format!("cannot read the link: {error}"));
                return Ok(None);
            }
        };
        let mut enter = None;
        if content == Content::Directory {
            let opened = match inside {
                true => walk::open_folder(folder, &name),
                false => walk::open_passage(folder, &name),
            };
            match opened {
                Ok(opened) => {
                    use std::os::fd::AsFd;
                    let xattrs = match walk::xattrs(opened.as_fd()) {
                        // It may only be entered.
                        Err(Errno::BADF) => walk::xattrs_unopened(folder, &name),
                        read => read,
                    };
                    self.take_xattrs(&mut metadata, path, xattrs);
                    let is_named = self.paths.iter().any(|named| named == path);
                    let device = if is_named { Some(metadata.device) } else { device };
                    let foreign = self.job.options.one_file_system && device.is_some_and(|is| is != metadata.device);
                    let leads = || self.paths.iter().any(|named| is_within(named, path));
                    // A path that was named is wanted, as beside the patterns.
                    let is_marked = || inside && !is_root && self.is_marked(&opened);
                    let skipped = (foreign && !leads()) || is_marked();
                    enter = (!skipped).then_some((opened, if foreign { None } else { device }));
                }
                Err(error) => self.job.issue(path, format!("cannot open the directory: {error}")),
            }
        } else {
            self.take_xattrs(&mut metadata, path, walk::xattrs_unopened(folder, &name));
        }
        self.push(Item::Ready { depth, entry: Entry { name, metadata, content }, unchanged: false }, 0)?;
        Ok(enter)
    }

    fn take_xattrs(&self, metadata: &mut Metadata, path: &[u8], read: rustix::io::Result<Vec<(Vec<u8>, Vec<u8>)>>) {
        match read {
            Ok(xattrs) => metadata.xattrs = xattrs,
            Err(error) => self.job.issue(path, walk::xattrs_failed(error)),
        }
    }

    /// Whether the directory's content is left out because of a file in it.
    fn is_marked(&self, folder: &DirectoryHandle) -> bool {
        let options = self.job.options;
        let present = options.exclude_if_present.iter().any(|name| walk::stat(folder, name.as_encoded_bytes()).is_ok());
        present || (options.exclude_caches && is_cache(folder))
    }

    fn file(
        &mut self,
        folder: &DirectoryHandle,
        name: Vec<u8>,
        path: &[u8],
        depth: usize,
        stat: Stat,
        metadata: Metadata,
    ) -> Result<()> {
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if let Some(entry) = self.unchanged(path, &metadata, size)? {
            return self.push(Item::Ready { depth, entry, unchanged: true }, 0);
        }
        let file =
            FileAt { folder: Arc::clone(folder), name, stat, path: path.into(), metadata, is_listed: Arc::default() };
        if size <= SPAN {
            return self.push(Item::Read { depth, file }, size);
        }
        let holes = if walk::is_sparse(&file.stat) { walk::open_file(folder, &file.name).ok() } else { None };
        let mut from = 0;
        while from < size {
            // Spans without data are a part of the next one: a file may consist of exabytes of
            // them.
            let data = holes.as_ref().and_then(|file| walk::next_data(file, from, size).ok()).unwrap_or(from);
            let length = size.min((data / SPAN + 1) * SPAN) - from;
            let (file, last) = (file.clone(), from + length == size);
            self.push(Item::Span { depth, file, from, length, last }, length.min(SPAN))?;
            from += length;
        }
        Ok(())
    }

    /// The entry of the previous snapshot, if the file looks unchanged and all of its chunks are
    /// there.
    fn unchanged(&mut self, path: &[u8], is: &Metadata, size: u64) -> Result<Option<Entry>> {
        let entry = match self.before.as_mut().map(|before| before.seek(path)) {
            Some(Ok(Some(entry))) => entry,
            None | Some(Ok(None)) => return Ok(None),
            // The tree is damaged from here on: files are read, as in a first backup.
            Some(Err(_)) => {
                self.before = None;
                return Ok(None);
            }
        };
        let was = &entry.metadata;
        let same = was.modified == is.modified && was.changed == is.changed && was.inode == is.inode;
        if !same || !matches!(entry.content, Content::File { volume: None, .. }) || entry.content.size() != size {
            return Ok(None);
        }
        let Some(locations) = self.stored(&entry.content)? else { return Ok(None) };
        let mut gathered = lock(&self.job.gathered);
        locations.into_iter().for_each(|location| gathered.insert(location));
        drop(gathered);
        // Owner, links and device may differ without a change of content.
        let metadata = Metadata { xattrs: entry.metadata.xattrs, ..is.clone() };
        Ok(Some(Entry { name: entry.name, metadata, content: entry.content }))
    }

    /// Where all chunks of a file are stored. None: one of them is not, or a list cannot be read.
    fn stored(&self, content: &Content) -> Result<Option<Vec<Location>>> {
        let Content::File { pieces, lists, .. } = content else { return Ok(None) };
        let listed = match lists.is_empty() {
            true => None,
            false => match self.job.indexed.pieces(content) {
                Ok(listed) => Some(listed),
                Err(_) => return Ok(None),
            },
        };
        let chunks = listed.as_ref().unwrap_or(pieces).iter().filter_map(|piece| match piece {
            Piece::Chunk { id, .. } => Some((Kind::Content, id)),
            Piece::Hole(_) => None,
        });
        let mut locations = Vec::new();
        for (kind, id) in chunks.chain(lists.iter().map(|id| (Kind::Tree, id))) {
            match self.job.packer.find(kind, id)? {
                Some(location) => locations.push(location),
                None => return Ok(None),
            }
        }
        Ok(Some(locations))
    }

    fn push(&mut self, item: Item, bytes: u64) -> Result<()> {
        if let Some(folder) = item.folder() {
            let last = self.batch.iter().rev().find_map(Item::folder);
            if !last.is_some_and(|last| Arc::ptr_eq(last, folder)) {
                if self.batch_folders == BATCH_FOLDERS {
                    self.flush()?;
                }
                self.batch_folders += 1;
            }
        }
        self.batch.push(item);
        self.batch_bytes += bytes;
        if self.batch.len() >= BATCH_ENTRIES || self.batch_bytes >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        (self.batch_bytes, self.batch_folders) = (0, 0);
        if self.batch.is_empty() { Ok(()) } else { (self.send)(std::mem::take(&mut self.batch)) }
    }
}

fn is_cache(folder: &DirectoryHandle) -> bool {
    let Ok(file) = walk::open_file(folder, CACHE_TAG.as_bytes()) else { return false };
    let mut start = [0; CACHE_SIGNATURE.len()];
    rustix::io::pread(&file, &mut start, 0) == Ok(start.len()) && start == CACHE_SIGNATURE.as_bytes()
}

#[cfg(test)]
mod tests;
