//! The tree of a bucket whose catalog was rebuilt from the data volume.
//!
//! A rebuild recovers versions, not the tree: names, directories and content that was not archived are gone with the catalog.
//! Each version carries the path, mode, owner and time that its file had when it was archived. From those the share makes a
//! tree again, the first time that it is opened with versions and without a root.
//!
//! What this cannot bring back: names that changed after the file was archived, modes and owners of directories, further names
//! of one file, empty directories, symbolic links, special files and extended attributes.

use std::collections::BTreeMap;

use stele_archive::{ListRequest, ObjectInfo};

use super::reading::{key_of, refused};
use super::records::{ArchivedRow, InodeRow, ROOT};
use super::{Root, Share, tree};
use crate::model::{Attributes, Inode, Kind, Moment, NAME_MAX};
use crate::{FileError, Result};

/// Versions that one listing asks for.
const PAGE: usize = 1000;
/// Where files without a usable path go.
const FOUND: &str = "lost+found";

impl Share {
    /// Whether the bucket holds versions of files.
    pub(super) async fn has_versions(&self) -> Result<bool> {
        let request = ListRequest { bucket: self.name.clone(), limit: 1, ..ListRequest::default() };
        let page = self.archive.list(&self.caller("opening"), request).await.map_err(|error| refused(&error))?;
        Ok(!page.objects.is_empty())
    }

    /// Makes entries for every archived file. Answers how many.
    pub(super) async fn restore(&self, root: Root) -> Result<u64> {
        let caller = self.caller("restoring");
        let mut found: Vec<(u64, ObjectInfo)> = Vec::new();
        let mut after = None;
        loop {
            let request = ListRequest { bucket: self.name.clone(), limit: PAGE, after, ..ListRequest::default() };
            let page = self.archive.list(&caller, request).await.map_err(|error| refused(&error))?;
            after = page.objects.last().map(|object| object.key.clone());
            let ended = !page.truncated;
            for object in page.objects {
                match u64::from_str_radix(&object.key, 16).ok().filter(|inode| key_of(*inode) == object.key) {
                    Some(inode) if inode > ROOT => found.push((inode, object)),
                    _ => {
                        tracing::warn!(share = %self.name, key = %object.key, "the key is none of a file; it is left alone")
                    }
                }
            }
            if ended {
                break;
            }
        }
        let last = found.iter().map(|(inode, _)| *inode).max().unwrap_or(0);
        self.step(|core| {
            core.numbers.raise(last + 1);
            Ok(())
        })?;
        let mut directories = BTreeMap::from([(Vec::new(), ROOT)]);
        let count = found.len() as u64;
        for (inode, info) in found {
            self.restore_file(root, &mut directories, inode, &info).await?;
        }
        Ok(count)
    }

    async fn restore_file(
        &self,
        root: Root,
        directories: &mut BTreeMap<Vec<Vec<u8>>, u64>,
        inode: u64,
        info: &ObjectInfo,
    ) -> Result<()> {
        let path = info.metadata.user.get("stele-path").map(|path| names(path)).filter(|names| sound(names));
        let mut names = path.unwrap_or_else(|| vec![FOUND.into(), key_of(inode).into_bytes()]);
        let mut name = names.pop().unwrap_or_else(|| key_of(inode).into_bytes());
        let parent = self.restore_directories(root, directories, &names).await?;
        let row = row_of(inode, info);
        loop {
            let taken = self.change(|change, numbers| {
                if tree::is_taken(change, parent, &name)? {
                    return Ok(true);
                }
                tree::restore(change, numbers, parent, &name, inode, row.clone())?;
                Ok(false)
            });
            if !taken.await? {
                return Ok(());
            }
            // Another file had the name later: this one gets its number behind it.
            name.truncate(NAME_MAX - 24);
            name.extend_from_slice(format!(".inode-{}", key_of(inode)).as_bytes());
        }
    }

    async fn restore_directories(
        &self,
        root: Root,
        directories: &mut BTreeMap<Vec<Vec<u8>>, u64>,
        names: &[Vec<u8>],
    ) -> Result<u64> {
        let mut parent = ROOT;
        for depth in 1..=names.len() {
            let path = names.get(..depth).unwrap_or(names);
            if let Some(known) = directories.get(path) {
                parent = *known;
                continue;
            }
            let name = names.get(depth - 1).ok_or(FileError::NotFound)?;
            let made = self.change(|change, numbers| {
                let now = change.now;
                let row = InodeRow::new(&directory(root, now));
                let inode = numbers.next(change);
                tree::restore(change, numbers, parent, name, inode, row)?;
                Ok(inode)
            });
            parent = made.await?;
            directories.insert(path.to_vec(), parent);
        }
        Ok(parent)
    }
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
