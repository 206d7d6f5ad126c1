//! Multipart uploads: parts in any order, each replaceable until the upload is completed.

use crate::checksum::{Algorithm, Checksum, ChecksumKind, Expected};
use crate::error::Result;
use crate::get::PartInfo;
use crate::principal::Caller;
use crate::put::{ObjectWriter, WriteCondition};
use crate::time::Timestamp;
use crate::version::{Metadata, ObjectInfo, Retention, Tags};
use crate::{Archive, CustomerKey};

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

/// A part as `CompleteMultipartUpload` names it.
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
    /// The checksum of the whole that the client expects.
    pub checksums: Vec<Checksum>,
    /// The size of the whole that the client expects.
    pub size: Option<u64>,
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

impl Archive {
    pub async fn create_upload(&self, _caller: &Caller, _request: NewUpload) -> Result<UploadInfo> {
        Err(crate::being_built())
    }

    /// Begins to write a part; replaces an earlier one of the same number when finished.
    pub async fn put_part(&self, _caller: &Caller, _request: PartRequest) -> Result<ObjectWriter> {
        Err(crate::being_built())
    }

    /// Makes the parts an object. Repeating a completion that took place answers with its object.
    pub async fn complete_upload(&self, _caller: &Caller, _request: CompleteRequest) -> Result<ObjectInfo> {
        Err(crate::being_built())
    }

    pub async fn abort_upload(&self, _caller: &Caller, _bucket: &str, _key: &str, _upload: &str) -> Result<()> {
        Err(crate::being_built())
    }

    /// The upload, its parts with numbers above `after`, at most `limit`, and whether more follow.
    pub async fn list_parts(
        &self,
        _caller: &Caller,
        _bucket: &str,
        _key: &str,
        _upload: &str,
        _after: u32,
        _limit: usize,
    ) -> Result<(UploadInfo, Vec<PartInfo>, bool)> {
        Err(crate::being_built())
    }

    pub async fn list_uploads(&self, _caller: &Caller, _request: ListUploadsRequest) -> Result<UploadsPage> {
        Err(crate::being_built())
    }
}
