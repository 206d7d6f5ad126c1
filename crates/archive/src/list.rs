//! Listing: range scans over the versions, skipping what a delimiter folds together.

use crate::Archive;
use crate::error::Result;
use crate::principal::Caller;
use crate::version::{ObjectInfo, VersionId};

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ListRequest {
    pub bucket: String,
    pub prefix: String,
    pub delimiter: Option<String>,
    /// Only keys behind this: V1's marker, V2's start-after. A marker that is a common prefix skips all of it.
    pub after: Option<String>,
    /// V2: a token that an earlier page gave. It wins over `after`.
    pub token: Option<String>,
    /// Keys and common prefixes together; at most 1000 are given.
    pub limit: usize,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ListPage {
    pub objects: Vec<ObjectInfo>,
    pub common_prefixes: Vec<String>,
    /// More follow.
    pub truncated: bool,
    /// V2: opaque. Set when truncated.
    pub next_token: Option<String>,
    /// V1: the last key or common prefix given. Set when truncated.
    pub next_marker: Option<String>,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ListVersionsRequest {
    pub bucket: String,
    pub prefix: String,
    pub delimiter: Option<String>,
    pub key_marker: Option<String>,
    /// Only together with `key_marker`: continue behind this version of it.
    pub version_marker: Option<VersionId>,
    pub limit: usize,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct VersionsPage {
    /// Versions and delete markers, newest first within a key.
    pub versions: Vec<ObjectInfo>,
    pub common_prefixes: Vec<String>,
    pub truncated: bool,
    pub next_key_marker: Option<String>,
    pub next_version_marker: Option<VersionId>,
}

impl Archive {
    /// Current versions by key, delete markers left out (ListObjects and ListObjectsV2).
    pub async fn list(&self, _caller: &Caller, _request: ListRequest) -> Result<ListPage> {
        Err(crate::being_built())
    }

    /// All versions and delete markers.
    pub async fn list_versions(&self, _caller: &Caller, _request: ListVersionsRequest) -> Result<VersionsPage> {
        Err(crate::being_built())
    }
}
