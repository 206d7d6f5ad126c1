//! Where content lies: places, extents, streams, layouts.
//!
//! A stream is the content of one put or part, cut into pieces; a piece lies in one segment as a run of frames.
//! Streams of few pieces carry their extents in the row that names them; longer ones have rows of their own.

use minicbor::{Decode, Encode};

/// A record in a segment, header included. Lengths are bytes.
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
    /// Bytes of content in it; all frames but the last of a stream are full.
    #[n(2)]
    pub bytes: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct Stream {
    #[n(0)]
    pub number: u64,
    /// With the object's key it gives the stream's key.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub salt: [u8; 16],
    #[n(2)]
    pub size: u64,
    /// All pieces, if they are few; none: rows in the extents table.
    #[n(3)]
    pub extents: Option<Vec<Extent>>,
}

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) enum Content {
    /// A delete marker, or no bytes.
    #[n(0)]
    None,
    #[n(1)]
    Stream(#[n(0)] Stream),
    /// The parts table and the layout of this object.
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
