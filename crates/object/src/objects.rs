//! The objects of buckets and of shares, for the operations of S3.
//!
//! A bucket's objects are the archive's own. Those of a share are files, which the file gateway
//! finds by their paths: every operation goes through its view, or acts on the file's key as the
//! caller that the view returns. No S3 key reaches the archive's own keys of a share.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use stele_archive::{
    Access, Archive, ArchiveError, ByteRange, Caller, CompleteRequest, Copied, CopyRequest, CopySource, CustomerKey,
    DeleteRequest, Deleted, Expected, FileHeld, GetRequest, ListPage, ListRequest, ListUploadsRequest,
    ListVersionsRequest, Located, NewUpload, ObjectInfo, ObjectReader, ObjectWriter, PartInfo, PartRequest, PutRequest,
    Result, Retention, ShareObjects, Shares, Tags, UploadInfo, UploadsPage, VersionId, VersionsPage, transfer,
    upload_key,
};

/// The prefix of the names of metadata that belong to the gateway.
const GATEWAY_METADATA: &str = "stele-";

/// The archive and the open shares.
#[derive(Clone)]
pub struct Objects {
    archive: Archive,
    shares: Option<Arc<dyn Shares>>,
}

/// What an operation on versions acts on.
struct Target {
    caller: Caller,
    key: String,
    directory: Option<Box<ObjectInfo>>,
    /// The archive's key is another than the client's.
    placed: bool,
    /// Keeps the file of a share as it was located, while its retention or its hold is changed.
    _held: Option<FileHeld>,
}

impl Objects {
    pub fn new(archive: Archive, shares: Option<Arc<dyn Shares>>) -> Objects {
        Objects { archive, shares }
    }

    /// Whether the bucket is an open share.
    pub fn is_share(&self, bucket: &str) -> bool {
        self.share(bucket).is_some()
    }

    fn share(&self, bucket: &str) -> Option<Arc<dyn ShareObjects>> {
        self.shares.as_ref().and_then(|shares| shares.objects(bucket))
    }

    async fn target(
        &self,
        caller: &Caller,
        access: Access,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
    ) -> Result<Target> {
        let Some(share) = self.share(bucket) else {
            return Ok(Target {
                caller: caller.clone(),
                key: key.to_owned(),
                directory: None,
                placed: false,
                _held: None,
            });
        };
        let Located { caller, key, directory, held } = share.locate(caller, access, key, version).await?;
        Ok(Target { caller, key, directory, placed: true, _held: held })
    }

    /// A target with versions.
    async fn versioned(
        &self,
        caller: &Caller,
        access: Access,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
    ) -> Result<Target> {
        let target = self.target(caller, access, bucket, key, version).await?;
        match target.directory {
            None => Ok(target),
            Some(_) => Err(ArchiveError::InvalidRequest(format!(
                "`{bucket}/{key}` is a directory of a share, which has no content, no tags and no retention"
            ))),
        }
    }

    pub async fn get(&self, caller: &Caller, request: GetRequest) -> Result<ObjectReader> {
        let key = request.key.clone();
        let target = self.target(caller, Access::Read, &request.bucket, &key, request.version).await?;
        if let Some(info) = target.directory {
            return ObjectReader::empty(*info, &request.condition);
        }
        let request = GetRequest { key: target.key.clone(), ..request };
        let mut reader = self.archive.get(&target.caller, request).await.map_err(|error| target.named(error, &key))?;
        target.show(&mut reader.info, &key);
        Ok(reader)
    }

    pub async fn head(&self, caller: &Caller, request: GetRequest) -> Result<(ObjectInfo, Range<u64>)> {
        let key = request.key.clone();
        let target = self.target(caller, Access::Read, &request.bucket, &key, request.version).await?;
        if let Some(info) = target.directory {
            let reader = ObjectReader::empty(*info, &request.condition)?;
            return Ok((reader.info, reader.range));
        }
        let request = GetRequest { key: target.key.clone(), ..request };
        let answer = self.archive.head(&target.caller, request).await;
        let (mut info, range) = answer.map_err(|error| target.named(error, &key))?;
        target.show(&mut info, &key);
        Ok((info, range))
    }

    pub async fn object_parts(
        &self,
        caller: &Caller,
        request: GetRequest,
        after: u32,
        limit: usize,
    ) -> Result<(Vec<PartInfo>, bool)> {
        let key = request.key.clone();
        let target = self.target(caller, Access::Read, &request.bucket, &key, request.version).await?;
        if target.directory.is_some() {
            return Ok((Vec::new(), false));
        }
        let request = GetRequest { key: target.key.clone(), ..request };
        let parts = self.archive.object_parts(&target.caller, request, after, limit).await;
        parts.map_err(|error| target.named(error, &key))
    }

    pub async fn put(&self, caller: &Caller, request: PutRequest) -> Result<ObjectWriter> {
        match self.share(&request.bucket) {
            Some(share) => {
                check_names(request.metadata.user.keys())?;
                check_key(request.customer_key.as_ref())?;
                share.put(caller, request).await
            }
            None => self.archive.put(caller, request).await,
        }
    }

    pub async fn copy(&self, caller: &Caller, request: CopyRequest) -> Result<Copied> {
        if self.share(&request.bucket).is_none() && self.share(&request.source.bucket).is_none() {
            return self.archive.copy(caller, request).await;
        }
        request.check()?;
        let mut reader = self.open_source(caller, &request.source, ByteRange::Whole).await?;
        let from = reader.info.clone();
        let writer = self.put(caller, request.put(from.clone())?).await?;
        let object = transfer(&mut reader, writer).await?;
        Ok(Copied { object, source: from.version, source_versioned: from.versioned })
    }

    pub async fn copy_part(
        &self,
        caller: &Caller,
        source: CopySource,
        range: Option<RangeInclusive<u64>>,
        part: PartRequest,
    ) -> Result<(PartInfo, VersionId)> {
        if self.share(&part.bucket).is_none() && self.share(&source.bucket).is_none() {
            return self.archive.copy_part(caller, source, range, part).await;
        }
        let wanted = match &range {
            Some(range) => ByteRange::From { first: *range.start(), last: Some(*range.end()) },
            None => ByteRange::Whole,
        };
        let mut reader = self.open_source(caller, &source, wanted).await?;
        if range.is_some_and(|range| *range.end() >= reader.info.size) {
            let size = reader.info.size;
            let message = format!("the range ends behind the source, which has {size} bytes");
            return Err(ArchiveError::InvalidArgument(message));
        }
        let (version, number) = (reader.info.version, part.number);
        let length = reader.range.end.saturating_sub(reader.range.start);
        let part = PartRequest { length: Some(length), expected: Expected::default(), ..part };
        let writer = self.put_part(caller, part).await?;
        let info = transfer(&mut reader, writer).await?;
        let ObjectInfo { size, etag, modified, checksums, .. } = info;
        Ok((PartInfo { number, size, etag, modified, checksums }, version))
    }

    async fn open_source(&self, caller: &Caller, source: &CopySource, range: ByteRange) -> Result<ObjectReader> {
        match self.get(caller, source.read(range)).await {
            Err(ArchiveError::NotModified { .. }) => {
                Err(ArchiveError::PreconditionFailed("the condition excludes the source".into()))
            }
            other => other,
        }
    }

    pub async fn delete(&self, caller: &Caller, request: DeleteRequest) -> Result<Deleted> {
        match self.share(&request.bucket) {
            Some(share) => share.delete(caller, request).await,
            None => self.archive.delete(caller, request).await,
        }
    }

    /// Up to 1000 keys of one bucket, with a result for each, in order.
    pub async fn delete_many(&self, caller: &Caller, requests: Vec<DeleteRequest>) -> Vec<Result<Deleted>> {
        let shared = requests.first().is_some_and(|request| self.share(&request.bucket).is_some());
        if !shared {
            return self.archive.delete_many(caller, requests).await;
        }
        // One after another, in the client's order: a directory goes after the files in it.
        let mut outcomes = Vec::with_capacity(requests.len());
        for request in requests {
            outcomes.push(self.delete(caller, request).await);
        }
        outcomes
    }

    pub async fn list(&self, caller: &Caller, request: ListRequest) -> Result<ListPage> {
        match self.share(&request.bucket) {
            Some(share) => share.list(caller, request).await,
            None => self.archive.list(caller, request).await,
        }
    }

    pub async fn list_versions(&self, caller: &Caller, request: ListVersionsRequest) -> Result<VersionsPage> {
        match self.share(&request.bucket) {
            Some(share) => share.list_versions(caller, request).await,
            None => self.archive.list_versions(caller, request).await,
        }
    }

    pub async fn create_upload(&self, caller: &Caller, request: NewUpload) -> Result<UploadInfo> {
        let Some(share) = self.share(&request.bucket) else {
            return self.archive.create_upload(caller, request).await;
        };
        check_names(request.metadata.user.keys())?;
        check_key(request.customer_key.as_ref())?;
        let caller = share.upload(caller, &request.key, true).await?;
        let info = self.archive.create_upload(&caller, NewUpload { key: upload_key(&request.key), ..request }).await?;
        Ok(shown_upload(info))
    }

    /// The caller and the archive's key for an upload under way.
    async fn uploader(&self, caller: &Caller, bucket: &str, key: &str) -> Result<(Caller, String)> {
        match self.share(bucket) {
            Some(share) => Ok((share.upload(caller, key, false).await?, upload_key(key))),
            None => Ok((caller.clone(), key.to_owned())),
        }
    }

    pub async fn put_part(&self, caller: &Caller, request: PartRequest) -> Result<ObjectWriter> {
        let (caller, key) = self.uploader(caller, &request.bucket, &request.key).await?;
        self.archive.put_part(&caller, PartRequest { key, ..request }).await
    }

    pub async fn complete_upload(&self, caller: &Caller, request: CompleteRequest) -> Result<ObjectInfo> {
        match self.share(&request.bucket) {
            Some(share) => share.complete(caller, request).await,
            None => self.archive.complete_upload(caller, request).await,
        }
    }

    pub async fn abort_upload(&self, caller: &Caller, bucket: &str, key: &str, upload: &str) -> Result<()> {
        let (caller, key) = self.uploader(caller, bucket, key).await?;
        self.archive.abort_upload(&caller, bucket, &key, upload).await
    }

    pub async fn list_parts(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        upload: &str,
        after: u32,
        limit: usize,
    ) -> Result<(UploadInfo, Vec<PartInfo>, bool)> {
        let (caller, key) = self.uploader(caller, bucket, key).await?;
        self.archive.list_parts(&caller, bucket, &key, upload, after, limit).await
    }

    pub async fn list_uploads(&self, caller: &Caller, request: ListUploadsRequest) -> Result<UploadsPage> {
        if self.share(&request.bucket).is_none() {
            return self.archive.list_uploads(caller, request).await;
        }
        let caller = self.archive.on_behalf(caller, Access::List, &request.bucket, &request.prefix).await?;
        let request = ListUploadsRequest {
            prefix: upload_key(&request.prefix),
            key_marker: request.key_marker.map(|marker| upload_key(&marker)),
            ..request
        };
        let page = self.archive.list_uploads(&caller, request).await?;
        Ok(UploadsPage {
            uploads: page.uploads.into_iter().map(shown_upload).collect(),
            common_prefixes: page.common_prefixes.iter().map(|prefix| path_of(prefix)).collect(),
            next_key_marker: page.next_key_marker.map(|marker| path_of(&marker)),
            ..page
        })
    }

    pub async fn tags(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
    ) -> Result<(Tags, VersionId)> {
        let target = self.versioned(caller, Access::Read, bucket, key, version).await?;
        let tags = self.archive.tags(&target.caller, bucket, &target.key, version).await;
        tags.map_err(|error| target.named(error, key))
    }

    pub async fn set_tags(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
        tags: Tags,
    ) -> Result<VersionId> {
        let target = self.versioned(caller, Access::Write, bucket, key, version).await?;
        let set = self.archive.set_tags(&target.caller, bucket, &target.key, version, tags).await;
        set.map_err(|error| target.named(error, key))
    }

    pub async fn retention(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
    ) -> Result<Retention> {
        let target = self.versioned(caller, Access::Read, bucket, key, version).await?;
        let retention = self.archive.retention(&target.caller, bucket, &target.key, version).await;
        retention.map_err(|error| target.named(error, key))
    }

    pub async fn set_retention(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
        retention: Option<Retention>,
        bypass_governance: bool,
    ) -> Result<Option<u64>> {
        match self.share(bucket) {
            Some(share) => share.set_retention(caller, key, version, retention, bypass_governance).await.map(|()| None),
            None => self.archive.set_retention(caller, bucket, key, version, retention, bypass_governance).await,
        }
    }

    pub async fn legal_hold(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
    ) -> Result<bool> {
        let target = self.versioned(caller, Access::Read, bucket, key, version).await?;
        let hold = self.archive.legal_hold(&target.caller, bucket, &target.key, version).await;
        hold.map_err(|error| target.named(error, key))
    }

    pub async fn set_legal_hold(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
        hold: bool,
    ) -> Result<Option<u64>> {
        let target = self.versioned(caller, Access::Retain, bucket, key, version).await?;
        let set = self.archive.set_legal_hold(&target.caller, bucket, &target.key, version, hold).await;
        set.map_err(|error| target.named(error, key))
    }
}

impl Target {
    /// The archive's error, with the client's key in it.
    fn named(&self, error: ArchiveError, key: &str) -> ArchiveError {
        match self.placed {
            true => error.with_key(&self.key, key),
            false => error,
        }
    }

    /// The properties as the client sees them. The gateway's own metadata say where a file was when
    /// it was archived, which may be a path that the client has no right to.
    fn show(&self, info: &mut ObjectInfo, key: &str) {
        if self.placed {
            key.clone_into(&mut info.key);
            info.metadata.user.retain(|name, _| !name.starts_with(GATEWAY_METADATA));
        }
    }
}

/// No client of files has the key: the file could not be read there.
fn check_key(key: Option<&CustomerKey>) -> Result<()> {
    match key {
        None => Ok(()),
        Some(_) => Err(ArchiveError::InvalidRequest("a share takes no object under a customer's key".into())),
    }
}

/// The path of an upload's key.
fn path_of(key: &str) -> String {
    key.strip_prefix('/').unwrap_or(key).to_owned()
}

fn shown_upload(info: UploadInfo) -> UploadInfo {
    UploadInfo { key: path_of(&info.key), ..info }
}

/// A rebuild of the catalog puts files where the gateway's metadata say: no client may set them.
fn check_names<'a>(mut names: impl Iterator<Item = &'a String>) -> Result<()> {
    match names.find(|name| name.to_ascii_lowercase().starts_with(GATEWAY_METADATA)) {
        None => Ok(()),
        Some(name) => Err(ArchiveError::InvalidArgument(format!(
            "the name `{name}` of metadata is reserved: in a share, names that begin with `{GATEWAY_METADATA}` are the file gateway's"
        ))),
    }
}
