//! Deleting objects: by version, or by a delete marker above the versions.
//!
//! The removal itself is in [`crate::removal`], the only path by which anything stored goes away.

use std::sync::Arc;

use stele_catalog::Transaction;

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::bucket::{Versioning, check_key};
use crate::model::error::Result;
use crate::model::principal::{Access, Actor, Caller};
use crate::model::version::{ETag, Metadata, Tags, VersionId};
use crate::objects::install::Install;
use crate::objects::put::WriteCondition;
use crate::record::content::{Content, Place};
use crate::record::version::VersionRow;
use crate::retention::rules::Cause;
use crate::state::buckets::Bucket;
use crate::state::key_locks::KeyLock;
use crate::state::usage::Counter;
use crate::store::lease::Lease;
use crate::store::lookup::{self, Found};
use crate::store::{Archive, Store};

#[derive(Clone, Default, Debug)]
pub struct DeleteRequest {
    pub bucket: String,
    pub key: String,
    /// None: adds a delete marker in a versioned bucket, and removes the object in another.
    pub version: Option<VersionId>,
    /// Asks to bypass GOVERNANCE. The caller also needs the permission.
    pub bypass_governance: bool,
    /// `If-Match`: the entity tag of the version to delete.
    pub etag: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deleted {
    pub key: String,
    /// The removed version, or the added marker. None: the key had no version, which is no error.
    pub version: Option<VersionId>,
    /// A marker was added, or the removed version was one.
    pub delete_marker: bool,
    /// The number of the audit record. None: there was nothing to delete.
    pub logged: Option<u64>,
}

impl Archive {
    pub async fn delete(&self, caller: &Caller, request: DeleteRequest) -> Result<Deleted> {
        let action = if request.version.is_some() { Action::DeleteObject } else { Action::AddDeleteMarker };
        let result = self.try_delete(caller, &request).await;
        let event = || {
            let event = Event::new(caller, action).object(&request.bucket, &request.key);
            match request.version {
                Some(version) => event.version(version),
                None => event,
            }
        };
        self.store().audited(result, event).await
    }

    /// Deletes up to 1000 keys of one bucket. Returns one result for each, in order.
    pub async fn delete_many(&self, caller: &Caller, requests: Vec<DeleteRequest>) -> Vec<Result<Deleted>> {
        use futures_util::StreamExt;
        // Concurrently, so that many deletions share a commit. Bounded, so that a large batch
        // leaves room for other requests.
        futures_util::stream::iter(requests.into_iter().map(|request| self.delete(caller, request)))
            .buffered(64)
            .collect()
            .await
    }

    async fn try_delete(&self, caller: &Caller, request: &DeleteRequest) -> Result<Deleted> {
        let store = &self.store();
        check_key(&request.key)?;
        store.writable()?;
        let locked = store.lock_settled(caller, Access::Delete, &request.bucket, &request.key).await?;
        let (bucket, lock, _settled) = locked;
        let snapshot = store.snapshot()?;
        let condition = WriteCondition { absent: false, etag: request.etag.clone() };
        let nothing =
            Deleted { key: request.key.clone(), version: request.version, delete_marker: false, logged: None };
        match (request.version, bucket.row.versioning) {
            (None, Versioning::Enabled | Versioning::Suspended) => {
                if condition.is_any() {
                    condition.judge(lookup::newest(&*snapshot, &bucket, &request.key)?.as_ref())?;
                }
                drop(snapshot);
                store.add_marker(caller, &bucket, &request.key, None, Transaction::new(), lock).await
            }
            (version, _) => {
                let found = lookup::version(&*snapshot, &bucket, &request.key, version)?;
                drop(snapshot);
                if condition.is_any() {
                    condition.judge(found.as_ref())?;
                }
                let Some(found) = found else { return Ok(nothing) };
                self.delete_version(caller, &bucket, &request.key, &found, request.bypass_governance, lock).await
            }
        }
    }

    async fn delete_version(
        &self,
        caller: &Caller,
        bucket: &Arc<Bucket>,
        key: &str,
        found: &Found,
        bypass: bool,
        lock: KeyLock,
    ) -> Result<Deleted> {
        let store = &self.store();
        let cause = Cause::Requested { bypass };
        let (transaction, removed) = store.remove(Transaction::new(), caller, bucket, key, found, cause).await?;
        let transaction = bucket.count(transaction, -1, -(found.row.size as i64));
        let bypassed = bypass && found.row.retention.is_some_and(|retention| retention.until > store.compliance_now());
        let mut event = Event::new(caller, Action::DeleteObject)
            .object(bucket.name(), key)
            .version(found.id())
            .happened("ObjectRemoved:Delete")
            .detail(format!("{}{}", found.row.content_in_words(), if bypassed { ", GOVERNANCE bypassed" } else { "" }));
        if found.row.marker {
            event = event.detail("delete marker".into());
        }
        let logged = store.commit_removal(transaction, event, removed, bucket, key, found, lock).await?;
        Ok(Deleted { key: key.into(), version: Some(found.id()), delete_marker: found.row.marker, logged })
    }
}

impl Store {
    /// Adds a delete marker. That is always allowed, since a marker removes nothing. Where
    /// versioning is suspended the marker replaces the null version, and the removal judges that.
    /// `required`: what the marker's transaction requires besides.
    pub(crate) async fn add_marker(
        self: &Arc<Store>,
        caller: &Caller,
        bucket: &Arc<Bucket>,
        key: &str,
        detail: Option<String>,
        required: Transaction,
        lock: KeyLock,
    ) -> Result<Deleted> {
        let store = self;
        let lease = Lease::marker(store).await?;
        let row = VersionRow {
            object: lease.object,
            salt: store.random(),
            null: !bucket.versioned(),
            marker: true,
            size: 0,
            etag: ETag { md5: [0; 16], parts: None },
            modified: store.later_now(),
            owner: caller.actor.clone(),
            slot: lease.slot.number,
            metadata: Metadata::default(),
            tags: Tags::new(),
            retention: None,
            hold: false,
            checksums: Vec::new(),
            blake3: [0; 32],
            customer: None,
            content: Content::None,
            note: Place::default(),
            notified: None,
            upload: None,
            matters: None,
            class: None,
            held: None,
        };
        let install = Install {
            caller,
            action: Action::AddDeleteMarker,
            happened: match caller.actor {
                Actor::System(_) => "LifecycleExpiration:DeleteMarkerCreated",
                _ => "ObjectRemoved:DeleteMarkerCreated",
            },
            bucket,
            key,
            condition: &WriteCondition::default(),
            detail,
            lock,
            compared: Counter::Held,
            left: Vec::new(),
            alongside: None,
        };
        let info = install.plain(store, row, None, lease, required).await?;
        Ok(Deleted { key: key.into(), version: Some(info.version), delete_marker: true, logged: info.logged })
    }
}
