//! What an audit record says was done or refused.

use std::fmt;

use minicbor::{Decode, Encode};

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
    /// Something a frontend refused; `detail` says what.
    #[n(26)]
    Face,
    #[n(27)]
    Protect,
    /// Something an operator did to what the store stands on: drives, volumes, quorum; `detail` says what.
    #[n(28)]
    Administer,
    /// One officer's consent to what another one asked for, or that it was refused or is void.
    #[n(29)]
    Approve,
    /// Refusals that were counted, and not recorded one by one.
    #[n(30)]
    Summary,
    /// An access key may do less.
    #[n(31)]
    NarrowAccessKey,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
