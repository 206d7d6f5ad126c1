//! Numbers, kinds, times and errors, as FUSE has them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use fuser::{Errno, FileAttr, FileType, INodeNo, ReplyEmpty, ReplyLseek, TimeOrNow};

use super::dos;
use crate::{Attributes, FileError, Inode, Kind, Moment, SetTime};

/// The block that `stat` recommends, and in which `statfs` counts.
pub(super) const BLOCK: u32 = 4096;
/// `st_blocks` counts in these, whatever the block is.
const SECTOR: u64 = 512;

/// FUSE's root has the number 1. The share's root and the share's file 1 change places; every other
/// number stays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    pub(super) root: Inode,
    /// Samba serves the mount, and reads of a file's DOS attributes whether it is read-only.
    pub(super) dos_attributes: bool,
}

impl Numbers {
    pub(super) fn inode(self, number: INodeNo) -> Inode {
        Inode(self.swapped(number.0))
    }

    pub(super) fn number(self, inode: Inode) -> INodeNo {
        INodeNo(self.swapped(inode.0))
    }

    fn swapped(self, number: u64) -> u64 {
        match number {
            number if number == self.root.0 => INodeNo::ROOT.0,
            number if number == INodeNo::ROOT.0 => self.root.0,
            number => number,
        }
    }

    /// Samba lets the owner of a file without write permission change none of its attributes. So
    /// the owner could neither extend a retention nor clear read-only. Samba sees the permission of
    /// the owner here, and read-only among the DOS attributes. [`crate::Files`] decides.
    fn mode(self, file: &Attributes) -> u32 {
        let closed = file.kind == Kind::File && file.mode & dos::WRITE_BITS == 0;
        if self.dos_attributes && closed { file.mode | dos::OWNER_WRITES } else { file.mode }
    }

    pub(super) fn attributes(self, file: &Attributes) -> FileAttr {
        FileAttr {
            ino: self.number(file.inode),
            size: file.size,
            blocks: file.used.div_ceil(SECTOR),
            atime: system_time(file.accessed),
            mtime: system_time(file.modified),
            ctime: system_time(file.changed),
            crtime: UNIX_EPOCH,
            kind: file_type(file.kind),
            perm: (self.mode(file) & 0o7777) as u16,
            nlink: file.links,
            uid: file.uid,
            gid: file.gid,
            rdev: device_number(file.kind),
            blksize: BLOCK,
            flags: 0,
        }
    }
}

pub(super) fn name(name: &OsStr) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

pub(super) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Link => FileType::Symlink,
        Kind::BlockDevice { .. } => FileType::BlockDevice,
        Kind::CharacterDevice { .. } => FileType::CharDevice,
        Kind::Pipe => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
    }
}

/// The kind that a mode of `mknod` asks for; `None` if it is none that `mknod` makes.
pub(super) fn kind(mode: u32, device: u32) -> Option<Kind> {
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00);
    Some(match mode & libc::S_IFMT {
        // A mode without a kind is a regular file.
        0 | libc::S_IFREG => Kind::File,
        libc::S_IFBLK => Kind::BlockDevice { major, minor },
        libc::S_IFCHR => Kind::CharacterDevice { major, minor },
        libc::S_IFIFO => Kind::Pipe,
        libc::S_IFSOCK => Kind::Socket,
        _ => return None,
    })
}

/// The wire carries 12 bits of the major and 20 of the minor number; the rest is cut off.
fn device_number(kind: Kind) -> u32 {
    match kind {
        Kind::BlockDevice { major, minor } | Kind::CharacterDevice { major, minor } => {
            minor & 0xff | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
        }
        _ => 0,
    }
}

fn system_time(moment: Moment) -> SystemTime {
    let nanoseconds = Duration::from_nanos(u64::from(moment.nanoseconds));
    let seconds = Duration::from_secs(moment.seconds.unsigned_abs());
    let whole = match moment.seconds {
        0.. => UNIX_EPOCH.checked_add(seconds),
        _ => UNIX_EPOCH.checked_sub(seconds),
    };
    whole.and_then(|whole| whole.checked_add(nanoseconds)).unwrap_or(UNIX_EPOCH)
}

/// Before 1970, fuser subtracts the nanoseconds instead of adding them; this takes them back out.
pub(super) fn moment(time: SystemTime) -> Moment {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Moment { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            Moment { seconds: 0i64.wrapping_sub_unsigned(before.as_secs()), nanoseconds: before.subsec_nanos() }
        }
    }
}

pub(super) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(moment(time)),
    }
}

/// The one table from errors to numbers.
pub(super) fn errno(error: &FileError) -> Errno {
    Errno::from_i32(match error {
        FileError::NotOwner | FileError::Refused(_) => libc::EPERM,
        FileError::NotFound => libc::ENOENT,
        FileError::Denied => libc::EACCES,
        FileError::Exists => libc::EEXIST,
        FileError::OtherShare => libc::EXDEV,
        FileError::NotDirectory => libc::ENOTDIR,
        FileError::IsDirectory => libc::EISDIR,
        FileError::Invalid(_) => libc::EINVAL,
        FileError::TooLarge => libc::EFBIG,
        FileError::NoSpace => libc::ENOSPC,
        FileError::ReadOnly(_) => libc::EROFS,
        FileError::TooManyLinks => libc::EMLINK,
        FileError::NameTooLong => libc::ENAMETOOLONG,
        FileError::NotEmpty => libc::ENOTEMPTY,
        FileError::OverQuota => libc::EDQUOT,
        FileError::Stale => libc::ESTALE,
        // No request carries a guard.
        FileError::NotSynchronized => libc::EIO,
        FileError::BadCookie => libc::EINVAL,
        FileError::NotSupported => libc::ENOTSUP,
        FileError::NoAttribute => libc::ENODATA,
        // The kernel has refused longer names (ERANGE) and values (E2BIG): there is no room beside
        // the others.
        FileError::TooManyAttributes => libc::ENOSPC,
        FileError::Damaged(_) | FileError::Stopped(_) => libc::EIO,
        FileError::Retry(_) => libc::EAGAIN,
    })
}

/// Answers a change of extended attributes. Of EAGAIN the kernel would make EOPNOTSUPP.
pub(super) fn answer_attribute(reply: ReplyEmpty, changed: crate::Result<()>) {
    match changed {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(attribute_errno(&error)),
    }
}

/// Answers a search for data or a hole. After ENOSYS the kernel takes all for data, and asks no
/// more.
pub(super) fn answer_seek(reply: ReplyLseek, found: crate::Result<Option<u64>>) {
    match found {
        Ok(Some(at)) => reply.offset(i64::try_from(at).unwrap_or(i64::MAX)),
        Ok(None) => reply.error(Errno::ENXIO),
        Err(FileError::NotSupported) => reply.error(Errno::ENOSYS),
        Err(error) => reply.error(errno(&error)),
    }
}

fn attribute_errno(error: &FileError) -> Errno {
    match error {
        FileError::Retry(_) => Errno::EBUSY,
        other => errno(other),
    }
}

#[cfg(test)]
mod tests;
