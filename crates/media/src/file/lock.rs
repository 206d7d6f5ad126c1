//! The advisory lock (flock) that prevents a second use of a drive, and its holder.

use std::fs::{File, Metadata, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use stele_ground::Duration;

use super::{Access, failure};
use crate::{MediaError, MediaFault, system};

/// Locks the file, or names the holder. If the holder has died, waits for it: its lock goes when
/// the kernel has finished its last operations.
pub fn take(
    file: &File,
    path: &Path,
    metadata: &Metadata,
    access: Access,
    linger_max: Duration,
) -> Result<(), MediaError> {
    let since = system::now();
    loop {
        let tried = match access {
            Access::Exclusive => file.try_lock(),
            Access::ReadOnly => file.try_lock_shared(),
            Access::Peek => return Ok(()),
        };
        match tried {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(failure(path, "cannot be locked", &error)),
            Err(TryLockError::WouldBlock) => {}
        }
        let holder = holder(metadata);
        // The kernel lists no locks of dead processes, and none of processes in other containers,
        // which are reported later.
        let lingering = holder.is_none_or(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        if lingering && system::now().since(since) < linger_max {
            std::thread::sleep(std::time::Duration::from_millis(2));
            continue;
        }
        // Another process may end; this one holds the file for as long as it needs it.
        let (fault, by) = match holder {
            Some(pid) if pid == std::process::id() => (MediaFault::Refused, "this process itself".to_owned()),
            Some(pid) => (MediaFault::Retry, format!("process {pid}{}", name_of(pid))),
            None => (MediaFault::Retry, "another process".to_owned()),
        };
        let message = format!("{}: is in use by {by}: stop it, or name other drives", path.display());
        return Err(MediaError::new(fault, message));
    }
}

/// The process that holds a lock on the file, from /proc/locks; `None` if that is unknown.
fn holder(metadata: &Metadata) -> Option<u32> {
    holder_in(&std::fs::read_to_string("/proc/locks").ok()?, metadata.dev(), metadata.ino())
}

/// A line reads `1: FLOCK  ADVISORY  WRITE 708 00:13:1234 0 EOF`: process, then major:minor:inode
/// with the device in hexadecimal. A waiter has `->` after the number and is not a holder.
fn holder_in(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let place = format!("{:02x}:{:02x}:{inode}", libc::major(device), libc::minor(device));
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let kind = words.next()?;
        let (pid, file) = (words.nth(2)?, words.next()?);
        (kind == "FLOCK" && file == place).then(|| pid.parse().ok())?
    })
}

fn name_of(pid: u32) -> String {
    match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!(" ({})", name.trim()),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found_among_the_locks() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:00:77 0 EOF\n2: -> FLOCK  ADVISORY  WRITE 12 fe:00:77 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 13 fe:00:77 0 EOF\n4: FLOCK  ADVISORY  READ 14 00:13:78 0 EOF\nodd\n";
        let check = |device, inode, expected| assert_eq!(holder_in(locks, device, inode), expected);
        check(libc::makedev(0xfe, 0), 77, Some(13));
        check(libc::makedev(0, 0x13), 78, Some(14));
        check(libc::makedev(0xfe, 1), 77, None);
    }
}
