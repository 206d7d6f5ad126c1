//! Places of the operating system, where nothing is made to be measured: one that is meant for
//! another place fills the file system that the machine runs from.

use std::path::{Path, PathBuf};

use crate::error::LabError;

/// Nothing is made in these, nor below them.
const TREES: [&str; 9] = ["/bin", "/boot", "/dev", "/etc", "/lib", "/proc", "/sbin", "/sys", "/usr"];
/// Nothing is made in these: a directory below them is one of its own.
const TOPS: [&str; 6] = ["/", "/home", "/opt", "/root", "/run", "/var"];
/// Where the kernel shows devices and its own state. A file that is made there lies in memory, and
/// comes of a device's name that is not right.
const KERNELS: [&str; 3] = ["/dev", "/proc", "/sys"];
/// Memory that is meant for files.
const SHARED_MEMORY: &str = "/dev/shm";

/// Refuses to make a directory of files there.
pub fn refuse_directory(path: &Path) -> Result<(), LabError> {
    let place = real(path);
    let is_tree = TREES.iter().any(|tree| place.starts_with(tree)) && !place.starts_with(SHARED_MEMORY);
    match is_tree || TOPS.iter().any(|top| place == Path::new(top)) {
        true => Err(LabError::Refused(format!(
            "{}: is a directory of the operating system; name one of its own for the measurement, such as /mnt/bench",
            path.display()
        ))),
        false => Ok(()),
    }
}

/// Refuses to make a file where there are none but devices.
pub fn refuse_file(path: &Path) -> Result<(), LabError> {
    let place = real(path);
    match KERNELS.iter().any(|tree| place.starts_with(tree)) && !place.starts_with(SHARED_MEMORY) {
        true => Err(LabError::Missing(format!(
            "{}: there is no such device, and a file that is made there would lie in memory; correct the name",
            path.display()
        ))),
        false => Ok(()),
    }
}

/// Refuses to write over a file of the system: one wrong name would cost the machine.
pub fn refuse_overwriting(path: &Path) -> Result<(), LabError> {
    let place = real(path);
    match TREES.iter().any(|tree| place.starts_with(tree)) && !place.starts_with(SHARED_MEMORY) {
        true => Err(LabError::Refused(format!(
            "{}: is a file of the operating system, and is never written over; name a file of its own for the measurement, such \
             as /mnt/bench/target",
            path.display()
        ))),
        false => Ok(()),
    }
}

/// Where it lies without links. Of what does not exist, the part that does counts.
fn real(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for above in absolute.ancestors() {
        if let Ok(found) = above.canonicalize() {
            return found.join(absolute.strip_prefix(above).unwrap_or(Path::new("")));
        }
    }
    absolute
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_made_in_directories_of_the_system() {
        for path in ["/etc", "/etc/", "/etc/stele", "/usr/local/lib", "/", "/home", "/var", "/dev", "/proc/self/task"] {
            let refused = refuse_directory(Path::new(path));
            assert!(matches!(&refused, Err(LabError::Refused(text)) if text.starts_with(path)), "{path}: {refused:?}");
        }
        let link = std::env::temp_dir().join(format!("stele-lab-place-{}", std::process::id()));
        drop(std::fs::remove_file(&link));
        std::os::unix::fs::symlink("/etc", &link).unwrap();
        let behind_link = [refuse_directory(&link), refuse_directory(&link.join("below"))];
        std::fs::remove_file(&link).unwrap();
        assert!(behind_link.iter().all(Result::is_err), "{behind_link:?}");
        for path in ["/mnt/x", "/home/me/bench", "/var/bench", "/dev/shm", "/dev/shm/bench", "/srv", "/tmp", "here"] {
            assert_eq!(refuse_directory(Path::new(path)), Ok(()), "{path}");
        }
    }

    #[test]
    fn files_of_the_system_are_never_written_over() {
        for path in ["/etc/passwd", "/etc/../etc/fstab", "/usr/bin/env", "/boot/vmlinuz", "/lib/x", "/proc/version"] {
            let refused = refuse_overwriting(Path::new(path));
            assert!(matches!(&refused, Err(LabError::Refused(text)) if text.starts_with(path)), "{path}: {refused:?}");
        }
        for path in ["/dev/shm/x", "/mnt/bench/target", "/home/me/target", "/var/lib/x", "/tmp/x", "x"] {
            assert_eq!(refuse_overwriting(Path::new(path)), Ok(()), "{path}");
        }
    }

    #[test]
    fn a_name_among_devices_that_is_none_becomes_no_file() {
        for path in ["/dev/no-such-device", "/dev/mapper/none", "/sys/x", "/dev/../dev/x"] {
            let refused = refuse_file(Path::new(path));
            assert!(matches!(refused, Err(LabError::Missing(_))), "{path}: {refused:?}");
        }
        for path in ["/dev/shm/x", "/etc/x", "/tmp/x", "x"] {
            assert_eq!(refuse_file(Path::new(path)), Ok(()), "{path}");
        }
    }
}
