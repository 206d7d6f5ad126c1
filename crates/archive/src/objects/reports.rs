//! Objects that the store itself writes for a bucket's administrators: access logs and inventories.
//! `buckets/reports.rs` says where they may go. No report replaces an object: each write requires
//! that the key has none.

use bytes::Bytes;
use stele_catalog::{Direction, KeyRange};

use crate::buckets::reports::check_fit;
use crate::model::checksum::Expected;
use crate::model::error::Result;
use crate::model::principal::Caller;
use crate::model::version::{Metadata, ObjectInfo};
use crate::objects::deletion::DeleteRequest;
use crate::objects::put::{PutRequest, WriteCondition};
use crate::record::version::VersionRow;
use crate::record::{VERSIONS, decode, keys};
use crate::state::buckets::Bucket;
use crate::store::Archive;

/// Versions that one page of a deletion reads.
const PAGE: usize = 500;

impl Archive {
    /// Stores lines of a bucket's access log where its setting says now. `name` follows the prefix.
    /// Without a setting nothing is stored.
    pub async fn store_access_log(&self, source: &str, name: &str, lines: Bytes) -> Result<()> {
        let from = self.store().buckets().by_name(source)?;
        let Some(log) = from.row.logging.clone() else { return Ok(()) };
        self.fits_reports(&from, &log.bucket)?;
        let key = format!("{}{name}", log.prefix);
        self.store_report("access log", &from, &log.bucket, &key, "text/plain", lines).await.map(drop)
    }

    /// Deletes every version whose key begins so: reports that are of no use. What cannot be
    /// deleted stays.
    pub(crate) async fn delete_reports(&self, by: &str, bucket: &str, prefix: &str) {
        let store = self.store();
        let Ok(from) = store.buckets().by_name(bucket) else { return };
        let all = KeyRange::prefix(keys::prefix(from.number, prefix));
        let (caller, mut range) = (Caller::system(by), all.clone());
        loop {
            let page = store.snapshot().map(|snapshot| snapshot.range(VERSIONS, &range, PAGE, Direction::Forward));
            let Ok(Ok(page)) = page else { return };
            let Some((last, _)) = page.last() else { return };
            range = all.clone().after(last.clone());
            for (record_key, value) in &page {
                let Ok((_, key, number)) = keys::split(record_key) else { continue };
                let Ok(row) = decode::<VersionRow>(VERSIONS, record_key, value) else { continue };
                // A version's number is inverted in its record key.
                let version = Some(row.id(!number));
                let request = DeleteRequest { bucket: bucket.into(), key, version, ..DeleteRequest::default() };
                // The audit log has the refusal.
                let _ = self.delete(&caller, request).await;
            }
        }
    }

    pub(crate) async fn store_report(
        &self,
        by: &str,
        from: &Bucket,
        bucket: &str,
        key: &str,
        content_type: &str,
        content: Bytes,
    ) -> Result<ObjectInfo> {
        let headers = [("content-type".to_owned(), content_type.to_owned())].into();
        let request = PutRequest {
            bucket: bucket.into(),
            key: key.into(),
            length: Some(content.len() as u64),
            metadata: Metadata { headers, ..Metadata::default() },
            condition: WriteCondition { absent: true, etag: None },
            ..PutRequest::default()
        };
        let mut writer = self.put(&Caller::system(by), request).await?;
        // The commit requires that the settings of this bucket are unchanged.
        check_fit(from, &writer.bucket)?;
        writer.write(content).await?;
        writer.finish(Expected::default()).await
    }
}
