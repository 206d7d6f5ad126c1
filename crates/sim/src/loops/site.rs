//! Loop devices, a server with a pool on them, and the cleanup of all, however the campaign ends.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::system;

/// Prefix of scratch directories; the number of the process follows.
const PREFIX: &str = "stele-drives-";
const DEVICE_BYTES: u64 = 2 << 30;
/// The rest of a pulled device: its first sector.
const PULLED: u64 = 512;
/// Time limit of an operator's command.
const PATIENCE: Duration = Duration::from_secs(600);

/// The reason why the campaign ended early.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    /// An operator's signal.
    Signal,
    /// It cannot run here, or the machine failed.
    Trouble(String),
    /// The pool broke a promise.
    Fault(String),
}

/// A child process with all that it started; both end with their owner.
pub struct Guarded(pub Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A drive's description in the status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriveSaid {
    pub number: u64,
    /// Its device, if it is on one.
    pub place: Option<usize>,
    pub health: String,
    /// Failed reads, failed writes, units that did not verify.
    pub errors: [u64; 3],
}

/// A loop device and the file behind it.
struct Device {
    path: PathBuf,
    image: PathBuf,
    /// The drive that the pool has on it.
    number: u64,
}

pub struct Site {
    pub dir: PathBuf,
    program: PathBuf,
    /// The devices of the pool's drives.
    devices: Vec<Device>,
    /// Number of images made so far.
    images: usize,
    server: Option<Guarded>,
}

impl Site {
    /// Makes the devices, empty.
    pub fn new(parent: &Path, devices: usize) -> Result<Site, Stop> {
        let own = std::env::current_exe().map_err(|error| trouble("this program's own path", error))?;
        let program = own.with_file_name("stele");
        if !program.is_file() {
            let build = "cargo build --release --package stele";
            return Err(Stop::Trouble(format!("there is no {}; build it with `{build}`", program.display())));
        }
        sweep(parent);
        let dir = parent.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir_all(&dir).map_err(|error| trouble(&dir.display().to_string(), error))?;
        let mut site = Site { dir, program, devices: Vec::new(), images: 0, server: None };
        for number in 0..devices as u64 {
            let device = Device { number, ..site.blank()? };
            site.devices.push(device);
        }
        Ok(site)
    }

    /// A further empty device.
    fn blank(&mut self) -> Result<Device, Stop> {
        let image = self.dir.join(format!("d{}.img", self.images));
        self.images += 1;
        let file = fs::File::create(&image).and_then(|file| file.set_len(DEVICE_BYTES));
        file.map_err(|error| trouble(&image.display().to_string(), error))?;
        let path = run(Command::new("losetup").args(["--find", "--show"]).arg(&image))?;
        Ok(Device { path: PathBuf::from(path.trim()), image, number: u64::MAX })
    }

    /// Replaces the drive at a place by a blank device. The old device is gone for good, and its
    /// space is free.
    ///
    /// A drive that still answers gets a successor with a number of its own. Any other gives its
    /// number on.
    pub fn exchange(&mut self, place: usize, wait: bool) -> Result<(), Stop> {
        let blank = self.blank()?;
        let (number, path) = (self.devices[place].number.to_string(), blank.path.display().to_string());
        let old = std::mem::replace(&mut self.devices[place], blank);
        let mut replace = vec!["pool", "replace", &number, &path];
        replace.extend(wait.then_some("--wait"));
        let replaced = self.stele(&replace);
        old.discard();
        replaced?;
        let status = self.status()?;
        let drive = status["drives"].as_array().into_iter().flatten().find(|drive| drive["path"] == *path);
        let number = drive.and_then(|drive| drive["drive"].as_u64());
        self.devices[place].number = number.ok_or_else(|| self.fault(&format!("no drive is at {path}: {status}")))?;
        Ok(())
    }

    /// Makes a pool on the first `drives` devices, two of them in each enclosure, with the volume
    /// on it, and serves it.
    pub fn create_pool(&mut self, drives: usize, code: &str, size: &str) -> Result<(), Stop> {
        let mut create = ["pool", "create", "--confirm-time", "--data", "none"].map(str::to_owned).to_vec();
        for (number, device) in self.devices.iter().take(drives).enumerate() {
            create.extend(["--drive".to_owned(), format!("{}@{}", device.path.display(), number / 2 + 1)]);
        }
        self.stele(&create.iter().map(String::as_str).collect::<Vec<_>>())?;
        let config = self.dir.join("stele.toml");
        let text = fs::read_to_string(&config).map_err(|error| trouble("stele.toml", error))?;
        let text = text.replace("rebuild_after = 600", "rebuild_after = 5").replace("127.0.0.1:9000", "127.0.0.1:0");
        fs::write(&config, text).map_err(|error| trouble("stele.toml", error))?;
        self.serve()?;
        self.stele(&["volume", "create", "v", "--code", code, "--size", size])?;
        self.stele(&["volume", "export", "v", "--nbd"])?;
        Ok(())
    }

    fn serve(&mut self) -> Result<(), Stop> {
        let log = fs::File::create(self.dir.join("server.log")).map_err(|error| trouble("server.log", error))?;
        let mut server = Command::new(&self.program);
        server.args(["serve", "--json", "--dir"]).arg(&self.dir).env_remove("STELE_DIR").process_group(0);
        server.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = Guarded(server.spawn().map_err(|error| trouble("stele serve", error))?);
        let output = child.0.stdout.take();
        self.server = Some(child);
        let mut line = String::new();
        if let Some(output) = output {
            BufReader::new(output).read_line(&mut line).map_err(|error| trouble("stele serve", error))?;
        }
        if line.is_empty() { Err(self.fault("the server did not start")) } else { Ok(()) }
    }

    /// Runs another `stele` command and returns its output.
    pub fn stele(&self, arguments: &[&str]) -> Result<String, Stop> {
        let mut command = Command::new("timeout");
        command.arg(PATIENCE.as_secs().to_string()).arg(&self.program).args(arguments).arg("--dir").arg(&self.dir);
        run(&mut command).map_err(|stop| match stop {
            Stop::Trouble(what) => self.fault(&what),
            other => other,
        })
    }

    pub fn status(&self) -> Result<Value, Stop> {
        let text = self.stele(&["pool", "status", "--json"])?;
        serde_json::from_str(&text).map_err(|error| self.fault(&format!("pool status is no JSON: {error}")))
    }

    pub fn drives(&self) -> Result<Vec<DriveSaid>, Stop> {
        let status = self.status()?;
        let drives = status["drives"].as_array().cloned().unwrap_or_default();
        let said = |drive: &Value| {
            let errors = ["read_errors", "write_errors", "digest_errors"].map(|kind| drive[kind].as_u64().unwrap_or(0));
            let health = drive["health"].as_str().unwrap_or_default().to_owned();
            let number = drive["drive"].as_u64()?;
            let place = self.devices.iter().position(|device| device.number == number);
            Some(DriveSaid { number, place, health, errors })
        };
        Ok(drives.iter().filter_map(said).collect())
    }

    /// A fault of the pool, with the end of the server's log.
    pub fn fault(&self, what: &str) -> Stop {
        let log = fs::read_to_string(self.dir.join("server.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(8)..].join("\n");
        Stop::Fault(if tail.is_empty() { what.to_owned() } else { format!("{what}\nthe server's log ends:\n{tail}") })
    }

    /// Makes every request to the device fail after its first sector.
    pub fn pull(&self, place: usize) -> Result<(), Stop> {
        system::limit(&self.devices[place].path, PULLED).map_err(|error| trouble("pulling a loop device", error))
    }

    pub fn give_back(&self, place: usize) -> Result<(), Stop> {
        system::limit(&self.devices[place].path, 0).map_err(|error| trouble("giving a loop device back", error))
    }
}

impl Device {
    /// A device that a server still has open disappears when the server closes it.
    fn discard(&self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
        let _ = fs::File::create(&self.image);
        let _ = fs::remove_file(&self.image);
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.server = None;
        self.devices.iter().for_each(Device::discard);
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Removes the remains of earlier campaigns that were killed.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(process) = name.strip_prefix(PREFIX) else { continue };
        if Path::new("/proc").join(process).exists() {
            continue;
        }
        let dir = entry.path();
        let list = run(Command::new("losetup").args(["--list", "--noheadings", "--output", "NAME,BACK-FILE"]));
        for line in list.unwrap_or_default().lines() {
            if let Some((device, file)) = line.split_once(char::is_whitespace)
                && Path::new(file.trim()).starts_with(&dir)
            {
                let _ = Command::new("losetup").args(["--detach", device]).status();
            }
        }
        let _ = fs::remove_dir_all(dir);
    }
}

pub fn trouble(what: &str, error: impl std::fmt::Display) -> Stop {
    Stop::Trouble(format!("{what}: {error}"))
}

/// The program's output, or an error with its complaint.
pub fn run(command: &mut Command) -> Result<String, Stop> {
    let name = format!("{command:?}");
    let output = command.env_remove("STELE_DIR").stdin(Stdio::null()).process_group(0).output();
    let output = output.map_err(|error| trouble(&name, error))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(Stop::Trouble(format!("{name} ended with {}: {}", output.status, complaint.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Waits, unless a signal arrives.
pub fn pause(span: Duration) -> Result<(), Stop> {
    let end = Instant::now() + span;
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        if system::is_signalled() {
            return Err(Stop::Signal);
        }
        std::thread::sleep(left.min(Duration::from_millis(200)));
    }
    if system::is_signalled() { Err(Stop::Signal) } else { Ok(()) }
}
