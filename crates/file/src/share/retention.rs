//! Committing files, as users of SnapLock and SmartLock know it.
//!
//! To commit a file, its owner sets the access time to the end of retention and removes every write permission. From then on
//! neither content nor name nor attributes change, the file cannot be removed before its time, and a later access time
//! extends the retention. The archive holds the version under the same retention and decides in the end.
//!
//! Crash points of a commit:
//! 1. before the version is stored under its retention: nothing has happened;
//! 2. before the file's row says that it is committed: the version is retained; the file can still be changed, which
//!    makes another version. The caller was not answered, and commits again.

use std::sync::Arc;

use stele_archive::{Retention, RetentionMode, Timestamp};
use stele_ground::Duration;

use super::reading::{key_of, refused};
use super::records::InodeRow;
use super::{Share, tree};
use crate::files::Changed;
use crate::model::{Caller, Changes, Moment, SetTime};
use crate::permission::owns;
use crate::rules;
use crate::{Attributes, FileError, Inode, Result};

/// The bits of a mode that allow writing.
pub(super) const WRITE: u32 = 0o222;

/// How files of a share are committed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RetentionRules {
    /// The bucket has Object Lock: removing every write permission commits a file.
    pub commits: bool,
    pub mode: Option<RetentionMode>,
    /// Days, where the access time names no date to come.
    pub default_days: Option<u64>,
    /// A date before this many days from now is moved up to it.
    pub days_min: Option<u64>,
    /// A date after this many days from now is moved down to it.
    pub days_max: Option<u64>,
    /// A file that is left alone for so long is committed.
    pub commit_after: Option<Duration>,
}

impl RetentionRules {
    /// The end of a new retention. None: nothing names a date, and the file is not committed.
    pub(super) fn end(&self, accessed: Moment, now: Timestamp) -> Option<Timestamp> {
        let asked = moment(accessed).filter(|_| is_ahead(accessed, now));
        let end = asked.or(self.default_days.map(|days| now.plus_days(days)))?;
        let low = self.days_min.map_or(Timestamp(0), |days| now.plus_days(days));
        let high = self.days_max.map_or(Timestamp::LATEST, |days| now.plus_days(days));
        Some(end.min(high).max(low).min(Timestamp::LATEST))
    }
}

/// Whether an access time names a date to come. Compared in whole milliseconds, so that the time of a file that was made
/// just now names none.
fn is_ahead(accessed: Moment, now: Timestamp) -> bool {
    accessed.nanoseconds().div_euclid(1_000_000) > i128::from(now.0)
}

/// A time of a file in milliseconds, upwards: a retention never ends before the time that was asked for.
fn moment(time: Moment) -> Option<Timestamp> {
    let milliseconds = (time.nanoseconds() + 999_999).div_euclid(1_000_000);
    u64::try_from(milliseconds).ok().map(Timestamp)
}

pub(super) fn shown(until: Timestamp) -> Moment {
    Moment::from_nanoseconds(i128::from(until.0) * 1_000_000)
}

impl Share {
    pub(super) async fn set_checked(
        &self,
        caller: &Caller,
        inode: Inode,
        before: Attributes,
        changes: Changes,
    ) -> Result<Changed> {
        let row = self.step(|core| core.view.row(inode.0))?;
        if row.committed.is_some() {
            return self.change_committed(caller, inode, before, changes).await;
        }
        if changes.is_empty() {
            return Ok(Changed { before: before.clone(), after: before });
        }
        // Refused before anything changes.
        let now = self.step(|core| Ok(core.now(self.wall())))?;
        rules::changed(caller, &before, &changes, now)?;
        if let Some(size) = changes.size {
            return self.resize(caller, inode, size, &changes).await;
        }
        let rules = self.settings().retention;
        let closes = changes.mode.is_some_and(|mode| mode & WRITE == 0) && before.mode & WRITE != 0;
        if closes && rules.commits && row.is_file() {
            let accessed = match changes.accessed {
                Some(SetTime::At(time)) => time,
                _ => before.accessed,
            };
            let base = self.archive.retention_base();
            // An empty file is committed only where a date asks for it.
            let wanted = before.size > 0 || is_ahead(accessed, base);
            if let Some(until) = rules.end(accessed, base).filter(|_| wanted) {
                return self.commit_file(caller, inode, before, changes, until).await;
            }
        }
        // Times that are set count from here on: those of earlier writes are recorded first.
        if row.is_file() && self.step(|core| Ok(core.content(inode.0)?.1.grown.is_some()))? {
            self.save(inode.0).await?;
        }
        self.locked().end_slack(inode.0);
        self.change(|change, _| {
            let row = change.row(inode.0)?;
            if row.committed.is_some() {
                return Err(FileError::ReadOnly("the file is committed; its attributes cannot change".into()));
            }
            let new = tree::set_attributes(&row, caller, &changes, change.now)?;
            change.put_row(inode.0, new);
            Ok(())
        })
        .await?;
        let after = self.step(|core| core.attributes(inode.0))?;
        Ok(Changed { before, after })
    }

    /// Archives the file under its retention, and marks it as committed.
    pub(super) async fn commit_file(
        &self,
        caller: &Caller,
        inode: Inode,
        before: Attributes,
        changes: Changes,
        until: Timestamp,
    ) -> Result<Changed> {
        owns(caller, &before)?;
        let mode = self.settings().retention.mode.unwrap_or(RetentionMode::Compliance);
        let retention = Retention { mode, until };
        let gate = self.step(|core| Ok(Arc::clone(&core.content(inode.0)?.1.gate)))?;
        let _held = gate.write_owned().await;
        let (open, writers) = self.step(|core| {
            let writers = core.writers(inode.0);
            let (row, content) = core.content(inode.0)?;
            Ok((row.open || content.grown.is_some(), writers))
        })?;
        if writers > 0 {
            return Err(FileError::Retry("the file is open for writing; close it before it is committed".into()));
        }
        match open {
            true => self.store_retained(inode.0, retention).await?,
            false => self.retain(inode.0, retention).await?,
        }
        let changes = Changes { accessed: Some(SetTime::At(shown(until))), ..changes };
        self.change(|change, _| {
            let row = change.row(inode.0)?;
            let mut new = tree::set_attributes(&row, caller, &changes, change.now)?;
            let first = new.committed.is_none();
            new.committed = Some(until.0);
            new.set_appends(false);
            let directories: Vec<u64> = new.names.iter().map(|name| name.directory).collect();
            change.put_row(inode.0, new);
            for directory in directories.into_iter().filter(|_| first) {
                tree::count(change, directory)?;
            }
            Ok(())
        })
        .await?;
        let after = self.step(|core| core.attributes(inode.0))?;
        Ok(Changed { before, after })
    }

    /// The retention of what is appended to a committed file.
    pub(super) fn retention_of(&self, row: &InodeRow) -> Option<Retention> {
        let mode = self.settings().retention.mode.unwrap_or(RetentionMode::Compliance);
        row.committed.filter(|_| row.appends()).map(|until| Retention { mode, until: Timestamp(until) })
    }

    /// Changes of a committed file: an empty one that regains write permission can only grow from then on; one that can
    /// only grow is closed for good by taking the permission away again; and any retention can be extended.
    async fn change_committed(
        &self,
        caller: &Caller,
        inode: Inode,
        before: Attributes,
        changes: Changes,
    ) -> Result<Changed> {
        let row = self.step(|core| core.view.row(inode.0))?;
        let until = Timestamp(row.committed.unwrap_or(0));
        let only_mode = Changes { mode: None, ..changes.clone() }.is_empty();
        match changes.mode.map(|mode| mode & WRITE != 0) {
            Some(true) if only_mode && row.is_file() && before.size == 0 && !row.appends() => {
                owns(caller, &before)?;
                self.change(|change, _| {
                    let row = change.row(inode.0)?;
                    if row.size > 0 || row.committed.is_none() {
                        return Err(FileError::Retry("the file has changed; try again".into()));
                    }
                    let mut new = tree::set_attributes(&row, caller, &changes, change.now)?;
                    new.set_appends(true);
                    change.put_row(inode.0, new);
                    Ok(())
                })
                .await?;
                let after = self.step(|core| core.attributes(inode.0))?;
                Ok(Changed { before, after })
            }
            Some(false) if only_mode && row.appends() => self.commit_file(caller, inode, before, changes, until).await,
            _ if row.appends() && changes.size.is_some_and(|size| size >= before.size) => {
                let size = changes.size.unwrap_or(before.size);
                let only_size = Changes { size: None, ..changes.clone() }.is_empty();
                match only_size {
                    true => self.resize(caller, inode, size, &changes).await,
                    false => Err(FileError::ReadOnly("the file is committed; its attributes cannot change".into())),
                }
            }
            _ => self.extend(caller, inode, before, &changes).await,
        }
    }

    /// Puts the archived version under a retention, or extends the one that it has.
    async fn retain(&self, inode: u64, retention: Retention) -> Result<()> {
        let caller = self.caller("committing");
        let key = key_of(inode);
        let set = self.archive.set_retention(&caller, &self.name, &key, None, Some(retention), false);
        set.await.map(drop).map_err(|error| refused(&error))
    }

    /// The one change of a committed file: a later end of its retention.
    async fn extend(&self, caller: &Caller, inode: Inode, before: Attributes, changes: &Changes) -> Result<Changed> {
        let refuse = |message: &str| Err(FileError::ReadOnly(message.into()));
        let same = |asked: Option<u32>, is: u32| asked.is_none_or(|asked| asked == is);
        if changes.size.is_some_and(|size| size != before.size) {
            return refuse("the file is committed; its content cannot change");
        }
        if changes.modified.is_some()
            || !same(changes.mode.map(|mode| mode & 0o7777), before.mode)
            || !same(changes.uid, before.uid)
            || !same(changes.gid, before.gid)
        {
            return refuse("the file is committed; its attributes cannot change");
        }
        let Some(accessed) = changes.accessed else { return Ok(Changed { before: before.clone(), after: before }) };
        owns(caller, &before)?;
        let until = match accessed {
            SetTime::At(time) => moment(time),
            SetTime::Now => None,
        };
        let current = self.step(|core| Ok(core.view.row(inode.0)?.committed))?.map_or(Timestamp(0), Timestamp);
        let Some(until) = until.filter(|until| *until >= current) else {
            return refuse("the file is committed; its retention can only be extended, to a later access time");
        };
        let now = self.archive.retention_base();
        let most = self.settings().retention.days_max.map_or(Timestamp::LATEST, |days| now.plus_days(days));
        let until = until.min(most).max(current).min(Timestamp::LATEST);
        if until > current {
            let mode = self.settings().retention.mode.unwrap_or(RetentionMode::Compliance);
            self.retain(inode.0, Retention { mode, until }).await?;
            self.change(|change, _| {
                let mut row = change.row(inode.0)?;
                row.committed = Some(row.committed.unwrap_or(0).max(until.0));
                row.accessed = shown(until).into();
                row.alter(change.now);
                change.put_row(inode.0, row);
                Ok(())
            })
            .await?;
        }
        let after = self.step(|core| core.attributes(inode.0))?;
        Ok(Changed { before, after })
    }

    /// Asks the archive whether the file of a name may go, where it has one: retention that was set there counts too. A name
    /// that leads to nothing, or to something that was never archived, is no matter of the archive's.
    pub(super) async fn removable(&self, caller: &Caller, directory: Inode, name: &[u8]) -> Result<()> {
        let found = self.step(|core| {
            let inode = match tree::lookup(&mut core.view, caller, directory, name) {
                Ok(inode) => inode,
                Err(FileError::NotFound) => return Ok(None),
                Err(error) => return Err(error),
            };
            let row = core.view.row(inode.0)?;
            Ok((row.is_file() && row.archived.is_some()).then_some((inode, row.links)))
        });
        // What is wrong with the names is told by the call itself.
        let Ok(Some((inode, 1))) = found else { return Ok(()) };
        let why = self.archive.why(&self.caller("removing"), &self.name, &key_of(inode.0), None).await;
        match why {
            Ok(why) if why.protected => Err(FileError::ReadOnly(why.reasons.join("; "))),
            Ok(_) | Err(stele_archive::ArchiveError::NoSuchKey { .. }) => Ok(()),
            Err(error) => Err(refused(&error)),
        }
    }
}
