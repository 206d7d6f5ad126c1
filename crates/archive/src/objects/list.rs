//! Listing: range scans over the versions, skipping what a delimiter folds together.
//!
//! A page reads what it gives and the skips between; never more than it must. What a scan reads is in key order, so
//! nothing is sorted.

use bytes::Bytes;
use stele_catalog::KeyRange;

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::checksum::{from_base64, to_base64};
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::{Access, Caller};
use crate::model::version::{ObjectInfo, VersionId};
use crate::record::version::VersionRow;
use crate::record::{VERSIONS, decode, keys};
use crate::state::buckets::Bucket;
use crate::store::Archive;
use crate::store::scan::Scan;

pub(crate) const LIMIT_MAX: usize = 1000;
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ListRequest {
    pub bucket: String,
    pub prefix: String,
    pub delimiter: Option<String>,
    /// Only keys behind this: V1's marker, V2's start-after. A marker that is a common prefix skips all of it.
    pub after: Option<String>,
    /// V2: a token that an earlier page gave. It wins over `after`.
    pub token: Option<String>,
    /// Keys and common prefixes together; at most 1000 are given.
    pub limit: usize,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ListPage {
    pub objects: Vec<ObjectInfo>,
    pub common_prefixes: Vec<String>,
    /// More follow.
    pub truncated: bool,
    /// V2: opaque. Set when truncated.
    pub next_token: Option<String>,
    /// V1: the last key or common prefix given. Set when truncated.
    pub next_marker: Option<String>,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ListVersionsRequest {
    pub bucket: String,
    pub prefix: String,
    pub delimiter: Option<String>,
    pub key_marker: Option<String>,
    /// Only together with `key_marker`: continue behind this version of it.
    pub version_marker: Option<VersionId>,
    pub limit: usize,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct VersionsPage {
    /// Versions and delete markers, newest first within a key.
    pub versions: Vec<ObjectInfo>,
    pub common_prefixes: Vec<String>,
    pub truncated: bool,
    pub next_key_marker: Option<String>,
    pub next_version_marker: Option<VersionId>,
}

/// Where keys beginning with this prefix end; none: nothing lies behind them.
pub(crate) fn end_of_prefix(bucket: u32, prefix: &str) -> Option<Bytes> {
    match KeyRange::prefix(keys::prefix(bucket, prefix)).high {
        std::ops::Bound::Excluded(high) => Some(high),
        _ => None,
    }
}

/// The part of a key up to and with the first delimiter behind the prefix.
pub(crate) fn common_prefix<'k>(key: &'k str, prefix: &str, delimiter: Option<&str>) -> Option<&'k str> {
    let delimiter = delimiter.filter(|delimiter| !delimiter.is_empty())?;
    let rest = key.get(prefix.len()..)?;
    let at = rest.find(delimiter)?;
    key.get(..prefix.len() + at + delimiter.len())
}

impl Archive {
    /// Current versions by key, delete markers left out (ListObjects and ListObjectsV2).
    pub async fn list(&self, caller: &Caller, request: ListRequest) -> Result<ListPage> {
        let result = self.try_list(caller, &request);
        self.store().audited(result, || Event::new(caller, Action::List).bucket(&request.bucket)).await
    }

    fn try_list(&self, caller: &Caller, request: &ListRequest) -> Result<ListPage> {
        let store = &self.store();
        let bucket = store.authorized(caller, Access::List, &request.bucket, &request.prefix)?;
        let after = match &request.token {
            Some(token) => Some(
                from_base64(token)
                    .and_then(|bytes| String::from_utf8(bytes).ok())
                    .ok_or_else(|| ArchiveError::InvalidArgument("the continuation token is not valid".into()))?,
            ),
            None => request.after.clone().filter(|after| !after.is_empty()),
        };
        let limit = request.limit.min(LIMIT_MAX);
        let mut page = ListPage::default();
        if limit == 0 {
            return Ok(page);
        }
        let snapshot = store.snapshot()?;
        let mut scan = Scan::new(&*snapshot, VERSIONS, KeyRange::prefix(keys::prefix(bucket.number, &request.prefix)));
        if let Some(after) = &after {
            skip_behind(&mut scan, &bucket, after, &request.prefix, request.delimiter.as_deref());
        }
        let mut last: Option<String> = None;
        while let Some((record_key, value)) = scan.next()? {
            let (_, key, inverted) = keys::split(&record_key)?;
            let row: VersionRow = decode(VERSIONS, &record_key, &value)?;
            if row.marker {
                scan.skip_to(keys::behind(bucket.number, &key));
                continue;
            }
            if page.objects.len() + page.common_prefixes.len() == limit {
                page.truncated = true;
                page.next_token = last.as_ref().map(|last| to_base64(last.as_bytes()));
                page.next_marker = last;
                break;
            }
            match common_prefix(&key, &request.prefix, request.delimiter.as_deref()) {
                Some(common) => {
                    last = Some(common.to_string());
                    page.common_prefixes.push(common.to_string());
                    match end_of_prefix(bucket.number, common) {
                        Some(end) => scan.skip_to(end),
                        None => break,
                    }
                }
                None => {
                    page.objects.push(row.info(&bucket.row, &key, !inverted, true));
                    scan.skip_to(keys::behind(bucket.number, &key));
                    last = Some(key);
                }
            }
        }
        Ok(page)
    }

    /// All versions and delete markers.
    pub async fn list_versions(&self, caller: &Caller, request: ListVersionsRequest) -> Result<VersionsPage> {
        let result = self.try_list_versions(caller, &request);
        self.store().audited(result, || Event::new(caller, Action::List).bucket(&request.bucket)).await
    }

    fn try_list_versions(&self, caller: &Caller, request: &ListVersionsRequest) -> Result<VersionsPage> {
        let store = &self.store();
        let bucket = store.authorized(caller, Access::List, &request.bucket, &request.prefix)?;
        let limit = request.limit.min(LIMIT_MAX);
        let mut page = VersionsPage::default();
        if limit == 0 {
            return Ok(page);
        }
        let snapshot = store.snapshot()?;
        let mut scan = Scan::new(&*snapshot, VERSIONS, KeyRange::prefix(keys::prefix(bucket.number, &request.prefix)));
        // The key whose newest version lies behind the page's start.
        let mut previous: Option<String> = None;
        let marker = request.key_marker.clone().filter(|marker| !marker.is_empty());
        match (&marker, request.version_marker) {
            (None, None) => {}
            (None, Some(_)) => {
                return Err(ArchiveError::InvalidArgument("a version marker needs a key marker".into()));
            }
            (Some(marker), None) => {
                skip_behind(&mut scan, &bucket, marker, &request.prefix, request.delimiter.as_deref());
            }
            (Some(marker), Some(version)) => {
                let number = match version {
                    VersionId::Number(number, _) => Some(number),
                    VersionId::Null => {
                        crate::store::lookup::null_version(&*snapshot, &bucket, marker)?.map(|found| found.number)
                    }
                };
                match number {
                    // The version's successor: numbers are stored inverted, so it is the one below.
                    Some(0) | None => scan.skip_to(keys::behind(bucket.number, marker)),
                    Some(number) => scan.skip_to(keys::version(bucket.number, marker, number - 1)),
                }
                previous = Some(marker.clone());
            }
        }
        let mut last: Option<(String, Option<VersionId>)> = None;
        while let Some((record_key, value)) = scan.next()? {
            let (_, key, inverted) = keys::split(&record_key)?;
            if page.versions.len() + page.common_prefixes.len() == limit {
                page.truncated = true;
                if let Some((key, version)) = last {
                    page.next_key_marker = Some(key);
                    page.next_version_marker = version;
                }
                break;
            }
            match common_prefix(&key, &request.prefix, request.delimiter.as_deref()) {
                Some(common) => {
                    last = Some((common.to_string(), None));
                    page.common_prefixes.push(common.to_string());
                    match end_of_prefix(bucket.number, common) {
                        Some(end) => scan.skip_to(end),
                        None => break,
                    }
                }
                None => {
                    let row: VersionRow = decode(VERSIONS, &record_key, &value)?;
                    let latest = previous.as_ref() != Some(&key);
                    let info = row.info(&bucket.row, &key, !inverted, latest);
                    last = Some((key.clone(), Some(info.version)));
                    page.versions.push(info);
                    previous = Some(key);
                }
            }
        }
        Ok(page)
    }
}

/// Goes behind a marker: behind all versions of the key, or, if it is a common prefix, behind everything in it.
fn skip_behind(scan: &mut Scan<'_>, bucket: &Bucket, marker: &str, prefix: &str, delimiter: Option<&str>) {
    let folded = marker.starts_with(prefix) && common_prefix(marker, prefix, delimiter) == Some(marker);
    let target = if folded { end_of_prefix(bucket.number, marker) } else { None };
    let target = target.unwrap_or_else(|| keys::behind(bucket.number, marker));
    if target > scan.low() {
        scan.skip_to(target);
    }
}
