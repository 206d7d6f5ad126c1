//! The places of content: records, extents, streams, layouts.
//!
//! A stream is the content of one put or part, cut into pieces. A piece is a run of frames in one
//! segment. A stream of few pieces has its extents in the row that names it; a longer one has rows
//! of its own.

use minicbor::{Decode, Encode};

/// A record in a segment, with its header. Lengths are in bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug, Encode, Decode)]
pub(crate) struct Place {
    #[n(0)]
    pub segment: u32,
    /// From the segment's start.
    #[n(1)]
    pub at: u32,
    #[n(2)]
    pub length: u32,
}

/// One piece of a stream.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct Extent {
    #[n(0)]
    pub segment: u32,
    /// The piece's record, from the segment's start. Its frames begin behind the header.
    #[n(1)]
    pub at: u32,
    /// Bytes of content in the piece. All frames but the last of a stream are full.
    #[n(2)]
    pub bytes: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct Stream {
    #[n(0)]
    pub number: u64,
    /// Together with the object's key it gives the stream's key.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub salt: [u8; 16],
    #[n(2)]
    pub size: u64,
    /// All pieces, if they are few. None: the extents table has them.
    #[n(3)]
    pub extents: Option<Vec<Extent>>,
}

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) enum Content {
    /// A delete marker or an empty object.
    #[n(0)]
    None,
    #[n(1)]
    Stream(#[n(0)] Stream),
    /// The content is in the parts table and the layout of this object.
    #[n(2)]
    Parts,
}

/// Streams with at most this many pieces carry them in their row.
pub(crate) const INLINE_EXTENTS: usize = 12;
/// Pieces in one row of the extents table.
pub(crate) const CHUNK_EXTENTS: usize = 256;

/// Consecutive pieces of a stream; chunk n starts at piece n * CHUNK_EXTENTS.
#[derive(Clone, Default, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct ExtentList {
    #[n(0)]
    pub extents: Vec<Extent>,
    /// The object the stream belongs to.
    #[n(1)]
    pub object: u64,
}

/// The parts of a multipart object in their order.
#[derive(Clone, Default, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct Layout {
    #[n(0)]
    pub parts: Vec<LayoutPart>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct LayoutPart {
    #[n(0)]
    pub number: u32,
    #[n(1)]
    pub size: u64,
    #[n(2)]
    pub stream: u64,
}
