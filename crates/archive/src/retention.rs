//! Retention: its rules and changes, the compliance clock, and the requests that take two officers.

pub mod acts;
pub mod approval;
pub(crate) mod classes;
pub mod clock;
pub(crate) mod doubt;
pub mod events;
mod expiring;
pub mod find;
pub(crate) mod holding;
pub mod keeping;
pub(crate) mod matters;
pub(crate) mod properties;
mod requests;
pub(crate) mod rules;
pub mod why;
