//! Compensating notes: for changes that were noted and then refused.
//!
//! A change is noted on the data volume before it is committed, and a rebuild of the catalog takes
//! the newest note of each thing. Where the catalog refuses the commit, a compensating note states
//! the thing as it is in the catalog, before the refusal is answered. Otherwise a rebuild would
//! find the refused change. Background work writes the compensating notes that could not be written
//! then, and those of requests that went away. Of a thing that the catalog does not have, the note
//! says that its creation is withdrawn; reclamation keeps such a note, since the creation's may
//! still lie anywhere.
//!
//! Failure model, by the place of a crash or of the close:
//!
//! 1. Before the note is on the volume: nothing took place.
//! 2. Between note and commit: the next opening finds that the catalog does not have the note, and
//!    compensates it. After a close in order the catalog lists the things; otherwise the notes in
//!    the open segments are compared as well (see `opening::unsettled`).
//! 3. Behind the commit: the change took place.
//!
//! If the catalog is lost before that opening, a rebuild cannot tell 2 from 3, and the newest note
//! counts.

use std::pin::Pin;
use std::sync::Arc;

use stele_catalog::{CatalogError, Transaction};

use crate::model::error::Result;
use crate::record::access_key::AccessKeyRow;
use crate::record::bucket::BucketRow;
use crate::record::class::ClassRow;
use crate::record::matter::MatterRow;
use crate::record::upload::UploadRow;
use crate::record::version::{VersionNote, VersionRef};
use crate::record::{BUCKETS, UPLOADS, fetch, keys};
use crate::seal::{SealingKey, derive, random_secret};
use crate::space::compensations::{NoteSubject, Noting};
use crate::space::header::Kind;
use crate::store::{Store, lookup};

impl Store {
    /// Passes on the answer to the commit of a change that was noted. A refusal is compensated
    /// first. The caller has given the lock of the change back.
    pub async fn compensated<T>(self: &Arc<Store>, answer: std::result::Result<T, CatalogError>) -> Result<T> {
        // A catalog that has stopped does not say which commits it refused.
        if !matches!(answer, Ok(_) | Err(CatalogError::Stopped(_))) {
            self.compensate_or_warn().await;
        }
        Ok(answer?)
    }

    /// As `compensated`, for a change whose `noting` the caller has.
    pub async fn noted<T>(self: &Arc<Store>, noting: Noting, outcome: Result<T>) -> Result<T> {
        match &outcome {
            Ok(_) => noting.settled(),
            Err(_) => {
                drop(noting);
                self.compensate_or_warn().await;
            }
        }
        outcome
    }

    /// Writes every compensating note that is due, if possible. Background work tries the others
    /// again.
    pub async fn compensate_or_warn(self: &Arc<Store>) {
        if let Err(failure) = self.compensate().await {
            tracing::warn!("a refused change is still noted on the data volume, to be tried again: {failure}");
        }
    }

    /// Writes every compensating note that is due. Dropping this midway loses nothing. Those that
    /// cannot be written are listed in the catalog, for the next opening.
    pub fn compensate(self: &Arc<Store>) -> Pin<Box<dyn Future<Output = Result<()>> + Send + '_>> {
        Box::pin(async move {
            let mut failure = None;
            for subject in self.compensations().due() {
                let Some(noting) = self.compensations().resume(&subject) else { continue };
                match self.compensate_one(&subject).await {
                    Ok(()) => noting.settled(),
                    Err(error) => failure = failure.or(Some(error)),
                }
            }
            if failure.is_some() || self.compensations().is_any_kept() {
                let rows = self.compensations().rows().await;
                if !rows.is_empty() {
                    self.catalog().commit(rows.apply(Transaction::new().with_reserve())).await?;
                    self.compensations().wrote(rows);
                }
            }
            failure.map_or(Ok(()), Err)
        })
    }

    async fn compensate_one(self: &Arc<Store>, subject: &NoteSubject) -> Result<()> {
        match subject {
            NoteSubject::Version(at) => self.compensate_version(at).await,
            NoteSubject::Bucket(number) => self.compensate_bucket(*number).await,
            NoteSubject::AccessKey(id) => self.compensate_named::<AccessKeyRow>(id).await,
            NoteSubject::Matter(name) => self.compensate_named::<MatterRow>(name).await,
            NoteSubject::Class(name) => self.compensate_named::<ClassRow>(name).await,
            NoteSubject::Upload(at) => self.compensate_upload(at).await,
        }
    }

    async fn compensate_version(self: &Arc<Store>, at: &VersionRef) -> Result<()> {
        let Some(bucket) = self.buckets().by_number(at.bucket) else { return Ok(()) };
        let lock = self.lock(at.bucket, &at.key).await?;
        let Some(found) = lookup::referred(&*self.snapshot()?, at)? else { return Ok(()) };
        self.write_version_anew(Transaction::new(), &bucket, &at.key, &found, lock, None, |_| ()).await??;
        Ok(())
    }

    /// A completion is noted as a version of the upload's object. Where the upload goes on, a later
    /// note takes that back.
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
        let Some(bucket) = self.buckets().by_number(number) else {
            let wrap = SealingKey::new(&derive(&self.master().0, "buckets", &[]));
            let key = random_secret(self.surroundings());
            let wrapped = wrap.wrap(self.surroundings(), &number.to_be_bytes(), &key).to_vec();
            let row = BucketRow::withdrawn(self.wall(), wrapped);
            return self.note(Kind::Bucket, None, number.into(), &row).await.map(drop);
        };
        let unchanged = Transaction::new().with_reserve().equals(BUCKETS, keys::short(number), bucket.raw.clone());
        self.write_bucket(number, bucket.row.clone(), unchanged, None, lock).await??;
        Ok(())
    }
}
