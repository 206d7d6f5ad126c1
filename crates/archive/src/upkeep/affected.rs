//! The versions in unreadable places, for an operator who restores them from elsewhere.
//!
//! The catalog knows the place of each piece, so nothing on the data volume is read.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::model::error::Result;
use crate::record::content::{Content, Extent, ExtentList, Place, Stream};
use crate::record::part::PartRow;
use crate::record::version::VersionRow;
use crate::record::{EXTENTS, PARTS, VERSIONS, decode, keys};
use crate::space::places::places;
use crate::store::scan::scan;
use crate::store::{Archive, Store};

/// A version with an unreadable part.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Affected {
    pub bucket: String,
    pub key: String,
    pub version: String,
    /// The size of its content.
    pub bytes: u64,
    /// False: only its note is unreadable, which a rebuild of the catalog would need.
    pub content: bool,
}

/// Ranges of the data volume, as offset and length, sorted and disjoint.
struct Ranges<'a> {
    store: &'a Store,
    ranges: &'a [(u64, u64)],
}

impl Ranges<'_> {
    fn meet(&self, place: &Place) -> bool {
        let from = self.store.segments().start(place.segment) + u64::from(place.at);
        let to = from + u64::from(place.length);
        let after = self.ranges.partition_point(|(at, length)| at + length <= from);
        self.ranges.get(after).is_some_and(|(at, _)| *at < to)
    }

    fn meet_any(&self, extents: &[Extent]) -> bool {
        places(&Place::default(), extents).iter().any(|place| self.meet(place))
    }
}

impl Archive {
    /// The versions in these ranges of the data volume, in part or whole, and their number. Returns at most `limit`
    /// of them, in the order of buckets and keys. Walks the whole catalog.
    pub fn affected(&self, ranges: &[(u64, u64)], limit: usize) -> Result<(Vec<Affected>, u64)> {
        let store = &self.store();
        let mut sorted = ranges.to_vec();
        sorted.sort_unstable();
        let ranges = Ranges { store, ranges: &sorted };
        let mut objects: BTreeSet<u64> = BTreeSet::new();
        if sorted.is_empty() {
            return Ok((Vec::new(), 0));
        }
        scan(store.catalog(), EXTENTS, |key, value| {
            let list: ExtentList = decode(EXTENTS, key, value)?;
            if ranges.meet_any(&list.extents) {
                objects.insert(list.object);
            }
            Ok(())
        })?;
        scan(store.catalog(), PARTS, |key, value| {
            let row: PartRow = decode(PARTS, key, value)?;
            let extents = row.stream.extents.as_deref().unwrap_or_default();
            if let Some(object) = key.first_chunk::<8>()
                && ranges.meet_any(extents)
            {
                objects.insert(u64::from_be_bytes(*object));
            }
            Ok(())
        })?;
        let (mut named, mut count) = (Vec::new(), 0);
        scan(store.catalog(), VERSIONS, |record_key, value| {
            let row: VersionRow = decode(VERSIONS, record_key, value)?;
            let inline = match &row.content {
                Content::Stream(Stream { extents: Some(extents), .. }) => ranges.meet_any(extents),
                _ => false,
            };
            let content = inline || objects.contains(&row.object);
            if !content && !ranges.meet(&row.note) {
                return Ok(());
            }
            let (number, key, inverted) = keys::split(record_key)?;
            let Some(bucket) = store.buckets().by_number(number) else { return Ok(()) };
            count += 1;
            if named.len() < limit {
                let version = row.id(!inverted).to_string();
                named.push(Affected { bucket: bucket.name().to_string(), key, version, bytes: row.size, content });
            }
            Ok(())
        })?;
        Ok((named, count))
    }
}
