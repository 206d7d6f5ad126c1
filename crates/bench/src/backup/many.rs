//! A file system of ten million files, one directory of a million and 900 of ten thousand: a first
//! backup, an unchanged one, a restore that is compared file by file, and a check.
//!
//! Both trees are ext4 in image files beside this program, 3 GiB each, since memory does not hold
//! so many files twice. That takes root, loop devices and `mkfs.ext4`. The repository is a
//! directory beside them. The case is measured only if its name is given:
//! `--case 'ten million files'`.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::agents::{PASSWORD, cost_of};
use super::{KINDS, OWN};
use crate::harness::Bench;

const CASE: &str = "ten million files";
const WIDE: u64 = 1_000_000;
const DIRECTORIES: u64 = 900;
const FILES_OF_DIRECTORY: u64 = 10_000;
/// Of a file system, sparse.
const IMAGE_BYTES: u64 = 14 << 30;
const WORKERS: u64 = 2;

pub fn run(bench: &mut Bench) -> Result<(), String> {
    if bench.is_whole() || !bench.wants(CASE) {
        return Ok(());
    }
    let own = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let place = Place { root: own.with_file_name(format!("bench-many-{}", std::process::id())) };
    fs::create_dir_all(&place.root).map_err(|error| format!("cannot make {}: {error}", place.root.display()))?;
    fs::write(place.path("password"), PASSWORD).map_err(|error| format!("cannot write a password: {error}"))?;
    let (tree, out) = (Mounted::new(&place, "tree")?, Mounted::new(&place, "out")?);
    for directory in (0..DIRECTORIES).map(|number| format!("many/{number:03}")).chain(["wide".to_owned()]) {
        fs::create_dir_all(tree.0.join(directory)).map_err(|error| format!("cannot make the tree: {error}"))?;
    }
    each(|number| {
        let path = tree.0.join(path(number));
        let made = || -> std::io::Result<()> { File::create_new(&path)?.write_all(&content(number)) };
        made().map_err(|error| format!("cannot make {}: {error}", path.display()))
    })?;
    let program = own.with_file_name(OWN);
    let (saved, restored) = (tree.0.display().to_string(), out.0.join("restored"));
    let to = restored.display().to_string();
    place.command(&program, &["init"])?;
    for (step, arguments) in [
        ("first backup", &["run", &saved][..]),
        ("unchanged", &["run", &saved]),
        ("restore", &["restore", "latest", "--to", &to]),
        ("check", &["verify", "--data"]),
    ] {
        let cost = place.command(&program, arguments)?;
        for (kind, unit, figure) in KINDS {
            bench.figure(&format!("{CASE}: {step}, {kind}"), unit, figure(&cost), None, None);
        }
    }
    // Below the whole path of what was saved.
    let below = restored.join(tree.0.strip_prefix("/").unwrap_or(&tree.0));
    each(|number| {
        let (from, to) = (tree.0.join(path(number)), below.join(path(number)));
        match is_same(&from, &to) {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("{} was not restored as it was", from.display())),
            Err(error) => Err(format!("{}: {error}", to.display())),
        }
    })
}

/// Does something for each file, with several threads.
fn each(act: impl Fn(u64) -> Result<(), String> + Sync) -> Result<(), String> {
    let all = WIDE + DIRECTORIES * FILES_OF_DIRECTORY;
    let part = all / WORKERS;
    std::thread::scope(|scope| {
        let act = &act;
        let work = |worker: u64| scope.spawn(move || (worker * part..(worker + 1) * part).try_for_each(act));
        let workers: Vec<_> = (0..WORKERS).map(work).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a thread died".to_owned())?)
    })
}

fn path(number: u64) -> PathBuf {
    match number.checked_sub(WIDE) {
        None => format!("wide/record-{number:08}").into(),
        Some(further) => format!("many/{:03}/record-{number:08}", further / FILES_OF_DIRECTORY).into(),
    }
}

/// So short that its inode holds it.
fn content(number: u64) -> Vec<u8> {
    format!("{number:08} is the content of a small record").into_bytes()
}

fn is_same(a: &Path, b: &Path) -> std::io::Result<bool> {
    let about = |path: &Path| {
        let is = fs::symlink_metadata(path)?;
        Ok::<_, std::io::Error>((is.mode(), is.uid(), is.gid(), is.mtime(), is.mtime_nsec()))
    };
    Ok(about(a)? == about(b)? && fs::read(a)? == fs::read(b)?)
}

/// The directory of a run.
struct Place {
    root: PathBuf,
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Runs `stele backup` with the arguments.
    fn command(&self, program: &Path, arguments: &[&str]) -> Result<super::agents::Cost, String> {
        let mut command = Command::new(program);
        command.arg("backup").args(arguments).arg("--repository").arg(self.path("repository"));
        command.env("HOME", &self.root).env("STELE_BACKUP_PASSWORD_FILE", self.path("password"));
        command.env_remove("XDG_CACHE_HOME").stdin(Stdio::null()).stdout(Stdio::null());
        match cost_of(&mut command).map_err(|error| format!("{}: {error}", program.display()))? {
            (cost, status) if status.success() => Ok(cost),
            (_, status) => Err(format!("stele backup {arguments:?}: {status}")),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// An empty file system in an image file, and where it is mounted.
struct Mounted(PathBuf);

impl Mounted {
    fn new(place: &Place, name: &str) -> Result<Mounted, String> {
        let (image, mount) = (place.path(&format!("{name}.img")), place.path(name));
        let failed = |error| format!("cannot make {}: {error}", image.display());
        File::create_new(&image).and_then(|file| file.set_len(IMAGE_BYTES)).map_err(failed)?;
        fs::create_dir_all(&mount).map_err(failed)?;
        let options = ["-q", "-F", "-I", "256", "-O", "inline_data,^has_journal", "-N", "11000000"];
        system(Command::new("mkfs.ext4").args(options).args(["-E", "lazy_itable_init=0"]).arg(&image))?;
        system(Command::new("mount").args(["-o", "loop,noatime"]).arg(&image).arg(&mount))?;
        Ok(Mounted(mount))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn system(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
