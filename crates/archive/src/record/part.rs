//! A part of a multipart upload, and of the object it becomes.

use minicbor::{Decode, Encode};

use crate::model::checksum::Checksum;
use crate::model::time::Timestamp;
use crate::model::version::{ETag, PartInfo};
use crate::record::content::{Place, Stream};

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct PartRow {
    #[n(0)]
    pub stream: Stream,
    #[cbor(n(1), with = "minicbor::bytes")]
    pub md5: [u8; 16],
    #[cbor(n(2), with = "minicbor::bytes")]
    pub blake3: [u8; 32],
    #[n(3)]
    pub checksums: Vec<Checksum>,
    #[n(4)]
    pub modified: Timestamp,
    /// Where its note lies.
    #[n(5)]
    pub note: Place,
}

/// The note of a part in a segment.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct PartNote {
    #[n(0)]
    pub object: u64,
    #[n(1)]
    pub number: u32,
    #[n(2)]
    pub row: PartRow,
}

impl PartRow {
    pub fn info(&self, number: u32) -> PartInfo {
        PartInfo {
            number,
            size: self.stream.size,
            etag: ETag { md5: self.md5, parts: None },
            modified: self.modified,
            checksums: self.checksums.clone(),
        }
    }
}
