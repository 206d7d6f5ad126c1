//! The end of an access key, and its quota: stated when the key is made, and changed later by
//! `stele key set`.
//!
//! A key ends by [`crate::store::Store::key_now`], which a system clock that is set back does not
//! move back. One that was set forward while the store was open, and then back, does:
//! SEMANTICS/object.md says so. An ended key stays ended: it is not prolonged, and a new key takes
//! its place. An officer's key is not prolonged either, since the approval by which it came covers
//! the stated end alone.
//!
//! Failure model: an older version of Stele does not know the field, and would accept an ended key.
//! The format of the store is therefore raised before the first such key is stored. It does not
//! know quotas either, and lets a key own more; its next change of the key loses the quota. No
//! format is raised for that, since nothing stored is at risk.

use stele_catalog::Transaction;

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::bucket::Quota;
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::{AccessKeyInfo, Caller, Role};
use crate::model::time::Timestamp;
use crate::record::access_key::AccessKeyRow;
use crate::record::{ACCESS_KEYS, decode};
use crate::space::superblock::FORMAT;
use crate::state::owned::owned;
use crate::store::{Archive, Store};

/// How long an access key is valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyLife {
    /// Up to this moment.
    Until(Timestamp),
    /// For so many milliseconds from now on, by the clock that judges the key.
    For(u64),
    /// Without an end.
    Endless,
}

/// A change of a key; a field that is None changes nothing.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct KeyChange {
    pub life: Option<KeyLife>,
    /// The new limit of bytes; the inner None: no limit.
    pub quota_bytes: Option<Option<u64>>,
    pub quota_versions: Option<Option<u64>>,
}

/// A quota, for the audit log.
pub(super) fn quota_in_words(quota: Quota) -> String {
    let limit = |limit: Option<u64>| limit.map_or("none".to_string(), |limit| limit.to_string());
    format!("quota in bytes: {}, in versions: {}", limit(quota.bytes), limit(quota.versions))
}

impl Store {
    /// The end that a life of a key means now. Refuses an end that has come already.
    pub(super) fn end_of(&self, life: KeyLife) -> Result<Option<Timestamp>> {
        let now = self.key_now();
        let end = match life {
            KeyLife::Until(end) => end,
            KeyLife::For(span) => Timestamp(now.0.saturating_add(span)),
            KeyLife::Endless => return Ok(None),
        };
        if end <= now {
            return Err(ArchiveError::InvalidArgument(format!(
                "an access key cannot expire at {end}, since the latest clock that this store has seen shows {now}; \
                 `stele key revoke` ends a key at once"
            )));
        }
        if end > Timestamp::LATEST {
            return Err(ArchiveError::InvalidArgument(format!(
                "an access key expires at {} or before",
                Timestamp::LATEST
            )));
        }
        Ok(Some(end))
    }

    /// Raises the store's format, durably, before a key with an end is stored.
    pub(super) async fn raise_for_expiry(&self) -> Result<()> {
        self.witnessing().raise_format(FORMAT).await
    }
}

impl Archive {
    /// Sets the end of a key. An earlier end is always possible, as every reduction of rights is.
    pub async fn set_key_life(&self, caller: &Caller, id: &str, life: KeyLife) -> Result<AccessKeyInfo> {
        self.change_key(caller, id, KeyChange { life: Some(life), ..KeyChange::default() }).await
    }

    /// Changes the end of a key, its quota, or both at once.
    pub async fn change_key(&self, caller: &Caller, id: &str, change: KeyChange) -> Result<AccessKeyInfo> {
        let result = self.try_change_key(caller, id, change).await;
        let action = if change.life.is_some() { Action::NarrowAccessKey } else { Action::Administer };
        self.store().audited(result, || Event::new(caller, action).detail(format!("{id}: {change:?}"))).await
    }

    async fn try_change_key(&self, caller: &Caller, id: &str, change: KeyChange) -> Result<AccessKeyInfo> {
        let store = &self.store();
        store.writable()?;
        caller.require_role(&[Role::StorageAdministrator], Action::NarrowAccessKey)?;
        let lock = store.lock(0, id).await?;
        let missing = || ArchiveError::NoSuchAccessKey(id.into());
        let raw = store.snapshot()?.get(ACCESS_KEYS, id.as_bytes())?.ok_or_else(missing)?;
        let mut row: AccessKeyRow = decode(ACCESS_KEYS, id.as_bytes(), &raw)?;
        if row.revoked.is_some() {
            return Err(missing());
        }
        if row.is_expired(store.key_now()) {
            return Err(ArchiveError::Denied(format!("access key {id} has expired and stays so; create another key")));
        }
        let (mut action, mut detail) = (Action::Administer, id.to_string());
        if let Some(life) = change.life {
            let end = store.end_of(life)?;
            let order = |end: Option<Timestamp>| end.unwrap_or(Timestamp(u64::MAX));
            let later = order(end) > order(row.expires);
            if later && (row.rights.approves() || row.is_pending()) {
                return Err(ArchiveError::Denied(format!(
                    "access key {id} is a retention officer's: a later end takes a new key, which another officer approves"
                )));
            }
            let said = |end: Option<Timestamp>| end.map_or_else(|| "no end".to_string(), |end| end.to_string());
            detail = format!("{detail}: expires {}, before {}", said(end), said(row.expires));
            row.expires = end;
            if end.is_some() {
                store.raise_for_expiry().await?;
            }
            action = if later { Action::ProlongAccessKey } else { Action::NarrowAccessKey };
        }
        if change.quota_bytes.is_some() || change.quota_versions.is_some() {
            let before = row.quota.unwrap_or_default();
            let after = Quota {
                bytes: change.quota_bytes.unwrap_or(before.bytes),
                versions: change.quota_versions.unwrap_or(before.versions),
            };
            detail = format!("{detail}: {}, before {}", quota_in_words(after), quota_in_words(before));
            row.quota = (after != Quota::default()).then_some(after);
        }
        let info = row.info(id, store.key_now(), owned(&*store.snapshot()?, id)?);
        let event = Event::new(caller, action).detail(detail);
        let unchanged = Transaction::new().with_reserve().equals(ACCESS_KEYS, id.to_string(), raw);
        self.write_access_key(id, row, unchanged, event, lock).await?;
        Ok(info)
    }
}
