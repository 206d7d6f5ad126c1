//! Files by number, and the entries that name them. Every function checks everything before it
//! changes anything.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use super::content::Content;
use crate::model::{LINK_MAX, LINKS_MAX, check_name};
use crate::permission::{may_add, may_read, may_remove, may_search, may_write};
use crate::rules::{created, marks_access};
use crate::{
    Attributes, Caller, Changed, Changes, Creation, DirectoryEntry, Entry, FileError, Inode, Kind, Listing, Moment,
    Node, Removal, Result,
};

pub(super) const ROOT: Inode = Inode(1);
/// Cookies up to this one mean the beginning; protocols use them for `.` and `..`.
const COOKIE_FIRST: u64 = 2;

pub(super) struct Tree {
    pub(super) files: BTreeMap<Inode, Record>,
    last_inode: u64,
    /// Bytes of content of all files.
    pub(super) used: u64,
    pub(super) capacity: u64,
    /// How often unstable writes were lost.
    pub(super) losses: u64,
}

pub(super) struct Record {
    attributes: Attributes,
    pub(super) body: Body,
    pub(super) extended: BTreeMap<Bytes, Bytes>,
    /// Of an exclusive creation.
    verifier: Option<[u8; 8]>,
    /// How often the file is open.
    pub(super) openings: u64,
}

pub(super) enum Body {
    File(Content),
    Directory(Directory),
    Link(Bytes),
    Special,
}

/// A file that has no number yet.
struct New {
    kind: Kind,
    body: Body,
    verifier: Option<[u8; 8]>,
}

pub(super) struct Directory {
    parent: Inode,
    /// Of all names.
    bytes: u64,
    names: BTreeMap<Bytes, u64>,
    /// By cookie, which rises with every entry and is never used again.
    entries: BTreeMap<u64, (Bytes, Inode)>,
    last_cookie: u64,
}

impl Record {
    pub(super) fn attributes(&self) -> Attributes {
        let (size, used) = match &self.body {
            Body::File(content) => (content.size(), content.used()),
            Body::Directory(directory) => (directory.bytes, 0),
            Body::Link(target) => (target.len() as u64, 0),
            Body::Special => (0, 0),
        };
        Attributes { size, used, ..self.attributes.clone() }
    }

    pub(super) fn set_attributes(&mut self, new: Attributes) {
        self.attributes = new;
    }

    /// Content or entries changed.
    pub(super) fn modify(&mut self, now: Moment) {
        self.attributes.modified = now;
        self.change(now);
    }

    /// Attributes changed.
    pub(super) fn change(&mut self, now: Moment) {
        self.attributes.changed = now;
        self.attributes.change += 1;
    }

    pub(super) fn mark_access(&mut self, now: Moment) {
        if marks_access(&self.attributes, now) {
            self.attributes.accessed = now;
        }
    }
}

impl New {
    fn of(kind: Kind, body: Body) -> New {
        New { kind, body, verifier: None }
    }
}

impl Directory {
    fn new(parent: Inode) -> Directory {
        Directory { parent, bytes: 0, names: BTreeMap::new(), entries: BTreeMap::new(), last_cookie: COOKIE_FIRST }
    }

    fn get(&self, name: &[u8]) -> Option<Inode> {
        let cookie = self.names.get(name)?;
        self.entries.get(cookie).map(|(_, inode)| *inode)
    }

    /// A replaced name keeps its place.
    fn insert(&mut self, name: &[u8], inode: Inode) {
        let name = Bytes::copy_from_slice(name);
        let cookie = match self.names.get(&name) {
            Some(cookie) => *cookie,
            None => {
                self.last_cookie += 1;
                self.bytes += name.len() as u64;
                self.names.insert(name.clone(), self.last_cookie);
                self.last_cookie
            }
        };
        self.entries.insert(cookie, (name, inode));
    }

    fn remove(&mut self, name: &[u8]) {
        if let Some(cookie) = self.names.remove(name) {
            self.entries.remove(&cookie);
            self.bytes -= name.len() as u64;
        }
    }
}

impl Tree {
    pub(super) fn new(capacity: u64, now: Moment) -> Tree {
        let mut tree = Tree { files: BTreeMap::new(), last_inode: ROOT.0, used: 0, capacity, losses: 0 };
        let root = Attributes {
            inode: ROOT,
            kind: Kind::Directory,
            mode: 0o755,
            links: 2,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            accessed: now,
            modified: now,
            changed: now,
            change: 1,
        };
        tree.put(root, New::of(Kind::Directory, Body::Directory(Directory::new(ROOT))));
        tree
    }

    pub(super) fn file(&self, inode: Inode) -> Result<&Record> {
        self.files.get(&inode).ok_or(FileError::Stale)
    }

    pub(super) fn file_mut(&mut self, inode: Inode) -> Result<&mut Record> {
        self.files.get_mut(&inode).ok_or(FileError::Stale)
    }

    pub(super) fn attributes(&self, inode: Inode) -> Result<Attributes> {
        Ok(self.file(inode)?.attributes())
    }

    fn directory(&self, inode: Inode) -> Result<(Attributes, &Directory)> {
        match self.file(inode)? {
            record @ Record { body: Body::Directory(directory), .. } => Ok((record.attributes(), directory)),
            _ => Err(FileError::NotDirectory),
        }
    }

    pub(super) fn lookup(&self, caller: &Caller, directory: Inode, name: &[u8]) -> Result<Inode> {
        let (attributes, entries) = self.directory(directory)?;
        may_search(caller, &attributes)?;
        match name {
            b"." => return Ok(directory),
            b".." => return Ok(entries.parent),
            name => check_name(name)?,
        }
        entries.get(name).ok_or(FileError::NotFound)
    }

    /// The file that an entry names, whatever it is; `.` and `..` are no entries.
    fn find(&self, caller: &Caller, directory: Inode, name: &[u8]) -> Result<Option<Inode>> {
        let (attributes, entries) = self.directory(directory)?;
        may_search(caller, &attributes)?;
        check_name(name)?;
        Ok(entries.get(name))
    }

    /// Whether a new entry may be added to the directory, which a removed directory never allows.
    fn check_add(&self, caller: &Caller, directory: Inode) -> Result<Attributes> {
        let (attributes, _) = self.directory(directory)?;
        if attributes.links == 0 {
            return Err(FileError::NotFound);
        }
        may_add(caller, &attributes)?;
        Ok(attributes)
    }

    pub(super) fn create(
        &mut self,
        caller: &Caller,
        directory: Inode,
        name: &[u8],
        how: Creation,
        now: Moment,
    ) -> Result<(Entry, Option<u64>)> {
        let (changes, verifier) = match &how {
            Creation::Unchecked(changes) | Creation::Guarded(changes) => (changes.clone(), None),
            Creation::Exclusive(verifier) => (Changes::default(), Some(*verifier)),
        };
        let before = self.attributes(directory)?;
        if let Some(found) = self.find(caller, directory, name)? {
            let record = self.file(found)?;
            let kept = match how {
                Creation::Unchecked(_) => true,
                Creation::Guarded(_) => false,
                Creation::Exclusive(_) => record.verifier == verifier,
            };
            if !kept || record.attributes.kind != Kind::File {
                return Err(FileError::Exists);
            }
            let file = record.attributes();
            return Ok((Entry { file, directory: Changed { before: before.clone(), after: before } }, changes.size));
        }
        let mut content = Content::default();
        content.resize(changes.size.unwrap_or(0));
        let new = New { kind: Kind::File, body: Body::File(content), verifier };
        let entry = self.add_new(caller, directory, name, new, &changes, now)?;
        Ok((entry, None))
    }

    pub(super) fn make(
        &mut self,
        caller: &Caller,
        directory: Inode,
        name: &[u8],
        node: Node,
        changes: Changes,
        now: Moment,
    ) -> Result<Entry> {
        if self.find(caller, directory, name)?.is_some() {
            return Err(FileError::Exists);
        }
        let (kind, body) = match node {
            Node::Directory => (Kind::Directory, Body::Directory(Directory::new(directory))),
            Node::Link { target } if target.is_empty() || target.contains(&0) => {
                return Err(FileError::Invalid("a symbolic link's target is not empty and has no zero byte".into()));
            }
            Node::Link { target } if target.len() > LINK_MAX => return Err(FileError::NameTooLong),
            Node::Link { target } => (Kind::Link, Body::Link(target)),
            Node::Special(kind @ (Kind::BlockDevice { .. } | Kind::CharacterDevice { .. })) => {
                self.check_add(caller, directory)?;
                if !caller.is_root() {
                    return Err(FileError::NotOwner);
                }
                (kind, Body::Special)
            }
            Node::Special(kind @ (Kind::Pipe | Kind::Socket)) => (kind, Body::Special),
            Node::Special(_) => {
                return Err(FileError::Invalid("a special file is a device, a pipe or a socket".into()));
            }
        };
        self.add_new(caller, directory, name, New::of(kind, body), &changes, now)
    }

    fn add_new(
        &mut self,
        caller: &Caller,
        directory: Inode,
        name: &[u8],
        new: New,
        changes: &Changes,
        now: Moment,
    ) -> Result<Entry> {
        let before = self.check_add(caller, directory)?;
        let inode = Inode(self.last_inode + 1);
        let attributes = created(caller, &before, inode, new.kind, changes, now)?;
        self.last_inode = inode.0;
        let is_directory = new.kind == Kind::Directory;
        self.put(attributes, new);
        self.insert(directory, name, inode, is_directory, now);
        Ok(Entry { file: self.attributes(inode)?, directory: self.since(before) })
    }

    pub(super) fn remove(
        &mut self,
        caller: &Caller,
        directory: Inode,
        name: &[u8],
        what: Removal,
        now: Moment,
    ) -> Result<Changed> {
        let before = self.attributes(directory)?;
        let inode = self.find(caller, directory, name)?.ok_or(FileError::NotFound)?;
        may_remove(caller, &before, &self.file(inode)?.attributes)?;
        match (&self.file(inode)?.body, what) {
            (Body::Directory(_), Removal::File) => return Err(FileError::IsDirectory),
            (Body::Directory(inner), Removal::Directory) if !inner.names.is_empty() => return Err(FileError::NotEmpty),
            (Body::Directory(_), Removal::Directory) => {}
            (_, Removal::Directory) => return Err(FileError::NotDirectory),
            (_, Removal::File) => {}
        }
        self.take(directory, name, now);
        self.lose_name(inode, now);
        Ok(self.since(before))
    }

    pub(super) fn rename(
        &mut self,
        caller: &Caller,
        from: (Inode, &[u8]),
        to: (Inode, &[u8]),
        now: Moment,
    ) -> Result<(Changed, Changed)> {
        let (before_from, before_to) = (self.attributes(from.0)?, self.attributes(to.0)?);
        let inode = self.find(caller, from.0, from.1)?.ok_or(FileError::NotFound)?;
        let target = self.find(caller, to.0, to.1)?;
        if target == Some(inode) {
            return Ok((self.since(before_from), self.since(before_to)));
        }
        let source = self.attributes(inode)?;
        let is_directory = source.kind == Kind::Directory;
        if before_to.links == 0 {
            return Err(FileError::NotFound);
        }
        if is_directory && self.is_within(to.0, inode)? {
            return Err(FileError::Invalid("a directory cannot be moved into itself".into()));
        }
        may_remove(caller, &before_from, &source)?;
        self.check_add(caller, to.0)?;
        if let Some(target) = target {
            let record = self.file(target)?;
            may_remove(caller, &before_to, &record.attributes)?;
            match &record.body {
                Body::Directory(_) if !is_directory => return Err(FileError::IsDirectory),
                Body::Directory(inner) if !inner.names.is_empty() => return Err(FileError::NotEmpty),
                Body::Directory(_) => {}
                _ if is_directory => return Err(FileError::NotDirectory),
                _ => {}
            }
        }
        if is_directory && from.0 != to.0 {
            // Its entry `..` changes.
            may_write(caller, &source)?;
        }

        if let Some(target) = target {
            self.take_link_of_directory(to.0, target);
            self.lose_name(target, now);
        }
        self.take(from.0, from.1, now);
        self.insert(to.0, to.1, inode, is_directory, now);
        let moved = self.file_mut(inode)?;
        moved.change(now);
        if let Body::Directory(moved) = &mut moved.body {
            moved.parent = to.0;
        }
        Ok((self.since(before_from), self.since(before_to)))
    }

    pub(super) fn link(
        &mut self,
        caller: &Caller,
        inode: Inode,
        directory: Inode,
        name: &[u8],
        now: Moment,
    ) -> Result<Entry> {
        let file = self.attributes(inode)?;
        if self.find(caller, directory, name)?.is_some() {
            return Err(FileError::Exists);
        }
        let before = self.check_add(caller, directory)?;
        match file {
            file if file.kind == Kind::Directory => return Err(FileError::NotOwner),
            file if file.links == 0 => return Err(FileError::NotFound),
            file if file.links >= LINKS_MAX => return Err(FileError::TooManyLinks),
            _ => {}
        }
        let record = self.file_mut(inode)?;
        record.attributes.links += 1;
        record.change(now);
        self.insert(directory, name, inode, false, now);
        Ok(Entry { file: self.attributes(inode)?, directory: self.since(before) })
    }

    pub(super) fn list(
        &mut self,
        caller: &Caller,
        inode: Inode,
        cookie: u64,
        limit: usize,
        now: Moment,
    ) -> Result<Listing> {
        let (attributes, directory) = self.directory(inode)?;
        may_read(caller, &attributes)?;
        if cookie > directory.last_cookie {
            return Err(FileError::BadCookie);
        }
        let behind = (Bound::Excluded(cookie.max(COOKIE_FIRST)), Bound::Unbounded);
        let mut rest = directory.entries.range(behind);
        let mut entries = Vec::new();
        for (cookie, (name, inode)) in rest.by_ref().take(limit) {
            let attributes = self.attributes(*inode)?;
            entries.push(DirectoryEntry { name: name.clone(), cookie: *cookie, attributes });
        }
        let end = rest.next().is_none();
        self.file_mut(inode)?.mark_access(now);
        Ok(Listing { entries, end })
    }

    /// Forgets the file if it has neither a name nor a user.
    pub(super) fn drop_if_unused(&mut self, inode: Inode) {
        if self.files.get(&inode).is_some_and(|file| file.attributes.links == 0 && file.openings == 0)
            && let Some(Record { body: Body::File(content), .. }) = self.files.remove(&inode)
        {
            self.used -= content.used();
        }
    }

    /// Whether `inode` is `above` or lies below it.
    fn is_within(&self, mut inode: Inode, above: Inode) -> Result<bool> {
        while inode != above {
            if inode == ROOT {
                return Ok(false);
            }
            inode = self.directory(inode)?.1.parent;
        }
        Ok(true)
    }

    fn since(&self, before: Attributes) -> Changed {
        let after = self.attributes(before.inode).unwrap_or_else(|_| before.clone());
        Changed { before, after }
    }

    fn put(&mut self, attributes: Attributes, new: New) {
        let New { body, verifier, .. } = new;
        let record = Record { attributes, body, extended: BTreeMap::new(), verifier, openings: 0 };
        self.files.insert(record.attributes.inode, record);
    }

    fn insert(&mut self, directory: Inode, name: &[u8], inode: Inode, is_directory: bool, now: Moment) {
        if let Some(record) = self.files.get_mut(&directory)
            && let Body::Directory(entries) = &mut record.body
        {
            entries.insert(name, inode);
            record.attributes.links += u32::from(is_directory);
            record.modify(now);
        }
    }

    fn take(&mut self, directory: Inode, name: &[u8], now: Moment) {
        let Some(record) = self.files.get_mut(&directory) else { return };
        let Body::Directory(entries) = &mut record.body else { return };
        let inode = entries.get(name);
        entries.remove(name);
        record.modify(now);
        if let Some(inode) = inode {
            self.take_link_of_directory(directory, inode);
        }
    }

    /// A directory below counts as a link, by its `..`.
    fn take_link_of_directory(&mut self, directory: Inode, below: Inode) {
        let is_directory = self.files.get(&below).is_some_and(|file| file.attributes.kind == Kind::Directory);
        if let Some(record) = self.files.get_mut(&directory).filter(|_| is_directory) {
            record.attributes.links -= 1;
        }
    }

    fn lose_name(&mut self, inode: Inode, now: Moment) {
        if let Some(record) = self.files.get_mut(&inode) {
            match record.attributes.kind {
                Kind::Directory => record.attributes.links = 0,
                _ => record.attributes.links -= 1,
            }
            record.change(now);
        }
        self.drop_if_unused(inode);
    }
}
