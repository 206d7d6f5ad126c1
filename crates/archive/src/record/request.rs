//! A request that takes two people, and the time until which another officer may approve it.

use minicbor::{Decode, Encode};

use crate::model::act::{Act, People};
use crate::model::principal::Actor;
use crate::model::time::Timestamp;
use crate::model::version::Retention;

/// The effect of an approval.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) enum Asked {
    /// The time for which the store was closed counts, up to this many milliseconds. The clock's
    /// alarm with these words is accepted with it.
    #[n(0)]
    CreditClock(#[n(0)] u64, #[n(1)] Option<String>),
    /// The access key with this id becomes a retention officer's.
    #[n(1)]
    Officer(#[n(0)] String),
    /// The matter `rebuild` of this time ends.
    #[n(2)]
    Release(#[n(0)] Timestamp),
    /// The matter of this name is closed, and everything under it is released.
    #[n(3)]
    CloseMatter(#[n(0)] String),
    /// The event of a version is taken back: bucket, key, version id, and the event.
    #[n(4)]
    RevokeEvent(#[n(0)] String, #[n(1)] String, #[n(2)] String, #[n(3)] Option<EventTimes>),
    /// The clock's alarm with these words is accepted.
    #[n(5)]
    AcceptClock(#[n(0)] String),
    /// The master key is exported once.
    #[n(6)]
    ExportKey,
    /// A version is deleted before its GOVERNANCE retention ends: bucket, key, version id, and the
    /// retention as asked.
    #[n(7)]
    Delete(#[n(0)] String, #[n(1)] String, #[n(2)] String, #[n(3)] Option<Retention>),
    /// The rule of an act becomes stricter, for good.
    #[n(8)]
    Restrict(#[n(0)] Act, #[n(1)] People),
}

/// The date of an event, and when it was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct EventTimes {
    #[n(0)]
    pub at: Timestamp,
    #[n(1)]
    pub told: Timestamp,
}

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct RequestRow {
    #[n(0)]
    pub asked: Asked,
    #[n(1)]
    pub by: Actor,
    /// The user of this machine that made the request.
    #[n(2)]
    pub peer: Option<u32>,
    #[n(3)]
    pub made: Timestamp,
    /// The request is void from this time on the later of both clocks.
    #[n(4)]
    pub expires: Timestamp,
    /// After a loss of officers: from this time on the compliance clock, the request needs no
    /// officer's approval.
    #[n(5)]
    pub alone_from: Option<Timestamp>,
    /// The effect in words.
    #[n(6)]
    pub says: String,
    /// The officer who approved it, where the act itself comes later.
    #[n(7)]
    pub approved: Option<Actor>,
    /// The request is also void once the store was ever open for so many milliseconds: the system
    /// clock may be set back. None: an earlier version of Stele made it.
    #[n(8)]
    pub open_until: Option<u64>,
}
