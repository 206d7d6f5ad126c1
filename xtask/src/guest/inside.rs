//! The checks that run in the virtual machine: what applications do with files on a mounted share.
//!
//! The console carries the result. A check that fails ends alone.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, SystemTime};

use super::{KILL, SAYS, SHARE};

const SERVER: &str = "10.0.2.2";
/// EROFS.
const READ_ONLY: i32 = 30;
const LARGE: usize = 48 << 20;
const BLOCK: usize = 1 << 20;
/// A year in seconds, for the end of a retention.
const YEAR: Duration = Duration::from_secs(366 * 86_400);

type Done = Result<(), String>;

struct Tally {
    passed: u32,
    failed: u32,
}

impl Tally {
    fn check(&mut self, name: &str, check: impl FnOnce() -> Done) {
        match check() {
            Ok(()) => {
                self.passed += 1;
                println!("{SAYS}ok      {name}");
            }
            Err(reason) => {
                self.failed += 1;
                println!("{SAYS}FAILED  {name}: {reason}");
            }
        }
    }
}

/// What the machine runs instead of an init system.
pub fn run() -> ExitCode {
    let mut tally = Tally { passed: 0, failed: 0 };
    tally.check("the machine starts", start);
    for (version, entries) in [("4.1", 10_000), ("3", 500)] {
        let top = PathBuf::from(format!("/mnt/{version}"));
        let label = |what: &str| format!("version {version}: {what}");
        tally.check(&label("mount"), || mount(version, &top, ""));
        let own = top.join(format!("by {version}"));
        tally.check(&label("create, write, flush and read"), || files(&own));
        tally.check(&label("rename, link and remove"), || names(&own));
        tally.check(&label("attributes"), || attributes(&own));
        tally.check(&label(&format!("a directory of {entries} entries")), || directory(&own, entries));
        tally.check(&label("a large file"), || large(&own));
        tally.check(&label("a committed file"), || committed(&own));
    }
    tally.check("both versions show the same files", same);
    tally.check("locks of two mounts", locks);
    tally.check("a server that is killed", killed);
    println!("{SAYS}{} passed, {} failed", tally.passed, tally.failed);
    let _ = busybox("sync", &[]);
    let _ = busybox("poweroff", &["-f"]);
    ExitCode::SUCCESS
}

fn busybox(program: &str, arguments: &[&str]) -> Done {
    let done = Command::new("/bin/busybox").arg(program).args(arguments).stdin(Stdio::null()).output();
    let done = done.map_err(|error| format!("{program}: {error}"))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr).trim())),
    }
}

fn start() -> Done {
    busybox("depmod", &["-a"])?;
    for module in ["virtio_pci", "virtio_net", "nfs", "nfsv3", "nfsv4"] {
        busybox("modprobe", &[module])?;
    }
    busybox("ip", &["link", "set", "lo", "up"])?;
    busybox("ip", &["link", "set", "eth0", "up"])?;
    busybox("ip", &["addr", "add", "10.0.2.15/24", "dev", "eth0"])
}

fn port() -> Result<String, String> {
    let line = fs::read_to_string("/proc/cmdline").map_err(|error| error.to_string())?;
    let port = line.split_whitespace().find_map(|word| word.strip_prefix("stele.port="));
    port.map(str::to_owned).ok_or("the kernel was told no port".to_owned())
}

fn mount(version: &str, at: &Path, more: &str) -> Done {
    fs::create_dir_all(at).map_err(|error| error.to_string())?;
    let (port, at) = (port()?, at.display().to_string());
    let from = format!("{SERVER}:/{SHARE}");
    let (kind, options) = match version {
        "3" => {
            ("nfs", format!("vers=3,nolock,proto=tcp,mountproto=tcp,port={port},mountport={port},addr={SERVER}{more}"))
        }
        _ => ("nfs4", format!("vers={version},port={port},addr={SERVER},clientaddr=10.0.2.15{more}")),
    };
    busybox("mount", &["-t", kind, "-o", &options, &from, &at])
}

/// Forgets what the client has in memory, so that the next read asks the server.
fn forget() -> Done {
    busybox("sync", &[])?;
    fs::write("/proc/sys/vm/drop_caches", "3").map_err(|error| error.to_string())
}

fn said(what: &str) -> impl FnOnce(io::Error) -> String + '_ {
    move |error| format!("{what}: {error}")
}

fn ensure(yes: bool, what: &str) -> Done {
    if yes { Ok(()) } else { Err(what.to_owned()) }
}

/// The same bytes for each seed.
fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| next()).collect();
    bytes.truncate(length);
    bytes
}

fn files(own: &Path) -> Done {
    fs::create_dir(own).map_err(said("mkdir"))?;
    let path = own.join("file");
    let content = bytes(1, 300_001);
    let mut file = File::create_new(&path).map_err(said("create"))?;
    file.write_all(&content).map_err(said("write"))?;
    file.sync_all().map_err(said("fsync"))?;
    // A change in the middle, a hole, and a shorter end.
    file.write_all_at(b"changed", 1000).map_err(said("write in the middle"))?;
    file.write_all_at(b"end", 5_000_000).map_err(said("write behind a hole"))?;
    file.set_len(4_000_000).map_err(said("truncate"))?;
    drop(file);
    forget()?;
    let read = fs::read(&path).map_err(said("read"))?;
    let mut expected = content;
    expected[1000..1007].copy_from_slice(b"changed");
    expected.resize(4_000_000, 0);
    ensure(read == expected, "the content differs")?;
    let mut file = OpenOptions::new().append(true).read(true).open(&path).map_err(said("open to append"))?;
    file.write_all(b"more").map_err(said("append"))?;
    file.seek(SeekFrom::Start(4_000_000)).map_err(said("seek"))?;
    let mut rest = String::new();
    file.read_to_string(&mut rest).map_err(said("read the end"))?;
    ensure(rest == "more", "what was appended differs")?;
    ensure(File::create_new(&path).is_err(), "a file was created twice")
}

fn names(own: &Path) -> Done {
    let at = |name: &str| own.join(name);
    fs::write(at("one"), "content").map_err(said("write"))?;
    fs::hard_link(at("one"), at("two")).map_err(said("link"))?;
    ensure(fs::metadata(at("one")).map_err(said("stat"))?.nlink() == 2, "the file has not two names")?;
    fs::rename(at("two"), at("three")).map_err(said("rename"))?;
    fs::write(at("other"), "other").map_err(said("write"))?;
    fs::rename(at("three"), at("other")).map_err(said("rename over a file"))?;
    ensure(fs::read(at("other")).map_err(said("read"))? == b"content", "the wrong file has the name")?;
    symlink("one", at("link")).map_err(said("symlink"))?;
    ensure(fs::read(at("link")).map_err(said("read through a link"))? == b"content", "the link leads elsewhere")?;
    fs::create_dir(at("sub")).map_err(said("mkdir"))?;
    fs::rename(at("one"), at("sub/one")).map_err(said("rename into a directory"))?;
    ensure(fs::remove_dir(at("sub")).is_err(), "a full directory was removed")?;
    // A removed file that is open stays readable.
    let mut open = File::open(at("sub/one")).map_err(said("open"))?;
    fs::remove_file(at("sub/one")).map_err(said("unlink"))?;
    let mut content = String::new();
    open.read_to_string(&mut content).map_err(said("read a removed file"))?;
    ensure(content == "content", "a removed file that is open lost its content")?;
    drop(open);
    for name in ["link", "other"] {
        fs::remove_file(at(name)).map_err(said("unlink"))?;
    }
    fs::remove_dir(at("sub")).map_err(said("rmdir"))?;
    ensure(!at("link").exists() && !at("sub").exists(), "removed names are still there")
}

fn attributes(own: &Path) -> Done {
    let path = own.join("attributes");
    fs::write(&path, "x").map_err(said("write"))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o2640)).map_err(said("chmod"))?;
    std::os::unix::fs::chown(&path, Some(12), Some(13)).map_err(said("chown"))?;
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_500_000_000, 123_456_789);
    let file = OpenOptions::new().write(true).open(&path).map_err(said("open"))?;
    file.set_times(FileTimes::new().set_modified(time)).map_err(said("set the time"))?;
    drop(file);
    forget()?;
    let found = fs::metadata(&path).map_err(said("stat"))?;
    ensure((found.uid(), found.gid()) == (12, 13), "owner or group differ")?;
    ensure(found.mode() & 0o777 == 0o640, "the mode differs")?;
    ensure((found.mtime(), found.mtime_nsec()) == (1_500_000_000, 123_456_789), "the time differs")
}

fn directory(own: &Path, entries: usize) -> Done {
    let many = own.join("many");
    fs::create_dir(&many).map_err(said("mkdir"))?;
    for number in 0..entries {
        File::create(many.join(format!("entry {number}"))).map_err(said("create"))?;
    }
    forget()?;
    let mut names: Vec<String> = fs::read_dir(&many)
        .map_err(said("list"))?
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<_>>()
        .map_err(said("list"))?;
    names.sort();
    names.dedup();
    ensure(names.len() == entries, &format!("{} names instead of {entries}", names.len()))?;
    fs::remove_dir_all(&many).map_err(said("remove all"))
}

fn large(own: &Path) -> Done {
    let (one, two) = (own.join("large"), own.join("copy"));
    let mut file = File::create(&one).map_err(said("create"))?;
    for block in 0..LARGE / BLOCK {
        file.write_all(&bytes(block as u64 + 7, BLOCK)).map_err(said("write"))?;
    }
    file.sync_all().map_err(said("fsync"))?;
    drop(file);
    forget()?;
    fs::copy(&one, &two).map_err(said("copy"))?;
    forget()?;
    let digest = |path: &Path| {
        let done = Command::new("/bin/busybox").arg("sha256sum").arg(path).output().map_err(said("sha256sum"))?;
        Ok::<_, String>(done.stdout.get(..64).map(<[u8]>::to_vec))
    };
    let (left, right) = (digest(&one)?, digest(&two)?);
    ensure(left.is_some() && left == right, "the copy differs")?;
    fs::remove_file(&one).map_err(said("unlink"))
}

fn committed(own: &Path) -> Done {
    let path = own.join("ledger");
    fs::write(&path, "must survive").map_err(said("write"))?;
    let file = OpenOptions::new().read(true).open(&path).map_err(said("open"))?;
    file.set_times(FileTimes::new().set_accessed(SystemTime::now() + YEAR)).map_err(said("set the access time"))?;
    drop(file);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).map_err(said("chmod"))?;
    forget()?;
    let refused = |what: &str, done: io::Result<()>| match done {
        Err(error) if error.raw_os_error() == Some(READ_ONLY) => Ok(()),
        Err(error) => Err(format!("{what}: {error} instead of EROFS")),
        Ok(()) => Err(format!("{what} succeeded")),
    };
    refused("chmod", fs::set_permissions(&path, fs::Permissions::from_mode(0o644)))?;
    refused("unlink", fs::remove_file(&path))?;
    refused("rename", fs::rename(&path, own.join("moved")))?;
    refused("link", fs::hard_link(&path, own.join("second")))?;
    let write =
        OpenOptions::new().write(true).open(&path).and_then(|file| file.write_all_at(b"x", 0).and(file.sync_all()));
    ensure(write.is_err(), "a committed file was written")?;
    ensure(fs::read(&path).map_err(said("read"))? == b"must survive", "the content differs")
}

fn same() -> Done {
    let content = bytes(99, 2_000_000);
    fs::write("/mnt/4.1/shared", &content).map_err(said("write by version 4.1"))?;
    ensure(fs::read("/mnt/3/shared").map_err(said("read by version 3"))? == content, "the content differs")?;
    let list = |version: &str| {
        let mut names: Vec<_> =
            fs::read_dir(format!("/mnt/{version}"))?.flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        Ok::<_, io::Error>(names)
    };
    ensure(list("3").map_err(said("list"))? == list("4.1").map_err(said("list"))?, "the names differ")
}

fn locks() -> Done {
    let beside = Path::new("/mnt/beside");
    mount("4.1", beside, ",nosharecache")?;
    let open = |path: &Path| OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let one = open(Path::new("/mnt/4.1/locked")).map_err(said("open"))?;
    let two = open(&beside.join("locked")).map_err(said("open on another mount"))?;
    one.lock().map_err(said("lock"))?;
    ensure(two.try_lock().is_err(), "a second lock was granted")?;
    ensure(two.try_lock_shared().is_err(), "a shared lock was granted beside an exclusive one")?;
    one.unlock().map_err(said("unlock"))?;
    two.lock_shared().map_err(said("lock shared"))?;
    one.try_lock_shared().map_err(|error| format!("a second shared lock: {error}"))?;
    ensure(two.try_lock().is_err(), "a shared lock became exclusive beside another one")
}

/// A file is being written and locked while the server dies: the client claims both again, and
/// loses nothing.
fn killed() -> Done {
    let path = Path::new("/mnt/4.1/survivor");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(said("create"))?;
    file.lock().map_err(said("lock"))?;
    let content = bytes(5, 16 * BLOCK);
    for (number, block) in content.chunks(BLOCK).enumerate() {
        if number == 5 {
            println!("{KILL}");
        }
        file.write_all_at(block, (number * BLOCK) as u64).map_err(said("write"))?;
        if number % 3 == 0 {
            file.sync_all().map_err(said("fsync"))?;
        }
    }
    file.sync_all().map_err(said("fsync at the end"))?;
    let beside = OpenOptions::new().read(true).write(true).open("/mnt/beside/survivor").map_err(said("open beside"))?;
    ensure(beside.try_lock().is_err(), "the lock was lost")?;
    file.unlock().map_err(said("unlock"))?;
    beside.try_lock().map_err(|error| format!("the lock is free and was refused: {error}"))?;
    drop(file);
    drop(beside);
    forget()?;
    ensure(fs::read("/mnt/3/survivor").map_err(said("read by version 3"))? == content, "the content differs")
}
