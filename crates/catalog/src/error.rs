//! What can go wrong with a catalog, by what the caller can do about it.

use std::fmt;

use crate::catalog::Record;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CatalogError {
    /// A precondition did not hold: nothing changed. Read again and decide anew.
    Failed(Failure),
    /// The transaction itself is wrong: a key or value too long, a counter that would overflow.
    Invalid(String),
    /// No room for ordinary transactions. Reads, and transactions that may use the reserve, still work.
    Full(String),
    /// The queue is at its limit: nothing changed. Try again later.
    Busy,
    /// What is stored does not verify. Names the place; restore, or rebuild from the data volume.
    Damaged(String),
    /// A later version of this code wrote it: nothing is damaged, and nothing of it is to be replaced.
    Newer(String),
    /// The store has stopped, and whether this transaction took place is known only after it is opened again.
    Stopped(String),
}

/// Which precondition did not hold, and what was there instead.
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
