//! Listing: range scans over the versions that skip the keys which a delimiter folds together.
//!
//! A page reads only its own records and the skips between them. A scan reads in key order, so
//! nothing is sorted.

use bytes::Bytes;
use stele_catalog::{KeyRange, Snapshot, Table};

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
use crate::store::lookup::null_version;
use crate::store::scan::Scan;

pub(crate) const LIMIT_MAX: usize = 1000;
/// Deleted keys that a listing passes before it lets other requests have the processor.
const PASSED_AT_ONCE: usize = 512;
/// Deleted keys that a page passes before it ends, if its client can go on with a token. Tests pass
/// a few.
const PASSED_MAX: usize = if cfg!(test) { 4 } else { 100_000 };

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ListRequest {
    pub bucket: String,
    pub prefix: String,
    pub delimiter: Option<String>,
    /// Only keys behind this one: V1's marker, V2's start-after. A marker that is a common prefix
    /// skips all its keys.
    pub after: Option<String>,
    /// V2: the token of an earlier page. It takes precedence over `after`.
    pub token: Option<String>,
    /// Keys and common prefixes together, at most 1000.
    pub limit: usize,
    /// V2: the client goes on with the token of a page that has few keys, or none.
    pub may_end_early: bool,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ListPage {
    pub objects: Vec<ObjectInfo>,
    pub common_prefixes: Vec<String>,
    /// More follow.
    pub truncated: bool,
    /// V2: opaque. Present when truncated.
    pub next_token: Option<String>,
    /// V1: the last key or common prefix of the page. Present when truncated.
    pub next_marker: Option<String>,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ListVersionsRequest {
    pub bucket: String,
    pub prefix: String,
    pub delimiter: Option<String>,
    pub key_marker: Option<String>,
    /// Only together with `key_marker`: continue behind this version of that key.
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

/// One entry of a listing.
pub(crate) enum Entry<T> {
    /// A common prefix of keys that the delimiter folds together.
    Prefix(String),
    /// A record: its key, the number in its record key, and its content.
    Record { key: String, number: u64, row: T },
    /// A key whose record `read` hides. All of its records are passed.
    Hidden(String),
}

/// A page of items that each have a marker of their own within their key.
pub(crate) struct Page<T, M> {
    pub items: Vec<T>,
    pub common_prefixes: Vec<String>,
    /// More follow.
    pub truncated: bool,
    /// The last key or common prefix of the page, and the marker of its last item. Present when
    /// truncated.
    pub last: Option<(String, Option<M>)>,
}

/// The records of a bucket's keys with a prefix, in order. A delimiter folds keys together, and the
/// scan skips the folded ones.
pub(crate) struct Listing<'a> {
    scan: Scan<'a>,
    bucket: u32,
    prefix: &'a str,
    delimiter: Option<&'a str>,
    ended: bool,
}

impl<'a> Listing<'a> {
    pub fn new(
        snapshot: &'a dyn Snapshot,
        table: Table,
        bucket: &Bucket,
        prefix: &'a str,
        delimiter: Option<&'a str>,
    ) -> Listing<'a> {
        let scan = Scan::new(snapshot, table, KeyRange::prefix(keys::prefix(bucket.number, prefix)));
        Listing { scan, bucket: bucket.number, prefix, delimiter, ended: false }
    }

    /// Continues behind a marker: behind all records of the key, or behind all keys that it folds.
    pub fn skip_marker(&mut self, marker: &str) {
        let folded = marker.starts_with(self.prefix) && self.folded(marker) == Some(marker);
        let target = if folded { end_of_prefix(self.bucket, marker) } else { None };
        let target = target.unwrap_or_else(|| keys::behind(self.bucket, marker));
        self.scan.skip_to(target);
    }

    /// Continues behind all records of the key.
    pub fn skip_key(&mut self, key: &str) {
        self.scan.skip_to(keys::behind(self.bucket, key));
    }

    /// Continues at this record, if it lies ahead.
    pub fn skip_to(&mut self, record_key: Bytes) {
        self.scan.skip_to(record_key);
    }

    /// The next entry. `read` decodes a record; none hides it, and with it all records of its key.
    /// A run of hidden keys has no end that is known, so the caller hears of each.
    pub fn next<T>(&mut self, read: impl Fn(&Bytes, &Bytes) -> Result<Option<T>>) -> Result<Option<Entry<T>>> {
        if self.ended {
            return Ok(None);
        }
        let Some((record_key, value)) = self.scan.next()? else { return Ok(None) };
        let (_, key, number) = keys::split(&record_key)?;
        let Some(row) = read(&record_key, &value)? else {
            self.skip_key(&key);
            return Ok(Some(Entry::Hidden(key)));
        };
        let Some(common) = self.folded(&key).map(str::to_string) else {
            return Ok(Some(Entry::Record { key, number, row }));
        };
        match end_of_prefix(self.bucket, &common) {
            Some(end) => self.scan.skip_to(end),
            None => self.ended = true,
        }
        Ok(Some(Entry::Prefix(common)))
    }

    /// At most so many items and common prefixes together. `item` makes an item and its marker of a
    /// record.
    pub fn page<R, T, M>(
        &mut self,
        limit: usize,
        read: impl Fn(&Bytes, &Bytes) -> Result<R>,
        mut item: impl FnMut(&str, u64, R) -> (T, M),
    ) -> Result<Page<T, M>> {
        let mut page = Page { items: Vec::new(), common_prefixes: Vec::new(), truncated: false, last: None };
        while let Some(entry) = self.next(|key, value| read(key, value).map(Some))? {
            if page.items.len() + page.common_prefixes.len() == limit {
                page.truncated = true;
                return Ok(page);
            }
            match entry {
                Entry::Hidden(_) => {}
                Entry::Prefix(common) => {
                    page.last = Some((common.clone(), None));
                    page.common_prefixes.push(common);
                }
                Entry::Record { key, number, row } => {
                    let (item, marker) = item(&key, number, row);
                    page.items.push(item);
                    page.last = Some((key, Some(marker)));
                }
            }
        }
        page.last = None;
        Ok(page)
    }

    /// The part of a key up to and including the first delimiter behind the prefix.
    fn folded<'k>(&self, key: &'k str) -> Option<&'k str> {
        let delimiter = self.delimiter.filter(|delimiter| !delimiter.is_empty())?;
        let at = key.get(self.prefix.len()..)?.find(delimiter)?;
        key.get(..self.prefix.len() + at + delimiter.len())
    }
}

/// Where a page begins.
enum Start {
    /// Behind this marker. One that is a common prefix stands for all keys under it.
    Marker(String),
    /// Behind this key, which the page before passed. Where it is a common prefix too, the keys
    /// under it are yet to come.
    Key(String),
}

impl Start {
    /// Begins a token of a key; it is no digit of Base64.
    const KEY: &str = ".";

    fn token(&self) -> String {
        match self {
            Start::Marker(marker) => to_base64(marker.as_bytes()),
            Start::Key(key) => format!("{}{}", Start::KEY, to_base64(key.as_bytes())),
        }
    }

    fn of(token: &str) -> Result<Start> {
        let text = |token| from_base64(token).and_then(|bytes| String::from_utf8(bytes).ok());
        let start = match token.strip_prefix(Start::KEY) {
            Some(key) => text(key).map(Start::Key),
            None => text(token).map(Start::Marker),
        };
        start.ok_or_else(|| ArchiveError::InvalidArgument("the continuation token is not valid".into()))
    }
}

/// The end of the keys with this prefix. None: no key can lie behind them.
fn end_of_prefix(bucket: u32, prefix: &str) -> Option<Bytes> {
    match KeyRange::prefix(keys::prefix(bucket, prefix)).high {
        std::ops::Bound::Excluded(high) => Some(high),
        _ => None,
    }
}

impl Archive {
    /// Current versions by key, delete markers left out (ListObjects and ListObjectsV2).
    pub async fn list(&self, caller: &Caller, request: ListRequest) -> Result<ListPage> {
        let result = self.try_list(caller, &request).await;
        self.store().audited(result, || Event::new(caller, Action::List).bucket(&request.bucket)).await
    }

    async fn try_list(&self, caller: &Caller, request: &ListRequest) -> Result<ListPage> {
        let store = &self.store();
        let bucket = store.authorized(caller, Access::List, &request.bucket, &request.prefix)?;
        let start = match &request.token {
            Some(token) => Some(Start::of(token)?),
            None => request.after.clone().filter(|after| !after.is_empty()).map(Start::Marker),
        };
        let limit = request.limit.min(LIMIT_MAX);
        let mut page = ListPage::default();
        if limit == 0 {
            return Ok(page);
        }
        let snapshot = store.snapshot()?;
        let delimiter = request.delimiter.as_deref();
        let mut listing = Listing::new(&*snapshot, VERSIONS, &bucket, &request.prefix, delimiter);
        match &start {
            Some(Start::Marker(marker)) => listing.skip_marker(marker),
            Some(Start::Key(key)) => listing.skip_key(key),
            None => {}
        }
        let read = |key: &Bytes, value: &Bytes| Ok(Some(read_version(key, value)?).filter(|row| !row.marker));
        let mut last: Option<String> = None;
        let mut passed = 0;
        while let Some(entry) = listing.next(read)? {
            if let Entry::Hidden(key) = entry {
                passed += 1;
                if passed % PASSED_AT_ONCE == 0 {
                    tokio::task::yield_now().await;
                }
                if passed >= PASSED_MAX && request.may_end_early {
                    page.truncated = true;
                    page.next_token = Some(Start::Key(key).token());
                    break;
                }
                continue;
            }
            if page.objects.len() + page.common_prefixes.len() == limit {
                page.truncated = true;
                page.next_token = last.clone().map(|last| Start::Marker(last).token());
                page.next_marker = last;
                break;
            }
            match entry {
                Entry::Hidden(_) => {}
                Entry::Prefix(common) => {
                    last = Some(common.clone());
                    page.common_prefixes.push(common);
                }
                Entry::Record { key, number, row } => {
                    page.objects.push(row.info(&bucket.row, &key, !number, true));
                    listing.skip_key(&key);
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
        if limit == 0 {
            return Ok(VersionsPage::default());
        }
        let snapshot = store.snapshot()?;
        let delimiter = request.delimiter.as_deref();
        let mut listing = Listing::new(&*snapshot, VERSIONS, &bucket, &request.prefix, delimiter);
        // The key whose newest version lies before the page's start.
        let mut previous = start_versions(&mut listing, &*snapshot, &bucket, request)?;
        let page = listing.page(limit, read_version, |key, number, row: VersionRow| {
            let latest = previous.as_deref() != Some(key);
            previous = Some(key.to_owned());
            let info = row.info(&bucket.row, key, !number, latest);
            let version = info.version;
            (info, version)
        })?;
        let (next_key_marker, next_version_marker) = page.last.unzip();
        Ok(VersionsPage {
            versions: page.items,
            common_prefixes: page.common_prefixes,
            truncated: page.truncated,
            next_key_marker,
            next_version_marker: next_version_marker.flatten(),
        })
    }
}

fn read_version(record_key: &Bytes, value: &Bytes) -> Result<VersionRow> {
    decode(VERSIONS, record_key, value)
}

/// Moves a listing of versions to the request's markers. Returns the key within which the page
/// begins.
fn start_versions(
    listing: &mut Listing<'_>,
    snapshot: &dyn Snapshot,
    bucket: &Bucket,
    request: &ListVersionsRequest,
) -> Result<Option<String>> {
    let marker = request.key_marker.as_deref().filter(|marker| !marker.is_empty());
    match (marker, request.version_marker) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(ArchiveError::InvalidArgument("a version marker needs a key marker".into())),
        (Some(marker), None) => {
            listing.skip_marker(marker);
            Ok(None)
        }
        (Some(marker), Some(version)) => {
            let number = match version {
                VersionId::Number(number, _) => Some(number),
                VersionId::Null => null_version(snapshot, bucket, marker)?.map(|found| found.number),
            };
            match number {
                // The null version went since the page before, and its place is not known. All
                // versions of the key follow, so that none is left out.
                None => {
                    listing.skip_to(keys::all_of(bucket.number, marker).into());
                    return Ok(None);
                }
                Some(0) => listing.skip_key(marker),
                // The version's successor: numbers are stored inverted, so it is the one below.
                Some(number) => listing.skip_to(keys::version(bucket.number, marker, number - 1)),
            }
            Ok(Some(marker.into()))
        }
    }
}
