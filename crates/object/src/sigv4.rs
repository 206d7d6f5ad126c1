//! Signature Version 4: who sent a request, and what exactly they signed.
//!
//! Verified here and not by the wire crate, for four reasons: Signature Version 2 must be refused
//! (it has no freshness check); every `x-amz-*` header must be covered by the signature; a chunk of
//! an aws-chunked body must not have to fit in memory before it is checked; and signing keys are
//! derived once a day and scope instead of once a request.
//!
//! Failure model: everything in a request is invented by a stranger until `verify` returns.

mod canonical;
mod chunk;
mod claim;
mod keys;
mod stamp;

pub use canonical::Parts;
pub use chunk::ChunkSigner;
pub use claim::{Claim, PayloadSigning};
pub use keys::SigningKeys;
#[cfg(test)]
pub use stamp::Stamp;

#[cfg(test)]
mod tests;
