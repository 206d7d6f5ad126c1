//! How far a count of the needed bytes has come.

use std::collections::BTreeMap;

use bytes::Bytes;
use stele_catalog::Snapshot;

use crate::record::segment::SegmentRow;

/// A count under way.
pub(crate) struct Count {
    pub view: Box<dyn Snapshot>,
    /// When the view was taken, in elapsed milliseconds.
    pub taken: u64,
    /// The segments at the beginning.
    pub before: BTreeMap<u32, SegmentRow>,
    /// Which of the referring tables is read, and behind which key.
    pub table: usize,
    pub after: Option<Bytes>,
    pub found: BTreeMap<u32, i64>,
}
