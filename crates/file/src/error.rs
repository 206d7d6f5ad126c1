//! Why a call failed, by what the caller can do. Each protocol maps a variant to its own number.

use std::fmt;

pub type Result<T, E = FileError> = std::result::Result<T, E>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileError {
    /// EPERM: only the owner or root may do this.
    NotOwner,
    /// ENOENT.
    NotFound,
    /// EACCES: the mode does not allow it.
    Denied,
    /// EEXIST.
    Exists,
    /// EXDEV: the other file belongs to another share.
    OtherShare,
    /// ENOTDIR.
    NotDirectory,
    /// EISDIR.
    IsDirectory,
    /// EINVAL; the text says which argument and why.
    Invalid(String),
    /// EFBIG.
    TooLarge,
    /// ENOSPC: the cache holds only content that is not archived, and the archive takes no more.
    NoSpace,
    /// EROFS: retention forbids the change, or the share is open for reading only. The text says
    /// which.
    ReadOnly(String),
    /// EPERM: a setting or a limit of the share does not allow it. The text says which.
    Refused(String),
    /// EMLINK.
    TooManyLinks,
    /// ENAMETOOLONG.
    NameTooLong,
    /// ENOTEMPTY.
    NotEmpty,
    /// EDQUOT.
    OverQuota,
    /// ESTALE: the handle's file is gone.
    Stale,
    /// The file's change time is not the one that the caller expected.
    NotSynchronized,
    /// The place in a directory listing is none.
    BadCookie,
    /// ENOTSUP.
    NotSupported,
    /// ENODATA: there is no such extended attribute.
    NoAttribute,
    /// ENOSPC: names or values of extended attributes beyond the limit.
    TooManyAttributes,
    /// EIO: stored content cannot be read. The text names the place.
    Damaged(String),
    /// Ask again in a moment: the gateway waits for the archive.
    Retry(String),
    /// EIO: the gateway has stopped; what was not committed may be lost.
    Stopped(String),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            FileError::NotOwner => "only the owner or root may do this",
            FileError::NotFound => "there is no such file or directory",
            FileError::Denied => "the mode of the file or directory does not allow this",
            FileError::Exists => "the name exists already",
            FileError::OtherShare => "the two names belong to different shares",
            FileError::NotDirectory => "this is not a directory",
            FileError::IsDirectory => "this is a directory",
            FileError::TooLarge => "the file would be larger than a file can be",
            FileError::NoSpace => "there is no space left",
            FileError::TooManyLinks => "the file has as many names as a file can have",
            FileError::NameTooLong => "the name is longer than 255 bytes",
            FileError::NotEmpty => "the directory is not empty",
            FileError::OverQuota => "the bucket's quota is used up",
            FileError::Stale => "the file does not exist any more",
            FileError::NotSynchronized => "the file was changed since the caller looked at it",
            FileError::BadCookie => "the directory has no such place to continue at",
            FileError::NotSupported => "this is not supported",
            FileError::NoAttribute => "there is no such extended attribute",
            FileError::TooManyAttributes => "the extended attributes are larger than they can be",
            FileError::Invalid(text)
            | FileError::ReadOnly(text)
            | FileError::Refused(text)
            | FileError::Damaged(text)
            | FileError::Retry(text)
            | FileError::Stopped(text) => text,
        };
        f.write_str(text)
    }
}

impl std::error::Error for FileError {}
