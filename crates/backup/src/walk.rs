//! Walking through a file system: entries in the order of the tree, with their metadata.
//!
//! Every file is opened relative to its directory and never through a symbolic link, so nothing
//! outside of the tree is read if another process exchanges a directory during the backup. The walk
//! keeps one descriptor for each level.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;

use crate::tree::{Content, Metadata, Stamp, XATTR_MAX, XATTRS_BYTES_MAX, XATTRS_MAX};

/// The file that marks a directory as a cache, for programs that leave caches out, and how it
/// begins.
pub const CACHE_TAG: &str = "CACHEDIR.TAG";
pub const CACHE_SIGNATURE: &str = "Signature: 8a477f597d28d172789f06886806bc55";

/// A directory that is open.
pub type DirectoryHandle = Arc<OwnedFd>;

/// Names and metadata of a directory, read relative to it.
pub fn open_top() -> rustix::io::Result<DirectoryHandle> {
    rustix::fs::open("/", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map(Arc::new)
}

pub fn open_folder(parent: &DirectoryHandle, name: &[u8]) -> rustix::io::Result<DirectoryHandle> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open(parent.as_fd(), name, flags).map(Arc::new)
}

/// Opens a directory that only leads to others, whose names are known. The right to enter it
/// suffices: a home directory mostly lies in one that its user may not list.
pub fn open_passage(parent: &DirectoryHandle, name: &[u8]) -> rustix::io::Result<DirectoryHandle> {
    match open_folder(parent, name) {
        Err(Errno::ACCESS) => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            open(parent.as_fd(), name, flags).map(Arc::new)
        }
        opened => opened,
    }
}

/// Opens a file for reading. Without waiting, should it have become a pipe.
pub fn open_file(parent: &DirectoryHandle, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    match open(parent.as_fd(), name, flags) {
        Err(Errno::AGAIN) => open_leased(parent, name),
        opened => opened,
    }
}

/// Opens a file of which another process holds a lease, as file servers do for their clients. The
/// kernel asks for the lease back, and takes it away after 45 seconds (`lease-break-time`). So this
/// waits, but only for a regular file.
fn open_leased(parent: &DirectoryHandle, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let known = rustix::fs::openat(parent, OsStr::from_bytes(name), flags, Mode::empty())?;
    if !is_file(&rustix::fs::fstat(&known)?) {
        return Err(Errno::AGAIN);
    }
    // The inode that was looked at, whatever has the name now.
    let by_inode = format!("/proc/self/fd/{}", known.as_raw_fd());
    open(rustix::fs::CWD, by_inode.as_bytes(), OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY)
}

/// Without a change of the access time, where that is allowed.
fn open(parent: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let name = OsStr::from_bytes(name);
    match rustix::fs::openat(parent, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => rustix::fs::openat(parent, name, flags, Mode::empty()),
        opened => opened,
    }
}

pub fn stat(parent: &DirectoryHandle, name: &[u8]) -> rustix::io::Result<Stat> {
    rustix::fs::statat(parent, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW)
}

/// The names in a directory, in the order of their bytes.
pub fn names(folder: &DirectoryHandle) -> rustix::io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    names.sort_unstable();
    Ok(names)
}

pub fn metadata(stat: &Stat) -> Metadata {
    let stamp = |seconds: i64, nanos: u64| Stamp { seconds, nanos: (nanos % 1_000_000_000) as u32 };
    Metadata {
        mode: stat.st_mode & 0o7777,
        user: stat.st_uid,
        group: stat.st_gid,
        modified: stamp(stat.st_mtime, stat.st_mtime_nsec),
        changed: stamp(stat.st_ctime, stat.st_ctime_nsec),
        device: stat.st_dev,
        inode: stat.st_ino,
        links: stat.st_nlink,
        xattrs: Vec::new(),
    }
}

/// The content of everything that is no regular file. None: it is one, or it is of no known kind.
pub fn content(parent: &DirectoryHandle, name: &[u8], stat: &Stat) -> rustix::io::Result<Option<Content>> {
    Ok(Some(match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Content::Directory,
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(parent, OsStr::from_bytes(name), Vec::new())?;
            Content::Symlink(target.into_bytes())
        }
        FileType::Fifo => Content::Fifo,
        FileType::Socket => Content::Socket,
        FileType::CharacterDevice => Content::CharacterDevice(stat.st_rdev),
        FileType::BlockDevice => Content::BlockDevice(stat.st_rdev),
        _ => return Ok(None),
    }))
}

/// Whether the file has holes.
pub fn is_sparse(stat: &Stat) -> bool {
    (stat.st_blocks as u64).saturating_mul(512) < stat.st_size as u64
}

/// The next data at or behind `at`, at most `end`.
pub fn next_data(file: &OwnedFd, at: u64, end: u64) -> rustix::io::Result<u64> {
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) => Ok(data.min(end)),
        // There is no data behind.
        Err(Errno::NXIO) => Ok(end),
        Err(error) => Err(error),
    }
}

pub fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// The extended attributes of an open file. Those of access control lists are among them.
pub fn xattrs(file: BorrowedFd<'_>) -> rustix::io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    gather(|buffer| rustix::fs::flistxattr(file, buffer), |name, buffer| rustix::fs::fgetxattr(file, name, buffer))
}

/// Those of something that cannot be opened: a symbolic link or a special file.
pub fn xattrs_unopened(parent: &DirectoryHandle, name: &[u8]) -> rustix::io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut path = format!("/proc/self/fd/{}/", parent.as_fd().as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    let path = OsStr::from_bytes(&path);
    gather(|buffer| rustix::fs::llistxattr(path, buffer), |name, buffer| rustix::fs::lgetxattr(path, name, buffer))
}

/// What to say of attributes that could not be read. The rest is saved.
pub fn xattrs_failed(error: Errno) -> String {
    match error {
        Errno::TOOBIG => format!(
            "its extended attributes are left out: they exceed {XATTRS_BYTES_MAX} bytes or a number of {XATTRS_MAX}"
        ),
        _ => format!("its extended attributes are left out, they cannot be read: {error}"),
    }
}

fn gather(
    list: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
    get: impl Fn(&OsStr, &mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    // Nearly every file has none, and then this is one call.
    let mut first = [0; 256];
    let names = match list(&mut first) {
        Ok(0) | Err(Errno::NOTSUP) => return Ok(Vec::new()),
        Ok(length) => first.get(..length).unwrap_or_default().to_vec(),
        Err(Errno::RANGE) => grown(&list)?,
        Err(error) => return Err(error),
    };
    let (mut found, mut bytes) = (Vec::new(), 0);
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name_text = OsStr::from_bytes(name);
        match grown(&|buffer: &mut [u8]| get(name_text, buffer)) {
            Ok(value) => {
                bytes += name.len() + value.len();
                found.push((name.to_vec(), value));
                if bytes > XATTRS_BYTES_MAX || found.len() as u64 > XATTRS_MAX {
                    return Err(Errno::TOOBIG);
                }
            }
            // It was removed meanwhile.
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error),
        }
    }
    found.sort();
    Ok(found)
}

fn grown(call: &impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut buffer = vec![0; 1024];
    loop {
        match call(&mut buffer) {
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
            Err(Errno::RANGE) if buffer.len() < XATTR_MAX => buffer.resize(buffer.len() * 8, 0),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
