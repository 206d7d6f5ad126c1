//! Uploads by an HTML form (POST Object): the fields before the file, the policy that signs them,
//! and the file itself.
//!
//! Failure model: every byte may be forged or cut. The fields are bounded, and nothing is stored
//! before the policy's signature and each of its conditions hold and the closing boundary has
//! arrived.

mod fields;
mod file;
mod policy;

pub use fields::{FIELDS_MAX, Fields, boundary_of, read_fields};
pub use file::FileEnd;
pub use policy::{SignedPolicy, checked};

#[cfg(test)]
mod tests;
