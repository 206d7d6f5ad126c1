//! What is mounted at a directory: finds and removes mounts that a dead process left behind.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, umount2};

use super::KIND;

/// Mounts may lie on each other; more than this many at one directory are left alone.
const LAYERS_MAX: usize = 16;

/// Makes the directory ready for a mount and answers its absolute path. A dead mount of ours is
/// unmounted. Refused while a living one of ours is there.
pub(super) fn clear(directory: &Path) -> io::Result<PathBuf> {
    detach_dead(directory)?;
    let directory = absolute(directory)?;
    match fs::metadata(&directory) {
        Ok(found) if !found.is_dir() => {
            return Err(about(io::ErrorKind::NotADirectory, &directory, "it is not a directory"));
        }
        Ok(_) => {}
        Err(error) if is_dead(&error) => {
            return Err(about(io::ErrorKind::ResourceBusy, &directory, "another file system is dead there"));
        }
        Err(error) => return Err(about(error.kind(), &directory, &error.to_string())),
    }
    match is_ours(&directory)? {
        true => Err(about(io::ErrorKind::ResourceBusy, &directory, "a share is mounted there")),
        false => Ok(directory),
    }
}

/// Unmounts what a dead process of ours left mounted at the directory. Answers whether there was
/// such a mount.
pub fn detach_dead(directory: &Path) -> io::Result<bool> {
    let mut detached = false;
    for _ in 0..LAYERS_MAX {
        if !fs::metadata(directory).is_err_and(|error| is_dead(&error)) {
            break;
        }
        let place = absolute(directory)?;
        if !is_ours(&place)? {
            break;
        }
        umount2(&place, MntFlags::MNT_DETACH).map_err(|errno| super::about("unmount the dead", &place, errno))?;
        detached = true;
    }
    Ok(detached)
}

/// The process that served the directory has ended.
fn is_dead(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOTCONN)
}

fn is_ours(directory: &Path) -> io::Result<bool> {
    let table = fs::read("/proc/self/mountinfo")?;
    Ok(top_mount(&table, directory).is_some_and(|kind| kind == KIND))
}

/// Resolves all but the last name, which may be a dead mount.
fn absolute(directory: &Path) -> io::Result<PathBuf> {
    match directory.canonicalize() {
        Ok(path) => Ok(path),
        Err(error) if is_dead(&error) => match (directory.parent(), directory.file_name()) {
            (Some(parent), Some(name)) if parent == Path::new("") => Ok(Path::new(".").canonicalize()?.join(name)),
            (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
            _ => Err(error),
        },
        Err(error) => Err(about(error.kind(), directory, &error.to_string())),
    }
}

fn about(kind: io::ErrorKind, directory: &Path, why: &str) -> io::Error {
    io::Error::new(kind, format!("cannot mount at {}: {why}", directory.display()))
}

/// The type of the uppermost file system at exactly this directory, from the text of
/// `/proc/self/mountinfo`.
fn top_mount(table: &[u8], directory: &Path) -> Option<String> {
    let mut found = None;
    for line in table.split(|byte| *byte == b'\n') {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        // Optional fields end with a dash; the type is behind it.
        let dash = fields.iter().position(|field| *field == b"-");
        let (Some(place), Some(dash)) = (fields.get(4), dash) else { continue };
        if unescaped(place) == directory.as_os_str() {
            found = fields.get(dash + 1).map(|kind| String::from_utf8_lossy(kind).into_owned());
        }
    }
    found
}

/// The kernel writes blanks, tabs, line ends and backslashes as three octal digits behind a
/// backslash.
fn unescaped(field: &[u8]) -> OsString {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', behind @ ..]) => {
                path.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = behind;
            }
            _ => path.push(*first),
        }
    }
    OsString::from_vec(path)
}

#[cfg(test)]
mod tests;
