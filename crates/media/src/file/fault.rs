//! Maps the system's error numbers to the caller's reactions.

use std::io;
use std::path::Path;

use crate::{MediaError, MediaFault};

/// The fault for an error of the system.
pub fn fault_of(error: &io::Error) -> MediaFault {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => MediaFault::Full,
        Some(libc::ENODEV | libc::ENXIO | libc::ESTALE | libc::ENOMEDIUM | libc::ENOENT | libc::EBADF) => {
            MediaFault::Gone
        }
        Some(libc::ESHUTDOWN | libc::ENOLINK | libc::ENOTCONN) => MediaFault::Gone,
        Some(libc::EAGAIN | libc::EINTR | libc::ENOMEM | libc::EBUSY | libc::ETIMEDOUT | libc::ENOBUFS) => {
            MediaFault::Retry
        }
        // The process or the system is short of something, and no drive is at fault.
        Some(libc::EMFILE | libc::ENFILE | libc::ENOLCK) => MediaFault::Retry,
        Some(libc::EPERM | libc::EACCES | libc::EROFS | libc::ETXTBSY) => MediaFault::Refused,
        Some(libc::EINVAL | libc::EOPNOTSUPP | libc::EISDIR | libc::ENOTDIR) => MediaFault::Invalid,
        // EIO, EREMOTEIO, EBADMSG, EILSEQ, ENODATA and all other errors of a driver: the place is
        // unusable.
        _ => MediaFault::Damaged,
    }
}

pub(crate) fn failure(path: &Path, what: &str, error: &io::Error) -> MediaError {
    MediaError::new(fault_of(error), format!("{}: {what}: {error}", path.display()))
}
