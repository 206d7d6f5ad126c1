//! The number, key slot and key of an object.

use std::sync::Arc;

use crate::model::error::{ArchiveError, Result};
use crate::model::secrets::CustomerKey;
use crate::seal::{SealingKey, Secret, WRAPPED, derive, random_secret};
use crate::space::keytable::{Changed, Entry, Slot};
use crate::space::segments::Writing;
use crate::state::buckets::Bucket;
use crate::store::Store;

/// The number, key and slot of a new object. If it is dropped without `keep`, the slot's entry is
/// destroyed and the slot is free again.
pub(crate) struct Lease {
    store: Arc<Store>,
    pub object: u64,
    pub slot: Slot,
    pub key: Secret,
    wrapped: [u8; WRAPPED],
    written: bool,
    kept: bool,
    /// Keeps reclamation away from the records being written, until the commit has answered.
    pub writing: Arc<Writing>,
}

impl Lease {
    pub async fn new(store: &Arc<Store>, bucket: &Bucket, customer: Option<&CustomerKey>) -> Result<Lease> {
        let writing = store.segments().begin();
        let object = store.numbers().next().await?;
        let slot = store.keys().take(false).await?;
        let key = random_secret(store.surroundings());
        let bound = key_bound(object, slot.number);
        let wrapped = match customer {
            None => bucket.wrap.wrap(store.surroundings(), &bound, &key),
            Some(customer) => customer_wrap(bucket, customer).wrap(store.surroundings(), &bound, &key),
        };
        Ok(Lease { store: Arc::clone(store), object, slot, key, wrapped, written: false, kept: false, writing })
    }

    /// For a delete marker: a slot without a key. It may use the reserve.
    pub async fn marker(store: &Arc<Store>) -> Result<Lease> {
        let writing = store.segments().begin();
        let object = store.numbers().next().await?;
        let slot = store.keys().take(true).await?;
        let (key, wrapped) = (Secret::default(), [0; WRAPPED]);
        Ok(Lease { store: Arc::clone(store), object, slot, key, wrapped, written: false, kept: false, writing })
    }

    /// The slot of an upload. Its entry is in use already and stays, whatever the outcome of the
    /// completion.
    pub fn settled(store: &Arc<Store>, object: u64, slot: u64) -> Lease {
        let slot = Slot { number: slot, used: false };
        let (key, wrapped) = (Secret::default(), [0; WRAPPED]);
        let writing = store.segments().begin();
        Lease { store: Arc::clone(store), object, slot, key, wrapped, written: true, kept: true, writing }
    }

    /// Starts writing the entry.
    pub fn write(&mut self, bucket: &Bucket) -> Changed {
        self.written = true;
        let entry = Entry { object: self.object, bucket: bucket.number, wrapped: self.wrapped };
        self.store.keys().write(self.slot.number, &entry)
    }

    /// Keeps the slot, since the catalog refers to it now.
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        match self.written {
            true => self.store.keys().release(self.slot.number, self.object),
            false => self.store.keys().offer([self.slot.number]),
        }
    }
}

/// The bytes that a wrapped object key is bound to.
pub(crate) fn key_bound(object: u64, slot: u64) -> [u8; 16] {
    let mut bound = [0; 16];
    bound[..8].copy_from_slice(&object.to_be_bytes());
    bound[8..].copy_from_slice(&slot.to_be_bytes());
    bound
}

/// The key that wraps an object's key under both the bucket's and the customer's key.
pub(crate) fn customer_wrap(bucket: &Bucket, customer: &CustomerKey) -> SealingKey {
    SealingKey::new(&derive(&bucket.key, "customer", customer.0.as_ref()))
}

impl Store {
    /// The key of an object, from memory or unwrapped from its entry. The caller has recognised the
    /// customer's key.
    pub async fn object_key(
        &self,
        bucket: &Bucket,
        object: u64,
        slot: u64,
        customer: Option<&CustomerKey>,
        whose: impl Fn() -> String,
    ) -> Result<Arc<Secret>> {
        if let Some(key) = self.caches().object_key(object) {
            return Ok(key);
        }
        let place = || format!("the key of {}", whose());
        let entry = self.keys().read(slot).await.map_err(|error| match error {
            ArchiveError::Damaged { message, .. } => {
                ArchiveError::damaged(place(), format!("key slot {slot} cannot be read: {message}"))
            }
            other => other,
        })?;
        let entry = entry
            .filter(|entry| entry.object == object && entry.bucket == bucket.number)
            .ok_or_else(|| ArchiveError::damaged(place(), format!("key slot {slot} does not hold it")))?;
        let bound = key_bound(object, slot);
        let key = match customer {
            None => bucket.wrap.unwrap(&bound, &entry.wrapped),
            Some(customer) => customer_wrap(bucket, customer).unwrap(&bound, &entry.wrapped),
        };
        let key = Arc::new(key.map_err(|_| ArchiveError::damaged(place(), "it does not unwrap"))?);
        self.caches().keep_object_key(object, Arc::clone(&key));
        Ok(key)
    }
}
