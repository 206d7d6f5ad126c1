//! Installing a version: note and key entry, then the catalog's commit, then the answer. The commit
//! is never durable without note and key.
//!
//! The caller holds the key's lock, so the conditions that it checked still hold at the commit. The
//! transaction requires them too.

use std::sync::Arc;

use stele_catalog::{CatalogError, Transaction};

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::error::Result;
use crate::model::principal::Caller;
use crate::model::version::ObjectInfo;
use crate::objects::body::Body;
use crate::objects::put::WriteCondition;
use crate::record::content::{Content, Layout, Place, Stream};
use crate::record::properties::VersionRows;
use crate::record::version::{Owner, VersionNote, VersionRef, VersionRow};
use crate::record::{FREE_SLOTS, HOLDS, LAYOUTS, OBJECTS, RETAINED, VERSIONS, encode, keys};
use crate::removal::Removed;
use crate::removal::disposal::Cleared;
use crate::retention::rules::Cause;
use crate::seal::seal_note;
use crate::space::appender::Record;
use crate::space::header::{Kind, RecordHeader};
use crate::space::places::{place_extents, places};
use crate::state::buckets::Bucket;
use crate::state::key_locks::KeyLock;
use crate::state::owned::{OwnedChange, count_owned};
use crate::state::usage::Counter;
use crate::store::alongside::Alongside;
use crate::store::committing::{Committing, Proof};
use crate::store::lease::Lease;
use crate::store::{Store, lookup};

/// A version about to be installed.
pub(crate) struct Install<'a> {
    pub caller: &'a Caller,
    pub action: Action,
    /// The name of the event for targets of notifications.
    pub happened: &'static str,
    pub bucket: &'a Arc<Bucket>,
    pub key: &'a str,
    pub condition: &'a WriteCondition,
    pub detail: Option<String>,
    /// The key's lock, taken before any condition was checked.
    pub lock: KeyLock,
    /// What the quota in bytes is compared with.
    pub compared: Counter,
    /// Streams and notes of unlisted parts, which the version's transaction removes from the
    /// catalog.
    pub left: Vec<(Stream, Place)>,
    /// The file gateway's change, in the same transaction.
    pub alongside: Option<Arc<dyn Alongside>>,
}

impl Install<'_> {
    /// Installs a version with the content of a body.
    pub async fn stream(
        self,
        store: &Arc<Store>,
        mut row: VersionRow,
        mut lease: Lease,
        body: Box<Body>,
    ) -> Result<ObjectInfo> {
        self.judge(store)?;
        let number = store.numbers().next().await?;
        let entry = lease.write(self.bucket);
        let (sealed, sequence) = self.sealed_note(store, number, &row, None).await?;
        let (stream, salt) = (body.stream, body.salt);
        let whole = body.is_short();
        let mut stored = if whole {
            body.finish(store, Some((&sealed, self.bucket.number, sequence))).await?
        } else {
            let header = self.note_header(row.object, sealed.len(), sequence);
            let note = Record::note(header, &sealed).pinned(&lease.writing).followed();
            let note = store.appender().append(note, false).await?;
            let mut stored = body.finish(store, None).await?;
            let (place, durable) = note.ordered().await?;
            stored.place = Some(place);
            stored.durable.push(durable);
            stored
        };
        let extents = std::mem::take(&mut stored.extents);
        row.note = stored.place.unwrap_or_default();
        let mut transaction = Transaction::new();
        if let Content::Stream(content) = &mut row.content {
            assert!(content.number == stream && content.salt == salt, "a row names another stream than it stores");
            transaction = place_extents(transaction, row.object, content, &extents);
            // A whole record names its version. Loose pieces are found through an index.
            if !whole {
                let at = VersionRef { bucket: self.bucket.number, key: self.key.into(), number };
                transaction = transaction.put(OBJECTS, keys::number(row.object), encode(&Owner::Version(at)));
            }
        }
        // Content, note and key are ordered: the commit cannot be durable without them.
        let ((), entry) = entry.ordered().await?;
        let live = places(&row.note, &extents);
        let info = self.commit(store, transaction, number, row, lease, live).await?;
        // The acknowledgement rests on every piece, the note and the key; all of them were written
        // with `fua`.
        for durable in stored.durable {
            durable.await?;
        }
        entry.await?;
        Ok(info)
    }

    /// Installs a version whose content is stored already: a completed upload, or a delete marker.
    pub async fn plain(
        self,
        store: &Arc<Store>,
        mut row: VersionRow,
        layout: Option<&Layout>,
        mut lease: Lease,
        transaction: Transaction,
    ) -> Result<ObjectInfo> {
        self.judge(store)?;
        let number = store.numbers().next().await?;
        let marker = row.marker;
        // An upload's entry was written when the upload began.
        let entry = if marker { Some(lease.write(self.bucket)) } else { None };
        let (sealed, sequence) = self.sealed_note(store, number, &row, layout).await?;
        let header = self.note_header(row.object, sealed.len(), sequence);
        let note = Record::note(header, &sealed).pinned(&lease.writing).followed();
        let (place, note) = store.appender().append(note, marker).await?.ordered().await?;
        row.note = place;
        let entry = match entry {
            Some(entry) => Some(entry.ordered().await?.1),
            None => None,
        };
        let mut transaction = transaction;
        if let Some(layout) = layout {
            let at = VersionRef { bucket: self.bucket.number, key: self.key.into(), number };
            transaction = transaction.put(LAYOUTS, keys::number(row.object), encode(layout)).put(
                OBJECTS,
                keys::number(row.object),
                encode(&Owner::Version(at)),
            );
        }
        if marker {
            transaction = transaction.with_reserve();
        }
        let live = vec![row.note];
        let info = self.commit(store, transaction, number, row, lease, live).await?;
        note.await?;
        if let Some(entry) = entry {
            entry.await?;
        }
        Ok(info)
    }

    fn judge(&self, store: &Store) -> Result<()> {
        if !self.condition.is_any() {
            return Ok(());
        }
        let snapshot = store.snapshot()?;
        let current = lookup::newest(&*snapshot, self.bucket, self.key)?;
        self.condition.judge_write(current.as_ref(), self.bucket, self.key)
    }

    async fn sealed_note(
        &self,
        store: &Store,
        number: u64,
        row: &VersionRow,
        layout: Option<&Layout>,
    ) -> Result<(Vec<u8>, u64)> {
        let sequence = store.numbers().next().await?;
        let at = VersionRef { bucket: self.bucket.number, key: self.key.into(), number };
        let note = encode(&VersionNote { at, row: row.clone(), layout: layout.cloned() });
        let sealed = seal_note(store.surroundings(), &self.bucket.note_key, &sequence.to_be_bytes(), &note);
        Ok((sealed, sequence))
    }

    fn note_header(&self, object: u64, length: usize, sequence: u64) -> RecordHeader {
        RecordHeader {
            kind: Kind::Version,
            payload: 0,
            note: length as u32,
            scope: self.bucket.number,
            first_frame: 0,
            object,
            stream: 0,
            salt: [0; 16],
            incarnation: 0,
            sequence,
            check: 0,
        }
    }

    /// Adds the indexes by which the version's retention and its hold are found.
    fn index(&self, store: &Store, transaction: Transaction, number: u64, row: &VersionRow) -> Transaction {
        let at = VersionRef { bucket: self.bucket.number, key: self.key.into(), number };
        let transaction = match row.retention {
            Some(retention) => {
                let transaction = transaction.put(RETAINED, keys::numbers(retention.until.0, row.object), encode(&at));
                store.judge_again(transaction, &at, row)
            }
            None => transaction,
        };
        match row.hold {
            true => transaction.put(HOLDS, keys::number(row.object), encode(&at)),
            false => transaction,
        }
    }

    fn event(&self, number: u64, row: &VersionRow) -> Event {
        let event = Event::new(self.caller, self.action).object(self.bucket.name(), self.key).version(row.id(number));
        if row.marker {
            let event = event.happened(self.happened);
            return match &self.detail {
                Some(detail) => event.detail(detail.clone()),
                None => event,
            };
        }
        let event = event.stored(self.happened, row.size, row.etag);
        let mut detail = match &self.detail {
            Some(detail) => format!("{detail}, {}", row.content_in_words()),
            None => row.content_in_words(),
        };
        if let Some(mark) = &row.class {
            detail.push_str(&format!(", class `{}` version {}", mark.name, mark.version));
        }
        if let Some(retention) = row.retention {
            detail.push_str(&format!(", {} until {}", retention.mode, retention.until));
        }
        if row.hold {
            detail.push_str(", legal hold");
        }
        event.detail(detail)
    }

    async fn commit(
        mut self,
        store: &Arc<Store>,
        mut transaction: Transaction,
        number: u64,
        row: VersionRow,
        lease: Lease,
        live: Vec<Place>,
    ) -> Result<ObjectInfo> {
        let bucket = self.bucket;
        let record_key = keys::version(bucket.number, self.key, number);
        let (mut versions, mut bytes) = (1, row.size as i64);
        let added = OwnedChange { versions, bytes };
        // What the quota of the owner has to have room for.
        let mut judged = added;
        let mut removed: Option<Removed> = None;
        if row.null
            && let Some(replaced) = lookup::null_version(&*store.snapshot()?, bucket, self.key)?
        {
            let (with_removal, disposal) =
                store.remove(transaction, self.caller, bucket, self.key, &replaced, Cause::Replaced).await?;
            transaction = with_removal;
            versions -= 1;
            bytes -= replaced.row.size as i64;
            if replaced.row.owner == row.owner {
                judged = OwnedChange { versions, bytes };
            }
            removed = Some(disposal);
        }
        let mut cleared = Cleared::default();
        for (stream, note) in std::mem::take(&mut self.left) {
            transaction = store.clear_within(transaction, stream, note, &mut cleared)?;
        }
        let raw = encode(&row);
        // A removal requires that already.
        if removed.is_none() {
            transaction = bucket.unchanged(transaction);
        }
        transaction = transaction.put_version(record_key.clone(), None, &row, raw.clone());
        transaction = self.index(store, transaction, number, &row);
        if let Some(mark) = &row.class {
            transaction = store.while_in_force(transaction, mark)?;
        }
        let _protected = if row.retention.is_some() || row.hold { Some(store.ensure_protected().await?) } else { None };
        if lease.slot.used {
            transaction = transaction.delete(FREE_SLOTS, keys::number(lease.slot.number));
        }
        let before = transaction.preconditions.len();
        // A marker is always allowed, and counts beyond the quota too.
        let transaction = match row.marker {
            true => bucket.count_beyond(transaction, versions, bytes),
            false => bucket.count_against(self.compared, transaction, versions, bytes),
        };
        let counted = transaction.preconditions.len();
        // A client's parts found room before, as in the bucket's quota.
        if self.compared == Counter::Bytes {
            judged.bytes = 0;
        }
        let judged = if row.marker { OwnedChange::default() } else { judged };
        let mut limited = store.limit_owned(transaction, &row.owner, judged)?;
        let transaction = count_owned(limited.take(), &row.owner, added);
        // `count_against` compares the versions before the bytes.
        let versions_at = (versions > 0 && bucket.row.quota.versions.is_some()).then_some(before);
        let transaction = store.with_record(transaction, self.event(number, &row));
        let writing = Arc::clone(&lease.writing);
        let committing = Committing::new(store, Proof { table: VERSIONS, key: record_key, value: Some(raw) })
            .writing(writing)
            .lease(lease)
            .lock(self.lock)
            .after(move |store| {
                live.into_iter().for_each(|place| store.segments().add_live(place));
                store.cleared(cleared);
                removed.and_then(|removed| store.dispose(removed))
            });
        let info = row.info(&bucket.row, self.key, number, true);
        let answer = match &self.alongside {
            None => committing.commit_within_bucket(transaction).await,
            Some(alongside) => committing.commit_alongside(transaction, &**alongside, &info).await?,
        };
        let logged = match answer {
            Err(CatalogError::Failed(failure)) if (before..counted).contains(&failure.precondition) => {
                let exceeded =
                    if versions_at == Some(failure.precondition) { Counter::Versions } else { self.compared };
                return Err(bucket.over_quota(exceeded));
            }
            Err(CatalogError::Failed(failure)) => {
                let refused = limited.refusal(&row.owner, failure.precondition);
                return Err(refused.unwrap_or_else(|| CatalogError::Failed(failure).into()));
            }
            // The key of a replaced version is destroyed soon. The request does not wait for that.
            answer => answer?.0.numbers().last(),
        };
        store.settle_due().await?;
        Ok(ObjectInfo { logged, ..info })
    }
}
