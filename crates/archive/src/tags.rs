//! Tags of stored versions.

use crate::Archive;
use crate::error::Result;
use crate::principal::Caller;
use crate::version::{Tags, VersionId};

impl Archive {
    /// The tags and the version they belong to.
    pub async fn tags(
        &self,
        _caller: &Caller,
        _bucket: &str,
        _key: &str,
        _version: Option<VersionId>,
    ) -> Result<(Tags, VersionId)> {
        Err(crate::being_built())
    }

    /// Replaces all of them; empty removes. Answers the version.
    pub async fn set_tags(
        &self,
        _caller: &Caller,
        _bucket: &str,
        _key: &str,
        _version: Option<VersionId>,
        _tags: Tags,
    ) -> Result<VersionId> {
        Err(crate::being_built())
    }
}
