use stele_ground::{Dice, GIB};

use super::*;

const FORMAT: Format = Format { id: [1; 16], journal: None };

#[test]
fn plans_fit_their_volumes() {
    let mut sizes = vec![VOLUME_MIN, VOLUME_MIN + 4095, 100 * MIB, GIB, 10 * GIB, 100 * GIB, 1000 * GIB];
    let mut dice = Dice::new(1);
    sizes.extend((0..500).map(|_| VOLUME_MIN + dice.below(64 * GIB)));
    for size in sizes {
        let layout = Layout::plan(size, &FORMAT).unwrap();
        let end = layout.area_at + layout.area;
        assert!(layout.journal_at + layout.journal <= layout.area_at && end <= Layout::copies(size)[1], "{layout:?}");
        assert!(layout.area - BLOCK >= 2 * u64::from(layout.region_pages) * BLOCK);
        // Regions leave little space unused.
        assert!(size - end < (size / 4).max(9 * MIB), "{size}: {layout:?}");
        assert_eq!(Layout::decode(&layout.encode()), Ok(Some(layout)));
    }
    assert!(Layout::plan(VOLUME_MIN - 1, &FORMAT).is_err());
    let greedy = Format { journal: Some(Bytes(200 * MIB)), ..FORMAT };
    assert!(Layout::plan(210 * MIB, &greedy).is_err());
}

#[test]
fn a_superblock_changed_anywhere_is_none() {
    let block = Layout::plan(GIB, &FORMAT).unwrap().encode();
    for at in 0..block.len() {
        let mut changed = block.clone();
        changed[at] ^= 0x10;
        assert_eq!(Layout::decode(&changed), Ok(None), "byte {at}");
    }
    assert_eq!(Layout::decode(&block[..100]), Ok(None));
}

#[test]
fn another_version_is_refused_with_its_number() {
    for (at, name) in [(8, "version 2"), (12, "features 0x2")] {
        let mut block = Layout::plan(GIB, &FORMAT).unwrap().encode();
        block[at] = 2;
        let digest = blake3::hash(&block[..DIGEST_AT]);
        block[DIGEST_AT..].copy_from_slice(digest.as_bytes());
        assert!(Layout::stamp(&block).is_some_and(|stamp| stamp != (VERSION, 0)));
        match Layout::decode(&block) {
            Err(CatalogError::Newer(message)) => assert!(message.contains(name), "{message}"),
            other => panic!("{other:?}"),
        }
    }
}
