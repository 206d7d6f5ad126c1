//! Writing a part: its body streams in, then it takes the place of an earlier part of the same
//! number.
//!
//! The order is that of a put: pieces and note ordered on the data volume, then the catalog's
//! commit, then the answer.

use std::ops::Range;
use std::sync::Arc;

use stele_catalog::{CatalogError, Transaction};

use super::{PART_NUMBER_MAX, PART_SIZE_MAX, PartRequest};
use crate::audit::Event;
use crate::model::action::Action;
use crate::model::bucket::check_key;
use crate::model::checksum::{Algorithm, Digests, Expected, Wanted};
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::{Access, Caller};
use crate::model::version::{ETag, Metadata, ObjectInfo, Tags, VersionId};
use crate::objects::body::{Body, Stored};
use crate::objects::put::{ObjectWriter, Target, algorithms_of, kept};
use crate::record::content::{Extent, Place, Stream};
use crate::record::part::{PartNote, PartRow};
use crate::record::{PARTS, fetch, keys};
use crate::removal::disposal::Cleared;
use crate::space::header::Kind;
use crate::space::order::Durable;
use crate::space::places::{place_extents, places};
use crate::space::segments::Writing;
use crate::state::buckets::Bucket;
use crate::state::owned::Limited;
use crate::state::usage::Counter;
use crate::store::committing::{Committing, Proof};
use crate::store::uploads::{Placed, Upload};
use crate::store::{Archive, Store};

/// The target of a part's body.
pub(crate) struct PartTarget {
    upload: Upload,
    number: u32,
    algorithms: Vec<Algorithm>,
    writing: Arc<Writing>,
}

/// A part whose pieces and note are ordered: a commit may refer to them.
struct WrittenPart {
    row: PartRow,
    extents: Vec<Extent>,
    stored: Stored,
    noted: Durable<Place>,
}

/// The transaction that adds a part to its upload.
struct PartChange {
    transaction: Transaction,
    /// The preconditions that fail where the quota has no room.
    quota: Range<usize>,
    limited: Limited,
    proof: Proof,
    /// The content of the earlier part of the same number.
    cleared: Cleared,
}

impl Archive {
    /// Begins to write a part. When finished, it replaces an earlier part of the same number.
    pub async fn put_part(&self, caller: &Caller, request: PartRequest) -> Result<ObjectWriter> {
        let (bucket, key) = (request.bucket.clone(), request.key.clone());
        let result = self.begin_part(caller, request).await;
        self.store().audited(result, || Event::new(caller, Action::PutPart).object(&bucket, &key)).await
    }

    async fn begin_part(&self, caller: &Caller, request: PartRequest) -> Result<ObjectWriter> {
        let store = &self.store();
        check_key(&request.key)?;
        store.writable()?;
        let bucket = store.authorized(caller, Access::Write, &request.bucket, &request.key)?;
        if !(1..=PART_NUMBER_MAX).contains(&request.number) {
            return Err(ArchiveError::InvalidArgument(format!("a part number is 1 to {PART_NUMBER_MAX}")));
        }
        if request.length.is_some_and(|length| length > PART_SIZE_MAX) {
            return Err(ArchiveError::TooLarge { limit: PART_SIZE_MAX });
        }
        let writing = store.segments().begin();
        let snapshot = store.snapshot()?;
        let upload = store.upload(&*snapshot, &bucket, &request.key, &request.upload)?;
        if let Some(length) = request.length {
            let object = upload.row.object;
            let replaced: Option<PartRow> = fetch(&*snapshot, PARTS, &keys::pair(object, request.number))?;
            let charge = store.charge(&*snapshot, &bucket, (&request.key, object), length, replaced.as_ref())?;
            bucket.has_room_for(&*snapshot, charge)?;
            store.has_owned_room(&*snapshot, &upload.row.owner, charge.added)?;
        }
        drop(snapshot);
        match (&upload.row.customer, &request.customer_key) {
            (None, None) => {}
            (Some(mark), Some(key)) if mark.recognises(key) => {}
            _ => {
                return Err(ArchiveError::InvalidRequest(
                    "a part must carry the customer key with which its upload was begun, or none if there was none"
                        .into(),
                ));
            }
        }
        if let (Some(begun), Some(sent)) = (upload.row.algorithm, request.algorithms.first())
            && begun != *sent
        {
            return Err(ArchiveError::InvalidRequest(format!(
                "Checksum Type mismatch occurred, expected checksum Type: {}, actual checksum Type: {}",
                begun.name().to_lowercase(),
                sent.name().to_lowercase()
            )));
        }
        let name = || format!("upload {} of `{}/{}`", upload.id(), bucket.name(), request.key);
        let customer = request.customer_key.as_ref();
        let key = store.object_key(&bucket, upload.row.object, upload.row.slot, customer, name).await?;
        let mut algorithms = request.algorithms.clone();
        algorithms.extend(upload.row.algorithm);
        // As for an object that is put: without a checksum from the client it gets one.
        let named = &request.expected;
        if algorithms.is_empty() && named.checksums.is_empty() && named.blake3.is_none() && !caller.gateway {
            algorithms.push(Algorithm::Crc64Nvme);
        }
        // The tag of the whole object comes from the MD5s of its parts.
        let wanted = Wanted { md5: true, others: algorithms_of(&request.expected, &algorithms) };
        let body = Body::new(store, upload.row.object, &key, wanted, request.length, &writing).await?;
        Ok(ObjectWriter {
            archive: self.clone(),
            caller: caller.clone(),
            bucket,
            key: request.key,
            length: request.length,
            expected: request.expected,
            body: Box::new(body),
            target: Target::Part(Box::new(PartTarget { upload, number: request.number, algorithms, writing })),
            ending: None,
        })
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) async fn finish_part(
        &self,
        caller: &Caller,
        bucket: Arc<Bucket>,
        key: String,
        target: PartTarget,
        body: Box<Body>,
        digests: Digests,
        expected: &Expected,
    ) -> Result<ObjectInfo> {
        let store = &self.store();
        let mut part = WrittenPart::write(store, &bucket, &target, body, digests, expected).await?;
        let PartTarget { upload, number, writing, .. } = target;
        let lock = store.lock(bucket.number, &key).await?;
        // The quota may have changed while the body arrived, and does not change until the commit.
        let _settled = store.settings_locks.share(bucket.number).await;
        let bucket = store.buckets().by_number(bucket.number).unwrap_or(bucket);
        let change = part.change(store, &bucket, &key, &upload, number)?;
        let event = Event::new(caller, Action::PutPart).object(bucket.name(), &key).detail(format!(
            "upload {}, part {number}, {} bytes",
            upload.id(),
            part.row.stream.size
        ));
        let (live, cleared) = (places(&part.row.note, &part.extents), change.cleared);
        let committing = Committing::new(store, change.proof).writing(writing).lock(lock).after(move |store| {
            live.into_iter().for_each(|place| store.segments().add_live(place));
            store.cleared(cleared);
            None
        });
        // The flushes behind the acknowledgement: the commit's, and those of the pieces and the
        // note.
        match committing.commit(store.with_record(change.transaction, event)).await {
            Err(CatalogError::Failed(failure)) if change.quota.contains(&failure.precondition) => {
                return Err(bucket.over_quota(Counter::Held));
            }
            Err(CatalogError::Failed(failure)) => {
                let refused = change.limited.refusal(&upload.row.owner, failure.precondition);
                return Err(refused.unwrap_or_else(|| ArchiveError::NoSuchUpload(upload.id())));
            }
            answer => answer.map(drop)?,
        }
        for durable in part.stored.durable {
            durable.await?;
        }
        part.noted.await?;
        Ok(part_info(&part.row, &bucket, key, caller))
    }
}

impl WrittenPart {
    /// Appends the part's note and the rest of its body.
    async fn write(
        store: &Arc<Store>,
        bucket: &Bucket,
        target: &PartTarget,
        body: Box<Body>,
        digests: Digests,
        expected: &Expected,
    ) -> Result<WrittenPart> {
        let object = target.upload.row.object;
        let mut row = PartRow {
            stream: Stream { number: body.stream, salt: body.salt, size: digests.length, extents: None },
            md5: digests.md5.ok_or_else(|| ArchiveError::InvalidRequest("a part needs its MD5".into()))?,
            blake3: digests.blake3,
            checksums: kept(&digests, &target.algorithms, expected),
            modified: store.wall(),
            note: Place::default(),
        };
        let note = PartNote { object, number: target.number, row: row.clone() };
        let record = store.note_record(Kind::Part, Some(bucket), object, &note).await?;
        let noted = store.appender().append(record.pinned(&target.writing).followed(), false).await?;
        let mut stored = body.finish(store, None).await?;
        let extents = std::mem::take(&mut stored.extents);
        let (place, noted) = noted.ordered().await?;
        row.note = place;
        Ok(WrittenPart { row, extents, stored, noted })
    }

    /// The change of the catalog. Under the key's lock.
    fn change(
        &mut self,
        store: &Store,
        bucket: &Bucket,
        key: &str,
        upload: &Upload,
        number: u32,
    ) -> Result<PartChange> {
        let transaction = place_extents(Transaction::new(), upload.row.object, &mut self.row.stream, &self.extents);
        let Placed { mut transaction, quota, limited, replaced, proof } =
            store.with_part(transaction, bucket, (key, upload, number), &self.row)?;
        let mut cleared = Cleared::default();
        if let Some(replaced) = replaced {
            transaction = store.clear_within(transaction, replaced.stream, replaced.note, &mut cleared)?;
        }
        Ok(PartChange { transaction, quota, limited, proof, cleared })
    }
}

/// A part in the form of an object, with the properties that a part has.
fn part_info(row: &PartRow, bucket: &Bucket, key: String, caller: &Caller) -> ObjectInfo {
    ObjectInfo {
        bucket: bucket.name().into(),
        key,
        version: VersionId::Null,
        versioned: false,
        latest: false,
        delete_marker: false,
        size: row.stream.size,
        etag: ETag { md5: row.md5, parts: None },
        modified: row.modified,
        metadata: Metadata::default(),
        tags: Tags::new(),
        retention: None,
        legal_hold: false,
        parts: None,
        checksums: row.checksums.clone(),
        blake3: row.blake3,
        customer_key_md5: None,
        owner: caller.actor.to_string(),
        logged: None,
    }
}
