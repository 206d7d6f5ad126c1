//! A file's content on its way into one version: one body, or the parts of a multipart upload where it is longer than a
//! body may be.
//!
//! Crash point: an upload that was begun and not ended. The next attempt to store the file aborts it, unless another attempt
//! is under way in this process: it aborts none then.

use std::sync::{MutexGuard, PoisonError};

use bytes::Bytes;
use stele_archive::multipart::{PART_NUMBER_MAX, PART_SIZE_MAX};
use stele_archive::{
    CompleteRequest, CompletedPart, Expected, ListUploadsRequest, Metadata, NewUpload, ObjectInfo, ObjectWriter,
    PartRequest, PutRequest, Retention,
};

use super::Share;
use super::reading::{key_of, refused};
use crate::{FileError, Result};

/// Bytes of a part, where that gives few enough of them.
pub const PART: u64 = 1 << 30;

/// What the version is to be.
pub struct Plan {
    pub inode: u64,
    pub size: u64,
    pub metadata: Metadata,
    pub retention: Option<Retention>,
}

pub enum Upload<'a> {
    Whole(ObjectWriter),
    Parts(Parts<'a>),
}

/// An upload in parts under way: attempts beside it leave it alone.
struct Live<'a> {
    share: &'a Share,
    inode: u64,
}

impl Live<'_> {
    fn new(share: &Share, inode: u64) -> Live<'_> {
        share.uploads().push(inode);
        Live { share, inode }
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        let mut uploads = self.share.uploads();
        if let Some(at) = uploads.iter().position(|inode| *inode == self.inode) {
            uploads.swap_remove(at);
        }
    }
}

pub struct Parts<'a> {
    live: Live<'a>,
    key: String,
    upload: String,
    size: u64,
    part: u64,
    done: Vec<CompletedPart>,
    written: u64,
    /// The part at hand, and the bytes that it lacks.
    current: Option<(ObjectWriter, u64)>,
}

impl Share {
    pub(super) async fn begin_upload(&self, plan: Plan) -> Result<Upload<'_>> {
        let Plan { inode, size, metadata, retention } = plan;
        let (bucket, key) = (self.name.clone(), key_of(inode));
        if size <= self.body_max {
            let request = PutRequest { bucket, key, length: Some(size), metadata, retention, ..PutRequest::default() };
            let writer = self.archive.put(&self.caller("archiving"), request).await;
            return Ok(Upload::Whole(writer.map_err(|error| refused(&error))?));
        }
        let part = PART.min(self.body_max).max(size.div_ceil(u64::from(PART_NUMBER_MAX)));
        if part > PART_SIZE_MAX {
            return Err(FileError::TooLarge);
        }
        // One begins at a time, so that none takes another's for one that was left behind.
        let _turn = self.beginning.lock().await;
        if !self.uploads().contains(&inode) {
            self.abort_uploads(&key).await?;
        }
        let request = NewUpload { bucket, key: key.clone(), metadata, retention, ..NewUpload::default() };
        let created = self.archive.create_upload(&self.caller("archiving"), request).await;
        let upload = created.map_err(|error| refused(&error))?.upload;
        let live = Live::new(self, inode);
        Ok(Upload::Parts(Parts { live, key, upload, size, part, done: Vec::new(), written: 0, current: None }))
    }

    /// Files with uploads in parts under way, one entry for each upload.
    fn uploads(&self) -> MutexGuard<'_, Vec<u64>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends uploads that an earlier attempt left behind.
    async fn abort_uploads(&self, key: &str) -> Result<()> {
        let caller = self.caller("archiving");
        loop {
            let request = ListUploadsRequest {
                bucket: self.name.clone(),
                prefix: key.to_owned(),
                limit: 100,
                ..ListUploadsRequest::default()
            };
            let page = self.archive.list_uploads(&caller, request).await.map_err(|error| refused(&error))?;
            for upload in page.uploads.iter().filter(|upload| upload.key == key) {
                let aborted = self.archive.abort_upload(&caller, &self.name, key, &upload.upload).await;
                aborted.map_err(|error| refused(&error))?;
            }
            if !page.truncated || page.uploads.is_empty() {
                return Ok(());
            }
        }
    }
}

impl Upload<'_> {
    pub async fn write(&mut self, data: Bytes) -> Result<()> {
        match self {
            Upload::Whole(writer) => writer.write(data).await.map_err(|error| refused(&error)),
            Upload::Parts(parts) => parts.write(data).await,
        }
    }

    /// The version, once it is durable.
    pub async fn finish(self) -> Result<ObjectInfo> {
        match self {
            Upload::Whole(writer) => writer.finish(Expected::default()).await.map_err(|error| refused(&error)),
            Upload::Parts(parts) => parts.finish().await,
        }
    }

    /// Stores nothing.
    pub async fn abandon(self) -> Result<()> {
        match self {
            Upload::Whole(_) => Ok(()),
            Upload::Parts(parts) => {
                let Parts { live, key, upload, current, .. } = parts;
                drop(current);
                let (share, caller) = (live.share, live.share.caller("archiving"));
                let aborted = share.archive.abort_upload(&caller, &share.name, &key, &upload).await;
                aborted.map_err(|error| refused(&error))
            }
        }
    }
}

impl Parts<'_> {
    async fn write(&mut self, mut data: Bytes) -> Result<()> {
        while !data.is_empty() {
            let (mut writer, missing) = match self.current.take() {
                Some(current) => current,
                None => self.next_part().await?,
            };
            let piece = data.split_to(data.len().min(missing as usize));
            let (length, missing) = (piece.len() as u64, missing - piece.len() as u64);
            writer.write(piece).await.map_err(|error| refused(&error))?;
            self.written += length;
            self.current = Some((writer, missing));
            if missing == 0 {
                self.end_part().await?;
            }
        }
        Ok(())
    }

    async fn next_part(&self) -> Result<(ObjectWriter, u64)> {
        let length = self.part.min(self.size - self.written);
        let request = PartRequest {
            bucket: self.live.share.name.clone(),
            key: self.key.clone(),
            upload: self.upload.clone(),
            number: self.done.len() as u32 + 1,
            length: Some(length),
            ..PartRequest::default()
        };
        let writer = self.live.share.archive.put_part(&self.live.share.caller("archiving"), request).await;
        Ok((writer.map_err(|error| refused(&error))?, length))
    }

    async fn end_part(&mut self) -> Result<()> {
        let Some((writer, _)) = self.current.take() else { return Ok(()) };
        let info = writer.finish(Expected::default()).await.map_err(|error| refused(&error))?;
        let number = self.done.len() as u32 + 1;
        self.done.push(CompletedPart { number, etag: info.etag.to_string(), checksums: Vec::new() });
        Ok(())
    }

    async fn finish(mut self) -> Result<ObjectInfo> {
        self.end_part().await?;
        let request = CompleteRequest {
            bucket: self.live.share.name.clone(),
            key: self.key.clone(),
            upload: self.upload.clone(),
            parts: std::mem::take(&mut self.done),
            size: Some(self.size),
            ..CompleteRequest::default()
        };
        let info = self.live.share.archive.complete_upload(&self.live.share.caller("archiving"), request).await;
        info.map_err(|error| refused(&error))
    }
}
