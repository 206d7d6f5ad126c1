//! The errors of a catalog, by the caller's possible reaction.

use std::fmt;

use crate::catalog::Record;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CatalogError {
    /// A precondition did not hold: nothing changed. Read again and decide again.
    Failed(Failure),
    /// The transaction itself is wrong: a key or value is too long, or a counter would overflow.
    Invalid(String),
    /// No space for ordinary transactions. Reads, and transactions that may use the reserve, still
    /// work.
    Full(String),
    /// The queue is at its limit: nothing changed. Try again later.
    Busy,
    /// Stored data does not verify. The text names the place. Restore it, or rebuild from the data
    /// volume.
    Damaged(String),
    /// A later version of this code wrote it. It is not damaged and must not be replaced.
    Newer(String),
    /// The store has stopped, or its volume is out of reach. Only the next opening shows whether
    /// this transaction took place.
    Stopped(String),
}

/// The precondition that did not hold, and the record found instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The index among the transaction's preconditions.
    pub precondition: usize,
    /// The record found at the key, or the first one in the range that should have been empty.
    pub found: Option<Record>,
}

impl fmt::Display for CatalogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CatalogError::Failed(failure) => write!(
                f,
                "precondition {} does not hold: {}; nothing was changed, read again and retry",
                failure.precondition,
                if failure.found.is_some() { "another record is there" } else { "no record is there" }
            ),
            CatalogError::Invalid(message) => write!(f, "the transaction is not valid: {message}"),
            CatalogError::Full(message) => write!(f, "the catalog is full: {message}"),
            CatalogError::Busy => f.write_str("the catalog's queue is full; nothing was changed, try again"),
            CatalogError::Damaged(message) => write!(f, "the catalog is damaged: {message}"),
            CatalogError::Newer(message) => write!(f, "a newer version of Stele wrote the catalog: {message}"),
            CatalogError::Stopped(message) => {
                write!(f, "the catalog has stopped: {message}; open it again to see what was committed")
            }
        }
    }
}

impl std::error::Error for CatalogError {}
