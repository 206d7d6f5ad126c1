//! The certificate of a version that was under retention and has been disposed of.

use minicbor::{Decode, Encode};

use crate::model::principal::Actor;
use crate::model::time::Timestamp;
use crate::model::version::Retention;

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct TombstoneRow {
    #[n(0)]
    pub object: u64,
    #[n(1)]
    pub size: u64,
    #[cbor(n(2), with = "minicbor::bytes")]
    pub blake3: [u8; 32],
    /// When the version was stored.
    #[n(3)]
    pub stored: Timestamp,
    /// The retention under which it was kept.
    #[n(4)]
    pub retention: Option<Retention>,
    /// When it was disposed of, on the compliance clock.
    #[n(5)]
    pub disposed: Timestamp,
    #[n(6)]
    pub actor: Actor,
    /// "expired", "requested", "governance bypassed", "replaced".
    #[n(7)]
    pub cause: String,
    #[n(8)]
    pub version: String,
    /// The key slot whose entry was overwritten with zeros. Without the key the content cannot be
    /// read.
    #[n(9)]
    pub slot: u64,
}
