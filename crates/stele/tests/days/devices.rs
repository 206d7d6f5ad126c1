//! The drives of a day: loop devices if this machine allows them, otherwise files.
//!
//! A loop device can be pulled while it is in use: every access after its first sector fails until
//! it is given back with its contents. A file cannot be pulled; it is only moved away while no
//! server runs. The pool knows each drive by a link, which may change. A loop device is detached
//! when its last user ends, so a campaign that is killed leaves none.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use stele_ground::Dice;

/// Prefix of scratch directories; the number of the process follows.
pub const PREFIX: &str = "stele-days-";
/// This variable keeps the files of a campaign that failed.
pub const KEEP: &str = "STELE_DAYS_KEEP";
/// The programs that a campaign starts and that outlive it if it is killed.
const SERVANTS: [&str; 2] = ["stele", "fio"];
const DRIVE_BYTES: u64 = 768 << 20;
/// The rest of a pulled device: its first sector.
const PULLED: u64 = 512;

const LOOP_SET_STATUS64: u64 = 0x4C04;
const LOOP_GET_STATUS64: u64 = 0x4C05;
/// `struct loop_info64` in words, which of them is the size limit, and which holds the flags in its
/// upper half.
const INFO_WORDS: usize = 29;
const SIZE_LIMIT: usize = 4;
const FLAGS: usize = 6;
/// The device is detached when its last user closes it.
const AUTOCLEAR: u64 = 4 << 32;

/// Limits a loop device to this many bytes; 0 restores the size of its file.
fn limit(device: &File, bytes: u64) -> io::Result<()> {
    let mut info = [0u64; INFO_WORDS];
    let check = |result: libc::c_int| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    // SAFETY: the call fills a loop_info64, which has exactly this size and no more alignment than
    // a word.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64 as _, info.as_mut_ptr()) })?;
    info[SIZE_LIMIT] = bytes;
    info[FLAGS] |= AUTOCLEAR;
    // SAFETY: the call reads as much.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_STATUS64 as _, info.as_ptr()) })
}

struct Device {
    /// The path that the pool knows.
    link: PathBuf,
    image: PathBuf,
    /// The loop device, held open; `None` if the image itself is the drive.
    node: Option<(PathBuf, File)>,
}

impl Device {
    fn target(&self) -> &Path {
        self.node.as_ref().map_or(&self.image, |(path, _)| path)
    }

    /// If a server still has the loop device open, it is detached when the server closes it.
    fn destroy(self) {
        let _ = fs::remove_file(&self.link);
        let _ = fs::remove_file(&self.image);
    }
}

/// Whether a signal asks the campaign to end.
pub static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Notes the signals that would end this process, so that it ends after its own work.
pub fn note_signals() {
    extern "C" fn note(_: libc::c_int) {
        INTERRUPTED.store(true, Ordering::Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores to an atomic, which a handler may do.
        unsafe { libc::signal(signal, note as *const () as libc::sighandler_t) };
    }
}

/// All drives, in the pool or not.
pub struct Shelf {
    dir: PathBuf,
    pub loops: bool,
    made: usize,
    devices: Vec<Device>,
}

impl Shelf {
    pub fn new(dir: &Path) -> Shelf {
        fs::create_dir_all(dir.join("images")).unwrap();
        fs::create_dir_all(dir.join("bay")).unwrap();
        let loops = quiet("losetup", &["--find"]).is_some() && quiet("id", &["-u"]).as_deref() == Some("0");
        Shelf { dir: dir.to_owned(), loops, made: 0, devices: Vec::new() }
    }

    /// An empty drive.
    pub fn blank(&mut self) -> String {
        let image = self.dir.join(format!("images/{}", self.made));
        File::create(&image).unwrap().set_len(DRIVE_BYTES).unwrap();
        let node = self.loops.then(|| {
            let node = quiet("losetup", &["--find", "--show", &image.display().to_string()]);
            let node = PathBuf::from(node.expect("a loop device"));
            let held = File::options().read(true).write(true).open(&node).unwrap();
            limit(&held, 0).unwrap();
            (node, held)
        });
        let device = Device { link: self.bay(), image, node };
        symlink(device.target(), &device.link).unwrap();
        let path = device.link.display().to_string();
        self.devices.push(device);
        path
    }

    /// A path that no drive has had before.
    fn bay(&mut self) -> PathBuf {
        self.made += 1;
        self.dir.join(format!("bay/{}", self.made - 1))
    }

    fn find(&self, path: &str) -> usize {
        let found = self.devices.iter().position(|device| device.link == Path::new(path));
        found.unwrap_or_else(|| panic!("no device was ever plugged in as {path}"))
    }

    /// Makes every access fail from now on.
    pub fn pull(&self, path: &str) {
        self.fail_behind(path, PULLED);
    }

    /// Makes every access behind the first half of the drive fail from now on.
    pub fn fail_half(&self, path: &str) {
        self.fail_behind(path, DRIVE_BYTES / 2);
    }

    fn fail_behind(&self, path: &str, bytes: u64) {
        let device = &self.devices[self.find(path)];
        limit(&device.node.as_ref().expect("only loop devices fail").1, bytes).unwrap();
    }

    /// Makes the drive answer again, with its former contents.
    pub fn give_back(&self, path: &str) {
        if let Some((_, node)) = &self.devices[self.find(path)].node {
            limit(node, 0).unwrap();
        }
    }

    /// Removes the drive from its path, so that it cannot be opened.
    pub fn unplug(&self, path: &str) {
        fs::remove_file(path).unwrap();
    }

    /// Returns the drive at another path, which is the result.
    pub fn plug(&mut self, path: &str) -> String {
        let at = self.find(path);
        let link = self.bay();
        symlink(self.devices[at].target(), &link).unwrap();
        let _ = fs::remove_file(path);
        self.devices[at].link = link.clone();
        link.display().to_string()
    }

    /// Overwrites some non-empty blocks of a drive; returns their number.
    pub fn damage(&self, path: &str, count: usize, dice: &mut Dice) -> usize {
        const BLOCK: u64 = 4096;
        let image = File::options().read(true).write(true).open(&self.devices[self.find(path)].image).unwrap();
        let mut done = 0;
        for _ in 0..100_000 {
            if done == count {
                break;
            }
            // The labels at both ends are not content.
            let at = (4 << 20) + dice.below((DRIVE_BYTES - (8 << 20)) / BLOCK) * BLOCK;
            let mut block = [0; BLOCK as usize];
            image.read_exact_at(&mut block, at).unwrap();
            if block.iter().any(|byte| *byte != 0) {
                dice.fill(&mut block);
                image.write_all_at(&block, at).unwrap();
                done += 1;
            }
        }
        done
    }

    /// Destroys the drive.
    pub fn discard(&mut self, path: &str) {
        let at = self.find(path);
        self.devices.swap_remove(at).destroy();
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        if std::env::var_os(KEEP).is_none() {
            self.devices.drain(..).for_each(Device::destroy);
        }
    }
}

/// Ends the processes of earlier campaigns that were killed, and removes their files. Their loop
/// devices are detached with their last process.
pub fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(process) = name.strip_prefix(PREFIX).filter(|rest| rest.parse::<u32>().is_ok()) else { continue };
        if Path::new("/proc").join(process).exists() {
            continue;
        }
        let dir = entry.path().display().to_string();
        for other in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let ours =
                matches!(fs::read_to_string(other.path().join("comm")), Ok(name) if SERVANTS.contains(&name.trim()));
            let arguments = fs::read(other.path().join("cmdline")).unwrap_or_default();
            let mut words = String::from_utf8_lossy(&arguments).into_owned();
            words.push('\0');
            let within = [format!("{dir}\0"), format!("{dir}/")].iter().any(|dir| words.contains(dir));
            if ours
                && within
                && let Some(number) = other.file_name().to_str()
            {
                let _ = quiet("kill", &["-KILL", number]);
            }
        }
        if std::env::var_os(KEEP).is_none() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The output of a program, if it succeeds.
fn quiet(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
