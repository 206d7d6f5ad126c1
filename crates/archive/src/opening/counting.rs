//! Counting the parts of unfinished uploads, and what access keys own, where the catalog does not
//! count them yet.
//!
//! Earlier versions counted bytes of versions alone. They do not know the counters that quotas are
//! compared with, and leave them as they are. They also write the identity without the fields that
//! say that these are counted. So this phase counts anew at the first opening after any of them had
//! the store open. What keys own takes a walk over all versions.
//!
//! Crash points: the counters are written, and the identity does not say so yet. The next opening
//! writes them again.

use std::collections::BTreeMap;

use bytes::Bytes;
use stele_catalog::{KeyRange, Transaction};

use crate::model::error::{ArchiveError, Result};
use crate::model::principal::Actor;
use crate::record::settings::IdentityRow;
use crate::record::upload::UploadRow;
use crate::record::version::VersionRow;
use crate::record::{OWNED, UPLOADS, USAGE, VERSIONS, decode};
use crate::state::owned::{OwnedChange, counters};
use crate::state::usage::Counter;
use crate::store::Store;
use crate::store::scan::Scan;
use crate::store::uploads::{part_rows, parts_of_bucket, size_of};

/// Buckets, and counters, in one transaction.
const BATCH: usize = 1000;

impl Store {
    /// Sets the counters from the rows of the unfinished uploads. Nothing is served yet, so nothing
    /// changes meanwhile. The caller writes the identity.
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

    /// The same for what access keys own, from the rows of the versions and of the unfinished
    /// uploads.
    pub(super) async fn count_owned(&self, identity: &mut IdentityRow) -> Result<()> {
        if identity.owned_counted == Some(true) {
            return Ok(());
        }
        let snapshot = self.snapshot()?;
        let mut owned: BTreeMap<String, OwnedChange> = BTreeMap::new();
        let mut add = |owner: Actor, versions: i64, bytes: i64| {
            if let Actor::Key(id) = owner {
                let sum = owned.entry(id).or_default();
                (sum.versions, sum.bytes) = (sum.versions + versions, sum.bytes + bytes);
            }
        };
        let mut versions = Scan::new(&*snapshot, VERSIONS, KeyRange::all());
        while let Some((key, value)) = versions.next()? {
            match decode::<VersionRow>(VERSIONS, &key, &value) {
                Ok(row) => add(row.owner, 1, row.size as i64),
                // Damage that reads and scrubs report. It counts nothing here.
                Err(error) => tracing::warn!("a version is not counted: {error}"),
            }
        }
        let mut uploads = Scan::new(&*snapshot, UPLOADS, KeyRange::all());
        while let Some((key, value)) = uploads.next()? {
            let rows = decode(UPLOADS, &key, &value)
                .and_then(|row: UploadRow| Ok((size_of(part_rows(&*snapshot, row.object)?.values()), row.owner)));
            match rows {
                Ok((bytes, owner)) => add(owner, 0, bytes),
                Err(error @ ArchiveError::Damaged { .. }) => tracing::warn!("an upload is not counted: {error}"),
                Err(error) => return Err(error),
            }
        }
        // Counters that an earlier session of this version left, of keys that own nothing any more.
        let mut transaction = Transaction::new().with_reserve();
        let mut stale = Scan::new(&*snapshot, OWNED, KeyRange::all());
        while let Some((key, _)) = stale.next()? {
            transaction = transaction.delete(OWNED, key);
        }
        for (id, change) in owned {
            for (key, count) in counters(&id).into_iter().zip([change.versions, change.bytes]) {
                transaction = transaction.put(OWNED, key, Bytes::copy_from_slice(&count.to_be_bytes()));
            }
            if transaction.mutations.len() >= BATCH {
                self.catalog().commit(std::mem::take(&mut transaction).with_reserve()).await?;
            }
        }
        self.catalog().commit(transaction.with_reserve()).await?;
        identity.owned_counted = Some(true);
        Ok(())
    }
}
