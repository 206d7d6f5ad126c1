//! The versions in unreadable places, for an operator who restores them from elsewhere.
//!
//! The catalog knows the place of each piece, so no content is read. Thousands of keys lie in one
//! stripe, of which a part may be readable, so the blocks of the key table are read one by one.

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
    /// Its content or its key is unreadable. False: only its note is, or a marker's entry, which a
    /// rebuild of the catalog would need.
    pub content: bool,
}

/// What cannot be read of the data volume.
pub struct Unreadable {
    /// Offset and length, sorted and disjoint.
    ranges: Vec<(u64, u64)>,
    /// Blocks of the key table.
    keys: BTreeSet<u64>,
}

struct Look<'a> {
    store: &'a Store,
    of: &'a Unreadable,
}

impl Look<'_> {
    fn meet(&self, place: &Place) -> bool {
        let from = self.store.segments().start(place.segment) + u64::from(place.at);
        let to = from + u64::from(place.length);
        let after = self.of.ranges.partition_point(|(at, length)| at + length <= from);
        self.of.ranges.get(after).is_some_and(|(at, _)| *at < to)
    }

    /// Whether the slot's wrapped key cannot be read. A slot outside of the table has no key.
    fn meet_key(&self, slot: u64) -> bool {
        self.store.keys().block(slot).is_ok_and(|(block, _)| self.of.keys.contains(&block))
    }

    fn meet_any(&self, extents: &[Extent]) -> bool {
        places(&Place::default(), extents).iter().any(|place| self.meet(place))
    }
}

impl Archive {
    /// For `affected`: these ranges of the data volume cannot be read, or not all of their bytes.
    pub async fn unreadable(&self, mut ranges: Vec<(u64, u64)>) -> Unreadable {
        ranges.sort_unstable();
        let keys = self.store().keys().unreadable(&ranges).await;
        Unreadable { ranges, keys }
    }

    /// The versions of which something cannot be read, and their number. Returns at most `limit` of
    /// them, in the order of buckets and keys. Walks the whole catalog.
    pub fn affected(&self, of: &Unreadable, limit: usize) -> Result<(Vec<Affected>, u64)> {
        let store = &self.store();
        let look = Look { store, of };
        let mut objects: BTreeSet<u64> = BTreeSet::new();
        if of.ranges.is_empty() {
            return Ok((Vec::new(), 0));
        }
        scan(store.catalog(), EXTENTS, |key, value| {
            let list: ExtentList = decode(EXTENTS, key, value)?;
            if look.meet_any(&list.extents) {
                objects.insert(list.object);
            }
            Ok(())
        })?;
        scan(store.catalog(), PARTS, |key, value| {
            let row: PartRow = decode(PARTS, key, value)?;
            let extents = row.stream.extents.as_deref().unwrap_or_default();
            if let Some(object) = key.first_chunk::<8>()
                && look.meet_any(extents)
            {
                objects.insert(u64::from_be_bytes(*object));
            }
            Ok(())
        })?;
        let (mut named, mut count) = (Vec::new(), 0);
        scan(store.catalog(), VERSIONS, |record_key, value| {
            let row: VersionRow = decode(VERSIONS, record_key, value)?;
            let inline = match &row.content {
                Content::Stream(Stream { extents: Some(extents), .. }) => look.meet_any(extents),
                _ => false,
            };
            let key = look.meet_key(row.slot);
            // Without its key, content that can be read cannot be decrypted.
            let content = inline || objects.contains(&row.object) || key && !row.marker;
            if !content && !key && !look.meet(&row.note) {
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
