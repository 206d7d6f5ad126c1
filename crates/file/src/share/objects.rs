//! The S3 view of a share: a key is the path of a file, and a file and an object are two views of
//! one record.
//!
//! The archive judges the client's rights by the path, and the gateway then acts on the file's own
//! key in the client's name (`Archive::on_behalf`). Modes and owners of files bind no S3 client;
//! retention binds every client.
//!
//! Changes run in tasks of their own. A client that goes away therefore never leaves one half done.

mod key;
mod listing;
mod removing;
mod retaining;
mod storing;
mod walk;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use stele_archive::{
    Access, ArchiveError, Caller, CompleteRequest, DeleteRequest, Deleted, ETag, ListPage, ListRequest,
    ListVersionsRequest, Located, Metadata, ObjectInfo, ObjectWriter, PutRequest, Result, Retention, ShareObjects,
    Timestamp, VersionId, VersionsPage,
};
use stele_ground::digest::context;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard, OwnedRwLockWriteGuard};

use self::key::Path;
use super::Share;
use super::core::Core;
use super::reading::key_of;
use super::records::{ENTRIES, EntryRow, InodeRow, ROOT, decode, entry_key};
use crate::model::{Attributes, Inode};
use crate::{FileError, Moment};

/// Turns that paths share.
const TURNS: usize = 256;
/// Times that a request looks at a path anew, because it changed meanwhile.
const ATTEMPTS: usize = 8;
/// The MD5 of no bytes: the entity tag of a directory.
const EMPTY: ETag = ETag {
    md5: [0xd4, 0x1d, 0x8c, 0xd9, 0x8f, 0x00, 0xb2, 0x04, 0xe9, 0x80, 0x09, 0x98, 0xec, 0xf8, 0x42, 0x7e],
    parts: None,
};

/// The objects of an open share. Clones share it.
#[derive(Clone)]
pub struct ObjectView {
    share: Arc<Share>,
}

/// The turns of paths. Two paths that share one only wait longer.
pub struct Naming(Vec<Arc<Turn<()>>>);

impl Default for Naming {
    fn default() -> Naming {
        Naming((0..TURNS).map(|_| Arc::default()).collect())
    }
}

impl Naming {
    async fn turn(&self, key: &str) -> Option<OwnedMutexGuard<()>> {
        let hash = key
            .bytes()
            .fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
        let turn = self.0.get(context(hash, 0) as usize % TURNS)?;
        Some(Arc::clone(turn).lock_owned().await)
    }
}

/// What a path leads to.
enum There {
    Missing,
    /// Something on the way is no directory.
    BelowFile,
    File(u64, Arc<InodeRow>),
    Directory(u64, Arc<InodeRow>),
    /// A symbolic link or a special file.
    Other,
}

impl ObjectView {
    pub fn new(share: Arc<Share>) -> ObjectView {
        ObjectView { share }
    }

    fn missing(&self, key: &str) -> ArchiveError {
        ArchiveError::NoSuchKey { bucket: self.share.name.clone(), key: key.into(), marker: None }
    }

    async fn on_behalf(&self, caller: &Caller, access: Access, key: &str) -> Result<Caller> {
        self.share.archive.on_behalf(caller, access, &self.share.name, key).await
    }

    /// Looks a path up. Nothing is followed: a symbolic link leads nowhere.
    fn look(&self, path: &Path<'_>) -> Result<There> {
        self.share.step(|core| look(core, &path.names)).map_err(refusal)
    }

    async fn find(&self, caller: &Caller, access: Access, key: &str, version: Option<VersionId>) -> Result<Located> {
        let caller = self.on_behalf(caller, access, key).await?;
        let path = Path::parse(key)?;
        match self.look(&path)? {
            There::File(inode, _) if !path.directory => {
                let present = version.is_none() || version == Some(VersionId::Null);
                if present {
                    self.store_present(inode).await?;
                }
                // A hold that is acknowledged keeps the name: the file loses none until it is set.
                let held = match access {
                    Access::Retain => match self.hold_named(&path, inode).await? {
                        Some(held) => Some(Arc::new(held)),
                        None => return Err(ArchiveError::Busy("the path changed meanwhile; try again".into())),
                    },
                    _ => None,
                };
                Ok(Located { caller, key: key_of(inode), directory: None, held })
            }
            There::Directory(_, row) if path.directory && version.is_none_or(|version| version == VersionId::Null) => {
                let info = self.directory(key.into(), &row.attributes(0));
                Ok(Located { caller, key: key.into(), directory: Some(Box::new(info)), held: None })
            }
            _ => Err(self.missing(key)),
        }
    }

    /// Holds the file of a path alone, so that it loses no name. None: the path does not lead to it
    /// any more.
    async fn hold_named(&self, path: &Path<'_>, inode: u64) -> Result<Option<OwnedRwLockWriteGuard<()>>> {
        let held = match self.share.gate_of(inode).await {
            Ok(held) => held,
            Err(FileError::Stale) => return Ok(None),
            Err(error) => return Err(refusal(error)),
        };
        let there = self.look(path)?;
        Ok(matches!(there, There::File(now, _) if now == inode).then_some(held))
    }

    /// Stores what clients of files wrote, so that an object has a version and an entity tag, and
    /// the archive shows them.
    async fn store_present(&self, inode: u64) -> Result<()> {
        if self.share.is_stored(inode).await.map_err(refusal)? {
            return Ok(());
        }
        let share = Arc::clone(&self.share);
        let archived = to_its_end(Box::pin(async move { Ok(share.archive_now(Inode(inode)).await) })).await?;
        archived.map_err(|error| match error {
            FileError::TooLarge => ArchiveError::InvalidRequest(
                "the file is larger than an object can be and is not archived; read it over a protocol of files".into(),
            ),
            FileError::Retry(_) => {
                ArchiveError::Busy("the file is being written and has no stored version yet; try again".into())
            }
            other => refusal(other),
        })
    }

    /// The properties of a directory as an object without content.
    fn directory(&self, key: String, attributes: &Attributes) -> ObjectInfo {
        let kind = ("content-type".to_owned(), "application/x-directory".to_owned());
        let metadata = Metadata { headers: [kind].into(), user: Default::default() };
        ObjectInfo { metadata, etag: EMPTY, size: 0, ..self.unstored(key, attributes) }
    }

    /// The properties of a file whose content no version holds yet.
    fn unstored(&self, key: String, attributes: &Attributes) -> ObjectInfo {
        ObjectInfo {
            bucket: self.share.name.clone(),
            key,
            version: VersionId::Null,
            versioned: false,
            latest: true,
            delete_marker: false,
            size: attributes.size,
            etag: ETag::NONE,
            modified: milliseconds(attributes.modified),
            metadata: Metadata::default(),
            tags: Default::default(),
            retention: None,
            legal_hold: false,
            parts: None,
            checksums: Vec::new(),
            blake3: [0; 32],
            customer_key_md5: None,
            owner: "stele file gateway".into(),
            logged: None,
        }
    }
}

/// Looks names up from the root.
fn look(core: &mut Core, names: &[&[u8]]) -> crate::Result<There> {
    let mut at = ROOT;
    for (index, name) in names.iter().enumerate() {
        let key = entry_key(core.view.share, at, name);
        let Some(entry) = core.view.get(ENTRIES, &key)? else { return Ok(There::Missing) };
        let entry: EntryRow = decode(ENTRIES, &key, &entry)?;
        let row = core.view.row(entry.inode)?;
        if index + 1 < names.len() && !row.is_directory() {
            return Ok(There::BelowFile);
        }
        at = entry.inode;
    }
    let row = core.view.row(at)?;
    Ok(match () {
        () if row.is_directory() => There::Directory(at, row),
        () if row.is_file() => There::File(at, row),
        () => There::Other,
    })
}

fn milliseconds(time: Moment) -> Timestamp {
    Timestamp(u64::try_from(time.nanoseconds().div_euclid(1_000_000)).unwrap_or(0))
}

/// A file's error as the archive's, for the S3 frontend.
pub(super) fn refusal(error: FileError) -> ArchiveError {
    let text = error.to_string();
    match error {
        FileError::ReadOnly(message) => ArchiveError::Denied(message),
        FileError::NoSpace => ArchiveError::NoSpace(text),
        FileError::OverQuota => ArchiveError::NoSpace("the bucket's quota is used up".into()),
        FileError::Retry(message) => ArchiveError::Busy(message),
        FileError::Stale | FileError::NotFound => ArchiveError::Busy("the path changed meanwhile; try again".into()),
        FileError::Damaged(message) => ArchiveError::Damaged { place: "a share".into(), message },
        FileError::Stopped(message) => ArchiveError::Stopped(message),
        _ => ArchiveError::InvalidRequest(text),
    }
}

/// Runs a change to its end, also where its client goes away.
async fn to_its_end<T: Send + 'static>(change: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    match tokio::spawn(change).await {
        Ok(answer) => answer,
        Err(_) => Err(ArchiveError::Stopped("the server stops".into())),
    }
}

impl ShareObjects for ObjectView {
    fn locate<'a>(
        &'a self,
        caller: &'a Caller,
        access: Access,
        key: &'a str,
        version: Option<VersionId>,
    ) -> BoxFuture<'a, Result<Located>> {
        Box::pin(self.find(caller, access, key, version))
    }

    fn upload<'a>(&'a self, caller: &'a Caller, key: &'a str, new: bool) -> BoxFuture<'a, Result<Caller>> {
        Box::pin(async move {
            let caller = self.on_behalf(caller, Access::Write, key).await?;
            if new {
                let path = Path::parse(key)?;
                self.storable(key, &path)?;
            }
            Ok(caller)
        })
    }

    fn put<'a>(&'a self, caller: &'a Caller, request: PutRequest) -> BoxFuture<'a, Result<ObjectWriter>> {
        Box::pin(self.begin_put(caller, request))
    }

    fn complete<'a>(&'a self, caller: &'a Caller, request: CompleteRequest) -> BoxFuture<'a, Result<ObjectInfo>> {
        Box::pin(self.complete_upload(caller, request))
    }

    fn delete<'a>(&'a self, caller: &'a Caller, request: DeleteRequest) -> BoxFuture<'a, Result<Deleted>> {
        Box::pin(self.remove(caller, request))
    }

    fn list<'a>(&'a self, caller: &'a Caller, request: ListRequest) -> BoxFuture<'a, Result<ListPage>> {
        Box::pin(self.list_files(caller, request))
    }

    fn list_versions<'a>(
        &'a self,
        caller: &'a Caller,
        request: ListVersionsRequest,
    ) -> BoxFuture<'a, Result<VersionsPage>> {
        Box::pin(self.list_file_versions(caller, request))
    }

    fn set_retention<'a>(
        &'a self,
        caller: &'a Caller,
        key: &'a str,
        version: Option<VersionId>,
        retention: Option<Retention>,
        bypass_governance: bool,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.retain_object(caller, key, version, retention, bypass_governance))
    }
}
