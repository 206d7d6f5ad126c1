//! What expires when, and by which rule.

use stele_catalog::{Direction, KeyRange, Snapshot};

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::checksum::to_hex;
use crate::model::class::{Expiring, ExpiringQuery, action_word};
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::{Caller, Role};
use crate::model::time::Timestamp;
use crate::record::version::VersionRef;
use crate::record::{RETAINED, decode, keys};
use crate::retention::holding::page_after;
use crate::state::buckets::Bucket;
use crate::store::lookup::Found;
use crate::store::{Archive, Store, lookup};

/// Records per read; and how many one page looks at, where it names few of them.
const ROWS: usize = 1000;
const SEEN: usize = 10_000;

impl Archive {
    /// The versions whose retention ends in a period, page by page, in the order of their ends.
    pub async fn expiring(
        &self,
        caller: &Caller,
        query: &ExpiringQuery,
        after: Option<&str>,
    ) -> Result<(Vec<Expiring>, Option<String>)> {
        let store = &self.store();
        let allowed =
            caller.require_role(&[Role::RetentionOfficer, Role::Auditor, Role::StorageAdministrator], Action::List);
        store.audited(allowed, || Event::new(caller, Action::List)).await?;
        let only = store.asked_bucket(query)?;
        let mut after = page_after(after)?;
        let snapshot = store.snapshot()?;
        let (mut expiring, mut seen) = (Vec::new(), 0);
        while seen < SEEN && expiring.len() < ROWS {
            let range = match &after {
                Some(after) => period(query).after(after.clone()),
                None => period(query),
            };
            let rows = snapshot.range(RETAINED, &range, ROWS, Direction::Forward)?;
            seen += rows.len();
            after = rows.last().filter(|_| rows.len() == ROWS).map(|(key, _)| key.clone());
            for (record_key, value) in &rows {
                let at: VersionRef = decode(RETAINED, record_key, value)?;
                let elsewhere = only.is_some_and(|bucket| bucket != at.bucket);
                if elsewhere || !at.key.starts_with(query.prefix.as_str()) {
                    continue;
                }
                expiring.extend(store.expiring_version(&*snapshot, &at)?);
            }
            if after.is_none() {
                break;
            }
        }
        Ok((expiring, after.map(|key| to_hex(&key))))
    }
}

impl Store {
    /// The number of the bucket to which the query is limited.
    fn asked_bucket(&self, query: &ExpiringQuery) -> Result<Option<u32>> {
        if let Some(from) = query.from.filter(|from| *from >= query.before) {
            let message = format!("no retention ends from {from} on and before {}", query.before);
            return Err(ArchiveError::InvalidArgument(message));
        }
        match &query.bucket {
            None if !query.prefix.is_empty() => {
                Err(ArchiveError::InvalidArgument("a prefix is one of keys of a bucket: name the bucket too".into()))
            }
            None => Ok(None),
            Some(name) => {
                let bucket = self.buckets().by_name(name)?;
                self.check_prefix(&bucket, &query.prefix)?;
                Ok(Some(bucket.number))
            }
        }
    }

    fn expiring_version(&self, snapshot: &dyn Snapshot, at: &VersionRef) -> Result<Option<Expiring>> {
        let Some(bucket) = self.buckets().by_number(at.bucket) else { return Ok(None) };
        let Some(found) = lookup::referred(snapshot, at)? else { return Ok(None) };
        Ok(shown(&bucket, &at.key, &found))
    }
}

/// The records of retentions that end in the period.
fn period(query: &ExpiringQuery) -> KeyRange {
    let range = KeyRange::all().below(keys::numbers(query.before.0.min(Timestamp::LATEST.0), 0));
    match query.from {
        Some(from) => range.from(keys::numbers(from.0, 0)),
        None => range,
    }
}

fn shown(bucket: &Bucket, key: &str, found: &Found) -> Option<Expiring> {
    let retention = found.row.retention?;
    let rule = match &found.row.class {
        Some(mark) => format!("class `{}`, version {}: {}", mark.name, mark.version, mark.terms),
        None => format!("{} retention of the version", retention.mode),
    };
    Some(Expiring {
        bucket: bucket.name().to_string(),
        key: key.into(),
        version: found.id().to_string(),
        until: retention.until.to_string(),
        rule,
        action: action_word(found.row.expiry(&bucket.row)).into(),
        matters: found.row.matters().map(str::to_string).collect(),
    })
}
