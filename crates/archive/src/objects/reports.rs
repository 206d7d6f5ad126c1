//! Objects that the store itself writes for a bucket's administrators: access logs and inventories. `buckets/reports.rs`
//! says where they may go. No report replaces an object: each write requires that the key has none.

use bytes::Bytes;

use crate::model::checksum::Expected;
use crate::model::error::Result;
use crate::model::principal::Caller;
use crate::model::version::{Metadata, ObjectInfo};
use crate::objects::put::{PutRequest, WriteCondition};
use crate::store::Archive;

impl Archive {
    /// Stores lines of a bucket's access log where its setting says now. `name` follows the prefix. Without a setting
    /// nothing is stored.
    pub async fn store_access_log(&self, source: &str, name: &str, lines: Bytes) -> Result<()> {
        let from = self.store().buckets().by_name(source)?;
        let Some(log) = from.row.logging.clone() else { return Ok(()) };
        self.fits_reports(&from, &log.bucket)?;
        let key = format!("{}{name}", log.prefix);
        self.store_report("access log", &log.bucket, &key, "text/plain", lines).await.map(drop)
    }

    pub(crate) async fn store_report(
        &self,
        by: &str,
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
        writer.write(content).await?;
        writer.finish(Expected::default()).await
    }
}
