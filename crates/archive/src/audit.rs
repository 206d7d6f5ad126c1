//! The audit log: every change and every refusal, each record chained to the one before.

use std::fmt;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::Archive;
use crate::error::Result;
use crate::principal::Caller;

/// What was done or refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum Action {
    #[n(0)]
    CreateStore,
    #[n(1)]
    OpenStore,
    #[n(2)]
    CreateBucket,
    #[n(3)]
    ChangeBucket,
    #[n(4)]
    DeleteBucket,
    #[n(5)]
    PutObject,
    #[n(6)]
    DeleteObject,
    #[n(7)]
    AddDeleteMarker,
    #[n(8)]
    SetRetention,
    #[n(9)]
    SetLegalHold,
    #[n(10)]
    SetTags,
    #[n(11)]
    CreateUpload,
    #[n(12)]
    PutPart,
    #[n(13)]
    CompleteUpload,
    #[n(14)]
    AbortUpload,
    #[n(15)]
    CreateAccessKey,
    #[n(16)]
    RevokeAccessKey,
    #[n(17)]
    Expire,
    #[n(18)]
    Dispose,
    #[n(19)]
    ClockAlarm,
    #[n(20)]
    ClockAccept,
    #[n(21)]
    ExportMasterKey,
    #[n(22)]
    Rebuild,
    #[n(23)]
    Read,
    #[n(24)]
    List,
    #[n(25)]
    Audit,
    /// Something a face refused; `detail` says what.
    #[n(26)]
    Face,
    #[n(27)]
    Protect,
    /// Something an operator did to what the store stands on: drives, volumes, quorum; `detail` says what.
    #[n(28)]
    Administer,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// One record, for people and for export.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditRecord {
    pub number: u64,
    /// RFC 3339.
    pub time: String,
    pub actor: String,
    pub origin: Option<String>,
    pub action: String,
    pub bucket: Option<String>,
    pub key: Option<String>,
    pub version: Option<String>,
    /// None: it was done. Otherwise why it was refused.
    pub refused: Option<String>,
    pub detail: Option<String>,
    /// The chain's end after this record, hexadecimal.
    pub link: String,
}

/// The end of the log at some moment, signed. Kept elsewhere, it proves later that nothing before it was cut or changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SignedHead {
    pub store: String,
    pub records: u64,
    pub link: String,
    /// Of the Merkle tree over all records' links.
    pub root: String,
    pub time: String,
    pub public_key: String,
    pub signature: String,
}

/// What a verification found.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditVerdict {
    pub records: u64,
    pub checkpoints: u64,
    /// The anchor's record count, if one was given and matched.
    pub anchored: Option<u64>,
    /// Empty: no edit and no gap. Otherwise what and where.
    pub findings: Vec<String>,
}

impl Archive {
    /// Records from number `from` on, at most `limit`.
    pub async fn audit_records(&self, _caller: &Caller, _from: u64, _limit: usize) -> Result<Vec<AuditRecord>> {
        Err(crate::being_built())
    }

    pub async fn audit_verify(&self, _caller: &Caller, _anchor: Option<SignedHead>) -> Result<AuditVerdict> {
        Err(crate::being_built())
    }

    pub async fn audit_head(&self) -> Result<SignedHead> {
        Err(crate::being_built())
    }
}
