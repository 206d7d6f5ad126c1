//! Compensating notes: for changes that were noted and then refused.
//!
//! A change is noted on the data volume before it is committed, and a rebuild of the catalog takes the newest note of each
//! thing. Where the catalog refuses the commit, a compensating note states the thing as it is in the catalog, before the
//! refusal is answered. Otherwise a rebuild would find the refused change. Background work writes the compensating notes
//! that could not be written then.
//!
//! Failure model: a crash between a note and its commit leaves open whether the change took place, as it does for the client
//! that asked for it.

use std::pin::Pin;
use std::sync::Arc;

use stele_catalog::{CatalogError, Transaction};

use crate::model::error::Result;
use crate::record::access_key::AccessKeyRow;
use crate::record::class::ClassRow;
use crate::record::matter::MatterRow;
use crate::record::upload::UploadRow;
use crate::record::version::{VersionNote, VersionRef};
use crate::record::{ACCESS_KEYS, BUCKETS, CLASSES, MATTERS, UPLOADS, fetch, keys};
use crate::space::header::Kind;
use crate::state::compensations::NoteSubject;
use crate::store::{Store, lookup};

/// A change that is about to be noted. Unless it took place, a compensating note is due: also where its request goes away.
pub(crate) struct Noting<'a> {
    store: &'a Arc<Store>,
    subject: Option<NoteSubject>,
}

impl<'a> Noting<'a> {
    pub fn new(store: &'a Arc<Store>, subject: NoteSubject) -> Noting<'a> {
        Noting { store, subject: Some(subject) }
    }

    /// Passes on the outcome of the change. A refusal is compensated first. The caller has given the lock of the change
    /// back.
    pub async fn ended<T>(mut self, outcome: Result<T>) -> Result<T> {
        if outcome.is_ok() {
            self.subject = None;
            return outcome;
        }
        let store = self.store;
        drop(self);
        if let Err(failure) = store.compensate().await {
            tracing::warn!("a refused change is still noted on the data volume, to be tried again: {failure}");
        }
        outcome
    }
}

impl Drop for Noting<'_> {
    fn drop(&mut self) {
        if let Some(subject) = self.subject.take() {
            self.store.compensations().add(subject);
        }
    }
}

impl Store {
    /// Passes on the answer to the commit of a change that was noted. A refusal is compensated first. The caller has given
    /// the lock of the change back.
    pub async fn compensated<T>(
        self: &Arc<Store>,
        subject: NoteSubject,
        answer: std::result::Result<T, CatalogError>,
    ) -> Result<T> {
        // A catalog that has stopped does not say which commits it refused.
        if let Err(error) = &answer
            && !matches!(error, CatalogError::Stopped(_))
        {
            self.compensations().add(subject);
            if let Err(failure) = self.compensate().await {
                tracing::warn!("a refused change is still noted on the data volume, to be tried again: {failure}");
            }
        }
        Ok(answer?)
    }

    /// Writes every compensating note that is due. Dropping this midway loses nothing.
    pub fn compensate(self: &Arc<Store>) -> Pin<Box<dyn Future<Output = Result<()>> + Send + '_>> {
        Box::pin(async move {
            for subject in self.compensations().all() {
                match &subject {
                    NoteSubject::Version(at) => self.compensate_version(at).await?,
                    NoteSubject::Bucket(number) => self.compensate_bucket(*number).await?,
                    NoteSubject::AccessKey(id) => self.compensate_access_key(id).await?,
                    NoteSubject::Matter(name) => self.compensate_matter(name).await?,
                    NoteSubject::Class(name) => self.compensate_class(name).await?,
                    NoteSubject::Upload(at) => self.compensate_upload(at).await?,
                }
                self.compensations().remove(&subject);
            }
            Ok(())
        })
    }

    async fn compensate_version(self: &Arc<Store>, at: &VersionRef) -> Result<()> {
        let Some(bucket) = self.buckets().by_number(at.bucket) else { return Ok(()) };
        let lock = self.lock(at.bucket, &at.key).await?;
        let Some(found) = lookup::referred(&*self.snapshot()?, at)? else { return Ok(()) };
        self.write_version_anew(&bucket, &at.key, &found, lock, None, |_| ()).await??;
        Ok(())
    }

    /// A completion is noted as a version of the upload's object. Where the upload goes on, a later note takes that back.
    async fn compensate_upload(self: &Arc<Store>, at: &VersionRef) -> Result<()> {
        let Some(bucket) = self.buckets().by_number(at.bucket) else { return Ok(()) };
        let _lock = self.lock(at.bucket, &at.key).await?;
        let key = keys::upload(at.bucket, &at.key, at.number);
        let Some(upload) = fetch::<UploadRow>(&*self.snapshot()?, UPLOADS, &key)? else { return Ok(()) };
        let note = VersionNote::taken_back(upload.object, upload.slot, upload.owner, self.wall());
        self.note(Kind::Version, Some(&bucket), upload.object, &note).await.map(drop)
    }

    async fn compensate_bucket(self: &Arc<Store>, number: u32) -> Result<()> {
        let lock = self.lock(0, "").await?;
        let Some(bucket) = self.buckets().by_number(number) else { return Ok(()) };
        let unchanged = Transaction::new().with_reserve().equals(BUCKETS, keys::short(number), bucket.raw.clone());
        self.write_bucket(number, bucket.row.clone(), unchanged, None, lock).await??;
        Ok(())
    }

    async fn compensate_matter(self: &Arc<Store>, name: &str) -> Result<()> {
        let lock = self.lock_matter(name).await?;
        let snapshot = self.snapshot()?;
        let Some(raw) = snapshot.get(MATTERS, name.as_bytes())? else { return Ok(()) };
        let Some(row) = fetch::<MatterRow>(&*snapshot, MATTERS, name.as_bytes())? else { return Ok(()) };
        let unchanged = Transaction::new().with_reserve().equals(MATTERS, name.to_string(), raw);
        self.write_matter(name, row, unchanged, None, lock).await??;
        Ok(())
    }

    async fn compensate_class(self: &Arc<Store>, name: &str) -> Result<()> {
        let lock = self.lock_class(name).await?;
        let snapshot = self.snapshot()?;
        let Some(raw) = snapshot.get(CLASSES, name.as_bytes())? else { return Ok(()) };
        let Some(row) = fetch::<ClassRow>(&*snapshot, CLASSES, name.as_bytes())? else { return Ok(()) };
        let unchanged = Transaction::new().with_reserve().equals(CLASSES, name.to_string(), raw);
        self.write_class(name, row, unchanged, None, lock).await??;
        Ok(())
    }

    async fn compensate_access_key(self: &Arc<Store>, id: &str) -> Result<()> {
        let lock = self.lock(0, id).await?;
        let snapshot = self.snapshot()?;
        let Some(raw) = snapshot.get(ACCESS_KEYS, id.as_bytes())? else { return Ok(()) };
        let Some(row) = fetch::<AccessKeyRow>(&*snapshot, ACCESS_KEYS, id.as_bytes())? else { return Ok(()) };
        let unchanged = Transaction::new().with_reserve().equals(ACCESS_KEYS, id.to_string(), raw);
        self.write_access_key(id, row, unchanged, None, lock).await??;
        Ok(())
    }
}
