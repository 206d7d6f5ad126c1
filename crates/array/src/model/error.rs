//! What the array refuses or cannot do, by what the caller can do about it.

use std::fmt;

/// Each message gives cause, place and the next step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ArrayError {
    /// The request is wrong as it stands: a size out of range, too few drives for the code.
    Invalid(String),
    /// The name is taken.
    Exists(String),
    /// Forbidden in this state: protected volume, read-only pool, drive of another pool.
    Refused(String),
    /// Another process holds a drive now.
    Busy(String),
    /// No room, now; nothing was stored.
    Full(String),
    /// Too little redundancy or no quorum; adding or returning drives helps.
    Degraded(String),
    /// Stored bytes are damaged beyond redundancy; names what and where.
    Damaged(String),
    /// No such volume or drive.
    Missing(String),
    /// The pool has stopped and answers nothing any more.
    Stopped(String),
}

impl fmt::Display for ArrayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ArrayError::Invalid(message)
        | ArrayError::Exists(message)
        | ArrayError::Refused(message)
        | ArrayError::Busy(message)
        | ArrayError::Full(message)
        | ArrayError::Degraded(message)
        | ArrayError::Damaged(message)
        | ArrayError::Missing(message)
        | ArrayError::Stopped(message)) = self;
        f.write_str(message)
    }
}

impl std::error::Error for ArrayError {}

/// What a scrub came to in one part of what the pool keeps of itself.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Scrubbed {
    /// Damaged copies that were written again.
    pub repaired: u64,
    /// What could not be put right, and where.
    pub trouble: Vec<ArrayError>,
}

impl From<Result<u64, ArrayError>> for Scrubbed {
    fn from(repaired: Result<u64, ArrayError>) -> Scrubbed {
        match repaired {
            Ok(repaired) => Scrubbed { repaired, trouble: Vec::new() },
            Err(error) => Scrubbed { repaired: 0, trouble: vec![error] },
        }
    }
}
