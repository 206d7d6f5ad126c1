use zeroize::Zeroizing;

use super::*;
use crate::compress::LEVEL_DEFAULT;
use crate::testing::random;

fn keys() -> Keys {
    Keys::new(Zeroizing::new([9; 32]))
}

fn contents() -> Vec<Vec<u8>> {
    vec![b"text ".repeat(50), random(1, 300), Vec::new(), b"another text".repeat(9)]
}

fn segment(kind: Kind) -> Vec<u8> {
    let (keys, mut compressor) = (keys(), Compressor::new(LEVEL_DEFAULT).unwrap());
    let mut writer = SegmentWriter::new(&keys, kind, [3; 32], Vec::new());
    for (at, raw) in contents().iter().enumerate() {
        let chunk = Prepared::new(keys.id(kind, raw), raw, &mut compressor).unwrap();
        assert_eq!(writer.add(&chunk), Ok(at));
    }
    writer.finish().bytes
}

/// The chunks of a segment; an error is that of the footer or of any chunk.
fn read(bytes: &[u8], keys: &Keys) -> Result<Vec<Vec<u8>>> {
    let footer = Footer::decode(bytes)?;
    let (key, mut codec) = (footer.key(keys), Decompressor::new()?);
    let open = |(ordinal, entry): (usize, &ChunkEntry)| {
        let mut stored = bytes[entry.offset as usize..][..entry.stored as usize].to_vec();
        let mut content = Vec::new();
        footer.open(&key, ordinal, &mut stored, &mut codec, &mut content).map(|()| content)
    };
    footer.entries.iter().enumerate().map(open).collect()
}

#[test]
fn chunks_read_back() {
    for kind in [Kind::Content, Kind::Tree] {
        let bytes = segment(kind);
        assert_eq!(read(&bytes, &keys()), Ok(contents()));
        let footer = Footer::decode(&bytes).unwrap();
        assert_eq!(footer.kind, kind);
        assert_eq!(Footer::length(&bytes[bytes.len() - TRAILER_BYTES..]), Ok(Footer::bytes_for(4)));
        assert!(Footer::decode(&bytes[bytes.len() - Footer::bytes_for(4)..]).is_ok());
    }
}

/// The hash takes pieces of a segment while they come. A buffer that had another one before changes
/// nothing.
#[test]
fn a_segment_is_named_by_the_hash_of_all_its_bytes() {
    let (keys, mut compressor) = (keys(), Compressor::new(LEVEL_DEFAULT).unwrap());
    for lengths in [vec![], vec![10], vec![HASHED_AT_ONCE, 1], vec![1, HASHED_AT_ONCE - 1, 3 * HASHED_AT_ONCE + 5, 7]] {
        let mut writer = SegmentWriter::new(&keys, Kind::Content, [3; 32], vec![9; 100]);
        for (seed, length) in lengths.iter().enumerate() {
            let raw = random(seed as u64, *length);
            writer.add(&Prepared::new(keys.id(Kind::Content, &raw), &raw, &mut compressor).unwrap()).unwrap();
        }
        let full = writer.finish();
        assert_eq!(full.id, SegmentId::of(&full.bytes), "{lengths:?}");
        assert_eq!(Footer::decode(&full.bytes).unwrap().entries.len(), lengths.len());
    }
}

#[test]
fn every_changed_byte_is_noticed() {
    let whole = segment(Kind::Content);
    for at in HEADER_BYTES..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        // The header is only a copy: the footer has the same fields.
        assert!(read(&bytes, &keys()).is_err(), "byte {at} of {}", whole.len());
        assert_ne!(SegmentId::of(&bytes), SegmentId::of(&whole));
    }
}

#[test]
fn a_cut_segment_gives_an_error() {
    let whole = segment(Kind::Content);
    for length in 0..whole.len() {
        assert!(Footer::decode(&whole[..length]).is_err(), "{length}");
    }
}

#[test]
fn another_key_opens_nothing() {
    let other = Keys::new(Zeroizing::new([8; 32]));
    assert!(read(&segment(Kind::Content), &other).is_err());
}

#[test]
fn chunks_do_not_change_places() {
    // A footer that swaps the ids of two chunks of one length is well-formed, and opens none of
    // them.
    let (keys, mut compressor) = (keys(), Compressor::new(LEVEL_DEFAULT).unwrap());
    let mut writer = SegmentWriter::new(&keys, Kind::Content, [3; 32], Vec::new());
    for seed in [1, 2] {
        let raw = random(seed, 100);
        writer.add(&Prepared::new(keys.id(Kind::Content, &raw), &raw, &mut compressor).unwrap()).unwrap();
    }
    let (first, second) = (writer.footer.entries[0].id, writer.footer.entries[1].id);
    (writer.footer.entries[0].id, writer.footer.entries[1].id) = (second, first);
    let bytes = writer.finish().bytes;
    assert!(Footer::decode(&bytes).is_ok());
    assert!(read(&bytes, &keys).is_err());
}

#[test]
fn the_parts_of_a_segment_hold_each_byte_and_each_chunk_once() {
    let bytes = segment(Kind::Content);
    let footer = Footer::decode(&bytes).unwrap();
    for length in 0..bytes.len() as u64 + 10 {
        let (mut at, mut chunk) = (0, 0);
        for part in footer.parts(length) {
            assert_eq!((part.bytes.start, part.chunks.start), (at, chunk), "parts of {length}");
            for entry in &footer.entries[part.chunks.clone()] {
                let stored = u64::from(entry.offset)..u64::from(entry.offset + entry.stored);
                assert!(part.bytes.start <= stored.start && stored.end <= part.bytes.end, "parts of {length}");
            }
            (at, chunk) = (part.bytes.end, part.chunks.end);
        }
        assert_eq!((at, chunk), (bytes.len() as u64, footer.entries.len()), "parts of {length}");
    }
    assert_eq!(footer.parts(1).len(), footer.entries.len() + 1, "every chunk, and the footer");
}
