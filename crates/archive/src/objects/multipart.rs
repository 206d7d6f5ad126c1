//! Multipart uploads: parts in any order, each replaceable until the upload is completed.

mod complete;

use std::sync::Arc;

use stele_catalog::{CatalogError, Direction, KeyRange, Transaction};

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::bucket::{check_key, check_tags};
use crate::model::checksum::{Algorithm, ChecksumKind, Digests, Expected};
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::{Access, Caller};
use crate::model::secrets::CustomerKey;
use crate::model::time::Timestamp;
use crate::model::version::{ETag, Metadata, ObjectInfo, PartInfo, Retention, Tags, VersionId};
use crate::objects::body::Body;
use crate::objects::list::{LIMIT_MAX, common_prefix, end_of_prefix};
use crate::objects::put::{ObjectWriter, Target, check_metadata, kept, wanted};
use crate::record::content::{Place, Stream};
use crate::record::part::{PartNote, PartRow};
use crate::record::upload::UploadRow;
use crate::record::version::{CustomerMark, Owner, VersionRef};
use crate::record::{BUCKETS, FREE_SLOTS, OBJECTS, PARTS, UPLOADS, decode, encode, keys};
use crate::retention::rules::initial_retention;
use crate::space::header::Kind;
use crate::space::places::{place_extents, places};
use crate::space::segments::Writing;
use crate::state::buckets::Bucket;
use crate::store::committing::{Committing, Proof};
use crate::store::lease::Lease;
use crate::store::scan::Scan;
use crate::store::uploads::Upload;
use crate::store::{Archive, Store};

pub use complete::{CompleteRequest, CompletedPart};

pub const PART_NUMBER_MAX: u32 = 10_000;
/// Every part but the last.
pub const PART_SIZE_MIN: u64 = 5 << 20;
pub const PART_SIZE_MAX: u64 = 5 << 30;

#[derive(Clone, Default, Debug)]
pub struct NewUpload {
    pub bucket: String,
    pub key: String,
    pub metadata: Metadata,
    pub tags: Tags,
    pub retention: Option<Retention>,
    pub legal_hold: bool,
    pub algorithm: Option<Algorithm>,
    /// None: the algorithm's usual kind.
    pub kind: Option<ChecksumKind>,
    pub customer_key: Option<CustomerKey>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UploadInfo {
    pub bucket: String,
    pub key: String,
    pub upload: String,
    pub initiated: Timestamp,
    pub owner: String,
    pub algorithm: Option<Algorithm>,
    pub kind: Option<ChecksumKind>,
    pub customer_key_md5: Option<String>,
}

#[derive(Clone, Default, Debug)]
pub struct PartRequest {
    pub bucket: String,
    pub key: String,
    pub upload: String,
    /// 1 to 10,000.
    pub number: u32,
    pub length: Option<u64>,
    pub expected: Expected,
    pub algorithms: Vec<Algorithm>,
    pub customer_key: Option<CustomerKey>,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ListUploadsRequest {
    pub bucket: String,
    pub prefix: String,
    pub delimiter: Option<String>,
    pub key_marker: Option<String>,
    pub upload_marker: Option<String>,
    pub limit: usize,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct UploadsPage {
    pub uploads: Vec<UploadInfo>,
    pub common_prefixes: Vec<String>,
    pub truncated: bool,
    pub next_key_marker: Option<String>,
    pub next_upload_marker: Option<String>,
}

/// The part that a body becomes.
pub(crate) struct PartTarget {
    upload: Upload,
    number: u32,
    algorithms: Vec<Algorithm>,
    writing: Arc<Writing>,
}

impl Upload {
    fn info(&self, bucket: &str, key: &str) -> UploadInfo {
        UploadInfo {
            bucket: bucket.into(),
            key: key.into(),
            upload: self.id(),
            initiated: self.row.initiated,
            owner: self.row.owner.to_string(),
            algorithm: self.row.algorithm,
            kind: self.row.kind,
            customer_key_md5: None,
        }
    }
}

impl Store {}

impl Archive {
    pub async fn create_upload(&self, caller: &Caller, request: NewUpload) -> Result<UploadInfo> {
        let (bucket, key) = (request.bucket.clone(), request.key.clone());
        let result = self.try_create_upload(caller, request).await;
        self.store().audited(result, || Event::new(caller, Action::CreateUpload).object(&bucket, &key)).await
    }

    async fn try_create_upload(&self, caller: &Caller, request: NewUpload) -> Result<UploadInfo> {
        let store = &self.store();
        check_key(&request.key)?;
        store.writable()?;
        let bucket = store.authorized(caller, Access::Write, &request.bucket, &request.key)?;
        check_metadata(&request.metadata)?;
        check_tags(&request.tags, 10)?;
        initial_retention(store, caller, &bucket, &request.key, request.retention, request.legal_hold)?;
        let kind = request.algorithm.map(|algorithm| request.kind.unwrap_or(algorithm.default_kind()));
        let sha = matches!(request.algorithm, Some(Algorithm::Sha1 | Algorithm::Sha256));
        let crc64 = request.algorithm == Some(Algorithm::Crc64Nvme);
        if (sha && kind == Some(ChecksumKind::FullObject)) || (crc64 && kind == Some(ChecksumKind::Composite)) {
            return Err(ArchiveError::InvalidRequest(format!(
                "{} of a multipart object cannot be of that type",
                request.algorithm.map_or("", Algorithm::name)
            )));
        }
        let mut lease = Lease::new(store, &bucket, request.customer_key.as_ref()).await?;
        let entry = lease.write(&bucket);
        let number = store.numbers().next().await?;
        let row = UploadRow {
            object: lease.object,
            slot: lease.slot.number,
            owner: caller.actor.clone(),
            initiated: store.wall(),
            metadata: request.metadata,
            tags: request.tags,
            retention: request.retention,
            hold: request.legal_hold,
            algorithm: request.algorithm,
            kind,
            customer: request
                .customer_key
                .as_ref()
                .map(|key| CustomerMark::of(key, crate::seal::random_salt(store.surroundings()))),
            salt: store.random(),
        };
        let raw = encode(&row);
        let at = VersionRef { bucket: bucket.number, key: request.key.clone(), number };
        let record_key = keys::upload(bucket.number, &request.key, number);
        let mut transaction = Transaction::new()
            .equals(BUCKETS, keys::short(bucket.number), bucket.raw.clone())
            .put(UPLOADS, record_key.clone(), raw.clone())
            .put(OBJECTS, keys::number(row.object), encode(&Owner::Upload(at)));
        if lease.slot.used {
            transaction = transaction.delete(FREE_SLOTS, keys::number(lease.slot.number));
        }
        let ((), entry) = entry.ordered().await?;
        let upload = Upload { number, row, raw };
        let event = Event::new(caller, Action::CreateUpload).object(bucket.name(), &request.key).detail(upload.id());
        // Held until it is known whether the upload exists, so that nobody completes or aborts it before.
        let lock = store.lock(bucket.number, &request.key).await?;
        let proof = Proof { table: UPLOADS, key: record_key, value: Some(upload.raw.clone()) };
        let committing = Committing::new(store, proof).lease(lease).lock(lock);
        // The flushes behind the acknowledgement: the commit's, and that of the key's entry.
        committing.commit_within_bucket(store.with_record(transaction, event)).await?;
        entry.await?;
        let mut info = upload.info(bucket.name(), &request.key);
        info.customer_key_md5 = request.customer_key.as_ref().map(CustomerKey::md5);
        Ok(info)
    }

    /// Begins to write a part; replaces an earlier one of the same number when finished.
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
        drop(snapshot);
        match (&upload.row.customer, &request.customer_key) {
            (None, None) => {}
            (Some(mark), Some(key)) if mark.recognises(key) => {}
            _ => {
                return Err(ArchiveError::InvalidRequest(
                    "the parts of an upload are encrypted as the upload was begun, with the same customer key".into(),
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
        let wanted = wanted(&request.expected, &algorithms);
        let body = Body::new(store, upload.row.object, &key, wanted, request.length, &writing).await?;
        Ok(ObjectWriter {
            archive: self.clone(),
            caller: caller.clone(),
            bucket,
            key: request.key,
            length: request.length,
            expected: request.expected,
            body,
            target: Target::Part(Box::new(PartTarget { upload, number: request.number, algorithms, writing })),
        })
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) async fn finish_part(
        &self,
        caller: &Caller,
        bucket: Arc<Bucket>,
        key: String,
        target: PartTarget,
        body: Body,
        digests: Digests,
        expected: &Expected,
    ) -> Result<ObjectInfo> {
        let store = &self.store();
        let PartTarget { upload, number, algorithms, writing } = target;
        let object = upload.row.object;
        let mut row = PartRow {
            stream: Stream { number: body.stream, salt: body.salt, size: digests.length, extents: None },
            md5: digests.md5,
            blake3: digests.blake3,
            checksums: kept(&digests, &algorithms, expected),
            modified: store.wall(),
            note: Place::default(),
        };
        let note = PartNote { object, number, row: row.clone() };
        let record = store.note_record(Kind::Part, Some(&bucket), object, &note).await?.pinned(&writing).followed();
        let noted = store.appender().append(record, false).await?;
        let mut stored = body.finish(store, None).await?;
        let extents = std::mem::take(&mut stored.extents);
        let (place, noted) = noted.ordered().await?;
        row.note = place;
        let part_key = keys::pair(object, number);

        let lock = store.lock(bucket.number, &key).await?;
        let snapshot = store.snapshot()?;
        let replaced = snapshot.get(PARTS, &part_key)?;
        drop(snapshot);
        let mut transaction =
            Transaction::new().equals(UPLOADS, keys::upload(bucket.number, &key, upload.number), upload.raw.clone());
        transaction = match &replaced {
            Some(raw) => transaction.equals(PARTS, part_key.clone(), raw.clone()),
            None => transaction.absent(PARTS, part_key.clone()),
        };
        transaction = place_extents(transaction, object, &mut row.stream, &extents);
        let raw = encode(&row);
        transaction = transaction.put(PARTS, part_key.clone(), raw.clone());
        let event = Event::new(caller, Action::PutPart).object(bucket.name(), &key).detail(format!(
            "upload {}, part {number}, {} bytes",
            upload.id(),
            row.stream.size
        ));
        let replaced: Option<PartRow> = replaced.map(|raw| decode(PARTS, &part_key, &raw)).transpose()?;
        let live = places(&row.note, &extents);
        let proof = Proof { table: PARTS, key: part_key, value: Some(raw) };
        let committing = Committing::new(store, proof).writing(writing).lock(lock).after(move |store| {
            live.into_iter().for_each(|place| store.segments().add_live(place));
            if let Some(replaced) = replaced {
                store.clear_later(replaced.stream, replaced.note);
            }
            None
        });
        // The flushes behind the acknowledgement: the commit's, and those of the pieces and the note.
        match committing.commit(store.with_record(transaction, event)).await {
            Err(CatalogError::Failed(_)) => return Err(ArchiveError::NoSuchUpload(upload.id())),
            answer => answer.map(drop)?,
        }
        for durable in stored.durable {
            durable.await?;
        }
        noted.await?;
        Ok(ObjectInfo {
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
            checksums: row.checksums,
            blake3: row.blake3,
            customer_key_md5: None,
            owner: caller.actor.to_string(),
        })
    }

    pub async fn abort_upload(&self, caller: &Caller, bucket: &str, key: &str, upload: &str) -> Result<()> {
        let result = self.try_abort(caller, bucket, key, upload).await;
        let event = || Event::new(caller, Action::AbortUpload).object(bucket, key).detail(upload.into());
        self.store().audited(result, event).await
    }

    async fn try_abort(&self, caller: &Caller, bucket: &str, key: &str, id: &str) -> Result<()> {
        let store = &self.store();
        store.writable()?;
        check_key(key)?;
        let bucket = store.authorized(caller, Access::Write, bucket, key)?;
        let lock = store.lock(bucket.number, key).await?;
        let snapshot = store.snapshot()?;
        let upload = store.upload(&*snapshot, &bucket, key, id)?;
        drop(snapshot);
        store.remove_upload(caller, &bucket, key, &upload, id, lock).await
    }

    /// The upload, its parts with numbers above `after`, at most `limit`, and whether more follow.
    pub async fn list_parts(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        upload: &str,
        after: u32,
        limit: usize,
    ) -> Result<(UploadInfo, Vec<PartInfo>, bool)> {
        let store = &self.store();
        check_key(key)?;
        let authorized = store.authorized(caller, Access::Write, bucket, key);
        let bucket = store.audited(authorized, || Event::new(caller, Action::List).object(bucket, key)).await?;
        let snapshot = store.snapshot()?;
        let upload = store.upload(&*snapshot, &bucket, key, upload)?;
        let range = KeyRange::prefix(keys::number(upload.row.object)).after(keys::pair(upload.row.object, after));
        let limit = limit.min(LIMIT_MAX);
        let page = snapshot.range(PARTS, &range, limit + 1, Direction::Forward)?;
        let more = page.len() > limit;
        let mut parts = Vec::with_capacity(page.len());
        for (record_key, value) in page.iter().take(limit) {
            let row: PartRow = decode(PARTS, record_key, value)?;
            let number = record_key.last_chunk::<4>().copied().map(u32::from_be_bytes).unwrap_or_default();
            parts.push(row.info(number));
        }
        Ok((upload.info(bucket.name(), key), parts, more))
    }

    pub async fn list_uploads(&self, caller: &Caller, request: ListUploadsRequest) -> Result<UploadsPage> {
        let result = self.try_list_uploads(caller, &request);
        self.store().audited(result, || Event::new(caller, Action::List).bucket(&request.bucket)).await
    }

    fn try_list_uploads(&self, caller: &Caller, request: &ListUploadsRequest) -> Result<UploadsPage> {
        let store = &self.store();
        let bucket = store.authorized(caller, Access::List, &request.bucket, &request.prefix)?;
        let limit = request.limit.min(LIMIT_MAX);
        let mut page = UploadsPage::default();
        if limit == 0 {
            return Ok(page);
        }
        let snapshot = store.snapshot()?;
        let mut scan = Scan::new(&*snapshot, UPLOADS, KeyRange::prefix(keys::prefix(bucket.number, &request.prefix)));
        if let Some(marker) = request.key_marker.as_deref().filter(|marker| !marker.is_empty()) {
            let upload = request.upload_marker.as_deref().filter(|upload| !upload.is_empty());
            match upload.map(VersionId::parse).transpose()? {
                Some(VersionId::Number(number, _)) => {
                    scan.skip_to(keys::upload(bucket.number, marker, number.saturating_add(1)));
                }
                _ => scan.skip_to(keys::behind(bucket.number, marker)),
            }
        }
        let mut last: Option<(String, Option<String>)> = None;
        while let Some((record_key, value)) = scan.next()? {
            let (_, key, number) = keys::split(&record_key)?;
            if page.uploads.len() + page.common_prefixes.len() == limit {
                page.truncated = true;
                if let Some((key, upload)) = last {
                    page.next_key_marker = Some(key);
                    page.next_upload_marker = upload;
                }
                break;
            }
            match common_prefix(&key, &request.prefix, request.delimiter.as_deref()) {
                Some(common) => {
                    last = Some((common.to_string(), None));
                    page.common_prefixes.push(common.to_string());
                    match end_of_prefix(bucket.number, common) {
                        Some(end) => scan.skip_to(end),
                        None => break,
                    }
                }
                None => {
                    let row = decode(UPLOADS, &record_key, &value)?;
                    let info = Upload { number, row, raw: value }.info(bucket.name(), &key);
                    last = Some((key, Some(info.upload.clone())));
                    page.uploads.push(info);
                }
            }
        }
        Ok(page)
    }
}
