//! The read-only attribute of DOS, which Samba stores in `user.DOSATTRIB`, as permission to write.
//!
//! A file is committed by taking its write permissions. Samba sets its own attribute instead of the
//! mode, unless it stores no DOS attributes at all; then the archive attribute and the time of
//! creation are lost too. So the mount keeps the two alike: the attribute follows the mode when it
//! is read, and the mode follows it when it is set. Of files without write permission the mount
//! shows Samba a mode in which the owner may write: Samba then lets the owner change attributes. A
//! committed file shows no read-only once its retention has ended: Samba removes no read-only file.
//!
//! The value is what Samba 4 writes, version 5 of its format, little endian:
//!
//! ```text
//! 0  text of version 1: empty, so one zero byte and one to fill up
//! 2  u16 version: 5     4  u32 version again
//! 8  u32 which fields are valid; bit 0: the attributes
//! 12 u32 attributes; bit 0: read-only
//! 16 u64 time of creation
//! ```

use bytes::Bytes;

pub(super) const NAME: &[u8] = b"user.DOSATTRIB";
pub(super) const WRITE_BITS: u32 = 0o222;
pub(super) const OWNER_WRITES: u32 = 0o200;
const READ_ONLY: u8 = 1;
/// Read-only and no other attribute, without a time of creation.
const READ_ONLY_ALONE: [u8; 24] = [0, 0, 5, 0, 5, 0, 0, 0, 1, 0, 0, 0, READ_ONLY, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const VALID_PLACE: usize = 8;
const ATTRIBUTES_PLACE: usize = 12;

/// Whether the value says read-only; `None` if it is of another version, or says nothing of it.
fn read_only(value: &[u8]) -> Option<bool> {
    match value {
        [0, _, 5, 0, 5, 0, 0, 0, ..] if value.get(VALID_PLACE).is_some_and(|valid| valid & 1 != 0) => {
            value.get(ATTRIBUTES_PLACE).map(|attributes| attributes & READ_ONLY != 0)
        }
        _ => None,
    }
}

/// The mode that a file takes with this value, if another.
pub(super) fn mode_for(value: &[u8], mode: u32) -> Option<u32> {
    match (read_only(value)?, mode & WRITE_BITS != 0) {
        (true, true) => Some(mode & !WRITE_BITS),
        (false, false) => Some(mode | OWNER_WRITES),
        _ => None,
    }
}

/// The value as it is read from a file of this mode.
pub(super) fn value_for(value: Bytes, mode: u32) -> Bytes {
    let expected = mode & WRITE_BITS == 0;
    if read_only(&value).is_none_or(|found| found == expected) {
        return value;
    }
    let mut changed = value.to_vec();
    if let Some(attributes) = changed.get_mut(ATTRIBUTES_PLACE) {
        *attributes ^= READ_ONLY;
    }
    Bytes::from(changed)
}

/// The value of a file of this mode that has none stored: only read-only has to be told.
pub(super) fn value_of(mode: u32) -> Option<Bytes> {
    (mode & WRITE_BITS == 0).then(|| Bytes::from_static(&READ_ONLY_ALONE))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As smbd 4.17 wrote it for a new file.
    const ARCHIVED: [u8; 24] =
        [0, 0, 5, 0, 5, 0, 0, 0, 0x11, 0, 0, 0, 0x20, 0, 0, 0, 0x27, 0xee, 0x91, 0x9f, 0x91, 0x7a, 0xdd, 0x01];

    fn with(place: usize, byte: u8) -> Bytes {
        let mut value = ARCHIVED;
        value[place] = byte;
        Bytes::copy_from_slice(&value)
    }

    #[test]
    fn the_mode_follows_the_attribute() {
        for (value, mode, expected) in [
            (with(12, 0x21), 0o6664, Some(0o6444)),
            (with(12, 0x21), 0o444, None),
            (with(12, 0x20), 0o444, Some(0o644)),
            (with(12, 0x20), 0o644, None),
            (with(12, 0x20), 0o020, None),
            // Attributes that are not valid, other versions, and what is too short say nothing.
            (with(8, 0x10), 0o444, None),
            (with(2, 4), 0o444, None),
            (Bytes::copy_from_slice(&ARCHIVED[..12]), 0o444, None),
            (Bytes::copy_from_slice(b"0x20"), 0o444, None),
            (Bytes::new(), 0o444, None),
        ] {
            assert_eq!(mode_for(&value, mode), expected, "{value:?} at {mode:o}");
        }
    }

    #[test]
    fn the_attribute_follows_the_mode() {
        for (value, mode, expected) in [
            (with(12, 0x20), 0o444, with(12, 0x21)),
            (with(12, 0x21), 0o644, with(12, 0x20)),
            (with(12, 0x21), 0o444, with(12, 0x21)),
            (with(12, 0x20), 0o644, with(12, 0x20)),
            (with(2, 4), 0o444, with(2, 4)),
            (Bytes::copy_from_slice(b"0x20"), 0o444, Bytes::copy_from_slice(b"0x20")),
        ] {
            assert_eq!(value_for(value.clone(), mode), expected, "{value:?} at {mode:o}");
        }
    }

    #[test]
    fn a_file_without_attributes_has_those_of_its_mode() {
        for mode in [0o444, 0o400, 0] {
            let value = value_of(mode).expect("read-only");
            assert_eq!(read_only(&value), Some(true), "{mode:o}");
            assert_eq!(mode_for(&value, 0o644), Some(0o444), "{mode:o}");
        }
        assert_eq!(value_of(0o200), None);
    }
}
