//! Uploads under way, and the parts of uploads and objects.

use std::collections::BTreeMap;

use bytes::Bytes;
use stele_catalog::{KeyRange, Snapshot};

use crate::model::error::{ArchiveError, Result};
use crate::model::version::VersionId;
use crate::record::content::Layout;
use crate::record::part::PartRow;
use crate::record::upload::UploadRow;
use crate::record::{LAYOUTS, PARTS, UPLOADS, decode, fetch, keys};
use crate::state::buckets::Bucket;
use crate::store::Store;
use crate::store::scan::Scan;

/// An upload and its row.
pub(crate) struct Upload {
    pub number: u64,
    pub row: UploadRow,
    pub raw: Bytes,
}

impl Upload {
    pub fn id(&self) -> String {
        VersionId::Number(self.number, self.row.salt).to_string()
    }
}

/// Every part row of an object or upload, by number.
pub(crate) fn part_rows(snapshot: &dyn Snapshot, object: u64) -> Result<BTreeMap<u32, PartRow>> {
    let mut rows = BTreeMap::new();
    let mut scan = Scan::new(snapshot, PARTS, KeyRange::prefix(keys::number(object)));
    while let Some((key, value)) = scan.next()? {
        let number = key.last_chunk::<4>().copied().map(u32::from_be_bytes).unwrap_or_default();
        rows.insert(number, decode(PARTS, &key, &value)?);
    }
    Ok(rows)
}

/// One part of an object. A missing one is damage.
pub(crate) fn part_row(snapshot: &dyn Snapshot, object: u64, number: u32) -> Result<PartRow> {
    fetch(snapshot, PARTS, &keys::pair(object, number))?
        .ok_or_else(|| ArchiveError::damaged(format!("object {object}"), format!("part {number} is missing")))
}

impl Store {
    pub(crate) fn upload(&self, snapshot: &dyn Snapshot, bucket: &Bucket, key: &str, id: &str) -> Result<Upload> {
        let missing = || ArchiveError::NoSuchUpload(id.into());
        let Ok(VersionId::Number(number, salt)) = VersionId::parse(id) else { return Err(missing()) };
        let record_key = keys::upload(bucket.number, key, number);
        let raw = snapshot.get(UPLOADS, &record_key)?.ok_or_else(missing)?;
        let row: UploadRow = decode(UPLOADS, &record_key, &raw)?;
        if row.salt != salt {
            return Err(missing());
        }
        Ok(Upload { number, row, raw })
    }

    /// The layout of a multipart object.
    pub fn layout(&self, object: u64) -> Result<Layout> {
        let snapshot = self.snapshot()?;
        fetch(&*snapshot, LAYOUTS, &keys::number(object))?
            .ok_or_else(|| ArchiveError::damaged(format!("object {object}"), "its list of parts is missing"))
    }
}
