//! What can go wrong with a drive, by what the caller can do about it.

use std::borrow::Cow;
use std::fmt;

/// The kinds of failure, by the answer they ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MediaFault {
    /// Passing: the same request may succeed later.
    Retry,
    /// The place cannot be read, or fails its digest beyond what redundancy repairs. Rewriting may cure a drive.
    Damaged,
    /// No room: nothing was stored. Reads and deletes still work.
    Full,
    /// Not allowed here: read-only, protected, fenced.
    Refused,
    /// The request itself is wrong: out of range, misaligned.
    Invalid,
    /// The drive is gone or has failed whole; every further request will fail too.
    Gone,
}

/// A failure with its cause and place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MediaError {
    pub fault: MediaFault,
    pub message: Cow<'static, str>,
}

impl MediaError {
    pub fn new(fault: MediaFault, message: impl Into<Cow<'static, str>>) -> MediaError {
        MediaError { fault, message: message.into() }
    }
}

impl fmt::Display for MediaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for MediaError {}
