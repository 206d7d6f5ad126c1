//! The target of a restore: files, directories, links and special files below one directory.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::{Job, lock};
use crate::chunker::CHUNK_MAX;
use crate::crypt::Kind;
use crate::error::{BackupError, Result};
use crate::tree::{Content, Entry, Metadata, Piece, Stamp};

/// What the target has under a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Present {
    No,
    /// A file with the size and the modification time: an earlier restore completed it.
    Complete,
    SameSize,
    Other,
}

type Folder = (Vec<u8>, Arc<OwnedFd>);

pub struct Target {
    root: OwnedFd,
    /// Whether owners can be set.
    is_root: bool,
    /// The restore made the directory.
    pub is_new: bool,
    /// The directory that was used last.
    last: Mutex<Option<Folder>>,
}

fn failed(action: &str, path: &[u8], error: Errno) -> BackupError {
    BackupError::io(action, Path::new(OsStr::from_bytes(path)), &error.into())
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (path.get(..at).unwrap_or_default(), path.get(at + 1..).unwrap_or_default()),
        None => (b"", path),
    }
}

impl Target {
    pub fn open(path: &Path) -> Result<Target> {
        let is_new = !path.exists();
        fs::create_dir_all(path).map_err(|error| BackupError::io("create", path, &error))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty());
        let root = root.map_err(|error| BackupError::io("open", path, &error.into()))?;
        Ok(Target { root, is_root: rustix::process::geteuid().is_root(), is_new, last: Mutex::new(None) })
    }

    /// Opens below the target, without following any symbolic link.
    fn open_at(&self, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let path = if path.is_empty() { b".".as_slice() } else { path };
        let mode = if flags.contains(OFlags::CREATE) { Mode::RUSR | Mode::WUSR } else { Mode::empty() };
        rustix::fs::openat2(&self.root, OsStr::from_bytes(path), flags | OFlags::CLOEXEC, mode, resolve)
    }

    fn folder(&self, path: &[u8]) -> rustix::io::Result<Arc<OwnedFd>> {
        if let Some((last, folder)) = &*lock(&self.last)
            && last == path
        {
            return Ok(Arc::clone(folder));
        }
        let folder = Arc::new(self.open_at(path, OFlags::PATH | OFlags::DIRECTORY)?);
        *lock(&self.last) = Some((path.to_vec(), Arc::clone(&folder)));
        Ok(folder)
    }

    fn stat(&self, path: &[u8]) -> rustix::io::Result<Option<Stat>> {
        let (folder, name) = split(path);
        match rustix::fs::statat(&*self.folder(folder)?, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            stat => stat.map(Some),
        }
    }

    /// Makes a directory unless it is there. Only its owner may enter it until its metadata are set.
    pub fn make_directory(&self, path: &[u8]) -> Result<()> {
        let (folder, name) = split(path);
        let cannot = |error| failed("create the directory", path, error);
        let folder = self.folder(folder).map_err(cannot)?;
        match rustix::fs::mkdirat(&*folder, OsStr::from_bytes(name), Mode::RWXU) {
            Err(Errno::EXIST) => match self.stat(path).map_err(cannot)? {
                Some(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                    // An earlier restore may have taken the right to write from its owner.
                    if !self.is_root && stat.st_mode & 0o700 != 0o700 {
                        let mode = Mode::from_raw_mode(stat.st_mode | 0o700);
                        let opened = self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(cannot)?;
                        rustix::fs::fchmod(opened, mode).map_err(cannot)?;
                    }
                    Ok(())
                }
                _ => Err(BackupError::Exists("a file is where a directory belongs".to_owned())),
            },
            made => made.map_err(cannot),
        }
    }

    pub fn present(&self, path: &[u8], size: u64, metadata: &Metadata) -> Result<Present> {
        let stat = self.stat(path).map_err(|error| failed("read the metadata of", path, error))?;
        let Some(stat) = stat else { return Ok(Present::No) };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_size as u64 != size {
            return Ok(Present::Other);
        }
        let modified = Stamp { seconds: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 };
        Ok(if modified == metadata.modified { Present::Complete } else { Present::SameSize })
    }

    /// Removes what is where a file belongs, but never a directory.
    pub fn remove(&self, path: &[u8]) -> Result<()> {
        let (folder, name) = split(path);
        let removed = self
            .folder(folder)
            .and_then(|folder| rustix::fs::unlinkat(&*folder, OsStr::from_bytes(name), AtFlags::empty()));
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::ISDIR) => Err(BackupError::Exists("a directory is where a file belongs".to_owned())),
            Err(error) => Err(failed("replace", path, error)),
        }
    }

    /// Makes an empty file of this length.
    pub fn make_file(&self, path: &[u8], size: u64) -> Result<()> {
        let made = self
            .open_at(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)
            .and_then(|file| if size > 0 { rustix::fs::ftruncate(file, size) } else { Ok(()) });
        made.map_err(|error| failed("create", path, error))
    }

    /// Makes a file of one chunk, with its metadata.
    pub fn write_whole(&self, path: &[u8], content: &[u8], metadata: &Metadata) -> Result<()> {
        let file = self.open_at(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL);
        let file = file.map_err(|error| failed("create", path, error))?;
        write_all(&file, content, 0).map_err(|error| failed("write", path, error))?;
        self.set_metadata(file.as_fd(), path, metadata)
    }

    pub fn write_at(&self, path: &[u8], content: &[u8], offset: u64) -> Result<()> {
        let file = self.open_at(path, OFlags::WRONLY).map_err(|error| failed("open", path, error))?;
        write_all(&file, content, offset).map_err(|error| failed("write", path, error))
    }

    /// Sets the metadata of a file or directory.
    pub fn set_metadata_at(&self, path: &[u8], metadata: &Metadata) -> Result<()> {
        let opened = self.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK);
        let opened = opened.map_err(|error| failed("open", path, error))?;
        self.set_metadata(opened.as_fd(), path, metadata)
    }

    /// Owner first: setting it clears bits of the mode and capabilities. Times last: everything else changes them.
    fn set_metadata(&self, file: BorrowedFd<'_>, path: &[u8], is: &Metadata) -> Result<()> {
        let owner = rustix::fs::fchown(file, Some(Uid::from_raw(is.user)), Some(Gid::from_raw(is.group)));
        self.forgive(owner).map_err(|error| failed("set the owner of", path, error))?;
        for (name, value) in &is.xattrs {
            let set = rustix::fs::fsetxattr(file, OsStr::from_bytes(name), value, XattrFlags::empty());
            set.map_err(|error| xattr_failed(path, name, error))?;
        }
        let mode = rustix::fs::fchmod(file, Mode::from_raw_mode(is.mode));
        mode.map_err(|error| failed("set the mode of", path, error))?;
        rustix::fs::futimens(file, &times(is)).map_err(|error| failed("set the times of", path, error))
    }

    /// Only root sets owners. Another user restores files as their own.
    fn forgive(&self, outcome: rustix::io::Result<()>) -> rustix::io::Result<()> {
        if outcome == Err(Errno::PERM) && !self.is_root { Ok(()) } else { outcome }
    }

    /// Makes a symbolic link or a special file, in place of what is there.
    pub fn make_other(&self, path: &[u8], entry: &Entry) -> Result<()> {
        let (folder_path, name_bytes) = split(path);
        let cannot = |error| failed("create", path, error);
        if self.stat(path).map_err(cannot)?.is_some() {
            self.remove(path)?;
        }
        let folder = self.folder(folder_path).map_err(cannot)?;
        let (is, name) = (&entry.metadata, OsStr::from_bytes(name_bytes));
        let mode = Mode::from_raw_mode(is.mode);
        let node = |kind, device| rustix::fs::mknodat(&*folder, name, kind, mode, device);
        match &entry.content {
            Content::Symlink(target) => rustix::fs::symlinkat(OsStr::from_bytes(target), &*folder, name),
            Content::Fifo => node(FileType::Fifo, 0),
            Content::Socket => node(FileType::Socket, 0),
            Content::CharacterDevice(device) => node(FileType::CharacterDevice, *device),
            Content::BlockDevice(device) => node(FileType::BlockDevice, *device),
            Content::Directory | Content::File { .. } => return Ok(()),
        }
        .map_err(cannot)?;
        let nofollow = AtFlags::SYMLINK_NOFOLLOW;
        let owner =
            rustix::fs::chownat(&*folder, name, Some(Uid::from_raw(is.user)), Some(Gid::from_raw(is.group)), nofollow);
        self.forgive(owner).map_err(|error| failed("set the owner of", path, error))?;
        let mut full = format!("/proc/self/fd/{}/", folder.as_raw_fd()).into_bytes();
        full.extend_from_slice(name_bytes);
        for (xattr, value) in &is.xattrs {
            let set =
                rustix::fs::lsetxattr(OsStr::from_bytes(&full), OsStr::from_bytes(xattr), value, XattrFlags::empty());
            set.map_err(|error| xattr_failed(path, xattr, error))?;
        }
        if !matches!(entry.content, Content::Symlink(_)) {
            // The umask took bits away.
            let set = rustix::fs::chmodat(&*folder, name, mode, AtFlags::empty());
            set.map_err(|error| failed("set the mode of", path, error))?;
        }
        let set = rustix::fs::utimensat(&*folder, name, &times(is), nofollow);
        set.map_err(|error| failed("set the times of", path, error))
    }

    /// Makes a further path of a file.
    pub fn link(&self, first: &[u8], path: &[u8]) -> Result<()> {
        let cannot = |error| failed("link", path, error);
        let (from, to) = (self.stat(first).map_err(cannot)?, self.stat(path).map_err(cannot)?);
        match (from, to) {
            (Some(from), Some(to)) if (from.st_dev, from.st_ino) == (to.st_dev, to.st_ino) => return Ok(()),
            (_, Some(_)) => self.remove(path)?,
            _ => {}
        }
        let ((first_folder, first_name), (folder, name)) = (split(first), split(path));
        let first_folder = self.folder(first_folder).map_err(cannot)?;
        let folder = self.folder(folder).map_err(cannot)?;
        let (first_name, name) = (OsStr::from_bytes(first_name), OsStr::from_bytes(name));
        rustix::fs::linkat(&*first_folder, first_name, &*folder, name, AtFlags::empty()).map_err(cannot)
    }
}

fn xattr_failed(path: &[u8], name: &[u8], error: Errno) -> BackupError {
    failed(&format!("set the extended attribute {} of", String::from_utf8_lossy(name)), path, error)
}

fn times(is: &Metadata) -> Timestamps {
    let modified = Timespec { tv_sec: is.modified.seconds as _, tv_nsec: is.modified.nanos as _ };
    let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT as _ };
    Timestamps { last_access: now, last_modification: modified }
}

fn write_all(file: &OwnedFd, mut content: &[u8], mut offset: u64) -> rustix::io::Result<()> {
    while !content.is_empty() {
        match rustix::io::pwrite(file, content, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(length) => {
                content = content.get(length..).unwrap_or_default();
                offset += length as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether the file in the target has this content.
pub fn matches(job: &Job<'_>, path: &[u8], pieces: &[Piece]) -> Result<bool> {
    let Ok(file) = job.target.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK) else { return Ok(false) };
    let Ok(stat) = rustix::fs::fstat(&file) else { return Ok(false) };
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile
        || Some(stat.st_size as u64) != crate::tree::total(pieces)
    {
        return Ok(false);
    }
    let (mut buffer, mut offset) = (Vec::new(), 0);
    for piece in pieces {
        job.progress.check()?;
        let mut left = piece.length();
        while left > 0 {
            let length = left.min(CHUNK_MAX as u64);
            buffer.resize(length as usize, 0);
            if !read_exact(&file, &mut buffer, offset) {
                return Ok(false);
            }
            let same = match piece {
                Piece::Chunk { id, .. } => job.indexed.keys.id(Kind::Content, &buffer) == *id,
                Piece::Hole(_) => buffer.iter().all(|byte| *byte == 0),
            };
            if !same {
                return Ok(false);
            }
            left -= length;
            offset += length;
        }
    }
    Ok(true)
}

fn read_exact(file: &OwnedFd, mut buffer: &mut [u8], mut offset: u64) -> bool {
    while !buffer.is_empty() {
        match rustix::io::pread(file, &mut *buffer, offset) {
            Ok(0) => return false,
            Ok(length) => {
                buffer = buffer.get_mut(length..).unwrap_or_default();
                offset += length as u64;
            }
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}
