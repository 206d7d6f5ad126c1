//! A record of the audit log, and the Merkle checkpoint over a run of records. The chain itself is
//! the catalog's append mutation, so number and link are outside the record.

use minicbor::{Decode, Encode};

use crate::model::action::Action;
use crate::model::principal::Actor;
use crate::model::time::Timestamp;

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct AuditRow {
    /// On the wall clock.
    #[n(0)]
    pub time: Timestamp,
    #[n(1)]
    pub actor: Actor,
    #[n(2)]
    pub action: Action,
    #[n(3)]
    pub bucket: Option<String>,
    #[n(4)]
    pub key: Option<String>,
    #[n(5)]
    pub version: Option<String>,
    /// The reason of the refusal. None: the action took place.
    #[n(6)]
    pub refused: Option<String>,
    #[n(7)]
    pub detail: Option<String>,
    #[n(8)]
    pub origin: Option<String>,
}

/// The note of a run of records, or of a part of one, in a segment: the values as stored.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct AuditNote {
    /// The number of the first.
    #[n(0)]
    pub first: u64,
    #[n(1)]
    pub values: Vec<minicbor::bytes::ByteVec>,
}

/// The checkpoint over the records from its key to `last`.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct CheckpointRow {
    #[n(0)]
    pub last: u64,
    /// The chain's link at `last`.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub link: [u8; 32],
    /// Merkle root over the links of the run.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub root: [u8; 32],
    #[cbor(n(3), with = "minicbor::bytes")]
    pub signature: Vec<u8>,
}

/// The end of the log that background work signed last.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct SealedRow {
    #[n(0)]
    pub records: u64,
    /// The chain's link at that record.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub link: [u8; 32],
    /// The last record that a checkpoint covers.
    #[n(2)]
    pub covered: u64,
    #[cbor(n(3), with = "minicbor::bytes")]
    pub signature: Vec<u8>,
}
