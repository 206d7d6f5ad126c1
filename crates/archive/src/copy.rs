//! Copying inside the store: read, verify, and write under a key of its own.

use std::ops::RangeInclusive;

use crate::checksum::Algorithm;
use crate::error::Result;
use crate::get::{PartInfo, ReadCondition};
use crate::multipart::PartRequest;
use crate::principal::Caller;
use crate::put::WriteCondition;
use crate::version::{Metadata, ObjectInfo, Retention, Tags, VersionId};
use crate::{Archive, CustomerKey};

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
    /// None: the source's. A copy onto itself must replace something.
    pub metadata: Option<Metadata>,
    pub tags: Option<Tags>,
    pub retention: Option<Retention>,
    pub legal_hold: bool,
    pub condition: WriteCondition,
    pub algorithm: Option<Algorithm>,
    pub customer_key: Option<CustomerKey>,
}

/// What a copy made, and of what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copied {
    pub object: ObjectInfo,
    pub source: VersionId,
    pub source_versioned: bool,
}

impl Archive {
    pub async fn copy(&self, _caller: &Caller, _request: CopyRequest) -> Result<Copied> {
        Err(crate::being_built())
    }

    /// A part from a range of an object; `part.length` and digests are ignored. Also answers the source's version.
    pub async fn copy_part(
        &self,
        _caller: &Caller,
        _source: CopySource,
        _range: Option<RangeInclusive<u64>>,
        _part: PartRequest,
    ) -> Result<(PartInfo, VersionId)> {
        Err(crate::being_built())
    }
}
