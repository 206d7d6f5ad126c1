//! A tree of files in memory: the slow and simple twin of the gateway.
//!
//! It shows what every call of [`Files`] means, and other implementations are compared with it. One
//! mutex guards everything. It keeps what an unstable write replaced, so that
//! [`MemoryFiles::crash`] can lose the write as a power cut would. It knows no retention.

mod content;
#[cfg(test)]
mod tests;
mod tree;

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use self::tree::{Body, ROOT, Record, Tree};
use crate::model::SIZE_MAX;
use crate::permission::{granted, may_read, may_read_content, may_write_content};
use crate::rules::{changed, check_extended_name, may_extend, mode_after_write};
use crate::{
    Access, Attributes, Caller, Changed, Changes, Creation, Data, Entry, FileError, Files, Inode, Listing, Moment,
    Node, Removal, Result, Space, Stability,
};

/// The most bytes that names and values of one file's extended attributes take.
pub const EXTENDED_MAX: usize = 64 * 1024;
/// How many files a share holds; only `statfs` shows it.
const FILES_MAX: u64 = 1 << 32;
/// The content that a tree holds unless told otherwise.
const CAPACITY: u64 = 1 << 40;

pub struct MemoryFiles {
    tree: Mutex<Tree>,
    clock: Box<dyn Fn() -> Moment + Send + Sync>,
}

impl MemoryFiles {
    /// An empty tree whose root belongs to root and has the mode 0o755.
    pub fn new(clock: impl Fn() -> Moment + Send + Sync + 'static) -> MemoryFiles {
        let tree = Tree::new(CAPACITY, clock());
        MemoryFiles { tree: Mutex::new(tree), clock: Box::new(clock) }
    }

    /// The same, but content beyond `capacity` bytes, in pages of 4 KiB, gets `NoSpace`.
    pub fn with_capacity(self, capacity: u64) -> MemoryFiles {
        self.lock().capacity = capacity;
        self
    }

    /// Cuts the power: unstable writes that were not committed are lost, and no file is open any
    /// more. The verifier changes if anything was lost.
    pub fn crash(&self) {
        let now = (self.clock)();
        let mut tree = self.lock();
        let mut lost = false;
        for record in tree.files.values_mut() {
            record.openings = 0;
            if let Body::File(content) = &mut record.body
                && content.crash()
            {
                lost = true;
                record.modify(now);
            }
        }
        tree.losses += u64::from(lost);
        let content = |record: &Record| if let Body::File(content) = &record.body { content.used() } else { 0 };
        tree.used = tree.files.values().map(content).sum();
        let inodes: Vec<Inode> = tree.files.keys().copied().collect();
        for inode in inodes {
            tree.drop_if_unused(inode);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One change of the tree.
    fn with<T>(&self, change: impl FnOnce(&mut Tree, Moment) -> Result<T>) -> Result<T> {
        let now = (self.clock)();
        change(&mut self.lock(), now)
    }
}

impl Tree {
    fn change_attributes(
        &mut self,
        caller: &Caller,
        inode: Inode,
        changes: &Changes,
        guard: Option<Moment>,
        now: Moment,
    ) -> Result<Changed> {
        let before = self.attributes(inode)?;
        if guard.is_some_and(|guard| guard != before.changed) {
            return Err(FileError::NotSynchronized);
        }
        if changes.is_empty() {
            return Ok(Changed { after: before.clone(), before });
        }
        let new = changed(caller, &before, changes, now)?;
        let record = self.file_mut(inode)?;
        record.set_attributes(new);
        if let (Body::File(content), Some(size)) = (&mut record.body, changes.size) {
            content.resize(size);
        }
        let after = record.attributes();
        self.used = self.used - before.used + after.used;
        Ok(Changed { before, after })
    }

    fn write(
        &mut self,
        caller: &Caller,
        inode: Inode,
        offset: u64,
        data: Vec<Bytes>,
        stability: Stability,
        now: Moment,
    ) -> Result<Changed> {
        let free = self.capacity.saturating_sub(self.used);
        let record = self.file_mut(inode)?;
        let before = record.attributes();
        let content = content_of(record)?;
        may_write_content(caller, &before)?;
        let length = data.iter().map(|piece| piece.len() as u64).sum::<u64>();
        if offset.checked_add(length).is_none_or(|end| end > SIZE_MAX) {
            return Err(FileError::TooLarge);
        }
        if length == 0 {
            return Ok(Changed { after: before.clone(), before });
        }
        if content.growth(offset, length) > free {
            return Err(FileError::NoSpace);
        }
        content.write(offset, data, stability > Stability::Unstable);
        let mode = mode_after_write(caller, before.mode);
        record.set_attributes(Attributes { mode, ..before.clone() });
        record.modify(now);
        let after = record.attributes();
        self.used = self.used - before.used + after.used;
        Ok(Changed { before, after })
    }

    fn set_extended(
        &mut self,
        caller: &Caller,
        inode: Inode,
        name: &[u8],
        value: Option<Bytes>,
        must_exist: Option<bool>,
        now: Moment,
    ) -> Result<Changed> {
        let record = self.file_mut(inode)?;
        let before = record.attributes();
        check_extended_name(name)?;
        may_extend(caller, &before)?;
        let exists = record.extended.contains_key(name);
        match (&value, must_exist) {
            (None, _) | (_, Some(true)) if !exists => return Err(FileError::NoAttribute),
            (_, Some(false)) if exists => return Err(FileError::Exists),
            _ => {}
        }
        match value {
            None => {
                record.extended.remove(name);
            }
            Some(value) => {
                let others = record.extended.iter().filter(|(other, _)| *other != name);
                let size = others.map(|(name, value)| name.len() + value.len()).sum::<usize>();
                if size + name.len() + value.len() > EXTENDED_MAX {
                    return Err(FileError::TooManyAttributes);
                }
                record.extended.insert(Bytes::copy_from_slice(name), value);
            }
        }
        record.change(now);
        Ok(Changed { before, after: record.attributes() })
    }
}

fn content_of(record: &mut Record) -> Result<&mut content::Content> {
    match &mut record.body {
        Body::File(content) => Ok(content),
        Body::Directory(_) => Err(FileError::IsDirectory),
        _ => Err(FileError::Invalid("only a regular file has content".into())),
    }
}

impl Files for MemoryFiles {
    fn root(&self) -> Inode {
        ROOT
    }

    fn verifier(&self) -> [u8; 8] {
        self.lock().losses.to_be_bytes()
    }

    async fn attributes(&self, inode: Inode) -> Result<Attributes> {
        self.lock().attributes(inode)
    }

    async fn set_attributes(
        &self,
        caller: &Caller,
        inode: Inode,
        changes: Changes,
        guard: Option<Moment>,
    ) -> Result<Changed> {
        self.with(|tree, now| tree.change_attributes(caller, inode, &changes, guard, now))
    }

    async fn lookup(&self, caller: &Caller, directory: Inode, name: &[u8]) -> Result<Attributes> {
        let tree = self.lock();
        let inode = tree.lookup(caller, directory, name)?;
        tree.attributes(inode)
    }

    async fn access(&self, caller: &Caller, inode: Inode, wanted: Access) -> Result<Access> {
        Ok(granted(caller, &self.lock().attributes(inode)?, wanted))
    }

    async fn read_link(&self, _: &Caller, inode: Inode) -> Result<Bytes> {
        self.with(|tree, now| {
            let record = tree.file_mut(inode)?;
            let Body::Link(target) = &record.body else {
                return Err(FileError::Invalid("this is not a symbolic link".into()));
            };
            let target = target.clone();
            record.mark_access(now);
            Ok(target)
        })
    }

    async fn read(&self, caller: &Caller, inode: Inode, offset: u64, length: u32) -> Result<Data> {
        self.with(|tree, now| {
            let record = tree.file_mut(inode)?;
            let attributes = record.attributes();
            let content = content_of(record)?;
            may_read_content(caller, &attributes)?;
            let data = content.read(offset, length);
            record.mark_access(now);
            Ok(data)
        })
    }

    async fn write(
        &self,
        caller: &Caller,
        inode: Inode,
        offset: u64,
        data: Vec<Bytes>,
        stability: Stability,
    ) -> Result<(Changed, Stability)> {
        let changed = self.with(|tree, now| tree.write(caller, inode, offset, data, stability, now))?;
        Ok((changed, stability))
    }

    async fn commit(&self, inode: Inode) -> Result<Attributes> {
        self.with(|tree, _| {
            let record = tree.file_mut(inode)?;
            if let Body::File(content) = &mut record.body {
                content.commit();
            }
            Ok(record.attributes())
        })
    }

    async fn create(&self, caller: &Caller, directory: Inode, name: &[u8], how: Creation) -> Result<Entry> {
        self.with(|tree, now| {
            let (entry, cut) = tree.create(caller, directory, name, how, now)?;
            let Some(_) = cut else { return Ok(entry) };
            let changes = Changes { size: cut, ..Changes::default() };
            let changed = tree.change_attributes(caller, entry.file.inode, &changes, None, now)?;
            Ok(Entry { file: changed.after, ..entry })
        })
    }

    async fn make(
        &self,
        caller: &Caller,
        directory: Inode,
        name: &[u8],
        node: Node,
        changes: Changes,
    ) -> Result<Entry> {
        self.with(|tree, now| tree.make(caller, directory, name, node, changes, now))
    }

    async fn remove(&self, caller: &Caller, directory: Inode, name: &[u8], what: Removal) -> Result<Changed> {
        self.with(|tree, now| tree.remove(caller, directory, name, what, now))
    }

    async fn rename(&self, caller: &Caller, from: (Inode, &[u8]), to: (Inode, &[u8])) -> Result<(Changed, Changed)> {
        self.with(|tree, now| tree.rename(caller, from, to, now))
    }

    async fn link(&self, caller: &Caller, inode: Inode, directory: Inode, name: &[u8]) -> Result<Entry> {
        self.with(|tree, now| tree.link(caller, inode, directory, name, now))
    }

    async fn read_directory(&self, caller: &Caller, directory: Inode, cookie: u64, limit: usize) -> Result<Listing> {
        self.with(|tree, now| tree.list(caller, directory, cookie, limit, now))
    }

    async fn space(&self) -> Result<Space> {
        let tree = self.lock();
        let files = tree.files.len() as u64;
        Ok(Space {
            total: tree.capacity,
            free: tree.capacity.saturating_sub(tree.used),
            files_total: FILES_MAX,
            files_free: FILES_MAX.saturating_sub(files),
        })
    }

    async fn attribute(&self, caller: &Caller, inode: Inode, name: &[u8]) -> Result<Bytes> {
        let tree = self.lock();
        let record = tree.file(inode)?;
        check_extended_name(name)?;
        may_read(caller, &record.attributes())?;
        record.extended.get(name).cloned().ok_or(FileError::NoAttribute)
    }

    async fn attribute_names(&self, _: &Caller, inode: Inode) -> Result<Vec<Bytes>> {
        Ok(self.lock().file(inode)?.extended.keys().cloned().collect())
    }

    async fn set_attribute(
        &self,
        caller: &Caller,
        inode: Inode,
        name: &[u8],
        value: Option<Bytes>,
        must_exist: Option<bool>,
    ) -> Result<Changed> {
        self.with(|tree, now| tree.set_extended(caller, inode, name, value, must_exist, now))
    }

    async fn opened(&self, inode: Inode, _writes: bool) -> Result<()> {
        self.with(|tree, _| {
            tree.file_mut(inode)?.openings += 1;
            Ok(())
        })
    }

    async fn closed(&self, inode: Inode, _writes: bool) {
        let mut tree = self.lock();
        if let Ok(record) = tree.file_mut(inode) {
            record.openings = record.openings.saturating_sub(1);
        }
        tree.drop_if_unused(inode);
    }
}
