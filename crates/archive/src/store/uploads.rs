//! Uploads under way, and the parts of uploads and objects.
//!
//! The parts of an upload under way count to its bucket. Their rows come into the catalog through
//! [`Store::with_part`] alone, and an upload ends through [`Store::without_upload`] alone. So the
//! counts and the rows change in one transaction. Behind its end, the rows are those of an object
//! or of a disposal, and count no longer.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use stele_catalog::{KeyRange, Snapshot, Transaction};

use crate::model::error::{ArchiveError, Result};
use crate::model::version::VersionId;
use crate::record::content::Layout;
use crate::record::part::PartRow;
use crate::record::upload::UploadRow;
use crate::record::{LAYOUTS, PARTS, UPLOADS, decode, encode, fetch, keys};
use crate::state::buckets::Bucket;
use crate::state::owned::{Limited, OwnedChange, count_owned};
use crate::state::usage::{Counter, PartCharge};
use crate::store::committing::Proof;
use crate::store::scan::Scan;
use crate::store::{Store, lookup};

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

/// A part's row in a transaction.
pub(crate) struct Placed {
    pub transaction: Transaction,
    /// The preconditions that fail where the quota has no room.
    pub quota: Range<usize>,
    /// The limits of the key that began the upload.
    pub limited: Limited,
    pub replaced: Option<PartRow>,
    pub proof: Proof,
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

/// The bytes of these parts.
pub(crate) fn size_of<'a>(rows: impl IntoIterator<Item = &'a PartRow>) -> i64 {
    rows.into_iter().map(|row| row.stream.size as i64).sum()
}

/// Bytes of the parts of a bucket's unfinished uploads, from the rows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct PartBytes {
    /// Those that clients stored.
    pub clients: i64,
    pub gateway: i64,
}

impl PartBytes {
    pub fn unfinished(&self) -> i64 {
        self.clients + self.gateway
    }
}

/// Adds up the rows of a bucket's unfinished uploads. A row that cannot be read is damage, which
/// reads and scrubs report: it counts nothing here.
pub(crate) fn parts_of_bucket(snapshot: &dyn Snapshot, bucket: &Bucket) -> Result<PartBytes> {
    let mut sum = PartBytes::default();
    let mut uploads = Scan::new(snapshot, UPLOADS, KeyRange::prefix(keys::prefix(bucket.number, "")));
    while let Some((record_key, value)) = uploads.next()? {
        let (_, key, _) = keys::split(&record_key)?;
        let rows = decode(UPLOADS, &record_key, &value).and_then(|row: UploadRow| part_rows(snapshot, row.object));
        let bytes = match rows {
            Ok(rows) => size_of(rows.values()),
            Err(error @ ArchiveError::Damaged { .. }) => {
                tracing::warn!("the parts of an upload to `{}/{key}` are not counted: {error}", bucket.name());
                0
            }
            Err(error) => return Err(error),
        };
        match bucket.counter_of_parts(&key) {
            Counter::Gateway => sum.gateway += bytes,
            _ => sum.clients += bytes,
        }
    }
    Ok(sum)
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

    /// What a part of so many bytes adds, and what the quota must have room for. `replaced`: the
    /// part with its number.
    pub(crate) fn charge(
        &self,
        snapshot: &dyn Snapshot,
        bucket: &Bucket,
        (key, object): (&str, u64),
        size: u64,
        replaced: Option<&PartRow>,
    ) -> Result<PartCharge> {
        let counter = bucket.counter_of_parts(key);
        let added = size as i64 - size_of(replaced);
        if counter != Counter::Gateway {
            return Ok(PartCharge { counter, added, judged: added });
        }
        // The version that these parts become is judged when it takes the place of the former one.
        // What would be refused then is refused now.
        let there = match bucket.versioned() {
            true => 0,
            false => lookup::null_version(snapshot, bucket, key)?.map_or(0, |found| found.row.size as i64),
        };
        let judged = size_of(part_rows(snapshot, object)?.values()) + added - there;
        Ok(PartCharge { counter, added, judged })
    }

    /// Adds the row of a part to a transaction, in the place of an earlier one, with the bucket's
    /// count. Requires the upload and the earlier part to be unchanged. Under the lock of the
    /// upload's key.
    pub(crate) fn with_part(
        &self,
        transaction: Transaction,
        bucket: &Bucket,
        (key, upload, number): (&str, &Upload, u32),
        row: &PartRow,
    ) -> Result<Placed> {
        let object = upload.row.object;
        let part_key = keys::pair(object, number);
        let snapshot = self.snapshot()?;
        let there = snapshot.get(PARTS, &part_key)?;
        let upload_key = keys::upload(bucket.number, key, upload.number);
        let mut transaction = transaction.equals(UPLOADS, upload_key, upload.raw.clone());
        transaction = match &there {
            Some(raw) => transaction.equals(PARTS, part_key.clone(), raw.clone()),
            None => transaction.absent(PARTS, part_key.clone()),
        };
        let replaced: Option<PartRow> = there.map(|raw| decode(PARTS, &part_key, &raw)).transpose()?;
        let charge = self.charge(&*snapshot, bucket, (key, object), row.stream.size, replaced.as_ref())?;
        let raw = encode(row);
        let before = transaction.preconditions.len();
        let transaction = bucket.count_part(transaction.put(PARTS, part_key.clone(), raw.clone()), charge);
        let quota = before..transaction.preconditions.len();
        let (owner, change) = (&upload.row.owner, OwnedChange::bytes(charge.added));
        let mut limited = self.limit_owned(transaction, owner, change)?;
        let transaction = count_owned(limited.take(), owner, change);
        let proof = Proof { table: PARTS, key: part_key, value: Some(raw) };
        Ok(Placed { transaction, quota, limited, replaced, proof })
    }

    /// Takes an upload out of the catalog, and its parts out of the bucket's count. `rows`: all its
    /// parts. Under the lock of the upload's key, which was held when the rows were read.
    pub(crate) fn without_upload(
        &self,
        transaction: Transaction,
        bucket: &Bucket,
        key: &str,
        upload: &Upload,
        rows: &BTreeMap<u32, PartRow>,
    ) -> Transaction {
        let record_key = keys::upload(bucket.number, key, upload.number);
        let transaction =
            transaction.equals(UPLOADS, record_key.clone(), upload.raw.clone()).delete(UPLOADS, record_key);
        let bytes = size_of(rows.values());
        let transaction = count_owned(transaction, &upload.row.owner, OwnedChange::bytes(-bytes));
        bucket.count_parts_out(transaction, bucket.counter_of_parts(key), bytes)
    }

    /// The layout of a multipart object.
    pub fn layout(&self, object: u64) -> Result<Layout> {
        let snapshot = self.snapshot()?;
        fetch(&*snapshot, LAYOUTS, &keys::number(object))?
            .ok_or_else(|| ArchiveError::damaged(format!("object {object}"), "its list of parts is missing"))
    }
}
