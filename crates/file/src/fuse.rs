//! The share as a file system of this machine: FUSE requests become calls of [`Files`].
//!
//! The kernel checks no permission itself (`default_permissions` is off), because [`Files`] decides. Without a cache,
//! which is the default, every call and every byte passes through [`Files`], so that a change by another protocol is
//! seen at once. The kernel's writeback cache stays off: write(2) has reached the gateway when it returns, and
//! fsync(2) returns after a commit.
//!
//! When this process dies, calls on the mount fail with ENOTCONN until [`mount`] cleans the directory up.

mod adapter;
mod caller;
mod convert;
mod mounts;
mod opened;
mod share;
mod work;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use tokio::runtime::Handle;

use self::adapter::Adapter;
use self::convert::Numbers;
use self::opened::Opened;
use self::share::Share;
use self::work::Work;
use crate::Files;

pub use self::work::UNDER_WAY_MAX;

/// The most bytes of one read or write.
const WRITE_MAX: u32 = 1 << 20;
/// The most requests that the kernel sends without a process waiting for each, such as read-ahead and closes.
const BACKGROUND_MAX: u16 = 64;
/// The type of the file system, as `mount` shows it behind `fuse.`.
const SUBTYPE: &str = "stele";

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountOptions {
    /// What `mount` shows as the source, for instance the share's name.
    pub name: String,
    pub read_only: bool,
    /// Users besides the one who mounts may use it. [`Files`] checks what each may do.
    pub allow_other: bool,
    /// How long the kernel keeps attributes, names and pages. Zero: nothing is kept, and reads pass by the page cache.
    pub cache: Duration,
    /// Threads that read requests, 1 to 16.
    pub threads: usize,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions { name: SUBTYPE.into(), read_only: false, allow_other: true, cache: Duration::ZERO, threads: 1 }
    }
}

/// A mounted share. Dropping it unmounts, as [`Mounted::detach`] does if files are still open.
pub struct Mounted {
    directory: PathBuf,
    /// `None` after it was unmounted.
    session: Option<BackgroundSession>,
}

/// Mounts the tree at an existing directory. What a dead process left mounted there is unmounted first.
pub fn mount<F: Files>(
    files: Arc<F>,
    directory: &Path,
    options: &MountOptions,
    runtime: Handle,
) -> io::Result<Mounted> {
    let directory = mounts::clear(directory)?;
    let mut config = Config::default();
    let kind = MountOption::CUSTOM(format!("subtype={SUBTYPE}"));
    let access = if options.read_only { MountOption::RO } else { MountOption::RW };
    config.mount_options = vec![MountOption::FSName(options.name.clone()), kind, access];
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads.clamp(1, 16));
    config.clone_fd = options.threads > 1;
    let numbers = Numbers { root: files.root() };
    let share = Share { files, numbers, opened: Opened::default(), cache: options.cache };
    let adapter = Adapter::new(share, Work::new(runtime));
    let session = Session::new(adapter, &directory, &config)?.spawn()?;
    Ok(Mounted { directory, session: Some(session) })
}

impl Mounted {
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether requests are answered. Not any more after someone else unmounted it.
    pub fn is_serving(&self) -> bool {
        self.session.as_ref().is_some_and(|session| !session.guard.is_finished())
    }

    /// Unmounts, and waits until every request is answered. Fails with `ResourceBusy` while files are open; the mount
    /// then stays. Blocks; on a runtime, call it from a blocking thread.
    pub fn unmount(&mut self) -> io::Result<()> {
        self.leave(MntFlags::empty())?;
        match self.session.take() {
            Some(session) => session.umount_and_join(),
            None => Ok(()),
        }
    }

    /// Unmounts the directory at once. Files that are open stay usable until they are closed, and the tree is served
    /// that long.
    pub fn detach(&mut self) -> io::Result<()> {
        self.leave(MntFlags::MNT_DETACH)?;
        // Dropping the session would unmount again; the threads end with the last open file.
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
            Err(errno) => {
                let error = io::Error::from(errno);
                Err(io::Error::new(error.kind(), format!("cannot unmount {}: {error}", self.directory.display())))
            }
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
