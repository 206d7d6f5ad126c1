//! The records on the data volume that rows of the catalog refer to.

use stele_catalog::{Table, Transaction};

use crate::model::error::Result;
use crate::record::access_key::AccessKeyRow;
use crate::record::bucket::BucketRow;
use crate::record::class::ClassRow;
use crate::record::content::{CHUNK_EXTENTS, Content, Extent, ExtentList, INLINE_EXTENTS, Place, Stream};
use crate::record::matter::MatterRow;
use crate::record::part::PartRow;
use crate::record::version::VersionRow;
use crate::record::{ACCESS_KEYS, BUCKETS, CLASSES, EXTENTS, MATTERS, PARTS, VERSIONS, decode, encode, keys};
use crate::space::frames::sealed_length;
use crate::space::header::record_length;

/// Puts few extents in the row itself, and more in rows of their own.
pub(crate) fn place_extents(
    mut transaction: Transaction,
    object: u64,
    stream: &mut crate::record::content::Stream,
    extents: &[Extent],
) -> Transaction {
    if extents.len() <= INLINE_EXTENTS {
        stream.extents = Some(extents.to_vec());
        return transaction;
    }
    stream.extents = None;
    for (chunk, extents) in extents.chunks(CHUNK_EXTENTS).enumerate() {
        let list = ExtentList { extents: extents.to_vec(), object };
        transaction = transaction.put(EXTENTS, keys::pair(stream.number, chunk as u32), encode(&list));
    }
    transaction
}

/// The records of these pieces and this note. A record that holds both counts once.
pub(crate) fn places(note: &Place, extents: &[Extent]) -> Vec<Place> {
    let mut places: Vec<Place> = extents
        .iter()
        .map(|extent| Place { segment: extent.segment, at: extent.at, length: piece_length(extent) })
        .filter(|place| (place.segment, place.at) != (note.segment, note.at))
        .collect();
    if note.length > 0 {
        places.push(*note);
    }
    places
}

/// The tables whose rows refer to records on the data volume.
pub(crate) const REFERRING: [Table; 7] = [VERSIONS, PARTS, EXTENTS, BUCKETS, ACCESS_KEYS, CLASSES, MATTERS];

/// The records to which a row of one of these tables refers.
pub(crate) fn referred(table: Table, key: &[u8], value: &[u8]) -> Result<Vec<Place>> {
    Ok(match table {
        VERSIONS => {
            let row: VersionRow = decode(table, key, value)?;
            match &row.content {
                Content::Stream(Stream { extents: Some(extents), .. }) => places(&row.note, extents),
                _ => places(&row.note, &[]),
            }
        }
        PARTS => {
            let row: PartRow = decode(table, key, value)?;
            places(&row.note, row.stream.extents.as_deref().unwrap_or_default())
        }
        EXTENTS => {
            let list: ExtentList = decode(table, key, value)?;
            places(&Place::default(), &list.extents)
        }
        BUCKETS => places(&decode::<BucketRow>(table, key, value)?.note, &[]),
        ACCESS_KEYS => places(&decode::<AccessKeyRow>(table, key, value)?.note, &[]),
        CLASSES => places(&decode::<ClassRow>(table, key, value)?.note, &[]),
        MATTERS => places(&decode::<MatterRow>(table, key, value)?.note, &[]),
        _ => Vec::new(),
    })
}

/// Bytes of a piece's record, without a note.
pub(crate) fn piece_length(extent: &Extent) -> u32 {
    record_length(sealed_length(extent.bytes as usize) as u32)
}
