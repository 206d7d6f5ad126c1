//! Objects that a later version of Stele wrote. They are whole, so they are no damage: nothing
//! marks, replaces or removes them, and no text advises to do so.
//!
//! Every magic ends with the digit of its version. An object counts as newer if its check holds, by
//! the rule of its kind, and if it begins with a known magic of a higher digit:
//!
//! - header, defaults, epoch: the last 32 bytes are the hash of all before,
//! - key, snapshot, segment: the name is the hash of the bytes. Of a segment the hash of the footer
//!   suffices, because the footer begins with the magic too.
//!
//! If the check does not hold, the object is damaged, whatever its digit.

use crate::error::BackupError;

/// The refusal of an object by the magic that it begins with, if that is a known one of a later
/// version. The caller has compared the object's hash, or does so.
pub(crate) fn refusal(what: &str, bytes: &[u8], known: &[u8; 8]) -> Option<BackupError> {
    let (last, kind) = known.split_last()?;
    let digit = *bytes.strip_prefix(kind)?.first()?;
    (digit.is_ascii_digit() && digit > *last).then(|| error(what, u64::from(digit - b'0'), u64::from(last - b'0')))
}

/// The same for an object that ends with the hash of all before.
pub(crate) fn refusal_of_sealed(what: &str, bytes: &[u8], known: &[u8; 8]) -> Option<BackupError> {
    let (body, hash) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
    refusal(what, body, known).filter(|_| blake3::hash(body).as_bytes() == hash)
}

pub(crate) fn error(what: &str, found: u64, known: u64) -> BackupError {
    BackupError::Newer(format!(
        "{what} has version {found}, and this program reads versions up to {known}: a later version of Stele wrote \
         it; use that version or a later one"
    ))
}

#[cfg(test)]
mod tests;
