//! Store-wide records, each at a name.

use minicbor::{Decode, Encode};

use crate::model::time::Timestamp;

pub(crate) const IDENTITY: &[u8] = b"identity";
pub(crate) const NUMBERS: &[u8] = b"numbers";
pub(crate) const SLOTS: &[u8] = b"slots";
pub(crate) const CLOCK: &[u8] = b"clock";
/// The head of the audit chain; its format is the catalog's.
pub(crate) const AUDIT_HEAD: &[u8] = b"audit";
/// How many officers' keys were ever good.
pub(crate) const OFFICERS: &[u8] = b"officers";
/// The signed end of the audit log.
pub(crate) const AUDIT_SEALED: &[u8] = b"sealed";

/// How many records of the log are kept on the data volume too.
pub(crate) const AUDIT_NOTED: &[u8] = b"noted";

/// Which store this catalog belongs to.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct IdentityRow {
    #[cbor(n(0), with = "minicbor::bytes")]
    pub store: [u8; 16],
    #[n(1)]
    pub created: Timestamp,
    #[n(2)]
    pub format: u32,
    /// The seed of the key that signs heads, sealed under a key derived from the master key.
    #[cbor(n(3), with = "minicbor::bytes")]
    pub signing: Vec<u8>,
    /// Closed in order; cleared at opening.
    #[n(4)]
    pub clean: bool,
    /// Rebuilt from the data volume at this time, last.
    #[n(5)]
    pub rebuilt: Option<Timestamp>,
    /// The opening for writing that catalog and data volume were last part of together.
    #[n(6)]
    pub pairing: Option<Pairing>,
    /// The one that was under way: the data volume may be part of it already.
    #[n(7)]
    pub next: Option<Pairing>,
    /// Of a rebuilt catalog, until it is opened: what the data volume said when the rebuild read it.
    #[n(8)]
    pub replaces: Option<Pairing>,
    /// What a rebuild could not prove.
    #[n(9)]
    pub doubt: Option<Doubt>,
    /// Records of the audit log that rebuilds did not find.
    #[n(10)]
    pub gaps: Option<Vec<Gap>>,
}

/// One opening for writing of catalog and data volume together.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct Pairing {
    /// Only grows. 0: none yet.
    #[n(0)]
    pub generation: u64,
    /// Random: tells two histories of one store apart that have as many openings.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub tag: [u8; 16],
}

/// The matter `rebuild`: what existed when a catalog was rebuilt although something could not be read. Its latest state is
/// not proven, so nothing of it may be deleted or weakened until two officers have decided.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct Doubt {
    #[n(0)]
    pub since: Timestamp,
    /// Buckets up to this number, and every version in them.
    #[n(1)]
    pub buckets: u32,
    /// Access keys, suspended.
    #[n(2)]
    pub keys: Vec<String>,
    /// What could not be read: the first few places.
    #[n(3)]
    pub places: Vec<String>,
}

/// Records of the audit log, first to last, that were lost when the catalog was rebuilt. Their numbers are used again.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct Gap {
    #[n(0)]
    pub first: u64,
    /// None: how far the log reached is not known.
    #[n(1)]
    pub last: Option<u64>,
    #[n(2)]
    pub rebuilt: Timestamp,
}

impl Gap {
    /// Whether the rebuild lost this record.
    pub fn covers(&self, record: u64) -> bool {
        self.first <= record && self.last.is_none_or(|last| record <= last)
    }
}

/// A number up to which (exclusive) numbers may have been given out.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct ReservedRow {
    #[n(0)]
    pub below: u64,
}

/// What a segment keeps of the store itself.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct IdentityNote {
    #[n(0)]
    pub identity: IdentityRow,
    /// As of writing: a rebuilt clock shows no less.
    #[n(1)]
    pub clock: ClockRow,
}

/// The compliance clock.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct ClockRow {
    /// The high-water mark: the clock never shows less.
    #[n(0)]
    pub shown: Timestamp,
    /// The wall clock when this was written.
    #[n(1)]
    pub wall: Timestamp,
    /// Why expiry is frozen.
    #[n(2)]
    pub frozen: Option<String>,
    /// The latest moment at which the store was open: what the clock said at an opening, and the real time that has passed
    /// since. Never goes back.
    #[n(3)]
    pub seen: Option<Timestamp>,
    /// Milliseconds in which the store was closed and that were not made up since.
    #[n(4)]
    pub closed: Option<u64>,
}
