//! Finding versions in the catalog.

use bytes::Bytes;
use stele_catalog::{Direction, KeyRange, Snapshot};

use crate::model::error::{ArchiveError, Result};
use crate::model::version::{ObjectInfo, VersionId};
use crate::record::version::{VersionRef, VersionRow};
use crate::record::{VERSIONS, decode, keys};
use crate::state::buckets::Bucket;

/// A version and its row.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub number: u64,
    pub row: VersionRow,
    /// The row as stored. A transaction requires it to be unchanged.
    pub raw: Bytes,
    /// No newer version of the key exists.
    pub latest: bool,
}

impl Found {
    pub fn id(&self) -> VersionId {
        self.row.id(self.number)
    }

    pub fn info(&self, bucket: &Bucket, key: &str) -> ObjectInfo {
        self.row.info(&bucket.row, key, self.number, self.latest)
    }

    pub fn of(record_key: &Bytes, value: &Bytes, latest: bool) -> Result<Found> {
        let inverted = record_key.last_chunk::<8>().copied().unwrap_or_default();
        let row = decode(VERSIONS, record_key, value)?;
        Ok(Found { number: !u64::from_be_bytes(inverted), row, raw: value.clone(), latest })
    }
}

/// Versions per read in the search for the null version.
const PAGE: usize = 200;

/// The newest version of a key, delete markers included.
pub(crate) fn newest(snapshot: &dyn Snapshot, bucket: &Bucket, key: &str) -> Result<Option<Found>> {
    let range = KeyRange::prefix(keys::all_of(bucket.number, key));
    let mut records = snapshot.range(VERSIONS, &range, 1, Direction::Forward)?;
    records.pop().map(|(record_key, value)| Found::of(&record_key, &value, true)).transpose()
}

/// The null version of a key. There is at most one.
pub(crate) fn null_version(snapshot: &dyn Snapshot, bucket: &Bucket, key: &str) -> Result<Option<Found>> {
    let prefix = keys::all_of(bucket.number, key);
    let mut range = KeyRange::prefix(prefix.clone());
    let mut latest = true;
    loop {
        let records = snapshot.range(VERSIONS, &range, PAGE, Direction::Forward)?;
        for (record_key, value) in &records {
            let found = Found::of(record_key, value, std::mem::take(&mut latest))?;
            if found.row.null {
                return Ok(Some(found));
            }
        }
        match records.last() {
            Some((last, _)) if records.len() == PAGE => range = KeyRange::prefix(prefix.clone()).after(last.clone()),
            _ => return Ok(None),
        }
    }
}

/// The version named, or the newest.
pub(crate) fn version(
    snapshot: &dyn Snapshot,
    bucket: &Bucket,
    key: &str,
    version: Option<VersionId>,
) -> Result<Option<Found>> {
    match version {
        None => newest(snapshot, bucket, key),
        Some(VersionId::Null) => null_version(snapshot, bucket, key),
        Some(VersionId::Number(number, salt)) => {
            let record_key = keys::version(bucket.number, key, number);
            let Some(value) = snapshot.get(VERSIONS, &record_key)? else { return Ok(None) };
            let mut found = Found::of(&record_key, &value, false)?;
            if found.row.null || found.row.salt != salt {
                return Ok(None);
            }
            found.latest = newest(snapshot, bucket, key)?.is_some_and(|newest| newest.number == number);
            Ok(Some(found))
        }
    }
}

/// The version that an index refers to, if it still exists.
pub(crate) fn referred(snapshot: &dyn Snapshot, at: &VersionRef) -> Result<Option<Found>> {
    let record_key = at.record_key();
    let value = snapshot.get(VERSIONS, &record_key)?;
    value.map(|value| Found::of(&record_key, &value, false)).transpose()
}

/// As `version`, for readers: a missing version and a delete marker are errors.
pub(crate) fn readable(snapshot: &dyn Snapshot, bucket: &Bucket, key: &str, id: Option<VersionId>) -> Result<Found> {
    let found = existing(snapshot, bucket, key, id)?;
    match (found.row.marker, id) {
        (false, _) => Ok(found),
        (true, None) => {
            Err(ArchiveError::NoSuchKey { bucket: bucket.name().into(), key: key.into(), marker: Some(found.id()) })
        }
        (true, Some(_)) => Err(ArchiveError::IsDeleteMarker { version: found.id(), modified: found.row.modified }),
    }
}

/// As `version`: a missing version is an error.
pub(crate) fn existing(snapshot: &dyn Snapshot, bucket: &Bucket, key: &str, id: Option<VersionId>) -> Result<Found> {
    match (version(snapshot, bucket, key, id)?, id) {
        (Some(found), _) => Ok(found),
        (None, None) => Err(ArchiveError::NoSuchKey { bucket: bucket.name().into(), key: key.into(), marker: None }),
        (None, Some(id)) => {
            Err(ArchiveError::NoSuchVersion { bucket: bucket.name().into(), key: key.into(), version: id.to_string() })
        }
    }
}
