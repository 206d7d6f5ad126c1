//! Floor 1: erasure codes as pure functions over strips of equal length.
//!
//! A code has `data` strips and `parity` strips and survives the loss of any `parity` of them. A mirror is a
//! code with one data strip whose parity strips are copies, so that nothing above tells the two apart.

pub mod code;

pub use code::Code;
