//! Evidence for people who do not trust this machine: receipts, proofs that the log has only grown,
//! and the records of a retention proof.
//!
//! Every proof ends at a signed head of the audit log. What verifies needs a public key and no
//! store: it takes untrusted input, and its finding is a text. FORMAT/evidence.md has the bytes.

pub(crate) mod bundle;
pub(crate) mod disposal;
pub(crate) mod disposals;
pub(crate) mod export;
pub(crate) mod format;
pub(crate) mod issue;
pub(crate) mod log;
pub(crate) mod receipt;
mod together;
