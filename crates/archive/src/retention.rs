//! Retention and legal holds of stored versions: who may change what, and the answer to "why not?".

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stele_catalog::{CatalogError, Transaction};

use crate::Archive;
use crate::audit::{Action, Event};
use crate::bucket::{Protection, check_key};
use crate::buckets::Bucket;
use crate::committing::{Committing, Proof};
use crate::deletion::retained;
use crate::error::{ArchiveError, Result};
use crate::install::places;
use crate::key_locks::KeyLock;
use crate::lookup::{self, Found};
use crate::principal::{Access, Caller, Role};
use crate::record::content::{Content, Extent};
use crate::record::version::{VersionNote, VersionRef, VersionRow};
use crate::record::{VERSIONS, encode};
use crate::restating::Doubted;
use crate::space::header::Kind;
use crate::store::Store;
use crate::time::Timestamp;
use crate::version::{Retention, RetentionMode, VersionId};

/// Exactly what keeps a version from being deleted, and when it could be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Why {
    pub bucket: String,
    pub key: String,
    pub version: String,
    /// It is a delete marker, not content.
    #[serde(default)]
    pub delete_marker: bool,
    /// Whether a delete by version would be refused now.
    pub protected: bool,
    pub mode: Option<String>,
    /// RFC 3339, on the compliance clock.
    pub retained_until: Option<String>,
    pub legal_hold: bool,
    /// What the compliance clock shows now.
    pub compliance_time: String,
    /// The earliest deletion; none while a legal hold stands.
    pub deletable_from: Option<String>,
    /// One sentence for each rule that applies, and where it came from.
    pub reasons: Vec<String>,
}

/// What a new version is retained by: what was asked for, or the bucket's default.
pub(crate) fn initial_retention(
    store: &Store,
    caller: &Caller,
    bucket: &Bucket,
    key: &str,
    retention: Option<Retention>,
    hold: bool,
) -> Result<(Option<Retention>, bool)> {
    if retention.is_some() || hold {
        require_lock(bucket)?;
        bucket.authorize(caller, Access::Retain, key)?;
    }
    // By the later clock: counted from one that lags, a new retention would be over before its time.
    let now = store.later_now();
    if let Some(retention) = retention {
        check_future(retention, now)?;
    }
    // A file of a share is under retention from its commit on, which names the date; storing its content is none.
    let default = bucket.row.lock.and_then(|lock| lock.default).filter(|_| !bucket.row.is_share());
    let retention = retention.or(default.map(|default| {
        let until = now.plus_days(default.period.days()).min(Timestamp::LATEST);
        Retention { mode: default.mode, until }
    }));
    Ok((retention.map(|retention| leveled(bucket, retention)), hold))
}

/// In a bucket of level `compliance` every retention is COMPLIANCE.
fn leveled(bucket: &Bucket, retention: Retention) -> Retention {
    match bucket.row.protection {
        Protection::Compliance => Retention { mode: RetentionMode::Compliance, ..retention },
        _ => retention,
    }
}

fn require_lock(bucket: &Bucket) -> Result<()> {
    match bucket.row.lock {
        Some(_) => Ok(()),
        None => {
            Err(ArchiveError::InvalidRequest(format!("bucket `{}` has no Object Lock; enable it first", bucket.name())))
        }
    }
}

fn check_future(retention: Retention, now: Timestamp) -> Result<()> {
    if retention.until > Timestamp::LATEST {
        return Err(ArchiveError::InvalidArgument(format!(
            "the retention's end is after {}, the latest that can be written as a date; a legal hold has no end",
            Timestamp::LATEST
        )));
    }
    if retention.until <= now {
        return Err(ArchiveError::InvalidArgument(format!(
            "the retention's end {} has passed: it is {now}",
            retention.until
        )));
    }
    Ok(())
}

/// The rules for changing the retention of a stored version. Strengthening is free; weakening is the exception.
pub(crate) fn judge_change(
    bucket: &Bucket,
    caller: &Caller,
    before: Option<Retention>,
    after: Option<Retention>,
    bypass: bool,
    now: Timestamp,
) -> Result<(), String> {
    let Some(before) = before.filter(|retention| retention.until > now) else { return Ok(()) };
    let longer = after.is_some_and(|after| after.mode == before.mode && after.until >= before.until);
    if longer {
        return Ok(());
    }
    match before.mode {
        RetentionMode::Compliance => Err(format!(
            "it is retained in COMPLIANCE mode until {}; nobody can shorten or lift that, or change the mode",
            before.until
        )),
        RetentionMode::Governance if bucket.row.protection == Protection::Compliance => {
            let stronger =
                after.is_some_and(|after| after.mode == RetentionMode::Compliance && after.until >= before.until);
            match stronger {
                true => Ok(()),
                false => Err(format!(
                    "it is retained until {}, and the bucket's protection level lets nobody weaken that",
                    before.until
                )),
            }
        }
        RetentionMode::Governance if bucket.row.protection == Protection::Basic => Ok(()),
        RetentionMode::Governance if bypass && caller.rights.bypass_governance => Ok(()),
        RetentionMode::Governance if bypass => Err(format!(
            "it is retained in GOVERNANCE mode until {}, and {} may not bypass that",
            before.until, caller.actor
        )),
        RetentionMode::Governance => Err(format!(
            "it is retained in GOVERNANCE mode until {}; changing that takes an explicit bypass and the permission",
            before.until
        )),
    }
}

impl Archive {
    /// Fails with `NoSuchConfiguration` where the version has none.
    pub async fn retention(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
    ) -> Result<Retention> {
        let (bucket, found) = self.look(caller, bucket, key, version).await?;
        require_lock(&bucket)?;
        found.row.retention.ok_or_else(|| ArchiveError::NoSuchConfiguration {
            kind: "ObjectLockConfiguration",
            place: format!("`{}/{key}`", bucket.name()),
        })
    }

    /// Sets, extends or (GOVERNANCE only, with `bypass_governance` and the permission) shortens or removes it.
    pub async fn set_retention(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
        retention: Option<Retention>,
        bypass_governance: bool,
    ) -> Result<()> {
        let detail = match retention {
            Some(retention) => format!("{} until {}", retention.mode, retention.until),
            None => "none".into(),
        };
        let detail = if bypass_governance { format!("{detail}, bypass requested") } else { detail };
        let event = Event::new(caller, Action::SetRetention).object(bucket, key).detail(detail);
        let result = async {
            let (bucket, lock, found) = self.hold_version(caller, Access::Retain, bucket, key, version).await?;
            require_lock(&bucket)?;
            let now = self.store().compliance_now();
            let retention = retention.map(|retention| leveled(&bucket, retention));
            if let Err(reason) = judge_change(&bucket, caller, found.row.retention, retention, bypass_governance, now) {
                let message = format!("the retention of `{}/{key}` stays: {reason}", bucket.name());
                return Err(retained(&bucket, key, &found, message));
            }
            // What was raised in the meantime may not be known.
            let stronger = match (found.row.retention, retention) {
                (Some(before), Some(after)) => after.mode >= before.mode && after.until >= before.until,
                (None, _) => true,
                (Some(_), None) => false,
            };
            if !stronger && let Err(reason) = self.store().undoubted(&bucket) {
                return Err(retained(&bucket, key, &found, reason));
            }
            if let Some(retention) = retention {
                // What is retained already may be extended to any later date: refusing would shorten it.
                let active = found.row.retention.is_some_and(|before| before.until > now);
                check_future(retention, if active { now } else { self.store().later_now() })?;
            }
            let event = event.clone().version(found.id());
            self.store().change_version(&bucket, key, &found, lock, event, |row| row.retention = retention).await
        };
        let result = result.await;
        self.store().audited(result, || event).await
    }

    pub async fn legal_hold(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
    ) -> Result<bool> {
        let (bucket, found) = self.look(caller, bucket, key, version).await?;
        require_lock(&bucket)?;
        Ok(found.row.hold)
    }

    pub async fn set_legal_hold(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
        hold: bool,
    ) -> Result<()> {
        let event =
            Event::new(caller, Action::SetLegalHold).object(bucket, key).detail(if hold { "on" } else { "off" }.into());
        let result = async {
            let (bucket, lock, found) = self.hold_version(caller, Access::Retain, bucket, key, version).await?;
            require_lock(&bucket)?;
            let event = event.clone().version(found.id());
            self.store().change_version(&bucket, key, &found, lock, event, |row| row.hold = hold).await
        };
        let result = result.await;
        self.store().audited(result, || event).await
    }

    pub async fn why(&self, caller: &Caller, bucket: &str, key: &str, version: Option<VersionId>) -> Result<Why> {
        let store = &self.store();
        check_key(key)?;
        let bucket = store.buckets.by_name(bucket)?;
        let allowed = if caller.has(Role::Auditor) { Ok(()) } else { bucket.authorize(caller, Access::Read, key) };
        store.audited(allowed, || Event::new(caller, Action::Read).object(bucket.name(), key)).await?;
        let snapshot = store.snapshot()?;
        let found = lookup::existing(&*snapshot, &bucket, key, version)?;
        let mut why = explain(&bucket, key, &found, store.compliance_now());
        if let Err(reason) = store.undoubted(&bucket) {
            (why.protected, why.deletable_from) = (true, None);
            why.reasons.insert(0, reason);
        }
        Ok(why)
    }

    /// A version for reading its properties.
    pub(crate) async fn look(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
    ) -> Result<(Arc<Bucket>, Found)> {
        check_key(key)?;
        let authorized = self.store().authorized(caller, Access::Read, bucket, key);
        let bucket = self.store().audited(authorized, || Event::new(caller, Action::Read).object(bucket, key)).await?;
        let snapshot = self.store().snapshot()?;
        let found = lookup::readable(&*snapshot, &bucket, key, version)?;
        Ok((bucket, found))
    }

    /// A version for changing its properties, under its key's lock.
    pub(crate) async fn hold_version(
        &self,
        caller: &Caller,
        access: Access,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
    ) -> Result<(Arc<Bucket>, KeyLock, Found)> {
        check_key(key)?;
        let bucket = self.store().authorized(caller, access, bucket, key)?;
        self.store().writable()?;
        let lock = self.store().lock(bucket.number, key).await?;
        let snapshot = self.store().snapshot()?;
        let found = lookup::readable(&*snapshot, &bucket, key, version)?;
        Ok((bucket, lock, found))
    }
}

impl Store {
    /// Changes a stored version's row: notes the new row, then commits it with its event, if it still stands as found.
    pub async fn change_version(
        self: &Arc<Store>,
        bucket: &Bucket,
        key: &str,
        found: &Found,
        lock: KeyLock,
        event: Event,
        change: impl FnOnce(&mut VersionRow),
    ) -> Result<()> {
        let at = VersionRef { bucket: bucket.number, key: key.into(), number: found.number };
        let answer = self.write_version_anew(bucket, key, found, lock, Some(event), change).await?;
        self.noted(Doubted::Version(at), answer).await
    }

    /// The outer result is of the note, the inner of the commit behind it.
    pub(crate) async fn write_version_anew(
        self: &Arc<Store>,
        bucket: &Bucket,
        key: &str,
        found: &Found,
        lock: KeyLock,
        event: Option<Event>,
        change: impl FnOnce(&mut VersionRow),
    ) -> Result<std::result::Result<(), CatalogError>> {
        let writing = self.segments.begin();
        let mut row = found.row.clone();
        change(&mut row);
        // Tags could otherwise use up what is kept for deletes.
        let reserve = event.is_none()
            || row.retention != found.row.retention
            || row.hold != found.row.hold
            || row.notified != found.row.notified;
        let at = VersionRef { bucket: bucket.number, key: key.into(), number: found.number };
        let layout = if row.content == Content::Parts { Some(self.layout(row.object)?) } else { None };
        let note = VersionNote { at: at.clone(), row: row.clone(), layout };
        // Before the note: what is noted and then not committed has to be noted again.
        let _protected = if row.retention.is_some() || row.hold { Some(self.ensure_protected().await?) } else { None };
        row.note = self.note_within(Some(&writing), reserve, Kind::Version, Some(bucket), row.object, &note).await?;
        let raw = encode(&row);
        let transaction = Transaction::new().with_reserve().equals(VERSIONS, at.record_key(), found.raw.clone()).put(
            VERSIONS,
            at.record_key(),
            raw.clone(),
        );
        let mut transaction = self.reindex(transaction, &at, &found.row, &row);
        if let Some(event) = event {
            transaction = self.with_record(transaction, event);
        }
        let extents = inline(&row);
        let (gained, lost) = (places(&row.note, extents), places(&found.row.note, extents));
        let proof = Proof { table: VERSIONS, key: at.record_key(), value: Some(raw) };
        let committing = Committing::new(self, proof).writing(writing).lock(lock).after(move |store| {
            gained.into_iter().for_each(|place| store.segments.add_live(place));
            lost.into_iter().for_each(|place| store.segments.drop_live(place));
            None
        });
        // The commit is the flush behind the acknowledgement; the note was durable before it.
        Ok(committing.commit(transaction).await.map(drop))
    }
}

fn inline(row: &VersionRow) -> &[Extent] {
    match &row.content {
        Content::Stream(stream) => stream.extents.as_deref().unwrap_or_default(),
        _ => &[],
    }
}

/// A delete marker holds nothing and is never retained; what it hides is what somebody wants to know of.
fn explain_marker(bucket: &Bucket, key: &str, found: &Found, now: Timestamp) -> Why {
    let mut reasons = vec![
        "it is a delete marker: it holds no content, and has no retention and no hold".to_owned(),
        "it deletes nothing: it hides the versions below it, and each of those is kept by its own retention and hold"
            .to_owned(),
    ];
    if found.latest {
        reasons.push("deleting the marker by its version id shows the version below it again".to_owned());
    }
    reasons.push("ask about a version below it by its id: BUCKET/KEY@VERSION".to_owned());
    Why {
        bucket: bucket.name().into(),
        key: key.into(),
        version: found.id().to_string(),
        delete_marker: true,
        protected: false,
        mode: None,
        retained_until: None,
        legal_hold: false,
        compliance_time: now.to_string(),
        deletable_from: Some(now.to_string()),
        reasons,
    }
}

fn explain(bucket: &Bucket, key: &str, found: &Found, now: Timestamp) -> Why {
    let active = found.row.retention.filter(|retention| retention.until > now);
    let mut reasons = Vec::new();
    if found.row.marker {
        return explain_marker(bucket, key, found, now);
    }
    if found.row.hold {
        reasons.push("a legal hold is on it; a hold has no end and is released only by whoever has the right".into());
    }
    match (found.row.retention, active) {
        (_, Some(Retention { mode: RetentionMode::Compliance, until })) => reasons.push(format!(
            "COMPLIANCE retention ends {until} on the compliance clock, which shows {now}; nobody can shorten it, it can only be extended"
        )),
        (_, Some(Retention { mode: RetentionMode::Governance, until })) => reasons.push(match bucket.row.protection {
            Protection::Compliance => format!(
                "GOVERNANCE retention ends {until} on the compliance clock, which shows {now}; the bucket's protection level lets nobody bypass it"
            ),
            _ => format!(
                "GOVERNANCE retention ends {until} on the compliance clock, which shows {now}; a caller with the permission may bypass it on explicit request"
            ),
        }),
        (Some(past), None) => reasons.push(format!("its {} retention ended {}; that no longer protects it", past.mode, past.until)),
        (None, None) => reasons.push("it has no retention".into()),
    }
    if let Some(default) = bucket.row.lock.and_then(|lock| lock.default) {
        reasons.push(format!(
            "the bucket's default is {} for {} days; it was applied when the version was stored and changing it changes nothing stored",
            default.mode,
            default.period.days()
        ));
    }
    if found.latest && bucket.versioned() && !found.row.marker {
        reasons.push("a delete without a version id only adds a delete marker and always may".into());
    }
    let protected = found.row.hold || active.is_some();
    Why {
        bucket: bucket.name().into(),
        key: key.into(),
        version: found.id().to_string(),
        delete_marker: false,
        protected,
        mode: active.map(|retention| retention.mode.to_string()),
        retained_until: found.row.retention.map(|retention| retention.until.to_string()),
        legal_hold: found.row.hold,
        compliance_time: now.to_string(),
        deletable_from: (!found.row.hold).then(|| active.map_or(now, |retention| retention.until).to_string()),
        reasons,
    }
}
