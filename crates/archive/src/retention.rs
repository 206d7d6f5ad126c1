//! Retention: the rules, the changes they allow, the compliance clock, and what takes two officers.

pub mod approval;
pub mod clock;
pub(crate) mod doubt;
pub(crate) mod properties;
pub(crate) mod rules;
pub mod why;
