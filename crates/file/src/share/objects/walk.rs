//! Walking a tree in the order of S3 keys.
//!
//! Entries of a directory are stored by name, and a directory sorts as its name followed by `/`:
//! `a` comes behind `a-b` and `a.txt` if it is a directory. So a directory waits while names follow
//! that continue its own with a byte below `/`. All waiting directories are beginnings of the
//! present name, and the longest comes first: they are a stack.
//!
//! The walk reads a bounded number of entries in one step on the share, and keeps nothing locked in
//! between. What changes meanwhile may or may not be met.

use std::collections::VecDeque;
use std::sync::Arc;

use stele_catalog::KeyRange;

use super::key::KEY_MAX;
use super::{Share, There, look};
use crate::Result;
use crate::model::Attributes;
use crate::share::core::Core;
use crate::share::records::{ENTRIES, EntryRow, InodeRow, ROOT, decode, entry_key};

/// Entries that one step reads.
const PAGE: usize = 256;

/// A file or directory that the walk came to. A directory's key ends with `/`.
#[derive(Clone, Debug)]
pub struct Met {
    pub key: String,
    pub inode: u64,
    pub row: Arc<InodeRow>,
    pub attributes: Attributes,
}

impl Met {
    pub fn is_empty_directory(&self) -> bool {
        self.row.is_directory() && self.row.entries == 0
    }
}

pub struct Walk<'s> {
    share: &'s Share,
    stack: Vec<Level>,
    /// Only keys from here on.
    bound: Vec<u8>,
    /// The directory that was met last, unless it is left out.
    inner: Option<Met>,
    /// The directory that the prefix names.
    base: Option<Met>,
}

/// A directory on the way down.
struct Level {
    inode: u64,
    /// Its key, with the `/` at its end; empty for the root.
    path: Vec<u8>,
    /// Only names that begin with this.
    filter: Vec<u8>,
    /// Read and not yet met, in order of names.
    read: VecDeque<Met>,
    /// Directories that come behind the names that follow.
    waiting: Vec<Met>,
    /// The name that was read last.
    last: Option<Vec<u8>>,
    ended: bool,
}

/// The first key behind all keys with this prefix. Empty: there is none.
pub fn behind(prefix: &[u8]) -> Vec<u8> {
    let mut next = prefix.to_vec();
    while let Some(last) = next.pop() {
        if last < 0xFF {
            next.push(last + 1);
            break;
        }
    }
    next
}

impl<'s> Walk<'s> {
    /// A walk over the keys with a prefix, from `bound` on. None: no directory has such keys.
    pub fn start(share: &'s Share, prefix: &str, bound: Vec<u8>) -> Result<Option<Walk<'s>>> {
        let (above, filter) = match prefix.rfind('/') {
            Some(slash) => prefix.split_at(slash + 1),
            None => ("", prefix),
        };
        let names: Vec<&[u8]> = match above.strip_suffix('/') {
            Some(path) => path.split('/').map(str::as_bytes).collect(),
            None => Vec::new(),
        };
        let There::Directory(inode, row) = share.step(|core| look(core, &names))? else { return Ok(None) };
        let path = above.as_bytes().to_vec();
        let base = (filter.is_empty() && inode != ROOT && bound.as_slice() <= path.as_slice()).then(|| {
            let attributes = row.attributes(inode);
            Met { key: above.into(), inode, row, attributes }
        });
        let level = Level::new(inode, path, filter.as_bytes().to_vec());
        Ok(Some(Walk { share, stack: vec![level], bound, inner: None, base }))
    }

    /// Leaves out all keys before this one; no later call names an earlier one.
    pub fn skip_to(&mut self, bound: Vec<u8>) {
        if bound.is_empty() {
            self.stack.clear();
        }
        self.bound = bound;
    }

    /// The next file or directory. A directory comes before what is in it.
    pub async fn next(&mut self) -> Result<Option<Met>> {
        if let Some(base) = self.base.take() {
            return Ok(Some(base));
        }
        if let Some(inner) = self.inner.take() {
            self.enter(&inner);
        }
        loop {
            let Some(level) = self.stack.last_mut() else { return Ok(None) };
            // Everything in this directory lies before the bound.
            if level.path < self.bound && !self.bound.starts_with(&level.path) {
                self.stack.pop();
                continue;
            }
            let Some(met) = level.take() else {
                if level.ended {
                    self.stack.pop();
                    continue;
                }
                let (share, bound) = (self.share, &self.bound);
                share.step(|core| level.read(core, bound))?;
                // Other requests take their turn between steps.
                tokio::task::yield_now().await;
                continue;
            };
            let key = met.key.as_bytes();
            if key >= self.bound.as_slice() {
                self.inner = met.row.is_directory().then(|| met.clone());
                return Ok(Some(met));
            }
            if met.row.is_directory() && self.bound.starts_with(key) {
                self.enter(&met);
            }
        }
    }

    fn enter(&mut self, directory: &Met) {
        let path = directory.key.clone().into_bytes();
        if path.len() < KEY_MAX && directory.row.entries > 0 {
            self.stack.push(Level::new(directory.inode, path, Vec::new()));
        }
    }
}

impl Level {
    fn new(inode: u64, path: Vec<u8>, filter: Vec<u8>) -> Level {
        Level { inode, path, filter, read: VecDeque::new(), waiting: Vec::new(), last: None, ended: false }
    }

    /// The next one in order, as far as that is known.
    fn take(&mut self) -> Option<Met> {
        loop {
            let before = match (self.waiting.last(), self.read.front()) {
                (Some(waiting), Some(next)) => waiting.key < next.key,
                (Some(_), None) => self.ended,
                (None, _) => false,
            };
            if before {
                return self.waiting.pop();
            }
            let next = self.read.pop_front()?;
            if !next.row.is_directory() {
                return Some(next);
            }
            self.waiting.push(next);
        }
    }

    /// Reads more entries, with the next names at or behind the bound.
    fn read(&mut self, core: &mut Core, bound: &[u8]) -> Result<()> {
        let share = core.view.share;
        let wanted = bound.strip_prefix(self.path.as_slice()).unwrap_or_default();
        let wanted = wanted.split(|byte| *byte == b'/').next().unwrap_or_default();
        let range = KeyRange::prefix(entry_key(share, self.inode, &self.filter));
        let jump = wanted > self.filter.as_slice() && self.last.as_deref().is_none_or(|last| last < wanted);
        let range = if jump {
            self.skipped_directories(core, wanted)?;
            range.from(entry_key(share, self.inode, wanted))
        } else {
            match &self.last {
                Some(last) => range.after(entry_key(share, self.inode, last)),
                None => range,
            }
        };
        let records = core.view.range(ENTRIES, &range, PAGE)?;
        self.ended = records.len() < PAGE;
        for (key, value) in &records {
            let name = key.get(12..).unwrap_or_default();
            self.last = Some(name.to_vec());
            let entry: EntryRow = decode(ENTRIES, key, value)?;
            if let Some(met) = self.met(core, name, entry.inode)? {
                self.read.push_back(met);
            }
        }
        Ok(())
    }

    /// Directories before `wanted` by name and behind it by key. Their names begin `wanted`.
    fn skipped_directories(&mut self, core: &mut Core, wanted: &[u8]) -> Result<()> {
        for (length, next) in wanted.iter().enumerate().skip(1) {
            let name = wanted.get(..length).unwrap_or_default();
            let known = self.last.as_deref().is_some_and(|last| name <= last);
            if *next >= b'/' || known || !name.starts_with(&self.filter) {
                continue;
            }
            let key = entry_key(core.view.share, self.inode, name);
            let Some(entry) = core.view.get(ENTRIES, &key)? else { continue };
            let entry: EntryRow = decode(ENTRIES, &key, &entry)?;
            let met = self.met(core, name, entry.inode)?.filter(|met| met.row.is_directory());
            self.waiting.extend(met);
        }
        Ok(())
    }

    /// None: it has no key. Its name is not UTF-8, its path is too long, or it is neither a file
    /// nor a directory.
    fn met(&self, core: &mut Core, name: &[u8], inode: u64) -> Result<Option<Met>> {
        let row = core.view.row(inode)?;
        if !row.is_file() && !row.is_directory() {
            return Ok(None);
        }
        let mut key = self.path.clone();
        key.extend_from_slice(name);
        if row.is_directory() {
            key.push(b'/');
        }
        let Some(key) = String::from_utf8(key).ok().filter(|key| key.len() <= KEY_MAX) else { return Ok(None) };
        let attributes = core.attributes(inode)?;
        Ok(Some(Met { key, inode, row, attributes }))
    }
}
