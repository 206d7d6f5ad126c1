//! The formats of a backup repository, from a store that lies: each is read to its end or refused,
//! and what was read keeps the rules of the format.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_backup::filter::Filter;
use stele_backup::keyring::{WrappedKey, parse_escrow};
use stele_backup::repository::Header;
use stele_backup::repository::epochs::{Epoch, SessionState};
use stele_backup::segment::{Footer, SEGMENT_CHUNKS_MAX};
use stele_backup::snapshot::{Snapshot, SnapshotId};
use stele_backup::tree::{TreeReader, is_name, order};

/// The bytes with the hash of all before it at the end, so that the fuzzer gets past it.
fn hashed(bytes: &[u8]) -> Vec<u8> {
    [bytes, blake3::hash(bytes).as_bytes()].concat()
}

fn tree(bytes: &[u8]) {
    let Ok(mut reader) = TreeReader::new(bytes) else { return };
    while let Ok(Some((path, entry))) = reader.step() {
        assert!(is_name(&entry.name));
        assert!(path.is_empty() || path.split(|byte| *byte == b'/').all(is_name));
        assert!(order(path, &entry.name) == order(&entry.name, path).reverse());
    }
}

fn footer(bytes: &[u8]) {
    // A trailer that fits, behind any footer.
    let count = bytes.len().saturating_sub(48) / 40;
    let hash = *blake3::hash(bytes).as_bytes();
    let (length, count) = ((bytes.len() as u32).to_le_bytes(), (count as u32).to_le_bytes());
    let whole = [bytes, &length, &count, &hash, b"STLBEND1"].concat();
    for bytes in [bytes, &whole] {
        if let Ok(footer) = Footer::decode(bytes) {
            assert!(footer.entries.len() <= SEGMENT_CHUNKS_MAX);
            let ends = footer.entries.windows(2).all(|two| two[0].offset + two[0].stored == two[1].offset);
            assert!(ends, "chunks do not follow each other");
        }
    }
}

fn snapshot(bytes: &[u8]) {
    for magic in [b"STLBSNP1", b"STLBSNP2"] {
        let whole = [magic.as_slice(), &[7; 16], bytes].concat();
        let id = SnapshotId(*blake3::hash(&whole).as_bytes());
        if let Ok(references) = Snapshot::decode_references(&whole, &id, &[7; 16]) {
            assert!(references.0.values().all(|ordinals| ordinals.iter().all(|ordinal| ordinal < SEGMENT_CHUNKS_MAX)));
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    match first % 7 {
        0 => tree(rest),
        1 => footer(rest),
        2 => snapshot(rest),
        3 => [rest, &hashed(rest)].iter().for_each(|bytes| drop(Header::decode(bytes))),
        4 => [rest, &hashed(rest)].iter().for_each(|bytes| drop(Epoch::decode(bytes))),
        5 => {
            let _ = SessionState::decode(rest);
            if let Ok(key) = WrappedKey::decode(rest) {
                assert_eq!(key.encode(), rest);
            }
        }
        _ => {
            let Ok(text) = std::str::from_utf8(rest) else { return };
            let _ = parse_escrow(text);
            let mut filter = Filter::default();
            if filter.add_lines(text, first % 2 == 0).is_ok() {
                filter.excludes(rest);
            }
        }
    }
});
