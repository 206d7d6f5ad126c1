//! The status numbers of NFS version 4.1 (RFC 8881, section 15), and which one each failure gets.

use crate::FileError;

pub const OK: u32 = 0;
pub const PERM: u32 = 1;
pub const NOENT: u32 = 2;
pub const IO: u32 = 5;
pub const ACCESS: u32 = 13;
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
pub const BAD_COOKIE: u32 = 10_003;
pub const NOTSUPP: u32 = 10_004;
pub const TOOSMALL: u32 = 10_005;
pub const SERVERFAULT: u32 = 10_006;
pub const BADTYPE: u32 = 10_007;
pub const DELAY: u32 = 10_008;
pub const SAME: u32 = 10_009;
pub const DENIED: u32 = 10_010;
pub const LOCKED: u32 = 10_012;
pub const GRACE: u32 = 10_013;
pub const SHARE_DENIED: u32 = 10_015;
pub const CLID_INUSE: u32 = 10_017;
pub const NOFILEHANDLE: u32 = 10_020;
pub const MINOR_VERS_MISMATCH: u32 = 10_021;
pub const STALE_CLIENTID: u32 = 10_022;
pub const OLD_STATEID: u32 = 10_024;
pub const BAD_STATEID: u32 = 10_025;
pub const NOT_SAME: u32 = 10_027;
pub const SYMLINK: u32 = 10_029;
pub const ATTRNOTSUPP: u32 = 10_032;
pub const NO_GRACE: u32 = 10_033;
pub const RECLAIM_CONFLICT: u32 = 10_035;
pub const BADXDR: u32 = 10_036;
pub const LOCKS_HELD: u32 = 10_037;
pub const OPENMODE: u32 = 10_038;
pub const BADOWNER: u32 = 10_039;
pub const BADCHAR: u32 = 10_040;
pub const BADNAME: u32 = 10_041;
pub const OP_ILLEGAL: u32 = 10_044;
pub const BADSESSION: u32 = 10_052;
pub const BADSLOT: u32 = 10_053;
pub const COMPLETE_ALREADY: u32 = 10_054;
pub const SEQ_MISORDERED: u32 = 10_063;
pub const SEQUENCE_POS: u32 = 10_064;
pub const REQ_TOO_BIG: u32 = 10_065;
pub const REP_TOO_BIG: u32 = 10_066;
pub const REP_TOO_BIG_TO_CACHE: u32 = 10_067;
pub const RETRY_UNCACHED_REP: u32 = 10_068;
pub const TOO_MANY_OPS: u32 = 10_070;
pub const OP_NOT_IN_SESSION: u32 = 10_071;
pub const CLIENTID_BUSY: u32 = 10_074;
pub const SEQ_FALSE_RETRY: u32 = 10_076;
pub const DEADSESSION: u32 = 10_078;
pub const NOT_ONLY_OP: u32 = 10_081;
pub const WRONG_CRED: u32 = 10_082;
pub const WRONG_TYPE: u32 = 10_083;

pub fn of(error: &FileError) -> u32 {
    match error {
        FileError::NotOwner | FileError::Refused(_) => PERM,
        FileError::NotFound => NOENT,
        FileError::Denied => ACCESS,
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
        // No call of this version has a guard.
        FileError::NotSynchronized => SERVERFAULT,
        FileError::BadCookie => BAD_COOKIE,
        FileError::NotSupported => NOTSUPP,
        // No call of this minor version asks for extended attributes.
        FileError::NoAttribute | FileError::TooManyAttributes => SERVERFAULT,
        FileError::Retry(_) => DELAY,
        FileError::Damaged(_) | FileError::Stopped(_) => IO,
    }
}
