//! Something that takes two people: who asked for it, and until when another one may approve it.

use minicbor::{Decode, Encode};

use crate::model::principal::Actor;
use crate::model::time::Timestamp;

/// What is done once it is approved.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) enum Asked {
    /// The time the store was closed counts, at most this many milliseconds of it.
    #[n(0)]
    CreditClock(#[n(0)] u64),
    /// The access key with this id becomes a retention officer's.
    #[n(1)]
    Officer(#[n(0)] String),
    /// The matter `rebuild` that has stood since then ends.
    #[n(2)]
    Release(#[n(0)] Timestamp),
}

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct RequestRow {
    #[n(0)]
    pub asked: Asked,
    #[n(1)]
    pub by: Actor,
    /// The user of this machine who asked.
    #[n(2)]
    pub peer: Option<u32>,
    #[n(3)]
    pub made: Timestamp,
    /// Void from here on, by the later of both clocks.
    #[n(4)]
    pub expires: Timestamp,
    /// Where officers are lost: from here on, by the compliance clock, it takes no officer's approval.
    #[n(5)]
    pub alone_from: Option<Timestamp>,
    /// What will happen, in words.
    #[n(6)]
    pub says: String,
}
