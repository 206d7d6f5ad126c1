//! Catalog records and headers of the data volume as text, for operators and for fuzzers. No input
//! makes it panic.

use minicbor::{Decode, Encode};
use stele_catalog::Table;

use crate::model::error::{ArchiveError, Result};
use crate::record::access_key::AccessKeyRow;
use crate::record::audit::{AuditRow, CheckpointRow, SealedRow};
use crate::record::bucket::BucketRow;
use crate::record::class::ClassRow;
use crate::record::content::{ExtentList, Layout};
use crate::record::disposal::DisposalRow;
use crate::record::matter::{MatterRow, ProgressRow};
use crate::record::part::PartRow;
use crate::record::properties::{INDEX, IndexRow, in_words};
use crate::record::segment::SegmentRow;
use crate::record::settings::{
    AUDIT_SEALED, CLOCK, ClockRow, EXPIRY, ExpiryRow, IDENTITY, IdentityRow, NUMBERS, ReservedRow, SLOTS, SUPERBLOCK,
};
use crate::record::tombstone::TombstoneRow;
use crate::record::upload::UploadRow;
use crate::record::version::{Owner, VersionRef, VersionRow};
use crate::record::{self, decode, encode};
use crate::space::compensations::NoteSubject;
use crate::space::header::{RecordHeader, SegmentFooter, SegmentHeader, u64_at};
use crate::space::keytable::Entry;
use crate::space::superblock::Superblock;

/// A catalog record as text: its fields by name. Secrets in it are sealed.
pub fn catalog_record(table: u16, key: &[u8], value: &[u8]) -> Result<String> {
    match Table(table) {
        record::SETTINGS if key == IDENTITY => show::<IdentityRow>(table, key, value),
        record::SETTINGS if key == CLOCK => show::<ClockRow>(table, key, value),
        record::SETTINGS if key == NUMBERS || key == SLOTS => show::<ReservedRow>(table, key, value),
        record::SETTINGS if key == EXPIRY => show::<ExpiryRow>(table, key, value),
        record::SETTINGS if key == INDEX => show::<IndexRow>(table, key, value),
        record::SETTINGS if key == AUDIT_SEALED => show::<SealedRow>(table, key, value),
        record::SETTINGS if key == SUPERBLOCK => Ok(format!("{:?}", Superblock::identified(value, None))),
        record::SETTINGS => Ok(format!("head of a sequence, {} bytes", value.len())),
        record::BUCKETS => show::<BucketRow>(table, key, value),
        record::VERSIONS => show::<VersionRow>(table, key, value),
        record::PARTS => show::<PartRow>(table, key, value),
        record::LAYOUTS => show::<Layout>(table, key, value),
        record::EXTENTS => show::<ExtentList>(table, key, value),
        record::UPLOADS => show::<UploadRow>(table, key, value),
        record::SEGMENTS => show::<SegmentRow>(table, key, value),
        record::ACCESS_KEYS => show::<AccessKeyRow>(table, key, value),
        record::AUDIT => show::<AuditRow>(table, key, value),
        record::CHECKPOINTS => show::<CheckpointRow>(table, key, value),
        record::TOMBSTONES => show::<TombstoneRow>(table, key, value),
        record::RETAINED | record::HOLDS | record::MATTER_HOLDS | record::EXPIRE_AGAIN => {
            show::<VersionRef>(table, key, value)
        }
        record::DISPOSALS => show::<DisposalRow>(table, key, value),
        record::CLASSES => show::<ClassRow>(table, key, value),
        record::MATTERS => show::<MatterRow>(table, key, value),
        record::MATTER_PROGRESS => show::<ProgressRow>(table, key, value),
        record::OBJECTS => show::<Owner>(table, key, value),
        record::NOTES_DUE => show::<NoteSubject>(table, key, key),
        record::PROPERTIES => in_words(key),
        record::USAGE | record::FREE_SLOTS => Ok(format!("{} bytes", value.len())),
        Table(other) => Err(ArchiveError::InvalidArgument(format!("the archive has no table {other}"))),
    }
}

/// Decodes a record and checks that encoding it preserves it.
fn show<T>(table: u16, key: &[u8], value: &[u8]) -> Result<String>
where
    T: Encode<()> + for<'b> Decode<'b, ()> + PartialEq + std::fmt::Debug,
{
    let read: T = decode(Table(table), key, value)?;
    let again = encode(&read);
    assert!(decode::<T>(Table(table), key, &again).as_ref() == Ok(&read), "a record does not survive its encoding");
    Ok(format!("{read:?}"))
}

/// The format of the store on a data volume that this code writes.
pub const STORE_FORMAT: u32 = crate::space::superblock::FORMAT;

/// The format and the segment size of a copy of the superblock. None: the block is no copy.
pub fn store_format(block: &[u8]) -> Option<(u32, u32)> {
    Some((Superblock::format(block)?, crate::space::header::u32_at(block, 12)))
}

/// The format of the segments that this code writes.
pub const SEGMENT_FORMAT: u32 = 1;

/// The format that the header of a segment states, if it is one.
pub fn segment_format(block: &[u8]) -> Option<u32> {
    SegmentHeader::format(block)
}

/// The start of a block of the data volume as text, if any known structure begins there.
pub fn volume_block(bytes: &[u8]) -> Option<String> {
    let incarnation = bytes.get(56..64).map_or(0, |bytes| u64_at(bytes, 0));
    Superblock::decode(bytes)
        .map(|block| format!("{block:?}"))
        .or_else(|| RecordHeader::decode(bytes, incarnation).map(|header| format!("{header:?}")))
        .or_else(|| {
            let incarnation = bytes.get(8..16).map_or(0, |bytes| u64_at(bytes, 0));
            SegmentFooter::decode(bytes, incarnation).map(|footer| format!("{footer:?}"))
        })
        .or_else(|| Entry::decode(bytes).map(|entry| format!("key entry of object {}", entry.object)))
}

/// The bucket, the S3 key and the number in a record key of tables 3, 7 and 12.
pub fn record_key(key: &[u8]) -> Result<(u32, String, u64)> {
    record::keys::split(key)
}
