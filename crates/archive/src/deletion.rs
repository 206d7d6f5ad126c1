//! The one way anything stored goes away.
//!
//! Every delete, every overwrite of a null version, expiration, abort and bucket removal comes through here, and
//! nothing else in this crate issues a mutation that removes a version. [`Store::remove`] judges retention and holds
//! against the row that its transaction then requires unchanged, on the compliance clock.
//!
//! Removal has two halves: the commit that takes the version out of the catalog and leaves a disposal record, and the
//! disposal: zeros over the key's entry, without which the content is noise. A crash between them is made good at the
//! next opening.

use std::sync::Arc;

use stele_catalog::Transaction;

use crate::Archive;
use crate::audit::{Action, Event};
use crate::bucket::{Protection, Versioning, check_key};
use crate::buckets::Bucket;
use crate::committing::{Committing, Proof};
use crate::error::{ArchiveError, Result};
use crate::install::{Install, Lease};
use crate::key_locks::KeyLock;
use crate::lookup::{self, Found};
use crate::multipart::Upload;
use crate::principal::{Access, Caller};
use crate::put::WriteCondition;
use crate::record::content::{Content, Layout, Place};
use crate::record::disposal::DisposalRow;
use crate::record::tombstone::TombstoneRow;
use crate::record::version::{VersionRef, VersionRow};
use crate::record::{DISPOSALS, HOLDS, LAYOUTS, OBJECTS, RETAINED, TOMBSTONES, UPLOADS, VERSIONS, encode, fetch, keys};
use crate::store::Store;
use crate::time::Timestamp;
use crate::version::{ETag, Metadata, RetentionMode, Tags, VersionId};

#[derive(Clone, Default, Debug)]
pub struct DeleteRequest {
    pub bucket: String,
    pub key: String,
    /// None: adds a delete marker where the bucket is versioned, removes the object where it is not.
    pub version: Option<VersionId>,
    /// The explicit request to bypass GOVERNANCE; it also takes the permission.
    pub bypass_governance: bool,
    /// `If-Match`: the entity tag of what is to be deleted.
    pub etag: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deleted {
    pub key: String,
    /// The version removed, or the marker added. None: nothing was there, which is no error.
    pub version: Option<VersionId>,
    /// A marker was added, or what was removed was one.
    pub delete_marker: bool,
}

/// Why a version is removed, which decides what is asked of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// Somebody asked for this version. `bypass`: and said to bypass GOVERNANCE.
    Requested { bypass: bool },
    /// A new null version takes its place.
    Replaced,
    /// Its retention has passed and its bucket says to delete then.
    Expired,
}

/// A removal that was committed, or will be: what its disposal needs.
pub(crate) struct Removed {
    pub slot: u64,
    pub disposal: DisposalRow,
    /// Wait until the key is destroyed before answering.
    pub wait: bool,
}

/// Refuses if retention or a hold forbids removing the version now. The only judge there is.
pub(crate) fn judge(
    bucket: &Bucket,
    key: &str,
    found: &Found,
    caller: &Caller,
    cause: Cause,
    now: Timestamp,
) -> Result<()> {
    let refuse = |message: String| Err(retained(bucket, key, found, message));
    let what = format!("`{}/{key}` version {}", bucket.name(), found.id());
    if found.row.hold {
        return refuse(format!("{what} is under legal hold; it can be deleted only after the hold is released"));
    }
    let Some(retention) = found.row.retention.filter(|retention| retention.until > now) else { return Ok(()) };
    let message = format!("{what} is retained in {} mode until {}", retention.mode, retention.until);
    match (retention.mode, cause) {
        (RetentionMode::Compliance, _) => refuse(format!("{message}; nobody can delete it before")),
        (RetentionMode::Governance, _) if bucket.row.protection == Protection::Compliance => {
            refuse(format!("{message}; the bucket's protection level lets nobody delete it before"))
        }
        (RetentionMode::Governance, Cause::Requested { bypass: true }) if caller.rights.bypass_governance => Ok(()),
        (RetentionMode::Governance, Cause::Requested { bypass: true }) => {
            refuse(format!("{message}, and {} has no permission to bypass it", caller.actor))
        }
        (RetentionMode::Governance, _) => {
            refuse(format!("{message}; bypassing it takes an explicit request and the permission"))
        }
    }
}

/// The refusal of a change that the version's retention, its hold or the matter `rebuild` forbids.
pub(crate) fn retained(bucket: &Bucket, key: &str, found: &Found, message: String) -> ArchiveError {
    ArchiveError::Retained {
        bucket: bucket.name().into(),
        key: key.into(),
        version: found.id(),
        mode: found.row.retention.map(|retention| retention.mode),
        until: found.row.retention.map(|retention| retention.until),
        legal_hold: found.row.hold,
        message,
    }
}

impl Store {
    /// Adds the removal of a version to a transaction, or refuses. Counting is left to the caller, who knows what else the
    /// transaction adds. Once it is committed, `removed` must follow.
    pub async fn remove(
        &self,
        transaction: Transaction,
        caller: &Caller,
        bucket: &Bucket,
        key: &str,
        found: &Found,
        cause: Cause,
    ) -> Result<(Transaction, Removed)> {
        let now = self.compliance_now();
        judge(bucket, key, found, caller, cause, now)?;
        if let Err(reason) = self.undoubted(bucket) {
            return Err(retained(bucket, key, found, reason));
        }
        let row = &found.row;
        let record_key = keys::version(bucket.number, key, found.number);
        let disposal = DisposalRow { object: row.object, content: row.content.clone(), note: row.note };
        let mut transaction = transaction
            .with_reserve()
            .equals(VERSIONS, record_key.clone(), found.raw.clone())
            .delete(VERSIONS, record_key.clone())
            .put(DISPOSALS, keys::number(row.slot), encode(&disposal));
        if row.content != Content::None {
            transaction = transaction.delete(OBJECTS, keys::number(row.object));
        }
        if let Some(retention) = row.retention {
            let cause = match cause {
                Cause::Expired => "expired",
                Cause::Replaced => "replaced",
                Cause::Requested { .. } if retention.until > now => "governance bypassed",
                Cause::Requested { .. } => "requested",
            };
            let tombstone = TombstoneRow {
                object: row.object,
                size: row.size,
                blake3: row.blake3,
                stored: row.modified,
                retention: row.retention,
                disposed: now,
                actor: caller.actor.clone(),
                cause: cause.into(),
                version: found.id().to_string(),
                slot: row.slot,
            };
            let at = VersionRef { bucket: bucket.number, key: key.into(), number: found.number };
            self.note_tombstone(bucket, at, tombstone.clone()).await?;
            transaction = transaction.delete(RETAINED, keys::numbers(retention.until.0, row.object)).put(
                TOMBSTONES,
                record_key,
                encode(&tombstone),
            );
        }
        let wait = cause != Cause::Replaced;
        Ok((transaction, Removed { slot: row.slot, disposal, wait }))
    }

    /// The layout of a multipart object.
    pub fn layout(&self, object: u64) -> Result<Layout> {
        let snapshot = self.snapshot()?;
        fetch(&*snapshot, LAYOUTS, &keys::number(object))?
            .ok_or_else(|| ArchiveError::damaged(format!("object {object}"), "its list of parts is missing"))
    }
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

    /// Deletes up to 1000 keys of one bucket, an answer for each, in order.
    pub async fn delete_many(&self, caller: &Caller, requests: Vec<DeleteRequest>) -> Vec<Result<Deleted>> {
        use futures_util::StreamExt;
        // Concurrently, so that many share a commit; bounded, so that a large batch does not crowd out others.
        futures_util::stream::iter(requests.into_iter().map(|request| self.delete(caller, request)))
            .buffered(64)
            .collect()
            .await
    }

    async fn try_delete(&self, caller: &Caller, request: &DeleteRequest) -> Result<Deleted> {
        let store = &self.store();
        check_key(&request.key)?;
        store.writable()?;
        let bucket = store.authorized(caller, Access::Delete, &request.bucket, &request.key)?;
        let lock = store.lock(bucket.number, &request.key).await?;
        let snapshot = store.snapshot()?;
        let condition = WriteCondition { absent: false, etag: request.etag.clone() };
        let nothing = Deleted { key: request.key.clone(), version: request.version, delete_marker: false };
        match (request.version, bucket.row.versioning) {
            (None, Versioning::Enabled | Versioning::Suspended) => {
                if condition.is_any() {
                    condition.judge(lookup::newest(&*snapshot, &bucket, &request.key)?.as_ref())?;
                }
                drop(snapshot);
                self.add_marker(caller, &bucket, &request.key, lock).await
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
        let mut event =
            Event::new(caller, Action::DeleteObject).object(bucket.name(), key).version(found.id()).detail(format!(
                "{} bytes, blake3 {}{}",
                found.row.size,
                found.row.fingerprint(),
                if bypassed { ", GOVERNANCE bypassed" } else { "" }
            ));
        if found.row.marker {
            event = event.detail("delete marker".into());
        }
        store.commit_removal(transaction, event, removed, bucket, key, found, lock).await?;
        Ok(Deleted { key: key.into(), version: Some(found.id()), delete_marker: found.row.marker })
    }

    /// Always allowed: a marker removes nothing. Where versioning is suspended it takes the null version's place, and the
    /// deletion path judges that.
    async fn add_marker(&self, caller: &Caller, bucket: &Arc<Bucket>, key: &str, lock: KeyLock) -> Result<Deleted> {
        let store = &self.store();
        let lease = Lease::marker(store).await?;
        let row = VersionRow {
            object: lease.object,
            salt: store.random(),
            null: !bucket.versioned(),
            marker: true,
            size: 0,
            etag: ETag { md5: [0; 16], parts: None },
            modified: store.wall(),
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
        };
        let install = Install {
            caller,
            action: Action::AddDeleteMarker,
            bucket,
            key,
            condition: &WriteCondition::default(),
            detail: None,
            lock,
            left: Vec::new(),
        };
        let info = install.plain(store, row, None, lease, Transaction::new()).await?;
        Ok(Deleted { key: key.into(), version: Some(info.version), delete_marker: true })
    }
}

impl Store {
    /// Adds the index records of a version's retention and hold as they become, and takes away those they were.
    pub fn reindex(
        &self,
        mut transaction: Transaction,
        at: &VersionRef,
        before: &VersionRow,
        after: &VersionRow,
    ) -> Transaction {
        if before.retention != after.retention {
            if let Some(retention) = before.retention {
                transaction = transaction.delete(RETAINED, keys::numbers(retention.until.0, before.object));
            }
            if let Some(retention) = after.retention {
                transaction = transaction.put(RETAINED, keys::numbers(retention.until.0, after.object), encode(at));
            }
        }
        match (before.hold, after.hold) {
            (false, true) => transaction.put(HOLDS, keys::number(after.object), encode(at)),
            (true, false) => transaction.delete(HOLDS, keys::number(after.object)),
            _ => transaction,
        }
    }
}

impl Store {
    /// Commits the removal of a version, and answers when its key is destroyed.
    #[allow(clippy::too_many_arguments)]
    pub(crate) async fn commit_removal(
        self: &Arc<Store>,
        transaction: Transaction,
        event: Event,
        removed: Removed,
        bucket: &Bucket,
        key: &str,
        found: &Found,
        lock: KeyLock,
    ) -> Result<()> {
        let proof = Proof { table: VERSIONS, key: keys::version(bucket.number, key, found.number), value: None };
        self.commit_disposal(self.with_record(transaction, event), proof, removed, lock).await
    }

    async fn commit_disposal(
        self: &Arc<Store>,
        transaction: Transaction,
        proof: Proof,
        removed: Removed,
        lock: KeyLock,
    ) -> Result<()> {
        let committing = Committing::new(self, proof).lock(lock).after(move |store| store.dispose(removed));
        // The commit is the flush behind the acknowledgement, and the destroyed entry, written with `fua`, after it.
        let (_, destroyed) = committing.commit(transaction).await?;
        if let Some(destroyed) = destroyed {
            destroyed.await?;
        }
        self.settle_due().await
    }

    /// Removes an upload and its parts. Nothing of it is a version yet, so nothing can be retained.
    pub(crate) async fn remove_upload(
        self: &Arc<Store>,
        caller: &Caller,
        bucket: &Bucket,
        key: &str,
        upload: &Upload,
        id: &str,
        lock: KeyLock,
    ) -> Result<()> {
        let record_key = keys::upload(bucket.number, key, upload.number);
        let disposal = DisposalRow { object: upload.row.object, content: Content::Parts, note: Place::default() };
        let transaction = Transaction::new()
            .with_reserve()
            .equals(UPLOADS, record_key.clone(), upload.raw.clone())
            .delete(UPLOADS, record_key.clone())
            .delete(OBJECTS, keys::number(upload.row.object))
            .put(DISPOSALS, keys::number(upload.row.slot), encode(&disposal));
        let event = Event::new(caller, Action::AbortUpload).object(bucket.name(), key).detail(id.into());
        let removed = Removed { slot: upload.row.slot, disposal, wait: true };
        let proof = Proof { table: UPLOADS, key: record_key, value: None };
        self.commit_disposal(self.with_record(transaction, event), proof, removed, lock).await
    }
}
