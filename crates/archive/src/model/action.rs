//! The actions that audit records name.

use std::fmt;

use minicbor::{Decode, Encode};

/// An action that took place or was refused.
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
    /// A refusal by a frontend; `detail` describes it.
    #[n(26)]
    Frontend,
    #[n(27)]
    Protect,
    /// An operator's action on the drives, volumes or quorum below the store; `detail` describes
    /// it.
    #[n(28)]
    Administer,
    /// An officer's consent to a request, or the end of a request without it.
    #[n(29)]
    Approve,
    /// A summary of refusals that were counted instead of recorded.
    #[n(30)]
    Summary,
    /// A reduction of an access key's rights.
    #[n(31)]
    NarrowAccessKey,
    /// A named matter was opened or closed, or put on or released from versions.
    #[n(32)]
    Matter,
    /// A version of a management class was made or activated, or an event was told.
    #[n(33)]
    Class,
    /// The store tried what must be refused, on a record of its own.
    #[n(34)]
    SelfTest,
    /// An access key was given a later end, or none.
    #[n(40)]
    ProlongAccessKey,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Exported records carry this name since the first release.
            Action::Frontend => f.write_str("Face"),
            other => write!(f, "{other:?}"),
        }
    }
}
