//! Committing files that were left alone for long.
//!
//! A pass looks at every file of the share, a page at each step. Nothing is remembered between passes but the place, so
//! that a change of the setting counts for all files, and a start forgets nothing.

use stele_archive::Timestamp;
use stele_catalog::KeyRange;
use stele_ground::{Duration, Instant};

use super::records::{INODES, InodeRow, decode, inode_key, last_number, share_key};
use super::retention::WRITE;
use super::{Core, Share, Worked};
use crate::model::{Caller, Changes, Moment};
use crate::{FileError, Inode, Result};

/// Files that one step looks at.
const PAGE: usize = 1024;
/// Between two passes, at least.
const REST_MIN: Duration = Duration::from_secs(1);

impl Share {
    pub(super) async fn commit_idle(&self, worked: &mut Worked) -> Result<()> {
        let rules = self.settings().retention;
        let Some(patience) = rules.commit_after.filter(|_| rules.commits) else { return Ok(()) };
        // Neither clock alone may make a file look idle.
        let now = self.wall().min(self.archive.compliance_time());
        let monotonic = self.surroundings.now().monotonic;
        let due = self.step(|core| core.idle_files(now, monotonic, patience))?;
        for inode in due {
            match self.commit_left_alone(Inode(inode)).await {
                Ok(true) => worked.committed += 1,
                Ok(false) | Err(FileError::Stale | FileError::Retry(_)) => {}
                Err(error) => {
                    tracing::warn!(share = %self.name, inode, %error, "a file that was left alone could not be committed; it is tried again");
                }
            }
        }
        Ok(())
    }

    /// Whether it was committed.
    async fn commit_left_alone(&self, inode: Inode) -> Result<bool> {
        let before = self.step(|core| core.living(inode))?;
        let Some(until) = self.settings().retention.end(before.accessed, self.archive.retention_base()) else {
            return Ok(false);
        };
        let changes = Changes { mode: Some(before.mode & !WRITE), ..Changes::default() };
        self.commit_file(&Caller::ROOT, inode, before, changes, until).await.map(|_| true)
    }
}

impl Core {
    /// The next page's files that were left alone, hold content and are not committed.
    fn idle_files(&mut self, now: Timestamp, monotonic: Instant, patience: Duration) -> Result<Vec<u64>> {
        let rest = Duration(patience.0 / 10).max(REST_MIN);
        match self.pass.ended {
            Some(ended) if monotonic.since(ended) < rest => return Ok(Vec::new()),
            Some(_) => (self.pass.next, self.pass.ended) = (0, None),
            None => {}
        }
        let share = self.view.share;
        let range = KeyRange::prefix(share_key(share)).from(inode_key(share, self.pass.next));
        let page = self.view.range(INODES, &range, PAGE)?;
        match page.last() {
            Some((key, _)) if page.len() == PAGE => self.pass.next = last_number(key) + 1,
            _ => self.pass.ended = Some(monotonic),
        }
        let mut due = Vec::new();
        for (key, value) in &page {
            let row: InodeRow = decode(INODES, key, value)?;
            let inode = last_number(key);
            if !row.is_file() || row.committed.is_some() || row.links == 0 || self.users.contains_key(&inode) {
                continue;
            }
            let about = self.attributes(inode)?;
            let idle = |time: Moment| i128::from(now.0) * 1_000_000 - time.nanoseconds() >= i128::from(patience.0);
            if about.size > 0 && idle(about.modified) && idle(about.changed) {
                due.push(inode);
            }
        }
        Ok(due)
    }
}
