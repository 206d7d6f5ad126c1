//! The file system of the data directory: a server writes signed heads, alarms, counters, exports
//! and the list of its drives there.
//!
//! Failure model: where it takes no writes, records and volumes are served as before, and what has
//! to write a file there fails. The same holds where the directory is gone, or another one is at
//! its path, as below a mount that was taken away. A server looks once a minute on a thread of its
//! own, since a file system may hang. Of a directory that gives another error, nothing is told.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::StatVfsMountFlags;
use stele_ground::{Bytes, MIB, counted};

use super::Node;
use super::standing::alarm;
use crate::api::pool::StandingView;
use crate::failure::READ_ONLY_NEXT;

const EVERY: Duration = Duration::from_secs(60);
/// Less than this free is too little.
pub const FREE_MIN: Bytes = Bytes(32 * MIB);
/// Fewer further files than these are too few.
const FILES_MIN: u64 = 64;

/// The reason why the file system takes no writes, or soon will take none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lack {
    ReadOnly,
    Room(Bytes),
    /// Further files that it has room for.
    Files(u64),
    /// The directory that the server began with is not at its path.
    Away,
}

/// Device and number of a directory: another one at the same path has others.
type Identity = (u64, u64);

fn identity(dir: &Path) -> std::io::Result<Identity> {
    std::fs::metadata(dir).map(|about| (about.dev(), about.ino()))
}

/// The reported room of a file system. One that makes room for files as they come has no number of
/// files.
#[derive(Clone, Copy)]
struct Room {
    read_only: bool,
    free: Bytes,
    files: u64,
    files_free: u64,
}

impl Room {
    fn of(path: &Path) -> std::io::Result<Room> {
        let found = rustix::fs::statvfs(path)?;
        Ok(Room {
            read_only: found.f_flag.contains(StatVfsMountFlags::RDONLY),
            free: Bytes(found.f_bavail.saturating_mul(found.f_frsize)),
            files: found.f_files,
            files_free: found.f_favail,
        })
    }

    fn lack(&self) -> Option<Lack> {
        if self.read_only {
            return Some(Lack::ReadOnly);
        }
        if self.free < FREE_MIN {
            return Some(Lack::Room(self.free));
        }
        (self.files > 0 && self.files_free < FILES_MIN).then_some(Lack::Files(self.files_free))
    }
}

/// The data directory as a server saw it last.
pub struct DataDirectory {
    dir: PathBuf,
    /// At the start; `None` if it was not there.
    began: Option<Identity>,
    lack: Mutex<Option<Lack>>,
}

impl DataDirectory {
    pub fn of(dir: &Path) -> DataDirectory {
        DataDirectory { dir: dir.to_owned(), began: identity(dir).ok(), lack: Mutex::default() }
    }

    /// Asks the file system, which may hang.
    fn look(dir: &Path, began: Option<Identity>) -> std::io::Result<Option<Lack>> {
        let is_away = match identity(dir) {
            Ok(now) => began.is_some_and(|began| began != now),
            Err(error) if error.kind() == ErrorKind::NotFound => began.is_some(),
            Err(error) => return Err(error),
        };
        if is_away { Ok(Some(Lack::Away)) } else { Room::of(dir).map(|room| room.lack()) }
    }

    fn set(&self, lack: Option<Lack>) {
        *self.lack.lock().unwrap_or_else(PoisonError::into_inner) = lack;
    }

    /// The alarm, while something is lacking.
    pub fn standing(&self) -> Option<StandingView> {
        let lack = (*self.lack.lock().unwrap_or_else(PoisonError::into_inner))?;
        let dir = self.dir.display();
        let (message, next) = match lack {
            Lack::ReadOnly => (format!("the data directory {dir} is mounted read-only"), READ_ONLY_NEXT.to_owned()),
            Lack::Room(free) => (
                format!("the file system of the data directory {dir} has {free} free"),
                format!("make {FREE_MIN} of room there, and leave the server's own files alone"),
            ),
            Lack::Files(free) => (
                format!("the file system of the data directory {dir} has room for {}", counted(free, "further file")),
                "remove files there that are not the server's own: `df --inodes` counts them".to_owned(),
            ),
            Lack::Away => (
                format!("the data directory {dir} is gone, or another directory is in its place"),
                "mount it again, or move it back; commands find the server only there, and the next start needs it"
                    .to_owned(),
            ),
        };
        let done = "records and volumes are served; signed heads, alarms, counters and changes of exports and drives may \
                    not be written";
        Some(alarm("data-directory", "data directory", message, done, next))
    }
}

/// Runs until the task is dropped.
pub async fn keep_looking(node: Arc<Node>) {
    loop {
        let (dir, began) = (node.data_directory.dir.clone(), node.data_directory.began);
        if let Ok(Ok(lack)) = tokio::task::spawn_blocking(move || DataDirectory::look(&dir, began)).await {
            node.data_directory.set(lack);
        }
        tokio::time::sleep(EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOMY: Room = Room { read_only: false, free: FREE_MIN, files: 1000, files_free: FILES_MIN };

    #[test]
    fn a_data_directory_that_takes_no_files_is_found() {
        for (room, lack) in [
            (ROOMY, None),
            (Room { read_only: true, ..ROOMY }, Some(Lack::ReadOnly)),
            (Room { free: Bytes(FREE_MIN.0 - 1), ..ROOMY }, Some(Lack::Room(Bytes(FREE_MIN.0 - 1)))),
            (Room { files_free: 3, ..ROOMY }, Some(Lack::Files(3))),
            // As btrfs, which has no number of files.
            (Room { files: 0, files_free: 0, ..ROOMY }, None),
        ] {
            assert_eq!(room.lack(), lack);
        }
        assert!(Room::of(&std::env::temp_dir()).is_ok() && Room::of(Path::new("/nonexistent")).is_err());
    }

    #[test]
    fn a_full_or_read_only_data_directory_stands_as_an_alarm_until_it_is_mended() {
        let found = DataDirectory::of(Path::new("/srv/stele"));
        assert!(found.standing().is_none());
        for (lack, says, next) in [
            (Lack::ReadOnly, "/srv/stele is mounted read-only", "mount it for writing"),
            (Lack::Room(Bytes(MIB)), "/srv/stele has 1 MiB free", "make 32 MiB of room"),
            (Lack::Files(0), "/srv/stele has room for 0 further files", "df --inodes"),
            (Lack::Away, "/srv/stele is gone", "mount it again"),
        ] {
            found.set(Some(lack));
            let told = found.standing().expect("an alarm");
            assert!(told.message.contains(says) && told.next.contains(next), "{told:?}");
            assert!(crate::node::alarms::KINDS.contains(&&*told.kind), "{told:?}");
        }
        found.set(None);
        assert!(found.standing().is_none());
    }

    /// Below a mount that was taken away lies an empty directory with much room.
    #[test]
    fn a_data_directory_that_another_one_replaced_is_away() {
        let dir = std::env::temp_dir().join(format!("stele-away-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let found = DataDirectory::of(&dir);
        let look = || DataDirectory::look(&dir, found.began).unwrap();
        assert_ne!(look(), Some(Lack::Away));
        let aside = dir.with_extension("aside");
        std::fs::rename(&dir, &aside).unwrap();
        assert_eq!(look(), Some(Lack::Away));
        std::fs::create_dir(&dir).unwrap();
        assert_eq!(look(), Some(Lack::Away), "another one in its place");
        std::fs::remove_dir(&dir).unwrap();
        std::fs::rename(&aside, &dir).unwrap();
        assert_ne!(look(), Some(Lack::Away));
        std::fs::remove_dir(&dir).unwrap();
    }
}
