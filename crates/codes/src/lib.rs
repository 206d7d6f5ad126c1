//! Floor 1: erasure codes as pure functions over strips of equal length.
//!
//! A code has `data` strips and `parity` strips, and tolerates the loss of any `parity` of them. A
//! mirror is a code with one data strip whose parity strips are copies, so that the array need not
//! distinguish the two. The stored bytes are specified in `FORMAT/codes.md`.

pub mod code;
pub mod coder;
pub mod field;
pub mod kernel;
pub mod plan;

pub use code::Code;
pub use coder::Coder;
pub use kernel::Kernel;
pub use plan::{Plan, Strips};
