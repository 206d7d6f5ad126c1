//! A segment of the data volume that is in use. A segment without a row is free.

use minicbor::{Decode, Encode};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) enum SegmentUse {
    /// Records are being appended, or were when the store was last open.
    #[n(0)]
    Open,
    #[n(1)]
    Sealed,
    /// A part of the key table, with its ordinal.
    #[n(2)]
    Keys(#[n(0)] u32),
    /// A rebuild could not read its header. It may hold records, and is neither read, moved nor
    /// freed.
    #[n(3)]
    Unreadable,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct SegmentRow {
    #[n(0)]
    pub usage: SegmentUse,
    /// Unique to this use of the segment. Every record in the segment repeats it.
    #[n(1)]
    pub incarnation: u64,
    /// Bytes from the segment's start to the end of its last record, when this row was written.
    #[n(2)]
    pub used: u32,
    /// Bytes of records that are still needed. A hint for reclamation, which checks each record; a
    /// count corrects it.
    #[n(3)]
    pub live: i64,
    /// Of these, bytes of records that are needed although no row refers to them.
    #[n(4)]
    #[cbor(default)]
    pub kept: u32,
}

impl SegmentRow {
    /// Of a segment in which nothing is counted yet.
    pub fn new(usage: SegmentUse, incarnation: u64, used: u32) -> SegmentRow {
        SegmentRow { usage, incarnation, used, live: 0, kept: 0 }
    }
}
