//! A multipart upload that is neither completed nor aborted.

use minicbor::{Decode, Encode};

use crate::model::checksum::{Algorithm, ChecksumKind};
use crate::model::principal::Actor;
use crate::model::time::Timestamp;
use crate::model::version::{Metadata, Retention, Tags};
use crate::record::version::CustomerMark;

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct UploadRow {
    /// The object it becomes.
    #[n(0)]
    pub object: u64,
    #[n(1)]
    pub slot: u64,
    #[n(2)]
    pub owner: Actor,
    #[n(3)]
    pub initiated: Timestamp,
    #[n(4)]
    pub metadata: Metadata,
    #[n(5)]
    pub tags: Tags,
    #[n(6)]
    pub retention: Option<Retention>,
    #[n(7)]
    pub hold: bool,
    #[n(8)]
    pub algorithm: Option<Algorithm>,
    #[n(9)]
    pub kind: Option<ChecksumKind>,
    #[n(10)]
    pub customer: Option<CustomerMark>,
    /// The random half of the upload id.
    #[n(11)]
    pub salt: u64,
    /// The management class that the request named.
    #[n(12)]
    pub class: Option<String>,
}

/// Whether a client of S3 began the upload to a share that has this key, as `shares::upload_key`
/// makes it. The file gateway's own uploads have the key of the file.
pub(crate) fn is_clients_key(key: &str) -> bool {
    key.starts_with('/')
}
