//! Mounts of the machine: which places cannot be written to, whatever their permissions say.

use std::path::{Path, PathBuf};

use super::Machine;

/// Whether the file system of a path is mounted read-only here. None: the kernel does not say.
pub fn is_read_only(machine: &Machine, path: &Path) -> Option<bool> {
    let table = std::fs::read_to_string(machine.proc.join("self/mountinfo")).ok()?;
    // A file that is not there yet would be made in the directory above it.
    let place = path.ancestors().find_map(|above| std::fs::canonicalize(above).ok())?;
    let mounts = table.lines().filter_map(mount).filter(|mount| place.starts_with(&mount.at));
    // Of mounts at one place the last one is seen.
    mounts.max_by_key(|mount| mount.at.components().count()).map(|mount| mount.read_only)
}

struct Mount {
    at: PathBuf,
    read_only: bool,
}

/// A line of `mountinfo`, as proc(5) describes it:
/// `36 35 98:0 /root /mnt rw,noatime master:1 - ext3 /dev/root rw,errors=continue`.
fn mount(line: &str) -> Option<Mount> {
    let (here, system) = line.split_once(" - ")?;
    let mut here = here.split(' ').skip(4);
    let (at, options) = (here.next()?, here.next()?);
    let of_system = system.split(' ').nth(2)?;
    let read_only = |options: &str| options.split(',').any(|option| option == "ro");
    Some(Mount { at: plain(at), read_only: read_only(options) || read_only(of_system) })
}

/// The kernel writes space, tab, line break and backslash as three octal digits.
fn plain(text: &str) -> PathBuf {
    let written = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    PathBuf::from(written.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to)))
}
