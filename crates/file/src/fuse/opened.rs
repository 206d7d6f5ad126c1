//! The files that are open through the mount, and what their writers may still lose.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Inode;

/// Bounded by the open files of the kernel.
#[derive(Default)]
pub(super) struct Opened {
    files: Mutex<HashMap<Inode, OpenFile>>,
}

#[derive(Clone, Copy, Default)]
struct OpenFile {
    readers: u64,
    writers: u64,
    /// The verifier before the first unstable write since the last commit.
    uncommitted: Option<[u8; 8]>,
}

impl OpenFile {
    fn count(&mut self, writes: bool) -> &mut u64 {
        if writes { &mut self.writers } else { &mut self.readers }
    }
}

impl Opened {
    pub(super) fn add(&self, inode: Inode, writes: bool) {
        *self.lock().entry(inode).or_default().count(writes) += 1;
    }

    pub(super) fn remove(&self, inode: Inode, writes: bool) {
        let mut files = self.lock();
        let Some(file) = files.get_mut(&inode) else { return };
        let count = file.count(writes);
        *count = count.saturating_sub(1);
        if file.readers == 0 && file.writers == 0 {
            files.remove(&inode);
        }
    }

    pub(super) fn has_writers(&self, inode: Inode) -> bool {
        self.lock().get(&inode).is_some_and(|file| file.writers > 0)
    }

    /// Takes every opening out, once for each: the mount is gone, and with it the requests that
    /// would close them.
    pub(super) fn take_all(&self) -> Vec<(Inode, bool)> {
        let mut all = Vec::new();
        for (inode, file) in self.lock().drain() {
            all.extend((0..file.readers).map(|_| (inode, false)));
            all.extend((0..file.writers).map(|_| (inode, true)));
        }
        all
    }

    /// An unstable write begins under this verifier.
    pub(super) fn note_write(&self, inode: Inode, verifier: [u8; 8]) {
        if let Some(file) = self.lock().get_mut(&inode) {
            file.uncommitted.get_or_insert(verifier);
        }
    }

    /// A commit begins: the verifier that must still hold after it.
    pub(super) fn begin_commit(&self, inode: Inode) -> Option<[u8; 8]> {
        self.lock().get_mut(&inode).and_then(|file| file.uncommitted.take())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Inode, OpenFile>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
