//! Retention and legal holds of stored versions: who may change what, and the answer to "why not?".

use serde::{Deserialize, Serialize};

use crate::Archive;
use crate::error::Result;
use crate::principal::Caller;
use crate::version::{Retention, VersionId};

/// Exactly what keeps a version from being deleted, and when it could be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Why {
    pub bucket: String,
    pub key: String,
    pub version: String,
    /// Whether a delete by version would be refused now.
    pub protected: bool,
    pub mode: Option<String>,
    /// RFC 3339, on the compliance clock.
    pub retained_until: Option<String>,
    pub legal_hold: bool,
    /// What the compliance clock shows now.
    pub compliance_time: String,
    /// The earliest deletion; none while a legal hold stands.
    pub deletable_from: Option<String>,
    /// One sentence for each rule that applies, and where it came from.
    pub reasons: Vec<String>,
}

impl Archive {
    /// Fails with `NoSuchConfiguration` where the version has none.
    pub async fn retention(
        &self,
        _caller: &Caller,
        _bucket: &str,
        _key: &str,
        _version: Option<VersionId>,
    ) -> Result<Retention> {
        Err(crate::being_built())
    }

    /// Sets, extends or (GOVERNANCE only, with `bypass_governance` and the permission) shortens or removes it.
    pub async fn set_retention(
        &self,
        _caller: &Caller,
        _bucket: &str,
        _key: &str,
        _version: Option<VersionId>,
        _retention: Option<Retention>,
        _bypass_governance: bool,
    ) -> Result<()> {
        Err(crate::being_built())
    }

    pub async fn legal_hold(
        &self,
        _caller: &Caller,
        _bucket: &str,
        _key: &str,
        _version: Option<VersionId>,
    ) -> Result<bool> {
        Err(crate::being_built())
    }

    pub async fn set_legal_hold(
        &self,
        _caller: &Caller,
        _bucket: &str,
        _key: &str,
        _version: Option<VersionId>,
        _hold: bool,
    ) -> Result<()> {
        Err(crate::being_built())
    }

    pub async fn why(&self, _caller: &Caller, _bucket: &str, _key: &str, _version: Option<VersionId>) -> Result<Why> {
        Err(crate::being_built())
    }
}
