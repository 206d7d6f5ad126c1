//! What each access key owns, over all buckets, and its quota.
//!
//! A key owns the versions that it stored, delete markers included, and the parts of the unfinished
//! uploads that it began. Each count is a counter in the catalog. It changes in the transaction
//! that changes what it counts, so it cannot drift from the rows:
//!
//! | counter | counts |
//! | --- | --- |
//! | `v` | versions |
//! | `b` | bytes of versions, and of parts whose uploads are not finished |
//!
//! Versions without an access key, as those of local users and of the file gateway, are in no
//! count. The quota is in the key's row. It limits additions alone: what is stored stays, and may
//! be deleted, whatever the quota. A write that is under way while the quota changes is judged by
//! either value.
//!
//! Earlier versions of Stele change no such counter: see `opening/counting.rs`.

use std::ops::Range;

use bytes::Bytes;
use stele_catalog::transaction::counter;
use stele_catalog::{Snapshot, Transaction};

use crate::model::bucket::Quota;
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::{Actor, Owned};
use crate::record::OWNED;

/// A change of what a key owns.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct OwnedChange {
    pub versions: i64,
    pub bytes: i64,
}

/// A transaction with the limits of a key, and where they stand in it.
pub(crate) struct Limited {
    pub transaction: Transaction,
    versions: Range<usize>,
    bytes: Range<usize>,
    quota: Quota,
}

impl OwnedChange {
    pub fn bytes(bytes: i64) -> OwnedChange {
        OwnedChange { versions: 0, bytes }
    }
}

fn key_of(id: &str, letter: u8) -> Bytes {
    let mut key = id.as_bytes().to_vec();
    key.extend([0, letter]);
    key.into()
}

/// The keys of a key's two counters: of versions, and of bytes.
pub(crate) fn counters(id: &str) -> [Bytes; 2] {
    [key_of(id, b'v'), key_of(id, b'b')]
}

/// What a key owns, as the catalog has it.
pub(crate) fn owned(snapshot: &dyn Snapshot, id: &str) -> Result<Owned> {
    let [versions, bytes] = counters(id);
    let count =
        |key: Bytes| -> Result<u64> { Ok(u64::try_from(counter(snapshot.get(OWNED, &key)?.as_deref())?).unwrap_or(0)) };
    Ok(Owned { versions: count(versions)?, bytes: count(bytes)? })
}

/// Counts a change of what an owner has, also beyond its quota.
pub(crate) fn count_owned(mut transaction: Transaction, owner: &Actor, change: OwnedChange) -> Transaction {
    let Actor::Key(id) = owner else { return transaction };
    for (key, amount) in counters(id).into_iter().zip([change.versions, change.bytes]) {
        if amount != 0 {
            transaction = transaction.add(OWNED, key, amount);
        }
    }
    transaction
}

impl Limited {
    /// Within this quota.
    pub fn new(transaction: Transaction, quota: Quota) -> Limited {
        let at = transaction.preconditions.len();
        Limited { transaction, versions: at..at, bytes: at..at, quota }
    }

    /// Requires that the quota has room for a change of what the key owns. What the change takes
    /// away is no addition.
    pub fn room_for(mut self, id: &str, change: OwnedChange) -> Limited {
        let [versions, bytes] = counters(id);
        self.versions = self.within(versions, change.versions, self.quota.versions);
        self.bytes = self.within(bytes, change.bytes, self.quota.bytes);
        self
    }

    /// The refusal, if one of these limits is the precondition that failed.
    pub fn refusal(&self, owner: &Actor, precondition: usize) -> Option<ArchiveError> {
        let limit = match precondition {
            at if self.versions.contains(&at) => format!("{} versions", self.quota.versions.unwrap_or_default()),
            at if self.bytes.contains(&at) => format!("{} bytes", self.quota.bytes.unwrap_or_default()),
            _ => return None,
        };
        Some(ArchiveError::QuotaExceeded { of: owner_in_words(owner), limit })
    }

    /// The transaction, and what tells a refusal later.
    pub fn take(&mut self) -> Transaction {
        std::mem::take(&mut self.transaction)
    }

    fn within(&mut self, key: Bytes, amount: i64, limit: Option<u64>) -> Range<usize> {
        let at = self.transaction.preconditions.len();
        let Some(limit) = limit.filter(|_| amount > 0) else { return at..at };
        let most = i64::try_from(limit).unwrap_or(i64::MAX).saturating_sub(amount);
        self.transaction = std::mem::take(&mut self.transaction).within(OWNED, key, i64::MIN, most);
        at..at + 1
    }
}

pub(crate) fn owner_in_words(owner: &Actor) -> String {
    match owner {
        Actor::Key(id) => format!("access key {id}"),
        other => other.to_string(),
    }
}
