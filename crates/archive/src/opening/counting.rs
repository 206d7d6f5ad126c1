//! Counting the parts of unfinished uploads where the catalog does not count them yet.
//!
//! Earlier versions counted bytes of versions alone. They do not know the counters that quotas are compared with, and
//! leave them as they are. They also write the identity without the field that says that parts are counted. So this
//! phase counts anew at the first opening after any of them had the store open.
//!
//! Crash points: the counters are written, and the identity does not say so yet. The next opening writes them again.

use bytes::Bytes;
use stele_catalog::Transaction;

use crate::model::error::Result;
use crate::record::USAGE;
use crate::record::settings::IdentityRow;
use crate::state::usage::Counter;
use crate::store::Store;
use crate::store::uploads::parts_of_bucket;

/// Buckets in one transaction.
const BATCH: usize = 1000;

impl Store {
    /// Sets the counters from the rows of the unfinished uploads. Nothing is served yet, so nothing changes meanwhile.
    /// The caller writes the identity.
    pub(super) async fn count_parts(&self, identity: &mut IdentityRow) -> Result<()> {
        if identity.parts_counted == Some(true) {
            return Ok(());
        }
        let snapshot = self.snapshot()?;
        for buckets in self.buckets().all().chunks(BATCH) {
            let mut transaction = Transaction::new().with_reserve();
            for bucket in buckets {
                let parts = parts_of_bucket(&*snapshot, bucket)?;
                let held = bucket.counts(&*snapshot)?.bytes + parts.clients;
                let value = |count: i64| Bytes::copy_from_slice(&count.to_be_bytes());
                transaction = transaction.put(USAGE, Counter::Held.key(bucket.number), value(held)).put(
                    USAGE,
                    Counter::Gateway.key(bucket.number),
                    value(parts.gateway),
                );
            }
            self.catalog().commit(transaction).await?;
        }
        identity.parts_counted = Some(true);
        Ok(())
    }
}
