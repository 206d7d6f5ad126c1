use super::*;
use crate::durable::log::group::{Payload, tag_of};

#[test]
fn a_hole_in_the_log_names_drives_or_says_that_none_are_known() {
    let said = hole(7, 9, &[DriveNumber(1), DriveNumber(2)], &[DriveNumber(3)]);
    assert!(said.contains("its replicas are on drive 1, drive 2; return"), "{said}");
    let said = hole(7, 9, &[], &[DriveNumber(3)]);
    assert!(said.contains("no label says which drives took it; looked for on drive 3; return"), "{said}");
    let said = hole(7, 9, &[], &[]);
    assert!(said.contains("no drive that holds the log is here"), "{said}");
    assert!(!said.contains(" on ;"), "{said}");
}

/// The last groups before a hole may be of version 0.1.0, which wrote no tags. Behind a group with
/// a tag all have one.
#[test]
fn a_header_without_a_tag_counts_behind_groups_without_tags_alone() {
    let (block, secret) = ([7; BLOCK], 11);
    let header = Header {
        pool: PoolId([3; 16]),
        epoch: 1,
        sequence: 5,
        first: Lsn(9),
        count: 1,
        length: 100,
        watermark: 4,
        trim: Lsn(1),
        previous: 0,
        payload: Payload::of(&[]),
        tag: tag_of(&block, secret),
        crc: 0,
    };
    let admits = |tagged: bool, header: Header| {
        let witness = Witness { pool: PoolId([3; 16]), secret, tagged, anything: false, sequence_max: 5 };
        witness.admits(&header, &block)
    };
    let tag = |tag: u32| Header { tag, ..header };
    assert!(header.tag != 0 && admits(true, header) && admits(false, header));
    assert_eq!((admits(false, tag(0)), admits(true, tag(0))), (true, false));
    assert_eq!((admits(false, tag(header.tag ^ 1)), admits(true, tag(header.tag ^ 1))), (false, false));
    // Nor does one of another pool, of a group that does not fit, or with a watermark that it
    // cannot know.
    assert!(!admits(true, Header { pool: PoolId([4; 16]), ..header }));
    assert!(!admits(true, Header { sequence: 6, ..header }));
    assert!(!admits(true, Header { watermark: 5, ..header }));
}
