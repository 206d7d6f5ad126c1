//! Changes that were noted and then refused.
//!
//! A change is noted on the data volume before it is committed, and a rebuild of the catalog takes the newest note of each
//! thing. So where the catalog refuses the commit, the thing is noted again as it stands, before the refusal is answered:
//! otherwise a rebuild would find the change. What cannot be noted just then is noted by background work.
//!
//! Failure model: a crash between a note and its commit leaves the change in doubt, as it was for whoever asked for it.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;

use stele_catalog::{CatalogError, Transaction};

use crate::error::Result;
use crate::lookup;
use crate::record::access_key::AccessKeyRow;
use crate::record::version::VersionRef;
use crate::record::{ACCESS_KEYS, BUCKETS, fetch, keys};
use crate::store::{Store, locked};

/// Whose newest note may say what was refused.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Doubted {
    Version(VersionRef),
    Bucket(u32),
    AccessKey(String),
}

impl Store {
    /// To be called with the answer to the commit of a change that was noted, when its lock is free again.
    pub async fn noted<T>(self: &Arc<Store>, what: Doubted, answer: std::result::Result<T, CatalogError>) -> Result<T> {
        // Of a catalog that has stopped it is not known what it refused.
        if let Err(error) = &answer
            && !matches!(error, CatalogError::Stopped(_))
        {
            locked(&self.work.doubted).insert(what);
            if let Err(failure) = self.restate().await {
                tracing::warn!("a refused change is still noted on the data volume, to be tried again: {failure}");
            }
        }
        Ok(answer?)
    }

    /// Notes as it stands whatever is in doubt. Dropping this midway loses nothing.
    pub fn restate(self: &Arc<Store>) -> Pin<Box<dyn Future<Output = Result<()>> + Send + '_>> {
        Box::pin(async move {
            let doubted: BTreeSet<Doubted> = locked(&self.work.doubted).clone();
            for what in doubted {
                match &what {
                    Doubted::Version(at) => self.restate_version(at).await?,
                    Doubted::Bucket(number) => self.restate_bucket(*number).await?,
                    Doubted::AccessKey(id) => self.restate_access_key(id).await?,
                }
                locked(&self.work.doubted).remove(&what);
            }
            Ok(())
        })
    }

    async fn restate_version(self: &Arc<Store>, at: &VersionRef) -> Result<()> {
        let Some(bucket) = self.buckets.by_number(at.bucket) else { return Ok(()) };
        let lock = self.lock(at.bucket, &at.key).await?;
        let Some(found) = lookup::referred(&*self.snapshot()?, at)? else { return Ok(()) };
        self.write_version_anew(&bucket, &at.key, &found, lock, None, |_| ()).await??;
        Ok(())
    }

    async fn restate_bucket(self: &Arc<Store>, number: u32) -> Result<()> {
        let lock = self.lock(0, "").await?;
        let Some(bucket) = self.buckets.by_number(number) else { return Ok(()) };
        let unchanged = Transaction::new().with_reserve().equals(BUCKETS, keys::short(number), bucket.raw.clone());
        self.write_bucket(number, bucket.row.clone(), unchanged, None, lock).await??;
        Ok(())
    }

    async fn restate_access_key(self: &Arc<Store>, id: &str) -> Result<()> {
        let lock = self.lock(0, id).await?;
        let snapshot = self.snapshot()?;
        let Some(raw) = snapshot.get(ACCESS_KEYS, id.as_bytes())? else { return Ok(()) };
        let Some(row) = fetch::<AccessKeyRow>(&*snapshot, ACCESS_KEYS, id.as_bytes())? else { return Ok(()) };
        let unchanged = Transaction::new().with_reserve().equals(ACCESS_KEYS, id.to_string(), raw);
        self.write_access_key(id, row, unchanged, None, lock).await??;
        Ok(())
    }
}
