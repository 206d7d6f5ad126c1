//! The one way anything stored goes away.
//!
//! Every delete, every overwrite of a null version, expiration, abort and bucket removal comes through here, and
//! nothing else in this crate issues a mutation that removes a version.

use crate::Archive;
use crate::error::Result;
use crate::principal::Caller;
use crate::version::VersionId;

#[derive(Clone, Default, Debug)]
pub struct DeleteRequest {
    pub bucket: String,
    pub key: String,
    /// None: adds a delete marker where the bucket is versioned, removes the object where it is not.
    pub version: Option<VersionId>,
    /// The explicit request to bypass GOVERNANCE; it also takes the permission.
    pub bypass_governance: bool,
    /// `If-Match`: the entity tag of what is to be deleted.
    pub etag: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deleted {
    pub key: String,
    /// The version removed, or the marker added. None: nothing was there, which is no error.
    pub version: Option<VersionId>,
    /// A marker was added, or what was removed was one.
    pub delete_marker: bool,
}

impl Archive {
    pub async fn delete(&self, _caller: &Caller, _request: DeleteRequest) -> Result<Deleted> {
        Err(crate::being_built())
    }

    /// Deletes up to 1000 keys of one bucket, an answer for each, in order.
    pub async fn delete_many(&self, _caller: &Caller, _requests: Vec<DeleteRequest>) -> Vec<Result<Deleted>> {
        Vec::new()
    }
}
