//! Listing uploads, and the parts of one.

use bytes::Bytes;
use stele_catalog::{Direction, KeyRange};

use super::{ListUploadsRequest, UploadInfo, UploadsPage};
use crate::audit::Event;
use crate::model::action::Action;
use crate::model::bucket::check_key;
use crate::model::error::Result;
use crate::model::principal::{Access, Caller};
use crate::model::version::{PartInfo, VersionId};
use crate::objects::list::{LIMIT_MAX, Listing};
use crate::record::part::PartRow;
use crate::record::{PARTS, UPLOADS, decode, keys};
use crate::store::Archive;
use crate::store::uploads::Upload;

impl Archive {
    /// The upload, its parts with numbers above `after`, at most `limit`, and whether more follow.
    pub async fn list_parts(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        upload: &str,
        after: u32,
        limit: usize,
    ) -> Result<(UploadInfo, Vec<PartInfo>, bool)> {
        let store = &self.store();
        check_key(key)?;
        let authorized = store.authorized(caller, Access::Write, bucket, key);
        let bucket = store.audited(authorized, || Event::new(caller, Action::List).object(bucket, key)).await?;
        let snapshot = store.snapshot()?;
        let upload = store.upload(&*snapshot, &bucket, key, upload)?;
        let range = KeyRange::prefix(keys::number(upload.row.object)).after(keys::pair(upload.row.object, after));
        let limit = limit.min(LIMIT_MAX);
        let page = snapshot.range(PARTS, &range, limit + 1, Direction::Forward)?;
        let more = page.len() > limit;
        let mut parts = Vec::with_capacity(page.len());
        for (record_key, value) in page.iter().take(limit) {
            let row: PartRow = decode(PARTS, record_key, value)?;
            let number = record_key.last_chunk::<4>().copied().map(u32::from_be_bytes).unwrap_or_default();
            parts.push(row.info(number));
        }
        Ok((upload.info(bucket.name(), key), parts, more))
    }

    pub async fn list_uploads(&self, caller: &Caller, request: ListUploadsRequest) -> Result<UploadsPage> {
        let result = self.try_list_uploads(caller, &request);
        self.store().audited(result, || Event::new(caller, Action::List).bucket(&request.bucket)).await
    }

    fn try_list_uploads(&self, caller: &Caller, request: &ListUploadsRequest) -> Result<UploadsPage> {
        let store = &self.store();
        let bucket = store.authorized(caller, Access::List, &request.bucket, &request.prefix)?;
        let limit = request.limit.min(LIMIT_MAX);
        if limit == 0 {
            return Ok(UploadsPage::default());
        }
        let snapshot = store.snapshot()?;
        let delimiter = request.delimiter.as_deref();
        let mut listing = Listing::new(&*snapshot, UPLOADS, &bucket, &request.prefix, delimiter);
        if let Some(marker) = request.key_marker.as_deref().filter(|marker| !marker.is_empty()) {
            let upload = request.upload_marker.as_deref().filter(|upload| !upload.is_empty());
            match upload.map(VersionId::parse).transpose()? {
                Some(VersionId::Number(number, _)) => {
                    listing.skip_to(keys::upload(bucket.number, marker, number.saturating_add(1)));
                }
                // The marker may be a common prefix, which ended the page before.
                _ => listing.skip_marker(marker),
            }
        }
        let read = |key: &Bytes, value: &Bytes| Ok((decode(UPLOADS, key, value)?, value.clone()));
        let page = listing.page(limit, read, |key, number, (row, raw)| {
            let info = Upload { number, row, raw }.info(bucket.name(), key);
            let marker = info.upload.clone();
            (info, marker)
        })?;
        let (next_key_marker, next_upload_marker) = page.last.unzip();
        Ok(UploadsPage {
            uploads: page.items,
            common_prefixes: page.common_prefixes,
            truncated: page.truncated,
            next_key_marker,
            next_upload_marker: next_upload_marker.flatten(),
        })
    }
}
