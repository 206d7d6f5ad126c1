//! Signature Version 4: identifies the sender of a request, and the parts that it signed.
//!
//! It is verified here and not by the wire crate, for four reasons. Signature Version 2 must be
//! refused, since it has no freshness check. The signature must cover every `x-amz-*` header. A
//! chunk of an aws-chunked body need not fit in memory before it is checked. Signing keys are
//! derived once for a day and scope instead of once for a request.
//!
//! Failure model: all contents of a request may be forged until `verify` returns.

mod canonical;
mod chunk;
mod claim;
mod keys;
mod stamp;

pub use canonical::{Parts, encode};
pub use chunk::ChunkSigner;
pub use claim::{Claim, PayloadSigning, payload_of, version_two};
pub use keys::SigningKeys;
#[cfg(test)]
pub use stamp::Stamp;

#[cfg(test)]
mod tests;
