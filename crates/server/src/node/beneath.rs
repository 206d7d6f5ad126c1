//! The file systems beneath drives that are files. Such files are sparse unless they were
//! preallocated, and take room there when they are written.
//!
//! Failure model: a write that finds no room is an error of the drive. The pool gives up a drive
//! that has many, and writes nothing more if the log finds no room on too many. A server looks once
//! a minute on a thread of its own, since a file system may hang. Of a drive that cannot be looked
//! at, nothing is told.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stele_ground::Bytes;

use super::Node;
use super::drive_paths::is_in_use;

const EVERY: Duration = Duration::from_secs(60);
/// A file system is nearly full if less than one part in this number of its drives' size is free.
const LOW_SHARE: u64 = 20;
/// The unit of `st_blocks`, whatever the file system's block is.
const SECTOR: u64 = 512;

/// One file system, and the drives that are files on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileSystem {
    pub drives: Vec<PathBuf>,
    /// The sum of the sizes of these drives.
    pub size: Bytes,
    /// What they have not taken yet.
    pub needed: Bytes,
    pub free: Bytes,
}

impl FileSystem {
    /// Whether the drives may need more than there is.
    pub fn is_short(&self) -> bool {
        self.free < self.needed
    }

    pub fn is_nearly_full(&self) -> bool {
        self.is_short() && self.free.0.saturating_mul(LOW_SHARE) < self.size.0
    }

    /// The drives by the first of them.
    pub fn name(&self) -> String {
        let first = self.drives.first().map(|path| path.display().to_string()).unwrap_or_default();
        match self.drives.len() as u64 {
            0 | 1 => format!("drive {first}"),
            all => format!("drive {first} and {} more", all - 1),
        }
    }

    /// Room and need, in words.
    pub fn said(&self) -> String {
        let they = if self.drives.len() == 1 { "it" } else { "they" };
        format!(
            "the file system beneath {} has {} free, and {they} may still need {}",
            self.name(),
            self.free,
            self.needed
        )
    }
}

/// The file systems beneath those of the drives that are files.
pub fn look(drives: impl IntoIterator<Item = PathBuf>) -> Vec<FileSystem> {
    let mut found: BTreeMap<u64, FileSystem> = BTreeMap::new();
    for path in drives {
        let Ok(about) = std::fs::metadata(&path) else { continue };
        if !about.is_file() {
            continue;
        }
        let Ok(free) = stele_media::system::free_space(&path) else { continue };
        let empty = FileSystem { drives: Vec::new(), size: Bytes(0), needed: Bytes(0), free };
        let of = found.entry(about.dev()).or_insert(empty);
        of.size += Bytes(about.len());
        of.needed += Bytes(about.len().saturating_sub(about.blocks().saturating_mul(SECTOR)));
        of.drives.push(path);
    }
    found.into_values().collect()
}

/// The next step where too few drives could be opened for writing: they may be away, or be files
/// that find no room.
pub fn next_of_too_few(found: &[FileSystem]) -> String {
    match found.iter().find(|found| found.is_nearly_full()) {
        Some(full) => format!("free room, and start again: {}", full.said()),
        None => "return the drives; where they have other paths now, name those under [pool] drives".to_owned(),
    }
}

/// The file systems as a server saw them last.
#[derive(Default)]
pub struct Beneath(Mutex<Vec<FileSystem>>);

impl Beneath {
    pub fn list(&self) -> Vec<FileSystem> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Looks at the file systems, and whether the paths name the open drives still. Runs until the task
/// is dropped.
pub async fn keep_looking(node: Arc<Node>) {
    loop {
        // A pool that gives no status now says nothing of its drives.
        if let Ok(status) = crate::api::pool::status(&node).await {
            let in_use = status.drives.iter().filter(|drive| is_in_use(drive));
            let in_use: Vec<PathBuf> = in_use.map(|drive| PathBuf::from(&drive.path)).collect();
            let paths = status.drives.into_iter().map(|drive| PathBuf::from(drive.path));
            let paths: Vec<PathBuf> = paths.filter(|path| !path.as_os_str().is_empty()).collect();
            let of = Arc::clone(&node);
            let looking = move || {
                of.drive_paths.look(&in_use);
                look(paths)
            };
            if let Ok(found) = tokio::task::spawn_blocking(looking).await {
                *node.beneath.0.lock().unwrap_or_else(PoisonError::into_inner) = found;
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_need_what_they_have_not_taken() {
        let folder = std::env::temp_dir().join(format!("stele-beneath-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (sparse, written) = (folder.join("sparse.img"), folder.join("written.img"));
        std::fs::File::create(&sparse).unwrap().set_len(64 << 20).unwrap();
        std::fs::write(&written, vec![1; 1 << 20]).unwrap();
        let all = [sparse.clone(), folder.join("away.img"), folder.clone(), written.clone()];
        let found = look(all);
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((&one.drives, one.size), (&vec![sparse, written], Bytes(65 << 20)));
        assert!(one.needed > Bytes(62 << 20) && one.needed <= Bytes(65 << 20), "{one:?}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// The drives are all there, and the message of the pool says only that too few took the log.
    #[test]
    fn a_start_on_a_full_file_system_is_told_to_free_room() {
        let of = |free: u64| {
            let (size, needed) = (Bytes(1 << 30), Bytes(1 << 29));
            next_of_too_few(&[FileSystem { drives: vec!["/d/1".into()], size, needed, free: Bytes(free) }])
        };
        assert!(of(0).starts_with("free room") && of(0).contains("beneath drive /d/1 has 0 B free"), "{}", of(0));
        assert!(of(1 << 30).starts_with("return the drives"), "{}", of(1 << 30));
    }

    #[test]
    fn a_file_system_is_nearly_full_if_drives_need_more_than_it_has() {
        let of = |size: u64, needed: u64, free: u64| FileSystem {
            drives: vec!["/d/1".into(), "/d/2".into()],
            size: Bytes(size),
            needed: Bytes(needed),
            free: Bytes(free),
        };
        for (size, needed, free, short, nearly) in [
            (1000, 100, 100, false, false),
            (1000, 500, 100, true, false),
            (1000, 500, 49, true, true),
            // Preallocated files need no more.
            (1000, 0, 0, false, false),
        ] {
            let found = of(size, needed, free);
            assert_eq!((found.is_short(), found.is_nearly_full()), (short, nearly), "{found:?}");
        }
        let said = of(1 << 30, 512 << 20, 1 << 20).said();
        let words = "beneath drive /d/1 and 1 more has 1 MiB free, and they may still need 512 MiB";
        assert!(said.contains(words), "{said}");
    }
}
