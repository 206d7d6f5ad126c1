//! A share through a real mount: random operations against a model, and the rules of names.
//!
//! Needs /dev/fuse, root and python3. Without the first two the tests say so and pass, except where
//! `CI` is set.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::stage::Stage;
use crate::fuse::{LockTable, MountOptions, Mounted, mount};
use crate::locks::{LockClient, LockOwner, LockProtocol, LockRange, LockedFile, Locks};
use crate::share::{Caching, Share};

const FSX: &str = include_str!("mounted/fsx.py");
const NAMES: &str = include_str!("mounted/names.py");
const LOCKS: &str = include_str!("mounted/locks.py");
/// The most bytes of a file.
const MOST: u64 = 2 << 20;
/// For what the kernel does in the background, such as the last steps of a close.
const PATIENCE: Duration = Duration::from_secs(20);

struct Place {
    stage: Stage,
    share: Arc<Share>,
    directory: PathBuf,
    mounted: Option<Mounted>,
}

impl Place {
    async fn new(name: &str, stage: Stage, cache: Duration) -> Option<Place> {
        Place::with_locks(name, stage, cache, None).await
    }

    async fn with_locks(name: &str, stage: Stage, cache: Duration, locks: Option<LockTable>) -> Option<Place> {
        let able = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
        if !able {
            assert!(std::env::var_os("CI").is_none(), "CI needs /dev/fuse and root");
            eprintln!("skipped: mounting needs /dev/fuse and root");
            return None;
        }
        let share = stage.share().await;
        let directory = std::env::temp_dir().join(format!("stele-share-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory is made");
        let options = MountOptions { cache, ..MountOptions::default() };
        let mounted = mount(Arc::clone(&share), &directory, &options, locks, tokio::runtime::Handle::current());
        let mounted = Some(mounted.expect("it is mounted"));
        Some(Place { stage, share, directory, mounted })
    }

    /// Lets background work go on until every file is archived, and nothing is left of removed
    /// ones.
    async fn archive(&self) {
        let began = Instant::now();
        loop {
            self.stage.pass(11);
            self.share.work().await.expect("background work");
            let status = self.share.status().expect("status");
            if status.open + status.removing == 0 {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "the file is not archived: {status:?}");
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.mounted.take());
        std::fs::remove_dir(&self.directory).unwrap_or_default();
    }
}

/// A script that does what its input says.
struct Script {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Script {
    fn new(text: &str, arguments: &[&str]) -> Script {
        let mut command = Command::new("python3");
        command.arg("-c").arg(text).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 starts");
        let orders = child.stdin.take().expect("its input");
        let answers = BufReader::new(child.stdout.take().expect("its output"));
        Script { child, orders, answers }
    }

    /// On a thread where it may block: the mount is served by this process.
    fn does(&mut self, line: &str) -> String {
        tokio::task::block_in_place(|| {
            writeln!(self.orders, "{line}").expect("it takes an order");
            self.answer()
        })
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        line
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.child.kill().unwrap_or_default();
        self.child.wait().map(|_| ()).unwrap_or_default();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_operations_agree_with_a_model() {
    for (seed, kernel_keeps, caching) in
        [(1, false, Caching::On), (2, true, Caching::On), (3, false, Caching::Off), (4, true, Caching::Off)]
    {
        let mut stage = Stage::new(seed).with_cache(16 << 20);
        stage.settings.caching = caching;
        let keeps = if kernel_keeps { Duration::from_secs(1) } else { Duration::ZERO };
        let Some(place) = Place::new(&format!("fsx{seed}"), stage, keeps).await else { return };
        let path = place.directory.join("f");
        let path = path.to_str().expect("a path");
        let mut script = Script::new(FSX, &[path, &seed.to_string(), &MOST.to_string()]);
        for round in 0..10 {
            let answer = script.does("60");
            assert!(answer.starts_with("ok"), "round {round} under the seed {seed}");
            if round == 9 {
                eprintln!("seed {seed}, {caching:?}: {answer}");
            }
            if round % 3 == 2 {
                continue;
            }
            place.archive().await;
            let inode = place.share.resolve("f").expect("the file");
            while round % 2 == 0 && place.share.evict_file(inode.0).await.expect("eviction") {}
            if caching == Caching::Off || round % 2 == 0 {
                assert_eq!(place.share.status().expect("status").cache_used, 0, "round {round} under the seed {seed}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_directories_and_users_follow_posix() {
    for (name, keeps) in [("plain", Duration::ZERO), ("kept", Duration::from_secs(1))] {
        let Some(place) = Place::new(name, Stage::new(7), keeps).await else { return };
        let directory = place.directory.to_str().expect("a path").to_owned();
        let mut script = Script::new(NAMES, &[&directory]);
        let answer = tokio::task::block_in_place(|| script.answer());
        let checks: usize = answer.trim().parse().expect("every rule holds");
        assert!(checks > 55, "{checks} checks ran");
        place.archive().await;
    }
}

/// The kernel holds the signals of a process back while it waits for an answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_the_wait_for_a_lock() {
    let table = LockTable { locks: Arc::new(Locks::default()), share: 1 };
    let place = Place::with_locks("locks", Stage::new(8), Duration::ZERO, Some(table.clone())).await;
    let Some(place) = place else { return };
    std::fs::write(place.directory.join("f"), b"").expect("it is written");
    let client = LockClient { protocol: LockProtocol::Nlm, name: bytes::Bytes::from_static(b"10.0.0.1/a") };
    let file = LockedFile { share: 1, inode: place.share.resolve("f").expect("the file") };
    let owner = LockOwner { client: client.clone(), handle: bytes::Bytes::from_static(b"7") };
    table.locks.lock(file, &owner, LockRange::ALL, true).expect("nothing else is locked");
    let path = place.directory.join("f");
    let mut script = Script::new(LOCKS, &[path.to_str().expect("a path")]);
    for how in ["alarm", "kill", "alarm among threads"] {
        let began = Instant::now();
        assert_eq!(script.does(how), "ended\n", "{how}");
        assert!(began.elapsed() < PATIENCE, "{how}: after {:?}", began.elapsed());
    }
    // It was no more than a wait.
    table.locks.release(&client);
    assert_eq!(script.does("lock"), "locked\n");
}
