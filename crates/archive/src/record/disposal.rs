//! The work that remains after a deletion: the key entry to destroy, and the rows of long content
//! to clear.

use minicbor::{Decode, Encode};

use crate::record::content::{Content, Place};

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct DisposalRow {
    #[n(0)]
    pub object: u64,
    #[n(1)]
    pub content: Content,
    #[n(2)]
    pub note: Place,
    /// The version, if the audit log is to say when its key was destroyed.
    #[n(3)]
    pub certified: Option<Certified>,
}

/// A removed version that was under retention.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct Certified {
    /// Name of the bucket. The bucket may be gone when the key is destroyed.
    #[n(0)]
    pub bucket: String,
    #[n(1)]
    pub key: String,
    #[n(2)]
    pub version: String,
    /// What the record of the destruction says of the version.
    #[n(3)]
    pub says: String,
}
