//! The records on the data volume that rows of the catalog refer to.

use stele_catalog::Transaction;

use crate::record::content::{CHUNK_EXTENTS, Extent, ExtentList, INLINE_EXTENTS, Place};
use crate::record::{EXTENTS, encode, keys};
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

/// Bytes of a piece's record, without a note.
pub(crate) fn piece_length(extent: &Extent) -> u32 {
    record_length(sealed_length(extent.bytes as usize) as u32)
}
