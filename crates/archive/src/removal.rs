//! The one way anything stored goes away.
//!
//! Every delete, every overwrite of a null version, expiration, abort and bucket removal comes
//! through here, and nothing else in this crate issues a mutation that removes a version.
//! [`Store::remove`] judges retention and holds on the compliance clock, against the rows of
//! version and bucket that its transaction then requires unchanged.
//!
//! Removal has two halves: the commit that takes the version out of the catalog and leaves a
//! disposal record, and the disposal, which writes zeros over the key's entry. Without the key the
//! content cannot be read. A crash between the two is made good at the next opening.

pub(crate) mod disposal;

use std::collections::BTreeSet;
use std::sync::Arc;

use stele_catalog::Transaction;

use crate::audit::Event;
use crate::evidence::disposal::REPLACED;
use crate::evidence::issue::whole_sha256;
use crate::model::action::Action;
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::{Access, Caller};
use crate::record::content::{Content, Place, Stream};
use crate::record::disposal::{Certified, DisposalRow};
use crate::record::properties::VersionRows;
use crate::record::tombstone::TombstoneRow;
use crate::record::version::VersionRef;
use crate::record::{DISPOSALS, OBJECTS, RETAINED, TOMBSTONES, UPLOADS, VERSIONS, encode, keys};
use crate::retention::rules::Cause;
use crate::retention::rules::{judge, retained};
use crate::state::buckets::Bucket;
use crate::state::key_locks::KeyLock;
use crate::state::owned::{OwnedChange, count_owned};
use crate::store::Store;
use crate::store::committing::{Committing, Proof};
use crate::store::lookup::Found;
use crate::store::uploads::{Upload, part_rows};

/// A removal whose commit is due or done, with the data for its disposal.
pub(crate) struct Removed {
    pub slot: u64,
    pub disposal: DisposalRow,
    /// The request waits until the key is destroyed.
    pub wait: bool,
}

/// What the record of the destroyed key says of a version: the log has it when the catalog has no
/// row of it any more.
fn certified(bucket: &Bucket, key: &str, found: &Found) -> Certified {
    let row = &found.row;
    let mut says = format!("object {}, {}, stored {}", row.object, row.content_in_words(), row.modified);
    if let Some(sha256) = whole_sha256(row) {
        says.push_str(&format!(", sha256 {sha256}"));
    }
    // Content of many pieces has its places in rows of their own, and its record names none.
    if let Content::Stream(Stream { extents: Some(extents), .. }) = &row.content {
        let segments: BTreeSet<u32> = extents.iter().map(|extent| extent.segment).collect();
        let segments: Vec<String> = segments.iter().map(u32::to_string).collect();
        says.push_str(&format!(", segments {}", segments.join(" ")));
    }
    Certified { bucket: bucket.name().into(), key: key.into(), version: found.id().to_string(), says }
}

/// The answer to a removal that took place and whose key is still there. A request that is tried
/// again finds that there is nothing to remove.
fn not_destroyed(error: ArchiveError) -> ArchiveError {
    match error {
        ArchiveError::Stopped(_) => error,
        cause => ArchiveError::KeyNotDestroyed(cause.to_string()),
    }
}

impl Store {
    /// Adds the removal of a version to a transaction, or refuses it. The transaction requires the
    /// bucket's settings to be as they were judged here. If it rests on a bypass, it also requires
    /// the rules of acts and the rights of the caller's key. The caller adds the change of the
    /// bucket's counts, which depends on the rest of the transaction. Once that is committed,
    /// `Removed` must be disposed of.
    pub async fn remove(
        &self,
        transaction: Transaction,
        caller: &Caller,
        bucket: &Bucket,
        key: &str,
        found: &Found,
        cause: Cause,
    ) -> Result<(Transaction, Removed)> {
        // Before they are judged.
        let rules = matches!(cause, Cause::Requested { bypass: true } | Cause::Approved).then(|| self.rules());
        let now = self.compliance_now();
        judge(bucket, key, found, caller, self.judged_cause(cause), now).map_err(|refusal| {
            // Officers are named only where they could delete it: not against COMPLIANCE or a hold.
            match judge(bucket, key, found, caller, Cause::Approved, now) {
                Ok(()) => self.explained(cause, refusal),
                Err(_) => refusal,
            }
        })?;
        if let Err(reason) = self.check_doubt(bucket) {
            return Err(retained(bucket, key, found, reason));
        }
        let row = &found.row;
        let transaction = match rules.filter(|_| row.retention.is_some_and(|retention| retention.until > now)) {
            Some(rules) => self.while_bypassing(transaction, rules, caller, Access::Delete, bucket)?,
            None => transaction,
        };
        let record_key = keys::version(bucket.number, key, found.number);
        let certified = row.retention.is_some().then(|| certified(bucket, key, found));
        let disposal = DisposalRow { object: row.object, content: row.content.clone(), note: row.note, certified };
        let mut transaction = bucket
            .unchanged(transaction)
            .with_reserve()
            .equals(VERSIONS, record_key.clone(), found.raw.clone())
            .delete_version(record_key.clone(), row)
            .put(DISPOSALS, keys::number(row.slot), encode(&disposal));
        let gone = OwnedChange { versions: -1, bytes: -(row.size as i64) };
        transaction = count_owned(transaction, &row.owner, gone);
        if row.content != Content::None {
            transaction = transaction.delete(OBJECTS, keys::number(row.object));
        }
        if let Some(retention) = row.retention {
            if cause == Cause::Replaced {
                // The record of the write that replaces it does not say what was replaced.
                let detail = format!(
                    "{REPLACED}{}, stored {}, {} until {}, compliance time {now}",
                    row.content_in_words(),
                    row.modified,
                    retention.mode,
                    retention.until
                );
                let event = Event::new(caller, Action::Dispose).object(bucket.name(), key).version(found.id());
                transaction = self.with_record(transaction, event.detail(detail));
            }
            let cause = match cause {
                Cause::Expired => "expired",
                Cause::Aged => "lifecycle",
                Cause::Replaced => "replaced",
                Cause::Requested { .. } | Cause::Approved if retention.until > now => "governance bypassed",
                Cause::Requested { .. } | Cause::Approved => "requested",
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

    /// Commits the removal of a version. Returns the number of its audit record when the key is
    /// destroyed.
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
    ) -> Result<Option<u64>> {
        let proof = Proof { table: VERSIONS, key: keys::version(bucket.number, key, found.number), value: None };
        self.commit_disposal(self.with_record(transaction, event), proof, removed, lock).await
    }

    async fn commit_disposal(
        self: &Arc<Store>,
        transaction: Transaction,
        proof: Proof,
        removed: Removed,
        lock: KeyLock,
    ) -> Result<Option<u64>> {
        let committing = Committing::new(self, proof).lock(lock).after(move |store| store.dispose(removed));
        // The commit is the flush behind the acknowledgement. The destroyed entry, written with
        // `fua`, follows it.
        let (receipt, destroyed) = committing.commit_within_bucket(transaction).await?;
        if let Some(destroyed) = destroyed {
            destroyed.await.map_err(not_destroyed)?;
        }
        self.settle_due().await?;
        Ok(receipt.numbers().last())
    }

    /// Removes an upload and its parts. They are no version yet, so they cannot be retained.
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
        let (object, note) = (upload.row.object, Place::default());
        let disposal = DisposalRow { object, content: Content::Parts, note, certified: None };
        let rows = part_rows(&*self.snapshot()?, object)?;
        let transaction = self
            .without_upload(Transaction::new().with_reserve(), bucket, key, upload, &rows)
            .delete(OBJECTS, keys::number(upload.row.object))
            .put(DISPOSALS, keys::number(upload.row.slot), encode(&disposal));
        let event = Event::new(caller, Action::AbortUpload).object(bucket.name(), key).detail(id.into());
        let removed = Removed { slot: upload.row.slot, disposal, wait: true };
        let proof = Proof { table: UPLOADS, key: record_key, value: None };
        self.commit_disposal(self.with_record(transaction, event), proof, removed, lock).await.map(drop)
    }
}
