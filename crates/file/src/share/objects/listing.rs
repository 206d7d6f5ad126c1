//! Listings of a share, as S3 clients see them.
//!
//! Keys are the paths of regular files, and those of empty directories with a `/` at the end. A
//! directory with anything in it has no key of its own: a client that deletes all keys it has
//! listed then meets no directory that is not empty.

use std::collections::BTreeSet;

use stele_archive::{
    Access, ArchiveError, Caller, ListPage, ListRequest, ListVersionsRequest, ObjectInfo, Result, VersionId,
    VersionsPage,
};

use super::walk::{Met, Walk, behind};
use super::{ObjectView, refusal};
use crate::FileError;
use crate::share::reading::key_of;

/// Keys and common prefixes of one page.
const LIMIT_MAX: usize = 1000;

/// How keys fold into common prefixes.
struct Folding<'r> {
    prefix: &'r str,
    delimiter: Option<&'r str>,
}

impl Folding<'_> {
    /// The part of a key up to and including the first delimiter behind the prefix.
    fn common<'k>(&self, key: &'k str) -> Option<&'k str> {
        let delimiter = self.delimiter.filter(|delimiter| !delimiter.is_empty())?;
        let at = key.get(self.prefix.len()..)?.find(delimiter)?;
        key.get(..self.prefix.len() + at + delimiter.len())
    }

    /// Where a listing goes on behind a marker: behind the key, or behind all keys that it stands
    /// for.
    fn bound(&self, marker: &str) -> Vec<u8> {
        match marker.starts_with(self.prefix) && self.common(marker) == Some(marker) {
            true => behind(marker.as_bytes()),
            false => after(marker),
        }
    }
}

/// The first key behind this one.
fn after(key: &str) -> Vec<u8> {
    let mut bound = key.as_bytes().to_vec();
    bound.push(0);
    bound
}

/// A token is the last key, in hexadecimal digits.
fn token(key: &str) -> String {
    key.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn key_of_token(token: &str) -> Result<String> {
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> =
        token.as_bytes().chunks(2).map(|pair| digits(pair).filter(|_| pair.len() == 2)).collect();
    let key = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    key.ok_or_else(|| ArchiveError::InvalidArgument("the continuation token is not valid".into()))
}

impl ObjectView {
    pub(super) async fn list_files(&self, caller: &Caller, request: ListRequest) -> Result<ListPage> {
        let caller = self.on_behalf(caller, Access::List, &request.prefix).await?;
        let folding = Folding { prefix: &request.prefix, delimiter: request.delimiter.as_deref() };
        let marker = match &request.token {
            Some(token) => Some(key_of_token(token)?),
            None => request.after.clone().filter(|after| !after.is_empty()),
        };
        let limit = request.limit.min(LIMIT_MAX);
        let mut page = ListPage::default();
        let bound = marker.map_or_else(Vec::new, |marker| folding.bound(&marker));
        let Some(mut walk) = self.walk(&request.prefix, bound, limit)? else { return Ok(page) };
        let mut found: Vec<Met> = Vec::new();
        let mut last: Option<String> = None;
        while let Some(met) = walk.next().await.map_err(refusal)? {
            let common = folding.common(&met.key).map(str::to_owned);
            if common.is_none() && met.row.is_directory() && !met.is_empty_directory() {
                continue;
            }
            if found.len() + page.common_prefixes.len() == limit {
                page.truncated = true;
                page.next_token = last.as_deref().map(token);
                page.next_marker = last;
                break;
            }
            last = Some(common.clone().unwrap_or_else(|| met.key.clone()));
            match common {
                Some(common) => {
                    walk.skip_to(behind(common.as_bytes()));
                    page.common_prefixes.push(common);
                }
                None => found.push(met),
            }
        }
        page.objects = self.described(&caller, found).await?;
        Ok(page)
    }

    fn walk(&self, prefix: &str, bound: Vec<u8>, limit: usize) -> Result<Option<Walk<'_>>> {
        match limit {
            0 => Ok(None),
            _ => Walk::start(&self.share, prefix, bound).map_err(refusal),
        }
    }

    /// The properties of what was met: of the stored version, or of the file where no version holds
    /// its content.
    async fn described(&self, caller: &Caller, found: Vec<Met>) -> Result<Vec<ObjectInfo>> {
        let unstored = self.unstored_among(&found).await.map_err(refusal)?;
        let keys: Vec<String> = found.iter().map(|met| key_of(met.inode)).collect();
        let newest = self.share.archive.newest(caller, &self.share.name, &keys)?;
        let one = |(met, newest): (Met, Option<ObjectInfo>)| match newest {
            _ if met.row.is_directory() => self.directory(met.key, &met.attributes),
            Some(info) if !unstored.contains(&met.inode) => ObjectInfo { key: met.key, ..info },
            _ => self.unstored(met.key, &met.attributes),
        };
        Ok(found.into_iter().zip(newest).map(one).collect())
    }

    /// The files whose content no version holds. The archive shows the versions of all others.
    async fn unstored_among(&self, found: &[Met]) -> crate::Result<BTreeSet<u64>> {
        let files = found.iter().filter(|met| met.row.is_file());
        let mut unstored: BTreeSet<u64> = files.clone().filter(|met| met.row.open).map(|met| met.inode).collect();
        let pending: Vec<u64> = self.share.step(|core| {
            let pending = |met: &&Met| !met.row.open && core.view.is_pending(met.inode);
            Ok(files.filter(pending).map(|met| met.inode).collect())
        })?;
        for inode in pending {
            match self.share.is_stored(inode).await {
                Ok(true) | Err(FileError::Stale) => {}
                Ok(false) => drop(unstored.insert(inode)),
                Err(error) => return Err(error),
            }
        }
        Ok(unstored)
    }

    /// The versions of every file that has a name. A removed file has none, and its versions are
    /// not listed.
    pub(super) async fn list_file_versions(
        &self,
        caller: &Caller,
        request: ListVersionsRequest,
    ) -> Result<VersionsPage> {
        let caller = self.on_behalf(caller, Access::List, &request.prefix).await?;
        let folding = Folding { prefix: &request.prefix, delimiter: request.delimiter.as_deref() };
        let limit = request.limit.min(LIMIT_MAX);
        let marker = request.key_marker.clone().filter(|marker| !marker.is_empty());
        let bound = match (&marker, request.version_marker) {
            (None, None) => Vec::new(),
            (None, Some(_)) => {
                return Err(ArchiveError::InvalidArgument("a version marker needs a key marker".into()));
            }
            (Some(marker), None) => folding.bound(marker),
            (Some(marker), Some(_)) => marker.clone().into_bytes(),
        };
        let mut page = VersionsPage::default();
        let Some(mut walk) = self.walk(&request.prefix, bound, limit)? else { return Ok(page) };
        let mut last: Option<(String, Option<VersionId>)> = None;
        while let Some(met) = walk.next().await.map_err(refusal)? {
            let left = limit.saturating_sub(page.versions.len() + page.common_prefixes.len());
            if let Some(common) = folding.common(&met.key).map(str::to_owned) {
                page.truncated = left == 0;
                if page.truncated {
                    break;
                }
                walk.skip_to(behind(common.as_bytes()));
                last = Some((common.clone(), None));
                page.common_prefixes.push(common);
                continue;
            }
            let within = request.version_marker.filter(|_| marker.as_ref() == Some(&met.key));
            let (versions, more) = match met.row.is_directory() {
                true if met.is_empty_directory() && within.is_none() => {
                    (vec![self.directory(met.key.clone(), &met.attributes)], false)
                }
                true => (Vec::new(), false),
                false => self.versions_of(&caller, &met, within, left.max(1)).await?,
            };
            page.truncated = (left == 0 && !versions.is_empty()) || more;
            for info in versions.into_iter().take(left) {
                last = Some((info.key.clone(), Some(info.version)));
                page.versions.push(info);
            }
            if page.truncated {
                break;
            }
        }
        if page.truncated {
            (page.next_key_marker, page.next_version_marker) = last.map_or((None, None), |(key, id)| (Some(key), id));
        }
        Ok(page)
    }

    /// At most `limit` versions of a file, and whether more follow.
    async fn versions_of(
        &self,
        caller: &Caller,
        met: &Met,
        behind: Option<VersionId>,
        limit: usize,
    ) -> Result<(Vec<ObjectInfo>, bool)> {
        let key = key_of(met.inode);
        let request = ListVersionsRequest {
            bucket: self.share.name.clone(),
            prefix: key.clone(),
            delimiter: None,
            key_marker: behind.map(|_| key),
            version_marker: behind,
            limit,
        };
        let page = self.share.archive.list_versions(caller, request).await?;
        let named = page.versions.into_iter().map(|info| ObjectInfo { key: met.key.clone(), ..info });
        Ok((named.collect(), page.truncated))
    }
}
