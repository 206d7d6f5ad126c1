//! Store-wide rows, each under a name.

use std::collections::BTreeMap;

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::model::act::{Act, People};
use crate::model::head::SignedHead;
use crate::model::principal::Actor;
use crate::model::time::Timestamp;

pub(crate) const IDENTITY: &[u8] = b"identity";
pub(crate) const NUMBERS: &[u8] = b"numbers";
pub(crate) const SLOTS: &[u8] = b"slots";
pub(crate) const CLOCK: &[u8] = b"clock";
/// What the superblock of the data volume says of the store, without its witness:
/// [`Superblock::identify`].
///
/// [`Superblock::identify`]: crate::space::superblock::Superblock::identify
pub(crate) const SUPERBLOCK: &[u8] = b"superblock";
/// The head of the audit chain; its format is the catalog's.
pub(crate) const AUDIT_HEAD: &[u8] = b"audit";
/// How many officers' keys were ever valid.
pub(crate) const OFFICERS: &[u8] = b"officers";
/// The signed end of the audit log.
pub(crate) const AUDIT_SEALED: &[u8] = b"sealed";

/// How many records of the log are noted on the data volume.
pub(crate) const AUDIT_NOTED: &[u8] = b"noted";
/// How far expiration has come.
pub(crate) const EXPIRY: &[u8] = b"expiry";

/// How far expiration has come. Absent: it begins with the first retained version.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct ExpiryRow {
    /// The last record of the table of retained versions that was judged.
    #[n(0)]
    pub judged: Option<ByteVec>,
    /// When the pass began with the first version, by the compliance clock.
    #[n(1)]
    pub begun: Timestamp,
}

/// The identity of the store.
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
    /// The store was closed in order. An opening clears it.
    #[n(4)]
    pub clean: bool,
    /// When a rebuild last filled this catalog.
    #[n(5)]
    pub rebuilt: Option<Timestamp>,
    /// The last opening for writing of catalog and data volume together.
    #[n(6)]
    pub pairing: Option<Pairing>,
    /// The opening that was under way. The data volume may have it already.
    #[n(7)]
    pub next: Option<Pairing>,
    /// Of a rebuilt catalog until its first opening: the pairing that the rebuild read from the
    /// data volume.
    #[n(8)]
    pub replaces: Option<Pairing>,
    /// The facts that a rebuild could not prove.
    #[n(9)]
    pub doubt: Option<Doubt>,
    /// Records of the audit log that rebuilds did not find.
    #[n(10)]
    pub gaps: Option<Vec<Gap>>,
    /// Rules that officers made stricter than an act's least one.
    #[n(11)]
    pub acts: Option<BTreeMap<Act, People>>,
    /// How expiration is held back.
    #[n(12)]
    pub expiration: Option<ExpirationRow>,
    /// Where rebuilds cut the audit log off.
    #[n(13)]
    pub cuts: Option<Vec<Cut>>,
    /// The counts of buckets have the parts of unfinished uploads. A binary that does not count
    /// them writes this row without the field, so the next opening counts anew.
    #[n(14)]
    pub parts_counted: Option<bool>,
    /// What access keys own is counted. As for the field above, an earlier binary leaves it out.
    #[n(15)]
    pub owned_counted: Option<bool>,
}

/// A rebuild accepted that something cannot be read, and the audit log went on from what it found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct Cut {
    /// The number of the first record since.
    #[n(0)]
    pub first: u64,
    /// Notes of records with this number or a later one that have a lower sequence are of the log
    /// before.
    #[n(1)]
    pub sequence: u64,
}

/// What holds expiration back. Both only keep versions longer.
#[derive(Clone, Default, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct ExpirationRow {
    #[n(0)]
    pub paused: Option<Paused>,
    /// Versions a second at most that expiration deletes or notifies of.
    #[n(1)]
    pub rate: Option<u32>,
}

/// A pause of expiration and of lifecycle rules.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct Paused {
    #[n(0)]
    pub since: Timestamp,
    #[n(1)]
    pub by: Actor,
    #[n(2)]
    pub reason: String,
}

/// One opening for writing of catalog and data volume together.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct Pairing {
    /// Only rises. 0: no opening yet.
    #[n(0)]
    pub generation: u64,
    /// Random. It distinguishes two histories of one store with equally many openings.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub tag: [u8; 16],
}

/// The matter `rebuild`: everything that existed when a catalog was rebuilt in spite of unreadable
/// places. Its latest state is not proven, so none of it may be deleted or weakened until two
/// officers have decided.
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
    /// The first few unreadable places.
    #[n(3)]
    pub places: Vec<String>,
    /// The notes written since have this sequence or a higher one. None: an earlier version of
    /// Stele began the matter.
    #[n(4)]
    pub sequence: Option<u64>,
}

/// Records of the audit log that were lost when the catalog was rebuilt. Their numbers are used
/// again.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct Gap {
    #[n(0)]
    pub first: u64,
    /// None: the length of the lost log is not known.
    #[n(1)]
    pub last: Option<u64>,
    #[n(2)]
    pub rebuilt: Timestamp,
    /// No lost head was signed later, as a head states it. The system clock of the rebuild may have
    /// been ahead. None: the rebuild kept no such time.
    #[n(3)]
    pub signed: Option<String>,
}

impl Gap {
    /// Whether the rebuild lost this record.
    pub fn covers(&self, record: u64) -> bool {
        self.first <= record && self.last.is_none_or(|last| record <= last)
    }

    /// Whether the rebuild lost the log of this head. Later heads are of the rebuilt log, which
    /// uses the numbers again. Times are written so that they sort.
    pub fn explains(&self, head: &SignedHead) -> bool {
        let signed = self.signed.as_ref().is_none_or(|last| head.time <= *last);
        self.covers(head.records) && signed && head.time <= self.rebuilt.to_string()
    }
}

/// A number up to which (exclusive) numbers may have been given out.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct ReservedRow {
    #[n(0)]
    pub below: u64,
}

/// The note of the store itself in a segment.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct IdentityNote {
    #[n(0)]
    pub identity: IdentityRow,
    /// When the note was written. A rebuilt clock shows no less.
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
    /// Why expiration is frozen.
    #[n(2)]
    pub frozen: Option<String>,
    /// The latest moment at which the store was open: the wall clock at an opening, and the real
    /// time since. Never goes back.
    #[n(3)]
    pub seen: Option<Timestamp>,
    /// Milliseconds for which the store was closed and that were not made up since.
    #[n(4)]
    pub closed: Option<u64>,
    /// Reasons for the freeze beyond those in `frozen`.
    #[n(5)]
    pub more: Option<u64>,
    /// Milliseconds for which the store was ever open, by real elapsed time.
    #[n(6)]
    pub open: Option<u64>,
}
