//! The status numbers of NFS version 3 (RFC 1813, section 2.6), and which one each failure gets.

use crate::FileError;

pub const OK: u32 = 0;
pub const PERM: u32 = 1;
pub const NOENT: u32 = 2;
pub const IO: u32 = 5;
pub const ACCES: u32 = 13;
pub const EXIST: u32 = 17;
pub const XDEV: u32 = 18;
pub const NOTDIR: u32 = 20;
pub const ISDIR: u32 = 21;
pub const INVAL: u32 = 22;
pub const FBIG: u32 = 27;
pub const NOSPC: u32 = 28;
pub const ROFS: u32 = 30;
pub const MLINK: u32 = 31;
pub const NAMETOOLONG: u32 = 63;
pub const NOTEMPTY: u32 = 66;
pub const DQUOT: u32 = 69;
pub const STALE: u32 = 70;
pub const BADHANDLE: u32 = 10_001;
pub const NOT_SYNC: u32 = 10_002;
pub const BAD_COOKIE: u32 = 10_003;
pub const NOTSUPP: u32 = 10_004;
pub const TOOSMALL: u32 = 10_005;
pub const SERVERFAULT: u32 = 10_006;
pub const BADTYPE: u32 = 10_007;
pub const JUKEBOX: u32 = 10_008;

pub fn of(error: &FileError) -> u32 {
    match error {
        FileError::NotOwner | FileError::Refused(_) => PERM,
        FileError::NotFound => NOENT,
        FileError::Denied => ACCES,
        FileError::Exists => EXIST,
        FileError::OtherShare => XDEV,
        FileError::NotDirectory => NOTDIR,
        FileError::IsDirectory => ISDIR,
        FileError::Invalid(_) => INVAL,
        FileError::TooLarge => FBIG,
        FileError::NoSpace => NOSPC,
        FileError::ReadOnly(_) => ROFS,
        FileError::TooManyLinks => MLINK,
        FileError::NameTooLong => NAMETOOLONG,
        FileError::NotEmpty => NOTEMPTY,
        FileError::OverQuota => DQUOT,
        FileError::Stale => STALE,
        FileError::NotSynchronized => NOT_SYNC,
        FileError::BadCookie => BAD_COOKIE,
        FileError::NotSupported => NOTSUPP,
        // No call of NFS version 3 asks for extended attributes.
        FileError::NoAttribute | FileError::TooManyAttributes => SERVERFAULT,
        FileError::Retry(_) => JUKEBOX,
        FileError::Damaged(_) | FileError::Stopped(_) => IO,
    }
}
