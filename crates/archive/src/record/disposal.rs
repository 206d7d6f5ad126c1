//! The work that remains after a deletion: the key entry to destroy, and the rows of long content to clear.

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
}
