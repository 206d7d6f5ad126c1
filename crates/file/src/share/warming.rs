//! Reading records before the step that needs them.
//!
//! Steps hold the share's lock and read the catalog under it, mostly from memory, in about a
//! microsecond. Where the catalog is larger than its memory, a read waits for the drives, and all
//! callers of the share with it. So a step that had to wait makes the next callers have their
//! records read first, by threads that may wait side by side, without the lock. The step then finds
//! them in the catalog's memory. This ends when such reads no longer wait.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use stele_archive::Records;
use stele_catalog::{Direction, KeyRange};

use super::Share;
use super::records::{COOKIES, CookieRow, ENTRIES, EntryRow, INODES, decode, entry_key, inode_key, numbered_key};
use crate::Inode;

/// Callers that have their records read first, after a read that waited.
const CALLERS: u32 = 64;

/// What a step is to read.
pub(super) enum Wanted<'a> {
    File(Inode),
    Name(Inode, &'a [u8]),
    /// So many names of a directory behind a cookie.
    Names(Inode, u64, usize),
}

/// The same as keys.
enum Keys {
    File(Bytes),
    Name(Bytes),
    Names(KeyRange, usize),
}

impl Share {
    /// A read has waited for storage: the next ones may have to, too.
    pub(super) fn expect_waits(&self) {
        self.waiting_reads.store(CALLERS, Ordering::Relaxed);
    }

    /// Has the records read, if reads have waited lately.
    pub(super) async fn warm(&self, wanted: Wanted<'_>) {
        let one_less = |left: u32| left.checked_sub(1);
        if self.waiting_reads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_err() {
            return;
        }
        let (share, keys) = {
            let core = self.locked();
            let share = core.view.share;
            let keys = match wanted {
                Wanted::File(inode) if core.view.knows(inode.0) => return,
                Wanted::File(inode) => Keys::File(inode_key(share, inode.0)),
                Wanted::Name(directory, name) => Keys::Name(entry_key(share, directory.0, name)),
                Wanted::Names(directory, cookie, limit) => {
                    let range = KeyRange::prefix(inode_key(share, directory.0));
                    Keys::Names(range.after(numbered_key(share, directory.0, cookie)), limit)
                }
            };
            (share, keys)
        };
        let records = self.archive.records();
        // What fails here fails again in the step, whose caller is told.
        if let Ok(Some(true)) = tokio::task::spawn_blocking(move || read(&records, share, keys)).await {
            self.expect_waits();
        }
    }
}

/// Whether a read waited. None: there is no such record, or it cannot be read.
fn read(records: &Records, share: u32, keys: Keys) -> Option<bool> {
    let snapshot = records.snapshot().ok()?;
    let before = snapshot.waits();
    let inodes = match keys {
        Keys::File(key) => vec![key],
        Keys::Name(key) => match snapshot.get(ENTRIES, &key).ok()? {
            Some(entry) => vec![inode_key(share, decode::<EntryRow>(ENTRIES, &key, &entry).ok()?.inode)],
            None => Vec::new(),
        },
        Keys::Names(range, limit) => {
            let names = snapshot.range(COOKIES, &range, limit, Direction::Forward).ok()?;
            let inode = |(key, name): &(Bytes, Bytes)| Some(decode::<CookieRow>(COOKIES, key, name).ok()?.inode);
            names.iter().filter_map(inode).map(|inode| inode_key(share, inode)).collect()
        }
    };
    for key in inodes {
        snapshot.get(INODES, &key).ok()?;
    }
    Some(snapshot.waits() != before)
}
