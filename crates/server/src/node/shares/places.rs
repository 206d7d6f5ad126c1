//! Directories at which a share can be mounted.
//!
//! A mount hides the files below its directory. So the directory must be empty. It must not hold
//! the data directory of the server, nor be a folder there in which the server makes files.

use std::fs;
use std::path::{Path, PathBuf};

use stele_file::fuse::detach_dead;

use crate::failure::{Failure, Kind, Outcome, io_failure};

/// Folders of the data directory in which the server makes files.
const OWN: [&str; 5] = ["drives", "heads", "reservations", "smb", "tls"];
const EMPTY: &str = "make an empty directory for the mount";

/// Unmounts what a server that died left mounted at the directory. Answers whether something was.
pub fn detach(directory: &Path) -> Outcome<bool> {
    detach_dead(directory).map_err(|error| {
        let error = format!("a server that ended left a dead mount at {}: {error}", directory.display());
        Failure::new(Kind::Refused, error).next(format!("`umount -l {}` as root unmounts it", directory.display()))
    })
}

/// The directory under its one path without symbolic links. A dead mount keeps the path that was
/// given.
pub fn real(directory: &Path) -> PathBuf {
    directory.canonicalize().unwrap_or_else(|_| directory.to_owned())
}

/// Refuses a directory at which the mount would hide something. `data`: the data directory.
pub fn check(directory: &Path, data: Option<&Path>) -> Outcome<()> {
    if !directory.is_dir() {
        return Err(Failure::missing(format!("{} is no directory", directory.display())).next(EMPTY));
    }
    let refused = |why: &str| Failure::new(Kind::Refused, format!("{} {why}", directory.display())).next(EMPTY);
    let read = |error: std::io::Error| io_failure("read", directory, &error);
    let place = directory.canonicalize().map_err(read)?;
    if let Some(data) = data.and_then(|data| data.canonicalize().ok()) {
        if place == data {
            return Err(refused("is the data directory of the server"));
        }
        if data.starts_with(&place) {
            return Err(refused("holds the data directory of the server"));
        }
        let below = place.strip_prefix(&data).ok();
        if below.is_some_and(|below| OWN.iter().any(|own| below.starts_with(own))) {
            return Err(refused("lies in the data directory, and the server uses it"));
        }
    }
    match fs::read_dir(&place).map_err(read)?.next() {
        Some(_) => Err(refused("is not empty")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_hides_no_files_and_no_data_directory() {
        let top = std::env::temp_dir().join(format!("stele-mount-places-{}", std::process::id()));
        let data = top.join("data");
        for folder in ["data/smb/mounts", "data/free", "full", "empty"] {
            fs::create_dir_all(top.join(folder)).unwrap();
        }
        fs::write(top.join("full/file"), b"").unwrap();
        std::os::unix::fs::symlink(&data, top.join("link")).unwrap();
        for (place, expected) in [
            ("", Some("holds the data directory")),
            ("data", Some("is the data directory")),
            ("data/smb/..", Some("is the data directory")),
            ("link", Some("is the data directory")),
            ("data/smb/mounts", Some("the server uses it")),
            ("full", Some("is not empty")),
            ("full/file", Some("is no directory")),
            ("absent", Some("is no directory")),
            ("data/free", None),
            ("empty", None),
        ] {
            let answer = check(&top.join(place), Some(&data));
            match (&answer, expected) {
                (Ok(()), None) => {}
                (Err(failure), Some(why)) => assert!(failure.error.contains(why), "{place}: {}", failure.error),
                _ => panic!("{place}: {answer:?}"),
            }
        }
        assert!(check(&top.join("full"), None).is_err(), "without a data directory, too");
        assert_eq!(real(&top.join("link/smb")), real(&data.join("smb")));
        assert_eq!(real(&top.join("absent")), top.join("absent"));
        fs::remove_dir_all(&top).unwrap();
    }
}
