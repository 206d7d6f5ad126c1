//! Listings: `.` and `..`, and the entries behind them.

use bytes::Bytes;
use fuser::FileType;

use super::convert::file_type;
use super::share::Share;
use crate::{Attributes, Files, Inode, Result};

/// Entries that one call asks for; the kernel's buffer holds about as many short names.
const LISTED: usize = 128;
/// The places of `.` and `..`, before the cookies of entries.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

/// An entry on its way into a listing: number, place, name, and attributes unless it is `.` or
/// `..`.
pub(super) type Listed = (Inode, u64, FileType, Bytes, Option<Attributes>);

impl<F: Files> Share<F> {
    /// Entries behind `place`, as long as `add` has room. `add` answers whether it is full.
    pub(super) async fn fill(&self, directory: Inode, place: u64, mut add: impl FnMut(Listed) -> bool) -> Result<()> {
        if place < DOT && add((directory, DOT, FileType::Directory, Bytes::from_static(b"."), None)) {
            return Ok(());
        }
        if place < DOT_DOT {
            let above = self.parent(directory).await;
            if add((above, DOT_DOT, FileType::Directory, Bytes::from_static(b".."), None)) {
                return Ok(());
            }
        }
        let mut cookie = if place <= DOT_DOT { 0 } else { place };
        let mut given = place < DOT_DOT;
        loop {
            let (entries, end) = match self.list(directory, cookie, LISTED).await {
                // An error would take back what this call gave. The next call brings it.
                Err(_) if given => return Ok(()),
                listed => listed?,
            };
            for entry in entries {
                given = true;
                cookie = entry.cookie;
                let file = entry.attributes;
                if add((file.inode, cookie, file_type(file.kind), entry.name, Some(file))) {
                    return Ok(());
                }
            }
            if end {
                return Ok(());
            }
        }
    }
}
