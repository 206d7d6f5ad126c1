//! Changes to the rows of stored versions.

use std::sync::Arc;

use stele_catalog::{CatalogError, Transaction};
use tokio::sync::OwnedRwLockReadGuard;

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::bucket::check_key;
use crate::model::error::Result;
use crate::model::matter::S3;
use crate::model::principal::{Access, Caller};
use crate::model::time::Timestamp;
use crate::model::version::VersionId;
use crate::record::content::{Content, Extent};
use crate::record::properties::VersionRows;
use crate::record::version::{VersionNote, VersionRef, VersionRow};
use crate::record::{EXPIRE_AGAIN, HOLDS, MATTER_HOLDS, RETAINED, VERSIONS, encode, keys};
use crate::space::compensations::NoteSubject;
use crate::space::header::Kind;
use crate::space::places::places;
use crate::state::buckets::Bucket;
use crate::state::key_locks::KeyLock;
use crate::store::committing::{Committing, Proof};
use crate::store::lookup::{self, Found};
use crate::store::{Archive, Store};

/// Milliseconds, far more than a transaction takes from its making to its commit. If one takes
/// longer, the daily pass finds its version.
const COMMIT_WITHIN: u64 = 3_600_000;

impl Archive {
    /// Looks up a version in order to read its properties.
    pub(crate) async fn find_version(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
    ) -> Result<(Arc<Bucket>, Found)> {
        check_key(key)?;
        let authorized = self.store().authorized(caller, Access::Read, bucket, key);
        let bucket = self.store().audited(authorized, || Event::new(caller, Action::Read).object(bucket, key)).await?;
        let snapshot = self.store().snapshot()?;
        let found = lookup::readable(&*snapshot, &bucket, key, version)?;
        Ok((bucket, found))
    }

    /// As `lock_version`, for a change that the bucket's settings decide: see `lock_settled`.
    pub(crate) async fn lock_version_settled(
        &self,
        caller: &Caller,
        access: Access,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
    ) -> Result<(Arc<Bucket>, KeyLock, OwnedRwLockReadGuard<()>, Found)> {
        check_key(key)?;
        let (bucket, lock, settled) = self.store().lock_settled(caller, access, bucket, key).await?;
        let found = lookup::readable(&*self.store().snapshot()?, &bucket, key, version)?;
        Ok((bucket, lock, settled, found))
    }

    /// Looks up a version in order to change its properties, under its key's lock.
    pub(crate) async fn lock_version(
        &self,
        caller: &Caller,
        access: Access,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
    ) -> Result<(Arc<Bucket>, KeyLock, Found)> {
        check_key(key)?;
        let (bucket, lock) = self.store().lock_authorized(caller, access, bucket, key).await?;
        let snapshot = self.store().snapshot()?;
        let found = lookup::readable(&*snapshot, &bucket, key, version)?;
        Ok((bucket, lock, found))
    }
}

impl Store {
    /// Changes the row of a stored version: notes the new row, then commits it with its event, if
    /// the row is still as found. A change of the retention or the tags also requires the bucket's
    /// settings to be as they are here. Returns the number of the event's record.
    pub async fn change_version(
        self: &Arc<Store>,
        bucket: &Bucket,
        key: &str,
        found: &Found,
        lock: KeyLock,
        event: Event,
        change: impl FnOnce(&mut VersionRow),
    ) -> Result<Option<u64>> {
        self.change_version_if(Transaction::new(), bucket, key, found, lock, event, change).await
    }

    /// As `change_version`, if what the transaction requires holds too.
    #[allow(clippy::too_many_arguments)]
    pub async fn change_version_if(
        self: &Arc<Store>,
        required: Transaction,
        bucket: &Bucket,
        key: &str,
        found: &Found,
        lock: KeyLock,
        event: Event,
        change: impl FnOnce(&mut VersionRow),
    ) -> Result<Option<u64>> {
        let answer = self.write_version_anew(required, bucket, key, found, lock, Some(event), change).await?;
        self.compensated(answer).await
    }

    /// As `change_version_if`, under a guard of the bucket's settings. A compensating note takes
    /// locks whose holders may wait for a change of settings, which waits for the guard. So the
    /// guard goes first.
    #[allow(clippy::too_many_arguments)]
    pub(crate) async fn change_version_settled(
        self: &Arc<Store>,
        settled: OwnedRwLockReadGuard<()>,
        required: Transaction,
        bucket: &Bucket,
        key: &str,
        found: &Found,
        lock: KeyLock,
        event: Event,
        change: impl FnOnce(&mut VersionRow),
    ) -> Result<Option<u64>> {
        let answer = self.write_version_anew(required, bucket, key, found, lock, Some(event), change).await;
        drop(settled);
        self.compensated(answer?).await
    }

    /// Notes a row and commits it. The outer result is that of the note, the inner one that of the
    /// commit.
    #[allow(clippy::too_many_arguments)]
    pub(crate) async fn write_version_anew(
        self: &Arc<Store>,
        required: Transaction,
        bucket: &Bucket,
        key: &str,
        found: &Found,
        lock: KeyLock,
        event: Option<Event>,
        change: impl FnOnce(&mut VersionRow),
    ) -> Result<std::result::Result<Option<u64>, CatalogError>> {
        let writing = self.segments().begin();
        let mut row = found.row.clone();
        change(&mut row);
        // Changes of tags must not use up the reserve for deletions.
        let reserve = event.is_none()
            || row.retention != found.row.retention
            || row.hold != found.row.hold
            || row.matters != found.row.matters
            || row.notified != found.row.notified;
        let at = VersionRef { bucket: bucket.number, key: key.into(), number: found.number };
        let layout = if row.content == Content::Parts { Some(self.layout(row.object)?) } else { None };
        let note = VersionNote { at: at.clone(), row: row.clone(), layout };
        // Before the note: a note whose commit fails needs a compensating note.
        let _protected =
            if row.retention.is_some() || row.is_held() { Some(self.ensure_protected().await?) } else { None };
        let subject = NoteSubject::Version(at.clone());
        let (place, noting) =
            self.note_change(subject, &writing, reserve, Kind::Version, Some(bucket), row.object, &note).await?;
        row.note = place;
        let raw = encode(&row);
        let transaction = required.with_reserve().equals(VERSIONS, at.record_key(), found.raw.clone()).put_version(
            at.record_key(),
            Some(&found.row),
            &row,
            raw.clone(),
        );
        let mut transaction = self.reindex(transaction, &at, &found.row, &row);
        // The bucket's settings decided whether the retention may change, and what expiration does.
        // Its rules decide who is told of new tags. A hold does not wait for that: it must not fail
        // because a setting changes.
        if row.retention != found.row.retention || row.notified != found.row.notified || row.tags != found.row.tags {
            transaction = bucket.unchanged(transaction);
        }
        if let Some(event) = event {
            transaction = self.with_record(transaction, event);
        }
        let extents = inline(&row);
        let (gained, lost) = (places(&row.note, extents), places(&found.row.note, extents));
        let proof = Proof { table: VERSIONS, key: at.record_key(), value: Some(raw) };
        let committing = Committing::new(self, proof).writing(writing).lock(lock).after(move |store| {
            gained.into_iter().for_each(|place| store.segments().add_live(place));
            lost.into_iter().for_each(|place| store.segments().drop_live(place));
            None
        });
        // The commit is the flush behind the acknowledgement. The note was durable before it.
        let answer = noting.answered(committing.commit_within_bucket(transaction).await);
        Ok(answer.map(|(receipt, _)| receipt.numbers().last()))
    }

    /// Replaces the index records of a version's retention and hold.
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
        for released in before.matters().filter(|matter| !after.is_under(matter)) {
            transaction = match released {
                S3 => transaction.delete(HOLDS, keys::number(before.object)),
                matter => transaction.delete(MATTER_HOLDS, keys::under(matter, before.object)),
            };
        }
        for added in after.matters().filter(|matter| !before.is_under(matter)) {
            transaction = match added {
                S3 => transaction.put(HOLDS, keys::number(after.object), encode(at)),
                matter => transaction.put(MATTER_HOLDS, keys::under(matter, after.object), encode(at)),
            };
        }
        let may_go = before.retention != after.retention
            || before.class != after.class
            || before.is_held() && !after.is_held()
            || before.notified == Some(true) && after.notified != Some(true);
        if may_go && !after.is_held() { self.judge_again(transaction, at, after) } else { transaction }
    }

    /// Makes expiration judge a version again, if its pass is or will soon be behind the end of the
    /// version's retention.
    pub fn judge_again(&self, transaction: Transaction, at: &VersionRef, row: &VersionRow) -> Transaction {
        // The pass may go by between now and the commit.
        let soon = Timestamp(self.compliance_now().0.saturating_add(COMMIT_WITHIN));
        match row.retention.filter(|retention| retention.until <= soon) {
            Some(retention) => transaction.put(EXPIRE_AGAIN, keys::numbers(retention.until.0, row.object), encode(at)),
            None => transaction,
        }
    }
}

fn inline(row: &VersionRow) -> &[Extent] {
    match &row.content {
        Content::Stream(stream) => stream.extents.as_deref().unwrap_or_default(),
        _ => &[],
    }
}
