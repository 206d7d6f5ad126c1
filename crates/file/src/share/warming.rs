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
use stele_catalog::{Direction, KeyRange, Table};

use super::Share;
use super::core::Core;
use super::records::{
    BLOCKS, COOKIES, CookieRow, ENTRIES, EntryRow, INODES, decode, entry_key, inode_key, numbered_key,
};
use crate::Inode;

/// Callers that have their records read first, after a read that waited.
const CALLERS: u32 = 64;

/// Threads that wait for the drives at once: enough to give each of two dozen drives a few reads.
pub(super) const READERS: usize = 64;

/// What a step is to read.
pub(super) enum Wanted<'a> {
    File(Inode),
    /// Bytes of a file, from an offset on.
    Content(Inode, u64, u64),
    Name(Inode, &'a [u8]),
    /// So many names of a directory behind a cookie.
    Names(Inode, u64, usize),
}

/// The same as keys.
enum Keys {
    Records(Vec<(Table, Bytes)>),
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
            (core.view.share, core.keys_of(wanted))
        };
        if matches!(&keys, Keys::Records(records) if records.is_empty()) {
            return;
        }
        let Ok(_permit) = self.readers.acquire().await else { return };
        let records = self.archive.records();
        // What fails here fails again in the step, whose caller is told.
        if let Ok(Some(true)) = tokio::task::spawn_blocking(move || read(&records, share, keys)).await {
            self.expect_waits();
        }
    }
}

impl Core {
    /// What of it is not in memory, as far as that can be told.
    fn keys_of(&self, wanted: Wanted<'_>) -> Keys {
        let share = self.view.share;
        let row = |inode: Inode| (!self.view.knows(inode.0)).then(|| (INODES, inode_key(share, inode.0)));
        match wanted {
            Wanted::File(inode) => Keys::Records(row(inode).into_iter().collect()),
            Wanted::Content(inode, offset, length) => {
                let groups = Core::groups_in(offset, offset.saturating_add(length));
                let absent = groups.filter(|group| !self.knows_group(inode.0, *group));
                let groups = absent.map(|group| (BLOCKS, numbered_key(share, inode.0, group)));
                Keys::Records(row(inode).into_iter().chain(groups).collect())
            }
            Wanted::Name(directory, name) => Keys::Name(entry_key(share, directory.0, name)),
            Wanted::Names(directory, cookie, limit) => {
                let range = KeyRange::prefix(inode_key(share, directory.0));
                Keys::Names(range.after(numbered_key(share, directory.0, cookie)), limit)
            }
        }
    }
}

/// Whether a read waited. None: there is no such record, or it cannot be read.
fn read(records: &Records, share: u32, keys: Keys) -> Option<bool> {
    let snapshot = records.snapshot().ok()?;
    let before = snapshot.waits();
    let row = |inode| (INODES, inode_key(share, inode));
    let keys = match keys {
        Keys::Records(keys) => keys,
        Keys::Name(key) => match snapshot.get(ENTRIES, &key).ok()? {
            Some(entry) => vec![row(decode::<EntryRow>(ENTRIES, &key, &entry).ok()?.inode)],
            None => Vec::new(),
        },
        Keys::Names(range, limit) => {
            let names = snapshot.range(COOKIES, &range, limit, Direction::Forward).ok()?;
            let inode = |(key, name): &(Bytes, Bytes)| Some(decode::<CookieRow>(COOKIES, key, name).ok()?.inode);
            names.iter().filter_map(inode).map(row).collect()
        }
    };
    for (table, key) in keys {
        snapshot.get(table, &key).ok()?;
    }
    Some(snapshot.waits() != before)
}
