//! Which versions a search has to look at: all below its prefix, or those that the index names.
//!
//! The plan is made anew for each page, until one finds that nothing is quicker than the scan. A
//! property that few versions have ends the question: the index lists them all, in the order of
//! keys. Dates and sizes are ranges, whose records lie in another order; they are gathered and
//! sorted, up to a limit. Of properties that many versions have, the page walks along the rarest,
//! as the first records of each show it. What remains is the scan. Each candidate is judged by its
//! row, so a plan can only be slow, never wrong.
//!
//! Memory: the keys of one page, or the gathered keys up to their limit.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use stele_catalog::{Direction, KeyRange, Snapshot};

use crate::model::error::Result;
use crate::model::time::Timestamp;
use crate::record::properties::{LARGE, Property, version_of};
use crate::record::{PROPERTIES, VERSIONS, keys};
use crate::retention::find::FindQuery;

/// Records that a plan reads of each property, and properties that it asks for.
const PROBE: usize = if cfg!(test) { 8 } else { 1000 };
const PROBES_MAX: usize = 16;
/// Records of a range that are gathered, and the bytes of their keys.
const GATHERED_MAX: usize = if cfg!(test) { 40 } else { 50_000 };
const GATHERED_BYTES_MAX: usize = 16 << 20;
const GATHER_PAGE: usize = if cfg!(test) { 16 } else { 1000 };

/// The versions that a page of a search looks at.
#[derive(Debug)]
pub(crate) enum Candidates {
    /// All below the prefix.
    All,
    /// Those with any of these properties.
    Having(Vec<Property>),
    /// These, which are all that are left, in the order of keys.
    Listed(VecDeque<Bytes>),
}

/// Rows of versions in the order of keys, and the key behind which the next page begins.
pub(crate) type Rows = (Vec<(Bytes, Bytes)>, Option<Bytes>);

impl FindQuery {
    /// Properties that each version found has: one of each list.
    fn required(&self) -> Vec<Vec<Property>> {
        let mut required: Vec<Vec<Property>> = Vec::new();
        required.extend(self.selection.tags.iter().map(|(name, value)| vec![Property::tag(name, value)]));
        required.extend(
            self.metadata.iter().map(|(name, value)| vec![Property::metadata(name, value), Property::MORE_METADATA]),
        );
        required.extend(self.class.iter().map(|name| vec![Property::class(name)]));
        required.extend(self.matter.iter().map(|name| vec![Property::matter(name)]));
        required.truncate(PROBES_MAX);
        required
    }

    /// Ranges of which each version found has a property in each.
    fn ranges(&self) -> Vec<(Property, Property)> {
        let mut ranges = Vec::new();
        let (after, before) = (self.selection.stored_after, self.selection.stored_before);
        if after.is_some() || before.is_some() {
            let last = before.map_or(u64::MAX, |before| before.0.saturating_sub(1));
            ranges.push((Property::stored(after.unwrap_or(Timestamp(0))), Property::stored(Timestamp(last))));
        }
        // Smaller versions are not in the index.
        if let Some(least) = self.size_min.filter(|least| *least >= LARGE) {
            ranges.push((Property::size(least), Property::size(self.size_max.unwrap_or(u64::MAX))));
        }
        ranges
    }
}

/// The index below a prefix of a bucket.
pub(crate) struct Below<'a> {
    pub snapshot: &'a dyn Snapshot,
    pub bucket: u32,
    pub prefix: &'a str,
}

impl Below<'_> {
    /// The candidates of the page behind `after`.
    pub async fn plan(&self, query: &FindQuery, after: Option<&Bytes>) -> Result<Candidates> {
        let mut shortest: Option<Vec<Bytes>> = None;
        let mut rarest: Option<(Bytes, Vec<Property>)> = None;
        for properties in query.required() {
            let (found, more) = self.having(&properties, after, PROBE)?;
            let is_shorter = || shortest.as_ref().is_none_or(|shortest| found.len() < shortest.len());
            let reaches = || found.last().filter(|last| rarest.as_ref().is_none_or(|(reach, _)| *last > reach));
            if !more && is_shorter() {
                shortest = Some(found);
            } else if more && let Some(last) = reaches() {
                // The further so many records reach, the fewer versions have the property here.
                rarest = Some((last.clone(), properties));
            }
        }
        if let Some(shortest) = shortest {
            return Ok(Candidates::Listed(shortest.into()));
        }
        let ranges = query.ranges();
        // Few versions are left below the prefix: nothing is quicker than to read them.
        if rarest.is_none() && (ranges.is_empty() || self.is_short(after)?) {
            return Ok(Candidates::All);
        }
        let mut gathered: Option<Vec<Bytes>> = None;
        for (first, last) in ranges {
            if let Some(found) = self.gathered(first, last, after).await?
                && gathered.as_ref().is_none_or(|gathered| found.len() < gathered.len())
            {
                gathered = Some(found);
            }
        }
        Ok(match (gathered, rarest) {
            (Some(gathered), _) => Candidates::Listed(gathered.into()),
            (None, Some((_, properties))) => Candidates::Having(properties),
            (None, None) => Candidates::All,
        })
    }

    /// The next page of the candidates.
    pub fn page(&self, candidates: &mut Candidates, after: Option<&Bytes>, limit: usize) -> Result<Rows> {
        let (found, more) = match candidates {
            Candidates::All => return self.scan(after, limit),
            Candidates::Having(properties) => self.having(properties, after, limit)?,
            Candidates::Listed(left) => (left.drain(..limit.min(left.len())).collect(), !left.is_empty()),
        };
        let next = found.last().filter(|_| more).cloned();
        let mut rows = Vec::with_capacity(found.len());
        for key in found {
            if let Some(raw) = self.snapshot.get(VERSIONS, &key)? {
                rows.push((key, raw));
            }
        }
        Ok((rows, next))
    }

    /// The next page of all versions below the prefix.
    pub fn scan(&self, after: Option<&Bytes>, limit: usize) -> Result<Rows> {
        let range = below(self.bucket, self.prefix, after);
        let rows = self.snapshot.range(VERSIONS, &range, limit, Direction::Forward)?;
        let next = rows.last().filter(|_| rows.len() == limit).map(|(key, _)| key.clone());
        Ok((rows, next))
    }

    /// Versions with any of the properties, in the order of keys, and whether there may be more.
    fn having(&self, properties: &[Property], after: Option<&Bytes>, limit: usize) -> Result<(Vec<Bytes>, bool)> {
        let mut merged = BTreeSet::new();
        for property in properties {
            let range = property.below(self.bucket, self.prefix, after);
            let records = self.snapshot.range(PROPERTIES, &range, limit, Direction::Forward)?;
            let versions: Result<Vec<Bytes>> = records.iter().map(|(record, _)| version_of(record)).collect();
            merged.extend(versions?);
        }
        // So many keys lie up to the end of each full list: none is left out before the last one
        // taken.
        let more = merged.len() >= limit;
        Ok((merged.into_iter().take(limit).collect(), more))
    }

    /// All versions with a property in the range, in the order of keys. None: too many records to
    /// gather.
    async fn gathered(&self, first: Property, last: Property, after: Option<&Bytes>) -> Result<Option<Vec<Bytes>>> {
        let beginning = keys::prefix(self.bucket, self.prefix);
        let mut range = first.to(last, self.bucket);
        let (mut found, mut seen, mut bytes) = (Vec::new(), 0, 0);
        while !range.is_void() {
            let records = self.snapshot.range(PROPERTIES, &range, GATHER_PAGE, Direction::Forward)?;
            seen += records.len();
            for (record, _) in &records {
                let version = version_of(record)?;
                if version.starts_with(&beginning) && after.is_none_or(|after| version > *after) {
                    bytes += version.len();
                    found.push(version);
                }
            }
            if seen > GATHERED_MAX || bytes > GATHERED_BYTES_MAX {
                return Ok(None);
            }
            match records.last() {
                Some((record, _)) if records.len() == GATHER_PAGE => range = range.after(record.clone()),
                _ => break,
            }
            // Requests on the same thread go on.
            tokio::task::yield_now().await;
        }
        found.sort_unstable();
        Ok(Some(found))
    }

    fn is_short(&self, after: Option<&Bytes>) -> Result<bool> {
        let range = below(self.bucket, self.prefix, after);
        Ok(self.snapshot.range(VERSIONS, &range, PROBE, Direction::Forward)?.len() < PROBE)
    }
}

/// The versions below a prefix of a bucket, behind the version `after`.
pub(crate) fn below(bucket: u32, prefix: &str, after: Option<&Bytes>) -> KeyRange {
    let beginning = keys::prefix(bucket, prefix);
    match after.filter(|after| **after >= beginning) {
        Some(after) => KeyRange::prefix(beginning).after(after.clone()),
        None => KeyRange::prefix(beginning),
    }
}
