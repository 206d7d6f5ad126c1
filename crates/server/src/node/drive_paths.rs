//! Whether the path of each drive still names the file or device that the server has open.
//!
//! An open file is read and written without its name. Where it was deleted, or moved away, the
//! pool is well, and the next start misses the drive. Of a deleted file nothing is left then. One
//! that another program made shorter has lost its end, and the pool finds that out strip by strip.
//!
//! Failure model: the kernel lists what this process has open under `/proc/self/fd`. Without that
//! list nothing is told. A path that gives another error than "there is none" tells nothing either.
//! A server looks once a minute on a thread of its own, since a file system may hang.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use stele_ground::Bytes;

use super::standing::alarm;
use crate::api::pool::{DriveView, StandingView};

/// What this process has open.
const OPEN: &str = "/proc/self/fd";

/// A file by its file system and number, or a device by its own number, which all its nodes share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Identity {
    File(u64, u64),
    Device(u64),
}

impl Identity {
    fn of(about: &Metadata) -> Option<Identity> {
        let kind = about.file_type();
        match () {
            () if kind.is_file() => Some(Identity::File(about.dev(), about.ino())),
            () if kind.is_block_device() => Some(Identity::Device(about.rdev())),
            () => None,
        }
    }
}

/// Where an open file is that is not at its path.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Now {
    /// It has no name any more.
    Deleted,
    /// The path that the kernel knows for it.
    At(PathBuf),
    /// It was not at its path when the server looked for the first time.
    Unknown,
}

/// A path that does not name the open file.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Displaced {
    now: Now,
    /// Another file is at the path.
    replaced: bool,
}

/// What the last look found.
#[derive(Default)]
struct Seen {
    /// The file that each path named while it was the open one.
    known: BTreeMap<PathBuf, Identity>,
    displaced: BTreeMap<PathBuf, Displaced>,
    /// The lengths of the files that are at their paths.
    lengths: BTreeMap<PathBuf, u64>,
}

/// The paths of drives as a server saw them last.
#[derive(Default)]
pub struct DrivePaths(Mutex<Seen>);

impl DrivePaths {
    /// Compares these paths of drives in use with what this process has open.
    pub fn look(&self, paths: &[PathBuf]) {
        let Ok(open) = open_files() else { return };
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).known.clone();
        let mut seen = Seen::default();
        for path in paths {
            let about = match std::fs::metadata(path) {
                Ok(about) => Some(about),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(_) => continue,
            };
            let known = known.get(path).copied();
            let here = about.as_ref().and_then(Identity::of);
            match here.filter(|here| open.contains_key(here)) {
                Some(here) => {
                    seen.known.insert(path.clone(), here);
                    let length = about.filter(Metadata::is_file).map(|about| about.len());
                    seen.lengths.extend(length.map(|length| (path.clone(), length)));
                }
                None => {
                    let now = known.and_then(|known| open.get(&known).cloned()).unwrap_or(Now::Unknown);
                    seen.displaced.insert(path.clone(), Displaced { now, replaced: path.exists() });
                    seen.known.extend(known.map(|known| (path.clone(), known)));
                }
            }
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = seen;
    }

    /// The alarm of a drive whose path does not name its file, or whose file lost its end.
    pub fn standing(&self, drive: &DriveView) -> Option<StandingView> {
        if !is_in_use(drive) {
            return None;
        }
        let path = Path::new(&drive.path);
        let (displaced, length) = {
            let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            (seen.displaced.get(path).cloned(), seen.lengths.get(path).copied())
        };
        displaced.map_or_else(|| shortened(drive, length?), |displaced| Some(away(drive, &displaced)))
    }
}

/// The alarm of a drive whose file has too few bytes.
fn shortened(drive: &DriveView, length: u64) -> Option<StandingView> {
    let (number, path, size) = (drive.drive, &drive.path, drive.size);
    let what = || format!("the file of drive {number} ({path}) has {}, and the drive {}", Bytes(length), Bytes(size));
    let done = "what lay behind its end is read from the other drives";
    let next = "find out what made it shorter; then `stele pool scrub` writes again what is gone";
    (length < size).then(|| alarm("drive-path", &format!("drive {number}"), what(), done, next.to_owned()))
}

/// The alarm of a drive whose path does not name its file.
fn away(drive: &DriveView, displaced: &Displaced) -> StandingView {
    let (number, path) = (drive.drive, &drive.path);
    let there = if displaced.replaced { ", and another one is in its place" } else { "" };
    let (what, next) = match &displaced.now {
        Now::Deleted => (
            format!("the file of drive {number} ({path}) was deleted{there}"),
            format!("before the server stops: `stele pool replace {number} PATH`, with a new path"),
        ),
        Now::At(now) => (
            format!("the file of drive {number} ({path}) is at {} now{there}", now.display()),
            format!("move it back to {path}, before the next start misses it"),
        ),
        Now::Unknown => (
            format!("{path} is not what the server has open as drive {number}{there}"),
            format!(
                "bring the right file back to this path; if it is gone, before the server stops: \
                 `stele pool replace {number} PATH`, with a new path"
            ),
        ),
    };
    let done = "the open file is read and written as before, until the server stops";
    alarm("drive-path", &format!("drive {number}"), what, done, next)
}

/// Whether the server has the drive open. What it has not, other alarms tell of.
pub fn is_in_use(drive: &DriveView) -> bool {
    let is_open = matches!(drive.health.as_str(), "healthy" | "suspect" | "stale" | "leaving");
    drive.is_member() && is_open && !drive.path.is_empty()
}

fn open_files() -> std::io::Result<BTreeMap<Identity, Now>> {
    let mut open = BTreeMap::new();
    let entries: BTreeSet<PathBuf> = std::fs::read_dir(OPEN)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    for entry in entries {
        // Others close descriptors meanwhile.
        let Ok(about) = std::fs::metadata(&entry) else { continue };
        let (Some(identity), Ok(path)) = (Identity::of(&about), std::fs::read_link(&entry)) else { continue };
        open.insert(identity, if about.nlink() == 0 { Now::Deleted } else { Now::At(path) });
    }
    Ok(open)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn drive(path: &Path, health: &str) -> DriveView {
        serde_json::from_value(serde_json::json!({
            "drive": 3, "identity": "09090909090909090909090909090909", "path": path, "enclosure": 1,
            "health": health, "size_bytes": 1, "used_bytes": 0, "read_errors": 0, "write_errors": 0,
            "digest_errors": 0, "repaired": 0, "note": "",
        }))
        .unwrap()
    }

    /// The pool reads and writes an open file, and nothing told that the next start misses it.
    #[test]
    fn a_drive_file_that_is_moved_replaced_or_deleted_stands_as_an_alarm() {
        let folder = std::env::temp_dir().join(format!("stele-drive-paths-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (path, aside) = (folder.join("a.img"), folder.join("aside.img"));
        fs::write(&path, "drive").unwrap();
        let open = fs::File::open(&path).unwrap();
        let paths = DrivePaths::default();
        let told = || {
            paths.look(std::slice::from_ref(&path));
            paths.standing(&drive(&path, "healthy")).map(|alarm| (alarm.message, alarm.next))
        };
        let check = |says: &str, next: &str| {
            let (message, step) = told().expect("an alarm");
            assert!(message.contains(says) && step.contains(next), "{says}: {message}; {step}");
        };
        assert_eq!(told(), None);
        fs::rename(&path, &aside).unwrap();
        check(&format!("is at {} now", aside.display()), "move it back");
        fs::write(&path, "other").unwrap();
        check("now, and another one is in its place", "move it back");
        fs::rename(&aside, &path).unwrap();
        assert_eq!(told(), None, "the path names the open file again");
        fs::remove_file(&path).unwrap();
        check("was deleted", "`stele pool replace 3 PATH`");
        fs::write(&path, "other").unwrap();
        check("was deleted, and another one is in its place", "before the server stops");
        assert!(paths.standing(&drive(&path, "missing")).is_none(), "another alarm tells of it");
        drop(open);
        // A server that began to look too late does not know the file.
        let paths = DrivePaths::default();
        paths.look(std::slice::from_ref(&path));
        let told = paths.standing(&drive(&path, "stale")).expect("an alarm");
        assert!(told.message.contains("is not what the server has open as drive 3"), "{told:?}");
        assert!(crate::node::alarms::KINDS.contains(&&*told.kind), "{told:?}");
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Until a host read what was lost, nothing told of it.
    #[test]
    fn a_drive_file_that_lost_its_end_stands_as_an_alarm() {
        let path = std::env::temp_dir().join(format!("stele-drive-length-{}", std::process::id()));
        let open = fs::File::create(&path).unwrap();
        let paths = DrivePaths::default();
        let sized = DriveView { size: 8192, ..drive(&path, "healthy") };
        let told = |length: u64| {
            open.set_len(length).unwrap();
            paths.look(std::slice::from_ref(&path));
            paths.standing(&sized).map(|alarm| alarm.message)
        };
        assert_eq!((told(8192), told(9000)), (None, None));
        let said = told(4096).expect("an alarm");
        assert!(said.contains("has 4 KiB, and the drive 8 KiB"), "{said}");
        assert!(paths.standing(&DriveView { health: "failed".to_owned(), ..sized.clone() }).is_none());
        assert_eq!(told(8192), None, "it has its length again");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_link_to_the_open_file_is_its_path() {
        let folder = std::env::temp_dir().join(format!("stele-drive-links-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, link) = (folder.join("a.img"), folder.join("by-id"));
        fs::write(&file, "drive").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let open = fs::File::open(&link).unwrap();
        let paths = DrivePaths::default();
        paths.look(std::slice::from_ref(&link));
        assert!(paths.standing(&drive(&link, "healthy")).is_none());
        drop(open);
        fs::remove_dir_all(&folder).unwrap();
    }
}
