//! A tree in memory, mounted through FUSE and used with system calls.
//!
//! Needs /dev/fuse and root. Without them the tests say so and pass, except where `CI` is set:
//! there they fail.

mod content;
mod lifecycle;
mod posix;
mod slow;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Gid, Uid};
use stele_file::fuse::{MountOptions, Mounted, mount};
use stele_file::{Attributes, Caller, Files, MemoryFiles, Moment};
use tokio::runtime::Runtime;

use self::slow::Slow;

/// A mounted tree. Unmounted, and its directory removed, when it is dropped.
struct Share {
    files: Arc<MemoryFiles>,
    mounted: Option<Mounted>,
    directory: PathBuf,
    runtime: Runtime,
}

/// Whether this machine can mount.
fn able() -> bool {
    let able = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !able {
        assert!(std::env::var_os("CI").is_none(), "CI needs /dev/fuse and root");
        eprintln!("skipped: mounting needs /dev/fuse and root");
    }
    able
}

/// Every way to mount that changes what the kernel does.
fn ways() -> Vec<Way> {
    let plain = MountOptions { name: "test".into(), ..MountOptions::default() };
    let cached = MountOptions { cache: Duration::from_secs(1), ..plain.clone() };
    vec![
        Way { slow: false, options: plain.clone() },
        Way { slow: false, options: MountOptions { threads: 3, ..plain.clone() } },
        Way { slow: false, options: cached.clone() },
        Way { slow: true, options: plain },
        Way { slow: true, options: MountOptions { threads: 3, ..cached } },
    ]
}

#[derive(Debug)]
struct Way {
    /// The tree answers later.
    slow: bool,
    options: MountOptions,
}

fn empty_tree() -> Arc<MemoryFiles> {
    let now = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
        Moment::from_nanoseconds(since.as_nanos() as i128)
    };
    Arc::new(MemoryFiles::new(now))
}

/// An empty directory of this name.
fn new_directory(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("stele-fuse-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory is made");
    directory
}

impl Share {
    fn new(name: &str, way: &Way) -> Share {
        let runtime = Runtime::new().expect("a runtime starts");
        let (files, directory, handle) = (empty_tree(), new_directory(name), runtime.handle().clone());
        let mounted = match way.slow {
            true => mount(Arc::new(Slow::new(files.clone())), &directory, &way.options, None, handle),
            false => mount(files.clone(), &directory, &way.options, None, handle),
        };
        Share { files, mounted: Some(mounted.expect("it is mounted")), directory, runtime }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The file of this name at the top, as the tree sees it.
    fn found(&self, name: &str) -> Attributes {
        let root = self.files.root();
        let found = self.runtime.block_on(self.files.lookup(&Caller::ROOT, root, name.as_bytes()));
        found.expect("it is there")
    }

    /// Unmounts a share on which no file is open. The kernel closes in the background, and a
    /// process that another test has just started holds every descriptor until it runs; so it may
    /// take a moment.
    fn unmount(&mut self) {
        while let Err(error) = self.mounted().unmount() {
            assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy, "{error}");
            std::thread::yield_now();
        }
    }

    fn mounted(&mut self) -> &mut Mounted {
        self.mounted.as_mut().expect("it is mounted")
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        drop(self.mounted.take());
        // A test that failed may have left files open; then the directory stays.
        std::fs::remove_dir(&self.directory).unwrap_or_default();
    }
}

/// Runs the check on each way of mounting.
fn each_way(name: &str, check: impl Fn(&mut Share)) {
    if !able() {
        return;
    }
    for (number, way) in ways().iter().enumerate() {
        eprintln!("{way:?}");
        check(&mut Share::new(&format!("{name}-{number}"), way));
    }
}

/// Runs on a thread of its own as this user.
fn run_as<T: Send>(uid: u32, gid: u32, groups: &[u32], call: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
            rustix::thread::set_thread_groups(&groups).expect("groups are set");
            rustix::thread::set_thread_gid(Gid::from_raw(gid)).expect("the group is set");
            rustix::thread::set_thread_uid(Uid::from_raw(uid)).expect("the user is set");
            call()
        });
        thread.join().expect("the call ends")
    })
}
