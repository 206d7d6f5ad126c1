//! The drives of a day: loop devices if this machine allows them, otherwise files.
//!
//! A loop device can be pulled while it is in use: every access after its first sector fails until it is given back
//! with its contents. A file cannot be pulled; it is only moved away while no server runs. The pool knows each drive by
//! a link, which may change.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use stele_ground::Dice;

/// Prefix of scratch directories; the number of the process follows.
pub const PREFIX: &str = "stele-days-";
const DRIVE_BYTES: u64 = 768 << 20;
/// The rest of a pulled device: its first sector.
const PULLED: u64 = 512;

const LOOP_SET_STATUS64: u64 = 0x4C04;
const LOOP_GET_STATUS64: u64 = 0x4C05;
/// `struct loop_info64` in words, and which of them is the size limit.
const INFO_WORDS: usize = 29;
const SIZE_LIMIT: usize = 4;

/// Limits a loop device to this many bytes; 0 restores the size of its file.
fn limit(device: &Path, bytes: u64) -> io::Result<()> {
    let device = File::options().read(true).write(true).open(device)?;
    let mut info = [0u64; INFO_WORDS];
    let check = |result: libc::c_int| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    // SAFETY: the call fills a loop_info64, which has exactly this size and no more alignment than a word.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64 as _, info.as_mut_ptr()) })?;
    info[SIZE_LIMIT] = bytes;
    // SAFETY: the call reads as much.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_STATUS64 as _, info.as_ptr()) })
}

struct Device {
    /// The path that the pool knows.
    link: PathBuf,
    image: PathBuf,
    /// The loop device; `None` if the image itself is the drive.
    node: Option<PathBuf>,
}

impl Device {
    fn target(&self) -> &Path {
        self.node.as_deref().unwrap_or(&self.image)
    }

    fn destroy(&self) {
        let _ = fs::remove_file(&self.link);
        if let Some(node) = &self.node {
            // If a server still has the device open, it disappears when the server closes it.
            let _ = quiet("losetup", &["--detach", &node.display().to_string()]);
        }
        let _ = fs::remove_file(&self.image);
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
            PathBuf::from(node.expect("a loop device"))
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
        let device = &self.devices[self.find(path)];
        limit(device.node.as_deref().expect("only loop devices are pulled"), PULLED).unwrap();
    }

    /// Makes the drive answer again, with its former contents.
    pub fn give_back(&self, path: &str) {
        if let Some(node) = &self.devices[self.find(path)].node {
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
        self.devices.iter().for_each(Device::destroy);
    }
}

/// Removes the remains of earlier campaigns that were killed.
pub fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(process) = name.strip_prefix(PREFIX) else { continue };
        if Path::new("/proc").join(process).exists() {
            continue;
        }
        let list = quiet("losetup", &["--list", "--noheadings", "--output", "NAME,BACK-FILE"]).unwrap_or_default();
        for line in list.lines() {
            if let Some((device, file)) = line.split_once(char::is_whitespace)
                && Path::new(file.trim()).starts_with(entry.path())
            {
                let _ = quiet("losetup", &["--detach", device]);
            }
        }
    }
}

/// The output of a program, if it succeeds.
fn quiet(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
