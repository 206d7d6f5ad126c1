//! A file's content on its way into one version: one body, or the parts of a multipart upload where
//! it is longer than a body may be.
//!
//! Crash point: an upload that was begun and not ended. The first round of background work after a
//! start aborts all that an earlier process left behind, also those of files that are gone. One
//! that this process leaves behind, because its caller went away or the archive did not take its
//! end, is aborted by the next round. While another attempt to store the file is under way, it is
//! aborted by the one after that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError};

use bytes::Bytes;
use stele_archive::multipart::{PART_NUMBER_MAX, PART_SIZE_MAX};
use stele_archive::{
    CompleteRequest, CompletedPart, Expected, ListUploadsRequest, Metadata, NewUpload, ObjectWriter, PartRequest,
    Placement, PutRequest, Retention, Tags,
};

use super::Share;
use super::archiving::{PATH_MAX, percent};
use super::named::NamedByRow;
use super::reading::{key_of, refused};
use super::records::InodeRow;
use crate::model::{Caller, SIZE_MAX};
use crate::{FileError, Inode, Result};

/// Bytes of a file that archiving reads at once.
const PIECE: u32 = 1 << 20;

/// Names of metadata that are the gateway's begin so.
const OWN: &str = "stele-";
/// Bytes of metadata that the archive takes with a version.
const USER_METADATA_MAX: usize = 8 << 10;

/// Bytes of a part, where that gives few enough of them.
pub const PART: u64 = 1 << 30;

/// What the version is to be.
pub struct Plan {
    pub inode: u64,
    pub size: u64,
    pub metadata: Metadata,
    pub tags: Tags,
    pub retention: Option<Retention>,
}

pub enum Upload<'a> {
    Whole(ObjectWriter),
    Parts(Parts<'a>),
}

/// Uploads in parts, by their files.
#[derive(Default, Debug)]
pub struct Uploads {
    /// Under way, one entry for each.
    live: Vec<u64>,
    /// Files for which this process left some behind.
    left: BTreeSet<u64>,
    /// Those that an earlier process left behind are aborted.
    swept: bool,
}

#[cfg(test)]
impl Uploads {
    pub fn is_under_way(&self, inode: u64) -> bool {
        self.live.contains(&inode)
    }
}

/// An upload in parts under way: attempts beside it leave it alone.
struct Live<'a> {
    share: &'a Share,
    inode: u64,
    /// The archive has it no longer.
    ended: bool,
}

impl Live<'_> {
    fn new(share: &Share, inode: u64) -> Live<'_> {
        share.uploads().live.push(inode);
        Live { share, inode, ended: false }
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        let mut uploads = self.share.uploads();
        if let Some(at) = uploads.live.iter().position(|inode| *inode == self.inode) {
            uploads.live.swap_remove(at);
        }
        if !self.ended {
            uploads.left.insert(self.inode);
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
        let Plan { inode, size, metadata, tags, retention } = plan;
        let (bucket, key) = (self.name.clone(), key_of(inode));
        if size <= self.body_max {
            let (length, without_md5) = (Some(size), true);
            let request =
                PutRequest { bucket, key, length, metadata, tags, retention, without_md5, ..PutRequest::default() };
            let writer = self.archive.put(&self.caller("archiving"), request).await;
            return Ok(Upload::Whole(writer.map_err(|error| refused(&error))?));
        }
        let part = PART.min(self.body_max).max(size.div_ceil(u64::from(PART_NUMBER_MAX)));
        // Of an earlier version of the server: it let files grow beyond.
        if part > PART_SIZE_MAX {
            return Err(FileError::TooLarge);
        }
        // Most of it may be holes, which are stored as zeros: the attempt would fill the archive
        // before it fails.
        let space = self.archive.space();
        if size > u64::from(space.segments) * space.segment_bytes {
            return Err(FileError::NoSpace);
        }
        // One begins at a time, so that none takes another's for one that was left behind.
        let _turn = self.beginning.lock().await;
        let request = NewUpload { bucket, key: key.clone(), metadata, tags, retention, ..NewUpload::default() };
        // From here on it may be there, even if no caller waits for the answer.
        let live = Live::new(self, inode);
        let created = self.archive.create_upload(&self.caller("archiving"), request).await;
        let upload = created.map_err(|error| refused(&error))?.upload;
        Ok(Upload::Parts(Parts { live, key, upload, size, part, done: Vec::new(), written: 0, current: None }))
    }

    /// The description of a file's next version, with what S3 clients said of the one before: their
    /// metadata, headers and tags. A change over files leaves these as they are.
    pub(super) fn carried(&self, row: &InodeRow, inode: u64, path: &[u8]) -> Result<(Metadata, Tags)> {
        let newest = self.archive.newest(&self.caller("archiving"), &self.name, &[key_of(inode)]);
        let mut metadata = described(row, path);
        let Some(former) = newest.map_err(|error| refused(&error))?.into_iter().flatten().next() else {
            return Ok((metadata, Tags::new()));
        };
        let theirs = former.metadata.user.into_iter().filter(|(name, _)| !name.starts_with(OWN));
        let theirs: Vec<(String, String)> = theirs.collect();
        let length = |(name, value): (&String, &String)| name.len() + value.len();
        let all = metadata.user.iter().map(length).sum::<usize>()
            + theirs.iter().map(|(name, value)| length((name, value))).sum::<usize>();
        // What has no room beside the gateway's own is left out: the file must be archived, and
        // found after a rebuild.
        if all <= USER_METADATA_MAX {
            metadata.user.extend(theirs);
        }
        metadata.headers = former.metadata.headers;
        Ok((metadata, former.tags))
    }

    /// Streams a file's content. False: it shrank or grew meanwhile. `held`: the caller holds the
    /// file's gate.
    pub(super) async fn stream(&self, inode: u64, size: u64, held: bool, upload: &mut Upload<'_>) -> Result<bool> {
        let mut at = 0;
        while at < size {
            let data = match held {
                true => self.read_held(inode, at, PIECE).await?,
                false => self.read_content(&Caller::ROOT, Inode(inode), at, PIECE).await?.pieces,
            };
            let length: u64 = data.iter().map(|piece| piece.len() as u64).sum();
            if length == 0 || at + length > size {
                return Ok(false);
            }
            for piece in data {
                upload.write(piece).await?;
            }
            at += length;
        }
        Ok(true)
    }

    fn uploads(&self) -> MutexGuard<'_, Uploads> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Aborts uploads that were left behind: their parts would take space for ever. What cannot be
    /// aborted now is tried again with the next round.
    pub(super) async fn abort_left(&self) {
        let swept = {
            let uploads = self.uploads();
            if uploads.swept && uploads.left.iter().all(|inode| uploads.live.contains(inode)) {
                return;
            }
            uploads.swept
        };
        // None begins meanwhile, so that none is taken for one that was left behind.
        let _turn = self.beginning.lock().await;
        if !swept {
            match self.abort_uploads("").await {
                Ok(()) => self.uploads().swept = true,
                Err(error) => self.not_aborted(&error),
            }
        }
        let left: Vec<u64> = {
            let uploads = self.uploads();
            uploads.left.iter().filter(|inode| !uploads.live.contains(inode)).copied().collect()
        };
        for inode in left {
            match self.abort_uploads(&key_of(inode)).await {
                Ok(()) => drop(self.uploads().left.remove(&inode)),
                Err(error) => self.not_aborted(&error),
            }
        }
    }

    fn not_aborted(&self, error: &FileError) {
        tracing::warn!(share = %self.name, %error, "an upload that was left behind could not be aborted; it is tried again");
    }

    /// Aborts the uploads of files whose keys begin like this, except of those that have one under
    /// way. S3 clients' uploads have other keys.
    async fn abort_uploads(&self, prefix: &str) -> Result<()> {
        let caller = self.caller("archiving");
        let (mut key_marker, mut upload_marker) = (None, None);
        loop {
            let request = ListUploadsRequest {
                bucket: self.name.clone(),
                prefix: prefix.to_owned(),
                limit: 1000,
                key_marker,
                upload_marker,
                ..ListUploadsRequest::default()
            };
            let page = self.archive.list_uploads(&caller, request).await.map_err(|error| refused(&error))?;
            for upload in &page.uploads {
                let inode = u64::from_str_radix(&upload.key, 16).ok().filter(|inode| key_of(*inode) == upload.key);
                if inode.is_none_or(|inode| self.uploads().live.contains(&inode)) {
                    continue;
                }
                let aborted = self.archive.abort_upload(&caller, &self.name, &upload.key, &upload.upload).await;
                aborted.map_err(|error| refused(&error))?;
            }
            if !page.truncated {
                return Ok(());
            }
            (key_marker, upload_marker) = (page.next_key_marker, page.next_upload_marker);
        }
    }
}

/// What a rebuild of the catalog needs to make the file again.
fn described(row: &InodeRow, path: &[u8]) -> Metadata {
    let mut metadata = Metadata::default();
    let path = percent(path);
    if path.len() <= PATH_MAX {
        metadata.user.insert("stele-path".into(), path);
    }
    let modified = format!("{}.{:09}", row.modified.seconds, row.modified.nanoseconds);
    metadata.user.insert("stele-mode".into(), format!("{:o}", row.mode));
    metadata.user.insert("stele-owner".into(), format!("{}:{}", row.uid, row.gid));
    metadata.user.insert("stele-modified".into(), modified);
    metadata
}

const _: () = assert!(SIZE_MAX == PART_NUMBER_MAX as u64 * PART_SIZE_MAX, "a file that may be written can be archived");

impl Upload<'_> {
    pub async fn write(&mut self, data: Bytes) -> Result<()> {
        match self {
            Upload::Whole(writer) => writer.write(data).await.map_err(|error| refused(&error)),
            Upload::Parts(parts) => Box::pin(parts.write(data)).await,
        }
    }

    /// Answers once the version is durable, and named by the file's row.
    pub async fn finish(self, named: NamedByRow) -> Result<()> {
        let named = Arc::new(named);
        match self {
            Upload::Whole(mut writer) => {
                writer.place_alongside(named);
                writer.finish(Expected::default()).await.map_err(|error| refused(&error))?;
            }
            Upload::Parts(parts) => Box::pin(parts.finish(named)).await?,
        }
        Ok(())
    }

    /// Stores nothing.
    pub async fn abandon(self) {
        match self {
            Upload::Whole(_) => {}
            Upload::Parts(parts) => Box::pin(parts.abandon()).await,
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

    /// What is not aborted here counts as left behind.
    async fn abandon(self) {
        let Parts { mut live, key, upload, current, .. } = self;
        drop(current);
        let (share, caller) = (live.share, live.share.caller("archiving"));
        let aborted = share.archive.abort_upload(&caller, &share.name, &key, &upload).await;
        live.ended = aborted.is_ok();
    }

    async fn finish(mut self, named: Arc<NamedByRow>) -> Result<()> {
        let completed = self.complete(named).await;
        match completed.is_ok() {
            true => self.live.ended = true,
            false => self.abandon().await,
        }
        completed
    }

    async fn complete(&mut self, named: Arc<NamedByRow>) -> Result<()> {
        self.end_part().await?;
        let request = CompleteRequest {
            bucket: self.live.share.name.clone(),
            key: self.key.clone(),
            upload: self.upload.clone(),
            parts: std::mem::take(&mut self.done),
            size: Some(self.size),
            ..CompleteRequest::default()
        };
        let placement = Placement { key: self.key.clone(), metadata: BTreeMap::new(), alongside: named };
        let (archive, caller) = (&self.live.share.archive, self.live.share.caller("archiving"));
        let info = archive.complete_placed(&caller, request, placement).await;
        info.map(drop).map_err(|error| refused(&error))
    }
}
