//! The seam between protocols and the gateway: a tree of files, with the calls that POSIX and NFS
//! have.
//!
//! Every call checks the caller's permissions. A call that answers `Ok` is durable, except an
//! unstable write, which is durable after [`Files::commit`]. A call that fails changed nothing,
//! except with [`crate::FileError::Stopped`], which leaves that open.

use std::future::Future;

use bytes::Bytes;

use crate::{Access, Attributes, Caller, Changes, FileError, Inode, Kind, Moment, Result};

/// The state of a file before and after a change, for clients that keep caches (NFS calls it wcc
/// data).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changed {
    pub before: Attributes,
    pub after: Attributes,
}

/// A new or found entry, and the directory around it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub file: Attributes,
    pub directory: Changed,
}

/// How a regular file is created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Creation {
    /// An existing regular file is kept; only a size among the changes is applied to it.
    Unchecked(Changes),
    /// Fails with `Exists`.
    Guarded(Changes),
    /// Fails with `Exists`, unless the existing file was created with the same verifier, so that a
    /// repeated request succeeds.
    Exclusive([u8; 8]),
}

/// What is made that is not a regular file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Node {
    Directory,
    Link {
        target: Bytes,
    },
    /// A device, pipe or socket.
    Special(Kind),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Removal {
    /// Anything but a directory.
    File,
    /// An empty directory.
    Directory,
}

/// When a write is durable. Ordered: a later one promises more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stability {
    /// After a commit.
    Unstable,
    /// Content and size, before the answer.
    Data,
    /// Everything, before the answer.
    File,
}

/// What a caller looks for in a file with holes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sought {
    Data,
    /// The end of a file counts as one.
    Hole,
}

/// Content that was read: the pieces are the range, one after another.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Data {
    pub pieces: Vec<Bytes>,
    /// The range reaches the end of the file.
    pub end: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryEntry {
    pub name: Bytes,
    /// The place after this entry, above 2. It stays valid over restarts and other changes of the
    /// directory.
    pub cookie: u64,
    pub attributes: Attributes,
}

/// A part of a directory, without `.` and `..`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Listing {
    pub entries: Vec<DirectoryEntry>,
    /// There is nothing behind the last entry.
    pub end: bool,
}

/// The space of a share. Bytes and files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    pub total: u64,
    pub free: u64,
    pub files_total: u64,
    pub files_free: u64,
}

/// A tree of files.
pub trait Files: Send + Sync + 'static {
    /// The directory at the top.
    fn root(&self) -> Inode;

    /// Changes exactly when an unstable write may have been lost.
    fn verifier(&self) -> [u8; 8];

    fn attributes(&self, inode: Inode) -> impl Future<Output = Result<Attributes>> + Send;

    /// `guard`: the change time that the file must have, or `NotSynchronized`.
    fn set_attributes(
        &self,
        caller: &Caller,
        inode: Inode,
        changes: Changes,
        guard: Option<Moment>,
    ) -> impl Future<Output = Result<Changed>> + Send;

    /// `.` and `..` are found too; `..` of the root is the root.
    fn lookup(&self, caller: &Caller, directory: Inode, name: &[u8])
    -> impl Future<Output = Result<Attributes>> + Send;

    /// Of the wanted kinds of access, those that the caller has. Retention counts: a committed file
    /// cannot be modified.
    fn access(&self, caller: &Caller, inode: Inode, wanted: Access) -> impl Future<Output = Result<Access>> + Send;

    /// The target of a symbolic link.
    fn read_link(&self, caller: &Caller, inode: Inode) -> impl Future<Output = Result<Bytes>> + Send;

    /// Bytes from `offset`, at most `length`, fewer only at the end.
    fn read(
        &self,
        caller: &Caller,
        inode: Inode,
        offset: u64,
        length: u32,
    ) -> impl Future<Output = Result<Data>> + Send;

    /// Answers the stability reached, at least the one asked for.
    fn write(
        &self,
        caller: &Caller,
        inode: Inode,
        offset: u64,
        data: Vec<Bytes>,
        stability: Stability,
    ) -> impl Future<Output = Result<(Changed, Stability)>> + Send;

    /// Writes at the end of the file, wherever that is by then.
    fn append(
        &self,
        caller: &Caller,
        inode: Inode,
        data: Vec<Bytes>,
        stability: Stability,
    ) -> impl Future<Output = Result<(Changed, Stability)>> + Send {
        async move {
            let end = self.attributes(inode).await?.size;
            self.write(caller, inode, end, data, stability).await
        }
    }

    /// Makes earlier unstable writes to the file durable.
    fn commit(&self, inode: Inode) -> impl Future<Output = Result<Attributes>> + Send;

    fn create(
        &self,
        caller: &Caller,
        directory: Inode,
        name: &[u8],
        how: Creation,
    ) -> impl Future<Output = Result<Entry>> + Send;

    fn make(
        &self,
        caller: &Caller,
        directory: Inode,
        name: &[u8],
        node: Node,
        changes: Changes,
    ) -> impl Future<Output = Result<Entry>> + Send;

    /// Answers the directory.
    fn remove(
        &self,
        caller: &Caller,
        directory: Inode,
        name: &[u8],
        what: Removal,
    ) -> impl Future<Output = Result<Changed>> + Send;

    /// Replaces what `to` names, if it may be replaced. Answers both directories.
    fn rename(
        &self,
        caller: &Caller,
        from: (Inode, &[u8]),
        to: (Inode, &[u8]),
    ) -> impl Future<Output = Result<(Changed, Changed)>> + Send;

    /// Gives a file another name.
    fn link(
        &self,
        caller: &Caller,
        inode: Inode,
        directory: Inode,
        name: &[u8],
    ) -> impl Future<Output = Result<Entry>> + Send;

    /// At most `limit` entries behind `cookie`; 0 starts at the beginning.
    fn read_directory(
        &self,
        caller: &Caller,
        directory: Inode,
        cookie: u64,
        limit: usize,
    ) -> impl Future<Output = Result<Listing>> + Send;

    /// Where the next data or the next hole begins, at or behind an offset. None: there is none.
    /// `NotSupported`: callers take all of a file for data.
    fn seek(&self, inode: Inode, offset: u64, sought: Sought) -> impl Future<Output = Result<Option<u64>>> + Send {
        let _ = (inode, offset, sought);
        std::future::ready(Err(FileError::NotSupported))
    }

    fn space(&self) -> impl Future<Output = Result<Space>> + Send;

    /// The value of an extended attribute (`user.*`).
    fn attribute(&self, caller: &Caller, inode: Inode, name: &[u8]) -> impl Future<Output = Result<Bytes>> + Send;

    /// The names of all extended attributes.
    fn attribute_names(&self, caller: &Caller, inode: Inode) -> impl Future<Output = Result<Vec<Bytes>>> + Send;

    /// `None` removes it. `must_exist`: `Some(true)` only replaces, `Some(false)` only creates.
    fn set_attribute(
        &self,
        caller: &Caller,
        inode: Inode,
        name: &[u8],
        value: Option<Bytes>,
        must_exist: Option<bool>,
    ) -> impl Future<Output = Result<Changed>> + Send;

    /// A protocol that knows of open files counts them here, so that no file is committed under a
    /// writer and an unlinked file stays until its last user closes it.
    fn opened(&self, inode: Inode, writes: bool) -> impl Future<Output = Result<()>> + Send;

    fn closed(&self, inode: Inode, writes: bool) -> impl Future<Output = ()> + Send;
}
