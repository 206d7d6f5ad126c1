//! Errors, by what the caller can do.

use std::fmt;
use std::path::Path;

use rustix::io::Errno;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BackupError {
    /// The store has no repository. Create one, or name another place.
    NoRepository(String),
    /// No key of the repository opens with this password.
    WrongPassword,
    /// Another process has the repository, in a way that excludes this operation. Retry later.
    Locked(String),
    /// Stored bytes are not those that were written. Repair, or restore the rest.
    Damaged(String),
    /// A later version wrote it, and it is whole. Use that version; change and remove nothing.
    Newer(String),
    /// The named snapshot, path or segment is not there.
    Missing(String),
    /// It is there already.
    Exists(String),
    /// The store forbids it: retention, or credentials without this right.
    Refused(String),
    /// The store has no space left.
    Full(String),
    /// The request makes no sense. Change it.
    Invalid(String),
    /// No connection to the server of the store could be made. Retry later.
    Unreachable(String),
    /// The store or the file system failed. Retry.
    Failed(String),
    /// The caller asked to stop.
    Stopped,
}

pub type Result<T> = std::result::Result<T, BackupError>;

impl BackupError {
    pub fn damaged(text: impl Into<String>) -> BackupError {
        BackupError::Damaged(text.into())
    }

    /// An error of the operating system, with the attempted action and the place.
    pub fn io(action: &str, place: &Path, error: &std::io::Error) -> BackupError {
        use std::io::ErrorKind;
        let text = format!("cannot {action} {}: {error}", place.display());
        match error.kind() {
            ErrorKind::NotFound => BackupError::Missing(text),
            ErrorKind::AlreadyExists => BackupError::Exists(text),
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => BackupError::Refused(text),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => BackupError::Full(text),
            // A directory in the place of a file, or a file in the place of a directory.
            ErrorKind::IsADirectory | ErrorKind::NotADirectory => BackupError::Invalid(text),
            _ => BackupError::Failed(text),
        }
    }

    /// An error of reading a stored object. If the drive or the file system cannot give the bytes
    /// any more, the object is damaged, and all others are there.
    pub fn reading(place: &Path, error: &std::io::Error) -> BackupError {
        match BackupError::io("read", place, error) {
            BackupError::Failed(text)
                if matches!(Errno::from_io_error(error), Some(Errno::IO | Errno::UCLEAN | Errno::BADMSG)) =>
            {
                BackupError::Damaged(text)
            }
            other => other,
        }
    }
}

impl fmt::Display for BackupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackupError::WrongPassword => f.write_str("the password opens no key of the repository"),
            BackupError::Stopped => f.write_str("stopped on request"),
            BackupError::NoRepository(text)
            | BackupError::Locked(text)
            | BackupError::Damaged(text)
            | BackupError::Newer(text)
            | BackupError::Missing(text)
            | BackupError::Exists(text)
            | BackupError::Refused(text)
            | BackupError::Full(text)
            | BackupError::Invalid(text)
            | BackupError::Unreachable(text)
            | BackupError::Failed(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for BackupError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_the_place_of_a_directory_is_a_wrong_argument() {
        use std::io::ErrorKind;
        let told = |kind: ErrorKind| BackupError::io("create", Path::new("file/x"), &kind.into());
        for kind in [ErrorKind::NotADirectory, ErrorKind::IsADirectory] {
            assert!(matches!(told(kind), BackupError::Invalid(text) if text.starts_with("cannot create file/x: ")));
        }
        assert!(matches!(told(ErrorKind::Other), BackupError::Failed(_)));
    }
}
