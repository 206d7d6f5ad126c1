//! The counts of a bucket, and what its quota is compared with.
//!
//! Each count is a counter in the catalog. It changes in the transaction that changes what it
//! counts, so it cannot drift from the rows:
//!
//! | counter | counts |
//! | --- | --- |
//! | `v` | versions, delete markers included |
//! | `b` | bytes of versions |
//! | `q` | bytes of versions, and of parts that clients stored and whose uploads are not finished |
//! | `g` | bytes of parts that the file gateway stored by itself and whose uploads are not finished |
//!
//! The quota in bytes is compared with `q`. A client's upload keeps its room until it ends. The
//! gateway's own upload takes the place of the file's former version, and is judged as that one
//! whole. Counted like a client's, a large file at a nearly full quota could never be archived
//! again.
//!
//! `b` alone means what it meant before parts were counted. A binary of that time goes on to count
//! it, and knows nothing of `q` and `g`. See `opening/counting.rs`.

use bytes::Bytes;
use stele_catalog::transaction::counter;
use stele_catalog::{Snapshot, Transaction};

use crate::model::error::{ArchiveError, Result};
use crate::record::USAGE;
use crate::record::upload::is_clients_key;
use crate::state::buckets::Bucket;

/// One counter of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counter {
    Versions,
    Bytes,
    /// What the quota in bytes is compared with.
    Held,
    /// Parts of the gateway's own uploads.
    Gateway,
}

/// The counts of a bucket, as the catalog has them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct BucketCounts {
    pub versions: i64,
    pub bytes: i64,
    pub held: i64,
    pub gateway: i64,
}

/// The bytes that a part adds to a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PartCharge {
    /// What they count to: `Held` or `Gateway`.
    pub counter: Counter,
    /// Bytes of the part, less those of the one that it replaces.
    pub added: i64,
    /// What the quota must have room for.
    pub judged: i64,
}

impl Counter {
    pub fn key(self, bucket: u32) -> Bytes {
        let letter = match self {
            Counter::Versions => b'v',
            Counter::Bytes => b'b',
            Counter::Held => b'q',
            Counter::Gateway => b'g',
        };
        let mut key = bucket.to_be_bytes().to_vec();
        key.push(letter);
        key.into()
    }
}

impl BucketCounts {
    /// Bytes of parts whose uploads are not finished.
    pub fn unfinished(&self) -> i64 {
        self.held - self.bytes + self.gateway
    }
}

impl Bucket {
    pub fn counts(&self, snapshot: &dyn Snapshot) -> Result<BucketCounts> {
        let count =
            |which: Counter| -> Result<i64> { Ok(counter(snapshot.get(USAGE, &which.key(self.number))?.as_deref())?) };
        Ok(BucketCounts {
            versions: count(Counter::Versions)?,
            bytes: count(Counter::Bytes)?,
            held: count(Counter::Held)?,
            gateway: count(Counter::Gateway)?,
        })
    }

    /// Adds a change of versions and of their bytes. Additions stay within the quota.
    pub fn count(&self, transaction: Transaction, versions: i64, bytes: i64) -> Transaction {
        self.count_against(Counter::Held, transaction, versions, bytes)
    }

    /// As `count`, of a version whose bytes are compared with another counter: those of an upload
    /// are counted already.
    pub fn count_against(
        &self,
        compared: Counter,
        mut transaction: Transaction,
        versions: i64,
        bytes: i64,
    ) -> Transaction {
        let quota = self.row.quota;
        transaction = self.limited(transaction, Counter::Versions, versions, quota.versions);
        transaction = self.limited(transaction, compared, bytes, quota.bytes);
        self.count_beyond(transaction, versions, bytes)
    }

    /// As `count`, also beyond the quota.
    pub fn count_beyond(&self, mut transaction: Transaction, versions: i64, bytes: i64) -> Transaction {
        for (which, amount) in [(Counter::Versions, versions), (Counter::Bytes, bytes), (Counter::Held, bytes)] {
            transaction = self.add(transaction, which, amount);
        }
        transaction
    }

    /// Adds the bytes of a part, within the quota. Only `Store::with_part` counts parts in.
    pub fn count_part(&self, transaction: Transaction, charge: PartCharge) -> Transaction {
        let transaction = self.limited(transaction, Counter::Held, charge.judged, self.row.quota.bytes);
        self.add(transaction, charge.counter, charge.added)
    }

    /// Takes the bytes of all parts of an upload out. Only `Store::without_upload` counts parts
    /// out.
    pub fn count_parts_out(&self, transaction: Transaction, which: Counter, bytes: i64) -> Transaction {
        self.add(transaction, which, -bytes)
    }

    /// Refuses a part for which the quota has no room now, before its body comes.
    pub fn has_room_for(&self, snapshot: &dyn Snapshot, charge: PartCharge) -> Result<()> {
        let Some(limit) = self.row.quota.bytes.filter(|_| charge.judged > 0) else { return Ok(()) };
        match self.counts(snapshot)?.held.saturating_add(charge.judged) > i64::try_from(limit).unwrap_or(i64::MAX) {
            true => Err(self.over_quota(Counter::Held)),
            false => Ok(()),
        }
    }

    /// The refusal where the quota with which this counter is compared has no room.
    pub fn over_quota(&self, counter: Counter) -> ArchiveError {
        let quota = self.row.quota;
        let limit = match counter {
            Counter::Versions => format!("{} versions", quota.versions.unwrap_or_default()),
            Counter::Bytes | Counter::Held | Counter::Gateway => format!("{} bytes", quota.bytes.unwrap_or_default()),
        };
        ArchiveError::QuotaExceeded { of: format!("bucket `{}`", self.name()), limit }
    }

    /// The gateway itself stores this upload, of a file that it archives. S3 clients of a share
    /// have other keys.
    pub fn is_gateways(&self, key: &str) -> bool {
        self.row.is_share() && !is_clients_key(key)
    }

    /// The counter of the parts of an upload.
    pub fn counter_of_parts(&self, key: &str) -> Counter {
        match self.is_gateways(key) {
            true => Counter::Gateway,
            false => Counter::Held,
        }
    }

    fn limited(&self, transaction: Transaction, which: Counter, amount: i64, limit: Option<u64>) -> Transaction {
        let Some(limit) = limit.filter(|_| amount > 0) else { return transaction };
        let most = i64::try_from(limit).unwrap_or(i64::MAX).saturating_sub(amount);
        transaction.within(USAGE, which.key(self.number), i64::MIN, most)
    }

    fn add(&self, transaction: Transaction, which: Counter, amount: i64) -> Transaction {
        match amount {
            0 => transaction,
            _ => transaction.add(USAGE, which.key(self.number), amount),
        }
    }
}
