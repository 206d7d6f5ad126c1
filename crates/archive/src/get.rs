//! Reading an object: frames are fetched ahead, opened, and only then handed out.

use std::ops::Range;

use bytes::Bytes;

use crate::error::Result;
use crate::principal::Caller;
use crate::time::Timestamp;
use crate::version::{ObjectInfo, VersionId};
use crate::{Archive, CustomerKey};

/// Which bytes are asked for.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum ByteRange {
    #[default]
    Whole,
    /// `bytes=first-last` or `bytes=first-`; both included.
    From { first: u64, last: Option<u64> },
    /// `bytes=-length`.
    Suffix { length: u64 },
    /// One part of a multipart object, from 1.
    Part { number: u32 },
}

/// The conditions of RFC 9110, section 13, evaluated in its order.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ReadCondition {
    /// A list of entity tags as in the header, or `*`.
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
    pub if_modified_since: Option<Timestamp>,
    pub if_unmodified_since: Option<Timestamp>,
}

#[derive(Clone, Default, Debug)]
pub struct GetRequest {
    pub bucket: String,
    pub key: String,
    /// None: the current version.
    pub version: Option<VersionId>,
    pub range: ByteRange,
    pub condition: ReadCondition,
    pub customer_key: Option<CustomerKey>,
}

/// An object being read. Its segments stay where they are until it is dropped.
pub struct ObjectReader {
    pub info: ObjectInfo,
    /// The bytes of the object that come.
    pub range: Range<u64>,
}

/// What `GetObjectAttributes` tells of one part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartInfo {
    pub number: u32,
    pub size: u64,
    pub etag: crate::ETag,
    pub modified: Timestamp,
    pub checksums: Vec<crate::Checksum>,
}

impl Archive {
    /// Opens a version for reading. The first frames are verified before this answers.
    pub async fn get(&self, _caller: &Caller, _request: GetRequest) -> Result<ObjectReader> {
        Err(crate::being_built())
    }

    /// As `get`, without content: the information and the range that a `get` would send.
    pub async fn head(&self, _caller: &Caller, _request: GetRequest) -> Result<(ObjectInfo, Range<u64>)> {
        Err(crate::being_built())
    }

    /// The parts of a multipart object with numbers above `after`, at most `limit`, and whether more follow.
    pub async fn object_parts(
        &self,
        _caller: &Caller,
        _request: GetRequest,
        _after: u32,
        _limit: usize,
    ) -> Result<(Vec<PartInfo>, bool)> {
        Err(crate::being_built())
    }
}

impl ObjectReader {
    /// The next bytes, every one verified; none at the end of the range.
    pub async fn next(&mut self) -> Option<Result<Bytes>> {
        None
    }
}
