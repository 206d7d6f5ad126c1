use stele_ground::MIB;

use super::*;

/// A directory on the disk of the build, removed at the end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        Scratch::under(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/scratch"), name)
    }

    /// A directory on tmpfs, if there is one.
    pub fn in_memory(name: &str) -> Scratch {
        let shared = Path::new("/dev/shm");
        Scratch::under(if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() }, name)
    }

    fn under(parent: PathBuf, name: &str) -> Scratch {
        let path = parent.join(format!("stele-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a scratch directory");
        Scratch(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn refused(result: Result<DriveFile, MediaError>, fault: MediaFault, words: &[&str]) {
    let error = result.expect_err("must be refused");
    assert_eq!(error.fault, fault, "{error}");
    for word in words {
        assert!(error.message.contains(word), "`{error}` should say `{word}`");
    }
}

#[test]
fn a_file_is_created_once_and_opened_again() {
    let scratch = Scratch::new("create");
    for (name, space) in [("sparse", Space::Sparse), ("reserved", Space::Reserved), ("written", Space::Written)] {
        let path = scratch.path(name);
        let drive = DriveFile::create(&path, Bytes(3 * MIB + 5), space).expect("created");
        assert_eq!(drive.geometry(), Geometry { size: Bytes(3 * MIB), block: Bytes(4096) });
        drop(drive);
        refused(DriveFile::create(&path, Bytes(MIB), space), MediaFault::Refused, &[name, "exists"]);
        assert_eq!(DriveFile::open(&path, Access::Exclusive).expect("opened").geometry().size, Bytes(3 * MIB));
        let blocks = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).expect("metadata"));
        assert_eq!(blocks * 512 >= 3 * MIB, space != Space::Sparse, "{space:?} owns {blocks} sectors");
    }
}

#[test]
fn a_drive_is_opened_for_writing_by_one_only() {
    let scratch = Scratch::new("lock");
    let path = scratch.path("drive");
    let held = DriveFile::create(&path, Bytes(MIB), Space::Sparse).expect("created");
    let pid = std::process::id().to_string();
    for access in [Access::Exclusive, Access::ReadOnly] {
        refused(DriveFile::open(&path, access), MediaFault::Refused, &["drive", "in use", "this process itself"]);
    }
    DriveFile::open(&path, Access::Peek).expect("a look is always allowed");
    drop(held);
    let readers = [Access::ReadOnly; 2].map(|access| DriveFile::open(&path, access).expect("readers share"));
    refused(DriveFile::open(&path, Access::Exclusive), MediaFault::Refused, &["in use"]);
    drop(readers);

    // The error names another process.
    let mut other = std::process::Command::new("flock")
        .args(["-x", &path.display().to_string(), "sh", "-c", "echo ready; read _"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("flock of util-linux");
    let mut ready = [0; 6];
    std::io::Read::read_exact(other.stdout.as_mut().expect("piped"), &mut ready).expect("it started");
    let error = DriveFile::open(&path, Access::Exclusive).expect_err("held elsewhere");
    assert!(error.message.contains(&format!("process {}", other.id())), "{error}");
    assert!(!error.message.contains(&format!("process {pid} ")), "{error}");
    drop(other.stdin.take());
    other.wait().expect("it ends");
    DriveFile::open(&path, Access::Exclusive).expect("free again");
}

#[test]
fn what_cannot_be_a_drive_is_refused() {
    let scratch = Scratch::new("refuse");
    refused(DriveFile::open(scratch.path("none"), Access::Exclusive), MediaFault::Gone, &["none"]);
    refused(DriveFile::open(scratch.path(""), Access::Exclusive), MediaFault::Invalid, &["neither"]);
    refused(DriveFile::open("/dev/null", Access::Exclusive), MediaFault::Invalid, &["/dev/null"]);
    refused(DriveFile::create(scratch.path("tiny"), Bytes(100), Space::Sparse), MediaFault::Invalid, &["tiny"]);
    std::fs::write(scratch.path("small"), [0; 100]).expect("written");
    refused(DriveFile::open(scratch.path("small"), Access::Exclusive), MediaFault::Invalid, &["small", "100 bytes"]);
    let huge = DriveFile::create(scratch.path("huge"), Bytes(1 << 52), Space::Reserved);
    refused(huge, MediaFault::Full, &["huge"]);
    assert!(!scratch.path("huge").exists(), "a drive without its space is not left behind");
}

#[test]
fn errors_ask_for_what_the_caller_can_do() {
    let check = |number, fault| assert_eq!(fault_of(&io::Error::from_raw_os_error(number)), fault, "{number}");
    check(libc::EIO, MediaFault::Damaged);
    check(libc::EREMOTEIO, MediaFault::Damaged);
    check(libc::ENOSPC, MediaFault::Full);
    check(libc::EDQUOT, MediaFault::Full);
    check(libc::ENODEV, MediaFault::Gone);
    check(libc::ENXIO, MediaFault::Gone);
    check(libc::EACCES, MediaFault::Refused);
    check(libc::EROFS, MediaFault::Refused);
    check(libc::ENOMEM, MediaFault::Retry);
    check(libc::EMFILE, MediaFault::Retry);
    check(libc::EINVAL, MediaFault::Invalid);
}

#[test]
fn a_tolerated_flag_does_not_pass_the_page_cache() {
    use Direct::{Aligned, Buffered, Unknown};
    let mut passing = Vec::new();
    for device in [false, true] {
        for in_memory in [false, true] {
            for direct in [Unknown, Buffered, Aligned(4, 512)] {
                if passes_cache(device, in_memory, direct) {
                    passing.push((device, in_memory, direct));
                }
            }
        }
    }
    // A device's node lies in memory, and its file system says nothing about the device.
    let devices =
        [false, true].into_iter().flat_map(|memory| [Unknown, Buffered, Aligned(4, 512)].map(|d| (true, memory, d)));
    let expected: Vec<_> =
        [(false, false, Unknown), (false, false, Aligned(4, 512))].into_iter().chain(devices).collect();
    assert_eq!(passing, expected);
}
