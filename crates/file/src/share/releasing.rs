//! Files that are to lose a name: held alone, and refused while the archive keeps any of their
//! versions.
//!
//! The records of a share know of commits alone. A legal hold, and a retention of a former version,
//! are known to the archive, which is asked about every version of the file. Versions are found
//! through a name, so that a file keeps each of its names while one of them is kept.
//!
//! Commits, extensions, retentions and legal holds take the file's gate as well. A matter knows of
//! no gate; it waits for the archive's lock of the key, which is held together with the gate. What
//! the archive answered therefore still counts when the name goes.

use stele_archive::Unkept;
use tokio::sync::OwnedRwLockWriteGuard;

use super::reading::{key_of, refused};
use super::view::Change;
use super::{Share, tree};
use crate::permission::may_search;
use crate::{Caller, FileError, Inode, Result};

/// Times that names are looked up anew, because they came to lead elsewhere.
pub(super) const ATTEMPTS: usize = 8;

/// A name in a directory.
pub(super) type Name<'n> = (Inode, &'n [u8]);

/// Files that may lose a name, as long as this lives.
pub(super) struct Released {
    inodes: Vec<u64>,
    _unkept: Option<Unkept>,
    _gates: Vec<OwnedRwLockWriteGuard<()>>,
}

impl Released {
    /// Whether the archive was asked about the file that a name leads to within a change. What is
    /// no regular file has no version. A directory that the caller may not search is the call's to
    /// refuse.
    pub fn covers(&self, change: &mut Change<'_>, caller: &Caller, (directory, name): Name<'_>) -> Result<bool> {
        if may_search(caller, &change.row(directory.0)?.attributes(directory.0)).is_err() {
            return Ok(true);
        }
        let found = tree::find(change, directory.0, name)?;
        Ok(found.is_none_or(|found| !found.row.is_file() || self.inodes.contains(&found.entry.inode)))
    }
}

impl Share {
    /// Holds the files that these names lead to, and asks the archive whether they may lose a name.
    /// What is wrong with the names themselves is told by the call.
    pub(super) async fn released(&self, caller: &Caller, names: &[Name<'_>]) -> Result<Released> {
        for _ in 0..ATTEMPTS {
            let inodes = self.files_of(caller, names)?;
            let mut gates = Vec::with_capacity(inodes.len());
            // In the order of their numbers, so that two calls never wait for each other.
            for inode in &inodes {
                match self.gate_of(*inode).await {
                    Ok(gate) => gates.push(gate),
                    // It is gone: the names lead elsewhere.
                    Err(FileError::Stale) => {}
                    Err(error) => return Err(error),
                }
            }
            if self.files_of(caller, names)? != inodes {
                continue;
            }
            let keys: Vec<String> = inodes.iter().map(|inode| key_of(*inode)).collect();
            let unkept = match keys.is_empty() {
                true => None,
                false => {
                    let asked = self.archive.unkept(&self.caller("removing"), &self.name, &keys).await;
                    let unkept = asked.map_err(|error| refused(&error))?;
                    Some(unkept.map_err(|reason| FileError::ReadOnly(format!("the file keeps its name: {reason}")))?)
                }
            };
            return Ok(Released { inodes, _unkept: unkept, _gates: gates });
        }
        Err(moved())
    }

    /// Why a file loses no name now: the archive keeps its present version or a former one. None:
    /// it keeps none of them.
    pub async fn kept(&self, inode: Inode) -> Result<Option<String>> {
        let keys = [key_of(inode.0)];
        let asked = self.archive.unkept(&self.caller("explaining"), &self.name, &keys).await;
        Ok(asked.map_err(|error| refused(&error))?.err())
    }

    /// The regular files that names lead to, by number.
    fn files_of(&self, caller: &Caller, names: &[Name<'_>]) -> Result<Vec<u64>> {
        self.step(|core| {
            let mut inodes = Vec::new();
            for (directory, name) in names {
                let Ok(inode) = tree::lookup(&mut core.view, caller, *directory, name) else { continue };
                match core.view.row(inode.0) {
                    Ok(row) if row.is_file() => inodes.push(inode.0),
                    Ok(_) | Err(FileError::Stale) => {}
                    Err(error) => return Err(error),
                }
            }
            inodes.sort_unstable();
            inodes.dedup();
            Ok(inodes)
        })
    }
}

/// Names that lead elsewhere again and again.
pub(super) fn moved() -> FileError {
    FileError::Retry("others change the same names; try again".into())
}
