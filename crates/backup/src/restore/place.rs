//! The target of a restore: files, directories, links and special files below one directory.
//!
//! Other users may write in the target, and root restores what only root may have. So nothing is
//! trusted by its path alone. Whatever is opened again must be the inode that the restore made. A
//! file must have its owner too: a file system gives the inode of a removed file to the next one.
//! And a file that is there counts as complete only if no other user can have planted it.

mod compare;
mod folders;

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::unfinished::{self, Unfinished};
use crate::crypt::hex;
use crate::error::{BackupError, Result};
use crate::repository::Surroundings;
use crate::tree::{Content, Entry, Metadata, Stamp};
pub use compare::matches;
use folders::Folders;

/// What the target has under a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Present {
    No,
    /// A file with the size and the modification time: an earlier restore completed it.
    Complete(Identity),
    SameSize(Identity),
    Other,
}

/// Which inode a path had, and its owner at that time. If it has another one later, the file was
/// exchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    device: u64,
    inode: u64,
    owner: u32,
}

impl Identity {
    fn of(stat: &Stat) -> Identity {
        Identity { device: stat.st_dev, inode: stat.st_ino, owner: stat.st_uid }
    }

    fn is_inode_of(self, stat: &Stat) -> bool {
        (self.device, self.inode) == (stat.st_dev, stat.st_ino)
    }
}

/// Owners, attributes and modes that could not be set. The content is there all the same.
pub type Faults = Vec<BackupError>;

/// What a killed restore may leave begins with this.
const TEMPORARY: &str = ".stele-restore";

/// The attribute that gives rights to those who run the file.
const CAPABILITIES: &[u8] = b"security.capability";

/// Those of access control lists. A new file gets them from its directory, if that has a default.
const ACCESS_LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

pub struct Target {
    root: OwnedFd,
    /// The target itself. Files on other devices are forced to their drives one by one.
    identity: Identity,
    /// The user of this process, who owns what the restore makes.
    user: u32,
    /// Whether owners can be set.
    is_root: bool,
    /// A restore made the directory, this one or one that was interrupted.
    unfinished: Option<Unfinished>,
    /// The name of what is made in place of something else.
    temporary: String,
    folders: Folders,
    /// After so many calls the drive fails to store what was written.
    #[cfg(test)]
    pub syncs_left: std::sync::atomic::AtomicU32,
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
    #[cfg(test)]
    pub fn open(path: &Path) -> Result<Target> {
        Target::open_with(path).map(|(target, _)| target)
    }

    /// Opens or makes the target. Gives the directories that a restore made too, the deepest first:
    /// see [`unfinished::remove`].
    pub fn open_with(path: &Path) -> Result<(Target, Vec<PathBuf>)> {
        let made = unfinished::make(path)?;
        let target = Target::open_made(path, !made.is_empty()).inspect_err(|_| unfinished::remove(&made))?;
        let resumed = target.unfinished.is_some() && made.is_empty();
        Ok((target, if resumed { vec![path.to_owned()] } else { made }))
    }

    fn open_made(path: &Path, is_new: bool) -> Result<Target> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty());
        let root = root.map_err(|error| BackupError::io("open", path, &error.into()))?;
        let stat = rustix::fs::fstat(&root).map_err(|error| BackupError::io("open", path, &error.into()))?;
        let user = rustix::process::geteuid();
        let unfinished = Unfinished::of(&root, is_new, user.as_raw());
        let unfinished = unfinished.map_err(|error| BackupError::io("restore into", path, &error.into()))?;
        Ok(Target {
            root,
            identity: Identity::of(&stat),
            user: user.as_raw(),
            is_root: user.is_root(),
            unfinished,
            temporary: TEMPORARY.to_owned(),
            folders: Folders::default(),
            #[cfg(test)]
            syncs_left: u32::MAX.into(),
        })
    }

    /// Makes the temporary name one that no other user can know.
    pub fn draw(&mut self, surroundings: &dyn Surroundings) {
        let mut random = [0; 8];
        surroundings.entropy(&mut random);
        self.temporary = format!("{TEMPORARY}-{}", hex(&random));
    }

    /// Whether the target gets the metadata of the selected directory.
    pub fn is_new(&self) -> bool {
        self.unfinished.is_some()
    }

    /// Sets the metadata of the target itself if a restore made it, behind [`Target::sync`].
    pub fn finish(&self, metadata: Option<&Metadata>) -> Result<Faults> {
        let Some(unfinished) = &self.unfinished else { return Ok(Faults::new()) };
        unfinished.end(&self.root).map_err(|error| failed("finish", b"the target", error))?;
        let faults = match metadata {
            Some(metadata) => self.finish_directory(b"", self.identity, metadata)?,
            None => unfinished.open_up(&self.root),
        };
        unfinished::force(&self.root).map_err(|error| failed("force to the drive", b"the target", error))?;
        Ok(faults)
    }

    /// Forces all that was written to the drive. An error of an earlier write that went on in the
    /// background shows here.
    pub fn sync(&self) -> Result<()> {
        #[cfg(test)]
        if self.syncs_left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 0 {
            return Err(failed("force to the drive", b"the target", Errno::IO));
        }
        rustix::fs::syncfs(&self.root).map_err(|error| failed("force to the drive", b"the target", error))
    }

    /// Opens below the target, without following any symbolic link.
    fn open_at(&self, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let (folder, name) = split(path);
        if name.is_empty() {
            open_below(&self.root, b".", flags)
        } else {
            open_below(&*self.folder(folder)?, name, flags)
        }
    }

    fn folder(&self, path: &[u8]) -> rustix::io::Result<Arc<OwnedFd>> {
        let path_or_top = if path.is_empty() { b".".as_slice() } else { path };
        self.folders.get(path, || open_below(&self.root, path_or_top, OFlags::PATH | OFlags::DIRECTORY))
    }

    fn stat(&self, path: &[u8]) -> rustix::io::Result<Option<Stat>> {
        let (folder, name) = split(path);
        match rustix::fs::statat(&*self.folder(folder)?, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            stat => stat.map(Some),
        }
    }

    /// Opens what must still be the inode that the restore knows.
    fn open_known(&self, path: &[u8], flags: OFlags, known: Identity) -> Result<(OwnedFd, Stat)> {
        let cannot = |error| failed("open", path, error);
        // Without waiting, should it have become a pipe.
        let wait = if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NONBLOCK };
        let file = self.open_at(path, flags | wait).map_err(cannot)?;
        let stat = rustix::fs::fstat(&file).map_err(cannot)?;
        match known.is_inode_of(&stat) {
            true => Ok((file, stat)),
            false => Err(exchanged(path)),
        }
    }

    /// Opens a file that has not got its metadata yet, with at most so many names. One that another
    /// user made of the freed inode has another owner.
    fn open_owned(&self, path: &[u8], flags: OFlags, known: Identity, links: u64) -> Result<OwnedFd> {
        let (file, stat) = self.open_known(path, flags, known)?;
        match stat.st_uid == known.owner && stat.st_nlink <= links {
            true => Ok(file),
            false => Err(exchanged(path)),
        }
    }

    /// Makes a directory unless it is there. Only its owner may enter it until its metadata are
    /// set. Whether it was made is the second value.
    pub fn make_directory(&self, path: &[u8], is: &Metadata) -> Result<(Identity, bool)> {
        let (folder, name) = split(path);
        let cannot = |error| failed("create the directory", path, error);
        let folder = self.folder(folder).map_err(cannot)?;
        let is_new = match rustix::fs::mkdirat(&*folder, OsStr::from_bytes(name), Mode::RWXU) {
            Err(Errno::EXIST) => false,
            made => made.map(|()| true).map_err(cannot)?,
        };
        let stat = self.stat(path).map_err(cannot)?.ok_or_else(|| exchanged(path))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err(BackupError::Exists("a file is where a directory belongs".to_owned()));
        }
        let identity = Identity::of(&stat);
        let foreign = stat.st_uid != self.user;
        let mode = match self.is_root {
            // Another user could exchange what is restored there. Until its metadata are set, it is
            // root's alone.
            true if foreign && stat.st_uid != is.user => Mode::RWXU,
            // An earlier restore may have taken the right to write from its owner.
            false if !foreign && stat.st_mode & 0o700 != 0o700 => Mode::from_raw_mode(stat.st_mode | 0o700),
            _ => return Ok((identity, is_new)),
        };
        if self.is_root {
            let (opened, _) = self.open_known(path, OFlags::RDONLY | OFlags::DIRECTORY, identity)?;
            rustix::fs::fchown(&opened, Some(Uid::from_raw(self.user)), None).map_err(cannot)?;
            rustix::fs::fchmod(opened, mode).map_err(cannot)?;
            return Ok((identity, is_new));
        }
        // By its path alone: its owner may have no right to read it.
        let (opened, _) = self.open_known(path, OFlags::PATH | OFlags::DIRECTORY, identity)?;
        rustix::fs::chmod(by_inode(&opened), mode).map_err(cannot)?;
        Ok((identity, is_new))
    }

    pub fn present(&self, path: &[u8], size: u64, metadata: &Metadata) -> Result<Present> {
        let stat = self.stat(path).map_err(|error| failed("read the metadata of", path, error))?;
        let Some(stat) = stat else { return Ok(Present::No) };
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || stat.st_size as u64 != size || !self.trusts(&stat, metadata) {
            return Ok(Present::Other);
        }
        let modified = Stamp { seconds: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 };
        let identity = Identity::of(&stat);
        Ok(if modified == metadata.modified { Present::Complete(identity) } else { Present::SameSize(identity) })
    }

    /// Whether an earlier restore can have left the file, and no other user: its owner is this user
    /// or that of the snapshot, and it has no more names than there. A file that gives rights to
    /// those who run it must be this user's.
    fn trusts(&self, stat: &Stat, is: &Metadata) -> bool {
        let gives_rights = is.mode & 0o6000 != 0 || is.xattrs.iter().any(|(name, _)| name == CAPABILITIES);
        let restored = self.is_root && stat.st_uid == is.user && !gives_rights;
        (stat.st_uid == self.user || restored) && stat.st_nlink <= is.links.max(1)
    }

    /// Removes what is where a file belongs, but never a directory.
    pub fn remove(&self, path: &[u8]) -> Result<()> {
        let (folder, name) = split(path);
        let removed = self
            .folder(folder)
            .and_then(|folder| rustix::fs::unlinkat(&*folder, OsStr::from_bytes(name), AtFlags::empty()));
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::ISDIR) => Err(is_directory()),
            Err(error) => Err(failed("replace", path, error)),
        }
    }

    /// Makes an empty file of this length.
    pub fn make_file(&self, path: &[u8], size: u64) -> Result<Identity> {
        let make = || {
            let file = self.open_at(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
            if size > 0 {
                rustix::fs::ftruncate(&file, size)?;
            }
            rustix::fs::fstat(&file).map(|stat| Identity::of(&stat))
        };
        make().map_err(|error| failed("create", path, error))
    }

    /// Makes a file of one chunk, with its metadata but for the times.
    pub fn write_whole(&self, path: &[u8], content: &[u8], metadata: &Metadata) -> Result<(Identity, Faults)> {
        let cannot = |error| failed("create", path, error);
        let file = self.open_at(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL).map_err(cannot)?;
        let stat = rustix::fs::fstat(&file).map_err(cannot)?;
        write_all(&file, content, 0).map_err(|error| failed("write", path, error))?;
        // A new file has no capabilities, and no bits of the mode that setting its owner clears.
        let owner = if (stat.st_uid, stat.st_gid) == (metadata.user, metadata.group) {
            Ok(())
        } else {
            set_owner(file.as_fd(), metadata)
        };
        Ok((Identity::of(&stat), self.set_others(file.as_fd(), path, metadata, owner)))
    }

    pub fn write_at(&self, path: &[u8], known: Identity, content: &[u8], offset: u64) -> Result<()> {
        let file = self.open_owned(path, OFlags::WRONLY, known, 1)?;
        write_all(&file, content, offset).map_err(|error| failed("write", path, error))
    }

    /// Sets the metadata of a file but for the times.
    pub fn set_attributes_at(&self, path: &[u8], known: Identity, metadata: &Metadata) -> Result<Faults> {
        let links = metadata.links.max(1);
        self.open_up(path, known, links)?;
        let opened = self.open_owned(path, OFlags::RDONLY, known, links)?;
        Ok(self.set_attributes(opened.as_fd(), path, metadata))
    }

    /// Lets this user read and write an own file. An earlier restore may have taken these rights
    /// from its owner, and only root does without them.
    fn open_up(&self, path: &[u8], known: Identity, links: u64) -> Result<()> {
        if self.is_root {
            return Ok(());
        }
        let cannot = |error| failed("open", path, error);
        let file = self.open_owned(path, OFlags::PATH | OFlags::NOFOLLOW, known, links)?;
        let mode = Mode::from_raw_mode(rustix::fs::fstat(&file).map_err(cannot)?.st_mode & 0o7777);
        let both = Mode::RUSR | Mode::WUSR;
        if mode.contains(both) { Ok(()) } else { rustix::fs::chmod(by_inode(&file), mode | both).map_err(cannot) }
    }

    /// Sets the metadata of a directory.
    pub fn finish_directory(&self, path: &[u8], known: Identity, metadata: &Metadata) -> Result<Faults> {
        let (opened, _) = self.open_known(path, OFlags::RDONLY | OFlags::DIRECTORY, known)?;
        let mut faults = self.set_attributes(opened.as_fd(), path, metadata);
        let set = rustix::fs::futimens(&opened, &times(metadata));
        faults.extend(set.err().map(|error| failed("set the times of", path, error)));
        Ok(faults)
    }

    /// Sets the times of a file, behind [`Target::sync`]: they say that its content is on the
    /// drive. Gives its identity with the owner that it has now.
    pub fn set_times_at(&self, path: &[u8], known: Identity, metadata: &Metadata) -> Result<Identity> {
        // It may be a file that not even its owner may read.
        let (opened, stat) = self.open_known(path, OFlags::PATH | OFlags::NOFOLLOW, known)?;
        let cannot = |error| failed("set the times of", path, error);
        if stat.st_dev != self.identity.device {
            // A file system of its own below the target.
            let (file, _) = self.open_known(path, OFlags::RDONLY, known)?;
            rustix::fs::fdatasync(file).map_err(|error| failed("force to the drive", path, error))?;
        }
        set_times(opened.as_fd(), metadata).map_err(cannot)?;
        Ok(Identity::of(&stat))
    }

    /// Sets owner, attributes and mode. Owner first: setting it clears bits of the mode and
    /// capabilities. What cannot be set is listed, and the rest is set all the same.
    fn set_attributes(&self, file: BorrowedFd<'_>, path: &[u8], is: &Metadata) -> Faults {
        self.set_others(file, path, is, set_owner(file, is))
    }

    /// Sets attributes and mode, behind the owner.
    fn set_others(&self, file: BorrowedFd<'_>, path: &[u8], is: &Metadata, owner: rustix::io::Result<()>) -> Faults {
        let mode = mode(is, owner.is_ok());
        let mut faults = Faults::new();
        faults.extend(self.forgive(owner).err().map(|error| failed("set the owner of", path, error)));
        let list = |names: &mut [u8]| rustix::fs::flistxattr(file, names);
        faults.extend(remove_lists(path, is, list, |name| rustix::fs::fremovexattr(file, name)));
        for (name, value) in &is.xattrs {
            let set = rustix::fs::fsetxattr(file, OsStr::from_bytes(name), value, XattrFlags::empty());
            faults.extend(set.err().map(|error| xattr_failed(path, name, error)));
        }
        let set = rustix::fs::fchmod(file, mode);
        faults.extend(set.err().map(|error| failed("set the mode of", path, error)));
        faults
    }

    /// Only root sets owners. Another user restores files as their own.
    fn forgive(&self, outcome: rustix::io::Result<()>) -> rustix::io::Result<()> {
        if outcome == Err(Errno::PERM) && !self.is_root { Ok(()) } else { outcome }
    }

    /// Makes something in place of what is at the path, which stays if that fails. `make` gets the
    /// directory, and the name of the path or a temporary one that then takes its place.
    fn in_place<T>(&self, path: &[u8], make: impl FnOnce(&OwnedFd, &OsStr) -> Result<T>) -> Result<T> {
        let (folder, name) = split(path);
        let cannot = |error| failed("replace", path, error);
        let folder = self.folder(folder).map_err(cannot)?;
        let name = OsStr::from_bytes(name);
        match self.stat(path).map_err(cannot)? {
            None => return make(&folder, name),
            Some(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => return Err(is_directory()),
            Some(_) => {}
        }
        let temporary = OsStr::new(&self.temporary);
        let placed = make(&folder, temporary).and_then(|made| {
            rustix::fs::renameat(&*folder, temporary, &*folder, name).map_err(cannot)?;
            Ok(made)
        });
        if placed.is_err() {
            let _ = rustix::fs::unlinkat(&*folder, temporary, AtFlags::empty());
        }
        placed
    }

    /// Makes a symbolic link or a special file, in place of what is there.
    pub fn make_other(&self, path: &[u8], entry: &Entry) -> Result<(Identity, Faults)> {
        self.in_place(path, |folder, name| self.make_node(folder, name, path, entry))
    }

    fn make_node(&self, folder: &OwnedFd, name: &OsStr, path: &[u8], entry: &Entry) -> Result<(Identity, Faults)> {
        let cannot = |error| failed("create", path, error);
        let is = &entry.metadata;
        let (kind, device) = match &entry.content {
            Content::Symlink(_) => (FileType::Symlink, 0),
            Content::Fifo => (FileType::Fifo, 0),
            Content::Socket => (FileType::Socket, 0),
            Content::CharacterDevice(device) => (FileType::CharacterDevice, *device),
            Content::BlockDevice(device) => (FileType::BlockDevice, *device),
            Content::Directory | Content::File { .. } => return Err(cannot(Errno::INVAL)),
        };
        match &entry.content {
            Content::Symlink(target) => rustix::fs::symlinkat(OsStr::from_bytes(target), folder, name),
            _ => rustix::fs::mknodat(folder, name, kind, Mode::RUSR | Mode::WUSR, device),
        }
        .map_err(cannot)?;
        // From here on by the inode: a path could lead to another file, and through a symbolic link
        // out of the target.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let node = rustix::fs::openat(folder, name, flags, Mode::empty()).map_err(cannot)?;
        let stat = rustix::fs::fstat(&node).map_err(cannot)?;
        let same = FileType::from_raw_mode(stat.st_mode) == kind && stat.st_rdev == device;
        if !same || stat.st_uid != self.user || stat.st_nlink != 1 {
            return Err(exchanged(path));
        }
        let by_inode = by_inode(&node);
        let (user, group) = (Some(Uid::from_raw(is.user)), Some(Gid::from_raw(is.group)));
        let owner = rustix::fs::chownat(&node, "", user, group, AtFlags::EMPTY_PATH);
        let mode = mode(is, owner.is_ok());
        let identity = Identity { owner: if owner.is_ok() { is.user } else { stat.st_uid }, ..Identity::of(&stat) };
        let mut faults = Faults::new();
        faults.extend(self.forgive(owner).err().map(|error| failed("set the owner of", path, error)));
        for (xattr, value) in &is.xattrs {
            let set = rustix::fs::setxattr(&by_inode, OsStr::from_bytes(xattr), value, XattrFlags::empty());
            faults.extend(set.err().map(|error| xattr_failed(path, xattr, error)));
        }
        if kind != FileType::Symlink {
            let list = |names: &mut [u8]| rustix::fs::listxattr(&by_inode, names);
            faults.extend(remove_lists(path, is, list, |name| rustix::fs::removexattr(&by_inode, name)));
            let set = rustix::fs::chmod(&by_inode, mode);
            faults.extend(set.err().map(|error| failed("set the mode of", path, error)));
        }
        faults.extend(set_times(node.as_fd(), is).err().map(|error| failed("set the times of", path, error)));
        Ok((identity, faults))
    }

    /// Makes a further path of a file that was restored, in place of what is there. Whether it was
    /// there already.
    pub fn link(&self, first: &[u8], known: Identity, path: &[u8]) -> Result<bool> {
        let cannot = |error| failed("link", path, error);
        // While it is open, no other file gets its inode.
        let _file = self.open_owned(first, OFlags::PATH | OFlags::NOFOLLOW, known, u64::MAX)?;
        if self.stat(path).map_err(cannot)?.is_some_and(|stat| known.is_inode_of(&stat)) {
            return Ok(true);
        }
        let (first_folder, first_name) = split(first);
        let (first_folder, first_name) = (self.folder(first_folder).map_err(cannot)?, OsStr::from_bytes(first_name));
        self.in_place(path, |folder, name| {
            rustix::fs::linkat(&*first_folder, first_name, folder, name, AtFlags::empty()).map_err(cannot)?;
            let linked = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(cannot)?;
            if known.is_inode_of(&linked) {
                return Ok(false);
            }
            let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
            Err(exchanged(first))
        })
    }
}

/// Opens below a directory, without following any symbolic link.
fn open_below(folder: &OwnedFd, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let mode = if flags.contains(OFlags::CREATE) { Mode::RUSR | Mode::WUSR } else { Mode::empty() };
    rustix::fs::openat2(folder, OsStr::from_bytes(path), flags | OFlags::CLOEXEC, mode, resolve)
}

fn is_directory() -> BackupError {
    BackupError::Exists("a directory is where a file belongs".to_owned())
}

fn exchanged(path: &[u8]) -> BackupError {
    let path = Path::new(OsStr::from_bytes(path));
    BackupError::Failed(format!("{} was exchanged while it was being restored", path.display()))
}

/// Removes access control lists that the snapshot does not have. The mode would open those that
/// were inherited. Nearly every file has none, and then this is one call.
fn remove_lists(
    path: &[u8],
    is: &Metadata,
    list: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
    remove: impl Fn(&OsStr) -> rustix::io::Result<()>,
) -> Faults {
    let mut names = [0; 1024];
    let listed = match list(&mut names) {
        Ok(length) => names.get(..length),
        // There are more names than that.
        Err(Errno::RANGE) => None,
        Err(Errno::NOTSUP) => return Faults::new(),
        Err(error) => return vec![failed("list the extended attributes of", path, error)],
    };
    let mut faults = Faults::new();
    for name in ACCESS_LISTS {
        let may_be = listed.is_none_or(|names| names.split(|byte| *byte == 0).any(|listed| listed == name));
        if !may_be || is.xattrs.iter().any(|(known, _)| known == name) {
            continue;
        }
        match remove(OsStr::from_bytes(name)) {
            Ok(()) | Err(Errno::NODATA | Errno::NOTSUP) => {}
            Err(error) => {
                let action = format!("remove the extended attribute {} of", String::from_utf8_lossy(name));
                faults.push(failed(&action, path, error));
            }
        }
    }
    faults
}

/// The path of something of which only the path was opened, whatever has its name now.
fn by_inode(opened: impl AsFd) -> String {
    format!("/proc/self/fd/{}", opened.as_fd().as_raw_fd())
}

fn set_owner(file: BorrowedFd<'_>, is: &Metadata) -> rustix::io::Result<()> {
    rustix::fs::fchown(file, Some(Uid::from_raw(is.user)), Some(Gid::from_raw(is.group)))
}

/// Rights of an owner are for that owner alone.
fn mode(is: &Metadata, is_owner_set: bool) -> Mode {
    Mode::from_raw_mode(if is_owner_set { is.mode } else { is.mode & !0o6000 })
}

/// Sets the times of what was opened, even if only its path was.
fn set_times(opened: BorrowedFd<'_>, is: &Metadata) -> rustix::io::Result<()> {
    match rustix::fs::utimensat(opened, "", &times(is), AtFlags::EMPTY_PATH) {
        // The kernel is older than Linux 5.8.
        Err(Errno::INVAL) => rustix::fs::utimensat(rustix::fs::CWD, by_inode(opened), &times(is), AtFlags::empty()),
        set => set,
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

#[cfg(test)]
mod tests;
