//! The share as a file system of this machine: FUSE requests become calls of [`Files`].
//!
//! The kernel checks no permission itself (`default_permissions` is off), because [`Files`]
//! decides. Without a cache, which is the default, every call and every byte passes through
//! [`Files`], so that a change by another protocol is seen at once. The kernel's writeback cache
//! stays off: write(2) has reached the gateway when it returns, and fsync(2) returns after a
//! commit.
//!
//! With a cache, the kernel keeps attributes, pages and names for that time. A directory that is
//! closed to others in the meantime may then let them find the names in it that long; their files
//! keep their own modes.
//!
//! When this process dies, calls on the mount fail with ENOTCONN until [`mount`] cleans the
//! directory up.

mod adapter;
mod caller;
mod convert;
mod dos;
mod listing;
mod locking;
mod mounts;
mod opened;
mod share;
mod work;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fuser::{BackgroundSession, Config, Session, SessionACL};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, umount2};
use tokio::runtime::Handle;

use self::adapter::Adapter;
use self::convert::Numbers;
use self::locking::Locking;
use self::opened::Opened;
use self::share::Share;
use self::work::Work;
use crate::Files;

pub use self::locking::LockTable;
pub use self::mounts::detach_dead;
pub use self::work::UNDER_WAY_MAX;

/// The most bytes of one read or write.
const WRITE_MAX: u32 = 1 << 20;
/// The most requests that the kernel sends without a process waiting for each, such as read-ahead
/// and closes.
const BACKGROUND_MAX: u16 = 64;
/// The type of the file system, as `mount` shows it.
const KIND: &str = "fuse.stele";
const DEVICE: &str = "/dev/fuse";
/// Readers of requests.
const THREADS_MAX: usize = 16;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountOptions {
    /// What `mount` shows as the source, for instance the share's name.
    pub name: String,
    /// The kernel refuses every change, for as long as the mount lasts.
    pub read_only: bool,
    /// Users besides the one who mounts may use it. [`Files`] checks what each may do.
    pub allow_other: bool,
    /// How long the kernel keeps attributes, names and pages. Zero: nothing is kept, and reads pass
    /// by the page cache.
    pub cache: Duration,
    /// Samba serves the share: its read-only attribute is the permission to write, so that setting
    /// it commits a file.
    pub dos_attributes: bool,
    /// Threads that read requests, 1 to 16. With one, requests begin in the order in which
    /// processes made them, so that a close(2) comes before the chmod(2) that commits the file.
    pub threads: usize,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            name: "stele".into(),
            read_only: false,
            allow_other: true,
            cache: Duration::ZERO,
            dos_attributes: false,
            threads: 1,
        }
    }
}

/// A mounted share. Dropping it unmounts, as [`Mounted::detach`] does if files are still open.
pub struct Mounted {
    directory: PathBuf,
    /// `None` after it was unmounted.
    session: Option<BackgroundSession>,
    work: Work,
    /// See [`Mounted::set_read_only`].
    read_only: Arc<AtomicBool>,
}

/// Mounts a share, as [`mount`] does. Its code is compiled in this crate, with this crate's
/// optimisation.
pub fn mount_share(
    share: Arc<crate::Share>,
    directory: &Path,
    options: &MountOptions,
    locks: Option<LockTable>,
    runtime: Handle,
) -> io::Result<Mounted> {
    mount(share, directory, options, locks, runtime)
}

/// Mounts the tree at an existing directory, which needs root. What a dead process left mounted
/// there is unmounted first. `locks`: the table that other protocols lock in too; without one, the
/// kernel keeps the locks of this mount.
pub fn mount<F: Files>(
    files: Arc<F>,
    directory: &Path,
    options: &MountOptions,
    locks: Option<LockTable>,
    runtime: Handle,
) -> io::Result<Mounted> {
    let directory = mounts::clear(directory)?;
    let device = File::options().read(true).write(true).open(DEVICE).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot open {DEVICE}: {error}; is the kernel's module 'fuse' loaded?"))
    })?;
    // fuser's own mount would unmount by path a second time, perhaps what someone else has mounted
    // there since.
    let others = if options.allow_other { ",allow_other" } else { "" };
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0{others}", device.as_raw_fd());
    let writes = if options.read_only { MsFlags::MS_RDONLY } else { MsFlags::empty() };
    let flags = MsFlags::MS_NODEV | MsFlags::MS_NOSUID | writes;
    nix::mount::mount(Some(options.name.as_str()), &directory, Some(KIND), flags, Some(data.as_str()))
        .map_err(|errno| about("mount", &directory, errno))?;

    let mut config = Config::default();
    config.n_threads = Some(options.threads.clamp(1, THREADS_MAX));
    config.clone_fd = options.threads > 1;
    let MountOptions { cache, dos_attributes, .. } = *options;
    let numbers = Numbers { root: files.root(), dos_attributes };
    let locking = locks.map(Locking::new);
    let read_only = Arc::new(AtomicBool::new(false));
    let closed = Arc::clone(&read_only);
    let share = Share { files, numbers, opened: Opened::default(), locking, cache, dos_attributes, read_only: closed };
    let work = Work::new(runtime);
    let adapter = Adapter::new(share, work.clone());
    // The kernel checks who may use the mount.
    let session = Session::from_fd(adapter, device.into(), SessionACL::All, config).and_then(Session::spawn);
    match session {
        Ok(session) => Ok(Mounted { directory, session: Some(session), work, read_only }),
        Err(error) => {
            umount2(&directory, MntFlags::MNT_DETACH).map_err(|errno| about("unmount", &directory, errno))?;
            Err(error)
        }
    }
}

fn about(what: &str, directory: &Path, errno: Errno) -> io::Error {
    let error = io::Error::from(errno);
    io::Error::new(error.kind(), format!("cannot {what} {}: {error}", directory.display()))
}

impl Mounted {
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Refuses every change from now on, or takes changes again: also those of processes that have
    /// files open or work in the directory, which another mount at the same place would not reach.
    pub fn set_read_only(&self, read_only: bool) {
        self.read_only.store(read_only, Ordering::Relaxed);
    }

    /// Whether requests are answered. Not any more after someone else unmounted it.
    pub fn is_serving(&self) -> bool {
        self.session.as_ref().is_some_and(|session| !session.guard.is_finished())
    }

    /// Unmounts, and waits until every call has ended and every file is closed. Fails with
    /// `ResourceBusy` while files are open; the mount then stays. Blocks; a runtime calls it, and
    /// drops this, on a blocking thread.
    pub fn unmount(&mut self) -> io::Result<()> {
        self.leave(MntFlags::empty())?;
        let Some(session) = self.session.take() else { return Ok(()) };
        let ended = session.join();
        self.work.finish();
        ended
    }

    /// Unmounts the directory at once. Files that are open stay usable until they are closed, and
    /// the tree is served that long.
    pub fn detach(&mut self) -> io::Result<()> {
        self.leave(MntFlags::MNT_DETACH)?;
        // The threads end with the last open file.
        self.session.take();
        Ok(())
    }

    fn leave(&self, flags: MntFlags) -> io::Result<()> {
        if !self.is_serving() {
            return Ok(());
        }
        match umount2(&self.directory, flags) {
            // EINVAL: someone else has just unmounted it.
            Ok(()) | Err(Errno::EINVAL) => Ok(()),
            Err(errno) => Err(about("unmount", &self.directory, errno)),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.session.is_some() && self.unmount().is_err() {
            // Nothing is left to try if this fails too; the next mount cleans up.
            self.detach().unwrap_or_default();
        }
    }
}
