//! Access keys: made, listed, revoked, and looked up by faces that check signatures.

use crate::Archive;
use crate::error::Result;
use crate::principal::{AccessKeyInfo, Caller, Credentials, NewAccessKey, Rights};

impl Archive {
    /// The secret behind an access key id, and the caller it stands for once the signature is right.
    pub async fn credentials(&self, _id: &str) -> Result<Credentials> {
        Err(crate::being_built())
    }

    pub async fn create_access_key(
        &self,
        _caller: &Caller,
        _description: &str,
        _rights: Rights,
    ) -> Result<NewAccessKey> {
        Err(crate::being_built())
    }

    pub async fn list_access_keys(&self, _caller: &Caller) -> Result<Vec<AccessKeyInfo>> {
        Err(crate::being_built())
    }

    /// For good; the record stays, so that audit records keep their meaning.
    pub async fn revoke_access_key(&self, _caller: &Caller, _id: &str) -> Result<()> {
        Err(crate::being_built())
    }

    /// A face refused a request before it reached the archive (wrong signature, expired, unknown key): records it.
    pub async fn audit_refusal(&self, _caller: &Caller, _action: &str, _place: &str, _reason: &str) -> Result<()> {
        Err(crate::being_built())
    }

    /// Records what an operator did, or was refused, to what the store stands on: a volume made, a drive replaced,
    /// a quorum overridden.
    pub async fn audit_administration(&self, _caller: &Caller, _detail: &str, _refused: Option<&str>) -> Result<()> {
        Err(crate::being_built())
    }
}
