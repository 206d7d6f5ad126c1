//! Small files that are written atomically: a kill or a power cut leaves the old or the new contents.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::failure::{Outcome, io_failure};

const PUBLIC: u32 = 0o644;
const PRIVATE: u32 = 0o600;

/// Writes a file, and replaces an existing one.
pub fn replace(path: &Path, bytes: &[u8]) -> Outcome<()> {
    let written = beside(path, bytes, PUBLIC).and_then(|new| fs::rename(new, path)).and_then(|()| sync_folder(path));
    written.map_err(|error| io_failure("write", path, &error))
}

/// The same, readable by its owner only.
pub fn replace_private(path: &Path, bytes: &[u8]) -> Outcome<()> {
    let written = beside(path, bytes, PRIVATE).and_then(|new| fs::rename(new, path)).and_then(|()| sync_folder(path));
    written.map_err(|error| io_failure("write", path, &error))
}

/// Makes a new file that only its owner may read. It never overwrites an existing file.
pub fn create_private(path: &Path, bytes: &[u8]) -> Outcome<()> {
    let written = taken(path).and_then(|()| beside(path, bytes, PRIVATE)).and_then(|new| {
        match fs::hard_link(&new, path) {
            Ok(()) => fs::remove_file(&new),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let _ = fs::remove_file(&new);
                Err(error)
            }
            // File systems of USB sticks and network shares often lack links.
            Err(_) => taken(path).and_then(|()| fs::rename(&new, path)),
        }
    });
    written.and_then(|()| sync_folder(path)).map_err(|error| io_failure("write", path, &error))
}

/// Removes a file durably. A missing file is no error.
pub fn remove(path: &Path) -> Outcome<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.and_then(|()| sync_folder(path)).map_err(|error| io_failure("remove", path, &error)),
    }
}

/// Makes a directory durably; it may exist already.
pub fn folder(path: &Path) -> Outcome<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.and_then(|()| sync_folder(path)).map_err(|error| io_failure("make", path, &error)),
    }
}

fn taken(path: &Path) -> io::Result<()> {
    if path.exists() { Err(io::ErrorKind::AlreadyExists.into()) } else { Ok(()) }
}

/// Writes the bytes durably under another name in the same directory, over any remains of a killed process.
fn beside(path: &Path, bytes: &[u8], mode: u32) -> io::Result<PathBuf> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(new)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_half_written_by_a_killed_process_is_no_obstacle() {
        let folder = std::env::temp_dir().join(format!("stele-files-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("master.key");
        fs::write(folder.join("master.key.new"), b"hal").unwrap();
        create_private(&path, b"whole").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert!(create_private(&path, b"other").is_err(), "a key is never written over");
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left behind");
        fs::remove_dir_all(&folder).unwrap();
    }
}
