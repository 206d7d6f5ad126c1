use std::collections::BTreeMap;

use super::*;

#[test]
fn every_segment_has_its_own_place_and_parity_goes_round() {
    for level in [Level::Raid5, Level::Raid10] {
        let mut owners = BTreeMap::new();
        let mut covers: BTreeMap<usize, u32> = BTreeMap::new();
        let segments = capacity(level, 100 * SEGMENT) / SEGMENT;
        for segment in 0..segments {
            let found = spread(level, segment * SEGMENT, SEGMENT);
            assert_eq!((found.data.len(), found.cover.len()), (1, 1));
            let (data, cover) = (found.data[0], found.cover[0]);
            assert!(data.drive != cover.drive && data.at < 100 * SEGMENT);
            assert_eq!(owners.insert((data.drive, data.at), segment), None);
            *covers.entry(cover.drive).or_default() += 1;
        }
        let drives = if level == Level::Raid5 { ARRAY } else { ARRAY / 2 };
        assert_eq!(covers.len(), drives);
        assert!(covers.values().all(|count| *count == segments as u32 / drives as u32));
    }
}

#[test]
fn two_parities_lie_on_drives_of_their_own_and_take_turns() {
    let mut drives: Vec<usize> = Vec::new();
    for segment in 0..capacity(Level::Raid6, 10 * SEGMENT) / SEGMENT {
        let found = spread(Level::Raid6, segment * SEGMENT, SEGMENT);
        assert_eq!((found.data.len(), found.cover.len()), (1, 2));
        drives.push(found.data[0].drive);
        let all = [found.data[0].drive, found.cover[0].drive, found.cover[1].drive];
        assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2], "{all:?}");
    }
    for drive in 0..ARRAY {
        assert_eq!(drives.iter().filter(|one| **one == drive).count(), 8, "drive {drive}");
    }
    let row = spread(Level::Raid6, 0, 8 * SEGMENT);
    assert_eq!((row.data.len(), row.cover.len()), (8, 2), "parities of a whole row are a command each");
}

#[test]
fn an_access_across_segments_is_cut_and_shares_parity_where_its_parts_meet() {
    let found = spread(Level::Raid5, SEGMENT - 512, 4096);
    assert_eq!(found.data.iter().map(|piece| piece.length).collect::<Vec<_>>(), [512, 3584]);
    assert_eq!(found.cover.iter().map(|piece| (piece.drive, piece.length)).collect::<Vec<_>>(), [(9, 512), (9, 3584)]);
    let half = spread(Level::Raid5, SEGMENT / 2, SEGMENT);
    assert_eq!(half.cover, [Piece { drive: 9, at: 0, length: SEGMENT }]);
    let rows = spread(Level::Raid5, 9 * SEGMENT - 4096, 8192);
    assert_eq!(rows.cover.iter().map(|piece| (piece.drive, piece.length)).collect::<Vec<_>>(), [(9, 4096), (8, 4096)]);
    let pairs = spread(Level::Raid10, 5 * SEGMENT - 4096, 8192);
    assert_eq!(pairs.cover.iter().map(|piece| piece.drive).collect::<Vec<_>>(), [9, 1]);
}
