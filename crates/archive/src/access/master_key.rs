//! The master key in escrow: its export, and the verification of an escrowed copy.

use std::sync::Arc;

use stele_catalog::Transaction;
use zeroize::Zeroizing;

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::error::Result;
use crate::model::principal::{Caller, Role};
use crate::model::secrets::MasterKey;
use crate::space::superblock::Superblock;
use crate::state::buckets::Bucket;
use crate::store::Archive;

impl Archive {
    /// The text of the master key for escrow. The audit record is durable before the text is handed out.
    pub async fn export_master_key(&self, caller: &Caller) -> Result<Zeroizing<String>> {
        let store = &self.store();
        let allowed = caller.require_role(&[Role::StorageAdministrator], Action::ExportMasterKey);
        store.audited(allowed, || Event::new(caller, Action::ExportMasterKey)).await?;
        let event = Event::new(caller, Action::ExportMasterKey).detail("handed out for escrow".into());
        store.record(Transaction::new().with_reserve(), event).await?;
        Ok(store.master().to_text())
    }

    /// Whether a key, for instance an escrowed copy, opens this store: it unwraps every bucket key.
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
