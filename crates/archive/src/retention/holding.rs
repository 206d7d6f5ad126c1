//! Putting a matter on versions, and releasing them: by a list, or by a selection of any size.
//!
//! A selection becomes a job in the matter's row, which background steps process
//! (`upkeep::holding`). A version is held from the moment the job reaches it. A matter has one job
//! at a time. Each version's change is a transaction of its own, with its record in the audit log.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use stele_catalog::Transaction;

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::checksum::from_hex;
use crate::model::error::{ArchiveError, Result};
use crate::model::matter::{Counted, Listed, MatterInfo, MatterState, REBUILD, S3, Selection, VersionName};
use crate::model::principal::{Actor, Caller, Role};
use crate::record::matter::{Counts, Job, JobKind, MatterRow};
use crate::record::version::{VersionRef, VersionRow};
use crate::record::{MATTER_PROGRESS, MATTERS, encode, keys};
use crate::retention::find::candidates::{Below, Rows};
use crate::retention::matters::{missing, s3_row};
use crate::retention::rules::require_lock;
use crate::space::superblock::FORMAT;
use crate::state::buckets::Bucket;
use crate::store::lookup::Found;
use crate::store::{Archive, Store, lookup};

/// Rows per read.
const ROWS: usize = 1000;
/// Versions that are changed at once, so that they share commits.
pub(crate) const HOLDING: usize = 64;
/// Times that a version's change is tried when another change comes between.
const ATTEMPTS: usize = 8;
/// Versions that one page of a count looks at, and versions that it names.
const COUNT_PAGE: usize = 10_000;
const EXAMPLES: usize = 10;

/// The officer for whom a version is put under a matter or released.
#[derive(Clone, Copy)]
pub(crate) struct OnBehalf<'a> {
    /// Must still be an officer at the commit. None: the change is for good, whichever actor asked.
    pub officer: Option<&'a Actor>,
    /// For the record.
    pub says: &'a str,
    /// The number of the release under way. S3's hold that a client set since then stays.
    pub began: Option<u64>,
}

/// What became of one version that is put under a matter, or released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Held {
    Changed,
    /// It was so already.
    Unchanged,
    /// The version is gone.
    Gone,
    /// Its hold was set after the release began, and stays.
    Since,
}

/// Versions in one list.
pub const LISTED_MAX: usize = 1000;

/// Whether a version has the properties of the selection, apart from its bucket and key.
pub(crate) fn selects(selection: &Selection, row: &VersionRow) -> bool {
    !row.marker
        && selection.tags.iter().all(|(key, value)| row.tags.get(key) == Some(value))
        && selection.stored_after.is_none_or(|after| row.modified >= after)
        && selection.stored_before.is_none_or(|before| row.modified < before)
}

fn no_page() -> ArchiveError {
    ArchiveError::InvalidArgument("the page is not one that this store named".into())
}

/// The key behind which a page begins, from the hexadecimal form that the page before named.
pub(crate) fn page_after(after: Option<&str>) -> Result<Option<Bytes>> {
    after.map(|hex| from_hex(hex).map(Bytes::from).ok_or_else(no_page)).transpose()
}

/// The version behind which a page begins.
pub(crate) fn version_after(after: Option<&str>) -> Result<Option<Bytes>> {
    let after = page_after(after)?;
    match after.as_ref().is_none_or(|key| keys::split(key).is_ok()) {
        true => Ok(after),
        false => Err(no_page()),
    }
}

impl Store {
    pub(crate) fn version_page(&self, bucket: u32, prefix: &str, after: Option<Bytes>, limit: usize) -> Result<Rows> {
        let snapshot = self.snapshot()?;
        Below { snapshot: &*snapshot, bucket, prefix }.scan(after.as_ref(), limit)
    }

    /// The bucket of a selection. Keys in a share are numbers of files, which no prefix of paths
    /// selects.
    pub(crate) fn selectable(&self, selection: &Selection) -> Result<Arc<Bucket>> {
        selection.check()?;
        let bucket = self.buckets().by_name(&selection.bucket)?;
        self.check_prefix(&bucket, &selection.prefix)?;
        Ok(bucket)
    }

    pub(crate) fn check_prefix(&self, bucket: &Bucket, prefix: &str) -> Result<()> {
        match bucket.row.is_share() && !prefix.is_empty() {
            true => Err(ArchiveError::InvalidRequest(format!(
                "bucket `{}` is a share: its archived files are selected by tags and dates, not by a prefix",
                bucket.name()
            ))),
            false => Ok(()),
        }
    }
}

impl Archive {
    /// Counts the selected versions, page by page. `matter`: also how many are under it already.
    pub async fn count_selected(
        &self,
        caller: &Caller,
        matter: Option<&str>,
        selection: &Selection,
        after: Option<&str>,
    ) -> Result<Counted> {
        let store = &self.store();
        let roles = [Role::RetentionOfficer, Role::Auditor];
        let allowed = caller.require_role(&roles, Action::List);
        store.audited(allowed, || Event::new(caller, Action::List).bucket(&selection.bucket)).await?;
        let bucket = store.selectable(selection)?;
        let mut after = version_after(after)?;
        let mut counted = Counted::default();
        while counted.seen < COUNT_PAGE as u64 {
            let (rows, next) = store.version_page(bucket.number, &selection.prefix, after, ROWS)?;
            for (record_key, value) in &rows {
                let found = Found::of(record_key, value, false)?;
                counted.seen += 1;
                if !selects(selection, &found.row) {
                    continue;
                }
                counted.selected += 1;
                counted.bytes += found.row.size;
                counted.under += u64::from(matter.is_some_and(|matter| found.row.is_under(matter)));
                if counted.examples.len() < EXAMPLES {
                    let (_, key, _) = keys::split(record_key)?;
                    counted.examples.push(format!("{}/{key}@{}", bucket.name(), found.id()));
                }
            }
            after = next;
            if after.is_none() {
                break;
            }
        }
        counted.next = after.map(|key| crate::model::checksum::to_hex(&key));
        Ok(counted)
    }

    /// Begins to put a matter on all selected versions that exist now, or to release them from it.
    /// Background steps do the work.
    pub async fn hold_selected(
        &self,
        caller: &Caller,
        matter: &str,
        selection: Selection,
        on: bool,
    ) -> Result<MatterInfo> {
        let word = if on { JobKind::Put.word() } else { JobKind::Release.word() };
        let detail = format!("{word} of the matter `{matter}`: {selection}");
        let result = self.try_hold_selected(caller, matter, selection, on, &detail).await;
        let store = self.store();
        store.audited(result, || Event::new(caller, store.matter_action()).detail(detail)).await
    }

    async fn try_hold_selected(
        &self,
        caller: &Caller,
        name: &str,
        selection: Selection,
        on: bool,
        detail: &str,
    ) -> Result<MatterInfo> {
        let store = &self.store();
        caller.require_role(&[Role::RetentionOfficer], Action::Matter)?;
        store.writable()?;
        let bucket = store.selectable(&selection)?;
        if name == S3 {
            require_lock(&bucket)?;
        }
        let lock = store.lock_named::<MatterRow>(name).await?;
        let before = store.changeable(name, on)?;
        if let Some(job) = before.as_ref().and_then(MatterRow::running) {
            return Err(ArchiveError::InvalidState(format!(
                "a {} on the matter `{name}` is under way; `stele matter show {name}` shows its progress",
                job.kind.word()
            )));
        }
        store.witnessing().raise_format(FORMAT).await?;
        let number = store.numbers().next().await?;
        let transaction = Transaction::new().delete(MATTER_PROGRESS, name.to_string());
        let transaction = match &before {
            Some(row) => transaction.equals(MATTERS, name.to_string(), encode(row)),
            None => transaction.absent(MATTERS, name.to_string()),
        };
        let mut row = before.unwrap_or_else(|| s3_row(store));
        row.job = Some(Job {
            number,
            kind: if on { JobKind::Put } else { JobKind::Release },
            selection,
            bucket: bucket.number,
            below: number,
            by: caller.actor.clone(),
            peer: caller.peer,
            started: store.wall(),
            ended: None,
            counts: Counts::default(),
        });
        let event = Event::new(caller, Action::Matter).bucket(bucket.name()).detail(format!("begins the {detail}"));
        let answer = store.write_named(name, row, transaction.with_reserve(), Some(event), lock).await?;
        store.compensated(answer).await?;
        store.upkeep().holds_are_due();
        Ok(store.existing_matter(name)?.info(name, None))
    }

    /// Puts a matter on the listed versions, or releases them from it. Returns one result for each,
    /// in order.
    pub async fn hold_listed(
        &self,
        caller: &Caller,
        matter: &str,
        list: Vec<VersionName>,
        on: bool,
    ) -> Result<Vec<Listed>> {
        let store = &self.store();
        let allowed = store.check_listed(caller, matter, &list, on);
        let word = if on { "put" } else { "release" };
        let event = || {
            Event::new(caller, store.matter_action())
                .detail(format!("{word} of the matter `{matter}`: a list of {} versions", list.len()))
        };
        store.audited(allowed, event).await?;
        let changes: Vec<_> = list.iter().map(|name| store.hold_named(caller, matter, name, on)).collect();
        let mut changes = futures_util::stream::iter(changes).buffered(HOLDING);
        let mut listed = Vec::with_capacity(list.len());
        while let Some(changed) = changes.next().await {
            listed.push(match changed {
                Ok(changed) => Listed { unchanged: !changed, failure: None },
                Err(error @ ArchiveError::Stopped(_)) => return Err(error),
                Err(error) => Listed { unchanged: true, failure: Some(error.to_string()) },
            });
        }
        Ok(listed)
    }
}

impl Store {
    /// The matter, if versions can be put under it or released from it now. None: S3's, which has
    /// no row yet.
    fn changeable(&self, name: &str, on: bool) -> Result<Option<MatterRow>> {
        if name == REBUILD {
            return Err(ArchiveError::InvalidState(format!(
                "the matter `{REBUILD}` is the store's own; `stele catalog release` ends it"
            )));
        }
        let row = self.matter_row(name)?;
        match row.as_ref().map(MatterRow::state) {
            None if name != S3 => Err(missing(name)),
            Some(MatterState::Closing | MatterState::Closed) if on => {
                Err(ArchiveError::InvalidState(format!("the matter `{name}` is closed; nothing is put under it")))
            }
            Some(MatterState::Closing) => Err(ArchiveError::InvalidState(format!(
                "the matter `{name}` is closed; its versions are being released"
            ))),
            _ => Ok(row),
        }
    }

    fn check_listed(&self, caller: &Caller, name: &str, list: &[VersionName], on: bool) -> Result<()> {
        caller.require_role(&[Role::RetentionOfficer], Action::Matter)?;
        self.writable()?;
        if list.len() > LISTED_MAX {
            return Err(ArchiveError::InvalidArgument(format!("a list names at most {LISTED_MAX} versions")));
        }
        match self.changeable(name, on)?.as_ref().and_then(MatterRow::running) {
            Some(job) => Err(ArchiveError::InvalidState(format!(
                "a {} on the matter `{name}` is under way; `stele matter show {name}` shows its progress",
                job.kind.word()
            ))),
            None => Ok(()),
        }
    }

    async fn hold_named(
        self: &Arc<Store>,
        caller: &Caller,
        matter: &str,
        name: &VersionName,
        on: bool,
    ) -> Result<bool> {
        let bucket = self.buckets().by_name(&name.bucket)?;
        if matter == S3 {
            require_lock(&bucket)?;
        }
        let found = lookup::readable(&*self.snapshot()?, &bucket, &name.key, name.version)?;
        let at = VersionRef { bucket: bucket.number, key: name.key.clone(), number: found.number };
        let officer = Some(&caller.actor).filter(|_| !on);
        let behalf = OnBehalf { officer, says: "", began: None };
        match self.hold_version(caller, &bucket, matter, &at, on, behalf).await? {
            Held::Changed => Ok(true),
            Held::Unchanged | Held::Since => Ok(false),
            // It went while this waited for the key's lock.
            Held::Gone => {
                let (bucket, key, version) = (bucket.name().into(), name.key.clone(), found.id().to_string());
                Err(ArchiveError::NoSuchVersion { bucket, key, version })
            }
        }
    }

    /// Puts one version under the matter, or releases it. Refused once the officer is one no more.
    pub(crate) async fn hold_version(
        self: &Arc<Store>,
        caller: &Caller,
        bucket: &Bucket,
        matter: &str,
        at: &VersionRef,
        on: bool,
        behalf: OnBehalf<'_>,
    ) -> Result<Held> {
        let asked = behalf.says;
        let mut attempts = 0;
        loop {
            // Until the commit: the matter is not closed in between.
            let _open = if on { Some(self.holding().shared().await) } else { None };
            self.changeable(matter, on).or_else(|error| if on { Err(error) } else { Ok(None) })?;
            if !on {
                self.check_doubt(bucket).map_err(ArchiveError::InvalidState)?;
            }
            let lock = self.lock(at.bucket, &at.key).await?;
            let Some(found) = lookup::referred(&*self.snapshot()?, at)? else { return Ok(Held::Gone) };
            if found.row.marker || found.row.is_under(matter) == on {
                return Ok(Held::Unchanged);
            }
            if matter == S3 && !on && behalf.began.is_some_and(|began| found.row.held.is_some_and(|held| held > began))
            {
                return Ok(Held::Since);
            }
            let word = if on { "on" } else { "off" };
            let (action, detail) = match matter {
                S3 => (Action::SetLegalHold, word.to_string()),
                _ => (Action::Matter, format!("the matter `{matter}` {word}{asked}")),
            };
            let event = Event::new(caller, action).object(bucket.name(), &at.key).version(found.id()).detail(detail);
            let required = match behalf.officer {
                Some(officer) => self.while_officer(Transaction::new(), officer)?,
                None => Transaction::new(),
            };
            let number = if matter == S3 { Some(self.numbers().next().await?) } else { None };
            let change = |row: &mut VersionRow| match number {
                Some(number) => row.set_hold(on, number),
                None => row.put_under(matter, on),
            };
            let changed = self.change_version_if(required, bucket, &at.key, &found, lock, event, change);
            attempts += 1;
            match changed.await {
                Err(ArchiveError::Conflict(_)) if attempts < ATTEMPTS => {}
                changed => return changed.map(|_| Held::Changed),
            }
        }
    }
}
