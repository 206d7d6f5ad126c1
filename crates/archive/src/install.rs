//! Putting a version in place: note and key entry, then the catalog's commit, never durable without them, then the answer.
//!
//! Whoever installs holds the key's lock, so what was judged still holds at the commit; the transaction requires it too.

use std::sync::Arc;

use stele_catalog::{CatalogError, Transaction};

use crate::CustomerKey;
use crate::audit::{Action, Event};
use crate::body::Body;
use crate::buckets::Bucket;
use crate::committing::{Committing, Proof};
use crate::deletion::{Cause, Removed};
use crate::error::{ArchiveError, Result};
use crate::key_locks::KeyLock;
use crate::lookup;
use crate::principal::Caller;
use crate::put::WriteCondition;
use crate::record::content::{CHUNK_EXTENTS, Content, Extent, ExtentList, INLINE_EXTENTS, Layout, Place, Stream};
use crate::record::version::{Owner, VersionNote, VersionRef, VersionRow};
use crate::record::{BUCKETS, EXTENTS, FREE_SLOTS, HOLDS, LAYOUTS, OBJECTS, RETAINED, VERSIONS, encode, keys};
use crate::seal::{SealingKey, Secret, WRAPPED, derive, random_secret, seal_note};
use crate::space::appender::Record;
use crate::space::frames::sealed_length;
use crate::space::header::{Kind, RecordHeader, record_length};
use crate::space::keytable::{Changed, Entry, Slot};
use crate::space::segments::Writing;
use crate::store::{Store, locked};
use crate::version::ObjectInfo;

/// A new object's number, key and slot. Dropped without being kept, the slot is destroyed and free again.
pub(crate) struct Lease {
    store: Arc<Store>,
    pub object: u64,
    pub slot: Slot,
    pub key: Secret,
    wrapped: [u8; WRAPPED],
    written: bool,
    kept: bool,
    /// Keeps reclamation away from what is being written, until the commit has answered.
    pub writing: Arc<Writing>,
}

impl Lease {
    pub async fn new(store: &Arc<Store>, bucket: &Bucket, customer: Option<&CustomerKey>) -> Result<Lease> {
        let writing = store.segments.begin();
        let object = store.numbers.next().await?;
        let slot = store.keys.take(false).await?;
        let key = random_secret(&*store.surroundings);
        let bound = key_bound(object, slot.number);
        let wrapped = match customer {
            None => bucket.wrap.wrap(&*store.surroundings, &bound, &key),
            Some(customer) => customer_wrap(bucket, customer).wrap(&*store.surroundings, &bound, &key),
        };
        Ok(Lease { store: Arc::clone(store), object, slot, key, wrapped, written: false, kept: false, writing })
    }

    /// For a delete marker: a slot without a key. It may use the reserve.
    pub async fn marker(store: &Arc<Store>) -> Result<Lease> {
        let writing = store.segments.begin();
        let object = store.numbers.next().await?;
        let slot = store.keys.take(true).await?;
        let (key, wrapped) = (Secret::default(), [0; WRAPPED]);
        Ok(Lease { store: Arc::clone(store), object, slot, key, wrapped, written: false, kept: false, writing })
    }

    /// The slot of an upload, whose entry is in use already and stays whatever becomes of the completion.
    pub fn settled(store: &Arc<Store>, object: u64, slot: u64) -> Lease {
        let slot = Slot { number: slot, used: false };
        let (key, wrapped) = (Secret::default(), [0; WRAPPED]);
        let writing = store.segments.begin();
        Lease { store: Arc::clone(store), object, slot, key, wrapped, written: true, kept: true, writing }
    }

    /// Starts writing the entry.
    pub fn write(&mut self, bucket: &Bucket) -> Changed {
        self.written = true;
        let entry = Entry { object: self.object, bucket: bucket.number, wrapped: self.wrapped };
        self.store.keys.write(self.slot.number, &entry)
    }

    /// The catalog refers to it now.
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        match self.written {
            true => self.store.keys.release(self.slot.number, self.object),
            false => self.store.keys.offer([self.slot.number]),
        }
    }
}

/// What a wrapped object key is bound to.
pub(crate) fn key_bound(object: u64, slot: u64) -> [u8; 16] {
    let mut bound = [0; 16];
    bound[..8].copy_from_slice(&object.to_be_bytes());
    bound[8..].copy_from_slice(&slot.to_be_bytes());
    bound
}

/// Wraps the key of an object whose customer keeps half of what opens it.
pub(crate) fn customer_wrap(bucket: &Bucket, customer: &CustomerKey) -> SealingKey {
    SealingKey::new(&derive(&bucket.key, "customer", customer.0.as_ref()))
}

/// What is about to be installed, and for whom.
pub(crate) struct Install<'a> {
    pub caller: &'a Caller,
    pub action: Action,
    pub bucket: &'a Arc<Bucket>,
    pub key: &'a str,
    pub condition: &'a WriteCondition,
    pub detail: Option<String>,
    /// The key's, taken before anything was judged.
    pub lock: KeyLock,
    /// What the version's transaction takes out of the catalog besides: streams and notes of parts that are not listed.
    pub left: Vec<(Stream, Place)>,
}

impl Install<'_> {
    /// Installs a version with the content of a body.
    pub async fn stream(
        self,
        store: &Arc<Store>,
        mut row: VersionRow,
        mut lease: Lease,
        body: Body,
    ) -> Result<ObjectInfo> {
        self.judge(store)?;
        let number = store.numbers.next().await?;
        let entry = lease.write(self.bucket);
        let (sealed, sequence) = self.sealed_note(store, number, &row, None).await?;
        let (stream, salt) = (body.stream, body.salt);
        let whole = body.is_short();
        let mut stored = if whole {
            body.finish(store, Some((&sealed, self.bucket.number, sequence))).await?
        } else {
            let header = self.note_header(row.object, sealed.len(), sequence);
            let note = Record::note(header, &sealed).pinned(&lease.writing).followed();
            let note = store.appender.append(note, false).await?;
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
            // A whole record names its version itself; loose pieces need an index to be found by.
            if !whole {
                let at = VersionRef { bucket: self.bucket.number, key: self.key.into(), number };
                transaction = transaction.put(OBJECTS, keys::number(row.object), encode(&Owner::Version(at)));
            }
        }
        // Content, note and key are ordered: the commit cannot be durable without them.
        let ((), entry) = entry.ordered().await?;
        let live = places(&row.note, &extents);
        let info = self.commit(store, transaction, number, row, lease, live).await?;
        // What is acknowledged rests on all of them: every piece, the note and the key were written with `fua`.
        for durable in stored.durable {
            durable.await?;
        }
        entry.await?;
        Ok(info)
    }

    /// Installs a version whose content is in place already: a completed upload, or a delete marker.
    pub async fn plain(
        self,
        store: &Arc<Store>,
        mut row: VersionRow,
        layout: Option<&Layout>,
        mut lease: Lease,
        transaction: Transaction,
    ) -> Result<ObjectInfo> {
        self.judge(store)?;
        let number = store.numbers.next().await?;
        let marker = row.marker;
        // An upload's entry was written when it began.
        let entry = if marker { Some(lease.write(self.bucket)) } else { None };
        let (sealed, sequence) = self.sealed_note(store, number, &row, layout).await?;
        let header = self.note_header(row.object, sealed.len(), sequence);
        let note = Record::note(header, &sealed).pinned(&lease.writing).followed();
        let (place, note) = store.appender.append(note, marker).await?.ordered().await?;
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
        let sequence = store.numbers.next().await?;
        let at = VersionRef { bucket: self.bucket.number, key: self.key.into(), number };
        let note = encode(&VersionNote { at, row: row.clone(), layout: layout.cloned() });
        let sealed = seal_note(&*store.surroundings, &self.bucket.note_key, &sequence.to_be_bytes(), &note);
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

    async fn commit(
        self,
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
        let mut removed: Option<Removed> = None;
        if row.null {
            let snapshot = store.snapshot()?;
            if let Some(replaced) = lookup::null_version(&*snapshot, bucket, self.key)? {
                let (with_removal, what) =
                    store.remove(transaction, self.caller, bucket, self.key, &replaced, Cause::Replaced).await?;
                transaction = with_removal;
                versions -= 1;
                bytes -= replaced.row.size as i64;
                removed = Some(what);
            }
        }
        let raw = encode(&row);
        transaction = transaction.equals(BUCKETS, keys::short(bucket.number), bucket.raw.clone()).put(
            VERSIONS,
            record_key.clone(),
            raw.clone(),
        );
        let at = VersionRef { bucket: bucket.number, key: self.key.into(), number };
        if let Some(retention) = row.retention {
            transaction = transaction.put(RETAINED, keys::numbers(retention.until.0, row.object), encode(&at));
        }
        if row.hold {
            transaction = transaction.put(HOLDS, keys::number(row.object), encode(&at));
        }
        let _protected = if row.retention.is_some() || row.hold { Some(store.ensure_protected().await?) } else { None };
        if lease.slot.used {
            transaction = transaction.delete(FREE_SLOTS, keys::number(lease.slot.number));
        }
        let before = transaction.preconditions.len();
        let transaction = bucket.count(transaction, versions, bytes);
        let counted = transaction.preconditions.len();
        let mut event = Event::new(self.caller, self.action).object(bucket.name(), self.key).version(row.id(number));
        event = match self.detail {
            Some(detail) => event.detail(detail),
            None if row.marker => event,
            None => event.detail(format!("{} bytes, blake3 {}", row.size, row.fingerprint())),
        };
        let transaction = store.with_record(transaction, event);
        let writing = Arc::clone(&lease.writing);
        let left = self.left;
        let committing = Committing::new(store, Proof { table: VERSIONS, key: record_key, value: Some(raw) })
            .writing(writing)
            .lease(lease)
            .lock(self.lock)
            .after(move |store| {
                live.into_iter().for_each(|place| store.segments.add_live(place));
                left.into_iter().for_each(|(stream, note)| store.clear_later(stream, note));
                removed.and_then(|removed| store.dispose(removed))
            });
        match committing.commit_within_bucket(transaction).await {
            Err(CatalogError::Failed(failure)) if (before..counted).contains(&failure.precondition) => {
                let quota = bucket.row.quota;
                return Err(ArchiveError::QuotaExceeded {
                    bucket: bucket.name().into(),
                    limit: quota.bytes.or(quota.versions).unwrap_or_default(),
                });
            }
            // A key that was replaced is destroyed soon: nobody waits for it.
            answer => answer.map(drop)?,
        }
        store.settle_due().await?;
        Ok(row.info(bucket, self.key, number, true))
    }
}

/// Puts extents in the row if they are few, else in rows of their own.
pub(crate) fn place_extents(
    mut transaction: Transaction,
    object: u64,
    stream: &mut crate::record::content::Stream,
    extents: &[Extent],
) -> Transaction {
    if extents.len() <= INLINE_EXTENTS {
        stream.extents = Some(extents.to_vec());
        return transaction;
    }
    stream.extents = None;
    for (chunk, extents) in extents.chunks(CHUNK_EXTENTS).enumerate() {
        let list = ExtentList { extents: extents.to_vec(), object };
        transaction = transaction.put(EXTENTS, keys::pair(stream.number, chunk as u32), encode(&list));
    }
    transaction
}

/// The records that hold these pieces and this note; one that holds both counts once.
pub(crate) fn places(note: &Place, extents: &[Extent]) -> Vec<Place> {
    let mut places: Vec<Place> = extents
        .iter()
        .map(|extent| Place { segment: extent.segment, at: extent.at, length: piece_length(extent) })
        .filter(|place| (place.segment, place.at) != (note.segment, note.at))
        .collect();
    if note.length > 0 {
        places.push(*note);
    }
    places
}

/// Bytes of a piece's record, without a note.
pub(crate) fn piece_length(extent: &Extent) -> u32 {
    record_length(sealed_length(extent.bytes as usize) as u32)
}

impl Store {
    /// The key of an object, from memory or unwrapped from its entry. The customer's key was recognised before.
    pub async fn object_key(
        &self,
        bucket: &Bucket,
        object: u64,
        slot: u64,
        customer: Option<&CustomerKey>,
        whose: impl Fn() -> String,
    ) -> Result<Arc<Secret>> {
        if let Some(key) = locked(&self.object_keys).get(&object) {
            return Ok(key);
        }
        let place = || format!("the key of {}", whose());
        let entry = self.keys.read(slot).await.map_err(|error| match error {
            ArchiveError::Damaged { message, .. } => {
                ArchiveError::damaged(place(), format!("key slot {slot} cannot be read: {message}"))
            }
            other => other,
        })?;
        let entry = entry
            .filter(|entry| entry.object == object && entry.bucket == bucket.number)
            .ok_or_else(|| ArchiveError::damaged(place(), format!("key slot {slot} does not hold it")))?;
        let bound = key_bound(object, slot);
        let key = match customer {
            None => bucket.wrap.unwrap(&bound, &entry.wrapped),
            Some(customer) => customer_wrap(bucket, customer).unwrap(&bound, &entry.wrapped),
        };
        let key = Arc::new(key.map_err(|_| ArchiveError::damaged(place(), "it does not unwrap"))?);
        locked(&self.object_keys).insert(object, Arc::clone(&key), 1);
        Ok(key)
    }
}
