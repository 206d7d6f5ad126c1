//! Committing files, as users of SnapLock and SmartLock know it.
//!
//! To commit a file, its owner sets the access time to the end of retention and removes every write
//! permission. From then on neither content nor name nor attributes change, the file cannot be
//! removed before its time, and a later access time extends the retention. The archive holds the
//! version under the same retention and decides in the end.
//!
//! Crash points of a commit:
//! 1. before the version is stored under its retention: nothing has happened;
//! 2. before the file's row says that it is committed: the version is retained; the file can still
//!    be changed, which makes another version. The caller was not answered, and commits again.

use std::sync::Arc;

use stele_archive::{Action, Retention, RetentionMode, Timestamp};
use stele_ground::Duration;
use tokio::sync::OwnedRwLockWriteGuard;

use super::around::Watched;
use super::reading::{key_of, refused};
use super::records::InodeRow;
use super::view::Change;
use super::{Share, tree};
use crate::files::Changed;
use crate::model::{Caller, Changes, Moment, SetTime};
use crate::permission::owns;
use crate::rules;
use crate::{Attributes, FileError, Inode, Result};

/// The bits of a mode that allow writing.
pub(super) const WRITE: u32 = 0o222;

/// How files of a share are committed, as far as the share says it. Its bucket says the rest.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RetentionRules {
    /// A date before this many days from now is moved up to it.
    pub days_min: Option<u64>,
    /// A date after this many days from now is moved down to it.
    pub days_max: Option<u64>,
    /// A file that is left alone for so long is committed.
    pub commit_after: Option<Duration>,
}

/// How a file is committed now.
pub(super) struct Terms {
    /// The bucket has Object Lock: removing every write permission commits a file.
    pub commits: bool,
    pub mode: RetentionMode,
    /// Days, where the access time names no date to come.
    default_days: Option<u64>,
    rules: RetentionRules,
}

/// The access time that a file is committed with.
#[derive(Clone, Copy)]
pub(super) struct NamedTime {
    accessed: Moment,
    /// Not after the last change of the file: the share may have given this time itself, before the
    /// system clock was set back.
    own: bool,
}

impl NamedTime {
    /// The time that the file has.
    pub fn of(file: &Attributes) -> NamedTime {
        NamedTime { accessed: file.accessed, own: file.accessed <= file.changed }
    }

    /// The time with which a request commits the file.
    fn asked(changes: &Changes, before: &Attributes, now: Moment) -> NamedTime {
        match changes.accessed {
            Some(SetTime::At(accessed)) => NamedTime { accessed, own: false },
            // The present time names no date to come, whatever the file had before.
            Some(SetTime::Now) => NamedTime { accessed: now, own: true },
            None => NamedTime::of(before),
        }
    }
}

/// The end of a retention.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct End {
    pub until: Timestamp,
    /// The date that was asked for, or that the bucket's default names. Another one than `until`:
    /// the share's bounds have moved it.
    asked: Timestamp,
}

impl End {
    /// As it was asked for.
    fn at(until: Timestamp) -> End {
        End { until, asked: until }
    }

    /// What the audit log says of it. None: the date was not moved.
    fn clamped(&self) -> Option<String> {
        let moved = if self.until > self.asked { "up to the shortest" } else { "down to the longest" };
        let End { until, asked } = self;
        (until != asked)
            .then(|| format!("retained until {until}: the date {asked} was moved {moved} retention of the share"))
    }
}

impl Terms {
    /// The end of a new retention. None: nothing names a date, or the bucket has no Object Lock,
    /// and the file is not committed. Where the date may be none that a client named, the file is
    /// kept for the longer of it and the bucket's default.
    pub fn end(&self, NamedTime { accessed, own }: NamedTime, now: Timestamp) -> Option<End> {
        let named = moment(accessed).filter(|_| is_ahead(accessed, now));
        let default = self.default_days.map(|days| now.plus_days(days));
        let asked = if own { named.max(default) } else { named.or(default) };
        let asked = asked.filter(|_| self.commits)?;
        let low = self.rules.days_min.map_or(Timestamp(0), |days| now.plus_days(days));
        let high = self.rules.days_max.map_or(Timestamp::LATEST, |days| now.plus_days(days));
        Some(End { until: asked.min(high).max(low).min(Timestamp::LATEST), asked })
    }
}

/// Whether an access time names a date to come. Compared in whole milliseconds, so that the time of
/// a file that was made just now names none.
fn is_ahead(accessed: Moment, now: Timestamp) -> bool {
    accessed.nanoseconds().div_euclid(1_000_000) > i128::from(now.0)
}

/// A time of a file in milliseconds, upwards: a retention never ends before the time that was asked
/// for. One beyond the latest date is that date; one before 1970 is none.
fn moment(time: Moment) -> Option<Timestamp> {
    let milliseconds = (time.nanoseconds() + 999_999).div_euclid(1_000_000);
    let milliseconds = milliseconds.min(i128::from(Timestamp::LATEST.0));
    u64::try_from(milliseconds).ok().map(Timestamp)
}

pub(super) fn shown(until: Timestamp) -> Moment {
    Moment::from_nanoseconds(i128::from(until.0) * 1_000_000)
}

/// A file is being committed, under its gate.
pub(super) struct Closing<'a> {
    share: &'a Share,
    inode: u64,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.share.locked().committing.remove(&self.inode);
    }
}

impl Share {
    pub(super) async fn set_checked(
        &self,
        caller: &Caller,
        inode: Inode,
        before: Attributes,
        changes: Changes,
        guard: Option<Moment>,
    ) -> Result<Changed> {
        let row = self.step(|core| core.view.row(inode.0))?;
        if row.committed.is_some() {
            return Box::pin(self.change_committed(caller, inode, before, changes, guard)).await;
        }
        if changes.is_empty() {
            return Ok(Changed { before: before.clone(), after: before });
        }
        // Refused before anything changes.
        let now = self.step(|core| Ok(core.now(self.stamp())))?;
        rules::changed(caller, &before, &changes, now)?;
        if let Some(size) = changes.size {
            return Box::pin(self.resize(caller, inode, size, &changes, guard)).await;
        }
        let base = self.dates_base()?;
        // With a date to come in the same request, the file may have had no write permission.
        let is_dated = || matches!(changes.accessed, Some(SetTime::At(time)) if is_ahead(time, base));
        let is_open = before.mode & WRITE != 0;
        if changes.mode.is_some_and(|mode| mode & WRITE == 0) && row.is_file() && (is_open || is_dated()) {
            let named = NamedTime::asked(&changes, &before, now);
            // An empty file is committed only where a date asks for it.
            let wanted = before.size > 0 || is_ahead(named.accessed, base);
            if wanted && self.terms().await?.end(named, base).is_some() {
                return Box::pin(self.commit_file(caller, inode, before, changes, named)).await;
            }
        }
        // Times that are set count from here on: those of earlier writes are recorded first.
        if row.is_file() && self.step(|core| Ok(core.content(inode.0)?.1.grown.is_some()))? {
            self.save(inode.0).await?;
        }
        self.locked().end_slack(inode.0);
        self.change_watched(Watched::new(inode, guard), |change, _| {
            let row = change.row(inode.0)?;
            if row.committed.is_some() {
                return Err(FileError::ReadOnly("the file is committed; its attributes cannot change".into()));
            }
            let new = tree::set_attributes(&row, caller, &changes, change.now)?;
            change.put_row(inode.0, new);
            Ok(())
        })
        .await
    }

    /// What dates to come lie ahead of, and a default retention counts from. The times of a share
    /// rise also while a system clock that was set back a little is behind them: none of those that
    /// files got is a date to come.
    pub(super) fn dates_base(&self) -> Result<Timestamp> {
        let given = self.step(|core| Ok(core.now(self.stamp())))?;
        let given = u64::try_from(given.nanoseconds().div_euclid(1_000_000)).unwrap_or(0);
        Ok(self.archive.retention_base().max(Timestamp(given)))
    }

    /// How a file is committed now. The bucket is asked anew for each commit, so that no copy of
    /// its settings outlives a change of them.
    pub(super) async fn terms(&self) -> Result<Terms> {
        let bucket = self.archive.bucket(&self.caller("committing"), &self.name).await;
        let lock = bucket.map_err(|error| refused(&error))?.object_lock;
        let default = lock.and_then(|lock| lock.default);
        Ok(Terms {
            commits: lock.is_some(),
            mode: default.map_or(RetentionMode::Compliance, |default| default.mode),
            default_days: default.map(|default| default.period.days()),
            rules: self.settings().retention,
        })
    }

    /// The gate of a file, which every change of its retention and every removal of its names hold
    /// alone.
    pub(super) async fn gate_of(&self, inode: u64) -> Result<OwnedRwLockWriteGuard<()>> {
        let gate = self.step(|core| Ok(Arc::clone(&core.content(inode)?.1.gate)))?;
        Ok(gate.write_owned().await)
    }

    /// Commits a file until the time that `named` or the bucket's default says.
    async fn commit_file(
        &self,
        caller: &Caller,
        inode: Inode,
        before: Attributes,
        changes: Changes,
        named: NamedTime,
    ) -> Result<Changed> {
        owns(caller, &before)?;
        let _held = self.gate_of(inode.0).await?;
        let terms = self.terms().await?;
        match terms.end(named, self.dates_base()?) {
            Some(end) => self.commit_held(caller, inode, before, changes, end, terms.mode).await,
            None => Err(changed_meanwhile()),
        }
    }

    /// As `commit_file`, under the file's gate.
    pub(super) async fn commit_held(
        &self,
        caller: &Caller,
        inode: Inode,
        before: Attributes,
        changes: Changes,
        end: End,
        mode: RetentionMode,
    ) -> Result<Changed> {
        let retention = Retention { mode, until: end.until };
        match self.step(|core| core.view.row(inode.0))?.committed {
            None => self.close_held(caller, inode, before, changes, end, Some(retention)).await,
            Some(_) => Err(changed_meanwhile()),
        }
    }

    /// Closes a committed file that could grow, for good. Its retention is the one that it has now,
    /// not the one that it had when the caller asked: an extension may have come in between.
    async fn close_file(&self, caller: &Caller, inode: Inode, before: Attributes, changes: Changes) -> Result<Changed> {
        owns(caller, &before)?;
        let _held = self.gate_of(inode.0).await?;
        let (row, before) = self.step(|core| Ok((core.view.row(inode.0)?, core.attributes(inode.0)?)))?;
        let Some(until) = row.committed.map(Timestamp).filter(|_| row.appends()) else {
            return Err(changed_meanwhile());
        };
        let retention = self.inherited(inode.0, &row).await?;
        self.close_held(caller, inode, before, changes, End::at(until), retention).await
    }

    /// Archives the file under its retention, and marks it as committed. Under the gate. Attributes
    /// change without it. Where they are others than `before` by the time that the row is marked,
    /// the caller looks at the file anew. So no date and no mode that a client has set meanwhile is
    /// undone.
    async fn close_held(
        &self,
        caller: &Caller,
        inode: Inode,
        before: Attributes,
        changes: Changes,
        end: End,
        retention: Option<Retention>,
    ) -> Result<Changed> {
        let _closing = self.begin_closing(inode.0)?;
        // What is retained here is the version that the archive shows.
        let stored = self.is_stored(inode.0).await?;
        let grown = self.step(|core| Ok(core.content(inode.0)?.1.grown.is_some()))?;
        let mut end = end;
        match (stored && !grown, retention) {
            (false, retention) => self.store_held(inode.0, retention).await?,
            (true, Some(retention)) => end = self.retain_longer(inode.0, retention, end).await?,
            (true, None) => {}
        }
        let changes = Changes { accessed: Some(SetTime::At(shown(end.until))), ..changes };
        self.change_noting(inode, end, |change| {
            let row = change.row(inode.0)?;
            let now = row.attributes(inode.0);
            if (now.accessed, now.mode, now.uid, now.gid) != (before.accessed, before.mode, before.uid, before.gid) {
                return Err(changed_meanwhile());
            }
            let mut new = tree::set_attributes(&row, caller, &changes, change.now)?;
            let first = new.committed.is_none();
            new.committed = new.committed.max(Some(end.until.0));
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

    /// A change that gives a file the end of its retention. Where the share's bounds moved the
    /// date, the audit log gets a record of it in the same transaction.
    async fn change_noting(
        &self,
        inode: Inode,
        end: End,
        mut act: impl FnMut(&mut Change<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(detail) = end.clamped() else { return self.change(|change, _| act(change)).await };
        let path = self.step(|core| tree::path(&mut core.view, inode.0))?;
        let (path, records) = (String::from_utf8_lossy(&path), self.archive.records());
        let (caller, place) = (self.caller("committing"), (self.name.as_str(), path.as_ref()));
        self.change_by(
            |change, _| act(change),
            |transaction| records.commit_audited(transaction, &caller, Action::SetRetention, place, &detail),
        )
        .await
    }

    /// From here on no one opens the file for writing, until the answer is dropped. Refused while
    /// someone has it open so.
    pub(super) fn begin_closing(&self, inode: u64) -> Result<Closing<'_>> {
        self.step(|core| match core.writers(inode) {
            0 => {
                core.committing.insert(inode);
                Ok(Closing { share: self, inode })
            }
            _ => Err(FileError::Retry("the file is open for writing; close it before it is committed".into())),
        })
    }

    /// Whether a committed file may grow: until the end of its retention, by the compliance clock.
    pub(super) fn grows(&self, row: &InodeRow) -> bool {
        row.appends() && row.committed.is_some_and(|until| until > self.compliance().0)
    }

    /// The retention of what is appended to a committed file. None once it has ended: the archive
    /// takes no retention that has, and what was acknowledged before is archived all the same.
    pub(super) async fn inherited(&self, inode: u64, row: &InodeRow) -> Result<Option<Retention>> {
        let ended = |until: &u64| *until <= self.compliance().0;
        let Some(until) = row.committed.filter(|until| !ended(until)) else { return Ok(None) };
        Ok(Some(Retention { mode: self.mode_of(inode).await?, until: Timestamp(until) }))
    }

    /// The mode of a committed file's retention: that of its newest version, whatever the bucket's
    /// default is by now. A version without one, or whose retention has ended, leaves it to the
    /// bucket.
    async fn mode_of(&self, inode: u64) -> Result<RetentionMode> {
        let now = self.archive.compliance_time();
        match self.newest_retention(inode)?.filter(|retention| retention.until > now) {
            Some(retention) => Ok(retention.mode),
            None => Ok(self.terms().await?.mode),
        }
    }

    /// The retention of a file's newest version.
    pub(super) fn newest_retention(&self, inode: u64) -> Result<Option<Retention>> {
        let newest = self.archive.newest(&self.caller("committing"), &self.name, &[key_of(inode)]);
        let newest = newest.map_err(|error| refused(&error))?.into_iter().flatten().next();
        Ok(newest.and_then(|info| info.retention))
    }

    /// Changes of a committed file. An empty one that regains write permission can only grow from
    /// then on. One that can only grow is closed for good by taking the permission away again. Any
    /// retention can be extended.
    async fn change_committed(
        &self,
        caller: &Caller,
        inode: Inode,
        before: Attributes,
        changes: Changes,
        guard: Option<Moment>,
    ) -> Result<Changed> {
        let row = self.step(|core| core.view.row(inode.0))?;
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
            Some(false) if only_mode && row.appends() => self.close_file(caller, inode, before, changes).await,
            _ if self.grows(&row) && changes.size.is_some_and(|size| size > before.size) => {
                let size = changes.size.unwrap_or(before.size);
                let only_size = Changes { size: None, ..changes.clone() }.is_empty();
                match only_size {
                    true => self.resize(caller, inode, size, &changes, guard).await,
                    false => Err(FileError::ReadOnly("the file is committed; its attributes cannot change".into())),
                }
            }
            _ => self.extend(caller, inode, before, &changes).await,
        }
    }

    /// Puts the archived version under a retention, and says when that ends. A version may be under
    /// a longer one although the file's row does not say so: see the crash points. At level `basic`
    /// the archive would shorten it.
    async fn retain_longer(&self, inode: u64, retention: Retention, end: End) -> Result<End> {
        match self.newest_retention(inode)?.filter(|before| before.until > retention.until) {
            Some(before) => {
                self.retain(inode, Retention { mode: retention.mode.max(before.mode), ..before }).await?;
                Ok(End::at(before.until))
            }
            None => self.retain(inode, retention).await.map(|()| end),
        }
    }

    /// Puts the archived version under a retention, or extends the one that it has.
    async fn retain(&self, inode: u64, retention: Retention) -> Result<()> {
        let caller = self.caller("committing");
        let key = key_of(inode);
        let set = Box::pin(self.archive.set_retention(&caller, &self.name, &key, None, Some(retention), false));
        set.await.map(drop).map_err(|error| refused(&error))
    }

    /// The one change of a committed file: a later end of its retention.
    async fn extend(&self, caller: &Caller, inode: Inode, before: Attributes, changes: &Changes) -> Result<Changed> {
        let refuse = |message: &str| Err(FileError::ReadOnly(message.into()));
        let same = |asked: Option<u32>, is: u32| asked.is_none_or(|asked| asked == is);
        // Samba sets both times, also where its client names the access time alone.
        let keeps = |time: SetTime| time == SetTime::At(before.modified);
        if changes.size.is_some_and(|size| size != before.size) {
            return refuse("the file is committed; its content cannot change");
        }
        if !changes.modified.is_none_or(keeps)
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
        // Under the gate, so that neither archiving nor closing goes on with the end that the file
        // had before.
        let _held = self.gate_of(inode.0).await?;
        let current = self.step(|core| Ok(core.view.row(inode.0)?.committed))?.map_or(Timestamp(0), Timestamp);
        let Some(until) = until.filter(|until| *until >= current) else {
            return refuse("the file is committed; its retention can only be extended, to a later access time");
        };
        let now = self.archive.retention_base();
        let most = self.settings().retention.days_max.map_or(Timestamp::LATEST, |days| now.plus_days(days));
        let end = End { until: until.min(most).max(current).min(Timestamp::LATEST), asked: until };
        let until = end.until;
        if until > current {
            if until <= now {
                return refuse("the file is committed; its retention can only be extended, to a later access time");
            }
            let mode = self.mode_of(inode.0).await?;
            let end = self.retain_longer(inode.0, Retention { mode, until }, end).await?;
            self.change_noting(inode, end, |change| {
                let mut row = change.row(inode.0)?;
                row.committed = Some(row.committed.unwrap_or(0).max(end.until.0));
                row.accessed = shown(end.until).into();
                row.alter(change.now);
                change.put_row(inode.0, row);
                Ok(())
            })
            .await?;
        }
        let after = self.step(|core| core.attributes(inode.0))?;
        Ok(Changed { before, after })
    }
}

fn changed_meanwhile() -> FileError {
    FileError::Retry("the file has changed meanwhile; try again".into())
}
