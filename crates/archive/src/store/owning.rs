//! Quotas of access keys, judged in the transaction that stores.

use stele_catalog::{Snapshot, Transaction};

use crate::model::bucket::Quota;
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::Actor;
use crate::record::access_key::AccessKeyRow;
use crate::record::{ACCESS_KEYS, fetch};
use crate::state::owned::{Limited, OwnedChange, owned, owner_in_words};
use crate::store::Store;

impl Store {
    /// Requires that the owner's quota has room for a change.
    pub(crate) fn limit_owned(&self, transaction: Transaction, owner: &Actor, change: OwnedChange) -> Result<Limited> {
        match owner {
            Actor::Key(id) if change.versions > 0 || change.bytes > 0 => {
                let quota = key_quota(&*self.snapshot()?, id)?;
                Ok(Limited::new(transaction, quota).room_for(id, change))
            }
            _ => Ok(Limited::new(transaction, Quota::default())),
        }
    }

    /// Refuses an addition of bytes for which the owner's quota has no room now, before its body
    /// comes.
    pub(crate) fn has_owned_room(&self, snapshot: &dyn Snapshot, owner: &Actor, bytes: i64) -> Result<()> {
        let Actor::Key(id) = owner else { return Ok(()) };
        let Some(limit) = key_quota(snapshot, id)?.bytes.filter(|_| bytes > 0) else { return Ok(()) };
        let there = i64::try_from(owned(snapshot, id)?.bytes).unwrap_or(i64::MAX);
        match there.saturating_add(bytes) > i64::try_from(limit).unwrap_or(i64::MAX) {
            true => Err(ArchiveError::QuotaExceeded { of: owner_in_words(owner), limit: format!("{limit} bytes") }),
            false => Ok(()),
        }
    }
}

fn key_quota(snapshot: &dyn Snapshot, id: &str) -> Result<Quota> {
    let row: Option<AccessKeyRow> = fetch(snapshot, ACCESS_KEYS, id.as_bytes())?;
    Ok(row.and_then(|row| row.quota).unwrap_or_default())
}
