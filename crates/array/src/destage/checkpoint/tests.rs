use super::*;
use stele_ground::VolumeId;

#[test]
fn a_root_is_the_same_after_decoding() {
    let root =
        Root { next_volume: 3, lost: 4, generation_floor: 5, generation_high: 6, scrub_age: Duration(7), scrub_row: 8 };
    let bytes = root.encode();
    assert_eq!((bytes.len(), Root::decode(&bytes)), (ROOT_SIZE, Some(root)));
    let newer = [&(ROOT_VERSION + 1).to_le_bytes()[..], &bytes[4..]].concat();
    assert_eq!((Root::decode(&newer), Root::version(&newer)), (None, Some(ROOT_VERSION + 1)));
    assert_eq!(Root::decode(&bytes[..40]), None);
}

#[test]
fn a_page_of_lost_stripes_holds_what_was_written_last() {
    let lost = |volume: u32, stripe: u64| Some(StripeKey { volume: VolumeId(volume), stripe });
    let mut page = [0xFF; 4 * LOST_ENTRY];
    for entries in [vec![lost(7, 1 << 40), None, lost(0, 0)], vec![None, lost(9, 8)]] {
        write_lost(&mut page, &entries);
        let mut expected = entries.clone();
        expected.resize(4, None);
        assert_eq!(read_lost(&page), expected);
    }
}
