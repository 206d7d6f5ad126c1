//! The tree of a bucket whose catalog was rebuilt from the data volume.
//!
//! A rebuild recovers versions, not the tree: names, directories and content that was not archived
//! are gone with the catalog. Each version carries the path, mode, owner and time that its file had
//! when it was archived. From those the share makes a tree again, the first time that it is opened
//! with versions and without a root.
//!
//! Crash points of a restoration:
//! 1. before the root is stored: the share has no tree, and the restoration begins anew;
//! 2. later: the root is marked, and the record of numbers lies above every version's. The next
//!    start goes on, and passes over files that have a row. No client is served in between.
//! 3. before the mark is taken away: the next start finds nothing left to do.
//!
//! Versions are listed twice, page by page: first for the highest number, which no new inode may
//! get, then for the files. No more than a page is in memory, however many files the share has.
//!
//! What this cannot bring back: names that changed after the file was archived, modes and owners of
//! directories, further names of one file, empty directories, symbolic links, special files and
//! extended attributes.

use std::collections::BTreeMap;

use stele_archive::{ListVersionsRequest, ObjectInfo, VersionId};

use super::reading::{inode_of, key_of, refused};
use super::records::{ArchivedRow, InodeRow, ROOT};
use super::{Root, Share, tree};
use crate::model::{Attributes, Inode, Kind, Moment, NAME_MAX};
use crate::{FileError, Result};

/// Versions that one listing asks for. Few in tests, so that every restoration has several pages.
const PAGE: usize = if cfg!(test) { 3 } else { 1000 };
/// Directories whose numbers are remembered; others are looked up again.
const DIRECTORIES_MAX: usize = if cfg!(test) { 2 } else { 10_000 };
/// Where files without a usable path go.
const FOUND: &str = "lost+found";
/// Names that are tried for one file or directory.
const ATTEMPTS: u32 = 1000;

/// Numbers of directories, by their paths.
type Directories = BTreeMap<Vec<Vec<u8>>, u64>;

/// A listing of all versions, page by page.
#[derive(Default)]
struct Pages {
    key_marker: Option<String>,
    version_marker: Option<VersionId>,
    ended: bool,
}

impl Share {
    /// Makes the tree where there is none, and restores what it lacks. Answers how many files were
    /// restored, if any were to be.
    pub(super) async fn make_tree(&self, root: Root) -> Result<Option<u64>> {
        match self.step(|core| core.view.row(ROOT)) {
            Ok(row) if !row.restoring() => return Ok(None),
            Ok(_) => {}
            Err(FileError::Stale) => {
                // Versions without a tree: the catalog was rebuilt from the data volume.
                let restoring = self.last_archived().await?.map(|last| last + 1);
                self.change(|change, numbers| {
                    tree::plant(change, root.owner, root.mode, restoring);
                    numbers.raise(restoring.unwrap_or(0));
                    Ok(())
                })
                .await?;
                if restoring.is_none() {
                    return Ok(None);
                }
            }
            Err(error) => return Err(error),
        }
        let count = self.restore(root).await?;
        self.change(|change, _| {
            let mut row = change.row(ROOT)?;
            row.set_restoring(false);
            change.put_row(ROOT, row);
            Ok(())
        })
        .await?;
        Ok(Some(count))
    }

    /// The highest number of any version, those of removed files too. None: the bucket has no
    /// versions.
    async fn last_archived(&self) -> Result<Option<u64>> {
        let (mut pages, mut last) = (Pages::default(), None);
        while let Some(page) = self.next_page(&mut pages).await? {
            last = last.max(page.iter().map(|(inode, _)| *inode).max());
        }
        Ok(last)
    }

    /// Versions of files, and of which file each is.
    async fn next_page(&self, pages: &mut Pages) -> Result<Option<Vec<(u64, ObjectInfo)>>> {
        if pages.ended {
            return Ok(None);
        }
        let request = ListVersionsRequest {
            bucket: self.name.clone(),
            limit: PAGE,
            key_marker: pages.key_marker.take(),
            version_marker: pages.version_marker.take(),
            ..ListVersionsRequest::default()
        };
        let page = self.archive.list_versions(&self.caller("restoring"), request).await;
        let page = page.map_err(|error| refused(&error))?;
        let mut found = Vec::with_capacity(page.versions.len());
        for object in page.versions {
            match inode_of(&object.key) {
                Some(inode) if inode > ROOT => found.push((inode, object)),
                _ => {
                    tracing::warn!(share = %self.name, key = %object.key, "the key is none of a file; it is left alone")
                }
            }
        }
        *pages = Pages {
            key_marker: page.next_key_marker,
            version_marker: page.next_version_marker,
            ended: !page.truncated,
        };
        Ok(Some(found))
    }

    /// Makes entries for archived files that have none and were not removed. Answers how many.
    async fn restore(&self, root: Root) -> Result<u64> {
        let mut directories = Directories::from([(Vec::new(), ROOT)]);
        let (mut pages, mut count) = (Pages::default(), 0);
        while let Some(page) = self.next_page(&mut pages).await? {
            for (inode, info) in page.into_iter().filter(|(_, info)| info.latest && !info.delete_marker) {
                match self.step(|core| core.view.row(inode)) {
                    Ok(_) => {}
                    Err(FileError::Stale) => {
                        self.restore_file(root, &mut directories, inode, &info).await?;
                        count += 1;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(count)
    }

    async fn restore_file(
        &self,
        root: Root,
        directories: &mut Directories,
        inode: u64,
        info: &ObjectInfo,
    ) -> Result<()> {
        let path = info.metadata.user.get("stele-path").map(|path| names(path)).filter(|names| sound(names));
        let mut names = path.unwrap_or_else(|| vec![FOUND.into(), key_of(inode).into_bytes()]);
        let name = names.pop().unwrap_or_else(|| key_of(inode).into_bytes());
        let parent = self.restore_directories(root, directories, &names).await?;
        let row = row_of(inode, info);
        for attempt in 0..ATTEMPTS {
            // Where another file had the name later, this one gets its number behind it.
            let name = beside(&name, &format!(".inode-{}", key_of(inode)), attempt);
            let restored =
                self.change(|change, numbers| tree::restore(change, numbers, parent, &name, inode, row.clone())).await;
            if restored != Err(FileError::Exists) {
                return restored;
            }
        }
        Err(unnamed(&name))
    }

    async fn restore_directories(&self, root: Root, directories: &mut Directories, names: &[Vec<u8>]) -> Result<u64> {
        let mut parent = ROOT;
        for depth in 1..=names.len() {
            let path = names.get(..depth).unwrap_or(names);
            if let Some(known) = directories.get(path) {
                parent = *known;
                continue;
            }
            let name = names.get(depth - 1).ok_or(FileError::NotFound)?;
            parent = self.restore_directory(root, parent, name.clone()).await?;
            if directories.len() >= DIRECTORIES_MAX {
                directories.clear();
            }
            directories.insert(path.to_vec(), parent);
        }
        Ok(parent)
    }

    /// Finds or makes a directory. Where a file has its name, it gets another one: a file's name
    /// leads to its versions.
    async fn restore_directory(&self, root: Root, parent: u64, name: Vec<u8>) -> Result<u64> {
        for attempt in 0..ATTEMPTS {
            let name = beside(&name, ".directory", attempt);
            let made = self.change(|change, numbers| {
                if let Some(found) = tree::find(change, parent, &name)? {
                    return Ok(found.row.is_directory().then_some(found.entry.inode));
                }
                let row = InodeRow::new(&directory(root, change.now));
                let inode = numbers.next(change);
                tree::restore(change, numbers, parent, &name, inode, row)?;
                Ok(Some(inode))
            });
            if let Some(inode) = made.await? {
                return Ok(inode);
            }
        }
        Err(unnamed(&name))
    }
}

/// The name for an attempt: as it was, then with something behind it.
fn beside(name: &[u8], behind: &str, attempt: u32) -> Vec<u8> {
    let behind = match attempt {
        0 => return name.to_vec(),
        1 => behind.to_owned(),
        more => format!("{behind}-{more}"),
    };
    let mut name = name.to_vec();
    name.truncate(NAME_MAX - behind.len());
    name.extend_from_slice(behind.as_bytes());
    name
}

fn unnamed(name: &[u8]) -> FileError {
    let name = String::from_utf8_lossy(name);
    FileError::Damaged(format!("the tree has no free name beside `{name}` for what has this name in the archive"))
}

fn directory(root: Root, now: Moment) -> Attributes {
    Attributes {
        inode: Inode(0),
        kind: Kind::Directory,
        mode: root.mode & 0o7777,
        links: 2,
        uid: root.owner.0,
        gid: root.owner.1,
        size: 0,
        used: 0,
        accessed: now,
        modified: now,
        changed: now,
        change: 1,
    }
}

/// The row of an archived file, by what its version says of it.
fn row_of(inode: u64, info: &ObjectInfo) -> InodeRow {
    let said = |name: &str| info.metadata.user.get(name);
    let mode = said("stele-mode").and_then(|mode| u32::from_str_radix(mode, 8).ok()).unwrap_or(0o600) & 0o7777;
    let owner = said("stele-owner").and_then(|owner| owner.split_once(':'));
    let (uid, gid) = owner.map_or((0, 0), |(uid, gid)| (uid.parse().unwrap_or(0), gid.parse().unwrap_or(0)));
    let stored = Moment::from_nanoseconds(i128::from(info.modified.0) * 1_000_000);
    let modified = said("stele-modified").and_then(|time| time.split_once('.')).and_then(|(seconds, rest)| {
        Some(Moment {
            seconds: seconds.parse().ok()?,
            nanoseconds: rest.parse().ok().filter(|rest| *rest < 1_000_000_000)?,
        })
    });
    let modified = modified.unwrap_or(stored);
    let committed = info.retention.map(|retention| retention.until.0);
    let accessed = committed.map_or(modified, |until| Moment::from_nanoseconds(i128::from(until) * 1_000_000));
    let mut row = InodeRow::new(&Attributes {
        inode: Inode(inode),
        kind: Kind::File,
        // Only a committed file is under retention, and no one writes to it.
        mode: if committed.is_some() { mode & !0o222 } else { mode },
        links: 1,
        uid,
        gid,
        size: info.size,
        used: 0,
        accessed,
        modified,
        changed: stored,
        change: 1,
    });
    row.open = false;
    row.used = info.size;
    row.committed = committed;
    row.archived = Some(ArchivedRow { version: info.version.to_string(), size: info.size, used: info.size });
    row
}

/// The names of a path, as archiving wrote it.
fn names(path: &str) -> Vec<Vec<u8>> {
    path.split('/').map(unescaped).collect()
}

fn unescaped(name: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let [first, others @ ..] = rest {
        let digits = others.first_chunk::<2>().and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = others.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    bytes
}

fn sound(names: &[Vec<u8>]) -> bool {
    !names.is_empty() && names.iter().all(|name| crate::model::check_name(name).is_ok())
}
