//! Committing files that were left alone for long.
//!
//! A pass looks at every file of the share, a page at each step. Nothing is remembered between passes but the place, so
//! that a change of the setting counts for all files, and a start forgets nothing.

use stele_archive::{Retention, Timestamp};
use stele_catalog::KeyRange;
use stele_ground::{Duration, Instant};

use super::records::{INODES, InodeRow, decode, inode_key, last_number, share_key};
use super::retention::WRITE;
use super::{Core, Share, Worked};
use crate::model::{Caller, Changes, Moment};
use crate::{Attributes, FileError, Inode, Result};

/// Files that one step looks at.
const PAGE: usize = 1024;
/// Between two passes, at least.
const REST_MIN: Duration = Duration::from_secs(1);

impl Share {
    pub(super) async fn commit_idle(&self, worked: &mut Worked) -> Result<()> {
        let Some(patience) = self.settings().retention.commit_after else { return Ok(()) };
        if !self.terms().await?.commits {
            return Ok(());
        }
        let (now, monotonic) = (self.idle_clock(), self.surroundings.now().monotonic);
        let due = self.step(|core| core.idle_files(now, monotonic, patience))?;
        for inode in due {
            match self.commit_left_alone(Inode(inode), patience).await {
                Ok(true) => worked.committed += 1,
                Ok(false) | Err(FileError::Stale | FileError::Retry(_)) => {}
                Err(error) => {
                    tracing::warn!(share = %self.name, inode, %error, "a file that was left alone could not be committed; it is tried again");
                }
            }
        }
        Ok(())
    }

    /// Neither clock alone may make a file look idle.
    fn idle_clock(&self) -> Timestamp {
        self.wall().min(self.archive.compliance_time())
    }

    /// Whether it was committed. Commits of one pass follow one another for as long as they take, and a client may have
    /// come back to a file meanwhile: the file is looked at again under its gate.
    async fn commit_left_alone(&self, inode: Inode, patience: Duration) -> Result<bool> {
        let _held = self.gate_of(inode.0).await?;
        let now = self.idle_clock();
        let Some(before) = self.step(|core| core.left_alone(inode.0, now, patience))? else { return Ok(false) };
        let terms = self.terms().await?;
        let Some(until) = terms.end(before.accessed, self.archive.retention_base()) else { return Ok(false) };
        let changes = Changes { mode: Some(before.mode & !WRITE), ..Changes::default() };
        let retention = Retention { mode: terms.mode, until };
        self.commit_held(&Caller::ROOT, inode, before, changes, retention).await.map(|_| true)
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
            // Most are told apart without a look at their content.
            let row: InodeRow = decode(INODES, key, value)?;
            let inode = last_number(key);
            if row.is_file() && row.committed.is_none() && self.left_alone(inode, now, patience)?.is_some() {
                due.push(inode);
            }
        }
        Ok(due)
    }

    /// The attributes of a regular file that is not committed, holds content, and was left alone for so long.
    fn left_alone(&mut self, inode: u64, now: Timestamp, patience: Duration) -> Result<Option<Attributes>> {
        let row = self.view.row(inode)?;
        if !row.is_file() || row.committed.is_some() || row.links == 0 || self.users.contains_key(&inode) {
            return Ok(None);
        }
        let about = self.attributes(inode)?;
        let idle = |time: Moment| i128::from(now.0) * 1_000_000 - time.nanoseconds() >= i128::from(patience.0);
        // The change time alone is the server's own: a client may set a modification time that is far ahead.
        Ok(Some(about).filter(|about| about.size > 0 && idle(about.changed)))
    }
}
