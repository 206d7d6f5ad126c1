//! Committing files that were left alone for long.
//!
//! A pass looks at every file of the share, a page at each step. Nothing is remembered between
//! passes but the place, so that a change of the setting counts for all files, and a start forgets
//! nothing.
//!
//! A start does not know which files clients have open, nor which writes they still hold. Clients
//! claim their opens again, and send unstable writes again, once they have reached the server. So
//! the passes begin only after a while.
//!
//! Failure model: the system clock may be wrong and be set right later. A change time that was
//! taken from a clock that was behind makes a file look older than it is, and a commit cannot be
//! undone. So a change of such a share never gets a time before the compliance clock's. After a
//! step of the system clock no file is committed until it can have been left alone for long enough
//! in real elapsed time.

use stele_archive::{Reading, Timestamp};
use stele_catalog::KeyRange;
use stele_ground::{Duration, Instant};

use super::records::{INODES, InodeRow, decode, inode_key, last_number, share_key};
use super::retention::{NamedTime, WRITE};
use super::{Core, Share, Worked};
use crate::model::{Caller, Changes, Moment};
use crate::{Attributes, FileError, Inode, Result};

/// Files that one step looks at.
const PAGE: usize = 1024;
/// Between two passes, at least.
const REST_MIN: Duration = Duration::from_secs(1);
/// From the first round of a start to the first file that is committed. Longer than the grace
/// period of NFS, and than the five minutes after which Linux looks again for a server that is
/// down.
pub(super) const RETURN: Duration = Duration::from_secs(360);
/// A step of the system clock counts from this part of the patience on, and from this duration on.
/// Smaller ones make a file look no more than that much older than it is, and a clock that is
/// corrected often keeps no file from being committed.
const STEP_PART: u64 = 10;
const STEP_MIN: Duration = Duration::from_secs(2);

impl Share {
    pub(super) async fn commit_idle(&self, worked: &mut Worked) -> Result<()> {
        let monotonic = self.surroundings.now().monotonic;
        let first = self.step(|core| Ok(*core.pass.first.get_or_insert(monotonic)))?;
        let Some(patience) = self.settings().retention.commit_after else { return Ok(()) };
        if !self.terms().await?.commits {
            return Ok(());
        }
        let Some(now) = self.idle_clock(patience)? else { return Ok(()) };
        if monotonic.since(first) < RETURN {
            return Ok(());
        }
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

    /// Neither clock alone may make a file look idle. None: the system clock has made a step, and
    /// no file can be known to be idle for so long yet.
    fn idle_clock(&self, patience: Duration) -> Result<Option<Timestamp>> {
        let now = self.surroundings.now();
        let settled = self.step(|core| Ok(core.steps.is_settled(now, patience)))?;
        Ok(settled.then(|| now.wall.min(self.archive.compliance_time())))
    }

    /// The time of a change. Where files are committed by it, a system clock that is behind makes
    /// none look older.
    pub(super) fn stamp(&self) -> Timestamp {
        match self.settings().retention.commit_after {
            Some(_) => self.archive.retention_base(),
            None => self.wall(),
        }
    }

    /// Whether it was committed. Commits of one pass follow one another for as long as they take,
    /// and a client may have come back to a file meanwhile: the file is looked at again under its
    /// gate.
    async fn commit_left_alone(&self, inode: Inode, patience: Duration) -> Result<bool> {
        let _held = self.gate_of(inode.0).await?;
        let Some(now) = self.idle_clock(patience)? else { return Ok(false) };
        let Some(before) = self.step(|core| core.left_alone(inode.0, now, patience))? else { return Ok(false) };
        let terms = self.terms().await?;
        let Some(end) = terms.end(NamedTime::of(&before), self.dates_base()?) else { return Ok(false) };
        let changes = Changes { mode: Some(before.mode & !WRITE), ..Changes::default() };
        self.commit_held(&Caller::ROOT, inode, before, changes, end, terms.mode).await.map(|_| true)
    }
}

/// Looks for steps of the system clock against real elapsed time, since the share was opened.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    /// Small steps add up from here on.
    base: Reading,
    /// When the last one was noticed.
    noticed: Option<Instant>,
}

impl Steps {
    pub fn new(now: Reading) -> Steps {
        Steps { base: now, noticed: None }
    }

    /// Whether the change times of files tell how long they were left alone: no step came within
    /// the patience.
    fn is_settled(&mut self, now: Reading, patience: Duration) -> bool {
        let elapsed = now.monotonic.since(self.base.monotonic).0 / 1_000_000;
        let off = now.wall.0.abs_diff(self.base.wall.0.saturating_add(elapsed));
        if off.saturating_mul(1_000_000) >= (patience.0 / STEP_PART).max(STEP_MIN.0) {
            (self.base, self.noticed) = (now, Some(now.monotonic));
        }
        self.noticed.is_none_or(|noticed| now.monotonic.since(noticed) >= patience)
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

    /// The attributes of a regular file that is not committed, holds content, and was left alone
    /// for so long.
    fn left_alone(&mut self, inode: u64, now: Timestamp, patience: Duration) -> Result<Option<Attributes>> {
        let row = self.view.row(inode)?;
        if !row.is_file() || row.committed.is_some() || row.links == 0 || self.users.contains_key(&inode) {
            return Ok(None);
        }
        let about = self.attributes(inode)?;
        let idle = |time: Moment| i128::from(now.0) * 1_000_000 - time.nanoseconds() >= i128::from(patience.0);
        // The change time alone is the server's own: a client may set a modification time that is
        // far ahead.
        Ok(Some(about).filter(|about| about.size > 0 && idle(about.changed)))
    }
}
