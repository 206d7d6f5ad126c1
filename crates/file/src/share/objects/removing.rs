//! DELETE: the name of a file goes by the rules of the tree, or one of its former versions does.
//!
//! A name goes together with the audit record of its removal, in one transaction. What the file
//! leaves behind is cleared away as after a removal by a client of files: with the last name, its
//! version is deleted or gets a delete marker.

use stele_archive::{Access, Action, ArchiveError, Caller, DeleteRequest, Deleted, ETag, Result, VersionId};

use super::key::Path;
use super::{ATTEMPTS, ObjectView, There, look, refusal, to_its_end};
use crate::files::Removal;
use crate::share::RemovedVersions;
use crate::share::reading::key_of;
use crate::share::records::InodeRow;
use crate::share::tree;
use crate::{FileError, Inode};

impl ObjectView {
    pub(super) async fn remove(&self, caller: &Caller, request: DeleteRequest) -> Result<Deleted> {
        let caller = self.on_behalf(caller, Access::Delete, &request.key).await?;
        let path = Path::parse(&request.key)?;
        let nothing =
            Deleted { key: request.key.clone(), version: request.version, delete_marker: false, logged: None };
        match self.look(&path)? {
            // A directory with names in it has no key, as a prefix has none.
            There::Directory(_, row) if path.directory && row.entries == 0 && is_null(request.version) => {}
            There::File(inode, _) if !path.directory => {
                if request.version == Some(VersionId::Null) {
                    self.store_present(inode).await?;
                }
                if let Some(version) = request.version {
                    // Under the gate: no version becomes the present content between the look and
                    // the deletion.
                    let Some(_held) = self.hold_named(&path, inode).await? else {
                        return Err(ArchiveError::Busy("the path changed meanwhile; try again".into()));
                    };
                    let row = self.share.step(|core| core.view.row(inode)).map_err(refusal)?;
                    if !self.is_whole(&caller, inode, &row, version)? {
                        let request = DeleteRequest { key: key_of(inode), ..request };
                        let deleted = Box::pin(self.share.archive.delete(&caller, request.clone())).await;
                        let deleted = deleted.map_err(|error| error.with_key(&request.key, &nothing.key))?;
                        return Ok(Deleted { key: nothing.key, ..deleted });
                    }
                }
            }
            _ => return Ok(nothing),
        }
        let view = self.clone();
        to_its_end(async move { view.unlink(caller, request).await }).await?;
        Ok(nothing)
    }

    /// Whether deleting this version is deleting the file. The version that holds a file's content
    /// goes only with its name: what a row names must exist.
    fn is_whole(&self, caller: &Caller, inode: u64, row: &InodeRow, version: VersionId) -> Result<bool> {
        if row.archived.as_ref().is_none_or(|archived| archived.version != version.to_string()) {
            return Ok(false);
        }
        let keys = [key_of(inode)];
        let newest = self.share.archive.newest(caller, &self.share.name, &keys)?;
        match newest.into_iter().flatten().any(|info| info.versioned) {
            false => Ok(true),
            true => {
                let fate = match self.share.settings().removed_versions {
                    RemovedVersions::Keep => "which keeps all versions",
                    RemovedVersions::Delete => "which deletes all versions of the file that nothing keeps",
                };
                Err(ArchiveError::InvalidRequest(format!(
                    "version {version} holds the present content of a file; delete the key without a version, {fate}"
                )))
            }
        }
    }

    async fn unlink(self, caller: Caller, request: DeleteRequest) -> Result<()> {
        let share = &self.share;
        let Path { names, directory } = Path::parse(&request.key)?;
        let Some((name, above)) = names.split_last() else { return Ok(()) };
        let root = crate::Caller::ROOT;
        for _ in 0..ATTEMPTS {
            let expected = match &request.etag {
                Some(etag) if !directory => self.expected(&caller, &request.key, etag).await?,
                _ => None,
            };
            let parent = match share.step(|core| look(core, above)).map_err(refusal)? {
                There::Directory(inode, _) => Inode(inode),
                _ => return Ok(()),
            };
            let released = share.released(&root, &[(parent, *name)]).await.map_err(refusal)?;
            let clock = share.compliance();
            let what = if directory { Removal::Directory } else { Removal::File };
            let detail = match self.look(&Path { names: names.clone(), directory })? {
                There::File(inode, _) => format!("a name of file {}", key_of(inode)),
                _ => "a directory".to_owned(),
            };
            let records = share.archive.records();
            let place = (share.name.as_str(), request.key.as_str());
            let removed = share.change_by(
                |change, _| {
                    // The path is looked up within the change: it may lead elsewhere by now.
                    let mut at = super::ROOT;
                    for name in above {
                        at = tree::find(change, at, name)?.ok_or(FileError::NotFound)?.entry.inode;
                    }
                    if !released.covers(change, &root, (Inode(at), *name))? {
                        return Err(FileError::NotSynchronized);
                    }
                    if let Some(version) = &expected {
                        let row = tree::find(change, at, name)?.ok_or(FileError::NotFound)?.row;
                        let same = row.archived.as_ref().is_some_and(|archived| archived.version == *version);
                        if row.open || !same {
                            return Err(FileError::NotSynchronized);
                        }
                    }
                    tree::remove(change, &root, Inode(at), name, what, clock).map(|(_, inode)| inode)
                },
                |transaction| records.commit_audited(transaction, &caller, Action::DeleteObject, place, &detail),
            );
            return match removed.await {
                Ok(inode) => share.note_unnamed(inode).map_err(refusal),
                // Another request removed it, or filled the directory.
                Err(FileError::NotFound | FileError::NotEmpty | FileError::Stale) => Ok(()),
                Err(FileError::IsDirectory | FileError::NotDirectory) => Ok(()),
                Err(FileError::NotSynchronized) => continue,
                Err(error) => {
                    share.archive.check_revoked(&caller)?;
                    Err(refusal(error))
                }
            };
        }
        Err(ArchiveError::Busy("the file changes too often; try again".into()))
    }

    /// The version that has the entity tag which the client expects.
    async fn expected(&self, caller: &Caller, key: &str, etag: &str) -> Result<Option<String>> {
        let fail = |message: &str| Err(ArchiveError::PreconditionFailed(message.into()));
        let path = Path::parse(key)?;
        let There::File(inode, _) = self.look(&path)? else { return fail("the key does not exist") };
        if etag.trim() == "*" {
            return Ok(None);
        }
        self.store_present(inode).await?;
        let newest = self.share.archive.newest(caller, &self.share.name, &[key_of(inode)])?;
        match newest.into_iter().flatten().next() {
            Some(info) if ETag::parse(etag) == Some(info.etag) => Ok(Some(info.version.to_string())),
            _ => fail("the entity tag differs"),
        }
    }
}

fn is_null(version: Option<VersionId>) -> bool {
    version.is_none_or(|version| version == VersionId::Null)
}
