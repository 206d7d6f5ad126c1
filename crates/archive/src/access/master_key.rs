//! The verification of an exported copy of the master key.

use std::sync::Arc;

use crate::model::error::Result;
use crate::model::secrets::MasterKey;
use crate::space::superblock::Superblock;
use crate::state::buckets::Bucket;
use crate::store::Archive;

impl Archive {
    /// Whether a key, for instance an exported copy, opens this store: it unwraps every bucket key.
    pub async fn check_master_key(&self, key: &MasterKey) -> Result<bool> {
        let store = &self.store();
        let fits = |bucket: &Arc<Bucket>| {
            Bucket::open(key, bucket.number, bucket.row.clone(), bucket.raw.clone())
                .is_ok_and(|opened| *opened.key == *bucket.key)
        };
        let known = Superblock::read(store.volume()).await?.map(|superblock| superblock.fingerprint);
        Ok(known == Some(Superblock::fingerprint(key, store.id())) && store.buckets().even_deleted().iter().all(fits))
    }
}
