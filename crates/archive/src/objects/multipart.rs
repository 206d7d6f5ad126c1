//! Multipart uploads: parts in any order, each replaceable until the upload is completed.

mod complete;
mod listing;
mod parts;

use stele_catalog::Transaction;

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::bucket::{check_key, check_tags};
use crate::model::checksum::{Algorithm, ChecksumKind, Expected};
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::{Access, Caller};
use crate::model::secrets::CustomerKey;
use crate::model::time::Timestamp;
use crate::model::version::{Metadata, Retention, Tags};
use crate::objects::put::check_metadata;
use crate::record::upload::UploadRow;
use crate::record::version::{CustomerMark, Owner, VersionRef};
use crate::record::{BUCKETS, FREE_SLOTS, OBJECTS, UPLOADS, encode, keys};
use crate::retention::rules::initial_retention;
use crate::store::Archive;
use crate::store::committing::{Committing, Proof};
use crate::store::lease::Lease;
use crate::store::uploads::Upload;

pub use complete::{CompleteRequest, CompletedPart};
pub(crate) use parts::PartTarget;

pub const PART_NUMBER_MAX: u32 = 10_000;
/// Bytes of every part but the last.
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
    /// The management class that the request names.
    pub class: Option<String>,
    pub algorithm: Option<Algorithm>,
    /// None: the usual type for the algorithm.
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
        check_metadata(&request.metadata)?;
        check_tags(&request.tags, 10)?;
        // Held until the outcome of the commit is known, so that no other request completes or
        // aborts the upload before.
        let (bucket, lock, _settled) = store.lock_settled(caller, Access::Write, &request.bucket, &request.key).await?;
        initial_retention(store, caller, &bucket, &request.key, request.retention, request.legal_hold)?;
        store.named_class(caller, &bucket, &request.key, request.class.as_deref(), &request.tags)?;
        let kind = request.algorithm.map(|algorithm| request.kind.unwrap_or(algorithm.default_kind()));
        let sha = matches!(request.algorithm, Some(Algorithm::Sha1 | Algorithm::Sha256));
        let crc64 = request.algorithm == Some(Algorithm::Crc64Nvme);
        if (sha && kind == Some(ChecksumKind::FullObject)) || (crc64 && kind == Some(ChecksumKind::Composite)) {
            return Err(ArchiveError::InvalidRequest(format!(
                "the {} checksum of a multipart object cannot have that type",
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
            initiated: store.later_now(),
            metadata: request.metadata,
            tags: request.tags,
            retention: request.retention,
            hold: request.legal_hold,
            class: request.class,
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
        let proof = Proof { table: UPLOADS, key: record_key, value: Some(upload.raw.clone()) };
        let committing = Committing::new(store, proof).lease(lease).lock(lock);
        // The flushes behind the acknowledgement: the commit's, and that of the key's entry.
        committing.commit_within_bucket(store.with_record(transaction, event)).await?;
        entry.await?;
        let mut info = upload.info(bucket.name(), &request.key);
        info.customer_key_md5 = request.customer_key.as_ref().map(CustomerKey::md5);
        Ok(info)
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
}
