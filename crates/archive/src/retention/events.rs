//! Events: the moments from which the retention of event-initiated versions counts.
//!
//! A version's event is told once. An event before the version was stored counts from when it was
//! stored, so that no date can make a retention shorter than its class says. Only an event whose
//! date has not come can be taken back, by two officers; the version is then kept without an end
//! again.

use futures_util::StreamExt;
use stele_catalog::Transaction;

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::bucket::check_key;
use crate::model::error::{ArchiveError, Result};
use crate::model::matter::{Selection, VersionName};
use crate::model::principal::{Caller, Role};
use crate::model::time::Timestamp;
use crate::model::version::{Retention, VersionId};
use crate::record::request::EventTimes;
use crate::record::version::VersionRow;
use crate::record::{class, keys};
use crate::retention::holding::selects;
use crate::retention::rules::{at_bucket_level, retained};
use crate::state::buckets::Bucket;
use crate::store::lookup::Found;
use crate::store::{Archive, Store, lookup};

/// Versions that one page looks at, and versions that are changed at once.
const PAGE: usize = 1000;
const TELLING: usize = 64;

/// One page of events that were told by a selection.
#[derive(Clone, Default, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Told {
    pub seen: u64,
    /// Versions that got their event, or would get it.
    pub told: u64,
    /// Selected versions that have an event already. It stays.
    pub before: u64,
    pub failed: u64,
    /// The first failure.
    pub failure: Option<String>,
    /// Where the next page begins. None: this is the last one.
    pub next: Option<String>,
}

impl Store {
    /// The action of records about classes and events: see `matter_action`.
    pub(crate) fn class_action(&self) -> Action {
        match self.witnessing().superblock().format >= crate::space::superblock::FORMAT {
            true => Action::Class,
            false => Action::SetRetention,
        }
    }
}

/// The version's class, if an event can be told to it.
fn awaiting(row: &VersionRow) -> Result<&class::ClassMark> {
    let refuse = |why: String| Err(ArchiveError::InvalidState(why));
    match &row.class {
        None => refuse("the version has no class, so no event starts its retention".into()),
        Some(mark) => match &mark.event {
            _ if mark.awaits_event() => Ok(mark),
            None => refuse(format!("the class `{}` counts from storing on, not from an event", mark.name)),
            Some(event) => {
                refuse(format!("its event was told {} by {}: {}; it is told once", event.told, event.by, event.at))
            }
        },
    }
}

/// The event of a version, for a request to take it back.
pub(crate) fn event_times(row: &VersionRow) -> Option<EventTimes> {
    let event = row.class.as_ref()?.event.as_ref()?;
    Some(EventTimes { at: event.at, told: event.told })
}

/// The row with the event, or without it. Its retention follows, also where a bypass had lifted it.
fn with_event(bucket: &Bucket, row: &mut VersionRow, event: Option<class::Event>) {
    if let Some(mark) = &mut row.class {
        // A client may have extended the retention beyond the class. That stays, whatever becomes
        // of the event.
        if let Some(retention) = row.retention.filter(|retention| retention.until > mark.until()) {
            mark.least = mark.least.max(Some(retention.until));
        }
        mark.event = event;
        let mode = row.retention.map_or(mark.terms.mode, |retention| retention.mode);
        row.retention = Some(at_bucket_level(bucket, Retention { mode, until: mark.until() }));
    }
    row.notified = None;
}

impl Archive {
    /// Tells the event of one version. Returns the end of its retention.
    pub async fn tell_event(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
        at: Timestamp,
    ) -> Result<Timestamp> {
        let store = self.store();
        let event = || {
            let event = Event::new(caller, store.class_action()).object(bucket, key);
            event.detail(format!("the event that starts its retention: {at}"))
        };
        let result = self.try_tell_event(caller, bucket, key, version, at).await;
        store.audited(result, event).await
    }

    async fn try_tell_event(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
        at: Timestamp,
    ) -> Result<Timestamp> {
        caller.require_role(&[Role::RetentionOfficer], Action::Class)?;
        if at > Timestamp::LATEST {
            return Err(ArchiveError::InvalidArgument(format!("{at} is after the latest date that can be stated")));
        }
        check_key(key)?;
        let store = &self.store();
        store.writable()?;
        let bucket = store.buckets().by_name(bucket)?;
        let lock = store.lock(bucket.number, key).await?;
        // Its settings may be others since the request waited.
        let bucket = store.buckets().by_number(bucket.number).unwrap_or(bucket);
        let found = lookup::readable(&*store.snapshot()?, &bucket, key, version)?;
        awaiting(&found.row)?;
        if let Err(reason) = store.check_doubt(&bucket) {
            return Err(retained(&bucket, key, &found, reason));
        }
        let told = class::Event { at, by: caller.actor.clone(), told: store.wall() };
        let mut after = found.row.clone();
        with_event(&bucket, &mut after, Some(told));
        let until = after.retention.map_or(Timestamp::LATEST, |retention| retention.until);
        let mode = after.retention.map_or(String::new(), |retention| retention.mode.to_string());
        // Verifiers of proofs read the date of such a record.
        let event = Event::new(caller, Action::SetRetention)
            .object(bucket.name(), key)
            .version(found.id())
            .detail(format!("{mode} until {until}, from the event {at} on"));
        // The officer who tells many events may be one no more by now.
        let required = store.while_officer(Transaction::new(), &caller.actor)?;
        store.change_version_if(required, &bucket, key, &found, lock, event, |row| *row = after).await?;
        Ok(until)
    }

    /// Tells the event of every selected version that waits for one, page by page.
    pub async fn tell_events(
        &self,
        caller: &Caller,
        selection: &Selection,
        at: Timestamp,
        dry_run: bool,
        after: Option<&str>,
    ) -> Result<Told> {
        let store = &self.store();
        let event = || {
            Event::new(caller, store.class_action())
                .bucket(&selection.bucket)
                .detail(format!("events {at}: {selection}"))
        };
        let allowed = caller.require_role(&[Role::RetentionOfficer], Action::Class);
        store.audited(allowed, event).await?;
        let bucket = store.selectable(selection)?;
        let after = crate::retention::holding::version_after(after)?;
        let (rows, next) = store.version_page(bucket.number, &selection.prefix, after, PAGE)?;
        let mut told = Told { seen: rows.len() as u64, ..Told::default() };
        let mut waiting = Vec::new();
        for (record_key, value) in &rows {
            let found = Found::of(record_key, value, false)?;
            if !selects(selection, &found.row) || found.row.class.is_none() {
                continue;
            }
            match awaiting(&found.row) {
                Ok(_) => waiting.push((keys::split(record_key)?.1, found.id())),
                Err(_) => told.before += u64::from(found.row.class.is_some_and(|mark| mark.event.is_some())),
            }
        }
        if dry_run {
            told.told = waiting.len() as u64;
        } else {
            let tell = |(key, version): (String, VersionId)| async move {
                self.tell_event(caller, &selection.bucket, &key, Some(version), at).await
            };
            let mut telling = futures_util::stream::iter(waiting.into_iter().map(tell)).buffer_unordered(TELLING);
            while let Some(outcome) = telling.next().await {
                match outcome {
                    Ok(_) => told.told += 1,
                    Err(error @ (ArchiveError::Stopped(_) | ArchiveError::NoSpace(_))) => return Err(error),
                    Err(error) => {
                        told.failed += 1;
                        told.failure.get_or_insert(error.to_string());
                    }
                }
            }
        }
        told.next = next.map(|key| crate::model::checksum::to_hex(&key));
        Ok(told)
    }

    /// The version's event, if it can be taken back now: its date has not come.
    pub(crate) fn revocable(
        &self,
        name: &VersionName,
    ) -> Result<(std::sync::Arc<crate::state::buckets::Bucket>, Found)> {
        let store = &self.store();
        let bucket = store.buckets().by_name(&name.bucket)?;
        let found = lookup::readable(&*store.snapshot()?, &bucket, &name.key, name.version)?;
        let event = found.row.class.as_ref().and_then(|mark| mark.event.as_ref());
        match event {
            None => Err(ArchiveError::InvalidState("no event was told for this version".into())),
            Some(event) if event.at <= store.later_now() => {
                Err(ArchiveError::InvalidState(format!("its event was {}, and an event in the past stands", event.at)))
            }
            Some(_) => Ok((bucket, found)),
        }
    }

    /// Two officers take an event back before its date. `over` ends the request `id`, which this
    /// approves, in the same transaction.
    pub(crate) async fn revoke_event(
        &self,
        caller: &Caller,
        id: &str,
        (name, named): (&VersionName, Option<EventTimes>),
        over: Transaction,
        approved: Event,
    ) -> Result<()> {
        let store = &self.store();
        let bucket = store.buckets().by_name(&name.bucket)?;
        let lock = store.lock(bucket.number, &name.key).await?;
        let (bucket, found) = self.revocable(name)?;
        if named.is_some_and(|named| event_times(&found.row) != Some(named)) {
            return Err(ArchiveError::InvalidState("another event was told since: ask again".into()));
        }
        let mut after = found.row.clone();
        with_event(&bucket, &mut after, None);
        let retention =
            after.retention.map_or(String::new(), |retention| format!("{} until {}", retention.mode, retention.until));
        // Verifiers of proofs read the date of such a record.
        let event = Event::new(caller, Action::SetRetention)
            .object(bucket.name(), &name.key)
            .version(found.id())
            .detail(format!("{retention}, its event is taken back with request {id}"));
        let required = store.with_record(over, approved);
        store.change_version_if(required, &bucket, &name.key, &found, lock, event, |row| *row = after).await.map(drop)
    }
}
