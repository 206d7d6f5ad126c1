//! The index by which a search finds versions: a record without a value for each property that a
//! search can name.
//!
//! A record's key is the bucket, the kind, the value, and the version's own key without its bucket.
//! The records of one value therefore lie in the order of keys, and a page of them ends and begins
//! as a page of versions does. Names and values are hashed to eight bytes. A collision is harmless,
//! since a search judges each version by its row.
//!
//! [`VersionRows`] is the only way to the table of versions, so that no row changes without its
//! index.

use bytes::Bytes;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use stele_catalog::{KeyRange, Table, Transaction};

use crate::model::error::{ArchiveError, Result};
use crate::model::time::Timestamp;
use crate::record::settings::Pairing;
use crate::record::version::VersionRow;
use crate::record::{PROPERTIES, VERSIONS, encode, keys};

/// Entries of the client's metadata that are indexed one by one. A version with more has one record
/// instead, which each search by metadata reads too: a request may bring a thousand entries.
const METADATA_MAX: usize = if cfg!(test) { 3 } else { 64 };
/// Size of the smallest version that is found by its size. Most versions of a large store are
/// smaller.
pub(crate) const LARGE: u64 = if cfg!(test) { 100 } else { 1 << 20 };
/// Precision of the dates, in milliseconds.
const HOUR: u64 = 3_600_000;
/// Bucket, kind and value.
const HEAD: usize = 4 + 1 + 8;

/// The form of the records. A store whose index has another form makes it anew.
pub(crate) const FORM: u32 = 1;
/// The name in the settings under which an [`IndexRow`] is.
pub(crate) const INDEX: &[u8] = b"properties";

/// How far the index is made.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct IndexRow {
    #[n(0)]
    pub form: u32,
    /// The opening for writing that knew of the index. If it is not the catalog's last one, then an
    /// older version of Stele may have written since, and the index says nothing.
    #[n(1)]
    pub pairing: Option<Pairing>,
    #[n(2)]
    pub stage: IndexStage,
}

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) enum IndexStage {
    /// The records of an index that says nothing any more are deleted.
    #[n(0)]
    Clearing,
    /// The versions up to this one have their records.
    #[n(1)]
    Filling(#[n(0)] Option<ByteVec>),
    #[n(2)]
    Complete,
}

impl IndexRow {
    /// Of a new catalog, before its first opening.
    pub fn of_new_catalog() -> IndexRow {
        IndexRow { form: FORM, pairing: None, stage: IndexStage::Complete }
    }

    /// The row after an opening for writing. `former`: the catalog's last opening so far. A row
    /// that is missing, that does not decode or has another form means that the index is made anew.
    pub fn at_opening(raw: Option<&[u8]>, former: Option<Pairing>, next: Pairing) -> IndexRow {
        let known = IndexRow::known(raw, former).map_or(IndexStage::Clearing, |row| row.stage);
        IndexRow { form: FORM, pairing: Some(next), stage: known }
    }

    /// The row, if it tells of the index as it is since the opening `last`.
    pub fn known(raw: Option<&[u8]>, last: Option<Pairing>) -> Option<IndexRow> {
        let row: IndexRow = minicbor::decode(raw?).ok()?;
        (row.form == FORM && row.pairing == last).then_some(row)
    }
}

/// Kinds of properties. A number is never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
enum PropertyKind {
    Tag = 1,
    Metadata = 2,
    MoreMetadata = 3,
    Class = 4,
    Matter = 5,
    Stored = 6,
    Size = 7,
}

/// One property of a version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Property {
    kind: PropertyKind,
    value: u64,
}

impl Property {
    pub fn tag(name: &str, value: &str) -> Property {
        Property { kind: PropertyKind::Tag, value: hash(&[name, value]) }
    }

    /// The client's own metadata.
    pub fn metadata(name: &str, value: &str) -> Property {
        Property { kind: PropertyKind::Metadata, value: hash(&[name, value]) }
    }

    /// More metadata than is indexed.
    pub const MORE_METADATA: Property = Property { kind: PropertyKind::MoreMetadata, value: 0 };

    pub fn class(name: &str) -> Property {
        Property { kind: PropertyKind::Class, value: hash(&[name]) }
    }

    /// Under this matter; `s3` is the legal hold.
    pub fn matter(name: &str) -> Property {
        Property { kind: PropertyKind::Matter, value: hash(&[name]) }
    }

    pub fn stored(at: Timestamp) -> Property {
        Property { kind: PropertyKind::Stored, value: at.0 / HOUR }
    }

    pub fn size(bytes: u64) -> Property {
        Property { kind: PropertyKind::Size, value: bytes }
    }

    fn head(&self, bucket: u32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD);
        bytes.extend_from_slice(&bucket.to_be_bytes());
        bytes.push(self.kind as u8);
        bytes.extend_from_slice(&self.value.to_be_bytes());
        bytes
    }

    /// The key of the record that says so of a version.
    pub fn record_key(&self, version: &[u8]) -> Bytes {
        let (bucket, rest) = version.split_at(4);
        [bucket, &[self.kind as u8], &self.value.to_be_bytes(), rest].concat().into()
    }

    /// The records of all versions below a prefix that have this property, behind the version
    /// `after`.
    pub fn below(&self, bucket: u32, prefix: &str, after: Option<&Bytes>) -> KeyRange {
        let beginning = keys::prefix(bucket, prefix);
        let range = KeyRange::prefix(self.record_key(&beginning));
        match after.filter(|after| **after >= beginning) {
            Some(after) => range.after(self.record_key(after)),
            None => range,
        }
    }

    /// The records of all versions with a property of this kind from this value to `last`.
    pub fn to(&self, last: Property, bucket: u32) -> KeyRange {
        assert!(self.kind == last.kind, "a range is within one kind");
        KeyRange { low: KeyRange::prefix(self.head(bucket)).low, high: KeyRange::prefix(last.head(bucket)).high }
    }

    /// The properties of a version, each once. A delete marker has none, since no search finds it.
    pub fn all_of(row: &VersionRow) -> Vec<Property> {
        if row.marker {
            return Vec::new();
        }
        let mut all = vec![Property::stored(row.modified)];
        all.extend((row.size >= LARGE).then(|| Property::size(row.size)));
        all.extend(row.class.as_ref().map(|mark| Property::class(&mark.name)));
        all.extend(row.matters().map(Property::matter));
        all.extend(row.tags.iter().map(|(name, value)| Property::tag(name, value)));
        match row.metadata.user.len() <= METADATA_MAX {
            true => all.extend(row.metadata.user.iter().map(|(name, value)| Property::metadata(name, value))),
            false => all.push(Property::MORE_METADATA),
        }
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// The first bytes of the BLAKE3 of the texts, each behind its length.
fn hash(texts: &[&str]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    for text in texts {
        hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
    }
    let mut first = [0; 8];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_be_bytes(first)
}

/// The key of the version that a record of the index is about.
pub(crate) fn version_of(record: &[u8]) -> Result<Bytes> {
    match (record.get(..4), record.get(HEAD..)) {
        (Some(bucket), Some(rest)) => Ok([bucket, rest].concat().into()),
        _ => Err(ArchiveError::damaged(
            format!("the catalog's table {}", PROPERTIES.0),
            format!("a key of {} bytes is malformed; `stele catalog rebuild` recovers the catalog", record.len()),
        )),
    }
}

/// A record of the index as text.
pub(crate) fn in_words(record: &[u8]) -> Result<String> {
    let version = version_of(record)?;
    let (bucket, key, inverted) = keys::split(&version)?;
    let value = keys::last_number(&record[..HEAD]);
    Ok(format!("kind {}, value {value:016x}, bucket {bucket}, key {key:?}, number {}", record[4], !inverted))
}

/// Changes of the table of versions, each with its index.
pub(crate) trait VersionRows: Sized {
    /// Puts a version's row. `before`: the row that is there, which the caller requires to be
    /// unchanged.
    fn put_version(self, key: Bytes, before: Option<&VersionRow>, after: &VersionRow, raw: Bytes) -> Self;

    /// Deletes a version's row, which the caller requires to be unchanged.
    fn delete_version(self, key: Bytes, before: &VersionRow) -> Self;
}

impl VersionRows for Transaction {
    fn put_version(self, key: Bytes, before: Option<&VersionRow>, after: &VersionRow, raw: Bytes) -> Transaction {
        let before = before.map(Property::all_of).unwrap_or_default();
        reindex(self, &key, &before, &Property::all_of(after)).put(VERSIONS, key, raw)
    }

    fn delete_version(self, key: Bytes, before: &VersionRow) -> Transaction {
        reindex(self, &key, &Property::all_of(before), &[]).delete(VERSIONS, key)
    }
}

/// The records of a version with these properties.
pub(crate) fn index_of(row: &VersionRow, version: &[u8]) -> impl Iterator<Item = (Table, Bytes, Bytes)> {
    Property::all_of(row).into_iter().map(|property| (PROPERTIES, property.record_key(version), Bytes::new()))
}

/// A version's row and its index, for a catalog that has neither.
pub(crate) fn version_with_index(key: Bytes, row: &VersionRow) -> impl Iterator<Item = (Table, Bytes, Bytes)> {
    let index: Vec<_> = index_of(row, &key).collect();
    index.into_iter().chain([(VERSIONS, key, encode(row))])
}

fn reindex(mut transaction: Transaction, version: &[u8], before: &[Property], after: &[Property]) -> Transaction {
    for property in before.iter().filter(|property| after.binary_search(property).is_err()) {
        transaction = transaction.delete(PROPERTIES, property.record_key(version));
    }
    for property in after.iter().filter(|property| before.binary_search(property).is_err()) {
        transaction = transaction.put(PROPERTIES, property.record_key(version), Bytes::new());
    }
    transaction
}

#[cfg(test)]
mod tests;
