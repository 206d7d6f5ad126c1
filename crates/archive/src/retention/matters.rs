//! Named matters: opening, listing and closing them.
//!
//! A version under any matter is not deleted, replaced or expired; `rules::judge` decides that. A
//! matter never changes a retention. Retention officers open matters, put them on versions and
//! release versions. Closing a matter releases everything under it, and takes two officers.
//!
//! The version's row names its matters, and its note on the data volume does too. The matter's own
//! row is noted as well, with the job that is under way. A rebuild of the catalog therefore finds
//! all of it.

use stele_catalog::{Direction, KeyRange, Transaction};

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::error::{ArchiveError, Result};
use crate::model::matter::Selection;
use crate::model::matter::check_matter_name;
use crate::model::matter::{MATTERS_MAX, MatterInfo, MatterState, REASON_MAX, REBUILD, S3, VersionName};
use crate::model::principal::{Caller, Role};
use crate::record::matter::{Closing, Counts, Job, JobKind, MatterRow, ProgressRow};
use crate::record::request::RequestRow;
use crate::record::version::VersionRef;
use crate::record::{HOLDS, MATTER_HOLDS, MATTER_PROGRESS, MATTERS, decode, encode, fetch, keys};
use crate::space::superblock::FORMAT;
use crate::store::{Archive, Store, lookup};

/// Versions that are counted for one matter.
const COUNT_MAX: u64 = 100_000;
/// Rows per read.
const PAGE: usize = 1000;

impl Store {
    /// The action of records about matters. Before the store has the format of matters, an older
    /// binary may read the record of a refusal, and does not know the new action.
    pub(crate) fn matter_action(&self) -> Action {
        match self.witnessing().superblock().format >= FORMAT {
            true => Action::Matter,
            false => Action::SetLegalHold,
        }
    }

    pub(crate) fn matter_row(&self, name: &str) -> Result<Option<MatterRow>> {
        fetch(&*self.snapshot()?, MATTERS, name.as_bytes())
    }

    pub(crate) fn existing_matter(&self, name: &str) -> Result<MatterRow> {
        self.matter_row(name)?.ok_or_else(|| missing(name))
    }

    fn matter_info(&self, name: &str, row: &MatterRow) -> Result<MatterInfo> {
        let progress: Option<ProgressRow> = fetch(&*self.snapshot()?, MATTER_PROGRESS, name.as_bytes())?;
        Ok(row.info(name, progress.as_ref()))
    }
}

pub(crate) fn missing(name: &str) -> ArchiveError {
    ArchiveError::NoSuchThing(format!("there is no matter `{name}`; `stele matter list` names them"))
}

/// Matters that the store has without anyone having opened them.
pub(crate) fn is_reserved(name: &str) -> bool {
    name == S3 || name == REBUILD
}

/// The names that an officer cannot open or close.
fn check_not_reserved(name: &str) -> Result<()> {
    match name {
        S3 => Err(ArchiveError::InvalidState(format!(
            "the matter `{S3}` is S3's legal hold: it always stands, and is never closed"
        ))),
        REBUILD => Err(ArchiveError::InvalidState(format!(
            "the matter `{REBUILD}` is the store's own; `stele catalog release` ends it"
        ))),
        _ => Ok(()),
    }
}

impl Archive {
    /// Opens a matter. A name is used once: a closed matter is never opened again.
    pub async fn open_matter(&self, caller: &Caller, name: &str, reason: &str) -> Result<MatterInfo> {
        let result = self.try_open_matter(caller, name, reason).await;
        let store = self.store();
        let event = || Event::new(caller, store.matter_action()).detail(format!("opens the matter `{name}`"));
        store.audited(result, event).await
    }

    async fn try_open_matter(&self, caller: &Caller, name: &str, reason: &str) -> Result<MatterInfo> {
        let store = &self.store();
        caller.require_role(&[Role::RetentionOfficer], Action::Matter)?;
        store.writable()?;
        check_matter_name(name)?;
        check_not_reserved(name)?;
        if reason.trim().is_empty() || reason.len() > REASON_MAX {
            return Err(ArchiveError::InvalidArgument(format!(
                "a matter is opened for a reason of 1 to {REASON_MAX} bytes"
            )));
        }
        let lock = store.lock_named::<MatterRow>(name).await?;
        if let Some(before) = store.matter_row(name)? {
            return Err(ArchiveError::ExistsAlready(format!(
                "the matter `{name}` was opened {} already; a name is used once",
                before.opened
            )));
        }
        if store.snapshot()?.range(MATTERS, &KeyRange::all(), MATTERS_MAX, Direction::Forward)?.len() == MATTERS_MAX {
            return Err(ArchiveError::InvalidState(format!(
                "the store has {MATTERS_MAX} matters, the most it can have"
            )));
        }
        store.witnessing().raise_format(FORMAT).await?;
        let row = MatterRow::new(reason.into(), caller.actor.clone(), caller.peer, store.wall());
        let absent = Transaction::new().absent(MATTERS, name.to_string());
        let event = Event::new(caller, Action::Matter).detail(format!("opens the matter `{name}`: {reason}"));
        let answer = store.write_named(name, row, absent.with_reserve(), Some(event), lock).await?;
        store.compensated(answer).await?;
        store.matter_info(name, &store.existing_matter(name)?)
    }

    /// All matters by name, without the numbers of their versions.
    pub async fn matters(&self, caller: &Caller) -> Result<Vec<MatterInfo>> {
        let store = &self.store();
        self.may_see_matters(caller).await?;
        let rows = store.snapshot()?.range(MATTERS, &KeyRange::all(), MATTERS_MAX + 1, Direction::Forward)?;
        let info = |(key, raw): &(bytes::Bytes, bytes::Bytes)| {
            let name = String::from_utf8_lossy(key);
            store.matter_info(&name, &decode(MATTERS, key, raw)?)
        };
        rows.iter().map(info).collect()
    }

    /// One matter, with the number of its versions.
    pub async fn matter(&self, caller: &Caller, name: &str) -> Result<MatterInfo> {
        let store = &self.store();
        self.may_see_matters(caller).await?;
        let mut info = match store.matter_row(name)? {
            None if name == S3 => s3_row(store).info(S3, None),
            row => store.matter_info(name, &row.ok_or_else(|| missing(name))?)?,
        };
        let (mut count, mut after) = (0, None);
        loop {
            let (page, next) = self.matter_page(name, after)?;
            count += page.len() as u64;
            after = next;
            if after.is_none() || count >= COUNT_MAX {
                break;
            }
        }
        (info.versions, info.more) = (Some(count), after.is_some());
        Ok(info)
    }

    /// The versions under a matter, in the order of their objects, page by page. `after`: where the
    /// page before ended.
    pub async fn matter_versions(
        &self,
        caller: &Caller,
        name: &str,
        after: Option<u64>,
    ) -> Result<(Vec<VersionName>, Option<u64>)> {
        let store = &self.store();
        self.may_see_matters(caller).await?;
        if name != S3 {
            store.existing_matter(name)?;
        }
        let (page, next) = self.matter_page(name, after)?;
        let snapshot = store.snapshot()?;
        let mut named = Vec::with_capacity(page.len());
        for at in &page {
            let Some(bucket) = store.buckets().by_number(at.bucket) else { continue };
            if let Some(found) = lookup::referred(&*snapshot, at)? {
                let version = Some(found.id());
                named.push(VersionName { bucket: bucket.name().to_string(), key: at.key.clone(), version });
            }
        }
        Ok((named, next))
    }

    fn matter_page(&self, name: &str, after: Option<u64>) -> Result<(Vec<VersionRef>, Option<u64>)> {
        let (table, range) = match name {
            S3 => (HOLDS, KeyRange::all()),
            name => (MATTER_HOLDS, KeyRange::prefix(keys::all_under(name))),
        };
        let range = match (after, name) {
            (None, _) => range,
            (Some(after), S3) => range.after(keys::number(after)),
            (Some(after), name) => range.after(keys::under(name, after)),
        };
        let rows = self.store().snapshot()?.range(table, &range, PAGE, Direction::Forward)?;
        let last = rows.last().filter(|_| rows.len() == PAGE).and_then(|(key, _)| key.last_chunk::<8>().copied());
        let page: Result<Vec<VersionRef>> = rows.iter().map(|(key, value)| decode(table, key, value)).collect();
        Ok((page?, last.map(u64::from_be_bytes)))
    }

    async fn may_see_matters(&self, caller: &Caller) -> Result<()> {
        let roles = [Role::StorageAdministrator, Role::RetentionOfficer, Role::Auditor];
        let allowed = caller.require_role(&roles, Action::Read);
        self.store().audited(allowed, || Event::new(caller, Action::Read)).await
    }

    /// Refuses the close of a matter that cannot be closed now.
    pub(crate) fn check_closable(&self, name: &str) -> Result<MatterRow> {
        check_not_reserved(name)?;
        let row = self.store().existing_matter(name)?;
        match (row.state(), row.running()) {
            (MatterState::Open, None) => Ok(row),
            (MatterState::Open, Some(job)) => Err(ArchiveError::InvalidState(format!(
                "a {} on the matter `{name}` is under way; close it after that has ended",
                job.kind.word()
            ))),
            _ => Err(ArchiveError::InvalidState(format!("the matter `{name}` is closed already"))),
        }
    }

    /// Two officers close a matter: from now on nothing is put under it, and all its versions are
    /// released. `over` ends the request that this approves.
    pub(crate) async fn close_matter(
        &self,
        caller: &Caller,
        asked: &RequestRow,
        name: &str,
        over: Transaction,
        event: Event,
    ) -> Result<()> {
        let store = &self.store();
        // In the order of puts, which hold their share of this before they wait for the lock of a
        // key.
        let _alone = store.holding().alone().await;
        let lock = store.lock_named::<MatterRow>(name).await?;
        // Puts whose requests went away may have commits under way. They take effect before this
        // one.
        store.barrier().await?;
        let mut row = self.check_closable(name)?;
        let unchanged = over.equals(MATTERS, name.to_string(), encode(&row)).delete(MATTER_PROGRESS, name.to_string());
        let number = store.numbers().next().await?;
        row.closing =
            Some(Closing { asked_by: asked.by.clone(), approved_by: caller.actor.clone(), since: store.wall() });
        row.job = Some(Job {
            number,
            kind: JobKind::Close,
            selection: Selection::default(),
            bucket: 0,
            below: number,
            by: asked.by.clone(),
            peer: asked.peer,
            started: store.wall(),
            ended: None,
            counts: Counts::default(),
        });
        let answer = store.write_named(name, row, unchanged.with_reserve(), Some(event), lock).await?;
        store.compensated(answer).await?;
        store.upkeep().holds_are_due();
        Ok(())
    }
}

/// The row of S3's legal hold, which exists from its first job on.
pub(crate) fn s3_row(store: &Store) -> MatterRow {
    let opened = store.identity().look(|identity| identity.created);
    let by = crate::model::principal::Actor::System("s3".into());
    MatterRow::new("the legal holds of S3, which clients set and release".into(), by, None, opened)
}
