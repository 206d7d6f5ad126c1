//! The errors of a drive, by the caller's possible reaction.

use std::borrow::Cow;
use std::fmt;

/// The kinds of failure, by the reaction they need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MediaFault {
    /// Temporary: the same request may succeed later.
    Retry,
    /// The place is unreadable, or fails its digest beyond what redundancy repairs. A rewrite may
    /// repair it.
    Damaged,
    /// No space: nothing was stored. Reads and deletes still work.
    Full,
    /// Not allowed here: read-only, protected, fenced.
    Refused,
    /// The request itself is wrong: out of range, misaligned.
    Invalid,
    /// The drive is gone or has failed as a whole; every further request will fail too.
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
