//! Giving disposal certificates, and listing removals.
//!
//! The audit log is the source: it survives restarts, and a rebuild of the catalog as far as the
//! data volume has it. A list reads the log from the record of its period on. A certificate reads
//! it from the storing of the version on. Both read a bounded number of records between two pauses,
//! so that other requests go on.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use stele_catalog::{Direction, KeyRange};

use crate::audit::Event;
use crate::audit::chain::number_of;
use crate::evidence::disposal::{
    DISPOSAL, DisposalCertificate, RECORDS_MAX, Removed, approves, is_removal, segment_overwritten, stores,
};
use crate::evidence::issue::{NEAR, first_after};
use crate::evidence::log::log_length;
use crate::model::action::Action;
use crate::model::bucket::check_key;
use crate::model::checksum::to_hex;
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::{Caller, Role};
use crate::model::time::Timestamp;
use crate::model::version::VersionId;
use crate::record::audit::AuditRow;
use crate::record::tombstone::TombstoneRow;
use crate::record::{AUDIT, TOMBSTONES, decode, fetch, keys};
use crate::store::{Archive, Store};

/// Records read at once, records read for one page of a list, and removals in a page.
const PAGE: usize = 1024;
const SEEN_MAX: u64 = 50_000;
const FOUND_MAX: usize = 500;

/// The removals to list. Times are those of the log, on the wall clock.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct DisposalQuery {
    /// This time or later, and before this time.
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
    pub bucket: Option<String>,
    pub prefix: String,
}

/// A removed version, as the record of its removal names it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Disposed {
    /// The number of the record.
    pub record: u64,
    pub bucket: String,
    pub key: String,
    pub version: String,
    pub size_bytes: u64,
    pub blake3: String,
    pub removed: String,
    pub removed_by: String,
    /// As in a certificate.
    pub cause: String,
    /// The end of its retention, where a record or the catalog still says it.
    pub keep_until: Option<String>,
}

impl DisposalQuery {
    fn finds(&self, row: &AuditRow) -> bool {
        is_removal(row)
            && self.from.is_none_or(|from| row.time >= from)
            && self.to.is_none_or(|to| row.time < to)
            && self.bucket.as_ref().is_none_or(|bucket| row.bucket.as_ref() == Some(bucket))
            && row.key.as_deref().is_some_and(|key| key.starts_with(self.prefix.as_str()))
    }
}

impl Archive {
    /// A page of the removals of a period, in the order of the log. `next` is where the following
    /// page begins.
    pub async fn disposals(
        &self,
        caller: &Caller,
        query: &DisposalQuery,
        after: Option<u64>,
    ) -> Result<(Vec<Disposed>, Option<u64>)> {
        let store = &self.store();
        store.may_see_disposals(caller, query.bucket.as_deref()).await?;
        if let (Some(from), Some(to)) = (query.from, query.to)
            && from >= to
        {
            return Err(ArchiveError::InvalidArgument(format!("no removal is from {from} on and before {to}")));
        }
        let mut next = match after {
            Some(after) => after.saturating_add(1),
            None => {
                let snapshot = store.snapshot()?;
                // Clocks may have been set: the search begins before the period, and ends behind
                // it.
                let from = query.from.map_or(0, |from| from.0.saturating_sub(NEAR));
                first_after(&*snapshot, log_length(&*snapshot)?, Timestamp(from))?
            }
        };
        let end = query.to.map_or(u64::MAX, |to| to.0.saturating_add(NEAR));
        let (mut found, mut seen) = (Vec::new(), 0);
        loop {
            let page = store.log_page(next).await?;
            for (number, row) in &page {
                if row.time.0 > end {
                    return Ok((found, None));
                }
                if query.finds(row) {
                    found.extend(store.disposed(*number, row)?);
                }
                next = number + 1;
            }
            seen += page.len() as u64;
            if page.is_empty() {
                return Ok((found, None));
            }
            if seen >= SEEN_MAX || found.len() >= FOUND_MAX {
                return Ok((found, Some(next - 1)));
            }
        }
    }

    /// The certificate of a removed version: of its last removal, or of the one with this record.
    pub async fn disposal_certificate(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        version: VersionId,
        record: Option<u64>,
    ) -> Result<DisposalCertificate> {
        let store = &self.store();
        check_key(key)?;
        store.may_see_disposals(caller, Some(bucket)).await?;
        let version_id = version.to_string();
        let stored = store.tombstone(bucket, key, version)?.map(|row| row.stored);
        let mut removed = Removed { bucket, key, version: &version_id, record: record.unwrap_or(u64::MAX) };
        let mut about = Vec::new();
        if let Some(stored) = stored {
            let snapshot = store.snapshot()?;
            let near = Timestamp(stored.0.saturating_sub(NEAR));
            let first = first_after(&*snapshot, log_length(&*snapshot)?, near)?;
            about = store.records_about(&removed, first).await?;
        }
        if !about.first().is_some_and(|(_, row)| stores(row)) {
            // Nothing is known of when it was stored, or clocks were set: the whole log.
            about = store.records_about(&removed, 1).await?;
        }
        let is_it = |(number, row): &&(u64, AuditRow)| {
            removed.concerns(row) && is_removal(row) && record.is_none_or(|record| record == *number)
        };
        removed.record = about.iter().rev().find(is_it).map(|(number, _)| *number).ok_or_else(|| {
            ArchiveError::NoSuchThing(format!(
                "the audit log has no record that says that `{bucket}/{key}` version {version_id} was removed"
            ))
        })?;
        let rows = store.history_of(&removed, about).await?;
        let last = rows.last().map_or(removed.record, |(number, _)| *number);
        let removal = removed.read(&rows).map_err(|finding| {
            ArchiveError::damaged("the audit log", format!("{finding}; run `stele audit verify`"))
        })?;
        let record = removed.record;
        let head = store.head_over(last).await?;
        let mut records = Vec::with_capacity(rows.len());
        for (number, _) in rows {
            let (_, value) = store.audit_row(number)?;
            records.push(store.prove(number, &head, &value).await?);
        }
        let mut certificate = DisposalCertificate {
            format: DISPOSAL.into(),
            store: head.store.clone(),
            bucket: bucket.into(),
            key: key.into(),
            version: version_id,
            removal,
            record,
            signed: store.wall().to_string(),
            records,
            head,
            signature: String::new(),
        };
        certificate.signature = to_hex(&store.signing().sign(&certificate.text()));
        Ok(certificate)
    }
}

impl Store {
    async fn may_see_disposals(&self, caller: &Caller, bucket: Option<&str>) -> Result<()> {
        let roles = [Role::RetentionOfficer, Role::Auditor, Role::StorageAdministrator];
        let event = || {
            let event = Event::new(caller, Action::List);
            bucket.map_or_else(|| event.clone(), |bucket| event.clone().bucket(bucket))
        };
        self.audited(caller.require_role(&roles, Action::List), event).await
    }

    /// Records from this number on, and a pause for other requests.
    async fn log_page(&self, from: u64) -> Result<Vec<(u64, AuditRow)>> {
        tokio::task::yield_now().await;
        let range = KeyRange::all().from(keys::number(from));
        let page = self.snapshot()?.range(AUDIT, &range, PAGE, Direction::Forward)?;
        page.iter().map(|(key, value)| Ok((number_of(key), decode(AUDIT, key, value)?))).collect()
    }

    fn disposed(&self, number: u64, row: &AuditRow) -> Result<Option<Disposed>> {
        let (Some(bucket), Some(key), Some(version)) = (&row.bucket, &row.key, &row.version) else { return Ok(None) };
        let removed = Removed { bucket, key, version, record: number };
        let Ok(removal) = removed.read(&[(number, row.clone())]) else { return Ok(None) };
        let tombstone = self.tombstone(bucket, key, VersionId::parse(version)?)?;
        let known = tombstone.and_then(|row| row.retention).map(|retention| retention.until.to_string());
        Ok(Some(Disposed {
            record: number,
            bucket: bucket.clone(),
            key: key.clone(),
            version: version.clone(),
            size_bytes: removal.size_bytes,
            blake3: removal.blake3,
            removed: removal.removed,
            removed_by: removal.removed_by,
            cause: removal.cause,
            keep_until: removal.keep_until.or(known),
        }))
    }

    /// What the catalog keeps of a version that was removed after a retention. Null versions are
    /// not found by their id.
    fn tombstone(&self, bucket: &str, key: &str, version: VersionId) -> Result<Option<TombstoneRow>> {
        let (Ok(bucket), VersionId::Number(number, _)) = (self.buckets().by_name(bucket), version) else {
            return Ok(None);
        };
        let row: Option<TombstoneRow> =
            fetch(&*self.snapshot()?, TOMBSTONES, &keys::version(bucket.number, key, number))?;
        Ok(row.filter(|row| row.version == version.to_string()))
    }

    /// All records about the version, and all approvals by officers.
    async fn records_about(&self, removed: &Removed<'_>, first: u64) -> Result<Vec<(u64, AuditRow)>> {
        let (mut about, mut next) = (Vec::new(), first);
        loop {
            let page = self.log_page(next).await?;
            let Some((last, _)) = page.last() else { return Ok(about) };
            next = last + 1;
            let approval = |row: &AuditRow| row.action == Action::Approve;
            about.extend(
                page.into_iter().filter(|(_, row)| row.refused.is_none() && (removed.concerns(row) || approval(row))),
            );
            if about.len() > 100 * RECORDS_MAX {
                return Err(too_many(removed));
            }
        }
    }

    /// The records of a certificate: from the last storing before the removal to the destruction of
    /// the key, approvals, and what was overwritten.
    async fn history_of(&self, removed: &Removed<'_>, about: Vec<(u64, AuditRow)>) -> Result<Vec<(u64, AuditRow)>> {
        let (mut rows, mut approvals) = (Vec::new(), Vec::new());
        let mut destroyed = false;
        for (number, row) in about {
            if !removed.concerns(&row) {
                approvals.push((number, row));
            } else if number <= removed.record {
                if number < removed.record && stores(&row) {
                    // A null version is stored again and again.
                    rows.clear();
                }
                rows.push((number, row));
            } else if !destroyed && row.action == Action::Dispose {
                rows.push((number, row));
                destroyed = removed.read(&rows).is_ok();
                if !destroyed {
                    rows.pop();
                }
            }
        }
        let finding = |finding| ArchiveError::damaged("the audit log", finding);
        let removal = removed.read(&rows).map_err(finding)?;
        let is_about = |row: &AuditRow| approves(row, removed.bucket, removed.key, removed.version, &removal.holds);
        rows.extend(approvals.into_iter().filter(|(number, row)| *number < removed.record && is_about(row)));
        let mut left: BTreeSet<u32> = removal.segments.iter().flatten().map(|segment| segment.segment).collect();
        let mut next = removed.record + 1;
        while !left.is_empty() {
            let page = self.log_page(next).await?;
            let Some((last, _)) = page.last() else { break };
            next = last + 1;
            rows.extend(
                page.into_iter().filter(|(_, row)| segment_overwritten(row).is_some_and(|number| left.remove(&number))),
            );
        }
        rows.sort_by_key(|(number, _)| *number);
        match rows.len() > RECORDS_MAX {
            true => Err(too_many(removed)),
            false => Ok(rows),
        }
    }
}

fn too_many(removed: &Removed<'_>) -> ArchiveError {
    ArchiveError::InvalidState(format!(
        "the audit log has more than {RECORDS_MAX} records about `{}/{}`; `stele proof export` has them all",
        removed.bucket, removed.key
    ))
}
