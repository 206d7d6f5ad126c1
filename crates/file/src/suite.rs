//! The suite that every tree of files passes: each call, and each rule of POSIX behind it.
//!
//! Call [`conforms`] from a test with a function that makes an empty tree whose root belongs to
//! root with the mode 0o755. [`compare`] draws random operations and compares two trees.

mod attributes;
pub mod compare;
mod content;
mod creation;
mod directories;
mod extended;
mod naming;

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;

use crate::{
    Attributes, Caller, Changes, Creation, Entry, FileError, Files, Inode, Kind, Node, Removal, Result, Stability,
};

/// Runs every check, each over a tree of its own. Panics with the check and the rule that does not
/// hold. Answers how many checks ran.
pub async fn conforms<F: Files>(mut make: impl AsyncFnMut() -> Arc<F>) -> usize {
    let mut count = 0;
    count += attributes::all(&mut make).await;
    count += content::all(&mut make).await;
    count += creation::all(&mut make).await;
    count += naming::all(&mut make).await;
    count += directories::all(&mut make).await;
    count += extended::all(&mut make).await;
    count
}

/// Runs the named checks and counts them.
macro_rules! run {
    ($make:expr, $($check:ident),* $(,)?) => {{
        let mut count = 0;
        $(
            $check(&crate::suite::World { check: stringify!($check), files: $make().await }).await;
            count += 1;
        )*
        count
    }};
}
use run;

/// Owns most files of the checks; a member of the group 2002 besides its own.
fn owner() -> Caller {
    Caller { uid: 1001, gid: 2001, groups: vec![2002] }
}

/// In the files' group.
fn member() -> Caller {
    Caller { uid: 1002, gid: 2009, groups: vec![5, 2001] }
}

/// Neither owner nor in the group.
fn stranger() -> Caller {
    Caller { uid: 1003, gid: 2003, groups: vec![2004] }
}

/// The four callers that permissions tell apart.
fn callers() -> [(&'static str, Caller); 4] {
    [("root", Caller::ROOT), ("owner", owner()), ("member", member()), ("stranger", stranger())]
}

fn mode(mode: u32) -> Changes {
    Changes { mode: Some(mode), ..Changes::default() }
}

fn size(size: u64) -> Changes {
    Changes { size: Some(size), ..Changes::default() }
}

/// A tree under a check.
struct World<F> {
    check: &'static str,
    files: Arc<F>,
}

impl<F: Files> World<F> {
    fn root(&self) -> Inode {
        self.files.root()
    }

    /// The rule holds that the call succeeds.
    fn ok<T>(&self, rule: &str, result: Result<T>) -> T {
        result.unwrap_or_else(|error| panic!("{}: {rule}: failed with {error:?}", self.check))
    }

    /// The rule holds that the call fails with this error; its text does not count.
    fn fails<T: Debug>(&self, rule: &str, result: Result<T>, error: FileError) {
        match result {
            Err(found) if std::mem::discriminant(&found) == std::mem::discriminant(&error) => {}
            other => panic!("{}: {rule}: expected {error:?}, got {other:?}", self.check),
        }
    }

    fn same<T: PartialEq + Debug>(&self, rule: &str, found: T, expected: T) {
        assert!(found == expected, "{}: {rule}: expected {expected:?}, got {found:?}", self.check);
    }

    fn holds(&self, rule: &str, condition: bool) {
        assert!(condition, "{}: {rule}", self.check);
    }

    async fn attributes(&self, inode: Inode) -> Attributes {
        self.ok("attributes are answered", self.files.attributes(inode).await)
    }

    /// A regular file of the owner.
    async fn file(&self, directory: Inode, name: &str, mode: u32) -> Inode {
        let changes = Changes { mode: Some(mode), uid: Some(1001), gid: Some(2001), ..Changes::default() };
        let created = self.files.create(&Caller::ROOT, directory, name.as_bytes(), Creation::Guarded(changes)).await;
        self.ok(&format!("the file {name} is created"), created).file.inode
    }

    /// A directory of the owner.
    async fn directory(&self, directory: Inode, name: &str, mode: u32) -> Inode {
        self.node(directory, name, Node::Directory, mode).await.file.inode
    }

    async fn node(&self, directory: Inode, name: &str, node: Node, mode: u32) -> Entry {
        let changes = Changes { mode: Some(mode), uid: Some(1001), gid: Some(2001), ..Changes::default() };
        let made = self.files.make(&Caller::ROOT, directory, name.as_bytes(), node, changes).await;
        self.ok(&format!("{name} is made"), made)
    }

    /// One file of every kind, by root's name for it.
    async fn every_kind(&self, directory: Inode) -> Vec<(&'static str, Inode)> {
        let device = Kind::BlockDevice { major: 7, minor: 300_000 };
        let character = Kind::CharacterDevice { major: 4095, minor: 1 };
        let target = Bytes::from_static(b"target");
        let mut all = vec![("file", self.file(directory, "file", 0o644).await)];
        for (name, node) in [
            ("directory", Node::Directory),
            ("link", Node::Link { target }),
            ("block device", Node::Special(device)),
            ("character device", Node::Special(character)),
            ("pipe", Node::Special(Kind::Pipe)),
            ("socket", Node::Special(Kind::Socket)),
        ] {
            all.push((name, self.node(directory, name, node, 0o644).await.file.inode));
        }
        all
    }

    async fn set(&self, caller: &Caller, inode: Inode, changes: Changes) -> Result<Attributes> {
        self.files.set_attributes(caller, inode, changes, None).await.map(|changed| changed.after)
    }

    async fn find(&self, directory: Inode, name: &str) -> Result<Inode> {
        self.files.lookup(&Caller::ROOT, directory, name.as_bytes()).await.map(|file| file.inode)
    }

    async fn write(&self, caller: &Caller, inode: Inode, offset: u64, data: &[u8]) -> Result<Attributes> {
        let pieces = vec![Bytes::copy_from_slice(data)];
        let written = self.files.write(caller, inode, offset, pieces, Stability::File).await?;
        Ok(written.0.after)
    }

    async fn read(&self, inode: Inode, offset: u64, length: u32) -> Vec<u8> {
        self.ok("content is read", self.files.read(&Caller::ROOT, inode, offset, length).await).pieces.concat()
    }

    async fn remove(&self, caller: &Caller, directory: Inode, name: &str, what: Removal) -> Result<Attributes> {
        self.files.remove(caller, directory, name.as_bytes(), what).await.map(|changed| changed.after)
    }

    async fn rename(&self, caller: &Caller, from: (Inode, &str), to: (Inode, &str)) -> Result<()> {
        let (from, to) = ((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()));
        self.files.rename(caller, from, to).await.map(|_| ())
    }

    async fn link(&self, caller: &Caller, inode: Inode, directory: Inode, name: &str) -> Result<Attributes> {
        self.files.link(caller, inode, directory, name.as_bytes()).await.map(|entry| entry.file)
    }

    /// All names of a directory, `limit` at a time, in the order of the listing.
    async fn names(&self, directory: Inode, limit: usize) -> Vec<String> {
        let mut names = Vec::new();
        let mut cookie = 0;
        loop {
            let listed = self.files.read_directory(&Caller::ROOT, directory, cookie, limit).await;
            let listing = self.ok("the directory is listed", listed);
            self.holds("a listing stays within its limit", listing.entries.len() <= limit);
            self.holds("a listing goes on", listing.end || !listing.entries.is_empty());
            names.extend(listing.entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()));
            match listing.entries.last() {
                Some(last) if !listing.end => cookie = last.cookie,
                _ => return names,
            }
        }
    }
}
