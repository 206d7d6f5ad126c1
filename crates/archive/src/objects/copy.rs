//! Copying inside the store: the content is read, verified, and written under a new key.

use std::ops::RangeInclusive;

use crate::model::checksum::{Algorithm, Expected};
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::Caller;
use crate::model::secrets::CustomerKey;
use crate::model::version::{Metadata, ObjectInfo, PartInfo, Retention, Tags, VersionId};
use crate::objects::get::{ByteRange, GetRequest, ObjectReader, ReadCondition};
use crate::objects::multipart::PartRequest;
use crate::objects::put::{BODY_MAX, ObjectWriter, PutRequest, Way, WriteCondition};
use crate::retention::classes::CLASS_TAG;
use crate::store::Archive;

/// The header of an object that redirects to another.
const REDIRECT: &str = "x-amz-website-redirect-location";

#[derive(Clone, Default, Debug)]
pub struct CopySource {
    pub bucket: String,
    pub key: String,
    pub version: Option<VersionId>,
    pub condition: ReadCondition,
    pub customer_key: Option<CustomerKey>,
}

#[derive(Clone, Default, Debug)]
pub struct CopyRequest {
    pub source: CopySource,
    pub bucket: String,
    pub key: String,
    /// None: the source's metadata. A copy onto itself must replace something, or be wanted `anew`.
    pub metadata: Option<Metadata>,
    /// Where the copy redirects to, if the source's metadata is taken: that of the source is never
    /// copied.
    pub redirect: Option<String>,
    pub tags: Option<Tags>,
    pub retention: Option<Retention>,
    pub legal_hold: bool,
    /// The management class that the request names. Without one, a rule of the bucket may bind the
    /// copy.
    pub class: Option<String>,
    pub condition: WriteCondition,
    pub algorithm: Option<Algorithm>,
    pub customer_key: Option<CustomerKey>,
    /// The request names the store's encryption or a storage class: the object is to be stored
    /// anew, as it is.
    pub anew: bool,
}

/// The copy, and the version that was copied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copied {
    pub object: ObjectInfo,
    pub source: VersionId,
    pub source_versioned: bool,
}

impl CopySource {
    /// The request that reads it.
    pub fn read(&self, range: ByteRange) -> GetRequest {
        GetRequest {
            bucket: self.bucket.clone(),
            key: self.key.clone(),
            version: self.version,
            range,
            condition: self.condition.clone(),
            customer_key: self.customer_key.clone(),
        }
    }
}

/// The source's metadata with the redirect of the copy.
fn redirecting(mut metadata: Metadata, redirect: Option<String>) -> Metadata {
    metadata.headers.remove(REDIRECT);
    metadata.headers.extend(redirect.map(|to| (REDIRECT.to_owned(), to)));
    metadata
}

impl CopyRequest {
    /// Refuses a copy that would change nothing.
    pub fn check(&self) -> Result<()> {
        let (request, source) = (self, &self.source);
        let itself = source.bucket == request.bucket && source.key == request.key && source.version.is_none();
        let replaces = request.metadata.is_some()
            || request.tags.is_some()
            || request.class.is_some()
            || request.customer_key.is_some()
            || source.customer_key.is_some()
            || request.algorithm.is_some()
            || request.anew;
        if itself && !replaces {
            return Err(ArchiveError::InvalidRequest(
                "a copy of an object onto itself must change its metadata, tags, checksum or encryption".into(),
            ));
        }
        Ok(())
    }

    /// The put that stores the copy of a source with these properties. Any writer may have tagged
    /// the source, so only the request and its tags name a class.
    pub fn put(self, mut from: ObjectInfo) -> Result<PutRequest> {
        let request = self;
        from.tags.remove(CLASS_TAG);
        if from.size > BODY_MAX {
            return Err(ArchiveError::TooLarge { limit: BODY_MAX });
        }
        let algorithms = match request.algorithm {
            Some(algorithm) => vec![algorithm],
            // As each new object: the parts of an upload can leave one without a checksum.
            None if from.checksums.is_empty() => vec![Algorithm::Crc64Nvme],
            None => from.checksums.iter().map(|checksum| checksum.algorithm).collect(),
        };
        Ok(PutRequest {
            bucket: request.bucket,
            key: request.key,
            length: Some(from.size),
            metadata: request.metadata.unwrap_or_else(|| redirecting(from.metadata, request.redirect)),
            tags: request.tags.unwrap_or(from.tags),
            retention: request.retention,
            legal_hold: request.legal_hold,
            class: request.class,
            condition: request.condition,
            way: Way::Copy,
            expected: Expected::default(),
            algorithms,
            without_md5: false,
            customer_key: request.customer_key,
        })
    }
}

impl Archive {
    pub async fn copy(&self, caller: &Caller, request: CopyRequest) -> Result<Copied> {
        request.check()?;
        let mut reader = self.open_source(caller, &request.source, ByteRange::Whole).await?;
        let from = reader.info.clone();
        let writer = self.put(caller, request.put(from.clone())?).await?;
        let object = transfer(&mut reader, writer).await?;
        Ok(Copied { object, source: from.version, source_versioned: from.versioned })
    }

    /// Copies a range of an object as a part. `part.length` and digests are ignored. Also returns
    /// the source's version.
    pub async fn copy_part(
        &self,
        caller: &Caller,
        source: CopySource,
        range: Option<RangeInclusive<u64>>,
        part: PartRequest,
    ) -> Result<(PartInfo, VersionId)> {
        let wanted = match &range {
            Some(range) => ByteRange::From { first: *range.start(), last: Some(*range.end()) },
            None => ByteRange::Whole,
        };
        let mut reader = self.open_source(caller, &source, wanted).await?;
        // Unlike a get, a copy of a range that ends behind the source is refused.
        if let Some(range) = &range
            && *range.end() >= reader.info.size
        {
            return Err(ArchiveError::InvalidArgument(format!(
                "the range ends behind the source, which has {} bytes",
                reader.info.size
            )));
        }
        let version = reader.info.version;
        let number = part.number;
        let length = reader.range.end - reader.range.start;
        let part = PartRequest { length: Some(length), expected: Expected::default(), ..part };
        let writer = self.put_part(caller, part).await?;
        let info = transfer(&mut reader, writer).await?;
        let part =
            PartInfo { number, size: info.size, etag: info.etag, modified: info.modified, checksums: info.checksums };
        Ok((part, version))
    }

    async fn open_source(&self, caller: &Caller, source: &CopySource, range: ByteRange) -> Result<ObjectReader> {
        match self.get(caller, source.read(range)).await {
            Err(ArchiveError::NotModified { .. }) => {
                Err(ArchiveError::PreconditionFailed("the condition excludes the source".into()))
            }
            other => other,
        }
    }
}

/// Moves content from one object to another.
pub async fn transfer(reader: &mut ObjectReader, mut writer: ObjectWriter) -> Result<ObjectInfo> {
    while let Some(bytes) = reader.next().await {
        writer.write(bytes?).await?;
    }
    writer.finish(Expected::default()).await
}
