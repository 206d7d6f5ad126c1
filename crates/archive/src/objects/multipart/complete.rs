//! The completion of an upload: the listed parts become an object.

use std::collections::BTreeMap;
use std::sync::Arc;

use stele_catalog::{Snapshot, Transaction};

use super::PART_SIZE_MIN;
use crate::audit::Event;
use crate::model::action::Action;
use crate::model::bucket::check_key;
use crate::model::checksum::{Algorithm, Checksum, ChecksumKind, composite, composite_blake3, composite_etag, joined};
use crate::model::class::VersionFacts;
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::{Access, Caller};
use crate::model::secrets::CustomerKey;
use crate::model::version::{ETag, ObjectInfo, Retention, VersionId};
use crate::objects::install::Install;
use crate::objects::put::{WriteCondition, check_metadata, content_type};
use crate::record::class::ClassMark;
use crate::record::content::{Content, Layout, LayoutPart, Place};
use crate::record::part::PartRow;
use crate::record::upload::UploadRow;
use crate::record::version::{VersionRef, VersionRow};
use crate::record::{PARTS, keys};
use crate::retention::rules::completed_retention;
use crate::space::compensations::NoteSubject;
use crate::state::buckets::Bucket;
use crate::state::usage::Counter;
use crate::store::alongside::Placement;
use crate::store::lease::Lease;
use crate::store::uploads::Upload;
use crate::store::uploads::part_rows;
use crate::store::{Archive, Store, lookup};

/// A part in the list of `CompleteMultipartUpload`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompletedPart {
    pub number: u32,
    pub etag: String,
    pub checksums: Vec<Checksum>,
}

#[derive(Clone, Default, Debug)]
pub struct CompleteRequest {
    pub bucket: String,
    pub key: String,
    pub upload: String,
    pub parts: Vec<CompletedPart>,
    pub condition: WriteCondition,
    /// The checksums of the whole object that the client expects.
    pub checksums: Vec<Checksum>,
    /// The type of that checksum, if the client names it.
    pub kind: Option<ChecksumKind>,
    /// Some clients send it. It must be the upload's key.
    pub customer_key: Option<CustomerKey>,
    /// The size of the whole object that the client expects.
    pub size: Option<u64>,
}

impl Archive {
    /// Makes the parts an object. A repeated completion returns the object that the first one made.
    pub async fn complete_upload(&self, caller: &Caller, request: CompleteRequest) -> Result<ObjectInfo> {
        self.complete_at(caller, request, None).await
    }

    /// As `complete_upload`, for the file gateway: the object gets another key than its upload, and
    /// the gateway's change takes effect with it. The gateway lets nothing else store a version of
    /// that key meanwhile.
    pub async fn complete_placed(
        &self,
        caller: &Caller,
        request: CompleteRequest,
        placement: Placement,
    ) -> Result<ObjectInfo> {
        self.complete_at(caller, request, Some(placement)).await
    }

    async fn complete_at(
        &self,
        caller: &Caller,
        request: CompleteRequest,
        placement: Option<Placement>,
    ) -> Result<ObjectInfo> {
        let result = self.try_complete(caller, &request, placement).await;
        let event = || Event::new(caller, Action::CompleteUpload).object(&request.bucket, &request.key);
        self.store().audited(result, event).await
    }

    async fn try_complete(
        &self,
        caller: &Caller,
        request: &CompleteRequest,
        placement: Option<Placement>,
    ) -> Result<ObjectInfo> {
        let target = placement.as_ref().map_or(request.key.as_str(), |placement| placement.key.as_str());
        let store = &self.store();
        check_key(&request.key)?;
        store.writable()?;
        // The lock of the upload's key: parts change under it. No second one is taken, which might
        // be the same.
        let (bucket, lock, settled) = store.lock_settled(caller, Access::Write, &request.bucket, &request.key).await?;
        let snapshot = store.snapshot()?;
        let upload = match store.upload(&*snapshot, &bucket, &request.key, &request.upload) {
            Ok(upload) => upload,
            Err(error) => return completed_before(&*snapshot, &bucket, request, target)?.ok_or(error),
        };
        if let Some(key) = &request.customer_key
            && !upload.row.customer.as_ref().is_some_and(|mark| mark.recognises(key))
        {
            return Err(ArchiveError::CustomerKey("the customer key is not the one the upload was begun with".into()));
        }
        check_kind(&upload.row, request)?;
        let mut rows = part_rows(&*snapshot, upload.row.object)?;
        drop(snapshot);
        let mut transaction = store.without_upload(Transaction::new(), &bucket, &request.key, &upload, &rows);
        let chosen = choose(&upload.row, request, &mut rows)?;
        let size: u64 = chosen.iter().map(|(_, row)| row.stream.size).sum();
        if let Some(wanted) = request.size
            && wanted != size
        {
            return Err(ArchiveError::InvalidRequest(format!(
                "the parts have {size} bytes, the request says {wanted}"
            )));
        }
        let checksums = whole_checksums(&upload.row, request, &chosen)?;
        let asked = (upload.row.retention, upload.row.hold);
        let (asked, retention, hold) = completed_retention(store, caller, &bucket, &request.key, asked)?;
        let named = &upload.row;
        let facts =
            VersionFacts { key: &request.key, tags: &named.tags, size, content_type: content_type(&named.metadata) };
        let (retention, class) = store.classified(caller, &bucket, named.class.as_deref(), facts, asked, retention)?;
        let layout = layout_of(&chosen);
        let version = Assembled { size, checksums, retention, hold, class };
        let mut row = version.row(store, &bucket, &upload, &chosen);
        if let Some(placement) = &placement {
            row.metadata.user.extend(placement.metadata.clone());
            check_metadata(&row.metadata)?;
        }
        // These parts were uploaded and not listed.
        for number in rows.keys() {
            transaction = transaction.delete(PARTS, keys::pair(upload.row.object, *number));
        }
        let lease = Lease::settled(store, upload.row.object, upload.row.slot);
        let install = Install {
            caller,
            action: Action::CompleteUpload,
            happened: "ObjectCreated:CompleteMultipartUpload",
            bucket: &bucket,
            key: target,
            condition: &request.condition,
            detail: Some(format!("upload {}, {} parts", upload.id(), layout.parts.len())),
            lock,
            // A client's parts found room before. The version is judged as it always was, by the
            // versions alone.
            compared: if bucket.is_gateways(&request.key) { Counter::Held } else { Counter::Bytes },
            left: rows.into_values().map(|row| (row.stream, row.note)).collect(),
            alongside: placement.as_ref().map(|placement| Arc::clone(&placement.alongside)),
        };
        let upload = VersionRef { bucket: bucket.number, key: request.key.clone(), number: upload.number };
        let mut noting = store.compensations().begin(NoteSubject::Upload(upload))?;
        noting.placed();
        let outcome = install.plain(store, row, Some(&layout), lease, transaction).await;
        // A compensating note takes locks whose holders may wait for a change of settings, which
        // waits for this.
        drop(settled);
        store.noted(noting, outcome).await
    }
}

/// The object that this upload became already, if the completion is a repetition.
fn completed_before(
    snapshot: &dyn Snapshot,
    bucket: &Bucket,
    request: &CompleteRequest,
    target: &str,
) -> Result<Option<ObjectInfo>> {
    let Ok(VersionId::Number(upload, _)) = VersionId::parse(&request.upload) else { return Ok(None) };
    let newest = lookup::newest(snapshot, bucket, target)?;
    let done = newest.filter(|found| found.row.upload == Some(upload));
    Ok(done.map(|found| found.info(bucket, target)))
}

fn layout_of(parts: &[(u32, PartRow)]) -> Layout {
    let part = |(number, row): &(u32, PartRow)| LayoutPart {
        number: *number,
        size: row.stream.size,
        stream: row.stream.number,
    };
    Layout { parts: parts.iter().map(part).collect() }
}

/// The properties of an object that its upload does not have.
struct Assembled {
    size: u64,
    checksums: Vec<Checksum>,
    retention: Option<Retention>,
    hold: bool,
    class: Option<ClassMark>,
}

impl Assembled {
    fn row(self, store: &Store, bucket: &Bucket, upload: &Upload, parts: &[(u32, PartRow)]) -> VersionRow {
        VersionRow {
            object: upload.row.object,
            salt: store.random(),
            null: !bucket.versioned(),
            marker: false,
            size: self.size,
            etag: composite_etag(parts.iter().map(|(_, row)| &row.md5)),
            modified: store.later_now(),
            owner: upload.row.owner.clone(),
            slot: upload.row.slot,
            metadata: upload.row.metadata.clone(),
            tags: upload.row.tags.clone(),
            retention: self.retention,
            hold: self.hold,
            checksums: self.checksums,
            blake3: composite_blake3(parts.iter().map(|(_, row)| &row.blake3)),
            customer: upload.row.customer.clone(),
            content: Content::Parts,
            note: Place::default(),
            notified: None,
            upload: Some(upload.number),
            matters: None,
            class: self.class,
            held: None,
        }
    }
}

/// Checks that the request and the upload name the same checksum algorithm and type. A checksum
/// that is not compared is refused.
fn check_kind(upload: &UploadRow, request: &CompleteRequest) -> Result<()> {
    if let Some(kind) = request.kind
        && upload.algorithm.is_some()
        && upload.kind != Some(kind)
    {
        return Err(ArchiveError::InvalidRequest(
            "the upload was begun with another checksum type; the completion must name the same".into(),
        ));
    }
    let name = |algorithm: Option<Algorithm>| algorithm.map_or("none", Algorithm::name);
    match request.checksums.iter().find(|wanted| Some(wanted.algorithm) != upload.algorithm) {
        None => Ok(()),
        Some(wanted) => Err(ArchiveError::InvalidRequest(format!(
            "Checksum Type mismatch occurred, expected checksum Type: {}, actual checksum Type: {}",
            name(upload.algorithm).to_lowercase(),
            wanted.algorithm.name().to_lowercase()
        ))),
    }
}

/// The rows of the listed parts, in order, taken out of `rows`.
fn choose(
    upload: &UploadRow,
    request: &CompleteRequest,
    rows: &mut BTreeMap<u32, PartRow>,
) -> Result<Vec<(u32, PartRow)>> {
    // As on AWS: for a composite checksum the client has to send the parts' checksums.
    let demanded = upload.algorithm.filter(|_| upload.kind == Some(ChecksumKind::Composite));
    if request.parts.is_empty() {
        return Err(ArchiveError::InvalidRequest("a completion lists at least one part".into()));
    }
    if request.parts.windows(2).any(|pair| pair[0].number >= pair[1].number) {
        return Err(ArchiveError::InvalidPartOrder);
    }
    let mut chosen = Vec::with_capacity(request.parts.len());
    for part in &request.parts {
        let invalid = |message: &str| ArchiveError::InvalidPart { number: part.number, message: message.into() };
        let row = rows.remove(&part.number).ok_or_else(|| invalid("it was not uploaded"))?;
        if ETag::parse(&part.etag) != Some(ETag { md5: row.md5, parts: None }) {
            return Err(invalid("its entity tag differs"));
        }
        for checksum in &part.checksums {
            let have = row.checksums.iter().find(|have| have.algorithm == checksum.algorithm);
            if have.is_none_or(|have| have.value != checksum.value) {
                return Err(invalid("its checksum differs"));
            }
        }
        if let Some(algorithm) = demanded
            && !part.checksums.iter().any(|checksum| checksum.algorithm == algorithm)
        {
            return Err(ArchiveError::InvalidRequest(format!(
                "The upload was created using a {} checksum. The complete request must include the checksum for each part. It was missing for part {} in the request.",
                algorithm.name().to_lowercase(),
                part.number
            )));
        }
        chosen.push((part.number, row));
    }
    let last = chosen.len() - 1;
    if let Some((number, row)) = chosen.iter().take(last).find(|(_, row)| row.stream.size < PART_SIZE_MIN) {
        return Err(ArchiveError::PartTooSmall { number: *number, size: row.stream.size });
    }
    Ok(chosen)
}

/// The checksum of the whole object as the upload specified it, compared with the client's.
fn whole_checksums(upload: &UploadRow, request: &CompleteRequest, parts: &[(u32, PartRow)]) -> Result<Vec<Checksum>> {
    let Some(algorithm) = upload.algorithm else { return Ok(unnamed_checksum(parts).into_iter().collect()) };
    let mut sums = Vec::with_capacity(parts.len());
    for (number, row) in parts {
        let sum = row.checksums.iter().find(|sum| sum.algorithm == algorithm).ok_or_else(|| {
            ArchiveError::InvalidPart { number: *number, message: format!("it has no {} checksum", algorithm.name()) }
        })?;
        sums.push((sum, row.stream.size));
    }
    let whole = match upload.kind {
        Some(ChecksumKind::FullObject) => joined(algorithm, &sums),
        _ => Some(composite(algorithm, &sums.iter().map(|(sum, _)| *sum).collect::<Vec<_>>())),
    };
    let Some(whole) = whole else { return Ok(Vec::new()) };
    for wanted in request.checksums.iter().filter(|wanted| wanted.algorithm == algorithm) {
        if wanted.value != whole.value || wanted.parts.is_some_and(|parts| Some(parts) != whole.parts) {
            return Err(ArchiveError::BadDigest {
                algorithm: algorithm.name(),
                expected: wanted.to_string(),
                computed: whole.to_string(),
            });
        }
    }
    Ok(vec![whole])
}

/// The checksum of an object whose upload named no algorithm, if each of its parts got this one.
fn unnamed_checksum(parts: &[(u32, PartRow)]) -> Option<Checksum> {
    let algorithm = Algorithm::Crc64Nvme;
    let sums = parts.iter().map(|(_, row)| {
        let sum = row.checksums.iter().find(|sum| sum.algorithm == algorithm)?;
        Some((sum, row.stream.size))
    });
    joined(algorithm, &sums.collect::<Option<Vec<_>>>()?)
}
