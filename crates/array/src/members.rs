//! Drives that come, go, return and are replaced.

mod growth;
mod joining;
mod membership;
mod reinstate;
