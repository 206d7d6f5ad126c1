//! Giving receipts.
//!
//! A receipt shows names, sizes and times. It goes to the caller who did what it is about, as the
//! answer to that act, or to a caller who may read the object or audits the store.

use stele_catalog::{Direction, KeyRange, Snapshot};

use crate::audit::Event;
use crate::audit::chain::number_of;
use crate::evidence::log::log_length;
use crate::evidence::receipt::{ConsistencyProof, RECEIPT, Receipt, check_head, content_in};
use crate::model::action::Action;
use crate::model::bucket::check_key;
use crate::model::checksum::{Algorithm, to_hex};
use crate::model::error::{ArchiveError, Result};
use crate::model::head::SignedHead;
use crate::model::matter::REBUILD;
use crate::model::principal::{Access, Caller, Role};
use crate::model::time::{SECOND, Timestamp};
use crate::model::version::VersionId;
use crate::record::audit::AuditRow;
use crate::record::content::{Content, Layout};
use crate::record::version::VersionRow;
use crate::record::{AUDIT, LAYOUTS, decode, fetch, keys};
use crate::state::buckets::Bucket;
use crate::store::lookup::{self, Found};
use crate::store::{Archive, Store};

/// Records read at once in the search for the record of a version.
const PAGE: usize = 1024;
/// How far a record's time may be from that of its version. Both are read from the wall clock, one
/// shortly after the other, so that a search by time looks first around that moment.
pub(crate) const NEAR: u64 = 3_600 * SECOND;

impl Archive {
    /// The receipt of what this caller has just done to a version; `record` is the number of its
    /// audit record. `sha256` is a digest that the caller sent and the archive verified.
    pub async fn receipt_of_act(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        record: u64,
        sha256: Option<[u8; 32]>,
    ) -> Result<Receipt> {
        let store = &self.store();
        let bucket = store.buckets().by_name(bucket)?;
        let row = store.audit_row(record)?;
        if row.0.actor != caller.actor || !concerns(&row.0, bucket.name(), key) {
            return Err(ArchiveError::Denied(format!("record {record} is not about what {} did", caller.actor)));
        }
        store.receipt(&bucket, key, record, row, sha256).await
    }

    /// The receipt of a stored version, or of another record about the object. Without a version:
    /// the newest.
    pub async fn receipt(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
        record: Option<u64>,
    ) -> Result<Receipt> {
        let store = &self.store();
        check_key(key)?;
        let bucket = store.buckets().by_name(bucket)?;
        let allowed = if caller.has(Role::Auditor) { Ok(()) } else { bucket.authorize(caller, Access::Read, key) };
        store.audited(allowed, || Event::new(caller, Action::Read).object(bucket.name(), key)).await?;
        let record = match record {
            Some(record) => record,
            None => {
                let snapshot = store.snapshot()?;
                let found = lookup::existing(&*snapshot, &bucket, key, version)?;
                store.record_of(&*snapshot, &bucket, key, &found)?
            }
        };
        let row = store.audit_row(record)?;
        let named = version.is_none_or(|version| row.0.version == Some(version.to_string()));
        if row.0.refused.is_some() || !concerns(&row.0, bucket.name(), key) || !named {
            return Err(ArchiveError::NoSuchThing(format!(
                "record {record} of the audit log is not about what was done to `{}/{key}`",
                bucket.name()
            )));
        }
        store.receipt(&bucket, key, record, row, None).await
    }

    /// The proof that the log begins with the records under an earlier head of this store: the log
    /// as it is now, or as it was under a later head that this store signed.
    pub async fn consistency(
        &self,
        caller: &Caller,
        from: &SignedHead,
        until: Option<&SignedHead>,
    ) -> Result<ConsistencyProof> {
        let store = &self.store();
        let allowed = caller.require_role(&[Role::Auditor, Role::RetentionOfficer], Action::Audit);
        store.audited(allowed, || Event::new(caller, Action::Audit)).await?;
        let head = match until {
            None => self.audit_head_to_send().await?,
            Some(until) => {
                check_head(until, store.signing().public())
                    .map_err(|finding| ArchiveError::InvalidArgument(format!("the later head: {finding}")))?;
                let length = log_length(&*store.snapshot()?)?;
                if until.records > length {
                    return Err(ArchiveError::InvalidState(format!(
                        "the later head counts {} records, and the log has {length}: the log was set back; \
                         `stele audit verify --anchor` with that head says more",
                        until.records
                    )));
                }
                until.clone()
            }
        };
        store.consistency(from.records, head).await
    }
}

fn concerns(row: &AuditRow, bucket: &str, key: &str) -> bool {
    row.bucket.as_deref() == Some(bucket) && row.key.as_deref() == Some(key)
}

impl Store {
    /// A record of the audit log, and as it is stored.
    pub(crate) fn audit_row(&self, record: u64) -> Result<(AuditRow, bytes::Bytes)> {
        let key = keys::number(record);
        match self.snapshot()?.get(AUDIT, &key)? {
            Some(value) => Ok((decode(AUDIT, &key, &value)?, value)),
            None => Err(ArchiveError::NoSuchThing(format!("the audit log has no record {record}"))),
        }
    }

    async fn receipt(
        &self,
        bucket: &Bucket,
        key: &str,
        record: u64,
        (row, value): (AuditRow, bytes::Bytes),
        sha256: Option<[u8; 32]>,
    ) -> Result<Receipt> {
        let head = self.head_over(record).await?;
        let entry = self.prove(record, &head, &value).await?;
        let content = content_in(&row);
        let mut receipt = Receipt {
            format: RECEIPT.into(),
            store: head.store.clone(),
            action: row.action.to_string(),
            time: row.time.to_string(),
            actor: row.actor.to_string(),
            bucket: bucket.name().into(),
            key: key.into(),
            version: row.version.clone(),
            size_bytes: content.map(|(size, _)| size),
            blake3: content.map(|(_, blake3)| to_hex(&blake3)),
            parts: None,
            sha256: sha256.map(|sha256| to_hex(&sha256)),
            retention_mode: None,
            keep_until: None,
            legal_hold: None,
            matters: Vec::new(),
            class: None,
            signed: self.wall().to_string(),
            entry,
            head,
            group: None,
            signature: String::new(),
        };
        let snapshot = self.snapshot()?;
        let version = row.version.as_deref().map(VersionId::parse).transpose()?;
        if let Some(version) = version
            && let Some(found) = lookup::version(&*snapshot, bucket, key, Some(version))?
            && !(found.row.null && self.is_stored_since(&*snapshot, bucket, key, record)?)
        {
            self.state_of(bucket, &found, &*snapshot, &mut receipt)?;
        }
        Ok(self.sign_receipt(receipt).await)
    }

    /// Puts into the receipt how the version is now.
    fn state_of(&self, bucket: &Bucket, found: &Found, snapshot: &dyn Snapshot, receipt: &mut Receipt) -> Result<()> {
        let row = &found.row;
        if row.marker {
            return Ok(());
        }
        receipt.size_bytes = Some(row.size);
        receipt.blake3 = Some(to_hex(&row.blake3));
        receipt.legal_hold = Some(row.hold);
        let rebuild = self.check_doubt(bucket).is_err().then(|| REBUILD.to_string());
        receipt.matters = row.matters.iter().flatten().cloned().chain(rebuild).collect();
        receipt.retention_mode = row.retention.map(|retention| retention.mode.to_string());
        receipt.keep_until = row.retention.map(|retention| retention.until.to_string());
        receipt.class = row.class.as_ref().map(|mark| mark.name.clone());
        receipt.sha256 = receipt.sha256.take().or_else(|| whole_sha256(row));
        receipt.parts = parts_of(row, snapshot)?;
        Ok(())
    }

    /// Whether the null version of a key was stored again after a record. The version that is there
    /// now is then not the one that the record is about.
    fn is_stored_since(&self, snapshot: &dyn Snapshot, bucket: &Bucket, key: &str, record: u64) -> Result<bool> {
        let id = VersionId::Null.to_string();
        let is_it = |row: &AuditRow| {
            let made = matches!(row.action, Action::PutObject | Action::CompleteUpload | Action::AddDeleteMarker);
            made && row.refused.is_none() && concerns(row, bucket.name(), key) && row.version.as_ref() == Some(&id)
        };
        Ok(search(snapshot, record + 1, Timestamp(u64::MAX), false, is_it)?.is_some())
    }

    /// The number of the record that says how a version was stored.
    fn record_of(&self, snapshot: &dyn Snapshot, bucket: &Bucket, key: &str, found: &Found) -> Result<u64> {
        let (id, length) = (found.id().to_string(), log_length(snapshot)?);
        let is_it = |row: &AuditRow| {
            let made = matches!(row.action, Action::PutObject | Action::CompleteUpload | Action::AddDeleteMarker);
            made && row.refused.is_none() && concerns(row, bucket.name(), key) && row.version.as_ref() == Some(&id)
        };
        // A null version is one of many with that name; the one that is here was stored last.
        let last_only = found.row.null;
        let modified = found.row.modified.0;
        let (from, until) = match last_only {
            true => (0, u64::MAX),
            false => (modified.saturating_sub(NEAR), modified.saturating_add(NEAR)),
        };
        let first = first_after(snapshot, length, Timestamp(from))?;
        let near = search(snapshot, first, Timestamp(until), last_only, is_it)?;
        let record = match near {
            Some(record) => Some(record),
            // Clocks were set: the whole log.
            None => search(snapshot, 1, Timestamp(u64::MAX), last_only, is_it)?,
        };
        record.ok_or_else(|| {
            ArchiveError::NoSuchThing(format!(
                "the audit log has no record of how `{}/{key}` version {id} was stored: a rebuild of the catalog lost it",
                bucket.name()
            ))
        })
    }
}

/// SHA-256 of the whole content in hexadecimal, if the client sent one.
pub(crate) fn whole_sha256(row: &VersionRow) -> Option<String> {
    let whole = row.checksums.iter().find(|sum| sum.algorithm == Algorithm::Sha256 && sum.parts.is_none());
    whole.map(|sum| to_hex(&sum.value))
}

/// The sizes of the parts over which the BLAKE3 is, of an object in parts.
pub(crate) fn parts_of(row: &VersionRow, snapshot: &dyn Snapshot) -> Result<Option<Vec<(u64, u64)>>> {
    if row.content != Content::Parts {
        return Ok(None);
    }
    let layout = fetch::<Layout>(snapshot, LAYOUTS, &keys::number(row.object))?;
    Ok(layout.map(|layout| runs_of(layout.parts.iter().map(|part| part.size))))
}

/// Sizes in order, as runs of equal ones.
fn runs_of(sizes: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for size in sizes {
        match runs.last_mut() {
            Some((same, count)) if *same == size => *count += 1,
            _ => runs.push((size, 1)),
        }
    }
    runs
}

/// The first record whose time is not before this one, if times only grow.
pub(crate) fn first_after(snapshot: &dyn Snapshot, length: u64, time: Timestamp) -> Result<u64> {
    let (mut low, mut high) = (1, length + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let row: Option<AuditRow> = fetch(snapshot, AUDIT, &keys::number(middle))?;
        match row.is_some_and(|row| row.time < time) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    Ok(low)
}

/// The first record from `from` on that is the one wanted, or the last one; none behind `until`.
fn search(
    snapshot: &dyn Snapshot,
    from: u64,
    until: Timestamp,
    last_only: bool,
    is_it: impl Fn(&AuditRow) -> bool,
) -> Result<Option<u64>> {
    let (mut next, mut known) = (from, None);
    loop {
        let page = snapshot.range(AUDIT, &KeyRange::all().from(keys::number(next)), PAGE, Direction::Forward)?;
        if page.is_empty() {
            return Ok(known);
        }
        for (key, value) in page {
            let number = number_of(&key);
            let row: AuditRow = decode(AUDIT, &key, &value)?;
            if is_it(&row) {
                known = Some(number);
                if !last_only {
                    return Ok(known);
                }
            }
            if row.time > until {
                return Ok(known);
            }
            next = number + 1;
        }
    }
}
