//! What outlives the process: the log with its records, and the paged table with its anchors.

pub mod anchor;
pub mod log;
pub mod records;
pub mod table;
