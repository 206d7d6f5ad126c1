//! The rows of the catalog: one file for each type, each row a CBOR array of numbered fields.
//!
//! New fields are added at the end and are optional; readers skip unknown fields. A row that does
//! not decode is damage and is reported by table and key. FORMAT/archive.md lists the rows.

pub(crate) mod access_key;
pub(crate) mod audit;
pub(crate) mod bucket;
pub(crate) mod class;
pub(crate) mod content;
pub(crate) mod disposal;
pub(crate) mod keys;
pub(crate) mod matter;
pub(crate) mod part;
pub(crate) mod properties;
pub(crate) mod request;
pub(crate) mod segment;
pub(crate) mod settings;
pub(crate) mod tombstone;
pub(crate) mod upload;
pub(crate) mod version;

use bytes::Bytes;
use minicbor::{Decode, Encode};
use stele_catalog::{Snapshot, Table};

use crate::model::checksum::to_hex;
use crate::model::error::{ArchiveError, Result};

/// Store-wide records by name: see [`settings`].
pub(crate) const SETTINGS: Table = Table(1);
/// Bucket number: [`bucket::BucketRow`].
pub(crate) const BUCKETS: Table = Table(2);
/// Bucket, key, falling version number: [`version::VersionRow`]. Written through
/// [`properties::VersionRows`] only.
pub(crate) const VERSIONS: Table = Table(3);
/// Object, part number: [`part::PartRow`].
pub(crate) const PARTS: Table = Table(4);
/// Object: [`content::Layout`].
pub(crate) const LAYOUTS: Table = Table(5);
/// Stream, chunk: [`content::ExtentList`].
pub(crate) const EXTENTS: Table = Table(6);
/// Bucket, key, upload number: [`upload::UploadRow`].
pub(crate) const UPLOADS: Table = Table(7);
/// Segment: [`segment::SegmentRow`].
pub(crate) const SEGMENTS: Table = Table(8);
/// Access key id: [`access_key::AccessKeyRow`].
pub(crate) const ACCESS_KEYS: Table = Table(9);
/// Number: [`audit::AuditRow`].
pub(crate) const AUDIT: Table = Table(10);
/// First record covered: [`audit::CheckpointRow`].
pub(crate) const CHECKPOINTS: Table = Table(11);
/// Bucket, key, falling version number: [`tombstone::TombstoneRow`].
pub(crate) const TOMBSTONES: Table = Table(12);
/// Bucket, kind: a counter.
pub(crate) const USAGE: Table = Table(13);
/// End of retention, object: where the version is, a [`version::VersionRef`].
pub(crate) const RETAINED: Table = Table(14);
/// Object: a version under legal hold, a [`version::VersionRef`].
pub(crate) const HOLDS: Table = Table(15);
/// Key slot whose entry is destroyed and may be used again: empty.
pub(crate) const FREE_SLOTS: Table = Table(16);
/// Key slot whose entry is to be destroyed, and rows to be cleared: [`disposal::DisposalRow`].
pub(crate) const DISPOSALS: Table = Table(17);
/// Object with content of more than one piece: its version or upload, a [`version::Owner`].
pub(crate) const OBJECTS: Table = Table(18);
/// Access key id that is revoked: empty. Every change by a key requires that it has no such row.
pub(crate) const REVOKED: Table = Table(19);
/// Id of a request that waits for another officer's approval: [`request::RequestRow`].
pub(crate) const REQUESTS: Table = Table(20);

/// Name of a matter: [`matter::MatterRow`].
pub(crate) const MATTERS: Table = Table(23);
/// Name of a matter, object: a version under it, a [`version::VersionRef`].
pub(crate) const MATTER_HOLDS: Table = Table(24);
/// Name of a matter: how far its selection is processed, a [`matter::ProgressRow`].
pub(crate) const MATTER_PROGRESS: Table = Table(25);

/// Name of a management class: [`class::ClassRow`].
pub(crate) const CLASSES: Table = Table(26);
/// Thing whose newest note may state a change that did not take place, a
/// [`crate::space::compensations::NoteSubject`]: empty.
pub(crate) const NOTES_DUE: Table = Table(27);

/// Name of a target of notifications, number: an event that waits for it, a
/// [`crate::model::notification::ObjectEvent`].
pub(crate) const EVENTS: Table = Table(28);
/// `h` and a target: the head of its events. `d` and a target: a counter of those dropped. `t` and
/// a target: when the last one was dropped, a [`crate::model::time::Timestamp`].
pub(crate) const EVENT_ENDS: Table = Table(29);
/// Bucket, id of an inventory: when it was last made, an [`crate::model::inventory::InventoryRun`].
pub(crate) const INVENTORY_RUNS: Table = Table(30);
/// As [`RETAINED`]: a version that expiration judges again, though its pass has gone by.
pub(crate) const EXPIRE_AGAIN: Table = Table(34);
/// Access key id, a zero, kind: a counter of what the key owns. See [`crate::state::owned`].
pub(crate) const OWNED: Table = Table(37);
/// Bucket, kind, value, and a version's key without its bucket: empty. The version has this
/// [`properties::Property`].
pub(crate) const PROPERTIES: Table = Table(36);

pub(crate) fn encode<T: Encode<()>>(record: &T) -> Bytes {
    minicbor::to_vec(record).expect("encoding into memory cannot fail, and no record type refuses a value").into()
}

pub(crate) fn decode<'b, T: Decode<'b, ()>>(table: Table, key: &[u8], bytes: &'b [u8]) -> Result<T> {
    minicbor::decode(bytes).map_err(|error| {
        ArchiveError::damaged(
            format!("record {} of table {}", to_hex(key), table.0),
            format!("{error}; `stele catalog rebuild` recovers the catalog from the data volume"),
        )
    })
}

/// The record at a key, decoded.
pub(crate) fn fetch<T: for<'b> Decode<'b, ()>>(snapshot: &dyn Snapshot, table: Table, key: &[u8]) -> Result<Option<T>> {
    match snapshot.get(table, key)? {
        Some(bytes) => decode(table, key, &bytes).map(Some),
        None => Ok(None),
    }
}
