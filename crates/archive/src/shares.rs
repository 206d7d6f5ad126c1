//! The S3 view of shares: what the file gateway does for S3 clients, and as whom it does it.
//!
//! An S3 client names a file by its path. The archive judges the client's rights by that path. Then
//! the gateway acts on the file's own key as the same actor, with the rights that the actor has on
//! the path and no others. Therefore a client never reaches an object by the archive's key of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use stele_catalog::{CatalogError, Pending, Receipt, Transaction};
use tokio::sync::OwnedRwLockWriteGuard;

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::bucket::check_key;
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::{Access, Caller, Grant, Rights, Role};
use crate::model::version::{ObjectInfo, Retention, VersionId};
use crate::objects::deletion::{DeleteRequest, Deleted};
use crate::objects::list::{ListPage, ListRequest, ListVersionsRequest, VersionsPage};
use crate::objects::multipart::CompleteRequest;
use crate::objects::put::{ObjectWriter, PutRequest};
use crate::store::gateway::{Records, foreign_table};
use crate::store::{Archive, lookup};

/// The shares that are open.
pub trait Shares: Send + Sync {
    /// The S3 view of a bucket, if it is a share.
    fn objects(&self, bucket: &str) -> Option<Arc<dyn ShareObjects>>;
}

/// The archive's key of an upload to a path. No file and no upload of the gateway's own has such a
/// key, since neither begins with a slash.
pub fn upload_key(path: &str) -> String {
    format!("/{path}")
}

/// A file that loses no name while this lives.
pub type FileHeld = Arc<OwnedRwLockWriteGuard<()>>;

/// A file that an S3 key names, in the archive.
#[derive(Clone, Debug)]
pub struct Located {
    /// Acts on the file for the client.
    pub caller: Caller,
    /// The archive's key of the file.
    pub key: String,
    /// The key names a directory, which has no version.
    pub directory: Option<Box<ObjectInfo>>,
    /// Of a file that was located to change its retention or its hold: kept until that is done, so
    /// that no version comes under a hold after the name that leads to it has gone.
    pub held: Option<FileHeld>,
}

/// The objects of one share, by the paths of its files.
pub trait ShareObjects: Send + Sync {
    /// Finds the file of a key for an operation on its versions. `version`: the one that the client
    /// named; without one, the present content is archived first.
    fn locate<'a>(
        &'a self,
        caller: &'a Caller,
        access: Access,
        key: &'a str,
        version: Option<VersionId>,
    ) -> BoxFuture<'a, Result<Located>>;

    /// The caller for an upload of parts to this key. `new`: the upload begins.
    fn upload<'a>(&'a self, caller: &'a Caller, key: &'a str, new: bool) -> BoxFuture<'a, Result<Caller>>;

    fn put<'a>(&'a self, caller: &'a Caller, request: PutRequest) -> BoxFuture<'a, Result<ObjectWriter>>;

    fn complete<'a>(&'a self, caller: &'a Caller, request: CompleteRequest) -> BoxFuture<'a, Result<ObjectInfo>>;

    fn delete<'a>(&'a self, caller: &'a Caller, request: DeleteRequest) -> BoxFuture<'a, Result<Deleted>>;

    fn list<'a>(&'a self, caller: &'a Caller, request: ListRequest) -> BoxFuture<'a, Result<ListPage>>;

    fn list_versions<'a>(
        &'a self,
        caller: &'a Caller,
        request: ListVersionsRequest,
    ) -> BoxFuture<'a, Result<VersionsPage>>;

    fn set_retention<'a>(
        &'a self,
        caller: &'a Caller,
        key: &'a str,
        version: Option<VersionId>,
        retention: Option<Retention>,
        bypass_governance: bool,
    ) -> BoxFuture<'a, Result<()>>;
}

impl Archive {
    /// The caller as whom the file gateway acts for an S3 client: the same actor, with the rights
    /// that it has on this path. Refused unless `access` is among them. For a listing the path is
    /// its prefix, which may be empty.
    pub async fn on_behalf(&self, caller: &Caller, access: Access, bucket: &str, path: &str) -> Result<Caller> {
        let action = match access {
            Access::Read => Action::Read,
            Access::Write => Action::PutObject,
            Access::Delete => Action::DeleteObject,
            Access::List => Action::List,
            Access::Retain => Action::SetRetention,
        };
        let result = self.try_on_behalf(caller, access, bucket, path);
        self.store().audited(result, || Event::new(caller, action).object(bucket, path)).await
    }

    fn try_on_behalf(&self, caller: &Caller, access: Access, name: &str, path: &str) -> Result<Caller> {
        if access != Access::List {
            check_key(path)?;
        }
        let bucket = self.store().buckets().by_name(name)?;
        bucket.authorize(caller, access, path)?;
        if !bucket.row.is_share() {
            return Err(ArchiveError::InvalidState(format!("bucket `{name}` is not a share")));
        }
        let allowed = Access::ALL.into_iter().filter(|access| bucket.authorize(caller, *access, path).is_ok());
        let grant = Grant { bucket: Some(name.into()), prefix: String::new(), access: allowed.collect() };
        let rights = Rights {
            roles: caller.rights.roles.iter().copied().chain([Role::User]).collect::<BTreeSet<Role>>(),
            grants: vec![grant],
            bypass_governance: caller.rights.bypass_governance,
        };
        Ok(Caller { rights: Arc::new(rights), gateway: true, path: Some(path.into()), ..caller.clone() })
    }

    /// The newest versions of keys, for the file gateway. None: a key without one, or with a delete
    /// marker.
    pub fn newest(&self, caller: &Caller, bucket: &str, keys: &[String]) -> Result<Vec<Option<ObjectInfo>>> {
        let store = &self.store();
        let bucket = store.buckets().by_name(bucket)?;
        bucket.reached_through(caller)?;
        let snapshot = store.snapshot()?;
        let newest = |key: &String| {
            let found = lookup::newest(&*snapshot, &bucket, key)?.filter(|found| !found.row.marker);
            Ok(found.map(|found| found.info(&bucket, key)))
        };
        keys.iter().map(newest).collect()
    }

    /// Refuses an actor whose access key is revoked.
    pub fn check_revoked(&self, caller: &Caller) -> Result<()> {
        self.store().revoked(&caller.actor)
    }
}

impl Records {
    /// As `commit`, with an audit record of what an S3 client did to a path.
    pub fn commit_audited(
        &self,
        transaction: Transaction,
        caller: &Caller,
        action: Action,
        (bucket, key): (&str, &str),
        detail: &str,
    ) -> Pending<Receipt> {
        let store = self.archive().store();
        if let Err(error) = store.writable() {
            return Pending::ready(Err(CatalogError::Stopped(error.to_string())));
        }
        if let Some(table) = foreign_table(&transaction) {
            let message = format!("table {} is none of the file gateway's", table.0);
            return Pending::ready(Err(CatalogError::Invalid(message)));
        }
        let event = Event::new(caller, action).object(bucket, key).detail(detail.into());
        store.catalog().commit(store.with_record(transaction, event))
    }
}
