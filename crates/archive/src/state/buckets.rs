//! The buckets, kept in memory as their rows stand in the catalog, with their keys unwrapped.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use bytes::Bytes;
use stele_catalog::Transaction;

use crate::model::bucket::Versioning;
use crate::model::error::{ArchiveError, Result};
use crate::model::policy::Policy;
use crate::model::principal::{Access, Caller};
use crate::model::secrets::MasterKey;
use crate::record::bucket::BucketRow;
use crate::record::{BUCKETS, decode, keys};
use crate::seal::{SealingKey, Secret, derive, wrong_key};

/// A bucket as its row stands, with its keys unwrapped.
pub(crate) struct Bucket {
    pub number: u32,
    pub row: BucketRow,
    /// The row as stored.
    pub raw: Bytes,
    pub key: Secret,
    /// Seals the notes of its versions.
    pub note_key: Secret,
    /// Wraps the keys of its objects.
    pub wrap: SealingKey,
    pub policy: Policing,
}

/// The bucket's policy in a form that can be asked.
pub(crate) enum Policing {
    None,
    Policy(Policy),
    /// The stored policy cannot be read by this version. It denies everything until it is replaced.
    Unreadable,
}

#[derive(Default)]
pub(crate) struct Buckets(RwLock<Known>);

#[derive(Default)]
struct Known {
    /// Without deleted buckets.
    by_name: BTreeMap<String, Arc<Bucket>>,
    /// With deleted buckets.
    by_number: BTreeMap<u32, Arc<Bucket>>,
}

impl Bucket {
    pub fn open(master: &MasterKey, number: u32, row: BucketRow, raw: Bytes) -> Result<Bucket> {
        let key = SealingKey::new(&derive(&master.0, "buckets", &[]))
            .unwrap(&number.to_be_bytes(), &row.wrapped)
            .map_err(|_| wrong_key(&format!("the key of bucket `{}`", row.name)))?;
        let note_key = derive(&key, "notes", &[]);
        let wrap = SealingKey::new(&derive(&key, "objects", &[]));
        let policy = match row.policy.as_deref().map(|policy| Policy::parse(&row.name, policy)) {
            None => Policing::None,
            Some(Ok(policy)) => Policing::Policy(policy),
            Some(Err(reason)) => {
                tracing::error!(
                    "the policy of bucket `{}` denies everything, since it cannot be read: {reason}",
                    row.name
                );
                Policing::Unreadable
            }
        };
        Ok(Bucket { number, row, raw, key, note_key, wrap, policy })
    }

    pub fn name(&self) -> &str {
        &self.row.name
    }

    pub fn versioned(&self) -> bool {
        self.row.versioning == Versioning::Enabled
    }

    /// Makes a transaction require the bucket's settings as they are here.
    pub fn unchanged(&self, transaction: Transaction) -> Transaction {
        transaction.equals(BUCKETS, keys::short(self.number), self.raw.clone())
    }
}

impl Bucket {
    /// Refuses a share to every caller but the file gateway: only the gateway keeps its tree and
    /// its objects in step.
    pub fn reached_through(&self, caller: &Caller) -> Result<()> {
        match self.row.is_share() && !caller.gateway {
            true => Err(ArchiveError::InvalidState(format!(
                "bucket `{}` is a share; its files are reached through the file gateway alone, and the share is not open here",
                self.name()
            ))),
            false => Ok(()),
        }
    }

    /// Refuses to delete a share as a bucket, whether it is open or not: its tree goes with it.
    pub fn deleted_through(&self, caller: &Caller) -> Result<()> {
        match self.row.is_share() && !caller.gateway {
            true => Err(ArchiveError::InvalidState(format!(
                "bucket `{name}` is a share, and is not deleted as a bucket; `stele share remove {name}` removes it",
                name = self.name()
            ))),
            false => Ok(()),
        }
    }

    /// Refuses unless the caller's grants or the bucket's anonymous access allow it.
    pub fn authorize(&self, caller: &Caller, access: Access, prefix: &str) -> Result<()> {
        use crate::model::bucket::AnonymousAccess::{Read, ReadAndList};
        let open =
            matches!((access, self.row.anonymous), (Access::Read, Read | ReadAndList) | (Access::List, ReadAndList));
        let ignored = self.row.access_block.is_some_and(|block| block.ignore_acls);
        if (open && !ignored) || caller.granted(access, self.name(), prefix) {
            return Ok(());
        }
        Err(ArchiveError::Denied(format!(
            "{} may not {} `{}/{prefix}`: no grant covers it",
            caller.actor,
            format!("{access:?}").to_lowercase(),
            self.name()
        )))
    }
}

impl Buckets {
    fn read(&self) -> std::sync::RwLockReadGuard<'_, Known> {
        self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub fn load(&self, master: &MasterKey, key: &[u8], value: &[u8]) -> Result<()> {
        let row: BucketRow = decode(BUCKETS, key, value)?;
        let number = key.try_into().map(u32::from_be_bytes).unwrap_or_default();
        self.insert(Bucket::open(master, number, row, Bytes::copy_from_slice(value))?);
        Ok(())
    }

    pub fn insert(&self, bucket: Bucket) -> Arc<Bucket> {
        let bucket = Arc::new(bucket);
        let mut known = self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if bucket.row.deleted.is_some() {
            known.by_name.retain(|_, other| other.number != bucket.number);
        } else {
            known.by_name.insert(bucket.row.name.clone(), Arc::clone(&bucket));
        }
        known.by_number.insert(bucket.number, Arc::clone(&bucket));
        bucket
    }

    pub fn by_name(&self, name: &str) -> Result<Arc<Bucket>> {
        self.read().by_name.get(name).cloned().ok_or_else(|| ArchiveError::NoSuchBucket(name.into()))
    }

    /// Deleted buckets too.
    pub fn by_number(&self, number: u32) -> Option<Arc<Bucket>> {
        self.read().by_number.get(&number).cloned()
    }

    pub fn all(&self) -> Vec<Arc<Bucket>> {
        self.read().by_name.values().cloned().collect()
    }

    pub fn even_deleted(&self) -> Vec<Arc<Bucket>> {
        self.read().by_number.values().cloned().collect()
    }

    /// `above`: buckets up to this number may exist that a rebuild did not find.
    pub fn next_number(&self, above: u32) -> u32 {
        self.read().by_number.keys().next_back().map_or(1, |last| last + 1).max(above.saturating_add(1))
    }
}
