//! The directories of the target that were used last, each opened once.
//!
//! Most files of a segment come from few directories, and the threads of a restore work on a
//! segment each. A name in an open directory is one step for the kernel, and a path is one for each
//! directory above. A directory that another process moves meanwhile keeps getting its files, as
//! long as it is open here.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use crate::restore::lock;

/// Directories that are open at most: two for each of eight threads, for one file descriptor each.
const OPEN_MAX: usize = 16;

#[derive(Default)]
pub struct Folders {
    /// By path, the one that was used last at the end.
    open: Mutex<Vec<(Vec<u8>, Arc<OwnedFd>)>>,
}

impl Folders {
    /// The directory with this path, which `open` opens unless it is open.
    pub fn get(
        &self,
        path: &[u8],
        open: impl FnOnce() -> rustix::io::Result<OwnedFd>,
    ) -> rustix::io::Result<Arc<OwnedFd>> {
        if let Some(known) = self.known(path) {
            return Ok(known);
        }
        let opened = Arc::new(open()?);
        let mut folders = lock(&self.open);
        if folders.len() >= OPEN_MAX {
            folders.remove(0);
        }
        folders.push((path.to_vec(), Arc::clone(&opened)));
        Ok(opened)
    }

    fn known(&self, path: &[u8]) -> Option<Arc<OwnedFd>> {
        let mut folders = lock(&self.open);
        let at = folders.iter().rposition(|(known, _)| known == path)?;
        // Two threads take turns at the end, and then nothing moves.
        if at + 2 < folders.len() {
            let used = folders.remove(at);
            folders.push(used);
        }
        folders.iter().rfind(|(known, _)| known == path).map(|(_, opened)| Arc::clone(opened))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Temporary;

    #[test]
    fn the_directories_used_last_stay_open() {
        let folder = Temporary::new();
        let (folders, mut opened) = (Folders::default(), 0);
        let mut get = |path: usize| {
            let before = opened;
            let path = format!("{path}");
            let open = || {
                opened += 1;
                rustix::fs::open(&folder.0, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty())
            };
            folders.get(path.as_bytes(), open).unwrap();
            opened > before
        };
        assert!(get(0) && !get(0));
        // The first one is used again and again, and the others once.
        for path in 1..10 * OPEN_MAX {
            assert!(get(path), "{path}");
            assert!(!get(0), "{path}");
        }
        assert!(!get(10 * OPEN_MAX - OPEN_MAX + 1));
        assert!(get(1), "it was used longest ago");
        assert_eq!(lock(&folders.open).len(), OPEN_MAX);
    }
}
