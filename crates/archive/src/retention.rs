//! Retention: its rules and changes, the compliance clock, and the requests that take two officers.

pub mod approval;
pub mod clock;
pub(crate) mod doubt;
mod keeping;
pub(crate) mod properties;
pub(crate) mod rules;
pub mod why;
