//! One table through two doors: processes on a mount lock by fcntl, and hosts lock over NLM.
//!
//! Needs /dev/fuse, root and python3. Without the first two the tests say so and pass, except where
//! `CI` is set.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use super::*;
use crate::fuse::{LockTable, MountOptions, Mounted, mount};

/// Opens the file that it is told, and obeys lines: a word, the first byte, and a length.
const PROCESS: &str = "
import errno, fcntl, os, struct, sys
SETLK, SETLKW, GETLK, OFD_SETLK = 6, 7, 5, 37
file = os.open(sys.argv[1], os.O_RDWR)
for line in sys.stdin:
    word, start, length = line.split()
    kind = {'unlock': fcntl.F_UNLCK, 'share': fcntl.F_RDLCK}.get(word, fcntl.F_WRLCK)
    command = {'wait': SETLKW, 'test': GETLK, 'ofd': OFD_SETLK}.get(word, SETLK)
    try:
        if word == 'reopen':
            os.close(os.open(sys.argv[1], os.O_RDONLY))
            print('ok', flush=True)
            continue
        lock = struct.pack('hhqqi4x', kind, 0, int(start), int(length), 0)
        kind, _, start, length, _ = struct.unpack('hhqqi4x', fcntl.fcntl(file, command, lock))
        print(f'{kind} {start} {length}' if word == 'test' else 'ok', flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
";

/// A process that has a file of the mount open.
struct Process {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Process {
    fn on(path: &Path) -> Process {
        let mut command = Command::new("python3");
        command.args(["-c", PROCESS]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 starts");
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("its output"));
        Process { child, orders, answers }
    }

    fn order(&mut self, line: &str) {
        let orders = self.orders.as_mut().expect("it takes orders");
        writeln!(orders, "{line}").expect("it takes an order");
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        line.trim_end().to_owned()
    }

    /// On a thread where it may block: the mount is served by this process.
    fn does(&mut self, line: &str) -> String {
        tokio::task::block_in_place(|| {
            self.order(line);
            self.answer()
        })
    }

    fn ends(mut self) {
        drop(self.orders.take());
        self.child.wait().expect("it ends");
    }

    fn kill(mut self) {
        self.child.kill().expect("it is killed");
        self.child.wait().expect("it ends");
    }
}

struct Stage {
    server: Arc<Server<MemoryFiles>>,
    client: Client,
    file: Bytes,
    path: PathBuf,
    directory: PathBuf,
    mounted: Option<Mounted>,
}

impl Stage {
    async fn new(name: &str) -> Option<Stage> {
        let able = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
        if !able {
            assert!(std::env::var_os("CI").is_none(), "CI needs /dev/fuse and root");
            eprintln!("skipped: mounting needs /dev/fuse and root");
            return None;
        }
        let (server, client, file) = begin().await;
        let directory = std::env::temp_dir().join(format!("stele-locks-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory is made");
        let files = server.exports().get(testing::SHARE).expect("the share").files.clone();
        let locks = LockTable { locks: Arc::clone(server.locks()), share: testing::SHARE };
        let options = MountOptions::default();
        let mounted = mount(files, &directory, &options, Some(locks), tokio::runtime::Handle::current());
        let mounted = Some(mounted.expect("it is mounted"));
        Some(Stage { server, client, file, path: directory.join("a"), directory, mounted })
    }

    /// An exclusive lock of ten bytes over NLM.
    async fn host_takes(&mut self, offset: u64) -> u32 {
        take(&mut self.client, &self.file, 1, offset, false, false).await
    }

    async fn host_releases(&mut self, offset: u64, length: u64) {
        assert_eq!(ask(&mut self.client, UNLOCK, lock(&[], &self.file, 1, offset, length)).await.0, GRANTED);
    }

    /// The kernel closes files of a process in the background.
    async fn host_takes_soon(&mut self, offset: u64) {
        let began = Instant::now();
        while self.host_takes(offset).await != GRANTED {
            assert!(began.elapsed().as_secs() < 20, "the lock of a process that is gone is still there");
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        drop(self.mounted.take());
        std::fs::remove_dir(&self.directory).unwrap_or_default();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_on_a_mount_and_a_host_exclude_each_other() {
    let Some(mut stage) = Stage::new("both").await else { return };
    assert_eq!(stage.host_takes(0).await, GRANTED);
    let mut process = Process::on(&stage.path);
    assert_eq!(process.does("lock 5 1"), "EAGAIN");
    assert_eq!(process.does("share 9 3"), "EAGAIN");
    // 1 is F_WRLCK, 2 is F_UNLCK.
    assert_eq!(process.does("test 5 1"), "1 0 10");
    assert!(process.does("test 10 1").starts_with('2'));
    assert_eq!(process.does("lock 10 5"), "ok");
    assert_eq!(stage.host_takes(12).await, DENIED);
    assert_eq!(process.does("unlock 10 5"), "ok");
    assert_eq!(stage.host_takes(12).await, GRANTED);
    stage.host_releases(0, 0).await;
    // Up to the end of any file, however long it grows.
    assert_eq!(process.does("share 100 0"), "ok");
    assert_eq!(stage.host_takes(1 << 62).await, DENIED);
    // Closing any descriptor of the file drops the locks of the process.
    assert_eq!(process.does("reopen 0 0"), "ok");
    assert_eq!(stage.host_takes(1 << 62).await, GRANTED);
    process.ends();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_waits_for_the_lock_of_a_host() {
    let Some(mut stage) = Stage::new("wait").await else { return };
    assert_eq!(stage.host_takes(0).await, GRANTED);
    let mut process = Process::on(&stage.path);
    // It runs and has the file open.
    assert_eq!(process.does("lock 50 1"), "ok");
    process.order("wait 0 10");
    stage.host_releases(0, 10).await;
    assert_eq!(tokio::task::block_in_place(|| process.answer()), "ok");
    assert_eq!(stage.host_takes(0).await, DENIED);
    process.ends();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_lock_outlives_its_process() {
    let Some(mut stage) = Stage::new("end").await else { return };
    for (word, kills) in [("lock", false), ("lock", true), ("ofd", false), ("ofd", true)] {
        let mut process = Process::on(&stage.path);
        assert_eq!(process.does(&format!("{word} 0 10")), "ok");
        // A lock of the open file itself stays when another descriptor is closed.
        assert_eq!(process.does(if word == "ofd" { "reopen 0 0" } else { "lock 3 1" }), "ok");
        assert_eq!(stage.host_takes(0).await, DENIED, "{word}");
        match kills {
            true => process.kill(),
            false => process.ends(),
        }
        stage.host_takes_soon(0).await;
        stage.host_releases(0, 10).await;
        assert_eq!(stage.server.locks.count(), 0, "{word}");
    }
}
