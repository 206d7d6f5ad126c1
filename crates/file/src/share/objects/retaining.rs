//! Retention that an S3 client puts on a file: the archive decides, and the file is committed by
//! it.
//!
//! Crash point: the version is retained, and the row does not say yet that the file is committed.
//! It is that of a commit over a protocol of files (`super::super::retention`): the caller had no
//! answer, and asks again.

use stele_archive::{Access, ArchiveError, Caller, Result, Retention, RetentionMode, VersionId};

use super::key::Path;
use super::{ATTEMPTS, ObjectView, There, refusal, to_its_end};
use crate::share::reading::key_of;
use crate::share::records::InodeRow;
use crate::share::retention::{WRITE, shown};
use crate::share::tree;

impl ObjectView {
    pub(super) async fn retain_object(
        &self,
        caller: &Caller,
        key: &str,
        version: Option<VersionId>,
        retention: Option<Retention>,
        bypass_governance: bool,
    ) -> Result<()> {
        let caller = self.on_behalf(caller, Access::Retain, key).await?;
        let (view, key) = (self.clone(), key.to_owned());
        let change = async move { view.retain_file(caller, &key, version, retention, bypass_governance).await };
        to_its_end(change).await
    }

    async fn retain_file(
        self,
        caller: Caller,
        key: &str,
        version: Option<VersionId>,
        retention: Option<Retention>,
        bypass: bool,
    ) -> Result<()> {
        let share = &self.share;
        let path = Path::parse(key)?;
        for _ in 0..ATTEMPTS {
            let There::File(inode, row) = self.look(&path)? else { return Err(self.missing(key)) };
            if path.directory {
                return Err(self.missing(key));
            }
            let file = key_of(inode);
            let set = |version| share.archive.set_retention(&caller, &share.name, &file, version, retention, bypass);
            let former = |row: &InodeRow| version.is_some_and(|version| !holds(row, version));
            if !former(&row) {
                self.store_present(inode).await?;
            }
            // Under the gate: the file loses no name meanwhile, and no other version becomes its
            // content.
            let Some(_held) = self.hold_named(&path, inode).await? else { continue };
            let row = share.step(|core| core.view.row(inode)).map_err(refusal)?;
            if former(&row) {
                return set(version).await.map(drop).map_err(|error| error.with_key(&file, key));
            }
            let Ok(_closing) = share.begin_closing(inode) else { continue };
            let stored = share.is_stored(inode).await.map_err(refusal)?;
            let ready = share.step(|core| {
                let (row, content) = core.content(inode)?;
                Ok(stored && content.grown.is_none() && row.links > 0)
            });
            if !ready.map_err(refusal)? {
                continue;
            }
            let before = share.newest_retention(inode).map_err(refusal)?;
            set(version).await.map_err(|error| error.with_key(&file, key))?;
            let lifted = is_lifted(before, retention);
            let now = share.archive.compliance_time();
            let change = share.change(|change, _| {
                let mut row = change.row(inode)?;
                let Some(until) = retention.map(|retention| retention.until).or(row.committed.map(|_| now)) else {
                    return Ok(());
                };
                let first = commit(&mut row, until.0, lifted);
                row.alter(change.now);
                let directories: Vec<u64> = row.names.iter().map(|name| name.directory).collect();
                change.put_row(inode, row);
                for directory in directories.into_iter().filter(|_| first) {
                    tree::count(change, directory)?;
                }
                Ok(())
            });
            return change.await.map_err(refusal);
        }
        Err(ArchiveError::Busy("the file is being written; try again".into()))
    }
}

/// Whether this version is the file's present content.
fn holds(row: &InodeRow, version: VersionId) -> bool {
    !row.open && row.archived.as_ref().is_some_and(|archived| archived.version == version.to_string())
}

/// Whether the archive has granted that a GOVERNANCE retention ends earlier.
fn is_lifted(before: Option<Retention>, after: Option<Retention>) -> bool {
    let governed = before.filter(|before| before.mode == RetentionMode::Governance);
    governed.is_some_and(|before| after.is_none_or(|after| after.until < before.until))
}

/// Marks a file as committed until this time; an end that it has is moved to an earlier one only
/// where that was `lifted`. Answers whether it was not committed before.
pub fn commit(row: &mut InodeRow, until: u64, lifted: bool) -> bool {
    let first = row.committed.is_none();
    let until = row.committed.filter(|_| !lifted).map_or(until, |before| before.max(until));
    row.committed = Some(until);
    row.accessed = shown(stele_archive::Timestamp(until)).into();
    // A committed file that can only grow keeps the permission to.
    if first {
        row.mode &= !WRITE;
    }
    first
}

#[cfg(test)]
mod tests;
